"""``step_size="auto"``: a trial of a grid of step sizes on the first rows of a pass.

Each partition is read once, for all step sizes. The trial keeps state for the features of its few
partitions only. No step size is dropped on the way, because the fastest at first is not the best:
dropping those three standard errors behind after a quarter of the rows made the error of a whole
pass 0.096 instead of 0.085.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows
from dadagrad.errors import TrainingError
from dadagrad.problem import Problem
from dadagrad.training.schedule import Schedule, Slice
from dadagrad.training.state import zero_state
from dadagrad.training.state.base import TrainingState
from dadagrad.training.state.compiled import State
from dadagrad.training.worker.partition_reader import Loaded, Loader
from dadagrad.training.worker.progressive import ProgressiveMetrics

logger = logging.getLogger(__name__)

GRID = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Step sizes tried. AdaGrad's step does not depend on the scale of gradients: a few octaves do."""

SHARE = 0.03
MIN_ROWS = 16_384
MAX_ROWS = 262_144
PLAIN_ROWS = 1_024
"""Rows of the trial of an algorithm that is not compiled."""

KEPT = 2
"""Partitions that the run finds read when the trial is over: one to learn from, and the next."""

LEGS = (0.5, 1.0)
"""Ends of the legs of the trial, as shares of its rows; the last leg decides."""


def choose_step_size(
    data: Dataset,
    problem: Problem,
    schedule: Schedule,
    threads: int = 1,
    loader: Loader | None = None,
) -> float:
    """The step size of `GRID`, times the scale of the targets, that does best on the first rows.

    The rows are the first 3 % in the order of the first pass, but at least 16,384 (or all there
    are) and at most 262,144; 1,024 if the algorithm is not compiled. Each row is a step, whatever
    the batch size of the run. The choice depends on data, configuration and seed alone, not on
    `threads`. If `loader` is that of the run, the partitions that the run reads first stay there.
    """
    problem = replace(problem, config=replace(problem.config, batch_size=1))
    with ThreadPoolExecutor(threads, thread_name_prefix="dadagrad-trial") as pool:
        first_rows = _FirstRows(data, schedule, problem.compiled, pool, loader)
        scaled = problem.task == "regression" and problem.loss.link != "log"
        scale = _target_scale(data, first_rows.chosen) if scaled else 1.0
        grid = tuple(step_size * scale for step_size in GRID)
        compact = replace(problem, n_features=first_rows.n_features)
        trials = [_Trial.of(compact, step_size) for step_size in grid]
        trial_metrics = _try_all(first_rows, trials, schedule.chunk_rows, threads)
    losses, errors = np.empty(len(grid)), np.empty(len(grid))
    for number, metrics in enumerate(trial_metrics):
        error = None if metrics is None else metrics.error(problem)
        losses[number] = np.inf if metrics is None else metrics.mean_loss(problem)[0]
        errors[number] = 0.0 if error is None else error[0]
    n_rows = next(metrics.rows for metrics in trial_metrics if metrics is not None)
    if not n_rows:
        found = "pair of rows of one query" if problem.loss.ranks else "row of positive weight"
        raise TrainingError(f"step_size='auto' found no {found} in the first rows; give a number")
    errors[np.isinf(losses)] = 1.0
    best = _best(losses, errors, n_rows)
    logger.info("step size %g of %s chosen on %d rows", grid[best], grid, first_rows.n_rows)
    return grid[best]


