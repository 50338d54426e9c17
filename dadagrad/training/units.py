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

An intercept takes many steps to labels that are far from 0, while all other weights stand in for
it. A regression starts from a center, the score that is the best constant of the first rows: it
learns from the labels of `dadagrad.optim.losses.Loss.center`, and the center is added to the
intercept of the model.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows
from dadagrad.errors import InputError
from dadagrad.kernels.id_sets import distinct_ids
from dadagrad.optim.arrays import Array
from dadagrad.problem import CENTERS, SCALES, Problem
from dadagrad.training.constant import best_scores
from dadagrad.training.schedule.base import Schedule
from dadagrad.training.state.base import TrainingState
from dadagrad.training.state.compiled import State
from dadagrad.training.step_size import first_rows
from dadagrad.training.worker.partition_reader import Loader

logger = logging.getLogger(__name__)

MAX_PARTITIONS = 2
"""Partitions that are measured at most. The run learns from the same ones first, so they stay in
memory until it begins."""

MAX_ROWS, MAX_ENTRIES = 16_384, 1 << 18
"""Rows and non-zeros that are measured at most, but at least one row."""

FREQUENT = 0.05
"""Share of the rows that have a frequent column, at least."""

MIN_COUNT = 20
"""Values of a frequent column, at least."""

MAX_RATIO = 20.0
"""Ratio of the largest and the smallest mean value of a frequent column, above which all columns
are scaled."""

DENSE, FAR, MAX_FAR = 0.95, 2.0, 0.25
"""Share of the rows that have a dense column, at least; standard deviations from 0 to the mean of
one that is far from 0; and the share of those among the dense ones above which a run warns."""

MIN_SCALE = np.float32(1e-30)
"""Smallest scale: weights are divided by scales in the end, and must not overflow."""

MEAN_RANGE = 1e-3, 20.0
"""Mean values of frequent columns that the grid of step sizes suits."""


def choose_units(
    problem: Problem, data: Dataset, schedule: Schedule, loader: Loader
) -> dict[str, NDArray[Any]]:
    """The units of `Problem.with_units`, measured on the first rows, which `loader` keeps."""
    units: dict[str, NDArray[Any]] = {}
    if problem.config.scale_columns is not False:
        measured = _measure_columns(data, schedule, loader)
        if measured is not None:
            _warn_of_far_columns(measured)
            if problem.config.scale_columns is True or _is_table(measured.frequent):
                units[SCALES] = _scales(measured, data.schema.n_features)
    if _centers_labels(problem):
        units[CENTERS] = _measure_centers(problem, data, schedule, loader)
    return units


def scale_new_columns(
    problem: Problem, state: TrainingState, data: Dataset, schedule: Schedule, loader: Loader
) -> Problem:
    """Return `problem` with scales of the columns that come first in the rows it goes on with.

    In the rows before they were 0, so `state` has learned nothing of them, and their scale was the
    median of others. The first rows of `data` are measured, which `loader` keeps.
    """
    if problem.scales is None or not isinstance(state, State):
        return problem
    measured = _measure_columns(data, schedule, loader)
    if measured is None:
        return problem
    learned = state.pull(measured.columns).accumulators.any(axis=(0, 2, 3))
    if learned.all():
        return problem
    scales = problem.scales.copy()
    scales[measured.columns[~learned]] = np.maximum(measured.means[~learned], MIN_SCALE)
    return replace(problem, scales=scales)


def _scales(measured: _MeasuredColumns, n_features: int) -> NDArray[np.float32]:
    """The (n_features,) mean absolute value of each column in the first rows, where it is not 0.

    Columns that the first rows lack have the median of the others.
    """
    scales = np.full(n_features, np.median(measured.means), np.float32)
    scales[measured.columns] = measured.means
    return np.maximum(scales, MIN_SCALE)


def _warn_of_far_columns(measured: _MeasuredColumns) -> None:
    if measured.n_far > MAX_FAR * measured.n_dense:
        logger.warning(
            f"{measured.n_far:,} of {measured.n_dense:,} columns are more than {FAR:g} standard "
            "deviations from 0, which slows learning; subtract their means, as StandardScaler of "
            "scikit-learn does, or give a data frame, whose numbers are centered"
        )


