"""l1, l2, the elastic net and the box, one formula for each weight alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dadagrad.errors import InputError
from dadagrad.regularizers.base import Array, Coupling


@dataclass(frozen=True, slots=True)
class ElasticBox:
    """phi(w) = l1 |w|_1 + l2/2 |w|_2^2 over the box low <= w_i <= high.

    None (all zero), l1, l2, the elastic net and the box are this one formula with four numbers.
    The objective is separable and convex, so clipping its unconstrained minimiser to the box is
    exact.

    The box must contain 0: features that never occurred then weigh nothing, which is what lets
    millions of them cost nothing.
    """

    couples: ClassVar[Coupling] = "nothing"
    zero_stays: ClassVar[bool] = True

    l1: float = 0.0
    l2: float = 0.0
    low: float = -np.inf
    high: float = np.inf

    def __post_init__(self) -> None:
        for name, strength in (("l1", self.l1), ("l2", self.l2)):
            if not (np.isfinite(strength) and strength >= 0):
                raise InputError(f"{name} must be finite and not negative, not {strength}")
        if not self.low <= 0 <= self.high:
            raise InputError(
                f"the box [{self.low}, {self.high}] does not contain 0, so every feature that "
                "never occurred would need a weight; choose low <= 0 <= high"
            )

    def value(self, weights: Array) -> float:
        """phi at (n_features,) `weights`; infinite outside the box."""
        if np.any((weights < self.low) | (weights > self.high)):
            return float(np.inf)
        return float(self.l1 * np.abs(weights).sum() + 0.5 * self.l2 * np.square(weights).sum())

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        """The minimiser, exactly 0 where it is 0.

        Where `curvature` is 0 the weight is 0 (the pseudo-inverse of the metric).

        Parameters
        ----------
        center : (n_features,) or (n_features, n_outputs) float64
        curvature : like `center`, or a float that holds everywhere
        scale : float
            What multiplies phi: eta t in dual averaging, eta in mirror descent.
        """
        safe = np.where(curvature > 0, curvature, 1.0)
        shrunk = np.maximum(np.abs(center) - scale * self.l1 / safe, 0.0)
        minimiser = np.sign(center) * shrunk / (1.0 + scale * self.l2 / safe)
        return np.where(curvature > 0, np.clip(minimiser, self.low, self.high), 0.0)
