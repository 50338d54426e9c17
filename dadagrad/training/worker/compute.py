"""The work on a slice of rows: pure functions of the rows and what the coordinator gave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.rows import Rows
from dadagrad.errors import TrainingError
from dadagrad.kernels import training as kernels
from dadagrad.kernels.id_sets import mark, marked, relabel
from dadagrad.kernels.parallel import Spread, serial
from dadagrad.optim.arrays import is_nonzero
from dadagrad.optim.losses import check_targets
from dadagrad.problem import Problem
from dadagrad.training.messages import Result, SliceInput
from dadagrad.training.progressive import ProgressiveMetrics, count, n_bins_of, remedy
from dadagrad.training.schedule.base import Slice
from dadagrad.training.state.base import NOTHING, TrainingState
from dadagrad.training.state.slices import (
    FeatureSlice,
    Gradient,
    SentFeatures,
    SharedFeatures,
    Weights,
    not_finite,
)
from dadagrad.training.worker.pairs import pair_rows

COUNTED_ROWS, COUNTED_SHARE = 2048, 8
"""Rows before those of which only one of so many has an average score, to be calibrated."""

_NO_VALUES = np.zeros(0, np.float32)
_NO_IMPORTANCE = np.zeros(0)
_NO_SQUARES = np.zeros((0, 0), np.float32)


def compute(
    problem: Problem,
    rows: Rows,
    slice_: Slice,
    slice_input: SliceInput,
    place: str,
    spread: Spread = serial,
) -> Result:
    """Work on `slice` of the partition `rows`, which messages call `place`.

    A state is changed in place, its groups of outputs on the threads of `spread`; the bits do not
    depend on it.

    Raises
    ------
    TrainingError
        A score or a gradient is not finite.
    InputError
        A label is not one of the declared classes.
    """
    part = rows_of(problem, rows, slice_, place)
    importance = row_importance(problem, part)
    place_of_rows = place, slice_.start
    if not isinstance(slice_input, SharedFeatures | SentFeatures):
        positions, part = _compact(part, False)
        if positions is not None:  # the state of fewer features is copied out and back
            part = replace(part, vocabulary=part.vocabulary[positions])
        return Result(_learn(problem, part, importance, slice_input, place_of_rows, spread))
    touched, compact = _compact(part, slice_input.partial)
    features = slice_input.read(part.vocabulary, touched)
    if isinstance(features.content, Weights):
        result = _gradient(problem, compact, importance, features, place_of_rows)
        _check_finite(problem, result, place)
        return result
    state = features.content
    before = state.copy()
    compact = replace(compact, vocabulary=features.ids)
    metrics = _learn(problem, compact, importance, state, place_of_rows, spread)
    # Most features that rows touch stay as they were: only the others are merged.
    changed = state.changed(before)
    return Result(metrics, FeatureSlice(features.ids[changed], state.pull(changed)))


def rows_of(problem: Problem, rows: Rows, slice_: Slice, place: str) -> Rows:
    """The rows to learn from of a slice of the partition `rows`: of a ranking pairs; in units."""
    if problem.loss.ranks:
        part = pair_rows(rows, slice_, problem.config.seed, place)
    else:
        part = rows.slice(slice_.start, slice_.stop)
    if problem.units.centers is not None:
        check_targets(problem.loss, part.labels, place, slice_.start)
        part = replace(part, labels=problem.center(part.labels))
    return problem.units.scale_columns(part)


def _compact(part: Rows, partial: bool) -> tuple[NDArray[np.int32] | None, Rows]:
    """The positions of the touched features in the vocabulary, and the rows over these features.

    None stands for all of the vocabulary. Rows that touch few of the partition's features need only
    those; they must, if only those were sent, which `partial` says.
    """
    if partial or part.nnz < part.n_local:
        positions, indices = relabel(part.indices, part.n_local)
        return positions, replace(part, indices=indices)
    return None, part


def _learn(
    problem: Problem,
    rows: Rows,
    importance: NDArray[np.float64] | None,
    state: TrainingState,
    place: tuple[str, int],
    spread: Spread,
) -> ProgressiveMetrics:
    """Take one step for each row, which changes `state`; the metrics before each step."""
    batch, t = as_batch(rows, importance), state.t
    scores = np.empty((problem.n_outputs, rows.n_rows))
    share, final_scores = 1, NOTHING
    if problem.averages and n_bins_of(problem):
        # An average score costs as much as a score: some rows of many are enough.
        share = COUNTED_SHARE if t >= COUNTED_ROWS else 1
        final_scores = np.full_like(scores, np.nan)
        final_scores[:, ::share] = 0.0
    overflowed = state.learn(problem, rows, batch, scores, spread, final_scores)
    return count(
        problem, batch, scores, *place,
        overflowed=overflowed, final_scores=final_scores, share=share, t=t, spread=spread,
    )  # fmt: skip


def _gradient(
    problem: Problem,
    rows: Rows,
    importance: NDArray[np.float64] | None,
    features: FeatureSlice[Weights],
    place: tuple[str, int],
) -> Result:
    """The gradient of rows over some features, at their weights."""
    batch, weights_of_slice = as_batch(rows, importance), features.content
    # One setting after the other: the bits are those of a run of its own.
    parts = []
    for number, setting in enumerate(problem.settings):
        outputs = slice(number * problem.n_targets, (number + 1) * problem.n_targets)
        weights = np.ascontiguousarray(weights_of_slice.weights[:, outputs])
        parts.append(
            _gradient_of_setting(setting, rows, batch, weights, weights_of_slice.intercept[outputs])
        )
    scores, gradient, squares, intercept = (
        arrays[0] if len(arrays) == 1 else np.hstack(arrays) for arrays in zip(*parts, strict=True)
    )
    metrics = count(problem, batch, np.ascontiguousarray(scores.T), *place)
    moved = is_nonzero(gradient)
    if len(squares):
        moved = moved | is_nonzero(squares)
        squares = squares[moved]
    change = FeatureSlice(features.ids[moved], Gradient(gradient[moved], squares, intercept))
    return Result(metrics, change)


def gradient_dtype(problem: Problem) -> type[np.floating[Any]]:
    """The type of the gradients of slices; see `Gradient`."""
    return np.float32 if problem.compiled else np.float64


def _gradient_of_setting(
    problem: Problem,
    rows: Rows,
    batch: kernels.Batch,
    weights: NDArray[np.float32],
    intercept: NDArray[np.float64],
) -> tuple[NDArray[Any], ...]:
    """The scores of the rows, and the gradient, squares and intercept of a `Gradient`."""
    gradient = np.zeros(weights.shape, gradient_dtype(problem))
    squares = np.zeros_like(gradient) if problem.config.accumulate == "row" else _NO_SQUARES
    intercept_sums = np.zeros((2, problem.n_outputs))
    scores = np.empty((rows.n_rows, problem.n_outputs))
    kernels.predict_scores(batch, weights, intercept, scores)
    if problem.loss.has_kernels:
        slopes = np.empty_like(scores)
        kernels.fill_slopes(
            batch.labels, problem.kernel_targets, problem.user_slope, scores, slopes
        )
    else:
        slopes = problem.loss.slope(scores, problem.targets(rows.labels))
        slopes = np.array(slopes, np.float64, order="C")
    kernels.add_gradients(batch, slopes, gradient, squares, intercept_sums)
    if not problem.config.fit_intercept:
        intercept_sums[:] = 0.0
    return scores, gradient, squares, intercept_sums


def touched(rows: Rows, slice_: Slice) -> NDArray[np.int32] | None:
    """The increasing positions in the vocabulary of `rows` that the rows of `slice` touch.

    None where that is most of the vocabulary, and where the rows have queries: pairs touch what
    other rows of the query do.
    """
    part = rows.slice(slice_.start, slice_.stop)
    if part.nnz >= part.n_local or rows.queries is not None:
        return None
    positions: NDArray[np.int32] = marked(mark(part.indices, part.n_local))[0]
    return positions


def _check_finite(problem: Problem, result: Result, place: str) -> None:
    """Make the loss of settings infinite whose gradient is not finite.

    Raise `TrainingError` if all settings have diverged.
    """
    change, content = result.features, result.features.content
    by_array = not_finite(content, problem.n_settings)
    diverged = np.any(list(by_array.values()), axis=0)
    if not diverged.all():
        result.metrics.loss[diverged] = np.inf
        return
    culprit, feature = "the intercept", None
    for name, array in content.arrays.items():
        if name != "intercept" and by_array[name].any():
            culprit = "{feature}"
            feature = int(change.ids[np.argwhere(~np.isfinite(array))[0][0]])
    raise TrainingError(
        f"{place}: the gradient of {culprit} is not finite, so the weights have diverged or a "
        f"value is too large; {remedy(problem)}",
        feature,
    )


def row_importance(problem: Problem, rows: Rows) -> NDArray[np.float64] | None:
    """Row weights times class weights, (n_rows,); None where all are 1."""
    importance = None if rows.weights is None else rows.weights.astype(np.float64)
    per_class = problem.class_importance
    if per_class is None:
        return importance
    position = np.searchsorted(problem.classes, rows.labels[:, 0])
    of_class = per_class[np.minimum(position, len(per_class) - 1)]
    return of_class if importance is None else importance * of_class


def as_batch(rows: Rows, importance: NDArray[np.float64] | None) -> kernels.Batch:
    """Rows as the kernels take them."""
    return kernels.Batch(
        rows.indptr,
        rows.indices,
        _NO_VALUES if rows.values is None else rows.values,
        _NO_VALUES if rows.row_scale is None else rows.row_scale,
        np.ascontiguousarray(rows.labels.T),
        _NO_IMPORTANCE if importance is None else importance,
    )
