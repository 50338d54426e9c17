"""H = base I + U diag(signs) U' of one output, or of several: products, and U' P U.

P is the derivative of a regularizer's prox in the metric base I: where that is not known in closed
form, a difference quotient takes its place. Newton's method then converges as fast as the quotient
is exact, and to the same root.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dadagrad.metrics.metric import Array

Prox = Callable[[Array], Array]

DIFFERENCE = 1e-7
"""Of a quotient, relative to the largest entry: half of the digits are left to either end."""


class Directions(NamedTuple):
    """H of one output; vectors are (n_features,).

    rows : (n_features, m) float64
    turn : (m, r) float64, or None for the identity
        U = rows @ turn.
    signs : (r,) float64, +-1
    curvature : (r,) float64, the eigenvalues h of H along U
    base : float
    """

    rows: Array
    turn: Array | None
    signs: Array
    curvature: Array
    base: float

    @classmethod
    def of(cls, rows: Array, mix: Array | None, curvature: Array, base: float) -> Directions:
        """H = base I + V diag(curvature - base) V' with V = rows @ mix orthonormal."""
        counts = np.flatnonzero(curvature != base)
        excess = curvature[counts] - base
        lengths = np.sqrt(np.abs(excess))
        if mix is None:
            rows, turn = rows[:, counts] * lengths, None
        else:
            turn = mix[:, counts] * lengths
        return cls(rows, turn, np.sign(excess), curvature[counts], base)

    @property
    def bases(self) -> float:
        """The base that goes with each column of U."""
        return self.base

    @property
    def shares(self) -> Array:
        """|h - base| / h."""
        return np.abs(self.curvature - self.base) / self.curvature

    def shifted(self, shift: float) -> Directions:
        """H + `shift` I."""
        return self._replace(curvature=self.curvature + shift, base=self.base + shift)

    def along(self, inner: Array) -> Array:
        """U `inner`."""
        product: Array = self.rows @ (inner if self.turn is None else self.turn @ inner)
        return product

    def across(self, vector: Array) -> Array:
        """U' `vector`."""
        product: Array = vector @ self.rows
        return product if self.turn is None else product @ self.turn

    def columns(self) -> Array:
        """U."""
        return self.rows if self.turn is None else self.rows @ self.turn

    def square(self, vector: Array) -> float:
        """`vector`' H `vector`."""
        square = self.base * (vector @ vector) + self.signs @ np.square(self.across(vector))
        return float(square)

    def inverse_square(self, vector: Array) -> float:
        """`vector`' H^-1 `vector`; the base must be positive."""
        inner = float(np.square(self.across(vector)) @ (self.signs / self.curvature))
        return max(float(vector @ vector) - inner, 0.0) / self.base

    def gram(self, chosen: NDArray[np.bool_]) -> Array:
        """U'PU where P keeps the features that are `chosen`."""
        rows = self.rows[chosen]
        product: Array = rows.T @ rows
        return product if self.turn is None else self.turn.T @ product @ self.turn

    def derivative(self, prox: Prox, center: Array, weights: Array) -> Array:
        """U'PU for a prox that takes any number of columns, each by itself.

        `weights` : the prox of `center`.
        """
        whole = self.columns()
        lengths = _lengths(np.abs(center).max(initial=0.0), np.abs(whole).max(axis=0))
        moved = prox(center[:, None] + lengths * whole)
        product = whole.T @ ((moved - weights[:, None]) / lengths)
        return 0.5 * (product + product.T)


class Outputs:
    """H of several outputs, each with directions of its own; vectors are (n_features, n_outputs).

    What belongs to the columns of the U's is laid out one output after the other.
    """

    def __init__(self, parts: Sequence[Directions], n_features: int) -> None:
        self.parts = parts
        self.signs = np.concatenate([part.signs for part in parts])
        self.curvature = np.concatenate([part.curvature for part in parts])
        self.base = np.tile([part.base for part in parts], (n_features, 1))
        self.bases = np.concatenate([np.full(len(part.signs), part.base) for part in parts])
        self.shares = np.concatenate([part.shares for part in parts])
        self._cuts = np.cumsum([len(part.signs) for part in parts])[:-1]

    def shifted(self, shift: float) -> Outputs:
        return Outputs([part.shifted(shift) for part in self.parts], len(self.base))

    def along(self, inner: Array) -> Array:
        inners = np.split(inner, self._cuts)
        columns = [part.along(own) for part, own in zip(self.parts, inners, strict=True)]
        return np.stack(columns, axis=1)

    def across(self, vector: Array) -> Array:
        return np.concatenate([part.across(vector[:, k]) for k, part in enumerate(self.parts)])

    def square(self, vector: Array) -> float:
        return sum(part.square(vector[:, k]) for k, part in enumerate(self.parts))

    def inverse_square(self, vector: Array) -> float:
        return sum(part.inverse_square(vector[:, k]) for k, part in enumerate(self.parts))

    def derivative(self, prox: Prox, center: Array, weights: Array) -> Array:
        """U'PU for a prox that takes any rows, each by itself.

        Row i of P is a matrix of n_outputs^2, all of which one quotient an output finds.
        """
        whole = [part.columns() for part in self.parts]
        lengths = _lengths(1.0, np.abs(center).max(axis=1), inverse=True)
        blocks: list[list[Array]] = [[] for _ in self.parts]
        for k, right in enumerate(whole):
            moved = center.copy()
            moved[:, k] += lengths
            slopes = (prox(moved) - weights) / lengths[:, None]
            for j, left in enumerate(whole):
                blocks[j].append(left.T @ (slopes[:, j, None] * right))
        return np.block(blocks)


def _lengths(reach: float, largest: Array, inverse: bool = False) -> Array:
    """`DIFFERENCE` times reach / largest (or, inverse, times largest), and 1 where that is 0."""
    with np.errstate(divide="ignore", over="ignore"):
        lengths = DIFFERENCE * reach * (largest if inverse else 1.0 / largest)
    return np.where((lengths > 0.0) & np.isfinite(lengths), lengths, 1.0)
