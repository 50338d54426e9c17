"""Exponentiated gradient, EG and EG+- (Kivinen and Warmuth 1997).

EG keeps positive weights of l1 norm `radius` U, and multiplies where gradient descent adds:

    w_t+1,i = U w_t,i exp(-eta U g_i) / sum_j w_t,j exp(-eta U g_j),   w_1,i = U / n,   g = slope x

EG+- does the same on the row (x, -x) of 2 n values, and so reaches every w with |w|_1 <= U. Its
two halves are exp(score_i) and exp(-score_i) times one factor, so one score per weight is enough:

    EG     w_i = U exp(score_i) / Z,           Z = sum_j exp(score_j)
    EG+-   w_i = U 2 sinh(score_i) / Z,        Z = sum_j 2 cosh(score_j)

with score = -eta U sum g. log Z is kept in a tree over the scores, so a row costs O(nnz log n), and
nothing overflows, however large a score. In the tree each node holds the log-sum-exp of its up to
`FANOUT` children; when some scores change, their ancestors are computed again from their children,
so the tree is a function of the scores alone. The gradient of the loss by the point w / U of the
simplex is U g, which is where U enters the exponent.

With l_t = U g_t in that simplex, for any u of l1 norm U (and any signs in EG+-, where n is 2 n)

    sum_t <g_t, w_t - u>  <=  log(n) / eta + eta / 2 sum_t |l_t|_inf^2.

A row of importance c has its loss counted c times: c g in place of g.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

import numpy as np

from dadagrad.optim.arrays import Array, Arrays, Ids, Shapes, rows_of
from dadagrad.optim.baselines.base import Learner, LearnerState, Row
from dadagrad.optim.registry import BOUND, Positive, register
from dadagrad.optim.updates import UPDATES

FANOUT = 32


@register(UPDATES, "eg")
class ExponentiatedGradient(Learner):
    """EG. O(nnz n_outputs log n_features) a row.

    Arrays: `scores` (n_features, n_outputs); `sums_0`, `sums_1`, ... the levels of the tree over
    them, of which the last is (1, n_outputs): log Z.
    `radius` is U, the l1 norm of the weights of an output (in EG+-: its upper bound), and
    `step_size` is eta.
    """

    radius: Positive = 1.0
    step_size: Positive = field(default=0.1, metadata=BOUND)

    has_step_size: ClassVar[bool] = True
    signed: ClassVar[bool] = False

    def init(self, n_features: int, n_outputs: int) -> LearnerState:
        state = super().init(n_features, n_outputs)
        self._refresh(state.arrays, np.arange(n_features))
        return state

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        shapes: Shapes = {"scores": (n_features, n_outputs)}
        size = n_features
        while len(shapes) == 1 or size > 1:
            size = -(-size // FANOUT)
            shapes[f"sums_{len(shapes) - 1}"] = (size, n_outputs)
        return shapes

    def _learn(self, state: LearnerState, row: Row) -> None:
        slopes = row.importance * self.loss.slope(row.scores, row.targets)
        if slopes.any():
            change = self.step_size * self.radius * np.outer(row.values, slopes)
            state.arrays["scores"][row.ids] -= change
            self._refresh(state.arrays, row.ids)

    def weights(self, state: LearnerState, ids: Ids | None = None) -> Array:
        scores = rows_of(state.arrays["scores"], ids)
        log_sum = _levels(state.arrays)[-1]
        if not self.signed:
            return self.radius * np.exp(scores - log_sum)
        # 2 sinh(s) / Z, as the larger exponential times what the smaller one takes away from it.
        size = np.abs(scores)
        return -self.radius * np.sign(scores) * np.exp(size - log_sum) * np.expm1(-2.0 * size)

    def _refresh(self, arrays: Arrays, ids: Ids) -> None:
        """Compute the ancestors of the scores of `ids` again, from the leaves up."""
        below, touched = arrays["scores"], ids
        for level in _levels(arrays):
            touched = np.unique(touched // FANOUT)
            children = touched[:, None] * FANOUT + np.arange(FANOUT)
            terms = below[np.minimum(children, len(below) - 1)]
            if self.signed and below is arrays["scores"]:
                terms = np.logaddexp(terms, -terms)
            terms[children >= len(below)] = -np.inf
            largest = terms.max(axis=1)
            level[touched] = largest + np.log(np.exp(terms - largest[:, None]).sum(axis=1))
            below = level


@register(UPDATES, "eg-signed")
class SignedExponentiatedGradient(ExponentiatedGradient):
    """EG+-: as `ExponentiatedGradient`, with weights of either sign."""

    signed: ClassVar[bool] = True


def _levels(arrays: Arrays) -> list[Array]:
    """The levels of the tree, from the one above the leaves to the root."""
    return [arrays[f"sums_{depth}"] for depth in range(len(arrays) - 1)]
