"""``step_size="auto"``: a trial of a grid of step sizes on the first rows of a pass.

With ``average="auto"`` the average of the weights is tried beside the last weights: they are
learned alike, so that it costs one more score of each row.

The trial is a run over these rows, in which all step sizes are settings that are learned side by
side. It keeps state for the features of its few partitions only. No step size is dropped on the
way, because the fastest at first is not the best: dropping those three standard errors behind after
a quarter of the rows made the error of a whole pass 0.096 instead of 0.085.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dadagrad.config import SETTINGS
from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows
from dadagrad.errors import TrainingError
from dadagrad.kernels.id_sets import unite
from dadagrad.kernels.training import Batch
from dadagrad.problem import Problem
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines.threads import LocalEngine
from dadagrad.training.engines.watcher import Watcher
from dadagrad.training.schedule import Schedule
from dadagrad.training.schedule.batches import FirstRows
from dadagrad.training.state import zero_state
from dadagrad.training.state.base import Count, TrainingState
from dadagrad.training.state.compiled import State
from dadagrad.training.worker import Spread
from dadagrad.training.worker.partition_reader import Loaded, Loader

logger = logging.getLogger(__name__)

GRID = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
"""Step sizes tried. AdaGrad's step does not depend on the scale of gradients. Averages need larger
steps than the last weights."""

SHARE = 0.005
"""Share of the rows that are tried. A row costs the trial up to 20 times what it costs the pass."""

MIN_ROWS, MIN_SHORT_ROWS, MIN_ENTRIES = 16_384, 32_768, 1 << 20
"""The rows that are tried, at least: as many as have so many non-zeros, between two limits. With
half as many the error of five sets is 1 to 6 % larger."""

MAX_ROWS = 262_144
PLAIN_ROWS = 1_024
"""Rows of the trial of an algorithm that is not compiled."""

KEPT = 2
"""Partitions that the run finds read when the trial is over: one to learn from, and the next."""


def choose_step_size(
    data: Dataset,
    problem: Problem,
    schedule: Schedule,
    threads: int = 1,
    loader: Loader | None = None,
) -> Problem:
    """Return `problem` with the settings that do best on the first rows.

    They are a step size of `GRID`, times the scale of the targets, and whether the model is the
    average of the weights, if that is to be chosen. The rows are the first 0.5 % in the order of
    the first pass, but at least 16,384 (32,768 if rows are short) and at most 262,144; 1,024 if the
    algorithm is not compiled. Each row is a step, whatever the batch size of the run. The choice
    depends on data, configuration and seed alone, not on `threads`. Of several l1 and l2 the first
    are used.
    If `loader` is that of the run, the partitions that the run reads first stay there.
    """
    rows = first_rows(data, schedule, problem.compiled)
    reader = _TrialReader(data, loader, rows, schedule.order(0)[:KEPT], threads)
    scaled = problem.task == "regression" and problem.loss.link != "log"
    scale = _target_scale(data, rows) if scaled else 1.0
    grid = [step_size * scale for step_size in GRID]
    config = replace(
        problem.settings[0].config,
        batch_size=1,
        streams=1,
        rounds=SETTINGS["rounds"].default,
        average=problem.chooses_average,
        calibration="none",
    )
    trial = replace(problem, config=config, configs=())
    if problem.compiled:
        scales = None if problem.scales is None else problem.scales[reader.vocabulary]
        trial = replace(trial, n_features=len(reader.vocabulary), scales=scales)
    # Algorithms that are not compiled have one setting at a time.
    runs = [
        _record(LocalEngine(data, threads, reader), trial.with_step_sizes(each), rows)
        for each in ([grid] if problem.compiled else [[step_size] for step_size in grid])
    ]
    reader.finish()
    importance = max((run.importance for run in runs), key=len)
    if not importance.any():
        found = "pair of rows of one query" if problem.loss.ranks else "row of positive weight"
        raise TrainingError(f"step_size='auto' found no {found} in the first rows; give a number")
    losses = np.concatenate([run.losses for run in runs])
    if np.isinf(losses).all():
        raise TrainingError(
            f"step_size='auto': the weights diverge with each of {', '.join(map(str, grid))}; give "
            "a smaller step size, or normalise the rows"
        )
    mistakes = [
        run.mistakes if len(run.importance) else np.ones((1, len(importance))) for run in runs
    ]
    best = _best(losses, np.concatenate(mistakes), importance)
    step_size, average = grid[best % len(grid)], best >= len(grid)
    n_tried = sum(n for _, n in rows.parts)
    text = "step size %g of %s, average %s, chosen on %d rows"
    logger.info(text, step_size, grid, average, n_tried)
    return problem.choose(step_size, average)


def first_rows(data: Dataset, schedule: Schedule, compiled: bool) -> FirstRows:
    """The schedule of the trial before a run."""
    schedule = schedule.first
    all_rows = sum(schedule.partition_rows)
    entries = sum(each.nnz for each in data.partitions[: len(schedule.partition_rows)])
    enough = min(max(MIN_ROWS, MIN_ENTRIES * all_rows // max(entries, 1)), MIN_SHORT_ROWS)
    n_rows = min(max(enough, int(SHARE * all_rows)), MAX_ROWS)
    return FirstRows(
        schedule.partition_rows,
        shuffle=schedule.shuffle,
        seed=schedule.seed,
        chunk_rows=schedule.chunk_rows,
        n_rows=n_rows if compiled else PLAIN_ROWS,
    )


class _Record(NamedTuple):
    """Losses and mistakes of settings on rows that they had not learned from.

    Attributes
    ----------
    importance : (n_rows,) float64
    losses : (n_settings,) float64
        Sums over the rows; infinite where a setting has diverged.
    mistakes : (n_settings, n_rows) float32
        1 where a row was predicted wrong, 0 in a regression.
    """

    importance: NDArray[np.float64]
    losses: NDArray[np.float64]
    mistakes: NDArray[np.float32]


class _RecordingState:
    """State of a trial that keeps a record of each slice: of all settings, then of averages."""

    t = 0.0

    def __init__(self, state: TrainingState) -> None:
        self._state = state
        self.records: list[_Record] = []

    def learn(
        self,
        problem: Problem,
        rows: Rows,
        batch: Batch,
        scores: NDArray[np.float64],
        count: Count,
        spread: Spread,
    ) -> None:
        """Take one step for each of the `rows`; see `TrainingState`."""
        averages = np.zeros(scores.shape if problem.averages else (0, 0))
        if isinstance(self._state, State):
            self._state.learn(problem, rows, batch, scores, count, spread, averages)
        else:
            self._state.learn(problem, rows, batch, scores, count, spread)
        importance = batch.importance if len(batch.importance) else np.ones(rows.n_rows)
        targets = problem.targets(rows.labels)[:, : problem.n_targets]
        settings = [
            _record_setting(problem, outputs.T, targets, importance)
            for each in (scores, averages)
            for outputs in each.reshape(-1, problem.n_targets, rows.n_rows)
        ]
        losses, mistakes = zip(*settings, strict=True)
        self.records.append(_Record(importance, np.array(losses), np.array(mistakes, np.float32)))


def _record_setting(
    problem: Problem,
    scores: NDArray[np.float64],
    targets: NDArray[np.float64],
    importance: NDArray[np.float64],
) -> tuple[float, NDArray[Any]]:
    """The sum of the losses of one setting, and the mistakes, of (n_rows, n_targets) scores."""
    if not np.isfinite(scores).all():
        return np.inf, np.ones(len(scores))
    losses = problem.loss.value(scores, targets)
    if problem.task == "multiclass":
        mistakes: NDArray[Any] = scores.argmax(axis=1) != targets.argmax(axis=1)
    elif problem.task == "regression":
        mistakes = np.zeros(len(scores))
    else:
        mistakes = ((scores > 0.0) != (targets > 0.0)).mean(axis=1)
    by_row = losses.reshape(len(scores), -1).mean(axis=1)
    return float((importance * by_row).sum()), mistakes


def _record(engine: LocalEngine, problem: Problem, rows: FirstRows) -> _Record:
    """Learn from `rows`; the record of the last half, when most weights have been seen to.

    If all weight is in the first half, it is that of both. A setting that diverges has no rows.
    """
    state = _RecordingState(zero_state(problem))
    try:
        engine.run(Coordinator(problem, rows, cast(TrainingState, state)), Watcher())
    except TrainingError:
        if problem.n_settings > 1:
            raise
        return _Record(np.zeros(0), np.full(1, np.inf), np.zeros((1, 0), np.float32))
    seen, middle = 0, sum(n for _, n in rows.parts) // 2
    halves: tuple[list[_Record], list[_Record]] = [], []
    for (stretch,), record in zip(rows.stretches(0), state.records, strict=True):
        halves[seen >= middle].append(record)
        seen += sum(slice_.n_rows for slice_ in stretch)
    last = _joined(halves[1])
    return last if last.importance.any() else _joined(halves[0] + halves[1])


def _joined(records: list[_Record]) -> _Record:
    importance, losses, mistakes = zip(*records, strict=True)
    return _Record(np.concatenate(importance), sum(losses), np.concatenate(mistakes, axis=1))


class _TrialReader(Loader):
    """Reader of the partitions of a trial, over the union of their vocabularies.

    `loader` is that of the run that follows, for which the partitions `wanted` stay in memory; None
    reads for the trial alone. `threads` partitions are read at the same time.
    """

    def __init__(
        self,
        data: Dataset,
        loader: Loader | None,
        rows: FirstRows,
        wanted: Sequence[int],
        threads: int,
    ) -> None:
        self._data = data
        self._loader = loader or Loader(data)
        tried = [partition for partition, _ in rows.parts]
        # While the very first is read, there is nothing else to do but to read the next.
        early = tried[:KEPT] if loader is None else wanted
        with ThreadPoolExecutor(threads, thread_name_prefix="dadagrad-trial") as pool:
            self._early = dict(zip(early, pool.map(self._loader.load, early), strict=True))
            vocabularies = list(pool.map(self._vocabulary_of, tried))
        self.vocabulary = reduce(lambda ids, others: unite(ids, others)[0], vocabularies)

    def _vocabulary_of(self, partition: int) -> NDArray[np.int64]:
        early = self._early.get(partition)
        return self._data.read_vocabulary(partition) if early is None else early.rows.vocabulary

    def load(self, partition: int) -> Loaded:
        """The rows of a partition, whose vocabulary is that of the trial."""
        loaded = self._early.get(partition) or self._loader.load(partition)
        vocabulary = loaded.rows.vocabulary
        positions = (
            np.arange(len(vocabulary))
            if len(vocabulary) == len(self.vocabulary)
            else np.searchsorted(self.vocabulary, vocabulary)
        )
        return replace(loaded, rows=replace(loaded.rows, vocabulary=positions))

    def release(self, loaded: Loaded) -> None:
        """Let go of the rows, unless they were read early."""
        if loaded.partition not in self._early:
            self._loader.release(loaded)

    def clear(self) -> None:
        """Nothing: more runs may follow."""

    def finish(self) -> None:
        """Leave what was read early to the run."""
        for loaded in self._early.values():
            self._loader.keep(loaded)


def _target_scale(data: Dataset, rows: FirstRows) -> float:
    """The root mean square of a regression's targets.

    A step moves a weight by the step size, whatever the gradients: margins that have to reach a
    thousand need steps a thousand times as large as those that have to reach one.
    """
    labels = [data.read(partition).labels[:n_rows] for partition, n_rows in rows.parts]
    return float(np.sqrt(np.mean(np.square(np.concatenate(labels))))) or 1.0


def _best(
    losses: NDArray[np.float64], mistakes: NDArray[np.float32], importance: NDArray[np.float64]
) -> int:
    """The least error (all 0 in a regression), and the least loss among near ties.

    Early in a stream the loss falls fastest with steps that are too large for the rest of it
    (scores still have to grow); the error does not depend on the scale of scores. It is coarse:
    settings whose errors differ from the best by less than half the standard error of that
    difference count as ties. The rows that both predict alike tell nothing about it, so that this
    is much less than the standard error of an error where mistakes are rare.
    """
    errors = mistakes @ importance
    errors[np.isinf(losses)] = np.inf
    differences = mistakes - mistakes[np.argmin(errors)]
    tie = 0.5 * np.sqrt(np.square(differences) @ np.square(importance))
    return int(np.argmin(np.where(errors <= errors.min() + tie, losses, np.inf)))
