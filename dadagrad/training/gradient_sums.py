"""The sum of a batch: gradients of several vocabularies, added in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dadagrad.method import Method
from dadagrad.training.protocol import Gradient
from dadagrad.training.tally import Tally

if TYPE_CHECKING:
    from dadagrad.training.distinct_ids import DistinctIds


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


@dataclass(frozen=True, slots=True)
class RoundSum:
    """What came of a round: all that its step takes.

    Attributes
    ----------
    total : GradientSum
    tallies : tuple of Tally
        Of its pieces, in their order.
    stepped : bool
        Whether it has made its step.
    """

    total: GradientSum
    tallies: tuple[Tally, ...]
    stepped: bool = False

    @property
    def importance(self) -> float:
        """The total importance of the rows."""
        return sum(tally.weight for tally in self.tallies)


class GradientSums:
    """Adds the gradients of a batch's pieces, in the order of the pieces, in float64."""

    def __init__(self, method: Method) -> None:
        self._n_features = method.n_features
        self._n_outputs = method.n_outputs
        self._with_squares = method.config.squares == "example"
        self._distinct: DistinctIds | None = None

    def total(
        self, vocabularies: list[NDArray[np.int64]], gradients: list[Gradient]
    ) -> GradientSum:
        """The sum of `gradients`, each of the vocabulary beside it."""
        from dadagrad.training.compact import look_up

        touched = [
            look_up(vocabulary, result.positions)
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

    def delayed(self, done: RoundSum, unseen: Sequence[RoundSum]) -> GradientSum:
        """The sums of a round, its squares those for a gradient that is late.

        `unseen` are the rounds that made their steps after the weights of this one were taken. Of
        gradients at the same weights G should collect the square of their sum, as of a batch: with
        b the sum of the mean gradients of `unseen`, the next one adds (b + g)^2 - b^2 = g^2 + 2 g b
        (as AdaptiveRevision does: McMahan and Streeter 2014). Half of the product, where it is
        positive, measured best: g^2 + max(g b, 0). So steps are shorter where late gradients
        agree, and never longer.
        """
        from dadagrad.training.compact import add_common

        ids = done.total.ids
        before = np.zeros((len(ids), self._n_outputs))
        before_intercept = np.zeros((1, self._n_outputs))
        for earlier in unseen:
            if earlier.importance > 0.0:
                total, importance = earlier.total, earlier.importance
                add_common(before, ids, total.ids, total.gradient, importance)
                before_intercept += total.intercept / importance
        total, importance = done.total, done.importance
        return replace(
            total,
            squares=_grown(total.gradient, total.squares, before, importance),
            intercept_squares=_grown(
                total.intercept, total.intercept_squares, before_intercept, importance
            ),
        )

    def _place(
        self, touched: list[NDArray[np.int64]]
    ) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
        """The distinct ids of `touched`, and where in them each of `touched` is."""
        from dadagrad.training.distinct_ids import DistinctIds

        if self._distinct is None:
            self._distinct = DistinctIds(self._n_features)
        return self._distinct.among(touched)

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


def _grown(
    gradient: NDArray[np.float64],
    squares: NDArray[np.float64],
    before: NDArray[np.float64],
    importance: float,
) -> NDArray[np.float64]:
    """What G collects, times the importance; for an own square where `squares` is (0, 0)."""
    mean = gradient / importance
    own = squares / importance if len(squares) else np.square(mean)
    grown: NDArray[np.float64] = importance * (own + np.maximum(mean * before, 0.0))
    return grown
