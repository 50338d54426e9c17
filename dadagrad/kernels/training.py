"""Compiled kernels: the loops over non-zeros, and nothing else.

Each is held by tests to the plain formulas of `dadagrad.optim.updates` and `dadagrad.optim.losses`.

* `train_dual`, `train_mirror`: one step for each row, in order; the whole online algorithm.
* `count_rows`: loss and mistakes of progressive validation.
* `batch_gradient`: the gradient of many rows at fixed weights.
* `dual_weights`, `mirror_weights`, `apply_dual`, `apply_mirror`: weights out of, and one batch
  gradient into, the same state arrays.
* `margins`: predictions.

State arrays are compact (aligned with a vocabulary) and generic in dtype: float32 in training,
float64 where a test wants every digit. Outputs that a loss couples make a group and are learned
together; independent outputs are grouped, a few at a time, to share cache lines. Training takes one
group, whose state is (n_local, width, 2): the primary sum (u, z or the weights) and the sum of
squared gradients lie side by side. Elsewhere states are those of all groups, (n_groups, n_local,
width, 2), and other arrays have the outputs in their last axis.

A loss is known by its code (`loss_slope`, `_loss_value`), by a function pointer to a user's own
compiled slope, or by an array of slopes that NumPy computed. Numba compiles the loops once for each
of these three kinds, so the built-in losses pay nothing for the others.

Sums that could be reordered are taken in eight fixed lanes: compilers can use vector units, and
still the bits do not depend on which the machine has.

Three habits make these loops several times faster, and are kept on purpose. Inner loops run over
flat arrays or slices, without branches, or LLVM does not vectorise them. Loops over rows are in
functions that only borrow their arrays (`_borrowing`), and what they call most is inlined. What is
gathered by an index casts it to unsigned, which spares numba the question whether it is negative.

Numba caches by file: kernels call only functions that are defined here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import cfunc, float32, njit, types
from numba.extending import overload
from numpy.typing import NDArray

from dadagrad.optim.losses import Loss

_compiled = njit(nogil=True, cache=True, error_model="numpy")
_inlined = njit(nogil=True, cache=True, error_model="numpy", inline="always")
# For loops over rows and what they call: these borrow their arrays and allocate none, so nobody
# needs to count references to them, which would take as long as the arithmetic.
_borrowing = njit(nogil=True, cache=True, error_model="numpy", _nrt=False)  # type: ignore[call-overload]

MAX_STEPS = 64
# The codes of the classes of `dadagrad.optim.losses`.
HINGE, SQUARED_HINGE, LOGISTIC, SQUARED, ABSOLUTE, HUBER, QUANTILE, POISSON = range(8)
MULTICLASS_HINGE, SOFTMAX = 8, 9  # these and any after them couple the outputs
MAX_LOG_MEAN = 30.0


class Batch(NamedTuple):
    """Rows as the kernels take them; an empty array stands for "all ones".

    Attributes
    ----------
    indptr : (n_rows + 1,) int64
    indices : (nnz,) int32
    values : (nnz,) or (0,) float32
    row_scale : (n_rows,) or (0,) float32
    labels : (n_label_columns, n_rows) float64
    importance : (n_rows,) or (0,) float64
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    row_scale: NDArray[np.float32]
    labels: NDArray[np.float64]
    importance: NDArray[np.float64]


class Targets(NamedTuple):
    """The loss, and what each output is to predict.

    Output k learns the label column ``label_column[k]``: the sign +1 where the label equals
    ``positive[k]`` and -1 elsewhere, or, where ``positive[k]`` is NaN, the label itself.
    Every ``n_targets`` neighbours are one setting: a loss that couples outputs couples those.
    `loss` is the code of a `Loss`, a compiled function of margin and target, or the (n_rows,
    n_outputs) float64 slopes themselves.
    """

    loss: Any
    loss_parameter: float
    n_targets: int
    label_column: NDArray[np.int64]
    positive: NDArray[np.float64]
    fit_intercept: bool


class Hyperparameters(NamedTuple):
    """The settings of the update, one for each group where they are (n_groups,) float64 arrays."""

    step_size: NDArray[np.float64]
    l1: NDArray[np.float64]
    l2: NDArray[np.float64]
    low: float
    high: float
    delta: float
    proximal: bool


def loss_argument(loss: Loss) -> Any:
    """`Targets.loss` of a loss; for one that runs in NumPy a place for its slopes."""
    if loss.code is not None:
        return loss.code
    if loss.scalar_slope is not None:
        return _compile_slope(loss.scalar_slope)
    return np.zeros((0, 0))


@lru_cache(maxsize=16)
def _compile_slope(function: Any) -> Any:
    """A function pointer: kernels compile once for all of them."""
    return cfunc("float64(float64, float64)")(function.py_func)


def _as_couples(flat: Any) -> Any:
    """Neighbours of (2 n,) reals as (n,) complex numbers, in the same memory."""
    return flat.view(np.complex64 if flat.dtype == np.float32 else np.complex128)


