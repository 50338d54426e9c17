"""Metrics of a few directions: H = base I + V diag(h - base) V' with V'V = I.

Everything costs O(rank n_features), and H^-1 follows from H without solving anything:

    H^-1 x = x / base + V diag(1/h - 1/base) V' x     (Woodbury, sec. 3.1 of Wan et al. 2018)

With base = 0 the inverse is the pseudo-inverse V diag(1/h) V'.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from dadagrad.metrics.directions import Directions
from dadagrad.metrics.metric import Array, Arrays, Ids
from dadagrad.metrics.proximal import is_nothing, minimise_outputs
from dadagrad.regularizers import Regularizer


class Factors(NamedTuple):
    """H of one output, with V = directions @ mix left as it is.

    directions : (n_features, n) float64
    mix : (n, r) float64
    curvature : (r,) float64, h
    base : float
    """

    directions: Array
    mix: Array
    curvature: Array
    base: float

    def solving(self, product: Array) -> Array:
        """c with H^-1 x = x / base + directions c, for `product` = directions' x."""
        inner = product @ self.mix
        change = np.divide(
            inner, self.curvature, out=np.zeros_like(inner), where=self.curvature > 0
        )
        if self.base > 0:
            change -= inner / self.base
        return self.mix @ change

    def along(self, inner: Array, ids: Ids | None = None) -> Array:
        """directions `inner`; a row has the same bits whichever rows are asked for."""
        directions = self.directions if ids is None else self.directions[ids]
        rows: Array = np.einsum("ij,j->i", directions, inner)
        return rows


class LowRank:
    """What all metrics of this form share; they say what their `factors` are."""

    __slots__ = ()
    name: ClassVar[str]

    def factors(self, arrays: Arrays, output: int) -> Factors:
        """H of one output."""
        raise NotImplementedError

    def solve(self, arrays: Arrays, vector: Array, ids: Ids | None = None) -> Array:
        return self._solve(arrays, vector, None, ids)

    def solve_sum(self, arrays: Arrays, total: Array, ids: Ids | None = None) -> Array:
        return self.solve(arrays, total, ids)

    def _solve(
        self, arrays: Arrays, vector: Array, products: Array | None, ids: Ids | None
    ) -> Array:
        """H^-1 `vector`; with `products`, directions' times `vector`, only its rows are read."""
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
            solved[:, output] += factors.along(factors.solving(product), ids)
        return solved

    def multiply(self, arrays: Arrays, vector: Array) -> Array:
        product = np.empty_like(vector)
        for output in range(vector.shape[1]):
            directions, mix, curvature, base = self.factors(arrays, output)
            inner = (curvature - base) * (vector[:, output] @ directions @ mix)
            product[:, output] = base * vector[:, output] + directions @ (mix @ inner)
        return product

    def prox(
        self,
        arrays: Arrays,
        regularizer: Regularizer,
        center: Array,
        scale: float,
        ids: Ids | None = None,
        start: Array | None = None,
    ) -> Array:
        if is_nothing(regularizer):
            return center
        all_factors = [self.factors(arrays, output) for output in range(center.shape[1])]
        majorant = np.empty_like(center)
        majorant[:] = [max(f.base, f.curvature.max(initial=0.0)) for f in all_factors]
        parts = [Directions.of(*factors) for factors in all_factors]
        return minimise_outputs(self, arrays, regularizer, center, scale, majorant, start, parts)
