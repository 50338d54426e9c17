"""Preconditioners from a sketch of the gradients by frequent directions.

=====================  ==============================  ===========================================
preconditioner         H                               of
=====================  ==============================  ===========================================
`Sketch`               delta I + (S'S)^(1/2)           ADA-FD (Wan, Wei and Zhang 2018)
`CorrectedSketch`      delta I + (S'S + rho I)^(1/2)   S-AdaGrad (Feinberg et al. 2023), after
                                                       robust frequent directions (Luo et al. 2019)
`SketchedNewton`       delta I + S'S, rows of S are    FD-SON (Luo et al. 2016), in the form of
                       g / t^(1/4)                     sec. 3.3 of Wan et al. (2018)
=====================  ==============================  ===========================================

S has `rank` rows and `buffer` further ones. With ``buffer=0`` dual averaging and mirror descent in
`Sketch` are algorithms 1 and 2 of Wan et al. as printed: S is shrunk at every step. By default the
buffer has `rank` rows, and S is shrunk only when all are in use: newer rows count as they are, so
H_t contains g_t at every step and is never further from the full one than the paper's bound.

rho = Delta is the mass that shrinking removed: returned to the sketch, S'S + rho I is never below
G, and delta needs no tuning (it may be 0).
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from dadagrad.optim.arrays import Array, Arrays, Ids, Shapes
from dadagrad.optim.preconditioners import frequent_directions as fd
from dadagrad.optim.preconditioners.base import PRECONDITIONERS, Step
from dadagrad.optim.preconditioners.low_rank import Factors, LowRank
from dadagrad.optim.registry import Count, NonNegative, Rank, register


class _Sketched(LowRank):
    """Base of the three sketches.

    Keeps the arrays of `dadagrad.optim.preconditioners.frequent_directions`, each with a leading
    axis of outputs, and the decomposition of S S' as ``values`` (n_outputs, n_rows) and
    ``vectors``. With r = rank + buffer, a step takes O(r nnz + r^3), and one in buffer + 1 steps
    O(r rank n_features) for its shrink.
    """

    rank: int
    delta: float
    buffer: int | None

    @property
    def n_rows(self) -> int:
        """Rows of S: `rank` and the buffer, which has as many by default."""
        return self.rank + (self.rank if self.buffer is None else self.buffer)

    def init(self, n_features: int, n_outputs: int) -> Arrays:
        arrays = super().init(n_features, n_outputs)
        return {**arrays, "filled": arrays["filled"].astype(np.int64)}

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        of_one = fd.shapes(n_features, self.n_rows)
        return {
            **{name: (n_outputs, *shape) for name, shape in of_one.items()},
            "values": (n_outputs, self.n_rows),
            "vectors": (n_outputs, self.n_rows, self.n_rows),
        }

    def add(self, arrays: Arrays, step: Step) -> Arrays:
        """One more row for each sketch, in place."""
        for output, row in enumerate(step.gradient.T):
            sketch = {key: array[output] for key, array in arrays.items()}
            total = None if step.total is None else step.total[:, output]
            fd.add(sketch, self.rank, row, step.ids, total)
            values, vectors = fd.decompose(sketch)
            sketch["values"][: len(values)] = values
            sketch["vectors"][: len(values), : len(values)] = vectors
        return arrays

    def factors(self, arrays: Arrays, output: int) -> Factors:
        filled = int(arrays["filled"][output, 0])
        values = arrays["values"][output, :filled]
        first = int(np.searchsorted(values, 0.0, side="right"))
        values = values[first:]
        mix = arrays["vectors"][output, :filled, first:filled] / np.sqrt(values)
        curvature, base = self.curvature(values, float(arrays["removed"][output, 0]))
        return Factors(arrays["directions"][output, :, :filled], mix, curvature, base)

    @abstractmethod
    def curvature(self, values: Array, removed: float) -> tuple[Array, float]:
        """H along the directions of S'S with eigenvalues `values`, and across them."""

    def solve_sum(self, arrays: Arrays, total: Array, ids: Ids | None = None) -> Array:
        return self.solve(arrays, total, ids, arrays["products"])


class _Uncorrected(_Sketched):
    """Base of the sketches that forget what shrinking removes."""

    @property
    def divergence_remedy(self) -> str:
        return (
            f"choose corrected-sketch, or a larger delta than {self.delta:g}, which is H in the "
            "directions that the sketch lacks"
        )


@register(PRECONDITIONERS, "sketch")
class Sketch(_Uncorrected):
    """H = delta I + (S'S)^(1/2): ADA-FD."""

    delta: NonNegative = 1e-6
    rank: Rank = 10
    buffer: Count | None = None

    def curvature(self, values: Array, removed: float) -> tuple[Array, float]:
        return self.delta + np.sqrt(values), self.delta


@register(PRECONDITIONERS, "corrected-sketch")
class CorrectedSketch(_Sketched):
    """H = delta I + (S'S + rho I)^(1/2), rho the mass that shrinking removed: S-AdaGrad."""

    rank: Rank = 10
    delta: NonNegative = 0.0
    buffer: Count | None = None

    def curvature(self, values: Array, removed: float) -> tuple[Array, float]:
        return self.delta + np.sqrt(values + removed), self.delta + float(np.sqrt(removed))


@register(PRECONDITIONERS, "fd-son")
class SketchedNewton(_Uncorrected):
    """H = delta I + S'S with the rows g_t / t^(1/4): FD-SON. Keeps t as ``time``."""

    delta: NonNegative = 1e-6
    rank: Rank = 10
    buffer: Count | None = None

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        return {**super().shapes(n_features, n_outputs), "time": (n_outputs,)}

    def add(self, arrays: Arrays, step: Step) -> Arrays:
        time = arrays["time"] + step.importance
        # A first step shorter than 1 must not weigh more than one of length 1.
        rows = step.gradient / np.maximum(time, 1.0) ** 0.25
        return {**super().add(arrays, Step(rows, ids=step.ids)), "time": time}

    def curvature(self, values: Array, removed: float) -> tuple[Array, float]:
        return self.delta + values, self.delta

    def solve_sum(self, arrays: Arrays, total: Array, ids: Ids | None = None) -> Array:
        # The rows are not the gradients of which u is the sum, so S u is not kept.
        return self.solve(arrays, total, ids)
