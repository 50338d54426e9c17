"""The prox in a metric of a few directions, by Newton's method in as many numbers.

With H = base I + U diag(s) U', s = +-1 and U of r columns, and with b = H center,

    argmin_w  scale phi(w) + 1/2 w'Hw - b'w

is w(a) = prox((b - U diag(s) a) / base), the regularizer's own prox in the diagonal metric base I,
for the a with a = U'w(a). What is left is a root in R^r (Becker and Fadili 2012, "A quasi-Newton
proximal splitting method", and for any s and r Becker, Fadili and Ochs 2019, "On quasi-Newton
forward-backward splitting"):

    F(a) = a - U'w(a) = 0,    F'(a) = I + U' P U diag(s) / base,    P = prox'

F is strongly monotone, and where all s = 1 it is the gradient of a convex function (the dual).
Newton's method with any generalised derivative converges in a few steps, and ends exactly where P
is constant. The dual's slope along a step needs no product with U: searching along it is cheap.

-diag(s) F are the coordinates along U of a subgradient of the whole objective at w(a), so

    |w(a) - w*|_H^2  <=  sum_j |h_j - base| / h_j F_j^2,

where h are the eigenvalues of H along U. That bound, beside |w|_H, says when to stop. The answer
comes out of the regularizer's prox: zeros are exactly zero and domains are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dadagrad.metrics.directions import Directions, Outputs
from dadagrad.metrics.metric import Array
from dadagrad.regularizers import (
    ElasticBox,
    FloorSimplex,
    L1Ball,
    LInfinityNorm,
    Regularizer,
    Simplex,
)

MOST_TRIALS = 20
MOST_IDLE = 3
ROUNDING = 1e-7
"""Steps that no longer help, this close to the answer, mean that rounding stops them."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where the search stands: a, U diag(s) a, w(a), F(a), the bound and |w|_H^2."""

    dual: Array
    along: Array
    weights: Array
    rest: Array
    bound: float
    size: float

    def within(self, tolerance: float) -> bool:
        """Whether w(a) is known to be this close, relative to its H-norm."""
        return self.bound <= tolerance**2 * self.size