@dataclass(frozen=True)
class _MeasuredColumns:
    """Mean absolute values, where they are not 0, of the columns of some rows.

    `columns` are the ids of columns, `means` their (n_columns,) mean values, and `frequent` those
    of the columns that are in many rows. Of the `n_dense` columns that are in nearly all rows,
    `n_far` are far from 0 for their spread.
    """

    columns: NDArray[np.int64]
    means: NDArray[np.float64]
    frequent: NDArray[np.float64]
    n_dense: int
    n_far: int


def _measure_columns(data: Dataset, schedule: Schedule, loader: Loader) -> _MeasuredColumns | None:
    """Measure the first partitions of the run, which `loader` keeps; None if all values are 1."""
    # By partition, so that columns which do not occur take no memory.
    ids, sums, counts, n_rows, n_entries, n_partitions = [], [], [], 0, 0, 0
    totals, squares = [], []
    for partition in schedule.first.order(0):
        whole = loader.load(partition)
        loaded = _from_first_weighted(whole)
        if not loaded.n_rows:
            continue
        fitting = np.searchsorted(loaded.indptr, MAX_ENTRIES - n_entries, side="right") - 1
        stop = max(int(fitting), min(1 - n_rows, loaded.n_rows))
        rows = loaded.slice(0, min(MAX_ROWS - n_rows, stop))
        if rows.nnz and not (rows.values is None and rows.row_scale is None):
            matrix = replace(rows, vocabulary=np.arange(rows.n_local)).to_csr(rows.n_local)
            if rows.weights is not None:  # a row of weight 0 is no row
                matrix = matrix[rows.weights > 0.0]
            n_values = matrix.count_nonzero(axis=0)
            positions = np.flatnonzero(n_values)
            ids.append(rows.vocabulary[positions])
            counts.append(n_values[positions])
            matrix = matrix.astype(np.float64)
            sums.append(abs(matrix).sum(axis=0)[positions])
            totals.append(matrix.sum(axis=0)[positions])
            squares.append(matrix.power(2).sum(axis=0)[positions])
        n_rows, n_entries = n_rows + rows.n_rows, n_entries + rows.nnz
        loader.keep(partition, whole)
        n_partitions += 1
        if rows.n_rows < loaded.n_rows or n_partitions == MAX_PARTITIONS:
            break
    if not sum(map(len, ids)):
        return None
    columns, places = distinct_ids(np.concatenate(ids))
    n_values = np.bincount(places, np.concatenate(counts))
    means = np.bincount(places, np.concatenate(sums)) / n_values
    frequent = means[n_values >= max(FREQUENT * n_rows, MIN_COUNT)]
    dense = n_values >= max(DENSE * n_rows, MIN_COUNT)
    mean, square = (
        np.bincount(places, np.concatenate(each))[dense] / n_rows for each in (totals, squares)
    )
    variance = square - mean**2
    is_far = (variance > 1e-9 * square) & (mean**2 > FAR**2 * variance)
    n_dense, n_far = int(np.count_nonzero(dense)), int(np.count_nonzero(is_far))
    return _MeasuredColumns(columns, means, frequent, n_dense, n_far)


def _centers_labels(problem: Problem) -> bool:
    """True if a regression starts from the best constants.

    A given step size is that of the papers, whose intercepts start at 0.
    """
    config = problem.config
    suits = config.fit_intercept and all(each.takes_centers for each in problem.settings)
    if config.center_labels is True and not suits:
        raise InputError(
            "--center-labels is for an intercept and a loss of the difference of score and label, "
            "such as squared, or of their ratio, such as poisson (with no penalty but l1 and l2 of "
            f"one label column); the loss is {problem.loss.name}: leave it out"
        )
    if config.center_labels == "auto":
        return suits and config.step_size == "auto" and config.update.has_step_size
    return config.center_labels


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


def _is_table(means: NDArray[np.float64]) -> bool:
    """True if columns of these mean values need to be scaled."""
    if not len(means):
        return False
    low, high = MEAN_RANGE
    smallest, largest = float(means.min()), float(means.max())
    return smallest < low or largest > high or largest > MAX_RATIO * smallest
