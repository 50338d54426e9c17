"""l1 and squared l2 added to another regularizer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dadagrad.regularizers.base import Array, Coupling, Regularizer, check_strength, everywhere
from dadagrad.regularizers.domains import FloorSimplex, Simplex


@dataclass(frozen=True, slots=True)
class WithElasticNet:
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
    l1: float = 0.0
    l2: float = 0.0

    def __post_init__(self) -> None:
        check_strength("l1", self.l1)
        check_strength("l2", self.l2)

    @property
    def couples(self) -> Coupling:
        return self.inner.couples

    @property
    def zero_stays(self) -> bool:
        return self.inner.zero_stays

    def value(self, weights: Array) -> float:
        """phi; infinite outside the domain of `inner`."""
        penalty = self.l1 * np.abs(weights).sum() + 0.5 * self.l2 * np.square(weights).sum()
        return self.inner.value(weights) + float(penalty)

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        """The minimiser; see `Regularizer.prox`."""
        curvature = everywhere(curvature, center)
        curves = curvature > 0
        safe = np.where(curves, curvature, 1.0)
        center = np.where(curves, center, 0.0)
        if self.l1 > 0 and not isinstance(self.inner, Simplex | FloorSimplex):
            shrunk = np.maximum(np.abs(center) - scale * self.l1 / safe, 0.0)
            center = np.copysign(shrunk, center)
        center = center / (1.0 + scale * self.l2 / safe)
        return self.inner.prox(center, curvature + scale * self.l2, scale)
