"""Domains: phi is 0 inside and infinite outside, so the prox is a projection in the metric.

`value` allows for rounding: a point outside by up to 1e-9 of the domain's size counts as inside. No
prox of a domain depends on scale.

**Where the curvature is 0** on the simplex. A weight without curvature may move for free, so the
others go to their best, [center]_+, and what they leave of the total is shared equally by those
without curvature (the minimiser of least norm). If they leave nothing, those are 0. This is the
limit of a vanishing curvature around the center 0, so a small delta in the metric and delta = 0 do
alike: before the first gradient all weights are equal, and weight that is taken from one feature
goes to features that are not known to be bad.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from dadagrad.optim.arrays import Array
from dadagrad.optim.projections import check_floor, project_l1_ball, shares
from dadagrad.optim.registry import NonNegative, Positive, register
from dadagrad.optim.regularizers.base import (
    FEASIBLE,
    MIN_CURVATURE,
    REGULARIZERS,
    Regularizer,
    as_columns,
    by_column,
)
from dadagrad.optim.regularizers.norms import prox_of_segments


class _Domain(Regularizer):
    """Base of the domains."""

    def value(self, weights: Array) -> float:
        return 0.0 if self._holds(as_columns(weights)) else float(np.inf)

    @abstractmethod
    def _holds(self, columns: Array) -> bool:
        """True if every column is inside, up to rounding."""


class _Ball(_Domain):
    """Base of the balls of a norm, of the order `order`."""

    zero_stays: ClassVar[bool] = True
    order: ClassVar[int]
    radius: float

    def _holds(self, columns: Array) -> bool:
        sizes = np.linalg.norm(columns, self.order, axis=0)
        return bool(np.all(sizes <= self.radius * (1.0 + FEASIBLE)))


@register(REGULARIZERS, "l1-ball")
class L1Ball(_Ball):
    """|w|_1 <= radius for each output: a sparse domain.

    Projected by the threshold of Duchi, Hazan and Singer (2011, section 5.2 and fig. 3):
    w_i = sign(c_i) [|c_i| - theta / H_i]_+.
    """

    order: ClassVar[int] = 1

    radius: Positive

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        return by_column(center, curvature, self._nearest)

    def _nearest(self, center: Array, curvature: Array) -> Array:
        weights = np.zeros_like(center)
        counts = np.flatnonzero((curvature > MIN_CURVATURE) & (center != 0))
        weights[counts] = project_l1_ball(center[counts], 1.0 / curvature[counts], self.radius)
        return weights


@register(REGULARIZERS, "l2-ball")
class L2Ball(_Ball):
    """|w|_2 <= radius for each output.

    w_i = H_i c_i / (H_i + mu) with mu >= 0 so that |w|_2 = radius, found as in fig. 4 of Duchi,
    Hazan and Singer (2011), where the same projection is the dual of the l2 norm.
    """

    order: ClassVar[int] = 2

    radius: Positive

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        whole = np.array([len(center)])
        return prox_of_segments("l2_balls", center, curvature, self.radius, whole)


class _Simplex(_Domain):
    """Base of the simplexes: each weight has at least a floor, and those of an output one sum."""

    l1_is_constant: ClassVar[bool] = True

    @abstractmethod
    def _floor_and_sum(self, n_features: int) -> tuple[float, float]:
        """The floor of each of so many weights, and their sum."""

    def _holds(self, columns: Array) -> bool:
        floor, total = self._floor_and_sum(len(columns))
        slack = FEASIBLE * total
        sums = columns.sum(axis=0)
        return bool(np.all(columns >= floor - slack) and np.all(np.abs(sums - total) <= slack))

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        return by_column(center, curvature, self._nearest)

    def _nearest(self, center: Array, curvature: Array) -> Array:
        floor, total = self._floor_and_sum(len(center))
        free = max(total - len(center) * floor, 0.0)  # the sum of what weights have above the floor
        counts = curvature > MIN_CURVATURE
        above = np.zeros_like(center)
        if free == 0.0:
            return above + floor
        centers = center[counts] - floor
        positive = np.maximum(centers, 0.0)
        remaining = free - positive.sum()
        rounding = len(center) * np.finfo(np.float64).eps * free
        if counts.all() and abs(remaining) <= rounding and np.array_equal(centers, positive):
            return center
        if len(centers) < len(center) and remaining >= 0.0:
            above[counts] = positive
            above[~counts] = remaining / (len(center) - len(centers))
        else:
            above[counts] = shares(centers, 1.0 / curvature[counts], free)
        return above + floor


@register(REGULARIZERS, "simplex")
class Simplex(_Simplex):
    """w_i >= 0 and sum w = radius for each output. See above for weights without curvature."""

    radius: Positive = 1.0

    def _floor_and_sum(self, n_features: int) -> tuple[float, float]:
        return 0.0, self.radius


@register(REGULARIZERS, "floor-simplex")
class FloorSimplex(_Simplex):
    """w_i >= floor and sum w = 1 for each output (Shalev-Shwartz and Singer 2007, eq. 11).

    The nearest point in a diagonal metric: w - floor is on the simplex of size 1 - n floor. For the
    nearest point in relative entropy see `dadagrad.optim.projections.entropic_floor_projection`.
    The number of features times the floor must not exceed 1, which is seen when weights come.
    """

    floor: NonNegative

    def _floor_and_sum(self, n_features: int) -> tuple[float, float]:
        check_floor(self.floor, n_features)
        return self.floor, 1.0
