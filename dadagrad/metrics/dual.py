"""The prox in a metric of a few directions: where to start, and what to do without a base.

`dadagrad.metrics.newton` converges from a good start. A start that is far away (a small delta puts
the center far out) is replaced by the answers in H + shift I, with a shift that falls from the
largest eigenvalue to 0: each of them is a good start for the next.

Where base = 0 there is no diagonal metric to take a prox in. The proximal point method (Rockafellar
1976) then solves in H + shift I with the small shift kept, and adds shift w to b, until w stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dadagrad.metrics.directions import Directions, Outputs
from dadagrad.metrics.metric import Array
from dadagrad.metrics.newton import ROUNDING, Point, Search, free_weights
from dadagrad.regularizers import ElasticBox, Regularizer, WithElasticNet

TOLERANCE = 1e-11
STEPS_FROM_START = 8
STEPS_AT_SHIFT = 40
FALL = 0.1
ROUGH = 1e-2
"""How close the answer at a shift must be that is only a start."""
NO_BASE = 1e-13
LEAST_SHIFT = 1e-5
SHIFT = 1e-3
"""All relative to the largest eigenvalue."""
MOST_POINTS = 40
REFINEMENTS = 3
REFINED = 1e-10


def find(
    regularizer: Regularizer,
    parts: Sequence[Directions],
    pull: Array,
    scale: float,
    start: Array,
) -> tuple[Array, bool]:
    """argmin_w  scale phi(w) + 1/2 w'Hw - b'w, and whether it is known to be close.

    Parameters
    ----------
    regularizer : Regularizer
    parts : one `Directions` for each output
        More than one only for a regularizer that couples outputs.
    pull : (n_features, n_outputs) float64
        b = H center.
    scale : float
    start : (n_features, n_outputs) float64
        Weights to look at first.
    """
    plain, l2 = without_l2(regularizer)
    largest = max(max(part.base, part.curvature.max(initial=0.0)) for part in parts)
    if not 0.0 < largest < np.inf:
        return start, False
    directions: Directions | Outputs
    if regularizer.couples == "outputs":
        directions = Outputs(parts, len(pull)).shifted(scale * l2)
    else:
        (part,) = parts
        directions, pull, start = part.shifted(scale * l2), pull[:, 0], start[:, 0]
    largest += scale * l2
    has_base = bool(np.min(directions.base) > NO_BASE * largest)
    weights, sure = start, False
    if has_base:
        point = _from_start(Search(plain, directions, pull, scale), directions.across(start))
        weights, sure = point.weights, point.within(TOLERANCE)
        if not sure and isinstance(plain, ElasticBox) and isinstance(directions, Directions):
            weights, sure = _refined(plain, directions, pull, scale, weights)
    if not sure:
        shift = largest * (SHIFT if has_base else LEAST_SHIFT)
        weights, sure = _nearest(plain, directions, pull, scale, weights, shift, has_base)
    return weights.reshape(len(pull), -1), sure


def without_l2(regularizer: Regularizer) -> tuple[Regularizer, float]:
    """The regularizer and its l2, which may as well be curvature."""
    if isinstance(regularizer, ElasticBox):
        return (replace(regularizer, l2=0.0) if regularizer.l2 else regularizer), regularizer.l2
    if isinstance(regularizer, WithElasticNet):
        plain = replace(regularizer, l2=0.0) if regularizer.l1 else regularizer.inner
        return plain, regularizer.l2
    return regularizer, 0.0


def _from_start(search: Search, dual: Array) -> Point:
    """The root, from `dual` if that leads there, or else through falling shifts."""
    point = search.run(dual, TOLERANCE, STEPS_FROM_START)
    if point.within(TOLERANCE):
        return point
    # What is this close has only rounding in its way, which no other start would take out of it.
    start = point.dual if point.within(ROUNDING) else _eased(search)
    found = search.run(start, TOLERANCE, STEPS_AT_SHIFT)
    return found if found.bound <= point.bound else point


def _eased(search: Search) -> Array:
    """A start for the search, through falling shifts."""
    directions = search.directions
    base = float(np.min(directions.base))
    dual = np.zeros(len(directions.signs))
    shift = FALL * float(directions.curvature.max(initial=base))
    while shift > FALL * base:
        eased = Search(search.regularizer, directions.shifted(shift), search.pull, search.scale)
        dual = eased.run(dual, ROUGH, STEPS_AT_SHIFT).dual
        shift *= FALL
    return dual


def _nearest(
    regularizer: Regularizer,
    directions: Directions | Outputs,
    pull: Array,
    scale: float,
    start: Array,
    shift: float,
    has_base: bool,
) -> tuple[Array, bool]:
    """The proximal point method; without a base it cannot tell how close it is."""
    shifted = directions.shifted(shift)
    weights, dual = start, directions.across(start)
    small = TOLERANCE * float(np.abs(pull).max(initial=0.0))
    for _ in range(MOST_POINTS):
        search = Search(regularizer, shifted, pull + shift * weights, scale)
        point = _from_start(search, dual)
        subgradient = shift * (weights - point.weights)
        subgradient -= directions.along(directions.signs * point.rest)
        weights, dual = point.weights, point.dual
        if has_base:
            distance = directions.inverse_square(subgradient)
            if distance <= REFINED**2 * directions.square(weights):
                return weights, True
        elif float(np.abs(subgradient).max(initial=0.0)) <= small:
            break
    return weights, False


def _refined(
    box: ElasticBox, directions: Directions, pull: Array, scale: float, weights: Array
) -> tuple[Array, bool]:
    """The weights that neither l1 nor the box holds, from their linear system.

    w = (b - U a) / base loses the digits that b and U a have in common: many, where base is small.
    Iterative refinement gives them back. Then all weights are checked.
    """
    free = free_weights(box, weights)
    slope = scale * box.l1 * np.sign(weights[free])
    solve = _solver(directions, free)
    found = np.where(free, 0.0, weights)
    for _ in range(REFINEMENTS):
        found[free] += solve(_pulled(directions, pull, found)[free] - slope)
    if np.any(np.sign(found) != np.sign(weights)) or np.any((found < box.low) | (found > box.high)):
        return weights, False
    rest = _pulled(directions, pull, found)
    least, most = scale * box.l1 * np.where(found, np.sign(found), [[-1.0], [1.0]])
    least = np.where(found == box.low, -np.inf, least)
    most = np.where(found == box.high, np.inf, most)
    over = np.maximum(rest - most, 0.0) - np.maximum(least - rest, 0.0)
    close = directions.inverse_square(over) <= REFINED**2 * directions.square(found)
    return (found, True) if close else (weights, False)


def _pulled(directions: Directions, pull: Array, weights: Array) -> Array:
    """b - H w."""
    inner = directions.signs * directions.across(weights)
    return pull - directions.base * weights - directions.along(inner)


def _solver(directions: Directions, free: NDArray[np.bool_]) -> Callable[[Array], Array]:
    """The inverse of H on some features, from orthonormal columns: nothing cancels there."""
    basis, factor = np.linalg.qr(directions.columns()[free])
    excess, turn = np.linalg.eigh((factor * directions.signs) @ factor.T)
    basis = basis @ turn
    least, most = directions.curvature.min(initial=directions.base), np.inf
    values = np.clip(directions.base + excess, least, most)

    def solve(vector: Array) -> Array:
        inner = vector @ basis
        solved: Array = basis @ (inner / values) + (vector - basis @ inner) / directions.base
        return solved

    return solve
