"""Compiled kernels: the loops over non-zeros, and nothing else.

Each is held by tests to the plain formulas of `dadagrad.optim.updates` and `dadagrad.optim.losses`.

* `online_kernel`: one step for each row, in order; the whole online algorithm.
* `count_by_score`: the histogram of scores of progressive validation.
* `predict_scores`, `fill_slopes`, `add_gradients`: the gradient of many rows at fixed weights.
* `merge_streams`: the states of streams that learned apart, into one.
* `dual_weights`, `mirror_weights`, `apply_dual`, `apply_mirror`: weights out of, and one batch
  gradient into, the same state arrays.

State arrays are compact (aligned with a vocabulary) and generic in dtype: float32 in training,
float64 where a test wants every digit. Outputs that a loss couples make a group and are learned
together; independent outputs are grouped, a few at a time, to share cache lines. Training takes one
group, whose state is (n_local, width, 2): the primary sum (u, z or the weights) and the sum of
squared gradients lie side by side. Elsewhere states are those of all groups, (n_groups, n_local,
width, 2), and other arrays have the outputs in their last axis.

A loss is known by its code, or its slope is a user's own: compiled, as a function pointer, or
computed by NumPy for `add_gradients`. Kernels take None for `user_slope` where there is none, and
Numba leaves out the branch that is not taken: the built-in losses pay nothing for the others.

Sums are taken in eight fixed lanes (`_sum`): they use vector units, and still the bits do not
depend on which the machine has. Rows are read up to a multiple of eight numbers, because the rest
of a loop takes as long as several whole vectors; what is computed of the surplus is not used, or 0.

Four habits make these loops several times faster, and are kept on purpose. Inner loops run over
flat arrays or slices, without branches, or LLVM does not vectorise them. Loops over rows are in
functions that only borrow their arrays (`_borrowing`), and what they call most is inlined. What is
gathered by an index casts it to unsigned, which spares Numba the question whether it is negative.
And loops that compute much with numbers scattered over the memory ask for them early (`_prefetch`),
or would wait for them longer than they compute. Loops that only gather have no use for it.

Numba caches by file: kernels call only functions that are defined here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import cfunc, njit
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dadagrad.optim.losses import Loss

_compiled = njit(nogil=True, cache=True, error_model="numpy")
_inlined = njit(nogil=True, cache=True, error_model="numpy", inline="always")
# For loops over rows and what they call: these borrow their arrays and allocate none, so nobody
# needs to count references to them, which would take as long as the arithmetic.
_borrowing = njit(nogil=True, cache=True, error_model="numpy", _nrt=False)  # type: ignore[call-overload]

MAX_STEPS = 64
LANES = 8
# The codes of the classes of `dadagrad.optim.losses`.
HINGE, SQUARED_HINGE, LOGISTIC, SQUARED, ABSOLUTE, HUBER, QUANTILE, POISSON = range(8)
MULTICLASS_HINGE, SOFTMAX = 8, 9  # these and any after them couple the outputs
MAX_LOG_MEAN = 30.0
KINK = 1e-5


def _prefetch_instruction(typing_context, array, index):
    """Type and code of the instruction; an address beyond the array does no harm."""

    def generate(context, builder, signature, arguments):
        numbers = context.make_array(array)(context, builder, arguments[0]).data
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        instruction = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        place = builder.bitcast(builder.gep(numbers, [arguments[1]]), byte)
        builder.call(instruction, [place, flag(0), flag(3), flag(1)])  # to read; into all caches
        return context.get_dummy_value()

    return types.void(array, index), generate


_prefetch: Any = intrinsic(_prefetch_instruction)
"""Ask for the number at a place of an array in C order, without waiting for it."""


def _sum_instructions(typing_context, array, count):
    """Type and code of a sum of whole vectors, whose lanes are added last."""

    def generate(context, builder, signature, arguments):
        numbers = context.make_array(array)(context, builder, arguments[0]).data
        vector = ir.VectorType(context.get_data_type(array.dtype), LANES)
        total = cgutils.alloca_once_value(builder, ir.Constant(vector, None))
        first, step = ir.Constant(arguments[1].type, 0), ir.Constant(arguments[1].type, LANES)
        with cgutils.for_range_slice(builder, first, arguments[1], step) as (index, _):
            place = builder.bitcast(builder.gep(numbers, [index]), vector.as_pointer())
            terms = builder.load(place, align=array.dtype.bitwidth // 8)
            builder.store(builder.fadd(builder.load(total), terms), total)
        vector = builder.load(total)
        lanes = [builder.extract_element(vector, ir.IntType(32)(n)) for n in range(LANES)]
        while len(lanes) > 1:
            lanes = [builder.fadd(lanes[n], lanes[n + 1]) for n in range(0, len(lanes), 2)]
        return lanes[0]

    return array.dtype(array, types.intp), generate


_sum: Any = intrinsic(_sum_instructions)
"""The sum of the first numbers of an array; their count is a multiple of `LANES`."""


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
    `loss` is the code of a `Loss`, or -1.
    """

    loss: int
    loss_parameter: float
    n_targets: int
    label_column: NDArray[np.int64]
    positive: NDArray[np.float64]
    fit_intercept: bool


class Hyperparameters(NamedTuple):
    """The settings of the update: (n_groups,) arrays, or numbers where there is one group."""

    step_size: NDArray[np.float64]
    l1: NDArray[np.float64]
    l2: NDArray[np.float64]
    low: float
    high: float
    delta: float
    proximal: bool
    aware: bool


def compile_slope(loss: Loss) -> Any:
    """A pointer to the user's own slope: kernels compile once for all of them. None without one."""
    return None if loss.scalar_slope is None else _compile_function(loss.scalar_slope)


@lru_cache(maxsize=16)
def _compile_function(function: Any) -> Any:
    return cfunc("float64(float64, float64)")(function.py_func)


@_inlined
def _target(label, positive):
    """Target of an output for a row: a sign, or the label itself."""
    if np.isnan(positive):
        return label
    return 1.0 if label == positive else -1.0


@_inlined
def loss_slope(loss, parameter, user_slope, score, target):
    """d loss / d score of one row, of a built-in loss by its code or of a user's own."""
    if user_slope is not None:
        return user_slope(score, target)
    if loss == HINGE:
        return -target if target * score < 1.0 else 0.0
    if loss == SQUARED_HINGE:
        return -target * max(0.0, 1.0 - target * score)
    if loss == LOGISTIC:
        agreement = target * score
        decay = np.exp(-abs(agreement))
        return -target * (decay if agreement >= 0.0 else 1.0) / (1.0 + decay)
    distance = score - target
    if loss == SQUARED:
        return distance
    if loss == ABSOLUTE:
        return np.sign(distance)
    if loss == HUBER:
        return min(max(distance, -parameter), parameter)
    if loss == QUANTILE:
        return 0.0 if distance == 0.0 else (1.0 - parameter if distance > 0.0 else -parameter)
    return np.exp(min(score, MAX_LOG_MEAN)) - target


@_inlined
def _decay(pace):
    """The mean of exp(-pace h) for h from 0 to 1."""
    return -np.expm1(-pace) / pace


