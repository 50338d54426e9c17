"""Train and resume: where data, method, engine and checkpoints meet."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dadagrad.algorithm import has_step_size, is_compiled, learner_name
from dadagrad.config import TrainConfig
from dadagrad.data.dataset import Dataset, open_dataset
from dadagrad.data.skipping import OnError, skipping
from dadagrad.errors import InputError
from dadagrad.method import make_method
from dadagrad.training.begin import AnyCoordinator, make_coordinator, make_plan, online_plan
from dadagrad.training.budget import Budget, make_budget
from dadagrad.training.checkpoint import CheckpointReader
from dadagrad.training.fitting_in import problem
from dadagrad.training.plan import CHUNK_ROWS, PLAIN_CHUNK_ROWS, Cursor
from dadagrad.training.result import TrainResult, make_model, make_report
from dadagrad.training.room import WorkerRoom, give_back
from dadagrad.training.saver import IN_MEMORY, CheckpointSaver, Start, restore
from dadagrad.training.states import zero_state
from dadagrad.training.step_size import choose_step_size
from dadagrad.training.watch import Progress, Watcher
from dadagrad.training.where import Engine, Where

__all__ = ["TrainResult", "Where", "auto_batch_size", "resume", "train"]

logger = logging.getLogger(__name__)


AUTO_DELAY = 1
"""Of batches that are chosen for a cluster: two under way at a time take half the messages each
(`dadagrad.training.plan.n_turns`), and learn about as well (`examples/benchmarks/quality.py`)."""


def auto_batch_size(data: Dataset, on_dask: bool) -> int:
    """The batch size that "auto" stands for.

    On this machine 1, the online algorithm. On a cluster a 256th of a pass, which learns about as
    well as the online pass (measured in `examples/benchmarks/quality.py`) with as few messages as
    that allows; at least 16 rows, and at most 20 million non-zeros, beyond which larger batches no
    longer make messages rarer than work.
    """
    if not on_dask:
        return 1
    rows_of_most_entries = int(20_000_000 * data.n_rows / max(data.nnz, 1))
    return max(16, min(data.n_rows // 256, rows_of_most_entries))


def with_batch_size(config: TrainConfig, data: Dataset, on_dask: bool) -> TrainConfig:
    """`config` with the batch size and delay that "auto" stands for.

    `InputError` if a delay is given that needs a larger batch size.
    """
    if config.batch_size != "auto":
        return config
    if config.exchange == "local-steps":
        return replace(config, batch_size=1)
    batch_size = auto_batch_size(data, on_dask)
    if config.delay == "auto":
        delay = AUTO_DELAY if batch_size > 1 and is_compiled(config) else 0
        return replace(config, batch_size=batch_size, delay=delay)
    if config.delay and batch_size == 1:
        raise InputError(
            f"delay={config.delay} needs a batch_size above 1, and 'auto' is 1 on this machine: "
            "one row a step, with nothing under way meanwhile; leave out delay, give a batch_size, "
            "or train on a cluster"
        )
    return replace(config, batch_size=batch_size)


def prepared(data: Dataset, config: TrainConfig, where: Where) -> TrainConfig:
    """`config` with a batch size, once it is clear that it can be trained on `data` there."""
    if data.n_rows == 0:
        raise InputError(f"the data at {data.url} has no rows; training needs at least one")
    if where.on_dask and learner_name(config) is not None:
        raise InputError(
            f"{learner_name(config)!r} learns row by row, which no cluster can share; train "
            "without workers"
        )
    return with_batch_size(config, data, where.on_dask)


def train(
    data: Dataset | str,
    config: TrainConfig | None = None,
    *,
    where: Where | None = None,
    checkpoints: str | None = None,
    save_every: int | None = None,
    save_seconds: float | None = 60.0,
    keep: int = 3,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
    notes: dict[str, Any] | None = None,
    on_error: OnError = "raise",
) -> TrainResult:
    """Train a model on `data`.

    Parameters
    ----------
    data : Dataset or str
        A dataset, or the URL of one.
    config : TrainConfig
        What is trained; decides every bit of the model.
    where : Where
        On which threads or workers.
    checkpoints : str or None
        URL of a folder for checkpoints; it must not hold another run's.
    save_every : int or None
        Steps between checkpoints.
    save_seconds : float or None
        Seconds between checkpoints where `save_every` is None.
    keep : int
        Checkpoints that are kept.
    progress, announce : callable or None
        Told how far the run is, and what it is about to do.
    notes : dict
        Plain JSON that is kept with the checkpoints, for whoever resumes.
    on_error : "raise" or "skip"
        Whether a partition that is missing or damaged ends the run, or is left out from then on,
        as rows of weight 0 would be. The model has the same bits wherever the run runs, as long as
        the same partitions are found to be so at their first reading; the report names them.

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
    where = where or Where()
    config = prepared(data, config or TrainConfig(), where)
    run = Run(data, config, where, save_every, save_seconds, progress, announce)
    run.readable = skipping(data, on_error)
    if checkpoints is None:
        with where.engine(run.readable) as engine:
            run.check_room(engine.workers(), checkpoints=False)
            return run.execute(engine)
    if CheckpointReader(checkpoints).list():
        raise InputError(
            f"{checkpoints} already holds the checkpoints of a run; go on with it by "
            "`dadagrad resume`, or choose another folder"
        )
    # A cluster that is not there, or too little memory, is no beginning of a run.
    with where.engine(run.readable) as engine:
        run.check_room(engine.workers(), checkpoints=True)
        kept = notes or {}
        with CheckpointSaver(
            checkpoints, run.readable, config, keep=keep, notes=kept, new=True
        ) as saver:
            saver.begin()
            return run.execute(engine, saver)


