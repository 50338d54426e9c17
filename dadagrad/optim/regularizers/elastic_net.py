"""l1, l2 and a box on each weight alone, and l1 and l2 added to another regularizer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dadagrad.errors import InputError
from dadagrad.optim.arrays import Array
from dadagrad.optim.registry import NonNegative, register
from dadagrad.optim.regularizers.base import REGULARIZERS, Coupling, Regularizer, everywhere


@register(REGULARIZERS, "elastic-box")
class ElasticBox(Regularizer):
    """phi(w) = l1 |w|_1 + l2/2 |w|_2^2 over the box low <= w_i <= high.

    None (all zero), l1, l2, the elastic net and the box are this one formula with four numbers.
    The objective is separable and convex, so clipping its unconstrained minimiser to the box is
    exact.

    The box must contain 0: features that never occurred then weigh nothing, which is what lets
    millions of them cost nothing.
    """

    couples: ClassVar[Coupling] = "nothing"
    zero_stays: ClassVar[bool] = True

    l1: NonNegative = 0.0
    l2: NonNegative = 0.0
    low: float = -np.inf
    high: float = np.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low <= 0 <= self.high:
            raise InputError(
                f"the box [{self.low}, {self.high}] does not contain 0, so every feature that "
                "never occurred would need a weight; choose low <= 0 <= high"
            )

    @property
    def is_zero(self) -> bool:
        return (self.l1, self.l2, self.low, self.high) == (0.0, 0.0, -np.inf, np.inf)

    def split_l2(self) -> tuple[Regularizer, float]:
        return replace(self, l2=0.0), self.l2

    def value(self, weights: Array) -> float:
        """phi at (n_features,) `weights`; infinite outside the box."""
        if np.any((weights < self.low) | (weights > self.high)):
            return float(np.inf)
        return float(self.l1 * np.abs(weights).sum() + 0.5 * self.l2 * np.square(weights).sum())

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        minimiser = _shrink(center, curvature, scale * self.l1, scale * self.l2)
        return np.clip(minimiser, self.low, self.high)


@dataclass(frozen=True)
class WithElasticNet(Regularizer):
    """phi(w) = inner(w) + l1 |w|_1 + l2/2 |w|_2^2.

    *l2*, with any inner: scale l2/2 w^2 + H/2 (w - c)^2 = (H + scale l2)/2 (w - H c / (H + scale
    l2))^2 + constant, so it is another center and curvature.

    *l1*: soft-thresholding c first is exact for an inner whose prox keeps signs and zeros. Let
    c' = c - scale l1 z / H be the thresholded center, so z is a subgradient of |.|_1 at c', and let
    w be inner's prox of it, so H (c' - w) is a subgradient of scale inner at w. Then H (c - w) is
    that plus scale l1 z, and z is a subgradient of |.|_1 at w too: where w_i has a sign, c'_i has
    it, and where w_i = 0, |z_i| <= 1 is enough. All regularizers here keep signs and zeros but the
    simplex kinds. On those w >= 0 and sum w is fixed, so |w|_1 is constant and l1 changes nothing.
    """

    inner: Regularizer
    l1: NonNegative = 0.0
    l2: NonNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.l1 and not (self.inner.zero_stays or self.inner.l1_is_constant):
            raise InputError(
                f"l1={self.l1} cannot be added to {type(self.inner).__name__}, whose prox may "
                "change signs and zeros (zero_stays is False); leave out l1"
            )

    @property
    def couples(self) -> Coupling:
        return self.inner.couples

    @property
    def zero_stays(self) -> bool:
        return self.inner.zero_stays

    def split_l2(self) -> tuple[Regularizer, float]:
        return replace(self, l2=0.0), self.l2

    def value(self, weights: Array) -> float:
        """phi; infinite outside the domain of `inner`."""
        penalty = self.l1 * np.abs(weights).sum() + 0.5 * self.l2 * np.square(weights).sum()
        return self.inner.value(weights) + float(penalty)

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        curvature = everywhere(curvature, center)
        l1 = 0.0 if self.inner.l1_is_constant else scale * self.l1
        shrunk = _shrink(center, curvature, l1, scale * self.l2)
        return self.inner.prox(shrunk, curvature + scale * self.l2, scale)


def _shrink(center: Array, curvature: Array | float, l1: float, l2: float) -> Array:
    """argmin_w  l1 |w|_1 + l2/2 |w|_2^2 + 1/2 sum_i curvature_i (w_i - center_i)^2.

    A weight without curvature is 0.
    """
    safe = np.where(curvature > 0, curvature, 1.0)
    shrunk = np.maximum(np.abs(center) - l1 / safe, 0.0)
    return np.where(curvature > 0, np.sign(center) * shrunk / (1.0 + l2 / safe), 0.0)
