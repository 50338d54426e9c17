"""The baselines that project gradients at random: ADA-LR and RADAGRAD.

Krummenacher et al. (2016), as eqs. 3 and 4 of Wan, Wei and Zhang (2018) state them. Both project
with a subsampled randomized Fourier transform Pi, rank x n_features and fixed by a seed:
sqrt(n_features / rank) times some rows of the cosine transform with random signs.

- `AdaLowRank`: G = sum g g' is kept whole; Q R = G Pi', U Sigma V' = Q' G, and
  H^-1 = V (Sigma^(1/2) + delta I)^-1 V', nothing across V.
- `RadaGrad`: only G Pi' = sum g (Pi g)' is kept; Q R = G Pi', U Sigma W' = (G Pi')' Q, V = Q W, and
  H^-1 = V (Sigma^(1/2) + delta I)^-1 V' + (I - V V').

The papers use both with mirror descent and without a regularizer.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from dadagrad.optim.arrays import Array, Arrays, Ids, Shapes
from dadagrad.optim.preconditioners.base import PRECONDITIONERS, Step
from dadagrad.optim.preconditioners.low_rank import Factors, LowRank
from dadagrad.optim.registry import NonNegative, Rank, register


@lru_cache(maxsize=4)
def projection(n_features: int, rank: int, seed: int) -> Array:
    """Pi: (rank, n_features) float64, with E Pi' Pi = I; fewer rows if there are fewer features."""
    rank = min(rank, n_features)
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], n_features)
    frequencies = np.sort(rng.choice(n_features, rank, replace=False))
    cosines = np.cos(np.pi / n_features * np.outer(frequencies, np.arange(n_features) + 0.5))
    cosines *= np.where(frequencies == 0, np.sqrt(0.5), 1.0)[:, None]
    matrix: Array = np.sqrt(2.0 / rank) * cosines * signs
    matrix.flags.writeable = False
    return matrix


@dataclass(frozen=True)
class _Projected(LowRank):
    """Base of both. They keep V as ``directions``, Sigma as ``values`` and the sum `sums`."""

    delta: NonNegative = 1e-6
    rank: Rank = 10
    seed: int = 0
    base: ClassVar[float]
    sums: ClassVar[str]

    def factors(self, arrays: Arrays, output: int) -> Factors:
        values = arrays["values"][output]
        positive = np.flatnonzero(values > 0.0)
        mix = np.eye(len(values))[:, positive]
        curvature = self.delta + np.sqrt(values[positive])
        return Factors(arrays["directions"][output], mix, curvature, self.base)

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        rank = min(self.rank, n_features)
        return {"directions": (n_outputs, n_features, rank), "values": (n_outputs, rank)}

    def add(self, arrays: Arrays, step: Step) -> Arrays:
        for output in np.flatnonzero(step.gradient.any(0)).tolist():
            total = arrays[self.sums][output]
            self._grow(total, step.gradient[:, output], step.ids)
            directions, values = self._factorize(total)
            # A Sigma that rounding does not tell from 0 is 0.
            noise = len(total) * np.finfo(np.float64).eps * values.max(initial=0.0)
            arrays["directions"][output] = directions
            arrays["values"][output] = np.where(values > noise, values, 0.0)
        return arrays

    @abstractmethod
    def _grow(self, total: Array, column: Array, ids: Ids | None) -> None:
        """Add one gradient to the sum, in place."""

    @abstractmethod
    def _factorize(self, total: Array) -> tuple[Array, Array]:
        """V and Sigma of the sum."""


@register(PRECONDITIONERS, "radagrad")
class RadaGrad(_Projected):
    """RADAGRAD: O(rank^2 n_features) a step. Keeps G Pi' as ``projected``."""

    base: ClassVar[float] = 1.0
    sums: ClassVar[str] = "projected"

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        shapes = super().shapes(n_features, n_outputs)
        return {**shapes, "projected": shapes["directions"]}

    def _grow(self, total: Array, column: Array, ids: Ids | None) -> None:
        rows = slice(None) if ids is None else ids
        matrix = projection(len(total), self.rank, self.seed)
        total[rows] += np.outer(column, matrix[:, rows] @ column)

    def _factorize(self, total: Array) -> tuple[Array, Array]:
        basis = np.linalg.qr(total).Q
        _, values, turn = np.linalg.svd(total.T @ basis)
        return basis @ turn.T, values


@register(PRECONDITIONERS, "ada-lr")
class AdaLowRank(_Projected):
    """ADA-LR: O(rank n_features^2) a step. Keeps G as ``outer``."""

    base: ClassVar[float] = 0.0
    sums: ClassVar[str] = "outer"

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        shapes = super().shapes(n_features, n_outputs)
        return {**shapes, "outer": (n_outputs, n_features, n_features)}

    def _grow(self, total: Array, column: Array, ids: Ids | None) -> None:
        cells = (slice(None), slice(None)) if ids is None else np.ix_(ids, ids)
        total[cells] += np.outer(column, column)

    def _factorize(self, total: Array) -> tuple[Array, Array]:
        basis = np.linalg.qr(total @ projection(len(total), self.rank, self.seed).T).Q
        _, values, directions = np.linalg.svd(basis.T @ total, full_matrices=False)
        return directions.T, values
