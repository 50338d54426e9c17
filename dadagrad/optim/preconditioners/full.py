"""Full preconditioners: H = delta I + G^(1/2) with G = sum g g', of all features or of blocks.

Duchi, Hazan and Singer (2011, fig. 2); ADA-FULL in Wan, Wei and Zhang (2018). G^(1/2) comes from
an eigen-decomposition, made once a step and only of the blocks that the gradient touches: O(b^3) a
block of b features. One block is the full preconditioner; blocks of one feature are the diagonal
one.

Where delta = 0 and G has no full rank, the inverse is the pseudo-inverse: eigenvalues that rounding
does not tell from 0 (b times the machine's precision of the largest one of the block) are 0.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dadagrad.optim.arrays import Array, Arrays, Ids, Shapes, all_rows, quotient, rows_of
from dadagrad.optim.preconditioners.base import PRECONDITIONERS, MatrixPreconditioner, Step
from dadagrad.optim.registry import NonNegative, Sizes, register
from dadagrad.optim.regularizers.base import block_lengths


class Blocks(MatrixPreconditioner):
    """Base of `Full` and `Block`.

    Blocks of one size b are decomposed together. For each size the arrays are

    ==============  =============================  ================================
    ``outer-b``     (n_outputs, n_blocks, b, b)    G
    ``roots-b``     (n_outputs, n_blocks, b)       square roots of its eigenvalues
    ``vectors-b``   (n_outputs, n_blocks, b, b)    its eigenvectors, as columns
    ==============  =============================  ================================
    """

    delta: float

    @abstractmethod
    def sizes(self, n_features: int) -> Sizes:
        """The size of all blocks (the last may be smaller), or the size of each."""

    def init(self, n_features: int, n_outputs: int) -> Arrays:
        arrays = super().init(n_features, n_outputs)
        for size in _counts(self.sizes(n_features), n_features):
            arrays[f"vectors-{size}"][:] = np.eye(size)
        return arrays

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        shapes: Shapes = {}
        for size, n_blocks in _counts(self.sizes(n_features), n_features).items():
            shapes[f"outer-{size}"] = (n_outputs, n_blocks, size, size)
            shapes[f"roots-{size}"] = (n_outputs, n_blocks, size)
            shapes[f"vectors-{size}"] = (n_outputs, n_blocks, size, size)
        return shapes

    def add(self, arrays: Arrays, step: Step) -> Arrays:
        """G += g g' in place, and the decompositions of the blocks that it touches."""
        gradient = all_rows(step.gradient, step.ids, _n_features(arrays))
        for size, features in _layout(self.sizes(len(gradient)), len(gradient)).items():
            parts = gradient[features].transpose(2, 0, 1)
            outputs, blocks = np.nonzero(parts.any(-1))
            if not len(outputs):
                continue
            parts = parts[outputs, blocks]
            outer = arrays[f"outer-{size}"][outputs, blocks]
            outer += parts[:, :, None] * parts[:, None, :]
            arrays[f"outer-{size}"][outputs, blocks] = outer
            values, vectors = np.linalg.eigh(outer)
            values[values <= size * np.finfo(np.float64).eps * values[:, -1:]] = 0.0
            arrays[f"roots-{size}"][outputs, blocks] = np.sqrt(values)
            arrays[f"vectors-{size}"][outputs, blocks] = vectors
        return arrays

    def solve(self, arrays: Arrays, vector: Array, ids: Ids | None = None) -> Array:
        return rows_of(self.apply(arrays, vector, lambda values: quotient(1.0, values)), ids)

    def apply(self, arrays: Arrays, vector: Array, function: Callable[[Array], Array]) -> Array:
        product = np.zeros_like(vector)
        for features, roots, vectors in self._blocks(arrays):
            product[features] = _apply(vectors, function(self.delta + roots), vector[features])
        return product

    def multiply(self, arrays: Arrays, vector: Array) -> Array:
        product = self.delta * vector
        for features, roots, vectors in self._blocks(arrays):
            product[features] += _apply(vectors, roots, vector[features])
        return product

    def majorant(self, arrays: Arrays) -> Array:
        majorant = np.zeros((_n_features(arrays), len(next(iter(arrays.values())))))
        for features, roots, _ in self._blocks(arrays):
            majorant[features] = (self.delta + roots[:, :, -1]).T[:, None, :]
        return majorant

    def _blocks(self, arrays: Arrays) -> Iterator[tuple[NDArray[np.int64], Array, Array]]:
        """Features, roots and vectors of each size."""
        n_features = _n_features(arrays)
        for size, features in _layout(self.sizes(n_features), n_features).items():
            yield features, arrays[f"roots-{size}"], arrays[f"vectors-{size}"]


def _n_features(arrays: Arrays) -> int:
    roots = (value for key, value in arrays.items() if key.startswith("roots-"))
    return sum(value.shape[1] * value.shape[2] for value in roots)


def _apply(vectors: Array, diagonal: Array, part: Array) -> Array:
    """V diag(d) V' x for each block: `part` and the result are (n_blocks, b, n_outputs)."""
    turned = part.transpose(2, 0, 1)[..., None]
    turned = vectors.swapaxes(-1, -2) @ turned * diagonal[..., None]
    return (vectors @ turned)[..., 0].transpose(1, 2, 0)


def _counts(sizes: Sizes, n_features: int) -> dict[int, int]:
    """For each size of a block, how many blocks have it."""
    if isinstance(sizes, tuple):
        return dict(sorted(Counter(block_lengths(sizes, n_features).tolist()).items()))
    whole, remainder = divmod(n_features, sizes)
    return {size: n for size, n in ((remainder, 1), (sizes, whole)) if size and n}


@lru_cache(maxsize=16)
def _layout(sizes: Sizes, n_features: int) -> dict[int, NDArray[np.int64]]:
    """For each size of a block, the features of the blocks of that size: (n_blocks, size)."""
    lengths = block_lengths(sizes, n_features)
    starts = np.cumsum(lengths) - lengths
    return {
        int(size): starts[lengths == size][:, None] + np.arange(size) for size in np.unique(lengths)
    }


@register(PRECONDITIONERS, "full")
class Full(Blocks):
    """H = delta I + G^(1/2) over all features: ADA-FULL, O(n_features^3) a step."""

    delta: NonNegative = 1e-6

    def sizes(self, n_features: int) -> Sizes:
        return n_features


@register(PRECONDITIONERS, "block")
class Block(Blocks):
    """H = delta I + G^(1/2) with G cut to blocks of features that stand side by side.

    `size` is that of all blocks (the last may be smaller), or the size of each.
    """

    size: Sizes
    delta: NonNegative = 1e-6

    def sizes(self, n_features: int) -> Sizes:
        return self.size
