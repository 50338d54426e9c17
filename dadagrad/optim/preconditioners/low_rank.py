"""Preconditioners of a few directions: H = base I + V diag(h - base) V' with V'V = I.

Everything costs O(rank n_features), and H^-1 follows from H without solving anything:

    H^-1 x = x / base + V diag(1/h - 1/base) V' x     (Woodbury, sec. 3.1 of Wan et al. 2018)

With base = 0 the inverse is the pseudo-inverse V diag(1/h) V'.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dadagrad.optim.arrays import Array, Arrays, Ids, quotient, rows_of
from dadagrad.optim.preconditioners.base import MatrixPreconditioner


class Factors(NamedTuple):
    """H of one output, with V = directions @ mix and h = curvature."""

    directions: Array  # (n_features, n)
    mix: Array  # (n, r)
    curvature: Array  # (r,)
    base: float

    def correction(self, product: Array, ids: Ids | None = None) -> Array:
        """H^-1 x - x / base, or its rows `ids`, for `product` = directions' x.

        The bits of a row do not depend on `ids`.
        """
        inner = product @ self.mix
        change = quotient(inner, self.curvature)
        if self.base > 0:
            change -= inner / self.base
        rows: Array = np.einsum("ij,j->i", rows_of(self.directions, ids), self.mix @ change)
        return rows


class LowRank(MatrixPreconditioner):
    """Base of the preconditioners of this form; each defines its `factors`."""

    @abstractmethod
    def factors(self, arrays: Arrays, output: int) -> Factors:
        """H of one output."""

    def solve(
        self,
        arrays: Arrays,
        vector: Array,
        ids: Ids | None = None,
        products: Array | None = None,
    ) -> Array:
        """H^-1 `vector`, or its rows `ids`, which alone are read if directions' `vector` is given.

        That is (n_outputs, n_rows) `products`, one row for each output.
        """
        solved = vector.copy() if ids is None else vector[ids]
        for output in range(vector.shape[1]):
            factors = self.factors(arrays, output)
            if products is None:
                product = vector[:, output] @ factors.directions
            else:
                product = products[output, : len(factors.mix)]
            if factors.base > 0:
                solved[:, output] /= factors.base
            else:
                solved[:, output] = 0.0
            solved[:, output] += factors.correction(product, ids)
        return solved

    def multiply(self, arrays: Arrays, vector: Array) -> Array:
        return self.apply(arrays, vector, lambda values: values)

    def apply(self, arrays: Arrays, vector: Array, function: Callable[[Array], Array]) -> Array:
        product = np.empty_like(vector)
        for output in range(vector.shape[1]):
            directions, mix, curvature, base = self.factors(arrays, output)
            across = function(np.array(base))
            inner = (function(curvature) - across) * (vector[:, output] @ directions @ mix)
            product[:, output] = across * vector[:, output] + directions @ (mix @ inner)
        return product

    def factor(self, arrays: Arrays, output: int) -> tuple[float, Array] | None:
        directions, mix, curvature, base = self.factors(arrays, output)
        if base <= 0.0 or curvature.min(initial=base) < base:
            return None
        return base, directions @ (mix * np.sqrt(curvature - base))

    def majorant(self, arrays: Arrays) -> Array:
        all_factors = [self.factors(arrays, k) for k in range(len(next(iter(arrays.values()))))]
        largest = [max(f.base, f.curvature.max(initial=0.0)) for f in all_factors]
        return np.tile(largest, (len(all_factors[0].directions), 1))
