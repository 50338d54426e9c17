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

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from dadagrad.optim.preconditioners import frequent_directions as fd
from dadagrad.optim.preconditioners.base import (
    PRECONDITIONERS,
    Array,
    Arrays,
    Ids,
    Shapes,
    check_outputs,
)
from dadagrad.optim.preconditioners.low_rank import Factors, LowRank
from dadagrad.optim.registry import check_number


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


class _Projected(LowRank):
    """Base of the two projections. It keeps V as ``directions`` and Sigma as ``values``."""

    __slots__ = ()
    delta: float
    rank: int
    seed: int
    base: ClassVar[float]

    def factors(self, arrays: Arrays, output: int) -> Factors:
        values = arrays["values"][output]
        known = np.flatnonzero(values > 0.0)
        mix = np.eye(len(values))[:, known]
        curvature = self.delta + np.sqrt(values[known])
        return Factors(arrays["directions"][output], mix, curvature, self.base)

    def init(self, n_features: int, n_outputs: int | None = None) -> Arrays:
        shapes = self.shapes(n_features, check_outputs(self.name, n_outputs))
        return {name: np.zeros(shape) for name, shape in shapes.items()}

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        rank = min(self.rank, n_features)
        return {"directions": (n_outputs, n_features, rank), "values": (n_outputs, rank)}

    def _keep(self, arrays: Arrays, output: int, directions: Array, values: Array) -> None:
        """Store V and Sigma; a Sigma that rounding does not tell from 0 is 0."""
        noise = len(directions) * np.finfo(np.float64).eps * values.max(initial=0.0)
        arrays["directions"][output] = directions
        arrays["values"][output] = np.where(values > noise, values, 0.0)


@PRECONDITIONERS.register
@dataclass(frozen=True, slots=True)
class RadaGrad(_Projected):
    """RADAGRAD: O(rank^2 n_features) a step. Keeps G Pi' as ``projected``."""

    delta: float = 1e-6
    rank: int = 10
    seed: int = 0
    name: ClassVar[str] = "radagrad"
    base: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        check_number("delta", self.delta)
        fd.check_rank(self.rank)

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        shapes = _Projected.shapes(self, n_features, n_outputs)
        return {**shapes, "projected": shapes["directions"]}

    def add(
        self,
        arrays: Arrays,
        gradient: Array,
        importance: float = 1.0,
        ids: Ids | None = None,
        total: Array | None = None,
        scales: Array | None = None,
    ) -> Arrays:
        """G Pi' += g (Pi g)' in place; see `Preconditioner.add`."""
        matrix = projection(arrays["directions"].shape[1], self.rank, self.seed)
        rows = slice(None) if ids is None else ids
        for output in np.flatnonzero(gradient.any(0)).tolist():
            column = gradient[:, output]
            arrays["projected"][output, rows] += np.outer(column, matrix[:, rows] @ column)
            self._decompose(arrays, output)
        return arrays

    def _decompose(self, arrays: Arrays, output: int) -> None:
        projected = arrays["projected"][output]
        basis = np.linalg.qr(projected).Q
        _, values, turn = np.linalg.svd(projected.T @ basis)
        self._keep(arrays, output, basis @ turn.T, values)

    def merge(self, arrays: Arrays, other: Arrays, total: Array | None = None) -> Arrays:
        arrays["projected"] += other["projected"]
        for output in range(len(arrays["projected"])):
            self._decompose(arrays, output)
        return arrays


@PRECONDITIONERS.register
@dataclass(frozen=True, slots=True)
class AdaLowRank(_Projected):
    """ADA-LR: O(rank n_features^2) a step. Keeps G as ``outer``."""

    delta: float = 1e-6
    rank: int = 10
    seed: int = 0
    name: ClassVar[str] = "ada-lr"
    base: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        check_number("delta", self.delta)
        fd.check_rank(self.rank)

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        shapes = _Projected.shapes(self, n_features, n_outputs)
        return {**shapes, "outer": (n_outputs, n_features, n_features)}

    def add(
        self,
        arrays: Arrays,
        gradient: Array,
        importance: float = 1.0,
        ids: Ids | None = None,
        total: Array | None = None,
        scales: Array | None = None,
    ) -> Arrays:
        """G += g g' in place; see `Preconditioner.add`."""
        for output in np.flatnonzero(gradient.any(0)).tolist():
            column = gradient[:, output]
            cells = (slice(None), slice(None)) if ids is None else np.ix_(ids, ids)
            arrays["outer"][output][cells] += np.outer(column, column)
            self._decompose(arrays, output)
        return arrays

    def _decompose(self, arrays: Arrays, output: int) -> None:
        outer = arrays["outer"][output]
        matrix = projection(len(outer), self.rank, self.seed)
        basis = np.linalg.qr(outer @ matrix.T).Q
        _, values, directions = np.linalg.svd(basis.T @ outer, full_matrices=False)
        self._keep(arrays, output, directions.T, values)

    def merge(self, arrays: Arrays, other: Arrays, total: Array | None = None) -> Arrays:
        arrays["outer"] += other["outer"]
        for output in range(len(arrays["outer"])):
            self._decompose(arrays, output)
        return arrays