def resume(
    checkpoints: str,
    *,
    data: Dataset | None = None,
    where: Where | None = None,
    save_every: int | None = None,
    save_seconds: float | None = 60.0,
    keep: int = 3,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
    on_error: OnError | None = None,
) -> TrainResult:
    """Go on with the run whose checkpoints are at `checkpoints`, from the newest valid one.

    The model has the same bits as that of a run that never stopped. `data` is needed where the
    run's data was not at a URL; other parameters are those of `train`. `on_error` is what it was
    unless given; what was skipped before stays so.

    Raises
    ------
    InputError
        There is no checkpoint, or the data is not what the run was started with.
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
    if data.fingerprint != meta["data"]["fingerprint"]:
        raise InputError(
            f"the data at {data.url} is not what the run at {checkpoints} was started with: its "
            f"fingerprint is {data.fingerprint[:12]}, the checkpoint has "
            f"{meta['data']['fingerprint'][:12]}; restore the data, or start a new run"
        )
    config = TrainConfig.from_json(meta["config"])
    where = where or Where()
    run = Run(data, config, where, save_every, save_seconds, progress, announce)
    skipped = meta.get("skipped")
    on_error = on_error or ("raise" if skipped is None else "skip")
    run.readable = skipping(data, "skip" if skipped else on_error, skipped)
    start = restore(snapshot, run.method, run.plan, checkpoints) if snapshot.arrays else None
    if start is not None and start.cursor.pass_number >= config.passes:
        return run.at_end(start, checkpoints)
    with where.engine(run.readable) as engine:
        run.check_room(engine.workers(), checkpoints=True)
        notes = meta["notes"]
        with CheckpointSaver(checkpoints, run.readable, config, keep=keep, notes=notes) as saver:
            return run.execute(engine, saver, start)


class Run:
    """One execution of a run, from the start or from a snapshot."""

    def __init__(
        self,
        data: Dataset,
        config: TrainConfig,
        where: Where,
        save_every: int | None = None,
        save_seconds: float | None = None,
        progress: Progress | None = None,
        announce: Callable[[str], None] | None = None,
    ) -> None:
        self.data = self.readable = data
        self.config = config
        self.save_every = save_every
        self.save_seconds = save_seconds
        self.progress = progress
        self.announce = announce or logger.info
        assert isinstance(config.batch_size, int)
        if where.on_dask and config.batch_size == 1 and config.exchange == "gradients":
            raise InputError(
                "batch_size 1 takes one row after the other, which no cluster can share; choose "
                "'auto' or a larger batch_size, or exchange 'local-steps', or train without workers"
            )
        self.where = where
        self.method = make_method(config, data.schema, config.batch_size)
        rows = [partition.n_rows for partition in data.partitions]
        self.plan = make_plan(config, rows, chunk_rows=self._chunk_rows())

    def _chunk_rows(self) -> int:
        """Rows walked in one go. The margins of all outputs are kept for as long.

        They may take 8 MB, or a sixteenth of what the state takes.
        """
        method = self.method
        most = CHUNK_ROWS if method.compiled else min(CHUNK_ROWS, PLAIN_CHUNK_ROWS)
        return min(most, max(256, 2**20 // method.n_outputs, method.n_features // 16))

    def execute(
        self,
        engine: Engine,
        saver: CheckpointSaver | None = None,
        start: Start | None = None,
    ) -> TrainResult:
        """Run to the end, or until somebody asks to stop; from the beginning if `start` is None."""
        compile_seconds = self.compile()
        start = start or self._begin(engine, saver)
        coordinator = self._coordinator(start, None if saver is None else self.save_every)
        save_seconds = None if self.save_every is not None else self.save_seconds
        watcher = Watcher(saver, save_seconds, self.progress, start.seconds)
        with watcher.on_interrupt():
            complete = engine.run(coordinator, watcher)
        if complete and coordinator.tally.weight == 0.0:
            if self.method.loss.ranks:
                raise InputError(
                    f"no query of {self.data.url} has rows of different relevance and of weight "
                    "above 0; a ranking needs some, and the rows of a query must be neighbours"
                )
            raise InputError(
                f"all rows of {self.data.url} have weight 0, by themselves or by their class; "
                "training needs at least one that counts"
            )
        url = None if saver is None else saver.url
        steps, moved = coordinator.steps - start.steps, engine.bytes_moved
        per_step = moved / steps if moved is not None and steps else None
        return self._result(
            coordinator, complete, watcher.seconds, compile_seconds, url, bytes_per_step=per_step
        )

    def budget(self, worker_threads: int, checkpoints: bool) -> Budget:
        """What it will take."""
        return make_budget(
            self.data,
            self.method,
            self.plan,
            on_dask=self.where.on_dask,
            threads=self.where.local_threads,
            worker_threads=worker_threads,
            checkpoints=checkpoints,
        )

    def check_room(self, workers: Sequence[WorkerRoom], *, checkpoints: bool) -> None:
        """Refuse what cannot fit, before anything is made."""
        threads = max((worker.threads for worker in workers), default=1)
        why = problem(self.budget(threads, checkpoints), self.method, self.where.memory, workers)
        if why is not None:
            raise InputError(why)

    def at_end(self, start: Start, checkpoints: str) -> TrainResult:
        """What came of a run that is complete already; nothing is computed or saved."""
        self.announce(f"the run at {checkpoints} is complete: there is nothing to go on with")
        compile_seconds = self.compile()
        coordinator = self._coordinator(start, None)
        return self._result(coordinator, True, start.seconds, compile_seconds, checkpoints)

    def _coordinator(self, start: Start, save_every: int | None) -> AnyCoordinator:
        return make_coordinator(
            self.method,
            self.plan,
            start.state,
            cursor=start.cursor,
            steps=start.steps,
            tally=start.tally,
            pending=start.pending,
            save_every=save_every,
        )

    def _result(
        self,
        coordinator: AnyCoordinator,
        complete: bool,
        seconds: float,
        compile_seconds: float,
        checkpoints: str | None,
        *,
        bytes_per_step: float | None = None,
    ) -> TrainResult:
        report = make_report(coordinator, self.readable, complete, seconds) | {
            "bytes_per_step": bytes_per_step,
            "compile_seconds": compile_seconds,
            "checkpoints": checkpoints,
        }
        give_back()  # the memory of the partitions, before the model takes some
        model = make_model(self.method, coordinator.state, self.readable, report)
        report["nonzeros"] = int(np.count_nonzero(model.weights))
        report["digest"] = model.digest
        return TrainResult(model, report, complete, coordinator)

    def compile(self) -> float:
        """Have the kernels compiled, or loaded from the cache, before the clock runs."""
        from dadagrad.training.warm_up import warm_up

        return warm_up(self.method, self.announce)

    def _begin(self, engine: Engine, saver: CheckpointSaver | None) -> Start:
        """A new run, its step size chosen."""
        begun = time.perf_counter()
        if self.config.step_size == "auto" and has_step_size(self.config):
            self.announce("choosing the step size on the first rows")
            step_size = choose_step_size(
                self.readable,
                self.method,
                online_plan(self.plan),
                self.where.local_threads,
                engine.loader,
            )
            give_back()
            self.announce(f"step size {step_size:g}")
            self.config = replace(self.config, step_size=step_size)
            self.method = make_method(self.config, self.data.schema, self.plan.batch_size)
            if saver is not None:
                saver.config = self.config
        seconds = time.perf_counter() - begun
        return Start(zero_state(self.method), Cursor(), seconds=seconds)
