"""The diagonal metric of AdaGrad (Duchi, Hazan and Singer 2011, fig. 1).

H = delta I + diag(sqrt(G)),   G_i = sum over steps of g_i^2
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import InputError

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Diagonal:
    """H_i = delta + sqrt(G_i): a coordinate slows down as it collects gradient."""

    delta: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.delta) and self.delta >= 0):
            raise InputError(f"delta must be finite and not negative, not {self.delta}")

    def curvature(self, gradient_squares: Array) -> Array:
        """The diagonal of H for (n_features,) sums of squares."""
        return self.delta + np.sqrt(gradient_squares)

    def solve(self, vector: Array, gradient_squares: Array) -> Array:
        """H^-1 `vector`, and 0 where H is 0."""
        curvature = self.curvature(gradient_squares)
        return np.divide(vector, curvature, out=np.zeros_like(vector), where=curvature > 0)