@dataclass(slots=True)
class _Trial:
    """Training with one step size, with metrics for each leg.

    It has a state from its first rows to its last. `failure` is the error that ended it before: the
    weights diverged.
    """

    problem: Problem
    legs: list[ProgressiveMetrics]
    state: TrainingState | None = None
    failure: TrainingError | None = None

    @classmethod
    def of(cls, problem: Problem, step_size: float) -> _Trial:
        metrics = [ProgressiveMetrics.zero(problem) for _ in LEGS]
        return cls(problem.with_step_sizes((step_size,)), metrics)

    def learn(self, part: _Part, chunk_rows: int, states: _States) -> None:
        """Learn from the rows of `part`."""
        if self.state is None:
            self.state = states.take(self.problem)
        for start, stop, leg in part.stretches:
            self._learn(part, start, stop, leg, chunk_rows)
            if self.failure is not None:
                break
        if part.last or self.failure is not None:
            states.give_back(self.state)
            self.state = None

    def _learn(self, part: _Part, first: int, end: int, leg: int, chunk_rows: int) -> None:
        from dadagrad.training.worker.compute import compute

        assert self.state is not None
        rows = replace(part.rows, vocabulary=part.positions)
        for start in range(first, end, chunk_rows):
            stop = min(start + chunk_rows, end)
            slice_ = Slice(0, part.partition, start, stop, False)
            try:
                result = compute(self.problem, rows, slice_, self.state, part.place)
            except TrainingError as error:
                self.failure = error
                return
            self.legs[leg] += result.metrics

    def so_far(self) -> ProgressiveMetrics:
        """Metrics of all legs together."""
        return sum(self.legs[1:], self.legs[0])


class _States:
    """States for trials, in the memory of trials that have ended: fresh memory is slow."""

    def __init__(self) -> None:
        self._idle: list[State] = []

    def take(self, problem: Problem) -> TrainingState:
        """The state before the first step."""
        try:
            state = self._idle.pop()
        except IndexError:
            return zero_state(problem)
        state.reset()
        return state

    def give_back(self, state: TrainingState) -> None:
        """Take back the state of a trial that has ended."""
        if isinstance(state, State):
            self._idle.append(state)


def _try_all(
    first_rows: _FirstRows, trials: list[_Trial], chunk_rows: int, threads: int
) -> list[ProgressiveMetrics | None]:
    """Metrics of the last leg of each trial; None if the trial failed before."""
    # States over all features may be large: then no more trials go through several parts at a time
    # than there are threads.
    together = len(trials) if first_rows.compact or len(first_rows.chosen) == 1 else threads
    states = _States()
    for first in range(0, len(trials), together):
        for part in first_rows.read():
            running = [trial for trial in trials[first : first + together] if trial.failure is None]
            learn = partial(_Trial.learn, part=part, chunk_rows=chunk_rows, states=states)
            list(first_rows.pool.map(learn, running))
    if all(trial.failure is not None for trial in trials):
        raise next(trial.failure for trial in trials if trial.failure is not None)
    # If all weight is in the first half, its metrics decide.
    late = any(trial.legs[-1].rows for trial in trials)
    return [
        None if trial.failure else trial.legs[-1] if late else trial.so_far() for trial in trials
    ]


