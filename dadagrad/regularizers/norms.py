"""Norms, not squared, that set many weights to 0 together.

The dual of each is a projection (Duchi, Hazan and Singer 2011, sections 5.3 to 5.5): on the l2 ball
for the l2 norm (a bisection, fig. 4), on the weighted l1 ball for the l-infinity norm (fig. 3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import InputError
from dadagrad.projections import threshold
from dadagrad.regularizers.base import (
    LEAST_CURVATURE,
    Array,
    Coupling,
    as_columns,
    by_column,
    check_strength,
    everywhere,
)

Starts = NDArray[np.int64]
SegmentKernel = Callable[[Array, Array, Starts, float, Array], None]


@dataclass(frozen=True, slots=True)
class L2Norm:
    """phi(w) = strength |w|_2, not squared: all weights of an output vanish together, or none.

    The prox is 0 exactly where |H center|_2 <= scale strength.
    """

    couples: ClassVar[Coupling] = "features"
    zero_stays: ClassVar[bool] = True

    strength: float

    def __post_init__(self) -> None:
        check_strength("strength", self.strength)

    def value(self, weights: Array) -> float:
        """phi, summed over the outputs."""
        return float(self.strength * np.linalg.norm(as_columns(weights), axis=0).sum())

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        """The minimiser; see `Regularizer.prox`."""
        from dadagrad.regularizers.kernels import l2_norms

        lengths = np.array([len(center)])
        return prox_of_blocks(l2_norms, center, curvature, lengths, scale * self.strength)


@dataclass(frozen=True, slots=True)
class GroupL2:
    """phi(w) = strength sum_b |w_b|_2 over blocks b of features: whole blocks vanish.

    Attributes
    ----------
    strength : float
    blocks : int or tuple of int
        The number of features in each block (the last may be shorter), or the length of every
        block; these must sum to the number of features. Blocks are runs of consecutive features.
    """

    couples: ClassVar[Coupling] = "features"
    zero_stays: ClassVar[bool] = True

    strength: float
    blocks: int | tuple[int, ...]

    def __post_init__(self) -> None:
        check_strength("strength", self.strength)
        each = (self.blocks,) if isinstance(self.blocks, int) else self.blocks
        if not each or not all(
            isinstance(length, int) and not isinstance(length, bool) and length >= 1
            for length in each
        ):
            raise InputError(
                "blocks must be a whole number of features, at least 1, or a tuple of such "
                f"numbers, not {self.blocks!r}"
            )

    def lengths(self, n_features: int) -> NDArray[np.int64]:
        """Features in every block; `InputError` if they do not sum to `n_features`."""
        if isinstance(self.blocks, int):
            starts = np.arange(0, n_features, self.blocks)
            return np.diff(np.append(starts, n_features))
        lengths = np.array(self.blocks)
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
        from dadagrad.regularizers.kernels import l2_norms

        lengths = self.lengths(len(center))
        return prox_of_blocks(l2_norms, center, curvature, lengths, scale * self.strength)


@dataclass(frozen=True, slots=True)
class LInfinityNorm:
    """phi(w) = strength |w|_inf: the largest weights of an output are cut to one common size.

    All are 0 exactly where sum |H center| <= scale strength.
    """

    couples: ClassVar[Coupling] = "features"
    zero_stays: ClassVar[bool] = True

    strength: float

    def __post_init__(self) -> None:
        check_strength("strength", self.strength)

    def value(self, weights: Array) -> float:
        """phi, summed over the outputs."""
        return float(self.strength * np.abs(as_columns(weights)).max(axis=0, initial=0.0).sum())

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        """The minimiser; see `Regularizer.prox`."""
        return by_column(center, curvature, partial(_cut, strength=scale * self.strength))


def _cut(center: Array, curvature: Array, strength: float) -> Array:
    """sign(c) min(|c|, M) with sum_i H_i [|c_i| - M]_+ = strength, for one output."""
    weights = np.zeros_like(center)
    counts = np.flatnonzero((curvature > LEAST_CURVATURE) & (center != 0))
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
    kernel : of `dadagrad.regularizers.kernels`
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
