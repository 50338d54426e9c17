"""What an update needs of a metric, and what all metrics share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import InputError
from dadagrad.regularizers import Regularizer

Array = NDArray[np.float64]
Ids = NDArray[np.int64]
Arrays = dict[str, NDArray[Any]]
"""All that a metric remembers, by name."""
Shapes = dict[str, tuple[int, ...]]
"""Of arrays by name; each of their numbers has 8 bytes."""


class Metric(Protocol):
    """A symmetric positive semi-definite H for each output, made of the gradients so far.

    H_t contains the gradient of step t: the regret bounds of mirror descent need that, and those
    of dual averaging hold with it (Duchi et al. 2011, theorems 5 and 7; Wan et al. 2018,
    theorems 1 and 2). Where H is singular, its inverse is the pseudo-inverse.

    Vectors are (n_features, n_outputs) float64. `ids` are strictly increasing row numbers.
    """

    name: ClassVar[str]

    def init(self, n_features: int, n_outputs: int | None = None) -> Arrays:
        """Before the first gradient. Without `n_outputs` vectors are plain (n_features,)."""

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        """The shapes of what `init` gives, found without taking the memory."""

    def add(
        self,
        arrays: Arrays,
        gradient: Array,
        importance: float = 1.0,
        ids: Ids | None = None,
        total: Array | None = None,
        scales: Array | None = None,
    ) -> Arrays:
        """After one more step; may reuse the memory of `arrays`.

        Parameters
        ----------
        arrays : dict of arrays
        gradient : (n_features, n_outputs) or (len(ids), n_outputs) float64
            As the step takes it: already multiplied by its importance.
        importance : float
            How much time the step takes, for metrics that grow with time.
        ids : (len(ids),) int64, optional
            The rows that `gradient` has; the others are 0.
        total : like `gradient`, optional
            The same rows of u, the sum of all gradients, this one included. An update that gives it
            with every step can call `solve_sum`.
        scales : (n_features,) or (len(ids),) float64, optional
            The largest absolute value that each feature has in the rows of the step, for metrics
            that do not see the scale of a feature.
        """

    def solve(self, arrays: Arrays, vector: Array, ids: Ids | None = None) -> Array:
        """H^-1 `vector`, or only the rows `ids` of the result."""

    def solve_sum(self, arrays: Arrays, total: Array, ids: Ids | None = None) -> Array:
        """H^-1 u, or only the rows `ids` of it, for the sum u that `add` was told of."""

    def multiply(self, arrays: Arrays, vector: Array) -> Array:
        """H `vector`."""

    def prox(
        self,
        arrays: Arrays,
        regularizer: Regularizer,
        center: Array,
        scale: float,
        ids: Ids | None = None,
        start: Array | None = None,
    ) -> Array:
        """argmin_w  scale phi(w) + 1/2 |w - center|_H^2.

        With `ids`, `center` and the result have only those rows: for `Separable` metrics with a
        regularizer that does not couple features, and for any without a regularizer. `start` is
        where to look first.
        """

    def merge(self, arrays: Arrays, other: Arrays, total: Array | None = None) -> Arrays:
        """The metric of two disjoint streams together; may reuse the memory of `arrays`.

        `total` is the sum u of both streams, (n_features, n_outputs), for `solve_sum`.
        """


class Separable(ABC):
    """A diagonal H: each weight has a curvature of its own.

    `local` tells whether a gradient of 0 leaves a weight's curvature as it is.
    """

    __slots__ = ()
    local: ClassVar[bool] = True

    @abstractmethod
    def curvature(self, arrays: Arrays, ids: Ids | None = None) -> Array:
        """The diagonal of H, or its rows `ids`."""

    def solve(self, arrays: Arrays, vector: Array, ids: Ids | None = None) -> Array:
        """H^-1 `vector`, and 0 where H is 0."""
        return divide(vector if ids is None else vector[ids], self.curvature(arrays, ids))

    def solve_sum(self, arrays: Arrays, total: Array, ids: Ids | None = None) -> Array:
        return self.solve(arrays, total, ids)

    def multiply(self, arrays: Arrays, vector: Array) -> Array:
        return self.curvature(arrays) * vector

    def prox(
        self,
        arrays: Arrays,
        regularizer: Regularizer,
        center: Array,
        scale: float,
        ids: Ids | None = None,
        start: Array | None = None,
    ) -> Array:
        return regularizer.prox(center, self.curvature(arrays, ids), scale)


def divide(vector: Array, curvature: Array) -> Array:
    """`vector` / `curvature`, and 0 where the curvature is 0."""
    return np.divide(vector, curvature, out=np.zeros_like(vector), where=curvature > 0)


def zeros(n_features: int, n_outputs: int | None) -> Array:
    """A vector of zeros: plain without `n_outputs`."""
    return np.zeros(n_features if n_outputs is None else (n_features, n_outputs))


def check_delta(delta: float) -> None:
    """Refuse a `delta` that is negative or not finite; `InputError`."""
    if not (np.isfinite(delta) and delta >= 0):
        raise InputError(f"delta must be finite and not negative, not {delta}")


def check_outputs(name: str, n_outputs: int | None) -> int:
    """The number of outputs, which a metric that is not diagonal must be told; `InputError`."""
    if n_outputs is None:
        raise InputError(
            f"the metric {name!r} takes vectors of shape (n_features, n_outputs); give n_outputs"
        )
    return n_outputs