@_inlined
def _logistic_move(agreement, pace):
    """The m with m + exp(a) (exp(m) - 1) = pace, by Halley's method.

    A short step, as most are, begins at the rational function of least degree that has the first
    three derivatives of the move, and takes exp(m) - 1 from its series: after one iteration less
    than 1e-9 of the move is missing, without the call of a function.
    """
    growth = np.exp(min(agreement, 500.0))
    slope = 1.0 / (1.0 + growth)
    first, rise = pace * slope, growth * slope
    if first <= 0.5:
        bend = (rise - 1.0 / 3.0) * first
        move = first * (1.0 + bend - 0.5 * rise * first) / (1.0 + bend)
        square = move * move
        high = 1 / 720 + 1 / 5040 * move + square * (1 / 40320 + 1 / 362880 * move)
        low = 1 / 2 + 1 / 6 * move + square * (1 / 24 + 1 / 120 * move + square * high)
        grown = move + square * low
        excess, bend = slope * move + rise * grown - first, rise * (1.0 + grown)
        rate = slope + bend
        return move - 2.0 * excess * rate / (2.0 * rate * rate - excess * bend)
    move = min(first, np.log1p(pace / growth))
    for _ in range(20):
        grown = np.expm1(move)
        bend = growth * (1.0 + grown)
        step = (move + growth * grown - pace) / (1.0 + bend)
        step /= 1.0 - 0.5 * step * bend / (1.0 + bend)
        move -= step
        if abs(step) <= 1e-5 * min(move, 1.0):  # what is left is its cube
            break
    return move


@_inlined
def mean_slope(loss, parameter, score, target, pace):
    """The mean slope along a step at `pace` > 0, of a built-in loss that couples nothing.

    See `dadagrad.optim.losses.Loss.mean_slope`.
    """
    if loss == HINGE:
        return -target * min(1.0, max(0.0, 1.0 - target * score) / pace)
    if loss == SQUARED_HINGE:
        return -target * max(0.0, 1.0 - target * score) * _decay(pace)
    if loss == LOGISTIC:
        return -target * _logistic_move(target * score, pace) / pace
    if loss == POISSON:
        mean = np.exp(min(score, MAX_LOG_MEAN))
        spread = _decay(pace * target) if target > 0.0 else 1.0
        growth = np.expm1(-pace * target) + mean * pace * spread
        if growth < -0.5:
            return np.log(np.exp(-pace * target) + mean * pace * spread) / pace
        return np.log1p(growth) / pace
    distance = score - target
    size, sign = abs(distance), np.sign(distance)
    if loss == SQUARED:
        return distance * _decay(pace)
    if loss == HUBER:
        # The share of the step outside of the width, where the slope is constant.
        outside = min(max(size - parameter, 0.0) / (parameter * pace), 1.0)
        pace_inside = pace * (1.0 - outside)
        inside = (
            min(size, parameter) * _decay(pace_inside) * (1.0 - outside)
            if pace_inside > 0.0
            else 0.0
        )
        return sign * (parameter * outside + inside)
    steepest = 1.0
    if loss == QUANTILE:
        steepest = 1.0 - parameter if distance > 0.0 else parameter
    return sign * min(steepest, size / pace)


@_inlined
def _at_kink(loss, score, target):
    """True if an aware step has just brought the score to a kink: rounding decides its slope.

    The distance that counts as none has the unit of the target.
    """
    if loss == HINGE:
        return abs(1.0 - target * score) <= KINK
    if loss in (ABSOLUTE, QUANTILE):
        return abs(score - target) <= KINK * abs(target)
    return False


@_inlined
def _is_aware(targets, user_slope, hyperparameters):
    """True if slopes are means along the step."""
    if user_slope is not None:
        return False
    return hyperparameters.aware and targets.loss < MULTICLASS_HINGE


class OnlineStep(NamedTuple):
    """A step from `t` on, which takes a row as if its importance were `part`.

    `labels` are those of all rows. `xs` are the values at the `ids`, (nnz,) int32, and others up to
    a multiple of `LANES`, which are to be multiplied by `scale`. With `aware`, slopes are means
    along the step.
    """

    labels: NDArray[np.float64]
    row: int
    ids: NDArray[np.int32]
    xs: NDArray[np.float32]
    scale: float
    t: float
    part: float
    aware: bool


@_inlined
def _target_of_output(targets, step, k):
    return _target(step.labels[targets.label_column[k], step.row], targets.positive[k])


@_inlined
def _move_of_output(targets, step, score, pace, k):
    """The slope by which output `k` steps, times the part of the step."""
    loss, parameter = targets.loss, targets.loss_parameter
    target = _target_of_output(targets, step, k)
    return step.part * mean_slope(loss, parameter, score, target, step.part * pace)


@_borrowing
def _fill_coupled(loss, n_targets, label_column, positive, labels, row, scores, slopes):
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
            elif best < 0 or scores[k] > scores[best]:
                best = k
        if right < 0 or best < 0:
            continue
        if loss == MULTICLASS_HINGE:
            if 1.0 + scores[best] - scores[right] > 0.0:
                slopes[best], slopes[right] = 1.0, -1.0
                any_slope = True
            continue
        largest = max(scores[best], scores[right])
        others = 0.0
        for k in range(first, first + n_targets):
            slopes[k] = np.exp(scores[k] - largest)
            if k != right:
                others += slopes[k]
        total = others + slopes[right]
        slopes[right] = -others
        for k in range(first, first + n_targets):
            slopes[k] /= total
        any_slope |= others != 0.0
    return any_slope


@_inlined
def _fill_slopes(targets, user_slope, labels, row, scores, slopes):
    """The slope of every output at one row's scores; True where any is not 0."""
    loss, parameter, n_targets, label_column, positive, _ = targets
    if user_slope is None and loss >= MULTICLASS_HINGE:
        return _fill_coupled(loss, n_targets, label_column, positive, labels, row, scores, slopes)
    any_slope = False
    for k in range(len(slopes)):
        target = _target(labels[label_column[k], row], positive[k])
        slopes[k] = loss_slope(loss, parameter, user_slope, scores[k], target)
        any_slope |= slopes[k] != 0.0
    return any_slope


@_inlined
def _whole_vectors(n):
    """The number `n` rounded up to a multiple of `LANES`, at least one."""
    return max(n + LANES - 1, LANES) // LANES * LANES


@_inlined
def _slope_of_output(targets, user_slope, step, score, slopes):
    target = _target_of_output(targets, step, 0)
    if step.aware and _at_kink(targets.loss, score, target):
        return 0.0
    return step.part * loss_slope(targets.loss, targets.loss_parameter, user_slope, score, target)


@_inlined
def _slopes_of_outputs(targets, user_slope, step, scores, slopes):
    _fill_slopes(targets, user_slope, step.labels, step.row, scores, slopes)
    for k in range(len(slopes)):
        slopes[k] *= step.part
        if step.aware and _at_kink(targets.loss, scores[k], _target_of_output(targets, step, k)):
            slopes[k] = 0.0
    return slopes


# Learning online: one loop over rows for all updates.


