"""Units of columns and labels: what makes training independent of those of the data.

Steps of AdaGrad give all columns weights of one size, so that a score is governed by the columns
with the largest values. In the data divided by the scale of each column all columns have values
near 1; its weights divided by the scales are those of the data. This is the diagonal preconditioner
H_i = scale_i sqrt(G_i) (`dadagrad.optim.preconditioners.Normalized`, after Ross, Mineiro and
Langford 2013) with scales that are known before the first step. So updates, kernels, streams and
batches need to know nothing of it.

Scaling hurts text, whose values say how much a word means (the error of 20 Newsgroups by tf-idf
rises by 9 %). The two are easy to tell apart: in text and images the largest and the smallest mean
value of a frequent column are a factor 1.5 to 6 apart, in tables 40 to 10,000,000.

A column that is far from 0 for its spread looks like a constant. Where some columns are so, dense
columns lose their means; a sparse one would not be sparse any more. The intercept of a model makes
up for means, so that its weights are those of the data. The scale of a centered column is its
standard deviation: the mean absolute one of a column that nearly always has one value is so small
that other values become huge.

An intercept takes many steps to labels that are far from 0, while all other weights stand in for
it. A regression starts from a center, the score that is the best constant of the first rows: it
learns from the labels of `dadagrad.optim.losses.Loss.center`, and the center is added to the
intercept of the model.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows
from dadagrad.data.units import Units
from dadagrad.errors import name_options
from dadagrad.kernels.id_sets import distinct_ids
from dadagrad.optim.arrays import Array
from dadagrad.problem import Problem
from dadagrad.training.constant import best_scores
from dadagrad.training.memory.workers import MAX_GATHERED
from dadagrad.training.schedule.base import Schedule
from dadagrad.training.state.base import TrainingState
from dadagrad.training.state.compiled import State
from dadagrad.training.step_size import first_rows
from dadagrad.training.worker.partition_reader import Loader

logger = logging.getLogger(__name__)

_OFF_CENTER = (
    "some columns that nearly all rows have are far from 0 for their spread, which slows learning"
)

MAX_PARTITIONS, ENOUGH_ROWS = 2, 128
"""Partitions that are measured at most, unless they have fewer rows. The run learns from the same
ones first, so they stay in memory until it begins."""

MAX_ROWS, MAX_ENTRIES = 16_384, 1 << 18
"""Rows and non-zeros that are measured at most, but at least one row."""

FREQUENT = 0.05
"""Share of the rows that have a frequent column, at least."""

MIN_COUNT = 20
"""Values of a frequent column, at least."""

MAX_RATIO = 20.0
"""Ratio of the largest and the smallest mean value of a frequent column, above which all columns
are scaled."""

DENSE, DENSE_VALUES = 0.95, 0.25
"""Share of the rows that have a dense column, at least, and share of the values that belong to
dense columns where these lose their means, at least."""

MIN_SPREAD = 1e-7
"""Standard deviation of a column that is not constant, at least, as a share of its mean."""

MIN_SCALE = np.float32(1e-30)
"""Smallest scale: weights are divided by scales in the end, and must not overflow."""

MEAN_RANGE = 1e-3, 20.0
"""Mean values of frequent columns that the grid of step sizes suits."""


def choose_units(problem: Problem, data: Dataset, schedule: Schedule, loader: Loader) -> Units:
    """The units of a run, measured on the first rows, which `loader` keeps."""
    scales = means = label_centers = None
    config, centers = problem.config, problem.may_center
    space = data.schema.feature_space
    measured = None
    if config.scale_columns is not False or centers:
        measured = _measure_columns(data, schedule, loader)
    if measured is not None and measured.is_off_center:
        if centers and not _may_stay_on_workers(problem):
            measured = measured.centered()
            means = np.zeros(problem.n_features, np.float32)
            means[measured.columns] = measured.means
        elif config.center is not False and config.fit_intercept and not space.of_table:
            remedy = "subtract their means before" if centers else "give --center"
            logger.warning(f"{_OFF_CENTER}; {name_options(remedy)}")
    if measured is not None and _scales_columns(config.scale_columns, measured):
        scales = _scales(measured, problem.n_features)
    if centers and all(each.takes_centers for each in problem.settings):
        label_centers = _measure_centers(problem, data, schedule, loader)
    return Units(scales, means, label_centers)


def scale_new_columns(
    problem: Problem, state: TrainingState, data: Dataset, schedule: Schedule, loader: Loader
) -> Problem:
    """Return `problem` with scales of the columns that come first in the rows it goes on with.

    In the rows before they were 0, so `state` has learned nothing of them, and their scale was the
    median of others. The first rows of `data` are measured, which `loader` keeps.
    """
    if problem.units.scales is None or not isinstance(state, State):
        return problem
    measured = _measure_columns(data, schedule, loader)
    if measured is None:
        return problem
    learned = state.pull(measured.columns).accumulators.any(axis=(0, 2, 3))
    if learned.all():
        return problem
    scales = problem.units.scales.copy()
    scales[measured.columns[~learned]] = np.maximum(measured.sizes[~learned], MIN_SCALE)
    return replace(problem, units=replace(problem.units, scales=scales))


def _scales(measured: _MeasuredColumns, n_features: int) -> NDArray[np.float32]:
    """The (n_features,) size of each column; columns that the first rows lack have the median."""
    scales = np.full(n_features, np.median(measured.sizes), np.float32)
    scales[measured.columns] = measured.sizes
    return np.maximum(scales, MIN_SCALE)


@dataclass(frozen=True)
class _MeasuredColumns:
    """Measures of the columns of some rows, each (n_columns,).

    `columns` are the ids of columns, `n_values` the numbers of values other than 0, and `sizes` the
    mean absolute values of these. `means` and `spreads` are means and standard deviations of dense
    columns, which nearly all rows have; both are 0 for the others and for constants.
    """

    columns: NDArray[np.int64]
    n_values: NDArray[np.float64]
    sizes: NDArray[np.float64]
    is_frequent: NDArray[np.bool_]
    means: NDArray[np.float64]
    spreads: NDArray[np.float64]

    @property
    def is_off_center(self) -> bool:
        """True if many values are of dense columns, and some of these are far from 0."""
        n_dense = self.n_values[self.spreads > 0.0].sum()
        is_far = np.abs(self.means) > self.spreads
        return bool(n_dense >= DENSE_VALUES * self.n_values.sum() and is_far.any())

    def centered(self) -> _MeasuredColumns:
        """The measures of the rows without the means."""
        return replace(self, sizes=np.where(self.spreads > 0.0, self.spreads, self.sizes))


def _measure_columns(data: Dataset, schedule: Schedule, loader: Loader) -> _MeasuredColumns | None:
    """Measure the first partitions of the run, which `loader` keeps; None if they are empty."""
    all_ids, all_values, n_rows, n_taken, n_entries, n_partitions = [], [], 0, 0, 0, 0
    for partition in schedule.first.order(0):
        whole = loader.load(partition)
        loaded = _from_first_weighted(whole)
        if not loaded.n_rows:
            continue
        fitting = np.searchsorted(loaded.indptr, MAX_ENTRIES - n_entries, side="right") - 1
        stop = max(int(fitting), min(1 - n_taken, loaded.n_rows))
        rows = loaded.slice(0, min(MAX_ROWS - n_taken, stop))
        is_row = np.ones(rows.n_rows, bool) if rows.weights is None else rows.weights > 0.0
        if rows.nnz:
            matrix = replace(rows, vocabulary=np.arange(rows.n_local)).to_csr(rows.n_local)[is_row]
            matrix.eliminate_zeros()
            all_ids.append(rows.vocabulary[matrix.indices])
            all_values.append(matrix.data.astype(np.float64))
        n_rows += int(np.count_nonzero(is_row))
        n_taken, n_entries = n_taken + rows.n_rows, n_entries + rows.nnz
        loader.keep(partition, whole)
        n_partitions += 1
        is_enough = n_partitions >= MAX_PARTITIONS and n_taken >= ENOUGH_ROWS
        if rows.n_rows < loaded.n_rows or is_enough:
            break
    if not sum(map(len, all_ids)):
        return None
    columns, places = distinct_ids(np.concatenate(all_ids))
    values = np.concatenate(all_values)

    def sums(of_entries: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(places, of_entries, len(columns)).astype(np.float64)

    n_values = sums(np.ones(len(values)))
    is_frequent, is_dense = (
        n_values >= max(share * n_rows, MIN_COUNT) for share in (FREQUENT, DENSE)
    )
    sizes, means = sums(np.abs(values)) / n_values, sums(values) / n_rows
    squares = sums(np.square(values - means[places])) + (n_rows - n_values) * np.square(means)
    spreads = np.sqrt(squares / n_rows)
    is_dense &= spreads > MIN_SPREAD * np.abs(means)
    means, spreads = np.where(is_dense, means, 0.0), np.where(is_dense, spreads, 0.0)
    return _MeasuredColumns(columns, n_values, sizes, is_frequent, means, spreads)


def _may_stay_on_workers(problem: Problem) -> bool:
    """True if workers of a cluster may keep the state, and write weights without the intercept."""
    lazy = problem.config.update.shrinks_lazily
    weight = 12 + 8 * lazy  # bytes of a state that has an average
    return problem.n_features * problem.n_targets * weight > MAX_GATHERED


def _measure_centers(problem: Problem, data: Dataset, schedule: Schedule, loader: Loader) -> Array:
    """The (n_label_columns,) best constant scores of the first rows of the trial of step sizes."""
    labels, weights, n_rows = [], [], 0
    for partition, n_used in first_rows(data, schedule, problem.compiled):
        whole = loader.load(partition)
        rows = whole.slice(0, min(n_used, MAX_ROWS - n_rows))
        labels.append(rows.labels)
        weights.append(np.ones(rows.n_rows) if rows.weights is None else rows.weights)
        loader.keep(partition, whole)  # for the trial, which holds all of them
        n_rows += rows.n_rows
        if n_rows == MAX_ROWS:
            break
    importance = np.concatenate(weights).astype(np.float64)
    weighing = importance > 0.0
    targets, importance = np.concatenate(labels)[weighing], importance[weighing]
    if not len(targets):
        return np.zeros(targets.shape[1])
    centers = best_scores(problem.settings[0], targets, importance / importance.sum())
    centers = np.where(targets.any(axis=0), centers, 0.0)  # 0 has no logarithm
    if problem.loss.link != "identity":
        return centers
    # A median is a label, which it shall have exactly: many rows may have it.
    nearest = targets[np.abs(targets - centers).argmin(axis=0), np.arange(len(centers))]
    rounding = 1e-9 * np.abs(targets).max(axis=0)
    return np.where(np.abs(nearest - centers) <= rounding, nearest, centers)


def _from_first_weighted(rows: Rows) -> Rows:
    """The rows from the first on whose weight is above 0."""
    if rows.weights is None:
        return rows
    weighted = np.flatnonzero(rows.weights > 0.0)
    return rows.slice(int(weighted[0]) if len(weighted) else rows.n_rows, rows.n_rows)


def _scales_columns(setting: bool | Literal["auto"], measured: _MeasuredColumns) -> bool:
    """True if columns are to be divided by their sizes; by "auto" those of tables are."""
    frequent = measured.sizes[measured.is_frequent]
    if setting != "auto" or not len(frequent):
        return setting is True and bool((measured.sizes != 1.0).any())
    low, high = MEAN_RANGE
    smallest, largest = float(frequent.min()), float(frequent.max())
    return smallest < low or largest > high or largest > MAX_RATIO * smallest
