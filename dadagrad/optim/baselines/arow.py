"""Adaptive regularization of weight vectors (Crammer, Kulesza and Dredze 2009).

The weights are a Gaussian N(mu, Sigma), at first N(0, I). A row whose margin is below 1 moves it to

    argmin  KL(N(mu, Sigma) | N(mu_t, Sigma_t)) + (max(0, 1 - y <mu, x>)^2 + x' Sigma x) / (2 r)

which is, with v = x' Sigma_t x (fig. 1),

    beta = 1 / (v + r),   alpha = beta (1 - y <mu_t, x>)
    mu_t+1    = mu_t + alpha y Sigma_t x
    Sigma_t+1 = Sigma_t - beta Sigma_t x x' Sigma_t,   that is  Sigma^-1 += x x' / r

With the logistic loss in place of half the squared hinge the length of the step of mu, s =
sigmoid(-y <mu_t+1, x>) / r, is found by bisection; Sigma moves alike (sec. 6 of Duchi, Hazan and
Singer 2011).

`ArowFull` keeps Sigma whole. `Arow` keeps it diagonal: minimised over diagonal Sigma, the same
objective gives Sigma_ii^-1 += x_i^2 / r.

Each output has a Gaussian of its own and asks for the sign of its target (one-vs-rest). A row of
importance c has both terms of its own counted c times: r / c in place of r. For the full
covariance that is the very step of c rows in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dadagrad.optim.arrays import Array, Ids, Shapes, rows_of
from dadagrad.optim.baselines.base import Learner, LearnerState, Row
from dadagrad.optim.losses import HINGES, Logistic
from dadagrad.optim.registry import Positive, register
from dadagrad.optim.updates import UPDATES


@dataclass(frozen=True)
class _Gaussian(Learner):
    """Base of both. The larger r, the smaller the step of a row."""

    r: Positive = 1.0

    losses: ClassVar[tuple[str, ...]] = (*HINGES, Logistic.name)

    def _steps(self, row: Row, spreads: Array) -> tuple[Array, NDArray[np.bool_]]:
        """The step of each mean along Sigma x, and which outputs move; x' Sigma x is `spreads`."""
        r = self.r / row.importance
        if self.loss.name not in HINGES:
            return self._implicit_steps(row, spreads, 1.0 / r), np.ones(len(row.scores), bool)
        missing = np.maximum(0.0, 1.0 - row.targets * row.scores)
        return missing * (1.0 / (spreads + r)) * row.targets, missing > 0.0

    def weights(self, state: LearnerState, ids: Ids | None = None) -> Array:
        return rows_of(state.arrays["mean"], ids).copy()


@register(UPDATES, "arow")
class Arow(_Gaussian):
    """AROW with a variance per feature and output. O(nnz n_outputs) a row.

    Arrays, (n_features, n_outputs) each: `mean`, and `precision`, which is sum x_i^2 / r over the
    rows learned from, so that the variance is 1 / (1 + precision): both 0 for a feature never seen.
    """

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        return dict.fromkeys(("mean", "precision"), (n_features, n_outputs))

    def _learn(self, state: LearnerState, row: Row) -> None:
        squares, variance = np.square(row.values), self.variances(state, row.ids)
        steps, moves = self._steps(row, squares @ variance)
        state.arrays["mean"][row.ids] += variance * np.outer(row.values, steps)
        state.arrays["precision"][row.ids] += np.outer(squares * (row.importance / self.r), moves)

    def variances(self, state: LearnerState, ids: Ids | None = None) -> Array:
        """The diagonals of Sigma, shaped as the weights: how unsure each weight still is."""
        return 1.0 / (1.0 + rows_of(state.arrays["precision"], ids))


@register(UPDATES, "arow-full")
class ArowFull(_Gaussian):
    """AROW with the whole covariance. O(n_features (nnz + n_features)) a row and output.

    Arrays: `mean` (n_features, n_outputs), `covariance` (n_outputs, n_features, n_features).
    """

    def init(self, n_features: int, n_outputs: int) -> LearnerState:
        state = super().init(n_features, n_outputs)
        state.arrays["covariance"][:] = np.eye(n_features)
        return state

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        covariance = (n_outputs, n_features, n_features)
        return {"mean": (n_features, n_outputs), "covariance": covariance}

    def _learn(self, state: LearnerState, row: Row) -> None:
        covariances = state.arrays["covariance"]
        products = [row.values @ each[row.ids] for each in covariances]  # Sigma x, by symmetry
        spreads = np.array([row.values @ each[row.ids] for each in products])
        steps, moves = self._steps(row, spreads)
        betas = 1.0 / (spreads + self.r / row.importance)
        for output in np.flatnonzero(moves):
            spread = products[output]
            state.arrays["mean"][:, output] += steps[output] * spread
            covariances[output] -= np.outer(betas[output] * spread, spread)
