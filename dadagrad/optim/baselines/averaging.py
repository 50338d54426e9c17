"""Averages of the weights over the stream.

The average of the weights that each row met, each counted by the row's importance, is what regret
bounds speak of on data that is drawn at random (Cesa-Bianchi, Conconi and Gentile 2004): its
expected loss exceeds the best by at most the regret per row.

`RunningMean` averages any weights, and costs all of them each time. `Averaged` wraps a learner
whose weights do not change where a row has no feature, and then costs O(nnz n_outputs) a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dadagrad.errors import InputError
from dadagrad.optim.arrays import Array, Arrays, Ids, Shapes
from dadagrad.optim.baselines.base import Learner, LearnerState, Row, copy_rows, counts


@dataclass(slots=True)
class RunningMean:
    """The mean of the weights added so far, by importance.

    Attributes
    ----------
    arrays : dict of str to float64 arrays
        `mean`, shaped as the weights, and `importance` (1,), the total.
    """

    arrays: Arrays

    @classmethod
    def zero(cls, n_features: int, n_outputs: int) -> RunningMean:
        """The mean of nothing yet: all 0."""
        return cls({"mean": np.zeros((n_features, n_outputs)), "importance": np.zeros(1)})

    def add(self, weights: Array, importance: float = 1.0) -> None:
        """Count (n_features, n_outputs) `weights` `importance` times; 0 changes nothing.
        `InputError` if the importance is negative or not finite.
        """
        if not counts(importance):
            return
        total, mean = self.arrays["importance"], self.arrays["mean"]
        total += importance
        mean += importance / total * (weights - mean)

    @property
    def value(self) -> Array:
        """The (n_features, n_outputs) mean, in memory of its own."""
        return self.arrays["mean"].copy()


@dataclass(frozen=True, slots=True)
class Averaged(Learner):
    """A learner that learns as `learner` does, and whose weights are the average of the other's.

    `margins` are those of the learner inside, with which it goes on; `weights` are the average of
    the weights that each row met, before it was learned from.

    Arrays: those of the learner, and `weight_sums` (n_features, n_outputs) with `last_update`
    (n_features,): what the weights of a feature sum to over the rows up to the t of `last_update`.
    The learner must be `local`; if not, `InputError`.
    """

    learner: Learner

    def __post_init__(self) -> None:
        if not self.learner.local:
            raise InputError(
                f"{type(self.learner).__name__} changes the weights of features that a row does "
                "not have, so they cannot be averaged feature by feature; add its weights to a "
                "RunningMean"
            )

    def init(self, n_features: int, n_outputs: int) -> LearnerState:
        state = self.learner.init(n_features, n_outputs)
        state.arrays["weight_sums"] = np.zeros((n_features, n_outputs))
        state.arrays["last_update"] = np.zeros(n_features)
        return state

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        shapes = self.learner.shapes(n_features, n_outputs)
        return {**shapes, "weight_sums": (n_features, n_outputs), "last_update": (n_features,)}

    def margins(self, state: LearnerState, ids: Ids, values: Array) -> Array:
        return self.learner.margins(state, ids, values)

    def _learn(self, state: LearnerState, row: Row) -> None:
        # The row meets the weights as they are before it.
        waited = state.t - state.arrays["last_update"][row.ids]
        met = self.learner.weights(state, row.ids)
        state.arrays["weight_sums"][row.ids] += waited[:, None] * met
        state.arrays["last_update"][row.ids] = state.t
        self.learner._learn(state, row)

    def weights(self, state: LearnerState, ids: Ids | None = None) -> Array:
        present = self.learner.weights(state, ids)
        if state.t == 0.0:
            return present
        waited = state.t - copy_rows(state.arrays["last_update"], ids)
        sums = copy_rows(state.arrays["weight_sums"], ids) + waited[:, None] * present
        mean: Array = sums / state.t
        return mean
