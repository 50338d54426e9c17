"""``step_size="auto"``: a trial of a grid of step sizes on the first rows of a pass.

With ``average="auto"`` the average of the weights is tried beside the last weights: they are
learned alike, so that it costs one more score of each row that counts.

The trial is successive halving, as in `dadagrad.training.sweep`: all step sizes learn from the same
rows, and only the best 6, 4 and 3 are left after an eighth, a quarter and half of them. So the
trial takes 4.6 steps for each of its rows, and not 11.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.config import SETTINGS
from dadagrad.data.blocks import Block, concatenate, take
from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows
from dadagrad.data.units import Units
from dadagrad.errors import TrainingError
from dadagrad.kernels.id_sets import DistinctIds, look_up, relabel
from dadagrad.kernels.parallel import Spread, serial, threaded
from dadagrad.kernels.training import Batch
from dadagrad.problem import Problem
from dadagrad.training.schedule.base import Schedule, Slice
from dadagrad.training.state import zero_state
from dadagrad.training.state.base import TrainingState
from dadagrad.training.worker.compute import as_batch, row_importance, rows_of
from dadagrad.training.worker.partition_reader import Loader

logger = logging.getLogger(__name__)

GRID = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
"""Step sizes tried. AdaGrad's step does not depend on the scale of gradients. Averages need larger
steps than the last weights."""

USUAL = 0.4
"""Step size where the rows cannot tell: fewer than `FEW_ROWS`, or all models predict them alike."""

FEW_ROWS = 50
"""Rows below which a trial may choose a step so small that later rows teach nothing."""

STAGES = ((1 / 8, 6), (1 / 4, 4), (1 / 2, 3), (1, 1))
"""Shares of the rows, and the step sizes that are left after them."""

MIN_ROWS, MAX_ROWS, MAX_ENTRIES = 5_000, 262_144, 1 << 24
SMALL_SHARE, SMALL_ROWS, SHARE = 5, 16_384, 46
"""The trial has one row in 5 up to 16,384 rows, a pass over small data; or one in 46 if these are
more, a tenth of a pass over large data."""

RARE_ROWS = 500
"""Rows without the most frequent label that the trial has at least, up to `SMALL_ROWS` rows: there
are about as many mistakes, and few of them tell nothing."""

MAX_LABEL = 1e15
"""Largest label of a regression: squares of gradients and of their sums are float32."""

MAX_OUTLYING = 20.0
"""Size of an outlying label of a regression, at most, in medians of its column."""

MAX_OUTLIERS = 0.1
"""Share of the labels of a column that are outliers, at most."""

PLAIN_ROWS = 1_024
"""Rows of the trial of an algorithm that is not compiled."""

KEPT = 2
"""Partitions that the run finds read when the trial is over: one to learn from, and the next."""


def choose_step_size(
    data: Dataset, problem: Problem, schedule: Schedule, threads: int, loader: Loader
) -> Problem:
    """Return `problem` with the settings that do best on the first rows.

    They are a step size of `GRID`, times the scale of the targets, and whether the model is the
    average of the weights, if that is to be chosen. Each row of `first_rows` is a step, whatever
    the batch size of the run. The choice depends on data, configuration and seed alone, not on
    `threads`. Of several l1 and l2 the first are used. `loader` keeps the partitions that the run
    reads first.
    """
    rows = _read(data, problem, schedule, threads, loader)
    importance = row_importance(problem, rows)
    importance = np.ones(rows.n_rows) if importance is None else importance
    if not importance.any():
        missing = "pair of rows of one query" if problem.loss.ranks else "row of positive weight"
        raise TrainingError(f"step_size='auto' found no {missing} in the first rows; give a number")
    scaled = problem.task == "regression" and problem.loss.link != "log"
    scale = _target_scale(problem, rows.labels, importance) if scaled else 1.0
    grid = [step_size * scale for step_size in GRID]
    if np.count_nonzero(importance) < FEW_ROWS:
        return problem.choose(USUAL * scale, problem.config.average is True)
    with ThreadPoolExecutor(threads, thread_name_prefix="dadagrad-trial") as pool:
        spread = threaded(pool, threads) if problem.compiled else serial
        best, average = _try(problem, grid, rows, importance, spread)
    if best is None:
        tried = ", ".join(f"{each:g}" for each in grid)
        raise TrainingError(
            f"step_size='auto': the weights diverge with each of {tried}; "
            + (
                problem.config.preconditioner.divergence_remedy
                or "give a smaller step size, or normalise the rows"
            )
        )
    text = "step size %g of %s, average %s, chosen on %d rows"
    logger.info(text, best, grid, average, rows.n_rows)
    return problem.choose(best, average)


def first_rows(data: Dataset, schedule: Schedule, compiled: bool) -> list[tuple[int, int]]:
    """Return the partitions of the trial, in the order of the first pass, with the rows of each.

    They are a fifth of the rows, but at least 5,000 and at most 16,384; or one in 46 if that is
    more, up to 262,144 rows and 16 million non-zeros. Where one label is far more frequent than the
    others, they are more than a fifth. Algorithms that are not compiled have 1,024.
    """
    schedule = schedule.first
    n_rows = sum(schedule.partition_rows)
    entries = sum(each.nnz for each in data.partitions[: len(schedule.partition_rows)])
    small = max(n_rows // SMALL_SHARE, _rows_until_rare(data))
    missing = max(MIN_ROWS, min(small, SMALL_ROWS), n_rows // SHARE)
    missing = min(missing, MAX_ROWS, max(MAX_ENTRIES * n_rows // max(entries, 1), 1))
    missing = missing if compiled else PLAIN_ROWS
    parts = []
    for partition in schedule.order(0):
        used = min(missing, schedule.partition_rows[partition])
        if used:
            parts.append((partition, used))
        missing -= used
    return parts


def _rows_until_rare(data: Dataset) -> int:
    """Rows among which `RARE_ROWS` are likely to lack the most frequent label of some column."""
    all_counts = [column.counts for column in data.schema.label_columns if column.counts]
    rare = sum(1.0 - max(counts) / max(sum(counts), 1) for counts in all_counts)
    return math.ceil(RARE_ROWS / rare) if rare else 0


def _read(
    data: Dataset, problem: Problem, schedule: Schedule, threads: int, loader: Loader
) -> Rows:
    """Return the first rows over the features that they have, numbered anew if compiled."""
    parts = first_rows(data, schedule, problem.compiled)
    with ThreadPoolExecutor(threads, thread_name_prefix="dadagrad-trial") as pool:
        loaded = list(pool.map(loader.load, [partition for partition, _ in parts]))
    blocks, vocabularies, n_ids = [], [], 0
    for reading, (partition, n_rows) in enumerate(parts):
        slice_ = Slice(reading, partition, 0, n_rows, last=False)
        centered = problem.units.center_columns(loaded[reading].slice(0, n_rows))
        rows = rows_of(problem, centered, slice_, data.place_of(partition))
        used, indices = relabel(rows.indices, rows.n_local)
        vocabularies.append(look_up(rows.vocabulary, used))
        blocks.append(Block(rows.indptr, indices + n_ids, rows.values, rows.labels, rows.weights,
                            rows.row_scale))  # fmt: skip
        n_ids += len(used)
    vocabulary, places = DistinctIds(problem.n_features).unite(vocabularies)
    block = concatenate(blocks)
    if data.schema.queried:  # a row that follows others of its query is easier than one of another
        order = np.random.default_rng([problem.config.seed, block.n_rows]).permutation(block.n_rows)
        block = take(block, order)
    read_first = schedule.first.order(0)[:KEPT]
    for (partition, _), kept in zip(parts, loaded, strict=True):
        if partition in read_first:
            loader.keep(partition, kept)
    return Rows(
        np.arange(len(vocabulary)) if problem.compiled else vocabulary,
        block.indptr,
        look_up(np.concatenate(places).astype(np.int32), block.ids),
        block.values,
        np.asarray(block.labels, np.float64),
        block.weights,
        block.row_scale,
    )


def _target_scale(
    problem: Problem, labels: NDArray[np.float64], importance: NDArray[np.float64]
) -> float:
    """The root mean square of a regression's targets; that of the centers if all targets are 0.

    A step moves a weight by the step size, whatever the gradients: margins that have to reach a
    thousand need steps a thousand times as large as those that have to reach one. Losses of bounded
    slopes leave outliers where they are, which count as `MAX_OUTLYING` times the median then.
    """
    largest = float(np.abs(labels[importance > 0.0]).max())
    if largest > MAX_LABEL:
        raise TrainingError(
            f"step_size='auto': a label of the first rows is {largest:.3g}, of which the sums of "
            f"squares would overflow; divide the labels, so that they are below {MAX_LABEL:g}"
        )
    slope = problem.loss.slope(np.array([MAX_LABEL]), np.zeros(1))
    if np.abs(slope).max() < np.sqrt(MAX_LABEL):
        limits = MAX_OUTLYING * np.median(np.abs(labels[importance > 0.0]), axis=0)
        limits[(np.abs(labels) > limits).mean(axis=0) > MAX_OUTLIERS] = np.inf
        labels = np.clip(labels, -limits, limits)
    size = float(np.sqrt(np.average(np.square(labels).mean(axis=1), weights=importance)))
    centers = np.zeros(1) if problem.units.centers is None else problem.units.centers
    return size or float(np.sqrt(np.square(centers).mean())) or 1.0


def _try(
    problem: Problem,
    grid: Sequence[float],
    rows: Rows,
    importance: NDArray[np.float64],
    spread: Spread,
) -> tuple[float | None, bool]:
    """Return the best step size, None if all diverge, and True if its average is better.

    Some (n_rows,) `importance` is not 0.
    """
    rivals = [_Rival(_with_step_size(problem, step_size, rows)) for step_size in grid]
    step_size: float | None = None
    average = False
    for before, counted, n_left in _stages(importance, problem.compiled):
        parts = []
        for each in (before, counted):
            part = rows.slice(each.start, each.stop)
            parts.append((part, as_batch(part, importance[each])))
        results: list[list[tuple[float, NDArray[np.float64]]]] = [[] for _ in rivals]

        def learn(number: int) -> None:
            results[number] = rivals[number].learn(parts, spread)  # noqa: B023 (called at once)

        spread(learn, len(rivals))
        # The models are those of the last weights of all rivals, then of their averages.
        models = [model for models in zip(*results, strict=True) for model in models]
        losses, mistakes = map(np.array, zip(*models, strict=True))
        errors = np.where(np.isinf(losses), np.inf, mistakes.sum(axis=1))
        if np.isfinite(losses).all() and np.ptp(losses) == 0.0:
            return grid[GRID.index(USUAL)], False
        best = _best(losses, errors, mistakes)
        rival, average = rivals[best % len(rivals)], best >= len(rivals)
        step_size = rival.problem.step_size if np.isfinite(losses[best]) else None
        order = np.lexsort((losses, errors)) % len(rivals)
        better = list(dict.fromkeys(order.tolist()))[:n_left]
        rivals = [rivals[number] for number in sorted(better)]
    return step_size, average


def _with_step_size(problem: Problem, step_size: float, rows: Rows) -> Problem:
    setting = problem.settings[0]
    config = replace(
        setting.config,
        step_size=step_size,
        batch_size=1,
        streams=1,
        rounds=SETTINGS["rounds"].default,
        average=problem.chooses_average or setting.config.average is True,
        calibration="none",
    )
    n_features = rows.n_local if problem.compiled else problem.n_features
    return replace(setting, config=config, n_features=n_features, units=Units())


def _stages(importance: NDArray[np.float64], compiled: bool) -> Iterator[tuple[slice, slice, int]]:
    """Rows to learn from alone, then rows that count, and the step sizes left after them.

    The last third of all rows so far counts, when most weights have been seen to. Algorithms
    that are not compiled have one stage: their states may be too large to be kept.
    """
    weighing, start = np.flatnonzero(importance), 0
    for share, n_left in STAGES if compiled else STAGES[-1:]:
        n_rows = math.ceil(share * len(weighing))
        stop = int(weighing[n_rows - 1]) + 1
        if stop > start:
            middle = max(start, int(weighing[n_rows - math.ceil(n_rows / 3)]))
            yield slice(start, middle), slice(middle, stop), n_left
        start = stop


@dataclass
class _Rival:
    """A step size of a trial, with its state if that is compiled."""

    problem: Problem
    state: TrainingState | None = None

    def learn(
        self, parts: Sequence[tuple[Rows, Batch]], spread: Spread
    ) -> list[tuple[float, NDArray[np.float64]]]:
        """Take a step for each row of two parts; count the rows of the second by each model.

        The models are that of the last weights and, if there is one, that of their average.
        """
        problem, state = self.problem, self.state or zero_state(self.problem)
        for (rows, batch), counts in zip(parts, (False, True), strict=True):
            scores = np.empty((problem.n_outputs, rows.n_rows))
            averages = np.zeros(scores.shape if counts and problem.averages else (0, 0))
            state.learn(problem, rows, batch, scores, spread, averages)
        self.state = state if problem.compiled else None
        models = [scores, averages] if problem.averages else [scores]
        return [_count(problem, each, rows, batch) for each in models]


def _count(
    problem: Problem, scores: NDArray[np.float64], rows: Rows, batch: Batch
) -> tuple[float, NDArray[np.float64]]:
    """The loss of (n_outputs, n_rows) scores, and the mistake of each row, by importance.

    A mistake is the share of wrong targets; a regression makes none.
    """
    if not np.isfinite(scores).all():
        return np.inf, batch.importance
    scores, targets = scores.T, problem.targets(rows.labels)
    with np.errstate(over="ignore"):  # the loss of a step that is too large may be infinite
        losses = problem.loss.value(scores, targets).reshape(len(scores), -1).mean(axis=1)
        loss = float((batch.importance * losses).sum())
    if problem.task == "multiclass":
        mistakes: NDArray[Any] = scores.argmax(axis=1) != targets.argmax(axis=1)
    elif problem.task == "regression":
        mistakes = np.zeros(len(scores))
    else:
        mistakes = ((scores > 0.0) != (targets > 0.0)).mean(axis=1)
    return loss, batch.importance * mistakes


def _best(
    losses: NDArray[np.float64], errors: NDArray[np.float64], mistakes: NDArray[np.float64]
) -> int:
    """The model with the least error (all 0 in a regression), and the least loss among near ties.

    Early in a stream the loss falls fastest with steps that are too large for the rest of it
    (scores still have to grow); the error does not depend on the scale of scores. It is coarse:
    models whose errors differ from the best by less than half the standard error of that difference
    count as ties. The rows that both predict alike tell nothing about it, so that this is much less
    than the standard error of an error where mistakes are rare.
    """
    differences = mistakes - mistakes[np.argmin(errors)]
    tie = 0.5 * np.sqrt(np.square(differences).sum(axis=1))
    return int(np.argmin(np.where(errors <= errors.min() + tie, losses, np.inf)))
