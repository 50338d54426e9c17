"""One execution of a run: preparations, rounds on an engine, and the result."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from dadagrad.config import CHOSEN, TrainConfig
from dadagrad.data.buffers import POOL
from dadagrad.data.dataset import Dataset
from dadagrad.data.skipping import skipping
from dadagrad.errors import DadagradError, InputError, OnError, TrainingError
from dadagrad.model.writer import ModelWriter
from dadagrad.problem import Problem, make_problem
from dadagrad.storage.memory import trim_malloc
from dadagrad.training.callbacks import BeginEvent, Callback
from dadagrad.training.checkpoints.snapshot import CheckpointSaver, Start
from dadagrad.training.constant import constant_metrics, warn_of_rows, worse_than_constant
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines import Engine
from dadagrad.training.engines.resources import Resources
from dadagrad.training.engines.warm_up import warm_up
from dadagrad.training.engines.watcher import Watcher
from dadagrad.training.holdout import split_holdout
from dadagrad.training.memory.check import memory_shortage
from dadagrad.training.memory.estimate import Estimate, estimate_run
from dadagrad.training.memory.workers import WorkerMemory, stays_on_workers
from dadagrad.training.progressive import best_setting
from dadagrad.training.result import (
    TrainResult,
    make_model,
    make_report,
    model_of_setting,
    write_result,
)
from dadagrad.training.schedule import make_schedule, n_prefetched
from dadagrad.training.schedule.base import CHUNK_ROWS, PLAIN_CHUNK_ROWS, Cursor
from dadagrad.training.state import zero_state
from dadagrad.training.state.remote import RemoteWeights
from dadagrad.training.step_size import choose_step_size
from dadagrad.training.units import choose_units, scale_new_columns
from dadagrad.training.worker.partition_reader import Loader

logger = logging.getLogger(__name__)

MIN_GAIN = 1e-3
"""Share by which a pass must lower the loss on the holdout, or it is the last."""


class Run:
    """One execution of a run, from the start or from a snapshot.

    Attributes
    ----------
    data, readable : Dataset
        The rows to learn from, and the same without partitions that are skipped.
    holdout : Holdout or None
        Rows to measure the model on.
    messages : callable
        Called with messages for people.
    save_to : str or None
        URL at which the model is saved at the end.
    keep_state : bool or None
        See `TrainResult.save`.
    earlier_names : mapping of int to str
        Names of features of the initial model.
    """

    earlier_names: Mapping[int, str] = MappingProxyType({})

    def __init__(
        self,
        data: Dataset,
        config: TrainConfig,
        resources: Resources,
        *,
        holdout: Any = None,
        on_error: OnError = "raise",
        skipped: Mapping[str, str] | None = None,
        messages: Callable[[str], None] | None = None,
        save_to: str | None = None,
        keep_state: bool | None = None,
    ) -> None:
        assert isinstance(config.batch_size, int)
        if resources.on_cluster and config.batch_size == 1 and config.n_streams == 1:
            raise InputError(
                "batch_size 1 takes one row after the other, which no cluster can share; go on "
                "without workers, or start a run with several streams, such as 16, or with batches"
            )
        problem = make_problem(config, data.schema, config.batch_size)
        self.data, self.holdout = split_holdout(
            data, holdout, problem,
            threads=resources.local_threads, on_error=on_error, skipped=skipped,
        )  # fmt: skip
        self.readable = skipping(self.data, on_error, skipped)
        self.resources = resources
        self.messages = messages or logger.info
        self.save_to, self.keep_state = save_to, keep_state
        self.compile_seconds = 0.0
        self.set_problem(problem)

    def set_problem(self, problem: Problem, most_rows: int | None = None) -> None:
        """Set the problem, and the schedule, of whose slices none has more than `most_rows`."""
        self.problem = problem
        self.schedule = make_schedule(
            problem.config,
            [partition.n_rows for partition in self.data.partitions],
            chunk_rows=min(_chunk_rows(problem), most_rows or CHUNK_ROWS),
            source_partitions=self.data.source_partitions,
        )

    @property
    def workers_write(self) -> bool:
        """True if the workers of a cluster write the model, whose weights nobody needs here."""
        has_names = self.readable.has_names or bool(self.earlier_names)
        is_needed = has_names or self.problem.units.means is not None or self.holdout is not None
        return self._stays_on_workers and self.save_to is not None and not is_needed

    @cached_property
    def _writer(self) -> ModelWriter | None:
        """Writer of the model to `save_to`, which is looked at when it is first needed."""
        return None if self.save_to is None else ModelWriter(self.save_to)

    @property
    def _stays_on_workers(self) -> bool:
        return self.resources.on_cluster and self.problem.online and stays_on_workers(self.problem)

    def estimate(self, workers: Sequence[WorkerMemory], *, checkpoints: bool) -> Estimate:
        """Estimate the memory and the traffic of the run."""
        return estimate_run(
            self.data,
            self.problem,
            self.schedule,
            on_cluster=self.resources.on_cluster,
            threads=self.resources.local_threads,
            workers=workers,
            checkpoints=checkpoints,
            workers_write=self.workers_write,
            held_out=None if self.holdout is None else self.holdout.rows,
        )

    def check(self, workers: Sequence[WorkerMemory], *, checkpoints: bool) -> None:
        """Refuse what cannot be saved or cannot fit, before anything is made."""
        if self._writer is not None:
            self._writer.check()
        if self.keep_state and self._stays_on_workers:
            raise InputError(
                "the state of this run stays on the workers of its cluster, because it is too "
                "large for this process; leave out keep_state and keep it by checkpoints, or train "
                "without workers"
            )
        estimate = self.estimate(workers, checkpoints=checkpoints)
        shortage = memory_shortage(estimate, self.problem, self.resources.memory, workers)
        if shortage is not None:
            raise InputError(shortage)

    def execute(
        self,
        engine: Engine,
        saver: CheckpointSaver | None = None,
        start: Start | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> TrainResult:
        """Run to the end, or until somebody asks to stop; from the beginning if `start` is None."""
        self.compile_seconds = warm_up(self.problem, self.messages)
        start = start or self.begin(engine)
        url = None if saver is None else saver.url
        watcher = self.watch(engine, start, callbacks, saver)
        watcher.writer = self._writer if self.workers_write else None
        if saver is not None:
            choices = {name: getattr(self.problem.config, name) for name in CHOSEN}
            saver.config, saver.units = replace(saver.config, **choices), self.problem.units
            saver.record, saver.curve, saver.names = start.record, start.curve, start.names
        with watcher.events():
            with self._writer or nullcontext():
                if self.problem.config.early_stopping:
                    coordinator, complete = self._learn_by_pass(engine, start, watcher)
                else:
                    coordinator, complete = self.learn(engine, start, watcher)
                steps = coordinator.place.steps - start.place.steps
                facts = {"bytes_per_step": engine.bytes_per_step(steps)}
                result = self.result(coordinator, complete, watcher, url, start, **facts)
                if self._writer is not None and complete:
                    write_result(result, self._writer, self.keep_state)
            watcher.result = result
            if self.holdout is not None and complete:
                self.messages(f"measuring the model on {self.holdout.rows.n_rows:,} rows")
                self.holdout.report(result, self.problem.loss, start.record.losses)
        return result

    def watch(
        self,
        engine: Engine,
        start: Start,
        callbacks: Sequence[Callback],
        saver: CheckpointSaver | None = None,
    ) -> Watcher:
        """Return the watcher of the run from `start` on."""
        problem = self.problem
        has_step_size = problem.config.update.has_step_size
        begin = BeginEvent(
            config=problem.config,
            data=self.data.url,
            task=problem.task,
            rows=self.data.n_rows,
            rows_done=start.place.rows,
            features=problem.n_features,
            outputs=problem.n_targets,
            step_sizes=tuple(s.step_size if has_step_size else None for s in problem.settings),
            checkpoints=None if saver is None else saver.url,
            curve=start.curve.to_json(),
            client=engine.client,
        )
        return Watcher(
            begin,
            [start.curve, *callbacks],
            saver=saver,
            seconds_before=start.seconds,
            record=start.record,
            trace=engine.trace,
        )

    def begin(self, engine: Engine) -> Start:
        """Choose on the first rows what is "auto", and return the start of a new run."""
        begun = time.perf_counter()
        config = self.problem.config
        loader = engine.loader or Loader(self.readable)
        if config.scale_columns is not False or engine.loader is not None:
            self._check_order(loader)
        units = choose_units(self.problem, self.readable, self.schedule, loader)
        if units.means is not None:
            self.messages(
                "the means of the first rows are subtracted from columns that nearly all rows have"
            )
        if units.scales is not None:
            self.messages("columns are scaled by their values in the first rows")
        self.problem = self.problem.with_units(units)
        if config.step_size == "auto" and config.update.has_step_size:
            self.messages("choosing the step size on the first rows")
            threads = self.resources.local_threads
            self.problem = choose_step_size(
                self.readable, self.problem, self.schedule, threads, loader
            )
            trim_malloc()
            chosen = self.problem.config
            average = " of averaged weights" if chosen.average is True else ""
            self.messages(f"step size {chosen.step_size:g}{average}")
        if engine.loader is None:  # the workers read from now on
            loader.clear()
            POOL.release()
        return Start(zero_state(self.problem), seconds=time.perf_counter() - begun)

    def go_on(self, engine: Engine, start: Start) -> None:
        """Look at the first rows before the run learns from them, from the state of another."""
        loader = engine.loader or Loader(self.readable)
        self.problem = scale_new_columns(
            self.problem, start.state, self.readable, self.schedule, loader
        )

    def _check_order(self, loader: Loader) -> None:
        """Warn if the rows of the first partition are sorted by label; the run reads it next."""
        if len(self.problem.label_columns) != 1 or not self.problem.loss.classifies:
            return
        first = int(self.schedule.first.order(0)[0])
        rows = loader.load(first)
        warn_of_rows(self.problem, rows, is_temporary=self.data.is_temporary)
        loader.keep(first, rows)

    def _learn_by_pass(
        self, engine: Engine, start: Start, watcher: Watcher
    ) -> tuple[Coordinator, bool]:
        """Train until a pass lowers the loss on the holdout by less than `MIN_GAIN`.

        The state at the end is that after the best pass.
        """
        assert self.holdout is not None
        record, coordinator = start.record, self.coordinator(start)
        losses = record.losses
        while True:
            cursor = coordinator.place.cursor
            passes = cursor.pass_number
            if cursor.round == 0 and passes > len(losses):
                best = best_setting(coordinator.place.passes)
                model = model_of_setting(coordinator, self.readable, best)
                losses.append(float(self.holdout.measure(model, self.problem.loss)["loss"]))
                self.messages(f"pass {passes}: loss {losses[-1]:.5g} on the holdout")
                if losses[-1] == min(losses):
                    record.best = coordinator.state.copy()
            falls = len(losses) < 2 or losses[-1] < (1.0 - MIN_GAIN) * losses[-2]
            if passes >= self.problem.config.passes or (passes == len(losses) and not falls):
                coordinator.state = record.best or coordinator.state
                return coordinator, True
            coordinator, complete = self.learn(engine, start, watcher, Cursor(passes + 1))
            if not complete:
                return coordinator, False
            start = replace(start, state=coordinator.state, place=coordinator.place)

    def learn(
        self, engine: Engine, start: Start, watcher: Watcher, stop: Cursor | None = None
    ) -> tuple[Coordinator, bool]:
        """Train from `start` to `stop`, or to the end of the run.

        Returns the coordinator at the end, and False if a stop was requested.
        """
        coordinator = self.coordinator(start, watcher.save_every, stop, engine.threads)
        try:
            with watcher.on_interrupt():
                complete = engine.run(coordinator, watcher)
        except TrainingError as error:
            self._name_feature(error)
            raise
        metrics = coordinator.metrics
        if complete and coordinator.place.cursor.pass_number and metrics.weight == 0.0:
            if self.problem.loss.ranks:
                raise InputError(
                    f"no query of {self.data.url} has rows of different relevance and of weight "
                    "above 0; a ranking needs some, and the rows of a query must be neighbours"
                )
            raise InputError(
                f"all rows of {self.data.url} have weight 0, by themselves or by their class; "
                "training needs at least one that counts"
            )
        if self.problem.n_settings > 1 and not np.isfinite(metrics.loss).any():
            raise TrainingError(
                f"{self.data.url}: the weights have diverged with every setting; choose smaller "
                "step sizes, or normalise the rows"
            )
        return coordinator, complete

    def _name_feature(self, error: TrainingError) -> None:
        """Name the feature of an error, if it has a name."""
        if error.feature is not None:
            with suppress(DadagradError):
                ids, data = np.array([error.feature]), self.readable
                error.feature_name = data.schema.names_of(ids, data.names(ids))[0] or ""

    def coordinator(
        self,
        start: Start,
        save_every: int | None = None,
        stop: Cursor | None = None,
        threads: int = 1,
    ) -> Coordinator:
        """The coordinator of the run from `start` on, for an engine of so many threads."""
        return Coordinator(
            self.problem,
            self.schedule,
            start.state,
            place=start.place,
            stop=stop,
            save_every=save_every,
            prefetch=n_prefetched(self.problem.config.n_streams, threads),
            remote=self.resources.on_cluster,
        )

    def result(
        self,
        coordinator: Coordinator,
        complete: bool,
        watcher: Watcher,
        checkpoints: str | None,
        start: Start,
        **facts: Any,
    ) -> TrainResult:
        """The model at the end of the run from `start` on, and the report with more `facts`."""
        n_passes = start.record.n_passes if complete else None
        report = make_report(coordinator, self.readable, complete, watcher.seconds, n_passes) | {
            "bytes_per_step": None,
            "compile_seconds": self.compile_seconds,
            "stopped_by": None if watcher.stopped_by is None else watcher.stopped_by.name,
            "checkpoints": checkpoints,
            "curve": start.curve.to_json(),
            "seconds_by_part": watcher.trace.seconds,
            **facts,
            **constant_metrics(self.problem, self.readable),
        }
        passes = coordinator.place.passes
        if complete and (warning := worse_than_constant(self.problem, report, passes)):
            logger.warning(warning)
        trim_malloc()  # the memory of the partitions, before the model takes some
        end = coordinator.state
        model = make_model(self.problem, end, self.readable, report, self.earlier_names)
        nonzeros = np.count_nonzero(model.weights)
        report["nonzeros"] = end.nonzeros if isinstance(end, RemoteWeights) else int(nonzeros)
        model.report.update(report)
        return TrainResult(model, report, complete, coordinator, self.save_to if complete else None)


def _chunk_rows(problem: Problem) -> int:
    """Rows of a slice at most: their scores take 8 MB, or a sixteenth of the state."""
    most = CHUNK_ROWS if problem.compiled else min(CHUNK_ROWS, PLAIN_CHUNK_ROWS)
    return min(most, max(256, 2**20 // problem.n_outputs, problem.n_features // 16))