@overload(_as_couples)
def _compile_as_couples(flat):
    if flat.dtype == float32:
        return lambda flat: flat.view(np.complex64)
    return lambda flat: flat.view(np.complex128)


@_inlined
def _target(label, positive):
    """Target of an output for a row: a sign, or the label itself."""
    if np.isnan(positive):
        return label
    return 1.0 if label == positive else -1.0


def loss_slope(loss: Any, parameter: Any, margin: Any, target: Any) -> Any:
    """d loss / d margin of one row, of a built-in loss by its code or of a compiled function."""


@overload(loss_slope, inline="always")
def _compile_loss_slope(loss, parameter, margin, target):
    if not isinstance(loss, types.Integer):
        return lambda loss, parameter, margin, target: loss(margin, target)

    def slope(loss, parameter, margin, target):
        if loss == HINGE:
            return -target if target * margin < 1.0 else 0.0
        if loss == SQUARED_HINGE:
            return -target * max(0.0, 1.0 - target * margin)
        if loss == LOGISTIC:
            agreement = target * margin
            decay = np.exp(-abs(agreement))
            return -target * (decay if agreement >= 0.0 else 1.0) / (1.0 + decay)
        distance = margin - target
        if loss == SQUARED:
            return distance
        if loss == ABSOLUTE:
            return np.sign(distance)
        if loss == HUBER:
            return min(max(distance, -parameter), parameter)
        if loss == QUANTILE:
            return 0.0 if distance == 0.0 else (1.0 - parameter if distance > 0.0 else -parameter)
        return np.exp(min(margin, MAX_LOG_MEAN)) - target

    return slope


@_inlined
def _loss_value(loss, parameter, margin, target):
    """The loss of one row, of a built-in loss by its code."""
    if loss == HINGE:
        return max(0.0, 1.0 - target * margin)
    if loss == SQUARED_HINGE:
        shortfall = max(0.0, 1.0 - target * margin)
        return 0.5 * shortfall * shortfall
    if loss == LOGISTIC:
        agreement = target * margin
        return max(0.0, -agreement) + np.log1p(np.exp(-abs(agreement)))
    distance = margin - target
    if loss == SQUARED:
        return 0.5 * distance * distance
    if loss == ABSOLUTE:
        return abs(distance)
    if loss == HUBER:
        inside = min(abs(distance), parameter)
        return inside * (abs(distance) - 0.5 * inside)
    if loss == QUANTILE:
        return max(-parameter * distance, (1.0 - parameter) * distance)
    mean = np.exp(min(margin, MAX_LOG_MEAN)) * (1.0 + max(margin - MAX_LOG_MEAN, 0.0))
    least = target - target * np.log(target) if target > 0.0 else 0.0
    return max(mean - target * margin - least, 0.0)


@_borrowing
def _fill_coupled(loss, n_targets, label_column, positive, labels, row, margins, slopes):
    """Fill the slopes of a loss that couples the outputs of each setting; see `_fill_slopes`.

    A row whose label is none of the classes has no slope.
    """
    any_slope = False
    for first in range(0, len(slopes), n_targets):
        right, best = -1, -1
        for k in range(first, first + n_targets):
            slopes[k] = 0.0
            if labels[label_column[k], row] == positive[k]:
                right = k
            elif best < 0 or margins[k] > margins[best]:
                best = k
        if right < 0 or best < 0:
            continue
        if loss == MULTICLASS_HINGE:
            if 1.0 + margins[best] - margins[right] > 0.0:
                slopes[best], slopes[right] = 1.0, -1.0
                any_slope = True
            continue
        largest = max(margins[best], margins[right])
        others = 0.0
        for k in range(first, first + n_targets):
            slopes[k] = np.exp(margins[k] - largest)
            if k != right:
                others += slopes[k]
        total = others + slopes[right]
        slopes[right] = -others
        for k in range(first, first + n_targets):
            slopes[k] /= total
        any_slope |= others != 0.0
    return any_slope


def _fill_slopes(*arguments: Any) -> Any:
    """The slope of every output at one row's margins; True where any is not 0."""


@overload(_fill_slopes, inline="always")
def _compile_fill_slopes(
    loss, parameter, n_targets, label_column, positive, labels, row, margins, slopes
):
    if isinstance(loss, types.Array):

        def copy(loss, parameter, n_targets, label_column, positive, labels, row, margins, slopes):
            any_slope = False
            for k in range(len(slopes)):
                slopes[k] = loss[row, k]
                any_slope |= slopes[k] != 0.0
            return any_slope

        return copy

    if not isinstance(loss, types.Integer):

        def fill(loss, parameter, n_targets, label_column, positive, labels, row, margins, slopes):
            any_slope = False
            for k in range(len(slopes)):
                target = _target(labels[label_column[k], row], positive[k])
                slopes[k] = loss(margins[k], target)
                any_slope |= slopes[k] != 0.0
            return any_slope

        return fill

    def fill_by_code(
        loss, parameter, n_targets, label_column, positive, labels, row, margins, slopes
    ):
        if loss >= MULTICLASS_HINGE:
            return _fill_coupled(
                loss, n_targets, label_column, positive, labels, row, margins, slopes
            )
        any_slope = False
        for k in range(len(slopes)):
            target = _target(labels[label_column[k], row], positive[k])
            slopes[k] = loss_slope(loss, parameter, margins[k], target)
            any_slope |= slopes[k] != 0.0
        return any_slope

    return fill_by_code