class Work(NamedTuple):
    """The state of one group of outputs, and memory for one row.

    `longest` is that of `longest_row`. Dual averaging and FTRL work on `complex_pairs`: both sums
    of a weight move as one complex number.

    Attributes
    ----------
    pairs : (n_local, 2 * width) float32 or float64
        The state, both sums of each output side by side.
    complex_pairs : (n_local * width,) complex
        The same memory.
    last_update : (n_local,) or (0,) float64
    averages : (n_local * width,) or (0,)
        With averaging, what the average lags behind the weights, times t^2.
    intercept : (width, 2) float64, or (width, 3) with averaging
    values : (longest,) float32
        The values of rows that have none stored, or of the last row.
    scores, slopes, moves : (width,) float64
        Of each output for the present row: the slope, whose square is added up, and the mean slope
        along the step, which moves the weights.
    gathered : (width, longest) complex
    sums : (width, 2 * longest)
        The same memory.
    weights : (width, longest)
    terms, other_terms : (longest,)
    """

    pairs: NDArray[np.floating]
    complex_pairs: NDArray[np.complexfloating]
    last_update: NDArray[np.float64]
    averages: NDArray[np.floating]
    intercept: NDArray[np.float64]
    values: NDArray[np.float32]
    scores: NDArray[np.float64]
    slopes: NDArray[np.float64]
    moves: NDArray[np.float64]
    gathered: NDArray[np.complexfloating]
    sums: NDArray[np.floating]
    weights: NDArray[np.floating]
    terms: NDArray[np.floating]
    other_terms: NDArray[np.floating]


def make_work(
    batch: Batch,
    state: NDArray[np.floating],
    intercept: NDArray[np.float64],
    last_update: NDArray[np.float64] | None = None,
    averages: NDArray[np.floating] | None = None,
) -> Work:
    """The work on the rows of `batch`: `online_kernel` changes the other arrays in place.

    `intercept` is (width, 2) float64, the state of a feature that is always 1 and never
    regularized, and has a third column with averaging. `last_update`, (n_local,) float64, is mirror
    descent's: the t up to which the weights of each feature have been shrunk. `averages` is
    (n_local, width), in the dtype of `state`; None without averaging.
    """
    width, real = state.shape[1], state.dtype
    complex_type = np.complex64 if real == np.float32 else np.complex128
    longest = longest_row(batch)
    sums = np.empty((width, 2 * longest), real)
    scores, slopes, moves = np.empty((3, width))
    terms, other_terms = np.empty((2, longest), real)
    return Work(
        state.reshape(len(state), 2 * width),
        state.reshape(-1).view(complex_type),
        np.zeros(0) if last_update is None else last_update,
        np.zeros(0, real) if averages is None else averages.reshape(-1),
        intercept,
        np.ones(longest, np.float32),
        scores,
        slopes,
        moves,
        sums.view(complex_type),
        sums,
        np.empty((width, longest), real),
        terms,
        other_terms,
    )


