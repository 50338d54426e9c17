"""Adaptive regularization of weight vectors (Crammer, Kulesza and Dredze 2009).

The weights are a Gaussian N(mu, Sigma), at first N(0, I). A row whose margin is below 1 moves it to

    argmin  KL(N(mu, Sigma) | N(mu_t, Sigma_t)) + (max(0, 1 - y <mu, x>)^2 + x' Sigma x) / (2 r)

which is, with v = x' Sigma_t x (fig. 1),

    beta = 1 / (v + r),   alpha = beta (1 - y <mu_t, x>)
    mu_t+1    = mu_t + alpha y Sigma_t x
    Sigma_t+1 = Sigma_t - beta Sigma_t x x' Sigma_t,   that is  Sigma^-1 += x x' / r

`ArowFull` keeps Sigma whole. `Arow` keeps it diagonal: minimised over diagonal Sigma, the same
objective gives Sigma_ii^-1 += x_i^2 / r.

Each output has a Gaussian of its own and asks for the sign of its target (one-vs-rest). A row of
importance c has both terms of its own counted c times: r / c in place of r. For the full
covariance that is the very step of c rows in a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dadagrad.optim.baselines.base import (
    Array,
    Ids,
    Learner,
    LearnerState,
    Shapes,
    counts,
    rows_of,
)
from dadagrad.optim.losses import HINGES, Hinge, Loss
from dadagrad.optim.registry import BOUND, check_number
from dadagrad.optim.updates import UPDATES


@UPDATES.register
@dataclass(frozen=True, slots=True)
class Arow(Learner):
    """AROW with a variance per feature and output. O(nnz n_outputs) a row.

    Arrays, (n_features, n_outputs) each: `mean`, and `precision`, which is sum x_i^2 / r over the
    rows learned from, so that the variance is 1 / (1 + precision): both 0 for a feature never seen.

    Attributes
    ----------
    r : float
        Regularization: the larger, the smaller the step of a row.

    Raises
    ------
    InputError
        If r is not a finite number above 0.
    """

    r: float = 1.0
    loss: Loss = field(default=Hinge(), metadata=BOUND)

    name: ClassVar[str] = "arow"
    losses: ClassVar[tuple[str, ...]] = HINGES
    local: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("r", self.r, positive=True)

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        return {"mean": (n_features, n_outputs), "precision": (n_features, n_outputs)}

    def margins(self, state: LearnerState, ids: Ids, values: Array) -> Array:
        margins: Array = values @ state.arrays["mean"][ids]
        return margins

    def learn(
        self,
        state: LearnerState,
        ids: Ids,
        values: Array,
        targets: Array,
        margins: Array,
        importance: float = 1.0,
    ) -> LearnerState:
        if not counts(importance):
            return state
        state.t += importance
        values = np.asarray(values, np.float64)
        r = self.r / importance
        missing = np.maximum(0.0, 1.0 - targets * margins)
        variance = self.variances(state, ids)
        beta = 1.0 / (np.square(values) @ variance + r)
        state.arrays["mean"][ids] += variance * np.outer(values, missing * beta * targets)
        state.arrays["precision"][ids] += np.outer(np.square(values) / r, missing > 0.0)
        return state

    def weights(self, state: LearnerState, ids: Ids | None = None) -> Array:
        return rows_of(state.arrays["mean"], ids)

    def variances(self, state: LearnerState, ids: Ids | None = None) -> Array:
        """The diagonals of Sigma, shaped as the weights: how unsure each weight still is."""
        return 1.0 / (1.0 + rows_of(state.arrays["precision"], ids))


@UPDATES.register
@dataclass(frozen=True, slots=True)
class ArowFull(Learner):
    """AROW with the whole covariance. O(n_features (nnz + n_features)) a row and output.

    Arrays: `mean` (n_features, n_outputs), `covariance` (n_outputs, n_features, n_features).

    Attributes
    ----------
    r : float
        Regularization: the larger, the smaller the step of a row.

    Raises
    ------
    InputError
        If r is not a finite number above 0.
    """

    r: float = 1.0
    loss: Loss = field(default=Hinge(), metadata=BOUND)

    name: ClassVar[str] = "arow-full"
    losses: ClassVar[tuple[str, ...]] = HINGES

    def __post_init__(self) -> None:
        check_number("r", self.r, positive=True)

    def init(self, n_features: int, n_outputs: int) -> LearnerState:
        state = Learner.init(self, n_features, n_outputs)
        state.arrays["covariance"][:] = np.eye(n_features)
        return state

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        covariance = (n_outputs, n_features, n_features)
        return {"mean": (n_features, n_outputs), "covariance": covariance}

    def margins(self, state: LearnerState, ids: Ids, values: Array) -> Array:
        margins: Array = values @ state.arrays["mean"][ids]
        return margins

    def learn(
        self,
        state: LearnerState,
        ids: Ids,
        values: Array,
        targets: Array,
        margins: Array,
        importance: float = 1.0,
    ) -> LearnerState:
        if not counts(importance):
            return state
        state.t += importance
        values = np.asarray(values, np.float64)
        missing = np.maximum(0.0, 1.0 - targets * margins)
        for output in np.flatnonzero(missing > 0.0):
            covariance = state.arrays["covariance"][output]
            spread = values @ covariance[ids]  # Sigma x, by the symmetry of Sigma
            beta = 1.0 / (values @ spread[ids] + self.r / importance)
            state.arrays["mean"][:, output] += missing[output] * beta * targets[output] * spread
            covariance -= np.outer(beta * spread, spread)
        return state

    def weights(self, state: LearnerState, ids: Ids | None = None) -> Array:
        return rows_of(state.arrays["mean"], ids)
