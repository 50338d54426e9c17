"""Norms, not squared, that set many weights to 0 together.

The dual of each is a projection (Duchi, Hazan and Singer 2011, sections 5.3 to 5.5): on the l2 ball
for the l2 norm (a bisection, fig. 4), on the weighted l1 ball for the l-infinity norm (fig. 3).

A mixed norm is a norm of each row of the weights, summed over the rows. A row is one feature over
all outputs, so whole features vanish (section 5.5). With one output both are the l1 norm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import InputError
from dadagrad.optim.projections import threshold
from dadagrad.optim.registry import check_number, check_sizes
from dadagrad.optim.regularizers.base import (
    MIN_CURVATURE,
    REGULARIZERS,
    Array,
    Coupling,
    Regularizer,
    as_columns,
    by_column,
    everywhere,
)

Starts = NDArray[np.int64]
SegmentKernel = Callable[[Array, Array, Starts, float, Array], None]


@REGULARIZERS.register
@dataclass(frozen=True, slots=True)
class L2Norm(Regularizer):
    """phi(w) = strength |w|_2, not squared: all weights of an output vanish together, or none.

    The prox is 0 exactly where |H center|_2 <= scale strength.
    """

    name: ClassVar[str] = "l2-norm"
    couples: ClassVar[Coupling] = "features"
    zero_stays: ClassVar[bool] = True

    strength: float

    def __post_init__(self) -> None:
        check_number("strength", self.strength)

    def value(self, weights: Array) -> float:
        """phi, summed over the outputs."""
        return float(self.strength * np.linalg.norm(as_columns(weights), axis=0).sum())

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        """The minimiser; see `Regularizer.prox`."""
        from dadagrad.optim.regularizers.kernels import l2_norms

        lengths = np.array([len(center)])
        return prox_of_blocks(l2_norms, center, curvature, lengths, scale * self.strength)


@REGULARIZERS.register
@dataclass(frozen=True, slots=True)
class GroupL2(Regularizer):
    """phi(w) = strength sum_b |w_b|_2 over blocks b of features: whole blocks vanish.

    Attributes
    ----------
    strength : float
    size : int or tuple of int
        The number of features in each block (the last may be shorter), or the length of every
        block; these must sum to the number of features. Blocks are runs of consecutive features.
    """

    name: ClassVar[str] = "group"
    couples: ClassVar[Coupling] = "features"
    zero_stays: ClassVar[bool] = True

    strength: float
    size: int | tuple[int, ...]

    def __post_init__(self) -> None:
        check_number("strength", self.strength)
        check_sizes("size", self.size)

    def lengths(self, n_features: int) -> NDArray[np.int64]:
        """Features in every block; `InputError` if they do not sum to `n_features`."""
        if isinstance(self.size, int):
            starts = np.arange(0, n_features, self.size)
            return np.diff(np.append(starts, n_features))
        lengths = np.array(self.size)
        if lengths.sum() != n_features:
            raise InputError(
                f"the blocks have {lengths.sum()} features together, but there are {n_features}; "
                "give block lengths that sum to that, or one length for all blocks"
            )
        return lengths

    def value(self, weights: Array) -> float:
        """phi, summed over the outputs."""
        starts = np.cumsum(self.lengths(len(weights))) - self.lengths(len(weights))
        squares = np.add.reduceat(np.square(as_columns(weights)), starts, axis=0)
        return float(self.strength * np.sqrt(squares).sum())

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        """The minimiser; see `Regularizer.prox`."""
        from dadagrad.optim.regularizers.kernels import l2_norms

        lengths = self.lengths(len(center))
        return prox_of_blocks(l2_norms, center, curvature, lengths, scale * self.strength)


@REGULARIZERS.register
@dataclass(frozen=True, slots=True)
class LInfinityNorm(Regularizer):
    """phi(w) = strength |w|_inf: the largest weights of an output are cut to one common size.

    All are 0 exactly where sum |H center| <= scale strength.
    """

    name: ClassVar[str] = "l-infinity"
    couples: ClassVar[Coupling] = "features"
    zero_stays: ClassVar[bool] = True

    strength: float

    def __post_init__(self) -> None:
        check_number("strength", self.strength)

    def value(self, weights: Array) -> float:
        """phi, summed over the outputs."""
        return float(self.strength * np.abs(as_columns(weights)).max(axis=0, initial=0.0).sum())

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        """The minimiser; see `Regularizer.prox`."""
        return by_column(center, curvature, partial(_cut, strength=scale * self.strength))


def _cut(center: Array, curvature: Array, strength: float) -> Array:
    """sign(c) min(|c|, M) with sum_i H_i [|c_i| - M]_+ = strength, for one output."""
    weights = np.zeros_like(center)
    counts = np.flatnonzero((curvature > MIN_CURVATURE) & (center != 0))
    center, curvature = center[counts], curvature[counts]
    if strength == 0:
        weights[counts] = center
        return weights
    dual = curvature * np.abs(center)
    if dual.sum() > strength:
        level = max(threshold(dual, curvature, strength), 0.0)
        weights[counts] = np.copysign(np.minimum(np.abs(center), level), center)
    return weights


def prox_of_blocks(
    kernel: SegmentKernel, center: Array, curvature: Array | float, lengths: Starts, size: float
) -> Array:
    """A kernel on every block of every output, each output laid out by itself.

    Parameters
    ----------
    kernel : of `dadagrad.optim.regularizers.kernels`
    center, curvature
        As `Regularizer.prox` takes them.
    lengths : (n_blocks,) int64
        Features in each block.
    size : float
        The strength or radius that the kernel takes.
    """
    columns = np.ascontiguousarray(as_columns(center).T, dtype=np.float64)
    curvatures = np.ascontiguousarray(as_columns(everywhere(curvature, center)).T)
    starts = np.concatenate([[0], np.cumsum(np.tile(lengths, len(columns)))]).astype(np.int64)
    weights = np.empty_like(columns)
    kernel(columns.reshape(-1), curvatures.reshape(-1), starts, size, weights.reshape(-1))
    return np.ascontiguousarray(weights.T).reshape(center.shape)


@REGULARIZERS.register
@dataclass(frozen=True, slots=True)
class MixedL2(Regularizer):
    """phi(W) = strength sum_i |row_i|_2 (l1/l2).

    The weights of feature i are 0 exactly where |H_i center_i|_2 <= scale strength.
    """

    name: ClassVar[str] = "mixed-l2"
    couples: ClassVar[Coupling] = "outputs"
    zero_stays: ClassVar[bool] = True

    strength: float

    def __post_init__(self) -> None:
        check_number("strength", self.strength)

    def value(self, weights: Array) -> float:
        """phi at (n_features, n_outputs) `weights`, or any rows of it."""
        return float(self.strength * np.linalg.norm(as_columns(weights), axis=1).sum())

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        """The minimiser; see `Regularizer.prox`. Any rows can be given by themselves."""
        from dadagrad.optim.regularizers.kernels import l2_norms

        return _prox_of_rows(l2_norms, center, curvature, scale * self.strength)


@REGULARIZERS.register
@dataclass(frozen=True, slots=True)
class MixedLInfinity(Regularizer):
    """phi(W) = strength sum_i |row_i|_inf (l1/l-infinity).

    The weights of feature i are 0 exactly where sum_k |H_ik center_ik| <= scale strength.
    """

    name: ClassVar[str] = "mixed-l-infinity"
    couples: ClassVar[Coupling] = "outputs"
    zero_stays: ClassVar[bool] = True

    strength: float

    def __post_init__(self) -> None:
        check_number("strength", self.strength)

    def value(self, weights: Array) -> float:
        """phi at (n_features, n_outputs) `weights`, or any rows of it."""
        return float(self.strength * np.abs(as_columns(weights)).max(axis=1, initial=0.0).sum())

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        """The minimiser; see `Regularizer.prox`. Any rows can be given by themselves."""
        from dadagrad.optim.regularizers.kernels import l_infinity_norms

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
