"""Merging the states of streams that each walked rows of their own, from the same state.

For one coordinate, let stream k have changed the primary sum by du_k and the sum of squared
gradients by dG_k. Its participation is

    c = (sum_k dG_k)^2 / sum_k dG_k^2,

1 if one stream saw it, K if all K saw as much of it. Both changes are divided by it:

    u <- u + sum_k du_k / c,        G <- G + sum_k dG_k / c.

What one stream saw alone counts in full, as if all rows had been walked one after the other. What
all saw counts once: each stream has already gone as far as its rows asked for, and the sum of their
ways would overshoot K times. So it is for every coordinate as if c times fewer rows had gone by;
its own time, of which a penalty takes its share, is t_c = t + T / c, where T is the importance of
all rows of the round. As the state has one t for all, t + T after the round, the primary sum is
moved to where the weight at t + T is what the weight at t_c was meant to be:

    |u| <- (|u| - t_c l1) (H + eta (t + T) l2) / (H + eta t_c l2) + (t + T) l1   outside of t_c l1,
    |u| <- |u| (t + T) / t_c                                                     within.

(Without a penalty nothing moves. With t + T alone, common features would pay c times what they
owe, and be gone long before rare ones.)

In mirror descent the primary value is the weight itself. Each stream has shrunk it over its own
rows; what is then missing of T / c is shrunk after the merge. The corrected sum of FTRL-proximal
merges as a gradient sum does. The intercept is a coordinate without a penalty.

Outputs have nothing to do with each other here, coupled or not: a bundle is merged like any other.
Streams are taken in their order and sums are float64: the bits depend on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dadagrad.training.distinct_ids import DistinctIds
from dadagrad.training.intercept import free_steps
from dadagrad.training.shares import Walk
from dadagrad.training.state import State

if TYPE_CHECKING:
    from dadagrad.kernels import Steps
    from dadagrad.method import Method


def merge(method: Method, state: State, walks: Sequence[Walk]) -> None:
    """Bring `state` to where streams are together that started from it.

    Parameters
    ----------
    method : Method
    state : State
        Where all streams started; changed in place.
    walks : sequence of Walk
        Of each stream that had rows, in the order of the streams.
    """
    if len(walks) == 1:
        state.push(walks[0].ids, walks[0].share)
        return
    begun = state.t
    end = begun + sum(walk.share.t - begun for walk in walks)
    ids, places = DistinctIds(method.n_features).among([walk.ids for walk in walks])
    base = state.pull(ids)
    shares = [walk.share for walk in walks]
    if method.config.update == "mirror-descent":
        _merge_mirror(method, base, shares, places, end)
    else:
        changed = [share.accumulators for share in shares]
        _merge_sums(base.accumulators, changed, places, method.steps, begun, end)
    everywhere = [np.zeros(1, np.int64)] * len(walks)
    intercepts = [share.intercept for share in shares]
    _merge_sums(base.intercept, intercepts, everywhere, free_steps(method), begun, end)
    base.t = end
    state.push(ids, base)


def participation(sums: NDArray[np.float64], count: NDArray[Any]) -> NDArray[np.float64]:
    """c out of (..., 3) sums of du, dG and dG^2 over streams, of which `count` saw something.

    Where G is so large that no change of it shows, all that saw something count alike.
    """
    squares = sums[..., 2]
    c: NDArray[np.float64] = np.where(
        squares > 0.0, sums[..., 1] ** 2 / np.where(squares > 0.0, squares, 1.0), count
    )
    return c


def _merge_sums(
    base: NDArray[Any],
    changed: list[NDArray[Any]],
    places: list[NDArray[np.int64]],
    steps: Steps,
    begun: float,
    end: float,
) -> None:
    """Merge (n_bundles, k, width, 2) states, that of each stream at `places`, into `base`."""
    sums = np.empty((*base.shape[1:3], 3))
    count = np.empty(base.shape[1:3], np.int32)
    for bundle, own in enumerate(base):
        sums[:], count[:] = 0.0, 0
        last = own.copy()
        for where, states in zip(places, changed, strict=True):
            # What came over a network may be read-only, which to a kernel is another type.
            walked = np.require(states[bundle], requirements="W")
            _add_changes(where, own, walked, sums, count, last)
        settings = steps.step_size[bundle], steps.l1[bundle], steps.l2[bundle], steps.delta
        _apply_changes(own, sums, count, last, *settings, begun, end)


@njit(nogil=True, cache=True, error_model="numpy")
def _add_changes(places, base, state, sums, count, last):  # type: ignore[no-untyped-def]
    """Add a stream's changes of a bundle's (primary, squares) to `sums` of du, dG and dG^2.

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
    """Divide the changes of a bundle by the participation, and move to the time `end`."""
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
    method: Method,
    base: State,
    shares: list[State],
    places: list[NDArray[np.int64]],
    end: float,
) -> None:
    """As `_merge_sums`, where the primary value is a weight that shrinks with time."""
    begun = base.t
    before = base.weights(method).astype(np.float64)
    sums = np.zeros((*before.shape, 3))
    count = np.zeros(before.shape, np.int32)
    # How long the streams that changed a weight have shrunk it.
    shrunk = np.zeros(before.shape)
    for where, share in zip(places, shares, strict=True):
        weights = share.weights(method)
        started = base.pull(where)
        squares = _by_output(share.accumulators)[:, :, 1].astype(np.float64)
        squares -= _by_output(started.accumulators)[:, :, 1]
        alone = replace(started, t=share.t).weights(method)
        moved = (squares != 0.0) | (weights != alone)
        change = np.stack([weights - before[where], squares, squares**2], axis=2)
        sums[where] += np.where(moved[:, :, None], change, 0.0)
        count[where] += moved
        shrunk[where] += np.where(moved, share.t - begun, 0.0)
    c = np.where(count > 1, participation(sums, count), 1.0)
    merged = _by_output(base.accumulators)
    merged[:, :, 0] = before + sums[:, :, 0] / c
    merged[:, :, 1] += sums[:, :, 1] / c
    merged[:, :, 0] = _shrink(method, merged, (end - begun - shrunk) / c, end)
    n_bundles, k, width, _ = base.accumulators.shape
    base.accumulators[:] = np.moveaxis(merged.reshape(k, n_bundles, width, 2), 0, 1)
    base.settled[:] = end


def _by_output(accumulators: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n_bundles, k, width, 2) accumulators as (k, n_outputs, 2), a copy."""
    n_bundles, k, width, _ = accumulators.shape
    return np.moveaxis(accumulators, 0, 1).reshape(k, n_bundles * width, 2).copy()


def _shrink(
    method: Method, accumulators: NDArray[np.float32], gap: NDArray[np.float64], end: float
) -> NDArray[np.float32]:
    """What a time of `gap` without gradients leaves of each of the (k, n_outputs) weights."""
    from dadagrad import kernels

    # Each output has times of its own here, so that each is a bundle.
    alone = np.ascontiguousarray(np.moveaxis(accumulators, 1, 0)[:, :, None])
    width = method.bundle_width
    steps = method.steps._replace(
        step_size=np.repeat(method.steps.step_size, width),
        l1=np.repeat(method.steps.l1, width),
        l2=np.repeat(method.steps.l2, width),
    )
    weights = np.empty(gap.shape, np.float32)
    kernels.mirror_weights(alone, np.ascontiguousarray(end - gap.T), steps, end, weights)
    return weights
