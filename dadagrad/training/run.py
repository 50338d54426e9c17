"""Train and resume: where data, method, engine and checkpoints meet."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dadagrad.algorithm import has_step_size, learner_name
from dadagrad.config import TrainConfig
from dadagrad.data.dataset import Dataset, open_dataset
from dadagrad.errors import InputError
from dadagrad.method import Method, make_method
from dadagrad.model import Model
from dadagrad.training.checkpoint import CheckpointReader
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.plan import CHUNK_ROWS, PLAIN_CHUNK_ROWS, Cursor, Plan
from dadagrad.training.saver import IN_MEMORY, CheckpointSaver, Start, restore
from dadagrad.training.states import TrainingState, zero_state
from dadagrad.training.step_size import choose_step_size
from dadagrad.training.watch import Progress, Watcher
from dadagrad.training.where import Engine, Where

__all__ = ["TrainResult", "Where", "auto_batch_size", "make_model", "resume", "train"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a run made.

    Attributes
    ----------
    model : Model
    report : dict
        Counts, rates and losses, as `dadagrad train --json` prints them.
    complete : bool
        False where the run was stopped on request and can be resumed.
    coordinator : Coordinator
        As the run left it, with the whole state: for whoever goes on training.
    """

    model: Model
    report: dict[str, Any]
    complete: bool
    coordinator: Coordinator = field(repr=False)


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

    Raises
    ------
    InputError
        The data and the configuration do not fit, or `checkpoints` holds another run.
    TrainingError
        A margin or gradient that is not finite.
    """
    data = open_dataset(data) if isinstance(data, str) else data
    config = config or TrainConfig()
    where = where or Where()
    _check_not_empty(data)
    if where.on_dask and learner_name(config) is not None:
        raise InputError(
            f"{learner_name(config)!r} learns row by row, which no cluster can share; train "
            "without workers"
        )
    if config.batch_size == "auto":
        config = replace(config, batch_size=auto_batch_size(data, where.on_dask))
    run = _Run(data, config, where, save_every, save_seconds, progress, announce)
    if checkpoints is None:
        with where.engine(data) as engine:
            return run.execute(engine)
    if CheckpointReader(checkpoints).list():
        raise InputError(
            f"{checkpoints} already holds the checkpoints of a run; go on with it by "
            "`dadagrad resume`, or choose another folder"
        )
    # A cluster that is not there is no beginning of a run: connect first.
    with (
        where.engine(data) as engine,
        CheckpointSaver(checkpoints, data, config, keep=keep, notes=notes or {}) as saver,
    ):
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
) -> TrainResult:
    """Go on with the run whose checkpoints are at `checkpoints`, from the newest valid one.

    The model has the same bits as that of a run that never stopped. `data` is needed where the
    run's data was not at a URL; other parameters are those of `train`.

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
    run = _Run(data, config, where, save_every, save_seconds, progress, announce)
    start = restore(snapshot, run.method, checkpoints) if snapshot.arrays else None
    if start is not None and start.cursor.pass_number >= config.passes:
        return run.at_end(start, checkpoints)
    with (
        where.engine(data) as engine,
        CheckpointSaver(checkpoints, data, config, keep=keep, notes=meta["notes"]) as saver,
    ):
        return run.execute(engine, saver, start)


