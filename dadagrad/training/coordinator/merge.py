"""The merge of streams that each learned from rows of their own, starting from the same state.

For one coordinate, let stream k have changed the primary sum by du_k and the sum of squared
gradients by dG_k. Its participation is

    c = (sum_k dG_k)^2 / sum_k dG_k^2,

1 if one stream saw it, K if all K saw as much of it. Both changes are divided by it:

    u <- u + sum_k du_k / c,        G <- G + sum_k dG_k / c.

A change of one stream alone counts in full, as if all rows had been learned from one after the
other. A change that all streams made counts once: each has already gone as far as its rows asked
for, and the sum would overshoot K times. So each coordinate has seen c times fewer rows, and its
own time, which a penalty is proportional to, is t_c = t + T / c, where T is the importance of all
rows of the round. The state has one t for all coordinates, t + T after the round. Therefore the
primary sum is moved so that the weight at t + T is the weight meant for t_c:

    |u| <- (|u| - t_c l1) (H + eta (t + T) l2) / (H + eta t_c l2) + (t + T) l1   outside of t_c l1,
    |u| <- |u| (t + T) / t_c                                                     within.

(Without a penalty nothing moves. At t + T alone, common features would pay c times their penalty,
and vanish long before rare ones.)

In mirror descent the primary value is the weight itself. Each stream has shrunk it over its own
rows; what is then missing of T / c is shrunk after the merge. The corrected sum of FTRL-proximal
merges as a gradient sum does. The intercept is a coordinate without a penalty.

Outputs are independent here, coupled by the loss or not. Streams are added in their order, in
float64: the bits depend on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dadagrad.kernels import training as kernels
from dadagrad.kernels.id_sets import DistinctIds
from dadagrad.problem import Problem
from dadagrad.training.state.compiled import State
from dadagrad.training.state.intercept import free_steps
from dadagrad.training.state.slices import StreamDelta

MAX_ROUNDING = 1e-5
"""Relative change of a weight that is put down to rounding, where G has not grown."""


def merge(problem: Problem, state: State, deltas: Sequence[StreamDelta]) -> None:
    """Merge the changes of streams that started from `state` into it.

    Parameters
    ----------
    problem : Problem
    state : State
        Where all streams started; changed in place.
    deltas : sequence of StreamDelta
        The changes of each stream that had rows, in the order of the streams.
    """
    if len(deltas) == 1:
        state.push(deltas[0].ids, deltas[0].state)
        return
    begun = state.t
    end = begun + sum(delta.state.t - begun for delta in deltas)
    ids, places = DistinctIds(problem.n_features).unite([delta.ids for delta in deltas])
    base = state.pull(ids)
    shares = [delta.state for delta in deltas]
    if problem.config.update.shrinks_lazily:
        _merge_mirror(problem, base, shares, places, end)
    else:
        changed = [share.accumulators for share in shares]
        _merge_sums(base.accumulators, changed, places, problem.hyperparameters, begun, end)
    everywhere = [np.zeros(1, np.int64)] * len(deltas)
    intercepts = [share.intercept for share in shares]
    _merge_sums(base.intercept, intercepts, everywhere, free_steps(problem), begun, end)
    base.t = end
    state.push(ids, base)


def _merge_sums(
    base: NDArray[Any],
    changed: list[NDArray[Any]],
    places: list[NDArray[np.int64]],
    steps: kernels.Hyperparameters,
    begun: float,
    end: float,
) -> None:
    """Merge (n_groups, k, width, 2) states, that of each stream at `places`, into `base`."""
    sums = np.empty((*base.shape[1:3], 3))
    count = np.empty(base.shape[1:3], np.int32)
    for group, group_state in enumerate(base):
        sums[:], count[:] = 0.0, 0
        last = group_state.copy()
        for place, states in zip(places, changed, strict=True):
            # What came over a network may be read-only, which to a kernel is another type.
            changed_group = np.require(states[group], requirements="W")
            _add_changes(place, group_state, changed_group, sums, count, last)
        settings = steps.step_size[group], steps.l1[group], steps.l2[group], steps.delta
        _apply_changes(group_state, sums, count, last, *settings, begun, end)


@njit(nogil=True, cache=True, error_model="numpy")
def _add_changes(places, base, state, sums, count, last):  # type: ignore[no-untyped-def]
    """Add a stream's changes of a group's (primary, squares) to `sums` of du, dG and dG^2.

    `count` is how many streams changed a coordinate, `last` what the last of them made of it.
    """
    for j in range(len(places)):
        i = places[j]
        for k in range(base.shape[1]):
            primary = np.float64(state[j, k, 0]) - np.float64(base[i, k, 0])
            squares = np.float64(state[j, k, 1]) - np.float64(base[i, k, 1])
            if primary != 0.0 or squares != 0.0:
                sums[i, k, 0] += primary
                sums[i, k, 1] += squares
                sums[i, k, 2] += squares * squares
                count[i, k] += 1
                last[i, k, 0] = state[j, k, 0]
                last[i, k, 1] = state[j, k, 1]


@njit(nogil=True, cache=True, error_model="numpy")
def _apply_changes(base, sums, count, last, step_size, l1, l2, delta, begun, end):  # type: ignore[no-untyped-def]
    """Divide the changes of a group by the participation, and move to the time `end`."""
    for i in range(base.shape[0]):
        for k in range(base.shape[1]):
            if count[i, k] <= 1:
                base[i, k, 0] = last[i, k, 0]
                base[i, k, 1] = last[i, k, 1]
                continue
            c = np.float64(count[i, k])
            if sums[i, k, 2] > 0.0:
                c = sums[i, k, 1] * sums[i, k, 1] / sums[i, k, 2]
            primary = np.float64(base[i, k, 0]) + sums[i, k, 0] / c
            squares = np.float64(base[i, k, 1]) + sums[i, k, 1] / c
            own = begun + (end - begun) / c
            if l1 > 0.0 or l2 > 0.0:
                over = abs(primary) - own * l1
                if over > 0.0:
                    curvature = delta + np.sqrt(squares)
                    grown = curvature + step_size * end * l2
                    over *= grown / (curvature + step_size * own * l2)
                    primary = np.copysign(over + end * l1, primary)
                elif own > 0.0:
                    primary *= end / own
            base[i, k, 0] = primary
            base[i, k, 1] = squares


def _merge_mirror(
    problem: Problem,
    base: State,
    shares: list[State],
    places: list[NDArray[np.int64]],
    end: float,
) -> None:
    """Merge as `_merge_sums` does, but primary values that are weights and shrink with time."""
    begun = base.t
    before = base.weights(problem).astype(np.float64)
    sums = np.zeros((*before.shape, 3))
    count = np.zeros(before.shape, np.int32)
    # How long the streams that changed a weight have shrunk it.
    shrunk = np.zeros(before.shape)
    for where, share in zip(places, shares, strict=True):
        weights = share.weights(problem)
        started = base.pull(where)
        squares = _by_output(share.accumulators)[:, :, 1].astype(np.float64)
        squares -= _by_output(started.accumulators)[:, :, 1]
        alone = replace(started, t=share.t).weights(problem)
        # A weight that was shrunk in several goes has other last bits.
        moved = (squares != 0.0) | (np.abs(weights - alone) > MAX_ROUNDING * np.abs(alone))
        change = np.where(moved, weights - before[where], weights - alone)
        sums[where] += np.stack([change, squares, squares**2], axis=2)
        count[where] += moved
        shrunk[where] += np.where(moved, share.t - begun, 0.0)
    # Where G is so large that no change of it shows, all that saw something count alike.
    of_squares = sums[:, :, 2]
    some = of_squares > 0.0
    c = np.where(some, sums[:, :, 1] ** 2 / np.where(some, of_squares, 1.0), count)
    c = np.where(count > 1, c, 1.0)
    merged = _by_output(base.accumulators)
    merged[:, :, 0] = before + sums[:, :, 0] / c
    merged[:, :, 1] += sums[:, :, 1] / c
    merged[:, :, 0] = _shrink(problem, merged, (end - begun - shrunk) / c, end)
    n_groups, k, width, _ = base.accumulators.shape
    base.accumulators[:] = np.moveaxis(merged.reshape(k, n_groups, width, 2), 0, 1)
    base.last_update[:] = end


def _by_output(accumulators: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n_groups, k, width, 2) accumulators as (k, n_outputs, 2), a copy."""
    n_groups, k, width, _ = accumulators.shape
    return np.moveaxis(accumulators, 0, 1).reshape(k, n_groups * width, 2).copy()


def _shrink(
    problem: Problem, accumulators: NDArray[np.float32], gap: NDArray[np.float64], end: float
) -> NDArray[np.float32]:
    """Shrink the (k, n_outputs) weights for a time of `gap` without gradients."""
    # Each output has times of its own here, so that each is a group.
    alone = np.ascontiguousarray(np.moveaxis(accumulators, 1, 0)[:, :, None])
    width = problem.group_width
    steps = problem.hyperparameters._replace(
        step_size=np.repeat(problem.hyperparameters.step_size, width),
        l1=np.repeat(problem.hyperparameters.l1, width),
        l2=np.repeat(problem.hyperparameters.l2, width),
    )
    weights = np.empty(gap.shape, np.float32)
    kernels.mirror_weights(alone, np.ascontiguousarray(end - gap.T), steps, end, weights)
    return weights