@_compiled
def _longest(indptr):
    longest = 0
    for row in range(len(indptr) - 1):
        longest = max(longest, indptr[row + 1] - indptr[row])
    return longest


@_inlined
def _sum(terms):
    """The sum of `terms`, in eight lanes."""
    n = len(terms)
    whole = n // 8 * 8
    m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = terms.dtype.type(0.0)
    for j in range(0, whole, 8):
        m0 += terms[j]
        m1 += terms[j + 1]
        m2 += terms[j + 2]
        m3 += terms[j + 3]
        m4 += terms[j + 4]
        m5 += terms[j + 5]
        m6 += terms[j + 6]
        m7 += terms[j + 7]
    for j in range(whole, n):
        m0 += terms[j]
    return ((m0 + m4) + (m1 + m5)) + ((m2 + m6) + (m3 + m7))


# Dual averaging and FTRL-proximal: a weight is a function of (t, dual, squares). What the
# function needs besides are two tuples in the dtype of the state: `settings`, of one output at one
# t, (threshold = t l1, ridge = eta t l2, eta), and `fixed`, (delta, low, high, tiny).


@_inlined
def _dual_settings(eta, l1, l2, t, real):
    return real(t * l1), real(eta * t * l2), real(eta)


@_inlined
def _fixed_settings(delta, low, high, real):
    # Below `tiny` the square of a gradient loses its digits, then vanishes. The metric never goes
    # below it: with delta = 0, a gradient whose square is 0 would make a huge weight.
    return real(delta), real(low), real(high), real(np.sqrt(np.finfo(real).tiny))


@_inlined
def _dual_weight(dual, squares, settings, fixed):
    threshold, ridge, eta = settings
    delta, low, high, tiny = fixed
    shrunk = max(abs(dual) - threshold, tiny - tiny)
    curvature = max(delta + np.sqrt(squares) + ridge, tiny)
    return min(max(-np.copysign(eta * shrunk / curvature, dual), low), high)


@_inlined
def _pull(squares, grown, weight, eta):
    """Term that FTRL-proximal subtracts from a gradient: growth of the metric times `weight`."""
    return (np.sqrt(grown) - np.sqrt(squares)) * weight / eta


# A row's state is gathered, worked on side by side, and scattered back, output by output or for two
# at a time. `couples` is the state, (dual, squares) as one complex number each, so that both move
# at once; those of a feature's `width` outputs lie side by side, and `first` is the first of the
# outputs in question. `row` is where what they have of a row is gathered; `reals` is the same
# memory, number by number.


@_inlined
def _place(index, width, first):
    return np.uint64(width) * np.uint64(np.uint32(index)) + np.uint64(first)


@_inlined
def _dual_margin(
    indices, values, couples, width, first, settings, fixed, row, reals, weights, terms
):
    """<w, x> of one row, before the row's scale; its state and weights are kept."""
    for j in range(len(indices)):
        row[j] = couples[_place(indices[j], width, first)]
    for j in range(len(indices)):
        weights[j] = _dual_weight(reals[2 * j], reals[2 * j + 1], settings, fixed)
        terms[j] = weights[j] * values[j]
    return _sum(terms[: len(indices)])


@_inlined
def _dual_learn(indices, values, couples, width, first, slope, eta, proximal, row, reals, weights):
    """Add the gradient ``slope * values`` to the row that `_dual_margin` gathered."""
    if proximal:
        for j in range(len(indices)):
            gradient = slope * values[j]
            squares = reals[2 * j + 1]
            grown = squares + gradient * gradient
            reals[2 * j] += gradient - _pull(squares, grown, weights[j], eta)
            reals[2 * j + 1] = grown
    else:
        for j in range(len(indices)):
            gradient = slope * values[j]
            reals[2 * j] += gradient
            reals[2 * j + 1] += gradient * gradient
    for j in range(len(indices)):
        couples[_place(indices[j], width, first)] = row[j]


@_inlined
def _dual_margin_two(
    indices, values, couples, width, first, settings, fixed, row, reals, terms, other_terms
):
    """<w, x> of one row for two neighbours."""
    for j in range(len(indices)):
        place = _place(indices[j], width, first)
        one, other = couples[place], couples[place + np.uint64(1)]
        row[2 * j], row[2 * j + 1] = one, other
    for j in range(len(indices)):
        terms[j] = values[j] * _dual_weight(reals[4 * j], reals[4 * j + 1], settings, fixed)
        weight = _dual_weight(reals[4 * j + 2], reals[4 * j + 3], settings, fixed)
        other_terms[j] = values[j] * weight
    return _sum(terms[: len(indices)]), _sum(other_terms[: len(indices)])


