"""The sum of a batch: gradients of several vocabularies, added in a fixed order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dadagrad.method import Method
from dadagrad.training.protocol import Gradient


@dataclass(frozen=True, slots=True)
class GradientSum:
    """Sums over the rows of a batch.

    Attributes
    ----------
    ids : (k,) int64
        The features whose sums are not all 0, each once, in no order.
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
    """Adds the gradients of a batch's pieces, in the order of the pieces, in float64.

    Four bytes per feature say where its sum is, so that no union of vocabularies is ever sorted.
    """

    def __init__(self, method: Method) -> None:
        self._n_features = method.n_features
        self._n_outputs = method.n_outputs
        self._with_squares = method.config.squares == "example"
        self._slots: NDArray[np.int32] | None = None

    def total(
        self, vocabularies: list[NDArray[np.int64]], gradients: list[Gradient]
    ) -> GradientSum:
        """The sum of `gradients`, each of the vocabulary beside it."""
        touched = [
            vocabulary[result.positions]
            for vocabulary, result in zip(vocabularies, gradients, strict=True)
        ]
        if len(touched) == 1:
            ids, places = touched[0], [np.arange(len(touched[0]))]
        else:
            ids, places = self._place(touched)
        intercept = np.zeros((2, self._n_outputs))
        for result in gradients:
            intercept += result.intercept
        nothing = np.zeros((0, 0))
        return GradientSum(
            ids,
            self._add(len(ids), places, [result.gradient for result in gradients]),
            self._add(len(ids), places, [result.squares for result in gradients])
            if self._with_squares
            else nothing,
            intercept[:1],
            intercept[1:] if self._with_squares else nothing,
        )

    def _place(
        self, touched: list[NDArray[np.int64]]
    ) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
        """The distinct ids of `touched`, and where in them each of `touched` is."""
        from dadagrad.training.compact import assign_slots

        if self._slots is None:
            self._slots = np.zeros(self._n_features, np.int32)
        seen = np.empty(sum(map(len, touched)), np.int64)
        places, n_seen = [], 0
        for ids in touched:
            taken, n_seen = assign_slots(self._slots, ids, seen, n_seen)
            places.append(taken)
        seen = seen[:n_seen]
        self._slots[seen] = 0
        return seen, places

    def _add(
        self,
        n_ids: int,
        places: list[NDArray[np.int64]],
        terms: list[NDArray[np.float32]],
    ) -> NDArray[np.float64]:
        from dadagrad.training.compact import add_at

        sums = np.zeros((n_ids, self._n_outputs))
        for place, term in zip(places, terms, strict=True):
            add_at(sums, place, term)
        return sums