class Search:
    """Newton's method with one regularizer, in one metric.

    Parameters
    ----------
    regularizer : Regularizer
    directions : Directions or Outputs
        Of one output where the regularizer does not couple them. The base must be positive.
    pull : array of the shape of the weights
        b = H center.
    scale : float
    """

    __slots__ = ("_free", "_gram", "directions", "pull", "regularizer", "scale")

    def __init__(
        self,
        regularizer: Regularizer,
        directions: Directions | Outputs,
        pull: Array,
        scale: float,
    ) -> None:
        self.regularizer, self.directions = regularizer, directions
        self.pull, self.scale = pull, scale
        self._free = np.zeros(0, np.bool_)
        self._gram = np.zeros((0, 0))

    def run(self, dual: Array, tolerance: float, most_steps: int) -> Point:
        """The best point found from the start `dual`."""
        signs = self.directions.signs
        point = best = self._at(dual, self.directions.along(signs * dual))
        idle = 0
        for _ in range(most_steps):
            if point.within(tolerance):
                break
            following = self._step(point)
            if following is None:
                break
            point = following
            idle = 0 if point.bound < 0.25 * best.bound else idle + 1
            if point.bound < best.bound:
                best = point
            if idle >= MOST_IDLE and best.within(ROUNDING):
                break
        return best

    def _prox(self, center: Array) -> Array:
        return self.regularizer.prox(center, self.directions.base, self.scale)

    def _center(self, along: Array) -> Array:
        center: Array = (self.pull - along) / self.directions.base
        return center

    def _at(self, dual: Array, along: Array, weights: Array | None = None) -> Point:
        if weights is None:
            weights = self._prox(self._center(along))
        directions = self.directions
        inner = directions.across(weights)
        rest = dual - inner
        bound = float(directions.shares @ np.square(rest))
        size = float(np.vdot(directions.base * weights, weights))
        size += float(directions.signs @ np.square(inner))
        return Point(dual, along, weights, rest, bound, size)

    def _step(self, point: Point) -> Point | None:
        """One Newton step, or a part of it; None if no part of it helps."""
        directions = self.directions
        derivative = self._derivative(point) * (directions.signs / directions.bases)
        np.fill_diagonal(derivative, derivative.diagonal() + 1.0)
        try:
            change = np.asarray(-np.linalg.solve(derivative, point.rest), np.float64)
        except np.linalg.LinAlgError:
            return None
        moved = directions.along(directions.signs * change)
        if np.all(directions.signs > 0):
            return self._searched(point, change, moved)
        return self._halved(point, change, moved)

    def _searched(self, point: Point, change: Array, moved: Array) -> Point | None:
        """Where the dual's slope along the step is at most half of what it was."""
        start_slope, curve = float(point.dual @ change), float(change @ change)
        low, low_slope, high, high_slope = 0.0, float(point.rest @ change), 0.0, 0.0
        if not low_slope < 0.0:
            return None
        goal, length = -0.5 * low_slope, 1.0
        for trial in range(MOST_TRIALS):
            if trial:
                # Bisection helps where one end of the chord stays where it is.
                share = low_slope / (low_slope - high_slope) if trial % 3 else 0.5
                length = low + (high - low) * share
            along = point.along + length * moved
            weights = self._prox(self._center(along))
            slope = start_slope + length * curve - float(np.vdot(moved, weights))
            if abs(slope) <= goal or (trial == 0 and slope < 0.0):
                break
            if slope > 0.0:
                high, high_slope = length, slope
            else:
                low, low_slope = length, slope
        return self._at(point.dual + length * change, along, weights)

    def _halved(self, point: Point, change: Array, moved: Array) -> Point | None:
        """Where |F| is less than before; the first half of a half that is."""
        before, length = float(point.rest @ point.rest), 1.0
        for _ in range(MOST_TRIALS):
            found = self._at(point.dual + length * change, point.along + length * moved)
            if float(found.rest @ found.rest) <= (1.0 - 0.1 * length) * before:
                return found
            length *= 0.5
        return None

    def _derivative(self, point: Point) -> Array:
        """U'PU."""
        phi, directions = self.regularizer, self.directions
        if not isinstance(directions, Directions):
            return directions.derivative(self._prox, self._center(point.along), point.weights)
        if isinstance(phi, ElasticBox):
            return self._gram_of(free_weights(phi, point.weights), directions)
        if isinstance(phi, Simplex | FloorSimplex | L1Ball | LInfinityNorm):
            free, tied = tied_weights(phi, point.weights)
            gram, inner = self._gram_of(free, directions), directions.across(tied)
            together = np.outer(inner, inner)
            return gram + together if isinstance(phi, LInfinityNorm) else gram - together
        return directions.derivative(self._prox, self._center(point.along), point.weights)

    def _gram_of(self, free: NDArray[np.bool_], directions: Directions) -> Array:
        """P is 1 where a weight moves with its center: few do so now and did not before."""
        before, self._free = self._free, free
        if len(before) and 2 * np.count_nonzero(before != free) < np.count_nonzero(free):
            self._gram = self._gram + directions.gram(free & ~before)
            self._gram -= directions.gram(before & ~free)
        else:
            self._gram = directions.gram(free)
        return self._gram


def tied_weights(
    phi: Simplex | FloorSimplex | L1Ball | LInfinityNorm, weights: Array
) -> tuple[NDArray[np.bool_], Array]:
    """What P is where `weights` are the prox.

    In a domain P = diag(free) - tied tied': free weights move with their center, but their sum
    stays. With the largest weight as penalty P = diag(free) + tied tied': those that are it move
    together, with the mean of their centers.
    """
    sizes = np.abs(weights)
    largest = float(sizes.max(initial=0.0))
    if isinstance(phi, LInfinityNorm):
        free = sizes < largest
        tied = np.where(free, 0.0, np.sign(weights))
    elif isinstance(phi, L1Ball):
        free = weights != 0.0
        inside = float(sizes.sum()) < phi.radius * (1.0 - ROUNDING)
        tied = np.zeros_like(weights) if inside else np.sign(weights)
    else:
        free = weights > (phi.floor if isinstance(phi, FloorSimplex) else 0.0)
        tied = free.astype(np.float64)
    return free, tied / max(1.0, float(np.linalg.norm(tied)))


def free_weights(box: ElasticBox, weights: Array) -> NDArray[np.bool_]:
    """Which weights neither l1 nor the box holds."""
    free: NDArray[np.bool_] = (weights != 0.0) & (weights > box.low) & (weights < box.high)
    return free
