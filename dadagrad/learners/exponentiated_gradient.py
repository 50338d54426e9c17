"""Exponentiated gradient, EG and EG+- (Kivinen and Warmuth 1997).

EG keeps positive weights of l1 norm `radius` U, and multiplies where gradient descent adds:

    w_t+1,i = U w_t,i exp(-eta U g_i) / sum_j w_t,j exp(-eta U g_j),   w_1,i = U / n,   g = slope x

EG+- does the same on the row (x, -x) of 2 n values, and so reaches every w with |w|_1 <= U. Its
two halves are exp(score_i) and exp(-score_i) times one factor, so one score per weight is enough:

    EG     w_i = U exp(score_i) / Z,           Z = sum_j exp(score_j)
    EG+-   w_i = U 2 sinh(score_i) / Z,        Z = sum_j 2 cosh(score_j)

with score = -eta U sum g. log Z is kept in a tree over the scores, so a row costs O(nnz log n), and
nothing overflows, however large a score. The gradient of the loss by the point w / U of the
simplex is U g, which is where U enters the exponent.

With l_t = U g_t in that simplex, for any u of l1 norm U (and any signs in EG+-, where n is 2 n)

    sum_t <g_t, w_t - u>  <=  log(n) / eta + eta / 2 sum_t |l_t|_inf^2.

A row of importance c has its loss counted c times: c g in place of g.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dadagrad.learners import log_sum_tree
from dadagrad.learners.base import (
    Array,
    Ids,
    LearnerState,
    Shapes,
    counts,
    require_positive,
    rows_of,
)
from dadagrad.losses import Loss


@dataclass(frozen=True, slots=True)
class ExponentiatedGradient:
    """EG, or EG+- if `signed`. O(nnz n_outputs log n_features) a row.

    Arrays: `scores` (n_features, n_outputs); `sums_0`, `sums_1`, ... the levels of the tree over
    them, of which the last is (1, n_outputs): log Z.

    Attributes
    ----------
    loss : Loss
    step_size : float
        eta.
    radius : float
        U, the l1 norm of the weights of an output (in EG+-: the most it can be).
    signed : bool
        Whether weights may be negative.

    Raises
    ------
    InputError
        If a setting is not a finite number above 0.
    """

    loss: Loss
    step_size: float = 0.1
    radius: float = 1.0
    signed: bool = False

    local: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_positive("step_size", self.step_size)
        require_positive("radius", self.radius)

    def init(self, n_features: int, n_outputs: int) -> LearnerState:
        arrays = {"scores": np.zeros((n_features, n_outputs))}
        state = LearnerState(0.0, arrays)
        levels = log_sum_tree.build(
            lambda ids: self._log_shares(arrays["scores"][ids]), n_features, n_outputs
        )
        arrays.update({f"sums_{depth}": level for depth, level in enumerate(levels)})
        return state

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        sizes = (n_features, *log_sum_tree.sizes(n_features))
        names = ("scores", *(f"sums_{depth}" for depth in range(len(sizes) - 1)))
        return {name: (size, n_outputs) for name, size in zip(names, sizes, strict=True)}

    def margins(self, state: LearnerState, ids: Ids, values: Array) -> Array:
        margins: Array = values @ self.weights(state, ids)
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
        slopes = importance * self.loss.slope(margins, targets)
        if not slopes.any():
            return state
        values = np.asarray(values, np.float64)
        scores = state.arrays["scores"]
        scores[ids] -= self.step_size * self.radius * np.outer(values, slopes)
        log_sum_tree.refresh(
            _levels(state), lambda places: self._log_shares(scores[places]), len(scores), ids
        )
        return state

    def weights(self, state: LearnerState, ids: Ids | None = None) -> Array:
        scores = rows_of(state.arrays["scores"], ids)
        log_sum = _levels(state)[-1]
        if not self.signed:
            return self.radius * np.exp(scores - log_sum)
        # 2 sinh(s) / Z, as the larger exponential times what the smaller one takes away from it.
        size = np.abs(scores)
        return -self.radius * np.sign(scores) * np.exp(size - log_sum) * np.expm1(-2.0 * size)

    def _log_shares(self, scores: Array) -> Array:
        """The logarithm of what each score adds to Z."""
        return np.logaddexp(scores, -scores) if self.signed else scores


def _levels(state: LearnerState) -> list[Array]:
    """The levels of the tree, from the leaves up."""
    return [state.arrays[f"sums_{depth}"] for depth in range(len(state.arrays) - 1)]
