"""Training and resuming of runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dadagrad.config import TrainConfig, make_config
from dadagrad.data import open_dataset
from dadagrad.data.dataset import Dataset
from dadagrad.data.skipping import OnError, skipping
from dadagrad.errors import InputError
from dadagrad.optim.losses import Loss
from dadagrad.optim.preconditioners import Preconditioner
from dadagrad.optim.regularizers import Regularizer
from dadagrad.optim.updates import Update
from dadagrad.problem import make_problem
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

__all__ = ["TrainResult", "resume", "train"]

logger = logging.getLogger(__name__)


def resolve_config(data: Dataset, config: TrainConfig, *, on_cluster: bool) -> TrainConfig:
    """Return `config` with a number for batch_size; `InputError` if `data` do not suit it."""
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
    announce: Callable[[str], None] | None = None,
    notes: dict[str, Any] | None = None,
    on_error: OnError = "raise",
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
        Threads of this process; by default 2, or 1 on a machine with one core.
    workers : int, optional
        Start a Dask cluster of so many processes on this machine, and train on it.
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
    progress, announce : callable or None
        Called with the progress of the run, and with messages for people.
    notes : dict
        Plain JSON that is stored with the checkpoints.
    on_error : "raise" or "skip"
        End the run at a partition that is missing or damaged, or leave it out from then on, like
        rows of weight 0. The bits are the same everywhere if the same partitions are bad when they
        are first read; the report names them.
    **settings
        Single settings of `TrainConfig`, such as ``loss="hinge"``; they replace those of `config`.

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
    resources = Resources(threads, workers, client, memory)
    config = resolve_config(data, make_config(config, settings), on_cluster=resources.on_cluster)
    run = Run(data, config, resources, save_every, save_seconds, progress, announce)
    run.readable = skipping(data, on_error)
    if checkpoints is None:
        with resources.engine(run.readable) as engine:
            run.check_memory(engine.workers(), checkpoints=False)
            return run.execute(engine)
    if CheckpointReader(checkpoints).list():
        raise InputError(
            f"{checkpoints} already holds the checkpoints of a run; go on with it by "
            "`dadagrad resume`, or choose another folder"
        )
    # A cluster that is not there, or too little memory, is no beginning of a run.
    with resources.engine(run.readable) as engine:
        run.check_memory(engine.workers(), checkpoints=True)
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
    announce: Callable[[str], None] | None = None,
    on_error: OnError | None = None,
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
    objects = {
        "loss": loss,
        "regularizer": regularizer,
        "preconditioner": preconditioner,
        "update": update,
    }
    config = TrainConfig.from_json(meta["config"], objects)
    resources = Resources(threads, workers, client, memory)
    run = Run(data, config, resources, save_every, save_seconds, progress, announce)
    skipped = meta.get("skipped")
    on_error = on_error or ("raise" if skipped is None else "skip")
    run.readable = skipping(data, "skip" if skipped else on_error, skipped)
    start = restore(snapshot, run.problem, checkpoints) if snapshot.arrays else None
    if start is not None and start.cursor.pass_number >= config.passes:
        return run.at_end(start, checkpoints)
    with resources.engine(run.readable) as engine:
        run.check_memory(engine.workers(), checkpoints=True)
        notes = meta["notes"]
        with CheckpointSaver(checkpoints, run.readable, config, keep=keep, notes=notes) as saver:
            return run.execute(engine, saver, start)


class Run:
    """One execution of a run, from the start or from a snapshot."""

    def __init__(
        self,
        data: Dataset,
        config: TrainConfig,
        resources: Resources,
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
        if resources.on_cluster and config.batch_size == 1 and config.streams == 1:
            raise InputError(
                "batch_size 1 takes one row after the other, which no cluster can share; choose "
                "'auto' or a larger batch_size, or several streams, or train without workers"
            )
        self.resources = resources
        self.problem = make_problem(config, data.schema, config.batch_size)
        rows = [partition.n_rows for partition in data.partitions]
        self.schedule = make_schedule(config, rows, chunk_rows=self._chunk_rows())

    def _chunk_rows(self) -> int:
        """Rows of a slice at most: their scores take 8 MB, or a sixteenth of the state."""
        problem = self.problem
        most = CHUNK_ROWS if problem.compiled else min(CHUNK_ROWS, PLAIN_CHUNK_ROWS)
        return min(most, max(256, 2**20 // problem.n_outputs, problem.n_features // 16))

    def execute(
        self,
        engine: Engine,
        saver: CheckpointSaver | None = None,
        start: Start | None = None,
    ) -> TrainResult:
        """Run to the end, or until somebody asks to stop; from the beginning if `start` is None."""
        compile_seconds = self.compile()
        start = start or self.begin(engine, saver)
        coordinator, complete, seconds = self.learn(engine, start, saver)
        url = None if saver is None else saver.url
        steps, moved = coordinator.steps - start.steps, engine.bytes_moved
        per_step = moved / steps if moved is not None and steps else None
        return self._result(
            coordinator, complete, seconds, compile_seconds, url, bytes_per_step=per_step
        )

    def learn(
        self, engine: Engine, start: Start, saver: CheckpointSaver | None = None
    ) -> tuple[Coordinator, bool, float]:
        """Train from `start`, until the end or until a stop is requested.

        Returns
        -------
        coordinator : Coordinator
            With the state at the end.
        complete : bool
        seconds : float
            Time of the run, with that before `start`.
        """
        coordinator = self._coordinator(start, None if saver is None else self.save_every)
        save_seconds = None if self.save_every is not None else self.save_seconds
        watcher = Watcher(saver, save_seconds, self.progress, start.seconds)
        with watcher.on_interrupt():
            complete = engine.run(coordinator, watcher)
        if complete and coordinator.metrics.weight == 0.0:
            if self.problem.loss.ranks:
                raise InputError(
                    f"no query of {self.data.url} has rows of different relevance and of weight "
                    "above 0; a ranking needs some, and the rows of a query must be neighbours"
                )
            raise InputError(
                f"all rows of {self.data.url} have weight 0, by themselves or by their class; "
                "training needs at least one that counts"
            )
        return coordinator, complete, watcher.seconds

    def estimate(self, worker_threads: int, checkpoints: bool) -> Estimate:
        """Estimate the memory and the traffic of the run."""
        return estimate_run(
            self.data,
            self.problem,
            self.schedule,
            on_cluster=self.resources.on_cluster,
            threads=self.resources.local_threads,
            worker_threads=worker_threads,
            checkpoints=checkpoints,
        )

    def check_memory(self, workers: Sequence[WorkerMemory], *, checkpoints: bool) -> None:
        """Refuse what cannot fit, before anything is made."""
        threads = max((worker.threads for worker in workers), default=1)
        why = memory_shortage(
            self.estimate(threads, checkpoints), self.problem, self.resources.memory, workers
        )
        if why is not None:
            raise InputError(why)

    def at_end(self, start: Start, checkpoints: str) -> TrainResult:
        """The result of a run that is complete already; nothing is computed or saved."""
        self.announce(f"the run at {checkpoints} is complete: there is nothing to resume")
        compile_seconds = self.compile()
        coordinator = self._coordinator(start, None)
        return self._result(coordinator, True, start.seconds, compile_seconds, checkpoints)

    def _coordinator(self, start: Start, save_every: int | None) -> Coordinator:
        return Coordinator(
            self.problem,
            self.schedule,
            start.state,
            cursor=start.cursor,
            steps=start.steps,
            metrics=start.metrics,
            save_every=save_every,
        )

    def _result(
        self,
        coordinator: Coordinator,
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
        trim_malloc()  # the memory of the partitions, before the model takes some
        model = make_model(self.problem, coordinator.state, self.readable, report)
        report["nonzeros"] = int(np.count_nonzero(model.weights))
        report["digest"] = model.digest
        return TrainResult(model, report, complete, coordinator)

    def compile(self) -> float:
        """Have the kernels compiled, or loaded from the cache, before the clock runs."""
        from dadagrad.training.warm_up import warm_up

        return warm_up(self.problem, self.announce)

    def begin(self, engine: Engine, saver: CheckpointSaver | None = None) -> Start:
        """Choose the step size if it is "auto", and return the start of a new run."""
        begun = time.perf_counter()
        if self.config.step_size == "auto" and self.config.update.has_step_size:
            self.announce("choosing the step size on the first rows")
            step_size = choose_step_size(
                self.readable,
                self.problem,
                self.schedule,
                self.resources.local_threads,
                engine.loader,
            )
            trim_malloc()
            self.announce(f"step size {step_size:g}")
            self.config = replace(self.config, step_size=step_size)
            self.problem = self.problem.with_step_sizes([step_size])
            if saver is not None:
                saver.config = self.config
        seconds = time.perf_counter() - begun
        return Start(zero_state(self.problem), Cursor(), seconds=seconds)
