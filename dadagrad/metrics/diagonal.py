"""The diagonal metric of AdaGrad (Duchi, Hazan and Singer 2011, fig. 1).

H = delta I + diag(sqrt(G)),   G_i = sum over steps of g_i^2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dadagrad.metrics.metric import Array, Arrays, Ids, Separable, Shapes, check_delta, zeros


@dataclass(frozen=True, slots=True)
class Diagonal(Separable):
    """H_i = delta + sqrt(G_i): a coordinate slows down as it collects gradient.

    Keeps G as ``squares``.
    """

    delta: float
    name: ClassVar[str] = "diagonal"

    def __post_init__(self) -> None:
        check_delta(self.delta)

    def init(self, n_features: int, n_outputs: int | None = None) -> Arrays:
        return {"squares": zeros(n_features, n_outputs)}

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        return {"squares": (n_features, n_outputs)}

    def add(
        self,
        arrays: Arrays,
        gradient: Array,
        importance: float = 1.0,
        ids: Ids | None = None,
        total: Array | None = None,
        scales: Array | None = None,
    ) -> Arrays:
        if ids is None:
            return {"squares": arrays["squares"] + np.square(gradient)}
        arrays["squares"][ids] += np.square(gradient)
        return arrays

    def curvature(self, arrays: Arrays, ids: Ids | None = None) -> Array:
        squares = arrays["squares"] if ids is None else arrays["squares"][ids]
        return self.delta + np.sqrt(squares)

    def merge(self, arrays: Arrays, other: Arrays, total: Array | None = None) -> Arrays:
        return {"squares": arrays["squares"] + other["squares"]}
