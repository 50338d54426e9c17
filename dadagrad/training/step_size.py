"""``step_size="auto"``: a trial of a grid of step sizes on the first rows of a pass.

The trial is a run over these rows, in which all step sizes are settings that are learned side by
side. It keeps state for the features of its few partitions only. No step size is dropped on the
way, because the fastest at first is not the best: dropping those three standard errors behind after
a quarter of the rows made the error of a whole pass 0.096 instead of 0.085.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dadagrad.config import SETTINGS
from dadagrad.data.dataset import Dataset
from dadagrad.errors import TrainingError
from dadagrad.problem import Problem
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines.threads import LocalEngine
from dadagrad.training.engines.watcher import Watcher
from dadagrad.training.messages import Report
from dadagrad.training.schedule import Cursor, Schedule
from dadagrad.training.schedule.batches import FirstRows
from dadagrad.training.state import zero_state
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
    `threads`. Of several l1 and l2 the first are used. If `loader` is that of the run, the
    partitions that the run reads first stay there.
    """
    rows = first_rows(schedule, problem.compiled)
    reader = _TrialReader(data, loader, rows, schedule.order(0)[:KEPT], threads)
    scaled = problem.task == "regression" and problem.loss.link != "log"
    scale = _target_scale(data, rows) if scaled else 1.0
    grid = [step_size * scale for step_size in GRID]
    config = replace(
        problem.settings[0].config, batch_size=1, streams=1, rounds=SETTINGS["rounds"].default
    )
    n_features = len(reader.vocabulary) if problem.compiled else problem.n_features
    trial = replace(problem, config=config, n_features=n_features)
    # Algorithms that are not compiled have one setting at a time.
    settings = [grid] if problem.compiled else [[step_size] for step_size in grid]
    runs = [
        _last_half(LocalEngine(data, threads, reader), trial.with_step_sizes(each), rows)
        for each in settings
    ]
    reader.finish()
    n_rows, weight = max((metrics.rows, metrics.weight) for metrics in runs)
    losses = np.concatenate([metrics.loss for metrics in runs])
    losses[~np.isfinite(losses)] = np.inf
    if np.isinf(losses).all():
        raise TrainingError(
            f"step_size='auto': the weights diverge with each of {', '.join(map(str, grid))}; give "
            "a smaller step size, or normalise the rows"
        )
    if not n_rows:
        found = "pair of rows of one query" if problem.loss.ranks else "row of positive weight"
        raise TrainingError(f"step_size='auto' found no {found} in the first rows; give a number")
    errors = np.concatenate([metrics.mistakes for metrics in runs]) / weight
    errors[np.isinf(losses)] = 1.0
    best = _best(losses / weight, errors, n_rows)
    n_tried = sum(n for _, n in rows.parts)
    logger.info("step size %g of %s chosen on %d rows", grid[best], grid, n_tried)
    return grid[best]


def first_rows(schedule: Schedule, compiled: bool) -> FirstRows:
    """The schedule of the trial before a run."""
    n_rows = min(max(MIN_ROWS, int(SHARE * sum(schedule.partition_rows))), MAX_ROWS)
    return FirstRows(
        schedule.partition_rows,
        shuffle=schedule.shuffle,
        seed=schedule.seed,
        chunk_rows=schedule.chunk_rows,
        n_rows=n_rows if compiled else PLAIN_ROWS,
    )


def _last_half(engine: LocalEngine, problem: Problem, rows: FirstRows) -> ProgressiveMetrics:
    """Learn from `rows`; the metrics of the last half, when most weights have been seen to.

    If all weight is in the first half, these are the metrics of both.
    """
    reports: list[Report] = []
    coordinator = Coordinator(problem, rows, zero_state(problem))
    try:
        engine.run(coordinator, Watcher(progress=reports.append))
    except TrainingError:
        if problem.n_settings > 1:
            raise
        return replace(ProgressiveMetrics.zero(problem), loss=np.array([np.inf]))
    half = ProgressiveMetrics.zero(problem)
    seen, middle = 0, sum(n for _, n in rows.parts) // 2
    for report, learned in zip(reports, rows.rounds(Cursor()), strict=True):
        seen += sum(slice_.n_rows for slice_ in learned.slices)
        if seen == middle:
            half = report.metrics
    with np.errstate(invalid="ignore"):  # of losses that are infinite in both
        last = coordinator.metrics - half
    return last if last.rows else coordinator.metrics


class _TrialReader(Loader):
    """Reads the partitions of a trial, over the union of their vocabularies, with another loader.

    Parameters
    ----------
    data : Dataset
    loader : Loader or None
        That of the run that follows, for which the partitions `wanted` stay in memory.
    rows : FirstRows
    wanted : sequence of int
    threads : int
        Partitions that are read at the same time.

    Attributes
    ----------
    vocabulary : (n,) int64
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
        self.vocabulary = vocabularies[0]
        if len(vocabularies) > 1:
            self.vocabulary = np.unique(np.concatenate(vocabularies))

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


def _best(losses: NDArray[np.float64], errors: NDArray[np.float64], n_rows: int) -> int:
    """The least error (all 0 in a regression), and the least loss among near ties.

    Early in a stream the loss falls fastest with steps that are too large for the rest of it
    (margins still have to grow); the error does not depend on the scale of margins. It is coarse,
    so that step sizes within half its standard error of the best count as ties.
    """
    least = float(errors.min())
    tie = 0.5 * math.sqrt(least * (1.0 - least) / n_rows)
    return int(np.argmin(np.where(errors <= least + tie, losses, np.inf)))
