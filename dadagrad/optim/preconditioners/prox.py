"""The prox in a preconditioner that is not diagonal.

    argmin_w  scale phi(w) + 1/2 |w - center|_H^2

is solved by accelerated proximal gradient (Beck and Teboulle 2009) that calls the regularizer's
prox in a diagonal D >= H and restarts when its momentum leads uphill (O'Donoghue and Candes 2015).
The result comes out of that prox, so zeros are exactly zero and domains are kept. A term
l2/2 |w|^2 is added to H first (`Preconditioner.prox`); l2 alone needs no iteration.

With w+ = prox_D(y - D^-1 H (y - center)), the vector s = (D - H)(y - w+) is a subgradient of the
whole objective at w+. The objective is strongly convex in H, so

    |w+ - w*|_H^2 <= s' H^-1 s,

and the iteration stops when that bound, not the size of its steps, is small.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from dadagrad.optim.arrays import Array, quotient
from dadagrad.optim.regularizers import Regularizer

logger = logging.getLogger(__name__)

TOLERANCE = 1e-11
NEAR = 1e-6
"""Steps longer than this share of the weights cannot be the last: no bound is computed."""
MAX_ITERATIONS = 100_000


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

    `multiply` and `solve` are H v and the (pseudo-)inverse of H times v, and `majorant` is a
    diagonal D >= H, where a weight without any is 0. The iteration begins at `start`, by default
    the center.
    """
    if np.array_equal(regularizer.prox(center, majorant, scale), center):
        return center  # it minimises phi itself: a point of a domain, for example
    inverse = quotient(1.0, majorant)
    weights = center if start is None else start
    point, momentum = weights, 1.0
    pull = float(np.abs(multiply(center)).max(initial=0.0))
    # Where l1 and a center are exactly even, all weights are 0 but for what rounding leaves.
    rounding = 4.0 * float(np.finfo(np.float64).eps * np.abs(center).max(initial=0.0))
    for _ in range(MAX_ITERATIONS):
        slope = multiply(point - center)
        new_weights = regularizer.prox(point - inverse * slope, majorant, scale)
        moved = point - new_weights
        length, step = np.abs(new_weights).max(initial=0.0), np.abs(moved).max(initial=0.0)
        if max(length, step) <= rounding:
            return new_weights
        if step <= NEAR * length:
            subgradient = majorant * moved - multiply(moved)
            # At the center of a domain the slope is 0 but for rounding.
            size = max(float(np.abs(slope).max(initial=0.0)), pull)
            if np.abs(subgradient).max(initial=0.0) <= TOLERANCE * size:
                # The bound on |weights - w*|_H, and |weights|_H, squared.
                bound = np.vdot(subgradient, solve(subgradient))
                if bound <= TOLERANCE**2 * np.vdot(new_weights, multiply(new_weights)):
                    return new_weights
        if np.vdot(majorant * moved, new_weights - weights) > 0.0:
            momentum = 1.0
        next_momentum = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        point = new_weights + (momentum - 1.0) / next_momentum * (new_weights - weights)
        weights, momentum = new_weights, next_momentum
    logger.warning(
        "the prox did not converge in %d iterations: the preconditioner is nearly singular; "
        "a larger delta makes it regular",
        MAX_ITERATIONS,
    )
    return weights
