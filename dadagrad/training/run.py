"""Training and resuming of runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dadagrad.config import TrainConfig, make_config
from dadagrad.data import open_dataset
from dadagrad.data.dataset import Dataset
from dadagrad.data.skipping import OnError, skipping
from dadagrad.errors import InputError, TrainingError
from dadagrad.optim.losses import Loss
from dadagrad.optim.preconditioners import Preconditioner
from dadagrad.optim.regularizers import Regularizer
from dadagrad.optim.updates import Update
from dadagrad.problem import Problem, make_problem
from dadagrad.training.checkpoints.snapshot import IN_MEMORY, CheckpointSaver, Start, restore
from dadagrad.training.checkpoints.writer import CheckpointReader
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines import Engine
from dadagrad.training.engines.resources import Resources
from dadagrad.training.engines.watcher import Progress, Watcher
from dadagrad.training.memory.available import WorkerMemory, trim_malloc
from dadagrad.training.memory.check import memory_shortage
from dadagrad.training.memory.estimate import Estimate, estimate_run
from dadagrad.training.result import TrainResult, make_model, make_report
from dadagrad.training.schedule import Cursor, make_schedule, with_batch_size
from dadagrad.training.schedule.base import CHUNK_ROWS, PLAIN_CHUNK_ROWS
from dadagrad.training.state import zero_state
from dadagrad.training.step_size import choose_step_size
from dadagrad.training.warm_up import warm_up

__all__ = ["TrainResult", "resume", "train"]

logger = logging.getLogger(__name__)


def resolve_config(data: Dataset, config: TrainConfig, *, on_cluster: bool) -> TrainConfig:
    """Return `config` with numbers for "auto"; `InputError` if `data` do not suit it."""
    if data.n_rows == 0:
        raise InputError(f"the data at {data.url} has no rows; training needs at least one")
    if on_cluster and config.update.by_row:
        raise InputError(
            f"update {config.update.name!r} learns row by row, which no cluster can share; train "
            "without workers"
        )
    return with_batch_size(config, data, on_cluster)


def train(
    data: Dataset | str,
    config: TrainConfig | None = None,
    *,
    threads: int | None = None,
    workers: int | None = None,
    client: Any = None,
    memory: int | None = None,
    checkpoints: str | None = None,
    save_every: int | None = None,
    save_seconds: float | None = 60.0,
    keep: int = 3,
    progress: Progress | None = None,
    messages: Callable[[str], None] | None = None,
    metadata: dict[str, Any] | None = None,
    on_error: OnError = "raise",
    trace: str | None = None,
    **settings: Any,
) -> TrainResult:
    """Train a model on `data`.

    Parameters
    ----------
    data : Dataset or str
        A dataset, or the URL of one.
    config : TrainConfig, optional
        Settings, which decide every bit of the model.
    threads : int, optional
        Threads of this process; by default as many as it has cores.
    workers : int, optional
        Start a Dask cluster of so many processes on this machine, which share its cores, and train
        on it.
    client : distributed.Client or str, optional
        Train on the workers of a Dask cluster: a client, the address of a scheduler, or "current"
        for the active client.
    memory : int, optional
        Bytes that the run may take in this process, by default the free memory. A run that is
        predicted to take more is refused.
    checkpoints : str or None
        URL of a folder for checkpoints; it must not hold another run's.
    save_every : int or None
        Steps between checkpoints.
    save_seconds : float or None
        Seconds between checkpoints where `save_every` is None.
    keep : int
        Checkpoints that are kept.
    progress, messages : callable or None
        Called with the progress of the run, and with messages for people.
    metadata : dict
        Plain JSON that is stored with the checkpoints.
    on_error : "raise" or "skip"
        End the run at a partition that is missing or damaged, or leave it out from then on, like
        rows of weight 0. The bits are the same everywhere if the same partitions are bad when they
        are first read; the report names them.
    trace : str or None
        URL of a JSON file for the times of all tasks (`dadagrad.training.trace`).
    **settings
        Single settings of `TrainConfig`, such as ``loss="hinge"``; they replace those of `config`.
        Lists of `step_size`, `l1` and `l2` are tried side by side in the same pass: the model is
        that with the least progressive loss, and the report has the losses of all.

    Raises
    ------
    InputError
        The data and the configuration do not fit, the run does not fit into memory, or
        `checkpoints` holds another run.
    TrainingError
        A margin or gradient that is not finite.
    CorruptionError
        A partition is missing or damaged, and `on_error` is "raise"; or all are.
    """
    data = open_dataset(data) if isinstance(data, str) else data
    resources = Resources(threads, workers, client, memory, trace)
    config = resolve_config(data, make_config(config, settings), on_cluster=resources.on_cluster)
    run = Run(data, config, resources, on_error=on_error, messages=messages)
    if checkpoints is not None and CheckpointReader(checkpoints).list():
        raise InputError(
            f"{checkpoints} already holds the checkpoints of a run; go on with it by "
            "`dadagrad resume`, or choose another folder"
        )
    # A cluster that is not there, or too little memory, is no beginning of a run.
    with resources.engine(run.readable) as engine:
        run.check_memory(engine.workers(), checkpoints=checkpoints is not None)
        if checkpoints is None:
            return run.execute(engine, progress=progress)
        with CheckpointSaver(
            checkpoints, run.readable, config, keep=keep, notes=metadata or {}, new=True
        ) as saver:
            saver.begin()
            return run.execute(engine, saver, None, save_every, save_seconds, progress)


def resume(
    checkpoints: str,
    *,
    data: Dataset | None = None,
    loss: Loss | str | None = None,
    regularizer: Regularizer | str | None = None,
    preconditioner: Preconditioner | str | None = None,
    update: Update | str | None = None,
    threads: int | None = None,
    workers: int | None = None,
    client: Any = None,
    memory: int | None = None,
    save_every: int | None = None,
    save_seconds: float | None = 60.0,
    keep: int = 3,
    progress: Progress | None = None,
    messages: Callable[[str], None] | None = None,
    on_error: OnError | None = None,
    trace: str | None = None,
) -> TrainResult:
    """Go on with the run whose checkpoints are at `checkpoints`, from the newest valid one.

    The model has the same bits as that of a run that never stopped. `data` is needed where the
    run's data was not at a URL; other parameters are those of `train`. `on_error` is what it was
    unless given; what was skipped before stays so.

    A checkpoint has objects by name alone, and nothing read from it is imported: `loss`,
    `regularizer`, `preconditioner` and `update` are needed for objects of a user's own classes.

    Raises
    ------
    InputError
        There is no checkpoint; an object is missing or not that of the run; or the data is not
        what the run was started with.
    """
    snapshot = CheckpointReader(checkpoints).load()
    meta = snapshot.meta
    if data is None:
        if meta["data"]["url"] == IN_MEMORY:
            raise InputError(
                f"the run at {checkpoints} was started with data in memory; give the same data "
                "again to go on with it"
            )
        data = open_dataset(meta["data"]["url"])
    if data.digest != meta["data"]["digest"]:
        raise InputError(
            f"the data at {data.url} is not what the run at {checkpoints} was started with: its "
            f"digest is {data.digest[:12]}, the checkpoint has "
            f"{meta['data']['digest'][:12]}; restore the data, or start a new run"
        )
    data.compare_content(meta.get("content", {}))
    objects = {
        "loss": loss,
        "regularizer": regularizer,
        "preconditioner": preconditioner,
        "update": update,
    }
    config = TrainConfig.from_json(meta["config"], objects)
    resources = Resources(threads, workers, client, memory, trace)
    skipped = meta.get("skipped")
    if on_error is None or skipped:
        on_error = "raise" if skipped is None else "skip"
    run = Run(data, config, resources, on_error=on_error, skipped=skipped, messages=messages)
    start = restore(snapshot, run.problem, checkpoints) if snapshot.arrays else None
    if start is not None and start.cursor.pass_number >= config.passes:
        run.messages(f"the run at {checkpoints} is complete: there is nothing to resume")
        return run.result(run.coordinator(start), True, start.seconds, checkpoints)
    with resources.engine(run.readable) as engine:
        run.check_memory(engine.workers(), checkpoints=True)
        with CheckpointSaver(
            checkpoints, run.readable, config, keep=keep, notes=meta["notes"]
        ) as saver:
            return run.execute(engine, saver, start, save_every, save_seconds, progress)


class Run:
    """One execution of a run, from the start or from a snapshot.

    Attributes
    ----------
    data, readable : Dataset
        The data, and the same without partitions that are skipped.
    problem : Problem
    schedule : Schedule
    messages : callable
        Called with messages for people.
    """

    def __init__(
        self,
        data: Dataset,
        config: TrainConfig,
        resources: Resources,
        *,
        on_error: OnError = "raise",
        skipped: Mapping[str, str] | None = None,
        messages: Callable[[str], None] | None = None,
    ) -> None:
        assert isinstance(config.batch_size, int)
        if resources.on_cluster and config.batch_size == 1 and config.n_streams == 1:
            raise InputError(
                "batch_size 1 takes one row after the other, which no cluster can share; choose "
                "'auto' or a larger batch_size, or several streams, or train without workers"
            )
        self.data = data
        self.readable = skipping(data, on_error, skipped)
        self.resources = resources
        self.messages = messages or logger.info
        self.problem = make_problem(config, data.schema, config.batch_size)
        rows = [partition.n_rows for partition in data.partitions]
        self.schedule = make_schedule(config, rows, chunk_rows=_chunk_rows(self.problem))

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
        )

    def check_memory(self, workers: Sequence[WorkerMemory], *, checkpoints: bool) -> None:
        """Refuse what cannot fit, before anything is made."""
        estimate = self.estimate(workers, checkpoints=checkpoints)
        shortage = memory_shortage(estimate, self.problem, self.resources.memory, workers)
        if shortage is not None:
            raise InputError(shortage)

    def execute(
        self,
        engine: Engine,
        saver: CheckpointSaver | None = None,
        start: Start | None = None,
        save_every: int | None = None,
        save_seconds: float | None = None,
        progress: Progress | None = None,
    ) -> TrainResult:
        """Run to the end, or until somebody asks to stop; from the beginning if `start` is None."""
        compile_seconds = warm_up(self.problem, self.messages)
        start = start or self.begin(engine, saver)
        save_seconds = None if save_every is not None else save_seconds
        watcher = Watcher(saver, save_seconds, progress, start.seconds)
        coordinator, complete = self.learn(engine, start, watcher, save_every)
        steps, moved = coordinator.steps - start.steps, engine.bytes_moved
        return self.result(
            coordinator,
            complete,
            watcher.seconds,
            None if saver is None else saver.url,
            bytes_per_step=moved / steps if moved is not None and steps else None,
            compile_seconds=compile_seconds,
        )

    def begin(self, engine: Engine, saver: CheckpointSaver | None = None) -> Start:
        """Choose the step size and averaging if "auto", and return the start of a new run."""
        begun = time.perf_counter()
        config = self.problem.config
        if config.step_size == "auto" and config.update.has_step_size:
            self.messages("choosing the step size on the first rows")
            threads = self.resources.local_threads
            self.problem = choose_step_size(
                self.readable, self.problem, self.schedule, threads, engine.loader
            )
            trim_malloc()
            chosen = self.problem.config
            average = " of averaged weights" if chosen.average is True else ""
            self.messages(f"step size {chosen.step_size:g}{average}")
            if saver is not None:
                saver.config = replace(
                    saver.config, step_size=chosen.step_size, average=chosen.average
                )
        seconds = time.perf_counter() - begun
        return Start(zero_state(self.problem), Cursor(), seconds=seconds)

    def learn(
        self, engine: Engine, start: Start, watcher: Watcher, save_every: int | None = None
    ) -> tuple[Coordinator, bool]:
        """Train from `start`; the coordinator at the end, and False if a stop was requested."""
        coordinator = self.coordinator(start, save_every)
        with watcher.on_interrupt():
            complete = engine.run(coordinator, watcher)
        metrics = coordinator.metrics
        if complete and metrics.weight == 0.0:
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

    def coordinator(self, start: Start, save_every: int | None = None) -> Coordinator:
        """The coordinator of the run from `start` on."""
        return Coordinator(
            self.problem,
            self.schedule,
            start.state,
            cursor=start.cursor,
            steps=start.steps,
            passes=start.passes,
            save_every=save_every,
        )

    def result(
        self,
        coordinator: Coordinator,
        complete: bool,
        seconds: float,
        checkpoints: str | None,
        *,
        bytes_per_step: float | None = None,
        compile_seconds: float = 0.0,
    ) -> TrainResult:
        """The model and the report at the end of the run."""
        report = make_report(coordinator, self.readable, complete, seconds) | {
            "bytes_per_step": bytes_per_step,
            "compile_seconds": compile_seconds,
            "checkpoints": checkpoints,
        }
        trim_malloc()  # the memory of the partitions, before the model takes some
        model = make_model(self.problem, coordinator.state, self.readable, report)
        report["nonzeros"] = int(np.count_nonzero(model.weights))
        report["digest"] = model.digest
        return TrainResult(model, report, complete, coordinator)


def _chunk_rows(problem: Problem) -> int:
    """Rows of a slice at most: their scores take 8 MB, or a sixteenth of the state."""
    most = CHUNK_ROWS if problem.compiled else min(CHUNK_ROWS, PLAIN_CHUNK_ROWS)
    return min(most, max(256, 2**20 // problem.n_outputs, problem.n_features // 16))
