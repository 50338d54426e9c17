"""Averages of the weights over the stream.

The average of the weights that each row met, each counted by the row's importance, is what regret
bounds speak of on data that is drawn at random (Cesa-Bianchi, Conconi and Gentile 2004): its
expected loss exceeds the best by at most the regret per row.

`RunningMean` averages any weights, and costs all of them each time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dadagrad.optim.arrays import Array, Arrays
from dadagrad.optim.baselines.base import counts


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