def _standard_error(error: float, n_rows: int) -> float:
    return math.sqrt(error * (1.0 - error) / n_rows)


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of a partition that the trial takes: of its `rows` some stretches from the first on.

    `positions` are those of its vocabulary in that of the trial; `stretches` are rows from the
    first to before the second number, and the leg they are on; `last` is that of the last part.
    """

    partition: int
    rows: Rows
    positions: NDArray[np.int64]
    stretches: tuple[tuple[int, int, int], ...]
    last: bool
    place: str


def first_partitions(data: Dataset, schedule: Schedule, compiled: bool) -> list[tuple[int, int]]:
    """The partitions that the trial takes, and how many rows of each."""
    least, most = (MIN_ROWS, MAX_ROWS) if compiled else (PLAIN_ROWS, PLAIN_ROWS)
    missing = min(max(least, int(SHARE * data.n_rows)), most)
    chosen = []
    for partition in schedule.order(0):
        taken = min(missing, data.partitions[partition].n_rows)
        if taken:
            chosen.append((partition, taken))
        missing -= taken
    return chosen


class _FirstRows:
    """The first rows of a pass, over the union of their partitions' vocabularies.

    Each partition is read while the one before it is in use. Where the run has its `loader` read
    them, those it will want first stay there, and if they are more than the trial needs, they are
    read all the same: while the very first is read, there is nothing else to do.
    """

    def __init__(
        self,
        data: Dataset,
        schedule: Schedule,
        compiled: bool,
        pool: Executor,
        loader: Loader | None,
    ) -> None:
        self._data = data
        self.pool = pool
        self.compact = compiled
        self.chosen = first_partitions(data, schedule, compiled)
        self.n_rows = sum(taken for _, taken in self.chosen)
        self._loader = Loader(data) if loader is None else loader
        self._kept = [] if loader is None else list(schedule.order(0)[:KEPT])
        self._loading: deque[Future[Loaded]] = deque()
        self._begin()
        self._union: NDArray[np.int64]
        if not compiled:  # blocks, simplices and the like are about all features there are
            self._union = np.arange(data.schema.n_features)
        elif len(self.chosen) == 1:
            self._union = self._loading[0].result().rows.vocabulary
        else:
            partitions = [partition for partition, _ in self.chosen]
            vocabularies = list(pool.map(data.read_vocabulary, partitions))
            self._union = np.unique(np.concatenate(vocabularies))
        self.n_features = len(self._union)

    def _begin(self) -> None:
        """Begin to read the first two partitions."""
        chosen = [partition for partition, _ in self.chosen]
        self._to_load = deque(chosen + self._kept[len(chosen) :])
        for _ in range(KEPT):
            self._load_next()

    def _load_next(self) -> None:
        if self._to_load:
            self._loading.append(self.pool.submit(self._loader.load, self._to_load.popleft()))

    def read(self) -> Iterator[_Part]:
        """The parts in order, each of which is valid until the next one is asked for."""
        if not self._loading:
            self._begin()
        offset = 0
        for partition, n_rows in self.chosen:
            loaded = self._loading.popleft().result()
            rows = loaded.rows
            place = f"{self._data.url}, partition {self._data.partitions[partition].name}"
            positions = (
                np.arange(rows.n_local)
                if len(self._union) == rows.n_local
                else np.searchsorted(self._union, rows.vocabulary)
            )
            last = offset + n_rows == self.n_rows
            yield _Part(partition, rows, positions, self._stretches(offset, n_rows), last, place)
            offset += n_rows
            self._done_with(loaded)
            self._load_next()
        while self._loading:
            self._done_with(self._loading.popleft().result())

    def _done_with(self, loaded: Loaded) -> None:
        if loaded.partition in self._kept:
            self._loader.keep(loaded)
        else:
            self._loader.release(loaded)

    def _stretches(self, offset: int, n_rows: int) -> tuple[tuple[int, int, int], ...]:
        """The stretches of a part that begins with row `offset` of all."""
        ends = [min(max(int(end * self.n_rows) - offset, 0), n_rows) for end in LEGS]
        return tuple(
            (start, stop, leg)
            for leg, (start, stop) in enumerate(zip([0, *ends], ends, strict=False))
            if stop > start
        )


def _target_scale(data: Dataset, chosen: list[tuple[int, int]]) -> float:
    """The root mean square of a regression's targets.

    A step moves a weight by the step size, whatever the gradients: margins that have to reach a
    thousand need steps a thousand times as large as those that have to reach one.
    """
    labels = [data.read(partition).labels[:n_rows] for partition, n_rows in chosen]
    return float(np.sqrt(np.mean(np.square(np.concatenate(labels))))) or 1.0


def _best(losses: NDArray[np.float64], errors: NDArray[np.float64], n_rows: int) -> int:
    """The least error (all 0 in a regression), and the least loss among near ties.

    Both are those of the last leg, when most weights have been seen to.

    Early in a stream the loss falls fastest with steps that are too large for the rest of it
    (margins still have to grow); the error does not depend on the scale of margins. It is coarse,
    so that step sizes within half its standard error of the best count as ties.
    """
    least = float(errors.min())
    tie = 0.5 * _standard_error(least, n_rows)
    return int(np.argmin(np.where(errors <= least + tie, losses, np.inf)))
