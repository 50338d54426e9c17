"""Mixed norms: a norm of each row of the weights, summed over the rows.

A row is one feature over all outputs, so whole features vanish (Duchi, Hazan and Singer 2011,
section 5.5). With one output both are the l1 norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dadagrad.regularizers.base import Array, Coupling, as_columns, check_strength, everywhere
from dadagrad.regularizers.norms import SegmentKernel


@dataclass(frozen=True, slots=True)
class MixedL2:
    """phi(W) = strength sum_i |row_i|_2 (l1/l2).

    The weights of feature i are 0 exactly where |H_i center_i|_2 <= scale strength.
    """

    couples: ClassVar[Coupling] = "outputs"
    zero_stays: ClassVar[bool] = True

    strength: float

    def __post_init__(self) -> None:
        check_strength("strength", self.strength)

    def value(self, weights: Array) -> float:
        """phi at (n_features, n_outputs) `weights`, or any rows of it."""
        return float(self.strength * np.linalg.norm(as_columns(weights), axis=1).sum())

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        """The minimiser; see `Regularizer.prox`. Any rows can be given by themselves."""
        from dadagrad.regularizers.kernels import l2_norms

        return _prox_of_rows(l2_norms, center, curvature, scale * self.strength)


@dataclass(frozen=True, slots=True)
class MixedLInfinity:
    """phi(W) = strength sum_i |row_i|_inf (l1/l-infinity).

    The weights of feature i are 0 exactly where sum_k |H_ik center_ik| <= scale strength.
    """

    couples: ClassVar[Coupling] = "outputs"
    zero_stays: ClassVar[bool] = True

    strength: float

    def __post_init__(self) -> None:
        check_strength("strength", self.strength)

    def value(self, weights: Array) -> float:
        """phi at (n_features, n_outputs) `weights`, or any rows of it."""
        return float(self.strength * np.abs(as_columns(weights)).max(axis=1, initial=0.0).sum())

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        """The minimiser; see `Regularizer.prox`. Any rows can be given by themselves."""
        from dadagrad.regularizers.kernels import l_infinity_norms

        return _prox_of_rows(l_infinity_norms, center, curvature, scale * self.strength)


def _prox_of_rows(
    kernel: SegmentKernel, center: Array, curvature: Array | float, strength: float
) -> Array:
    """A kernel on every row."""
    rows = np.ascontiguousarray(as_columns(center), dtype=np.float64)
    curvatures = np.ascontiguousarray(everywhere(curvature, center))
    n_rows, n_outputs = rows.shape
    starts = np.arange(0, n_rows * n_outputs + 1, n_outputs, dtype=np.int64)
    weights = np.empty_like(rows)
    kernel(rows.reshape(-1), curvatures.reshape(-1), starts, strength, weights.reshape(-1))
    return weights.reshape(center.shape)