@_inlined
def _dual_learn_two(
    indices,
    values,
    couples,
    width,
    first,
    slope,
    other_slope,
    settings,
    fixed,
    proximal,
    row,
    reals,
):
    """Add either neighbour's gradient to the row that `_dual_margin_two` gathered."""
    if proximal:
        for k in range(2):
            own = slope if k == 0 else other_slope
            for j in range(len(indices)):
                gradient = own * values[j]
                dual, squares = reals[4 * j + 2 * k], reals[4 * j + 2 * k + 1]
                grown = squares + gradient * gradient
                weight = _dual_weight(dual, squares, settings, fixed)
                reals[4 * j + 2 * k] = dual + (
                    gradient - _pull(squares, grown, weight, settings[2])
                )
                reals[4 * j + 2 * k + 1] = grown
    else:
        for j in range(len(indices)):
            gradient, other = slope * values[j], other_slope * values[j]
            reals[4 * j] += gradient
            reals[4 * j + 1] += gradient * gradient
            reals[4 * j + 2] += other
            reals[4 * j + 3] += other * other
    for j in range(len(indices)):
        place = _place(indices[j], width, first)
        one, other = row[2 * j], row[2 * j + 1]
        couples[place], couples[place + np.uint64(1)] = one, other


@_inlined
def _dual_intercept(intercept, k, eta, fixed):
    return _dual_weight(intercept[0, k, 0], intercept[0, k, 1], (0.0, 0.0, eta), fixed)


@_inlined
def _dual_learn_intercept(intercept, k, slope, eta, fixed, proximal):
    """The intercept is a feature that is always 1, with no penalty and no box."""
    squares = intercept[0, k, 1]
    grown = squares + slope * slope
    change = slope
    if proximal:
        change -= _pull(squares, grown, _dual_intercept(intercept, k, eta, fixed), eta)
    intercept[0, k, 0] += change
    intercept[0, k, 1] = grown


@_compiled
def train_dual(batch, targets, hyperparameters, state, intercept, t, margins):
    """Learn from the rows in order, one step each: dual averaging, or FTRL where ``proximal``.

    The outputs are those of one group.

    A row of importance c takes ceil(c) steps, the last of them weighted by what is left, so that
    importance 2 is the row twice and importance 0 is no row at all. Beyond an importance of
    `MAX_STEPS` it is that many larger steps, or a row of weight 10,000 would take as long as
    10,000 rows.

    Parameters
    ----------
    batch : Batch
    targets : Targets
    hyperparameters : Hyperparameters
        With arrays of length 1.
    state : (n_local, n_outputs, 2) float32 or float64, changed in place
    intercept : (1, n_outputs, 2) float64, changed in place
        State of the intercept, a feature that is always 1 and never regularized.
    t : float
        Importance of the steps so far.
    margins : (n_outputs, n_rows) float64, written
        The margin of each row before it was learned from.

    Returns
    -------
    float
        t after the last row.
    """
    width, real = state.shape[1], state.dtype
    longest = _longest(batch.indptr)
    ones = np.ones(0 if len(batch.values) else longest, np.float32)
    couples = _as_couples(state.reshape(-1))
    weights, terms = np.zeros(longest, real), np.zeros(longest, real)
    if width == 1:
        reals = np.zeros(2 * longest, real)
        one_row = _Row(_as_couples(reals), reals, weights, terms)
        return _train_dual_one(
            batch, targets, hyperparameters, couples, intercept, t, margins, ones, one_row
        )
    n_pairs = (width + 1) // 2  # of an odd number the last has a pair's memory for itself
    reals = np.zeros(n_pairs * 4 * longest, real)
    rows = _Rows(
        _as_couples(reals).reshape(n_pairs, 2 * longest),
        reals.reshape(n_pairs, 4 * longest),
        weights,
        terms,
        np.zeros(longest, real),
        np.zeros(width),
        np.zeros(width),
    )
    return _train_dual_many(
        batch, targets, hyperparameters, couples, intercept, t, margins, ones, rows
    )


class _Row(NamedTuple):
    """Memory of `_train_dual_one` for one row, whose `gathered` and `reals` are the same."""

    gathered: NDArray[np.complexfloating]
    reals: NDArray[np.floating]
    weights: NDArray[np.floating]
    terms: NDArray[np.floating]


class _Rows(NamedTuple):
    """Memory of `_train_dual_many`, as `_Row`, for pairs of outputs and for each output."""

    gathered: NDArray[np.complexfloating]
    reals: NDArray[np.floating]
    weights: NDArray[np.floating]
    terms: NDArray[np.floating]
    other_terms: NDArray[np.floating]
    slopes: NDArray[np.float64]
    now: NDArray[np.float64]


# One output is the usual case: a tenth faster than the loop for any number.


