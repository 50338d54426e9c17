"""The sum of a batch: gradients of several slices of rows, added in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dadagrad.kernels.id_sets import DistinctIds, add_at
from dadagrad.problem import Problem
from dadagrad.training.state.slices import FeatureSlice, Gradient


@dataclass(frozen=True, slots=True)
class GradientSum:
    """Sums over the rows of a batch.

    Attributes
    ----------
    ids : (k,) int64
        The features whose sums are not all 0, increasing.
    gradient : (k, n_outputs) float64
    squares : (k, n_outputs) float64, or (0, 0)
    intercept, intercept_squares : (1, n_outputs) float64
        `intercept_squares` is (0, 0) where `squares` is.
    """

    ids: NDArray[np.int64]
    gradient: NDArray[np.float64]
    squares: NDArray[np.float64]
    intercept: NDArray[np.float64]
    intercept_squares: NDArray[np.float64]


class GradientSums:
    """Adds gradients in float64, in the order in which they are given."""

    def __init__(self, problem: Problem) -> None:
        self._n_features = problem.n_features
        self._n_outputs = problem.n_outputs
        self._with_squares = problem.config.accumulate == "row"
        self._distinct: DistinctIds | None = None

    def total(self, slices: Sequence[FeatureSlice[Gradient]]) -> GradientSum:
        """The sum of the gradients of some slices of rows."""
        union, places = self._unite([each.ids for each in slices])
        gradients = [each.content for each in slices]
        intercept = np.zeros((2, self._n_outputs))
        for gradient in gradients:
            intercept += gradient.intercept
        nothing = np.zeros((0, 0))
        return GradientSum(
            union,
            self._add(len(union), places, [gradient.gradient for gradient in gradients]),
            self._add(len(union), places, [gradient.squares for gradient in gradients])
            if self._with_squares
            else nothing,
            intercept[:1],
            intercept[1:] if self._with_squares else nothing,
        )

    def _unite(
        self, ids: Sequence[NDArray[np.int64]]
    ) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
        """The distinct ids, increasing, and the places of all ids among them."""
        if len(ids) == 1:
            return ids[0], [np.arange(len(ids[0]))]
        if self._distinct is None:
            self._distinct = DistinctIds(self._n_features)
        return self._distinct.unite(ids)

    def _add(
        self, n_ids: int, places: list[NDArray[np.int64]], terms: list[NDArray[np.float32]]
    ) -> NDArray[np.float64]:
        sums = np.zeros((n_ids, self._n_outputs))
        for place, term in zip(places, terms, strict=True):
            add_at(sums, place, term)
        return sums
