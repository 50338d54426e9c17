"""Norms, not squared, that set many weights to 0 together.

The dual of each is a projection (Duchi, Hazan and Singer 2011, sections 5.3 to 5.5): on the l2 ball
for the l2 norm (a bisection, fig. 4), on the weighted l1 ball for the l-infinity norm (fig. 3).

A mixed norm is a norm of each row of the weights, summed over the rows. A row is one feature over
all outputs, so whole features vanish (section 5.5). With one output both are the l1 norm.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dadagrad.optim.arrays import Array
from dadagrad.optim.projections import threshold
from dadagrad.optim.registry import NonNegative, Sizes, register
from dadagrad.optim.regularizers.base import (
    MIN_CURVATURE,
    REGULARIZERS,
    Coupling,
    Regularizer,
    as_columns,
    block_lengths,
    by_column,
    everywhere,
)

Starts = NDArray[np.int64]
SegmentKernel = Literal["l2_norms", "l2_balls", "l_infinity_norms"]


@dataclass(frozen=True, slots=True)
class _Norm(Regularizer):
    """Base of the norms."""

    strength: NonNegative

    zero_stays: ClassVar[bool] = True


class _BlockNorm(_Norm):
    """strength sum_b |w_b|_2 over blocks b of features that stand side by side."""

    __slots__ = ()

    @abstractmethod
    def lengths(self, n_features: int) -> Starts:
        """Features in every block."""

    def value(self, weights: Array) -> float:
        lengths = self.lengths(len(weights))
        starts = np.cumsum(lengths) - lengths
        squares = np.add.reduceat(np.square(as_columns(weights)), starts, axis=0)
        return float(self.strength * np.sqrt(squares).sum())

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        lengths = self.lengths(len(center))
        return prox_of_segments("l2_norms", center, curvature, scale * self.strength, lengths)


@register(REGULARIZERS, "l2-norm")
class L2Norm(_BlockNorm):
    """phi(w) = strength |w|_2, not squared: all weights of an output vanish together, or none.

    The prox is 0 exactly where |H center|_2 <= scale strength.
    """

    def lengths(self, n_features: int) -> Starts:
        return np.array([n_features])


@register(REGULARIZERS, "group")
class GroupL2(_BlockNorm):
    """phi(w) = strength sum_b |w_b|_2 over blocks b of features: whole blocks vanish.

    Blocks are runs of consecutive features. `size` is the number of features in each block (the
    last may be shorter), or the lengths of all blocks, which must sum to the number of features.
    """

    size: Sizes

    def lengths(self, n_features: int) -> Starts:
        return block_lengths(self.size, n_features)


@register(REGULARIZERS, "l-infinity")
class LInfinityNorm(_Norm):
    """phi(w) = strength |w|_inf: the largest weights of an output are cut to one common size.

    All are 0 exactly where sum |H center| <= scale strength.
    """

    def value(self, weights: Array) -> float:
        return float(self.strength * np.abs(as_columns(weights)).max(axis=0, initial=0.0).sum())

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        return by_column(center, curvature, partial(_cut, strength=scale * self.strength))


class _RowNorm(_Norm):
    """strength times the sum of the norms of all rows, of the order `order`."""

    __slots__ = ()
    couples: ClassVar[Coupling] = "outputs"
    order: ClassVar[float]
    kernel: ClassVar[SegmentKernel]

    def value(self, weights: Array) -> float:
        sizes = np.linalg.norm(as_columns(weights), self.order, axis=1)
        return float(self.strength * sizes.sum())

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        return prox_of_segments(self.kernel, center, curvature, scale * self.strength)


@register(REGULARIZERS, "mixed-l2")
class MixedL2(_RowNorm):
    """phi(W) = strength sum_i |row_i|_2 (l1/l2).

    The weights of feature i are 0 exactly where |H_i center_i|_2 <= scale strength.
    """

    order: ClassVar[float] = 2
    kernel: ClassVar[SegmentKernel] = "l2_norms"


@register(REGULARIZERS, "mixed-l-infinity")
class MixedLInfinity(_RowNorm):
    """phi(W) = strength sum_i |row_i|_inf (l1/l-infinity).

    The weights of feature i are 0 exactly where sum_k |H_ik center_ik| <= scale strength.
    """

    order: ClassVar[float] = np.inf
    kernel: ClassVar[SegmentKernel] = "l_infinity_norms"


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


def prox_of_segments(
    kernel: SegmentKernel,
    center: Array,
    curvature: Array | float,
    size: float,
    lengths: Starts | None = None,
) -> Array:
    """A kernel, with its strength or radius, on every row or on blocks of every output.

    `lengths` are the features in each block. Without them every row is a segment.
    """
    from dadagrad.optim.regularizers import kernels  # loads Numba

    centers, curvatures = as_columns(center), as_columns(everywhere(curvature, center))
    by_row = lengths is None
    if not by_row:
        centers, curvatures = centers.T, curvatures.T
    centers = np.ascontiguousarray(centers, dtype=np.float64)
    curvatures = np.ascontiguousarray(curvatures)
    every = np.tile(np.array([centers.shape[1]]) if lengths is None else lengths, len(centers))
    starts = np.concatenate([[0], np.cumsum(every)]).astype(np.int64)
    weights = np.empty_like(centers)
    flat = centers.reshape(-1), curvatures.reshape(-1)
    getattr(kernels, kernel)(*flat, starts, size, weights.reshape(-1))
    return np.ascontiguousarray(weights if by_row else weights.T).reshape(center.shape)