@_borrowing
def _train_dual_one(batch, targets, hyperparameters, couples, intercept, t, margins, ones, one_row):
    gathered, reals, weights, terms = one_row
    real = reals.dtype.type
    indptr, indices, values, row_scale, labels, importance = batch
    loss, parameter, _, label_column, positive, fit_intercept = targets
    column, positive_label = label_column[0], positive[0]
    step_size, l1, l2, low, high, delta, proximal = hyperparameters
    eta, threshold, ridge = step_size[0], l1[0], l2[0]
    stored = len(values) > 0
    fixed = _fixed_settings(delta, low, high, real)
    free = _fixed_settings(delta, -np.inf, np.inf, np.float64)
    for row in range(len(indptr) - 1):
        start, stop = indptr[row], indptr[row + 1]
        ids = indices[start:stop]
        xs = values[start:stop] if stored else ones[: stop - start]
        scale = np.float64(row_scale[row]) if len(row_scale) else 1.0
        target = _target(labels[column, row], positive_label)
        left = importance[row] if len(importance) else 1.0
        share = max(left / MAX_STEPS, 1.0)
        first = True
        while left > 0.0 or first:
            part = min(left, share)
            left -= part
            settings = _dual_settings(eta, threshold, ridge, t, real)
            margin = scale * _dual_margin(
                ids, xs, couples, 1, 0, settings, fixed, gathered, reals, weights, terms
            )
            if fit_intercept:
                margin += _dual_intercept(intercept, 0, eta, free)
            if first:
                margins[0, row] = margin
            first = False
            slope = part * loss_slope(loss, parameter, margin, target)
            if slope != 0.0:
                if fit_intercept:
                    _dual_learn_intercept(intercept, 0, slope, eta, free, proximal)
                slope, rate = real(slope * scale), real(eta)
                _dual_learn(ids, xs, couples, 1, 0, slope, rate, proximal, gathered, reals, weights)
            t += part
    return t