class _Run:
    """One execution of a run, from the start or from a snapshot."""

    def __init__(
        self,
        data: Dataset,
        config: TrainConfig,
        where: Where,
        save_every: int | None,
        save_seconds: float | None,
        progress: Progress | None,
        announce: Callable[[str], None] | None,
    ) -> None:
        self.data = data
        self.config = config
        self.save_every = save_every
        self.save_seconds = save_seconds
        self.progress = progress
        self.announce = announce or logger.info
        assert isinstance(config.batch_size, int)
        if where.on_dask and config.batch_size == 1:
            raise InputError(
                "batch_size 1 takes one row after the other, which no cluster can share; choose "
                "'auto' or a larger batch_size, or train without workers"
            )
        self.local_threads = where.local_threads
        self.method = make_method(config, data.schema, config.batch_size)
        self.plan = Plan(
            tuple(partition.n_rows for partition in data.partitions),
            config.batch_size,
            config.lanes,
            config.passes,
            config.shuffle,
            config.seed,
            self._chunk_rows(),
        )

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
        compile_seconds = self._compile()
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
        return self._result(coordinator, complete, watcher.seconds, compile_seconds, url)

    def at_end(self, start: Start, checkpoints: str) -> TrainResult:
        """What came of a run that is complete already; nothing is computed or saved."""
        self.announce(f"the run at {checkpoints} is complete: there is nothing to go on with")
        compile_seconds = self._compile()
        coordinator = self._coordinator(start, None)
        return self._result(coordinator, True, start.seconds, compile_seconds, checkpoints)

    def _coordinator(self, start: Start, save_every: int | None) -> Coordinator:
        return Coordinator(
            self.method,
            self.plan,
            start.state,
            cursor=start.cursor,
            steps=start.steps,
            tally=start.tally,
            save_every=save_every,
        )

    def _result(
        self,
        coordinator: Coordinator,
        complete: bool,
        seconds: float,
        compile_seconds: float,
        checkpoints: str | None,
    ) -> TrainResult:
        report = self._report(coordinator, complete, seconds) | {
            "compile_seconds": compile_seconds,
            "checkpoints": checkpoints,
        }
        model = make_model(self.method, coordinator.state, self.data, report)
        report["nonzeros"] = int(np.count_nonzero(model.weights))
        report["digest"] = model.digest
        return TrainResult(model, report, complete, coordinator)

    def _compile(self) -> float:
        """Have the kernels compiled, or loaded from the cache, before the clock runs."""
        from dadagrad.training.warm_up import warm_up

        return warm_up(self.method, self.announce)

    def _begin(self, engine: Engine, saver: CheckpointSaver | None) -> Start:
        """A new run, its step size chosen."""
        begun = time.perf_counter()
        if self.config.step_size == "auto" and has_step_size(self.config):
            self.announce("choosing the step size on the first rows")
            step_size = choose_step_size(
                self.data, self.method, self.plan, self.local_threads, engine.hand_over
            )
            self.announce(f"step size {step_size:g}")
            self.config = replace(self.config, step_size=step_size)
            self.method = make_method(self.config, self.data.schema, self.plan.batch_size)
            if saver is not None:
                saver.config = self.config
        seconds = time.perf_counter() - begun
        return Start(zero_state(self.method), Cursor(), seconds=seconds)

    def _report(self, coordinator: Coordinator, complete: bool, seconds: float) -> dict[str, Any]:
        tally, method = coordinator.tally, self.method
        error = tally.error(method)
        return {
            "examples": tally.examples,
            "steps": coordinator.steps,
            "passes": coordinator.cursor.pass_number,
            "seconds": seconds,
            "examples_per_second": tally.examples / seconds,
            "nnz_per_second": tally.entries / seconds,
            "progressive_loss": float(tally.mean_loss(method)[0]),
            "progressive_error": None if error is None else float(error[0]),
            "features": method.n_features,
            "step_size": method.step_sizes[0] if has_step_size(self.config) else None,
            "batch_size": self.plan.batch_size,
            "complete": complete,
        }


def make_model(
    method: Method, state: TrainingState, data: Dataset, report: dict[str, Any]
) -> Model:
    """The predict-only model: the features with a weight, their names where known."""
    weights = state.weights(method)
    ids = np.flatnonzero((weights != 0.0).any(axis=1))
    kept = weights[ids]
    return Model(
        n_features=method.n_features,
        ids=ids,
        weights=kept,
        intercept=state.intercepts(method),
        loss=method.config.loss,
        task=method.task,
        label_columns=method.label_columns,
        feature_space=data.schema.feature_space,
        names=data.names(ids),
        report={**report, "config": method.config.to_json(), "data": data.url},
    )


def _check_not_empty(data: Dataset) -> None:
    if data.n_rows == 0:
        raise InputError(f"the data at {data.url} has no rows; training needs at least one")
