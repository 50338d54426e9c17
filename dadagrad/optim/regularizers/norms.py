"""Norms, not squared, that set many weights to 0 together.

The dual of each is a projection (Duchi, Hazan and Singer 2011, sections 5.3 to 5.5): on the l2 ball
for the l2 norm (fig. 4), on the weighted l1 ball for the l-infinity norm, both by Newton's method.

A mixed norm is a norm of each row of the weights, summed over the rows. A row is one feature over
all outputs, so whole features vanish (section 5.5). With one output both are the l1 norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dadagrad.optim.arrays import Array
from dadagrad.optim.registry import NonNegative, Sizes, register
from dadagrad.optim.regularizers.base import (
    REGULARIZERS,
    Coupling,
    Regularizer,
    as_columns,
    block_lengths,
    everywhere,
)

Starts = NDArray[np.int64]
SegmentKernel = Literal["l2_norms", "l2_balls", "l_infinity_norms"]


@dataclass(frozen=True)
class _Norm(Regularizer):
    """strength times the sum of the norms, of the order `order`, of blocks of weights."""

    strength: NonNegative

    zero_stays: ClassVar[bool] = True
    order: ClassVar[float]

    def lengths(self, n_features: int) -> Starts | None:
        """Features in every block of an output; None if each row of all outputs is a block."""
        return np.array([n_features])

    def value(self, weights: Array) -> float:
        columns, lengths = as_columns(weights), self.lengths(len(weights))
        if lengths is None:
            sizes = np.linalg.norm(columns, self.order, axis=1)
        else:
            blocks = np.split(columns, np.cumsum(lengths)[:-1])
            sizes = np.array([np.linalg.norm(block, self.order, axis=0) for block in blocks])
        return float(self.strength * sizes.sum())

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        kernel: SegmentKernel = "l2_norms" if self.order == 2 else "l_infinity_norms"
        size, lengths = scale * self.strength, self.lengths(len(center))
        return prox_of_segments(kernel, center, curvature, size, lengths)


@register(REGULARIZERS, "l2-norm")
class L2Norm(_Norm):
    """phi(w) = strength |w|_2, not squared: all weights of an output vanish together, or none.

    The prox is 0 exactly where |H center|_2 <= scale strength.
    """

    order: ClassVar[float] = 2


@register(REGULARIZERS, "group")
class GroupL2(_Norm):
    """phi(w) = strength sum_b |w_b|_2 over blocks b of features: whole blocks vanish.

    Blocks are runs of consecutive features. `size` is the number of features in each block (the
    last may be shorter), or the lengths of all blocks, which must sum to the number of features.
    """

    order: ClassVar[float] = 2

    size: Sizes

    def lengths(self, n_features: int) -> Starts:
        return block_lengths(self.size, n_features)


@register(REGULARIZERS, "l-infinity")
class LInfinityNorm(_Norm):
    """phi(w) = strength |w|_inf: the largest weights of an output are cut to one common size.

    All are 0 exactly where sum |H center| <= scale strength.
    """

    order: ClassVar[float] = np.inf


@register(REGULARIZERS, "mixed-l2")
class MixedL2(_Norm):
    """phi(W) = strength sum_i |row_i|_2 (l1/l2).

    The weights of feature i are 0 exactly where |H_i center_i|_2 <= scale strength.
    """

    couples: ClassVar[Coupling] = "outputs"
    order: ClassVar[float] = 2

    def lengths(self, n_features: int) -> None:
        return None


@register(REGULARIZERS, "mixed-l-infinity")
class MixedLInfinity(MixedL2):
    """phi(W) = strength sum_i |row_i|_inf (l1/l-infinity).

    The weights of feature i are 0 exactly where sum_k |H_ik center_ik| <= scale strength.
    """

    order: ClassVar[float] = np.inf


def prox_of_segments(
    kernel: SegmentKernel,
    center: Array,
    curvature: Array | float,
    size: float,
    lengths: Starts | None,
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