@_borrowing
def _train_dual_many(batch, targets, hyperparameters, couples, intercept, t, margins, ones, rows):
    gathered, reals, weights, terms, other_terms, slopes, now = rows
    real = reals.dtype.type
    indptr, indices, values, row_scale, labels, importance = batch
    loss, parameter, n_targets, label_column, positive, fit_intercept = targets
    step_size, l1, l2, low, high, delta, proximal = hyperparameters
    eta, stored = step_size[0], len(values) > 0
    width = len(now)
    last, odd = width - 1, width % 2 == 1
    fixed = _fixed_settings(delta, low, high, real)
    free = _fixed_settings(delta, -np.inf, np.inf, np.float64)
    for row in range(len(indptr) - 1):
        start, stop = indptr[row], indptr[row + 1]
        ids = indices[start:stop]
        xs = values[start:stop] if stored else ones[: stop - start]
        scale = np.float64(row_scale[row]) if len(row_scale) else 1.0
        left = importance[row] if len(importance) else 1.0
        share = max(left / MAX_STEPS, 1.0)
        first = True
        while left > 0.0 or first:
            part = min(left, share)
            left -= part
            settings = _dual_settings(eta, l1[0], l2[0], t, real)
            for p in range(width // 2):
                k, own, same = 2 * p, gathered[p], reals[p]
                now[k], now[k + 1] = _dual_margin_two(
                    ids, xs, couples, width, k, settings, fixed, own, same, terms, other_terms
                )
            if odd:
                own, same = gathered[last // 2], reals[last // 2]
                now[last] = _dual_margin(
                    ids, xs, couples, width, last, settings, fixed, own, same, weights, terms
                )
            for k in range(width):
                now[k] *= scale
                if fit_intercept:
                    now[k] += _dual_intercept(intercept, k, eta, free)
                if first:
                    margins[k, row] = now[k]
            first = False
            if part > 0.0 and _fill_slopes(
                loss, parameter, n_targets, label_column, positive, labels, row, now, slopes
            ):
                for k in range(width):
                    slopes[k] *= part
                    if fit_intercept and slopes[k] != 0.0:
                        _dual_learn_intercept(intercept, k, slopes[k], eta, free, proximal)
                for p in range(width // 2):
                    k, own, same = 2 * p, gathered[p], reals[p]
                    one, other = real(slopes[k] * scale), real(slopes[k + 1] * scale)
                    if one != 0.0 or other != 0.0:
                        _dual_learn_two(
                            ids,
                            xs,
                            couples,
                            width,
                            k,
                            one,
                            other,
                            settings,
                            fixed,
                            proximal,
                            own,
                            same,
                        )
                if odd and slopes[last] != 0.0:
                    slope, own, same = (
                        real(slopes[last] * scale),
                        gathered[last // 2],
                        reals[last // 2],
                    )
                    _dual_learn(
                        ids,
                        xs,
                        couples,
                        width,
                        last,
                        slope,
                        real(eta),
                        proximal,
                        own,
                        same,
                        weights,
                    )
            t += part
    return t


@_compiled
def dual_weights(state, hyperparameters, t, weights):
    """The weights of every feature at `t`, into (n_local, n_outputs) `weights`."""
    real = state.dtype.type
    step_size, l1, l2, low, high, delta, _ = hyperparameters
    fixed = _fixed_settings(delta, low, high, real)
    n_groups, n_local, width, _ = state.shape
    for b in range(n_groups):
        settings = _dual_settings(step_size[b], l1[b], l2[b], t, real)
        for i in range(n_local):
            for k in range(width):
                dual, squares = state[b, i, k, 0], state[b, i, k, 1]
                weights[i, b * width + k] = _dual_weight(dual, squares, settings, fixed)


@_compiled
def apply_dual(state, hyperparameters, t, gradient, squares):
    """One step at `t` with the mean `gradient` ((n_local, n_outputs) float64).

    `squares` is added to the sums of squares; (0, 0) stands for the gradient's own square.
    """
    step_size, l1, l2, low, high, delta, proximal = hyperparameters
    fixed = _fixed_settings(delta, low, high, np.float64)
    n_groups, n_local, width, _ = state.shape
    for b in range(n_groups):
        settings = _dual_settings(step_size[b], l1[b], l2[b], t, np.float64)
        for i in range(n_local):
            for k in range(width):
                output = b * width + k
                change = gradient[i, output]
                square = squares[i, output] if len(squares) else change * change
                if change == 0.0 and square == 0.0:
                    continue
                dual, before = np.float64(state[b, i, k, 0]), np.float64(state[b, i, k, 1])
                if proximal:
                    weight = _dual_weight(dual, before, settings, fixed)
                    change -= _pull(before, before + square, weight, step_size[b])
                state[b, i, k, 0] = dual + change
                state[b, i, k, 1] = before + square


# Mirror descent: the weights themselves are the state. A feature that no row touches only
# shrinks, in closed form, so it is settled when it is next looked at: `last_update` holds the t up
# to which its weights are valid. `settings` of a bundle are (eta, l1, l2).


@_inlined
def _shrink(weight, squares, gap, settings, delta):
    """Weight after `gap` steps with gradient 0.

    One step is |w| <- [|w| - a]_+ / (1 + b), with a = eta l1 / H and b = eta l2 / H; so is their
    composition |w| - (1 - r)(|w| + l1 / l2), r = (1 + b)^-gap, as 0 stays 0. Steps of fractional
    importance c count as part of a whole one: (1 + b)^-c, where `_mirror_step` has 1 / (1 + c b).
    """
    eta, l1, l2 = settings
    weight = np.float64(weight)
    if gap <= 0.0 or weight == 0.0 or (l1 == 0.0 and l2 == 0.0):
        return weight
    rate = eta / (delta + np.sqrt(np.float64(squares)))
    if l2 == 0.0:
        size = abs(weight) - gap * rate * l1
    else:
        lost = -np.expm1(-gap * np.log1p(rate * l2))
        size = abs(weight) - lost * (abs(weight) + l1 / l2)
    return np.copysign(max(size, 0.0), weight)


@_inlined
def _mirror_step(weight, squares, gradient, part, settings, fixed):
    """The weight after a step; `squares` includes that of `gradient`."""
    eta, l1, l2 = settings
    delta, low, high = fixed
    curvature = delta + np.sqrt(squares)
    if curvature == 0.0:
        return 0.0
    rate = eta / curvature
    center = weight - rate * gradient
    shrunk = max(abs(center) - part * rate * l1, 0.0)
    moved = np.copysign(shrunk, center) / (1.0 + part * rate * l2)
    return min(max(moved, low), high)


@_borrowing
def _mirror_margins(indices, values, pairs, last_update, t, settings, delta, keep, margins):
    """<w, x> of one row for every output, before the row's scale; `keep` the settled weights."""
    margins[:] = 0.0
    for j in range(len(indices)):
        i = indices[j]
        gap = t - last_update[i]
        for k in range(len(margins)):
            weight = _shrink(pairs[i, 2 * k], pairs[i, 2 * k + 1], gap, settings, delta)
            margins[k] += weight * values[j]
            if keep:
                pairs[i, 2 * k] = weight
        if keep:
            last_update[i] = t


@_borrowing
def _mirror_learn(indices, values, pairs, last_update, t, part, settings, fixed, slopes):
    """Step with the gradients ``slopes[k] * values`` of one row, settled at `t`."""
    for j in range(len(indices)):
        i = indices[j]
        last_update[i] = t + part
        for k in range(len(slopes)):
            gradient = slopes[k] * values[j]
            squares = pairs[i, 2 * k + 1] + gradient * gradient
            weight = np.float64(pairs[i, 2 * k])
            pairs[i, 2 * k] = _mirror_step(weight, squares, gradient, part, settings, fixed)
            pairs[i, 2 * k + 1] = squares


@_compiled
def train_mirror(batch, targets, hyperparameters, state, last_update, intercept, t, margins):
    """Take one step of composite mirror descent for each row in order.

    As `train_dual`; besides, `last_update` ((n_local,) float64, changed in place) is the t up to
    which each feature's weights have been shrunk.
    """
    n_outputs = state.shape[1]
    ones = np.ones(0 if len(batch.values) else _longest(batch.indptr), np.float32)
    now, slopes = np.zeros(n_outputs), np.zeros(n_outputs)
    pairs = state.reshape(len(state), 2 * n_outputs)
    return _train_mirror(
        batch,
        targets,
        hyperparameters,
        pairs,
        last_update,
        intercept,
        t,
        margins,
        ones,
        now,
        slopes,
    )


@_borrowing
def _train_mirror(
    batch, targets, hyperparameters, pairs, last_update, intercept, t, margins, ones, now, slopes
):
    indptr, indices, values, row_scale, labels, importance = batch
    loss, parameter, n_targets, label_column, positive, fit_intercept = targets
    step_size, l1, l2, low, high, delta, _ = hyperparameters
    n_outputs, stored = len(now), len(values) > 0
    settings, unregularized = (step_size[0], l1[0], l2[0]), (step_size[0], 0.0, 0.0)
    fixed, free = (delta, low, high), (delta, -np.inf, np.inf)
    for row in range(len(indptr) - 1):
        start, stop = indptr[row], indptr[row + 1]
        ids = indices[start:stop]
        xs = values[start:stop] if stored else ones[: stop - start]
        scale = np.float64(row_scale[row]) if len(row_scale) else 1.0
        left = importance[row] if len(importance) else 1.0
        share = max(left / MAX_STEPS, 1.0)
        first = True
        while left > 0.0 or first:
            part = min(left, share)
            left -= part
            _mirror_margins(ids, xs, pairs, last_update, t, settings, delta, part > 0.0, now)
            for k in range(n_outputs):
                now[k] *= scale
                if fit_intercept:
                    now[k] += intercept[0, k, 0]
                if first:
                    margins[k, row] = now[k]
            first = False
            if part > 0.0 and _fill_slopes(
                loss, parameter, n_targets, label_column, positive, labels, row, now, slopes
            ):
                for k in range(n_outputs):
                    slopes[k] *= part
                    if fit_intercept:
                        squares = intercept[0, k, 1] + slopes[k] * slopes[k]
                        intercept[0, k, 0] = _mirror_step(
                            intercept[0, k, 0], squares, slopes[k], part, unregularized, free
                        )
                        intercept[0, k, 1] = squares
                    slopes[k] *= scale
                _mirror_learn(ids, xs, pairs, last_update, t, part, settings, fixed, slopes)
            t += part
    return t


@_compiled
def mirror_weights(state, last_update, hyperparameters, t, weights):
    """The weights of every feature at `t`, into (n_local, n_outputs) `weights`."""
    n_groups, n_local, width, _ = state.shape
    for b in range(n_groups):
        settings = hyperparameters.step_size[b], hyperparameters.l1[b], hyperparameters.l2[b]
        for i in range(n_local):
            gap = t - last_update[b, i]
            for k in range(width):
                weight, squares = state[b, i, k, 0], state[b, i, k, 1]
                shrunk = _shrink(weight, squares, gap, settings, hyperparameters.delta)
                weights[i, b * width + k] = shrunk


@_compiled
def apply_mirror(state, last_update, hyperparameters, t, gradient, squares):
    """One step at `t` with the mean `gradient`; see `apply_dual`.

    `last_update` is (n_groups, n_local) float64, changed in place.
    """
    fixed = hyperparameters.delta, hyperparameters.low, hyperparameters.high
    n_groups, n_local, width, _ = state.shape
    for b in range(n_groups):
        settings = hyperparameters.step_size[b], hyperparameters.l1[b], hyperparameters.l2[b]
        outputs = range(b * width, (b + 1) * width)
        for i in range(n_local):
            touched = False
            for output in outputs:
                touched |= gradient[i, output] != 0.0
                touched |= len(squares) > 0 and squares[i, output] != 0.0
            if not touched:
                continue
            for k, output in enumerate(outputs):
                change = gradient[i, output]
                before = np.float64(state[b, i, k, 1])
                gap = t - last_update[b, i]
                weight = _shrink(state[b, i, k, 0], before, gap, settings, hyperparameters.delta)
                grown = before + (squares[i, output] if len(squares) else change * change)
                state[b, i, k, 0] = _mirror_step(weight, grown, change, 1.0, settings, fixed)
                state[b, i, k, 1] = grown
            last_update[b, i] = t + 1.0


# Gradients and predictions at fixed weights.


@_borrowing
def _plain_margin(indices, values, flat, row):
    """<w, x> of one row for the only output, before the row's scale."""
    for j in range(len(indices)):
        row[j] = flat[np.uint32(indices[j])] * values[j]
    return _sum(row[: len(indices)])


@_borrowing
def _plain_margins(indices, values, weights, margins):
    """<w, x> of one row for every output, before the row's scale."""
    margins[:] = 0.0
    for j in range(len(indices)):
        for k in range(len(margins)):
            margins[k] += values[j] * weights[indices[j], k]


@_compiled
def margins(batch, weights, intercept, out):
    """Margins of all rows into (n_rows, n_outputs) float64 `out`.

    `weights` is (n_local, n_outputs) float32, `intercept` (n_outputs,) float64.
    """
    longest = _longest(batch.indptr)
    ones = np.ones(0 if len(batch.values) else longest, np.float32)
    gathered, sums = np.zeros(longest, weights.dtype), np.zeros(weights.shape[1], weights.dtype)
    _margins(batch, weights, weights.reshape(-1), intercept, out, ones, gathered, sums)


@_borrowing
def _margins(batch, weights, flat, intercept, out, ones, gathered, sums):
    indptr, indices, values, row_scale, _, _ = batch
    n_outputs, stored = len(sums), len(values) > 0
    for row in range(len(indptr) - 1):
        start, stop = indptr[row], indptr[row + 1]
        ids = indices[start:stop]
        xs = values[start:stop] if stored else ones[: stop - start]
        if n_outputs == 1:
            sums[0] = _plain_margin(ids, xs, flat, gathered)
        else:
            _plain_margins(ids, xs, weights, sums)
        scale = np.float64(row_scale[row]) if len(row_scale) else 1.0
        for k in range(n_outputs):
            out[row, k] = scale * np.float64(sums[k]) + intercept[k]


@_borrowing
def _add_gradient(indices, values, slopes, gradient):
    """Add ``slopes[k] * values`` of one row to the gradient of every output."""
    for j in range(len(indices)):
        for k in range(len(slopes)):
            gradient[indices[j], k] += slopes[k] * values[j]


@_borrowing
def _add_squares(indices, values, slopes, importance, squares):
    """Add the squares of the same, `importance` times."""
    for j in range(len(indices)):
        for k in range(len(slopes)):
            term = slopes[k] * values[j]
            squares[indices[j], k] += importance * term * term


@_compiled
def batch_gradient(batch, targets, weights, intercept, gradient, squares, intercept_gradient, out):
    """Importance-weighted sum over the rows of their gradients at fixed weights.

    Parameters
    ----------
    batch : Batch
    targets : Targets
    weights : (n_local, n_outputs) float32
    intercept : (n_outputs,) float64
    gradient : (n_local, n_outputs) float32, added to
    squares : (n_local, n_outputs) float32 or (0, 0), added to
        Sum of the squares of each row's gradient, where it is wanted.
    intercept_gradient : (2, n_outputs) float64, added to
        Sums of the intercept's gradient and of its squares.
    out : (n_rows, n_outputs) float64, written
        The margin of each row.
    """
    margins(batch, weights, intercept, out)
    ones = np.ones(0 if len(batch.values) else _longest(batch.indptr), np.float32)
    slopes = np.zeros(weights.shape[1])
    scaled = np.zeros(len(slopes), gradient.dtype)
    _add_gradients(batch, targets, gradient, squares, intercept_gradient, out, ones, slopes, scaled)


@_borrowing
def _add_gradients(
    batch, targets, gradient, squares, intercept_gradient, out, ones, slopes, scaled
):
    indptr, indices, values, row_scale, labels, importances = batch
    loss, parameter, n_targets, label_column, positive, fit_intercept = targets
    stored = len(values) > 0
    for row in range(len(indptr) - 1):
        importance = importances[row] if len(importances) else 1.0
        if importance == 0.0 or not _fill_slopes(
            loss, parameter, n_targets, label_column, positive, labels, row, out[row], slopes
        ):
            continue
        scale = np.float64(row_scale[row]) if len(row_scale) else 1.0
        for k in range(len(slopes)):
            if fit_intercept:
                intercept_gradient[0, k] += importance * slopes[k]
                intercept_gradient[1, k] += importance * slopes[k] * slopes[k]
            slopes[k] *= scale
            scaled[k] = importance * slopes[k]
        start, stop = indptr[row], indptr[row + 1]
        ids = indices[start:stop]
        xs = values[start:stop] if stored else ones[: stop - start]
        _add_gradient(ids, xs, scaled, gradient)
        if len(squares):
            _add_squares(ids, xs, slopes, importance, squares)


@_compiled
def count_rows(batch, targets, other, margins):
    """Loss and mistakes of (n_rows,) float64 `margins` of one output.

    Parameters
    ----------
    batch : Batch
    targets : Targets
        Of the output, whose loss couples nothing.
    other : float
        The only label besides ``targets.positive`` that there may be; NaN if there is no rule.
    margins : (n_rows,) float64

    Returns
    -------
    loss, mistakes : float
        Importance-weighted sums. A margin of 0 predicts -1. The loss is NaN where a margin is not
        finite.
    unknown : int
        Rows whose label is not allowed.
    """
    loss, parameter = targets.loss, targets.loss_parameter
    column, positive = targets.label_column[0], targets.positive[0]
    signs, checked = not np.isnan(positive), not np.isnan(other)
    total, mistakes, unknown = 0.0, 0.0, 0
    for row in range(len(margins)):
        importance = batch.importance[row] if len(batch.importance) else 1.0
        label, margin = batch.labels[column, row], margins[row]
        target = (1.0 if label == positive else -1.0) if signs else label
        total += importance * _loss_value(loss, parameter, margin, target) + 0.0 * margin
        # Sums, and no branches: half of the rows take either.
        mistakes += importance * ((margin > 0.0) != (target > 0.0))
        unknown += checked & (label != positive) & (label != other)
    return total, mistakes, unknown