def longest_row(batch: Batch) -> int:
    """The most entries of a row, rounded up to a multiple of `LANES`."""
    longest = int((batch.indptr[1:] - batch.indptr[:-1]).max(initial=1))
    return -(-longest // LANES) * LANES


@_inlined
def _values_of_row(values, start, stop, spare):
    """The values of a row, and others up to a multiple of `LANES`, `spare` ones if need be."""
    whole = _whole_vectors(stop - start)
    if start + whole <= len(values):
        return values[start : start + whole]
    for j in range(len(values) - start):
        spare[j] = values[start + j]
    return spare[:whole]


@_inlined
def _learn_online(
    score, slope, learn,
    batch, targets, user_slope, hyperparameters, work, t, all_scores, average_scores,
):  # fmt: skip
    """Take a step for each row in order.

    The arguments that are functions are inlined; "the scores" are a number where there is one
    output, which stays in a register, and else an array.

    * ``score(work, hyperparameters, fit_intercept, step)``: the scores of a row, also written to
      ``work.scores``.
    * ``slope(targets, user_slope, step, scores, slopes)``: the slopes times ``step.part``.
    * ``learn(work, hyperparameters, targets, step, slopes)``: the step.
    """
    indptr, indices, values, row_scale, labels, importance = batch
    fit_intercept = targets.fit_intercept
    aware = _is_aware(targets, user_slope, hyperparameters)
    for row in range(len(indptr) - 1):
        start, stop = indptr[row], indptr[row + 1]
        ids = indices[start:stop]
        xs = _values_of_row(values, start, stop, work.values)
        scale = np.float64(row_scale[row]) if len(row_scale) else 1.0
        remaining = importance[row] if len(importance) else 1.0
        share = max(remaining / MAX_STEPS, 1.0)
        first = True
        while remaining > 0.0 or first:
            part = min(remaining, share)
            remaining -= part
            step = OnlineStep(labels, row, ids, xs, scale, t, part, aware)
            scores = score(work, hyperparameters, fit_intercept, step)
            if first:
                for k in range(len(all_scores)):
                    all_scores[k, row] = work.scores[k]
                for k in range(len(average_scores)):
                    if np.isnan(average_scores[k, row]):
                        continue
                    lag = _average_lag(work, fit_intercept, step, k)
                    average_scores[k, row] = work.scores[k] - lag
            first = False
            slopes = slope(targets, user_slope, step, scores, work.slopes)
            learn(work, hyperparameters, targets, step, slopes)
            t += part
    return t


# In float32, a term below half a unit in the last place of its sum would be lost: after 2^24 equal
# steps the sum of squares would stand still. Rounding is therefore dithered: a sum is rounded up as
# often as the rest says (stochastic rounding: Croci et al., 2022). The dither of step t is the t-th
# number of a sequence that fills its interval evenly, so it is part of the state, and needs none.

GOLDEN_RATIO = 0.6180339887498949
SIGN_AND_EXPONENT = np.int32(-0x800000)  # the bits of a float32 that say its sign and power of 2


@_inlined
def _rounding(t, real):
    """The dither at step t, from -1 to 1 half units and 0 in float64; and what `_dither` needs."""
    turns, single = t * GOLDEN_RATIO + 0.5, np.finfo(np.float32).eps
    half = 0.5 * single if np.finfo(real).eps == single else 0.0
    dither = (2.0 - single) * (turns - np.floor(turns) - 0.5)
    # The unit is that of the numbers to which the dither leads: below a power of 2 it is smaller.
    return real(dither * half), np.float32(1.0 - 2.0**-24 if dither < 0.0 else 1.0)


@_inlined
def _dither(number, rounding):
    """Less than half a unit in the last place of `number`, which stays the same if it is added."""
    dither, side = rounding
    beside = np.float32(number) * side
    power = np.int32(np.float32(beside).view(np.int32) & SIGN_AND_EXPONENT)
    return dither * np.int32(power).view(np.float32)


@_inlined
def _add(total, term, rounding):
    """The sum of `total` and `term`, all in the dtype of the state; exact sums stay exact."""
    return total + (term + _dither(total + term, rounding))


@_inlined
def _add_square(squares, square, rounding):
    """`_add` of a square, where an overflow stays infinite."""
    return max(squares, squares + (square + _dither(squares, rounding)))


@_inlined
def _rounded(number, real, rounding):
    """A float64 `number` in the dtype of the state."""
    return real(number + np.float64(_dither(real(number), rounding)))


# Averages: the weights after step t count (t^2 - (t - 1)^2) times. Their mean is w - A / t^2, with
# A = sum of (t - 1)^2 (w_t - w_t-1), to which a feature adds only where its weight changes.


@_inlined
def _average_lag(work, fit_intercept, step, k):
    """Difference of the scores of the weights at a step and of their average."""
    ids, xs, t = step.ids, step.xs, step.t
    if t == 0.0:
        return 0.0
    width, terms = len(work.scores), work.terms
    for j in range(len(ids)):
        terms[j] = work.averages[_place(ids[j], width, k)] * xs[j]
    for j in range(len(ids), len(xs)):
        terms[j] = 0.0
    lag = step.scale * np.float64(_sum(terms, len(xs)))
    if fit_intercept:
        lag += work.intercept[k, 2]
    return lag / (t * t)


# Dual averaging and FTRL-proximal: a weight is a function of (t, dual, squares). What the
# function needs besides are two tuples in the dtype of the state: `settings`, of one output at one
# t, (threshold = t l1, ridge = eta t l2, eta), and `fixed`, (delta, low, high, tiny).


@_inlined
def _dual_settings(eta, l1, l2, t, real):
    return real(t * l1), real(eta * t * l2), real(eta)


@_inlined
def _group_settings(hyperparameters, t, real):
    """`settings` and `fixed` of one group."""
    step_size, l1, l2, low, high, delta, _, _ = hyperparameters
    return _dual_settings(step_size, l1, l2, t, real), _fixed_settings(delta, low, high, real)


@_inlined
def _fixed_settings(delta, low, high, real):
    # Below `tiny` the square of a gradient loses its digits, then vanishes. Sums of squares count
    # as no less: with delta = 0, a gradient whose square is 0 would make a huge weight.
    return real(delta), real(low), real(high), real(np.finfo(real).tiny)


@_inlined
def _dual_curvature(squares, settings, fixed):
    _, ridge, _ = settings
    delta, _, _, tiny = fixed
    return delta + np.sqrt(max(squares, tiny)) + ridge


@_inlined
def _dual_weight(dual, squares, settings, fixed):
    threshold, _, eta = settings
    _, low, high, tiny = fixed
    shrunk = max(abs(dual) - threshold, tiny - tiny)
    curvature = _dual_curvature(squares, settings, fixed)
    return min(max(-np.copysign(eta * shrunk / curvature, dual), low), high)


@_inlined
def _pull(squares, grown, weight, eta):
    """Term that FTRL-proximal subtracts from a gradient: growth of the metric times `weight`."""
    return (np.sqrt(grown) - np.sqrt(squares)) * weight / eta


@_inlined
def _dual_intercept(hyperparameters, sums):
    """The intercept is a feature that is always 1, with no penalty and no box."""
    fixed = _fixed_settings(hyperparameters.delta, -np.inf, np.inf, np.float64)
    return _dual_weight(sums[0], sums[1], (0.0, 0.0, hyperparameters.step_size), fixed)


@_inlined
def _dual_learn_intercept(hyperparameters, sums, slope, move, t):
    grown = sums[1] + slope * slope
    change = move
    weight = _dual_intercept(hyperparameters, sums)
    if hyperparameters.proximal:
        change -= _pull(sums[1], grown, weight, hyperparameters.step_size)
    sums[0] += change
    sums[1] = grown
    if len(sums) > 2:
        sums[2] += t * t * (_dual_intercept(hyperparameters, sums) - weight)


# The sums of a row's features are gathered, worked on side by side, and scattered back, for the
# output `k` of `width`.


@_inlined
def _place(index, width, k):
    return np.uint64(width) * np.uint64(np.uint32(index)) + np.uint64(k)


@_inlined
def _dual_score(work, settings, fixed, step, k, width):
    """<w, x> of one row, before the row's scale; its sums and weights are kept.

    The surplus of ``step.xs`` over ``step.ids`` meets sums of 0, whose weights are 0.
    """
    ids, xs = step.ids, step.xs
    complex_pairs, weights, terms = work.complex_pairs, work.weights[k], work.terms
    gathered, sums = work.gathered[k], work.sums[k]
    last = np.uint64(len(xs) - LANES)
    for j in range(LANES):
        gathered[last + np.uint64(j)] = 0.0
    for j in range(len(ids)):
        gathered[j] = complex_pairs[_place(ids[j], width, k)]
    for j in range(len(xs)):
        weights[j] = _dual_weight(sums[2 * j], sums[2 * j + 1], settings, fixed)
        terms[j] = weights[j] * xs[j]
    return _sum(terms, len(xs))


@_inlined
def _dual_move(work, hyperparameters, targets, step, slope, k):
    """The mean of the slope along the step, times its part; `slope` is that at its beginning.

    Dual averaging divides all of a sum by the new metric, so that the step begins at the score
    which that alone would make.
    """
    ids, xs, scale = step.ids, step.xs, step.scale
    sums, terms, products = work.sums[k], work.terms, work.other_terms
    real = sums.dtype.type
    settings, fixed = _group_settings(hyperparameters, step.t, real)
    _, _, eta = settings
    scaled = real(slope * scale)
    for j in range(len(xs)):
        gradient = scaled * xs[j]
        dual, grown = sums[2 * j], sums[2 * j + 1] + gradient * gradient
        terms[j] = eta * xs[j] / _dual_curvature(grown, settings, fixed) * xs[j]
        products[j] = xs[j] * _dual_weight(dual, grown, settings, fixed)
    for j in range(len(ids), len(xs)):
        terms[j] = 0.0
    pace = scale * scale * np.float64(_sum(terms, len(xs)))
    score = scale * np.float64(_sum(products, len(xs)))
    if targets.fit_intercept:
        bias = work.intercept[k]
        grown = bias[1] + slope * slope
        pace += hyperparameters.step_size / max(hyperparameters.delta + np.sqrt(grown), 1e-150)
        score += _dual_intercept(hyperparameters, (bias[0], grown))
    if hyperparameters.proximal:
        score = work.scores[k]
    if pace == 0.0:
        return slope
    return _move_of_output(targets, step, score, pace, k)


@_inlined
def _dual_learn(work, hyperparameters, step, slope, move, k, width):
    """Add ``move * x`` to the sums that `_dual_score` kept, and the squares of ``slope * x``."""
    ids, xs = step.ids, step.xs
    complex_pairs, weights = work.complex_pairs, work.weights[k]
    gathered, sums = work.gathered[k], work.sums[k]
    real = sums.dtype.type
    slope, move = real(slope * step.scale), real(move * step.scale)
    eta, rounding = real(hyperparameters.step_size), _rounding(step.t, real)
    if hyperparameters.proximal:
        for j in range(len(xs)):
            gradient = slope * xs[j]
            squares = sums[2 * j + 1]
            grown = _add_square(squares, gradient * gradient, rounding)
            change = move * xs[j] - _pull(squares, grown, weights[j], eta)
            sums[2 * j] = _add(sums[2 * j], change, rounding)
            sums[2 * j + 1] = grown
    else:
        for j in range(len(xs)):
            gradient = slope * xs[j]
            sums[2 * j] = _add(sums[2 * j], move * xs[j], rounding)
            sums[2 * j + 1] = _add_square(sums[2 * j + 1], gradient * gradient, rounding)
    if len(work.averages):
        _dual_average(work, hyperparameters, step, k, width)
    else:
        for j in range(len(ids)):
            complex_pairs[_place(ids[j], width, k)] = gathered[j]


@_inlined
def _dual_average(work, hyperparameters, step, k, width):
    """Note that the weights of output `k`, kept by `_dual_score`, are now those of its sums."""
    ids, xs, t = step.ids, step.xs, step.t
    sums, weights, terms, averages = work.sums[k], work.weights[k], work.terms, work.averages
    real = sums.dtype.type
    settings, fixed = _group_settings(hyperparameters, t, real)
    count = real(t * t)
    for j in range(len(xs)):
        weight = _dual_weight(sums[2 * j], sums[2 * j + 1], settings, fixed)
        terms[j] = count * (weight - weights[j])
    complex_pairs, gathered = work.complex_pairs, work.gathered[k]
    for j in range(len(ids)):
        place = _place(ids[j], width, k)
        averages[place] += terms[j]
        complex_pairs[place] = gathered[j]


@_inlined
def _dual_score_one_output(work, hyperparameters, fit_intercept, step):
    settings, fixed = _group_settings(hyperparameters, step.t, work.sums.dtype.type)
    score = step.scale * _dual_score(work, settings, fixed, step, 0, 1)
    if fit_intercept:
        score += _dual_intercept(hyperparameters, work.intercept[0])
    work.scores[0] = score
    return score


@_inlined
def _dual_learn_output(work, hyperparameters, targets, step, slope, k, width):
    if slope != 0.0:
        move = slope
        if step.aware:
            move = _dual_move(work, hyperparameters, targets, step, slope, k)
        if targets.fit_intercept:
            _dual_learn_intercept(hyperparameters, work.intercept[k], slope, move, step.t)
        _dual_learn(work, hyperparameters, step, slope, move, k, width)


@_inlined
def _dual_learn_one_output(work, hyperparameters, targets, step, slope):
    _dual_learn_output(work, hyperparameters, targets, step, slope, 0, 1)


@_inlined
def _dual_score_outputs(work, hyperparameters, fit_intercept, step):
    settings, fixed = _group_settings(hyperparameters, step.t, work.sums.dtype.type)
    scores, width = work.scores, len(work.scores)
    for k in range(width):
        scores[k] = step.scale * _dual_score(work, settings, fixed, step, k, width)
        if fit_intercept:
            scores[k] += _dual_intercept(hyperparameters, work.intercept[k])
    return scores


@_inlined
def _dual_learn_outputs(work, hyperparameters, targets, step, slopes):
    width = len(slopes)
    for k in range(width):
        _dual_learn_output(work, hyperparameters, targets, step, slopes[k], k, width)


@_borrowing
def _train_dual_single(
    batch, targets, user_slope, hyperparameters, work, t, scores, average_scores
):
    """Dual averaging or FTRL of one output, the usual case."""
    return _learn_online(
        _dual_score_one_output, _slope_of_output, _dual_learn_one_output,
        batch, targets, user_slope, hyperparameters, work, t, scores, average_scores,
    )  # fmt: skip


@_borrowing
def _train_dual(batch, targets, user_slope, hyperparameters, work, t, scores, average_scores):
    return _learn_online(
        _dual_score_outputs, _slopes_of_outputs, _dual_learn_outputs,
        batch, targets, user_slope, hyperparameters, work, t, scores, average_scores,
    )  # fmt: skip


@_compiled
def dual_weights(state, hyperparameters, t, weights):
    """The weights of every feature at `t`, into (n_local, n_outputs) `weights`."""
    real = state.dtype.type
    step_size, l1, l2, low, high, delta, _, _ = hyperparameters
    fixed = _fixed_settings(delta, low, high, real)
    n_groups, n_local, width, _ = state.shape
    flat = weights.reshape(-1) if n_groups == 1 else np.empty(n_local * width, weights.dtype)
    for b in range(n_groups):
        settings, sums = _dual_settings(step_size[b], l1[b], l2[b], t, real), state[b].reshape(-1)
        for j in range(len(flat)):  # LLVM vectorises a loop over flat arrays
            flat[j] = _dual_weight(sums[2 * j], sums[2 * j + 1], settings, fixed)
        if n_groups > 1:
            weights[:, b * width : (b + 1) * width] = flat.reshape(n_local, width)


@_compiled
def apply_dual(state, averages, hyperparameters, t, gradient, squares):
    """One step at `t` with the mean `gradient` ((n_local, n_outputs) float64).

    `squares` is added to the sums of squares; (0, 0) stands for the gradient's own square.
    `averages` is (n_groups, n_local, width), or (n_groups, 0, width) without averaging.
    """
    step_size, l1, l2, low, high, delta, proximal, _ = hyperparameters
    fixed = _fixed_settings(delta, low, high, np.float64)
    real = state.dtype.type
    rounding = _rounding(t, real)
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
                weight = _dual_weight(dual, before, settings, fixed)
                if proximal:
                    change -= _pull(before, before + square, weight, step_size[b])
                state[b, i, k, 0] = _rounded(dual + change, real, rounding)
                state[b, i, k, 1] = _add_square(state[b, i, k, 1], real(square), rounding)
                if averages.shape[1]:
                    moved = _dual_weight(dual + change, before + square, settings, fixed)
                    averages[b, i, k] += t * t * (moved - weight)


# Mirror descent: the weights themselves are the state. A feature that no row touches only
# shrinks, in closed form, so it is settled when it is next looked at: `last_update` holds the t up
# to which its weights are valid. `settings` of a group are (eta, l1, l2).


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
    """The weight after a step; `squares` includes that of the slope times the value."""
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


@_inlined
def _mirror_score(work, hyperparameters, fit_intercept, step):
    """The scores of one row; the weights are settled at its t unless nothing is learned."""
    step_size, l1, l2, _, _, delta, _, _ = hyperparameters
    scores = work.scores
    settings, keep = (step_size, l1, l2), step.part > 0.0
    _mirror_products(
        step.ids, step.xs, work.pairs, work.last_update, step.t, settings, delta, keep, scores
    )
    for k in range(len(scores)):
        scores[k] *= step.scale
        if fit_intercept:
            scores[k] += work.intercept[k, 0]
    return scores


@_borrowing
def _mirror_products(ids, xs, pairs, last_update, t, settings, delta, keep, products):
    """<w, x> of one row for every output, before the row's scale."""
    products[:] = 0.0
    real = pairs.dtype.type
    rounding = _rounding(t, real)
    for j in range(len(ids)):
        _prefetch(pairs, _place(ids[j], pairs.shape[1], 0))
        _prefetch(last_update, _place(ids[j], 1, 0))
    for j in range(len(ids)):
        i = ids[j]
        gap = t - last_update[i]
        for k in range(len(products)):
            weight = _shrink(pairs[i, 2 * k], pairs[i, 2 * k + 1], gap, settings, delta)
            products[k] += weight * xs[j]
            if keep:
                pairs[i, 2 * k] = _rounded(weight, real, rounding)
        if keep:
            last_update[i] = t


@_inlined
def _mirror_learn(work, hyperparameters, targets, step, slopes):
    """Step from the weights that `_mirror_score` settled."""
    ids, xs, scale, t, part = step.ids, step.xs, step.scale, step.t, step.part
    step_size, l1, l2, low, high, delta, _, _ = hyperparameters
    any_slope, moves = False, work.moves
    for k in range(len(slopes)):
        any_slope |= slopes[k] != 0.0
    if any_slope:
        for k in range(len(slopes)):
            moves[k] = slopes[k]
            if step.aware and slopes[k] != 0.0:
                pace = _mirror_pace(
                    work, hyperparameters, targets.fit_intercept, ids, xs, scale, slopes[k], k
                )
                if pace > 0.0:
                    score = work.scores[k]
                    moves[k] = _move_of_output(targets, step, score, pace, k)
            if targets.fit_intercept:
                bias, free = work.intercept[k], (delta, -np.inf, np.inf)
                bias[1] += slopes[k] * slopes[k]
                unregularized, weight = (step_size, 0.0, 0.0), bias[0]
                bias[0] = _mirror_step(weight, bias[1], moves[k], part, unregularized, free)
                if len(bias) > 2:
                    bias[2] += t * t * (bias[0] - weight)
            slopes[k] *= scale
            moves[k] *= scale
        settings, fixed = (step_size, l1, l2), (delta, low, high)
        _mirror_steps(ids, xs, work, t, part, settings, fixed, slopes, moves)


@_borrowing
def _mirror_pace(work, hyperparameters, fit_intercept, ids, xs, scale, slope, k):
    """Distance that a step of output `k` moves the score of its row, for each unit of slope."""
    delta, pace = hyperparameters.delta, 0.0
    for j in range(len(ids)):
        gradient = slope * scale * xs[j]
        grown = np.float64(work.pairs[ids[j], 2 * k + 1]) + gradient * gradient
        if grown > 0.0 or delta > 0.0:
            pace += xs[j] * xs[j] / (delta + np.sqrt(grown))
    pace *= scale * scale
    if fit_intercept:
        pace += 1.0 / (delta + np.sqrt(work.intercept[k, 1] + slope * slope))
    return hyperparameters.step_size * pace


@_borrowing
def _mirror_steps(ids, xs, work, t, part, settings, fixed, slopes, moves):
    pairs, last_update, averages, width = work.pairs, work.last_update, work.averages, len(slopes)
    real = pairs.dtype.type
    rounding = _rounding(t, real)
    for j in range(len(ids)):
        i = ids[j]
        last_update[i] = t + part
        for k in range(len(slopes)):
            gradient = slopes[k] * xs[j]
            squares = pairs[i, 2 * k + 1] + gradient * gradient
            weight = np.float64(pairs[i, 2 * k])
            moved = _mirror_step(weight, squares, moves[k] * xs[j], part, settings, fixed)
            pairs[i, 2 * k] = _rounded(moved, real, rounding)
            square = real(gradient * gradient)
            pairs[i, 2 * k + 1] = _add_square(pairs[i, 2 * k + 1], square, rounding)
            if len(averages):
                averages[_place(i, width, k)] += t * t * (moved - weight)


@_borrowing
def _train_mirror(batch, targets, user_slope, hyperparameters, work, t, scores, average_scores):
    return _learn_online(
        _mirror_score, _slopes_of_outputs, _mirror_learn,
        batch, targets, user_slope, hyperparameters, work, t, scores, average_scores,
    )  # fmt: skip


def online_kernel(shrinks_lazily: bool, width: int) -> Any:
    """The kernel that takes one step for each row of a group of `width` outputs.

    It is called with (batch, targets, user_slope, hyperparameters, work, t, scores,
    average_scores): `user_slope` is of `compile_slope`, `hyperparameters` has numbers, and `work`
    is of `make_work`. `scores`, (width, n_rows) float64, is written: the scores of each row before
    it was learned from. So are `average_scores`, those of the average weights, where it is not NaN,
    or nowhere if it is (0, 0). It returns t after the last row.

    A row of importance c takes ceil(c) steps, the last of them weighted by what is left, so that
    importance 2 is the row twice and importance 0 is no row at all. Beyond an importance of
    `MAX_STEPS` it is that many larger steps, or a row of weight 10,000 would take as long as
    10,000 rows.
    """
    if shrinks_lazily:
        return _train_mirror
    return _train_dual_single if width == 1 else _train_dual


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
def apply_mirror(state, last_update, averages, hyperparameters, t, gradient, squares):
    """One step at `t` with the mean `gradient`; see `apply_dual`.

    `last_update` is (n_groups, n_local) float64, changed in place.
    """
    fixed = hyperparameters.delta, hyperparameters.low, hyperparameters.high
    real = state.dtype.type
    rounding = _rounding(t, real)
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
                square = squares[i, output] if len(squares) else change * change
                grown = before + square
                moved = _mirror_step(weight, grown, change, 1.0, settings, fixed)
                state[b, i, k, 0] = _rounded(moved, real, rounding)
                state[b, i, k, 1] = _add_square(state[b, i, k, 1], real(square), rounding)
                if averages.shape[1]:
                    averages[b, i, k] += t * t * (moved - weight)
            last_update[b, i] = t + 1.0


# Streams: the rule of `dadagrad.training.coordinator.merge`, for one group of outputs.

MERGE_BLOCK = 4096  # features whose sums stay in the cache
AHEAD = 32  # features by which a merge asks for their numbers early
AGAINST = 0.7  # factor of the decay of a momentum where a round goes against it
MAX_ROUNDING = 1e-5  # relative change of a weight that was shrunk in several goes


def merge_streams(
    base: NDArray[np.float32],
    ids: NDArray[np.int64],
    states: NDArray[np.float32],
    ends: NDArray[np.int64],
    times: NDArray[np.float64],
    hyperparameters: Hyperparameters,
    begun: float,
    shrinks_lazily: bool,
    base_averages: NDArray[np.float32],
    averages: NDArray[np.float32],
    momentum: NDArray[np.float32],
) -> None:
    """Merge what streams learned of some features, from the same `base`, into it.

    Parameters
    ----------
    base : (n_features, width, 2) float32, changed in place
    ids : (n,) int64
        The features of each stream, increasing: those of stream k end before ``ends[k]``.
    states : (n, width, 2) float32
        Their state.
    ends : (n_streams,) int64
    times : (n_streams,) float64
        The t that each stream has reached.
    hyperparameters : Hyperparameters
        Numbers, of the group.
    begun : float
        The t of `base`.
    shrinks_lazily : bool
        True if primary values are weights, which must be shrunk for the rest of the round.
    base_averages : (n_features, width) or (0, width) float32, changed in place
    averages : (n, width) or (0, width) float32
        With averaging, what averages lag behind the weights, of `base` and of the streams.
    momentum : (n_features, width) or (0, width) float32, changed in place
        That of the primary sums of `base`, if they have some; left alone with a penalty.
    """
    width = base.shape[1]
    following = np.append(0, ends[:-1])  # the next place of each stream
    sums, learned = np.zeros((MERGE_BLOCK, width, 4)), np.zeros((MERGE_BLOCK, width))
    changed, is_changed = np.empty(MERGE_BLOCK + 1, np.int64), np.zeros(MERGE_BLOCK, np.int64)
    _merge_streams(
        base, ids, states, ends, times, hyperparameters, begun, shrinks_lazily,
        base_averages, averages, momentum, following, sums, learned, changed, is_changed,
        None if width == 1 else width,
    )  # fmt: skip


@_borrowing
def _merge_streams(
    base, ids, states, ends, times, hyperparameters, begun, shrinks_lazily,
    base_averages, averages, momentum, following, sums, learned, changed, is_changed, outputs,
):  # fmt: skip
    """See `merge_streams`; `outputs` is None for one, the usual case, of which Numba then knows."""
    width = 1 if outputs is None else outputs
    n_streams = len(ends)
    step_size, l1, l2, low, high, delta, _, _ = hyperparameters
    averaged, has_momentum = len(averages) > 0, len(momentum) > 0 and l1 == 0.0 and l2 == 0.0
    settings = step_size, l1, l2
    # Compiled averages have no penalties.
    free, fixed = (0.0, 0.0, step_size), _fixed_settings(delta, low, high, np.float64)
    whole = 0.0
    for k in range(n_streams):
        whole += times[k] - begun
    count, end_count = begun * begun, (begun + whole) * (begun + whole)
    while True:
        first = np.int64(-1)
        for k in range(n_streams):
            if following[k] < ends[k] and (first < 0 or ids[following[k]] < first):
                first = ids[following[k]]
        if first < 0:
            break
        n_changed = 0
        for k in range(n_streams):
            j, duration = following[k], times[k] - begun
            slower = (end_count - count) / max(times[k] * times[k] - count, 1e-300)
            while j < ends[k] and ids[j] < first + MERGE_BLOCK:
                if j + AHEAD < len(ids):
                    _prefetch_feature(base, base_averages, momentum, ids[j + AHEAD], width)
                feature, i = np.uint64(ids[j]), np.uint64(ids[j] - first)
                # No branch: whether another stream has changed the feature is unpredictable.
                changed[n_changed] = i
                n_changed += 1 - is_changed[i]
                is_changed[i] = 1
                for m in range(width):
                    is_learned = _add_change(states[j, m], base[feature, m], sums[i, m])
                    if shrinks_lazily:
                        learned[i, m] += duration if is_learned else 0.0
                    if averaged:
                        before, after = base[feature, m], states[j, m]
                        moved = _weight_of(after[0], after[1], free, fixed, shrinks_lazily)
                        moved -= _weight_of(before[0], before[1], free, fixed, shrinks_lazily)
                        change = np.float64(averages[j, m]) - base_averages[feature, m]
                        sums[i, m, 3] += slower * (change - count * moved)
                j += 1
            following[k] = j
        for n in range(n_changed):
            i = np.uint64(changed[n])
            feature = np.uint64(first) + i
            for m in range(width):
                share = 1.0
                if sums[i, m, 2] > 0.0:
                    share = sums[i, m, 2] / (sums[i, m, 1] * sums[i, m, 1])
                change = share * sums[i, m, 0]
                if has_momentum and sums[i, m, 2] > 0.0:
                    moved, decay = np.float64(momentum[feature, m]), 1.0 - np.sqrt(share)
                    if moved * change < 0.0:
                        decay *= AGAINST
                    moving = decay * moved + change
                    momentum[feature, m] = moving
                    change += decay * moving
                primary = np.float64(base[feature, m, 0]) + change
                squares = np.float64(base[feature, m, 1]) + share * sums[i, m, 1]
                if shrinks_lazily:
                    gap = share * (whole - learned[i, m])
                    primary = _shrink(primary, squares, gap, settings, delta)
                    primary = min(max(primary, low), high)
                elif share < 1.0 and (l1 > 0.0 or l2 > 0.0):
                    own_time, end = begun + share * whole, begun + whole
                    primary = _at_time(primary, squares, own_time, end, settings, delta)
                if averaged:
                    before = base[feature, m]
                    moved = _weight_of(primary, squares, free, fixed, shrinks_lazily)
                    moved -= _weight_of(before[0], before[1], free, fixed, shrinks_lazily)
                    base_averages[feature, m] += count * moved + share * sums[i, m, 3]
                base[feature, m, 0], base[feature, m, 1] = primary, squares
                if shrinks_lazily:
                    learned[i, m] = 0.0
                for part in range(4):
                    sums[i, m, part] = 0.0
            is_changed[i] = 0


@_inlined
def _prefetch_feature(base, base_averages, momentum, feature, width):
    """Ask for the numbers of a feature that streams have changed."""
    place = np.uint64(width) * np.uint64(feature)
    _prefetch(base, np.uint64(2) * place)
    if len(base_averages):
        _prefetch(base_averages, place)
    if len(momentum):
        _prefetch(momentum, place)


@_inlined
def _weight_of(primary, squares, settings, fixed, shrinks_lazily):
    """The weight of a coordinate without penalties, in float64."""
    if shrinks_lazily:
        return np.float64(primary)
    return _dual_weight(np.float64(primary), np.float64(squares), settings, fixed)


@_inlined
def _add_change(after, before, sums):
    """Add a stream's du, dG and dG^2 of a coordinate; True if they are not all 0."""
    primary = np.float64(after[0]) - np.float64(before[0])
    squares = np.float64(after[1]) - np.float64(before[1])
    sums[0] += primary
    sums[1] += squares
    sums[2] += squares * squares
    return primary != 0.0 or squares != 0.0


@_inlined
def _at_time(dual, squares, t, end, settings, delta):
    """The dual sum whose weight at `end` is that of `dual` at `t`."""
    eta, l1, l2 = settings
    over = abs(dual) - t * l1
    if over > 0.0:
        curvature = delta + np.sqrt(squares)
        over *= (curvature + eta * end * l2) / (curvature + eta * t * l2)
        return np.copysign(over + end * l1, dual)
    return dual * end / t if t > 0.0 else dual


def settle_streams(
    base: NDArray[np.float32],
    base_update: NDArray[np.float64],
    ids: NDArray[np.int64],
    states: NDArray[np.float32],
    averages: NDArray[np.float32],
    updates: NDArray[np.float64],
    ends: NDArray[np.int64],
    times: NDArray[np.float64],
    hyperparameters: Hyperparameters,
    begun: float,
) -> NDArray[np.int64]:
    """Shrink the weights of mirror descent: the streams' up to their t, those of `base` to `begun`.

    See `merge_streams`; `base_update` is (n_features,), `updates` (n,) float64. Features that a
    stream has only looked at are left out: the others move to the front of `ids`, `states` and
    `averages`, and those of stream k then end before the k-th of the numbers that are returned.
    Weights that only shrank are then those of `base`.
    """
    left, only_shrank = np.empty_like(ends), np.empty((len(ids), base.shape[1]), np.bool_)
    _settle_streams(
        base, base_update, ids, states, averages, updates, ends, times, hyperparameters, begun,
        left, only_shrank,
    )  # fmt: skip
    return left


@_borrowing
def _settle_streams(
    base, base_update, ids, states, averages, updates, ends, times, hyperparameters, begun,
    left, only_shrank,
):  # fmt: skip
    width, delta = base.shape[1], hyperparameters.delta
    settings = hyperparameters.step_size, hyperparameters.l1, hyperparameters.l2
    first = 0
    for k in range(len(ends)):
        for j in range(first, ends[k]):
            _prefetch_settled(base, base_update, ids, j + AHEAD)
            feature = np.uint64(ids[j])
            gap, gap_alone = times[k] - updates[j], times[k] - base_update[feature]
            for m in range(width):
                squares, before = states[j, m, 1], base[feature, m, 1]
                states[j, m, 0] = _shrink(states[j, m, 0], squares, gap, settings, delta)
                alone = np.float32(_shrink(base[feature, m, 0], before, gap_alone, settings, delta))
                change = abs(states[j, m, 0] - alone)
                only_shrank[j, m] = squares == before and change <= MAX_ROUNDING * abs(alone)
        first = ends[k]
    count = first = 0
    for k in range(len(ends)):
        for j in range(first, ends[k]):
            _prefetch_settled(base, base_update, ids, j + AHEAD)
            is_learned = False
            for m in range(width):
                is_learned |= not only_shrank[j, m]
            if not is_learned:
                continue
            feature = np.uint64(ids[j])
            gap = begun - base_update[feature]
            base_update[feature] = max(base_update[feature], begun)
            for m in range(width):
                if gap > 0.0:
                    weight, squares = base[feature, m, 0], base[feature, m, 1]
                    base[feature, m, 0] = _shrink(weight, squares, gap, settings, delta)
                states[count, m, 0] = base[feature, m, 0] if only_shrank[j, m] else states[j, m, 0]
                states[count, m, 1] = states[j, m, 1]
                if len(averages):
                    averages[count, m] = averages[j, m]
            ids[count] = ids[j]
            count += 1
        first, left[k] = ends[k], count


@_inlined
def _prefetch_settled(base, base_update, ids, j):
    """Ask for the numbers of the feature at place `j`, if there is one."""
    if j < len(ids):
        feature = np.uint64(ids[j])
        _prefetch(base, np.uint64(2 * base.shape[1]) * feature)
        _prefetch(base_update, feature)


# Gradients and predictions at fixed weights.


def predict_scores(
    batch: Batch,
    weights: NDArray[np.float32],
    intercept: NDArray[np.float64],
    scores: NDArray[np.float64],
) -> None:
    """Write the scores of all rows into (n_rows, n_outputs) `scores`.

    `weights` is (n_local, n_outputs) float32, `intercept` (n_outputs,) float64.
    """
    longest = longest_row(batch)
    memory = np.empty(max(longest, weights.shape[1]), weights.dtype)
    _predict_scores(batch, weights, intercept, scores, np.ones(longest, np.float32), memory)


@_borrowing
def _predict_scores(batch, weights, intercept, scores, ones, memory):
    indptr, indices, values, row_scale, _, _ = batch
    n_outputs, stored = weights.shape[1], len(values) > 0
    flat, sums = weights.reshape(-1), memory[:n_outputs]
    for row in range(len(indptr) - 1):
        start, stop = indptr[row], indptr[row + 1]
        ids = indices[start:stop]
        xs = values[start:stop] if stored else ones[: stop - start]
        if n_outputs == 1:
            whole = _whole_vectors(len(ids))
            for j in range(len(ids)):
                memory[j] = flat[np.uint32(ids[j])] * xs[j]
            for j in range(len(ids), whole):
                memory[j] = 0.0
            sums[0] = _sum(memory, whole)
        else:
            sums[:] = 0.0
            for j in range(len(ids)):
                for k in range(n_outputs):
                    sums[k] += xs[j] * weights[ids[j], k]
        scale = np.float64(row_scale[row]) if len(row_scale) else 1.0
        for k in range(n_outputs):
            scores[row, k] = scale * np.float64(sums[k]) + intercept[k]


@_borrowing
def fill_slopes(labels, targets, user_slope, scores, slopes):
    """Write the slopes of all rows at their scores; both are (n_rows, n_outputs) float64."""
    for row in range(len(scores)):
        _fill_slopes(targets, user_slope, labels, row, scores[row], slopes[row])


def add_gradients(
    batch: Batch,
    slopes: NDArray[np.float64],
    gradient: NDArray[np.float32],
    squares: NDArray[np.float32],
    intercept_gradient: NDArray[np.float64],
) -> None:
    """Add the importance-weighted sum over the rows of their gradients.

    Parameters
    ----------
    batch : Batch
    slopes : (n_rows, n_outputs) float64, overwritten
    gradient : (n_local, n_outputs) float32, added to
    squares : (n_local, n_outputs) float32 or (0, 0), added to
        Sum of the squares of each row's gradient, where it is wanted.
    intercept_gradient : (2, n_outputs) float64, added to
        Sums of the intercept's gradient and of its squares.
    """
    ones = np.ones(longest_row(batch), np.float32)
    scaled = np.empty(slopes.shape[1], gradient.dtype)
    _add_gradients(batch, slopes, gradient, squares, intercept_gradient, ones, scaled)


@_borrowing
def _add_gradients(batch, slopes, gradient, squares, intercept_gradient, ones, scaled):
    indptr, indices, values, row_scale, _, importances = batch
    stored = len(values) > 0
    for row in range(len(indptr) - 1):
        importance, row_slopes = importances[row] if len(importances) else 1.0, slopes[row]
        scale = np.float64(row_scale[row]) if len(row_scale) else 1.0
        any_slope = False
        for k in range(len(row_slopes)):
            any_slope |= row_slopes[k] != 0.0
        if importance == 0.0 or not any_slope:
            continue
        for k in range(len(row_slopes)):
            intercept_gradient[0, k] += importance * row_slopes[k]
            intercept_gradient[1, k] += importance * row_slopes[k] * row_slopes[k]
            row_slopes[k] *= scale
            scaled[k] = importance * row_slopes[k]
        start, stop = indptr[row], indptr[row + 1]
        ids = indices[start:stop]
        xs = values[start:stop] if stored else ones[: stop - start]
        _add_gradient(ids, xs, scaled, gradient)
        if len(squares):
            _add_squares(ids, xs, row_slopes, importance, squares)


@_borrowing
def _add_gradient(indices, values, slopes, gradient):
    for j in range(len(indices)):
        for k in range(len(slopes)):
            gradient[indices[j], k] += slopes[k] * values[j]


@_borrowing
def _add_squares(indices, values, slopes, importance, squares):
    for j in range(len(indices)):
        for k in range(len(slopes)):
            term = slopes[k] * values[j]
            squares[indices[j], k] += importance * term * term


@_compiled
def count_by_score(
    scores, labels, targets, compares, share, importance, t, first_key, histogram
):  # fmt: skip
    """Add rows to a histogram of scores (`dadagrad.optim.calibration`).

    Parameters
    ----------
    scores : (n_targets, n_rows) float64
    labels : (n_label_columns, n_rows) float64
    targets : Targets
    compares : bool
        True if the score of each target counts as its difference to the largest of the others.
    share : int
        One row of so many counts for all of them; the scores of the others are NaN.
    importance : (n_rows,) or (0,) float64
    t : float
        Importance of the rows before; a row counts by its cube.
    first_key : int
        The first 12 bits of the least float32 that is not near 0.
    histogram : (n_bins, 2) float64
        Changed in place.
    """
    middle = len(histogram) // 2
    for row in range(scores.shape[1]):
        weight = importance[row] if len(importance) else 1.0
        t += weight
        if np.isnan(scores[0, row]):
            continue
        best, second = -np.inf, -np.inf
        for k in range(len(scores) if compares else 0):
            second = max(second, min(best, scores[k, row]))
            best = max(best, scores[k, row])
        for k in range(len(scores)):
            score = scores[k, row]
            if compares:
                score -= second if score == best else best
            key = (np.float32(abs(score)).view(np.int32) >> 20) - first_key
            place = min(max(key, 0), middle - 1)
            place = middle + place if score > 0.0 else middle - 1 - place
            has_label = labels[targets.label_column[k], row] == targets.positive[k]
            histogram[place, np.int64(has_label)] += weight * t**3 * share
