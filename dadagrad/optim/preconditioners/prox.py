"""The prox in a preconditioner that is not diagonal.

    argmin_w  scale phi(w) + 1/2 |w - center|_H^2

is solved by one of two iterations. Both call the regularizer's prox in a diagonal matrix, and the
result comes out of it, so zeros are exactly zero and domains are kept. A term l2/2 |w|^2 is added
to H first (`Preconditioner.prox`); l2 alone needs no iteration.

`minimise_dual` is for H = base I + U U' with few columns in U and a phi that is a sum over weights:
Newton's method for as many unknowns as U has columns (Becker and Fadili 2012). It takes 2 to 20
steps, even where the other iteration does not end.

`minimise` is for all others: accelerated proximal gradient (Beck and Teboulle 2009) that calls the
prox in a diagonal D >= H and restarts when its momentum leads uphill (O'Donoghue and Candes 2015).
With w+ = prox_D(y - D^-1 H (y - center)), the vector s = (D - H)(y - w+) is a subgradient of the
whole objective at w+. The objective is strongly convex in H, so

    |w+ - w*|_H^2 <= s' H^-1 s,

and the iteration stops when that bound, not the size of its steps, is small.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dadagrad.optim.arrays import Array, quotient
from dadagrad.optim.regularizers import Regularizer

logger = logging.getLogger(__name__)

TOLERANCE = 1e-11
NEAR = 1e-6
"""Steps longer than this share of the weights cannot be the last: no bound is computed."""
MAX_ITERATIONS = 100_000
MAX_NEWTON_STEPS, MAX_HALVINGS = 100, 30
SHIFT = 1e-10
"""Share of the largest point by which points are moved to find the derivative of weights."""


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
        if max(length, step) <= rounding or np.isnan(step):
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


def minimise_dual(
    regularizer: Regularizer,
    center: Array,
    scale: float,
    *,
    base: float,
    factor: Array,
    start: Array | None = None,
) -> Array | None:
    """argmin_w  scale phi(w) + 1/2 |w - center|_H^2 for H = base I + U U' and a separable phi.

    U is the (n_features, r) `factor`, and `center` is (n_features, 1). With a = U'(w - center) the
    minimiser is w(a) = prox(center - U a / base) in base I, so a is the root of

        F(a) = a - U'(w(a) - center),

    the gradient of a strongly convex function. -U F(a) is a subgradient of the whole objective at
    w(a), so |w(a) - w*|_H <= |F(a)|. None if Newton's method does not find the root.
    """
    curvature = np.full(center.shape, base)

    def evaluate(dual: Array) -> _Iterate:
        point = center - factor @ (dual / base)
        weights = regularizer.prox(point, curvature, scale)
        return _Iterate(dual, point, weights, dual - factor.T @ (weights - center))

    n_columns = factor.shape[1]
    iterate = evaluate(np.zeros((n_columns, 1)) if start is None else factor.T @ (start - center))
    epsilon = float(np.finfo(np.float64).eps)
    rounding = 4.0 * epsilon * np.linalg.norm(np.abs(factor).T @ np.abs(center))
    for _ in range(MAX_NEWTON_STEPS):
        _, point, weights, slope = iterate
        norm = np.linalg.norm
        length = np.hypot(np.sqrt(base) * norm(weights), norm(factor.T @ weights))  # |w|_H
        if norm(slope) <= max(TOLERANCE * length, rounding):
            return weights
        shift = SHIFT * float(np.abs(point).max(initial=0.0)) or SHIFT
        derivative = (regularizer.prox(point + shift, curvature, scale) - weights)[:, 0] / shift
        moving = np.flatnonzero(derivative > 0.0)
        rows = factor[moving]
        hessian = (rows.T * (np.minimum(derivative[moving], 1.0) / base)) @ rows
        if not np.isfinite(hessian).all():
            break
        direction = np.linalg.solve(np.eye(n_columns) + hessian, -slope)
        iterate = _search(evaluate, iterate, np.asarray(direction, np.float64))
    return None


class _Iterate(NamedTuple):
    """a, center - U a / base, w(a) and F(a), as columns."""

    dual: Array
    point: Array
    weights: Array
    slope: Array


def _search(evaluate: Callable[[Array], _Iterate], start: _Iterate, direction: Array) -> _Iterate:
    """Take the whole step, or the part after which the slope along it has fallen by half.

    The whole step is taken unless it leads uphill again.
    """
    descent = float(np.vdot(start.slope, direction))
    low, high, step = 0.0, 1.0, 1.0
    for _ in range(MAX_HALVINGS):
        iterate = evaluate(start.dual + step * direction)
        rise = float(np.vdot(iterate.slope, direction))
        if abs(rise) <= -0.5 * descent or (step == 1.0 and rise <= 0.0):
            break
        low, high = (low, step) if rise > 0.0 else (step, high)
        step = 0.5 * (low + high)
    return iterate
