"""The prox in a metric that is not diagonal.

    argmin_w  scale phi(w) + 1/2 |w - center|_H^2

is solved by Newton's method where H is a diagonal and some directions (`dadagrad.metrics.dual`).
Everywhere else, and where that does not converge, it is solved by accelerated proximal gradient
(Beck and Teboulle 2009) that calls the regularizer's prox in a diagonal D >= H and starts anew when
its momentum leads uphill (O'Donoghue and Candes 2015). Either way the answer comes out of that
prox, so zeros are exactly zero and domains are kept.

With w+ = prox_D(y - D^-1 H (y - center)), the vector s = (D - H)(y - w+) is a subgradient of the
whole objective at w+. The objective is strongly convex in H, so

    |w+ - w*|_H^2 <= s' H^-1 s,

and the iteration stops when that bound, not the size of its steps, is small.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from dadagrad.metrics.directions import Directions
from dadagrad.metrics.dual import find
from dadagrad.metrics.metric import Array, Arrays, Ids
from dadagrad.regularizers import ElasticBox, Regularizer

logger = logging.getLogger(__name__)

NOTHING = ElasticBox()
TOLERANCE = 1e-11
NEAR = 1e-6
"""Steps longer than this share of the weights cannot be the last: no bound is computed."""
MOST_ITERATIONS = 100_000


def is_nothing(regularizer: Regularizer) -> bool:
    """Whether phi = 0 without a domain, so that the prox is its center."""
    return isinstance(regularizer, ElasticBox) and regularizer == NOTHING


def minimise(
    regularizer: Regularizer,
    center: Array,
    scale: float,
    *,
    multiply: Callable[[Array], Array],
    solve: Callable[[Array], Array],
    majorant: Array,
    start: Array | None = None,
) -> Array:
    """argmin_w  scale phi(w) + 1/2 |w - center|_H^2, to 1e-10 of its H-norm.

    Parameters
    ----------
    regularizer : Regularizer
    center : (n_features, n_outputs) float64
    scale : float
    multiply, solve : callable
        H v, and the (pseudo-)inverse of H times v.
    majorant : (n_features, n_outputs) float64
        A diagonal D >= H; a weight where it is 0 is 0.
    start : like `center`, optional
        Where to look first; by default the center.
    """
    inverse = np.divide(1.0, majorant, out=np.zeros_like(majorant), where=majorant > 0)
    weights = center if start is None else start
    point, momentum = weights, 1.0
    reach = float(np.abs(multiply(center)).max(initial=0.0))
    # Where l1 and a center are exactly even, all weights are 0 but for what rounding leaves.
    rounding = 4.0 * float(np.finfo(np.float64).eps * np.abs(center).max(initial=0.0))
    for _ in range(MOST_ITERATIONS):
        slope = multiply(point - center)
        found = regularizer.prox(point - inverse * slope, majorant, scale)
        moved = point - found
        length, step = np.abs(found).max(initial=0.0), np.abs(moved).max(initial=0.0)
        if max(length, step) <= rounding:
            return found
        if step <= NEAR * length:
            subgradient = majorant * moved - multiply(moved)
            # At the center of a domain the slope is 0 but for rounding.
            size = max(float(np.abs(slope).max(initial=0.0)), reach)
            small = np.abs(subgradient).max(initial=0.0) <= TOLERANCE * size
            if small and _is_close(subgradient, found, multiply, solve):
                return found
        if np.vdot(majorant * moved, found - weights) > 0.0:
            momentum = 1.0
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        point = found + (momentum - 1.0) / following * (found - weights)
        weights, momentum = found, following
    logger.warning(
        "the prox did not converge in %d iterations: the metric is nearly singular; "
        "a larger delta makes it regular",
        MOST_ITERATIONS,
    )
    return weights


def _is_close(
    subgradient: Array,
    found: Array,
    multiply: Callable[[Array], Array],
    solve: Callable[[Array], Array],
) -> bool:
    """Whether the bound on |found - w*|_H is small beside |found|_H."""
    distance = float(np.vdot(subgradient, solve(subgradient)))
    size = float(np.vdot(found, multiply(found)))
    return distance <= TOLERANCE**2 * size


class Operator(Protocol):
    """What of a metric the prox needs."""

    def solve(self, arrays: Arrays, vector: Array, ids: Ids | None = None) -> Array: ...

    def multiply(self, arrays: Arrays, vector: Array) -> Array: ...


def minimise_outputs(
    metric: Operator,
    arrays: Arrays,
    regularizer: Regularizer,
    center: Array,
    scale: float,
    majorant: Array,
    start: Array | None,
    parts: Sequence[Directions] = (),
) -> Array:
    """The prox of all outputs of a metric: one by one, unless the regularizer couples them.

    `arrays` have the outputs in front, `center` and `majorant` in their last axis. With `parts`,
    the directions of each output, Newton's method goes first.
    """

    def of(first: int, last: int) -> Array:
        own = {key: array[first:last] for key, array in arrays.items()}
        around = center[:, first:last]
        begin = around if start is None else start[:, first:last]
        if parts:
            pull = metric.multiply(own, around)
            begin, sure = find(regularizer, parts[first:last], pull, scale, begin)
            if sure:
                return begin
        return minimise(
            regularizer,
            around,
            scale,
            multiply=lambda vector: metric.multiply(own, vector),
            solve=lambda vector: metric.solve(own, vector),
            majorant=majorant[:, first:last],
            start=begin,
        )

    n_outputs = center.shape[1]
    if regularizer.couples == "outputs":
        return of(0, n_outputs)
    return np.concatenate([of(k, k + 1) for k in range(n_outputs)], axis=1)
