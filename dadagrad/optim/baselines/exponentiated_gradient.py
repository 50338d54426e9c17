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

from collections.abc import Callable
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
from dadagrad.optim.losses import Hinge, Loss
from dadagrad.optim.registry import BOUND, check_number
from dadagrad.optim.updates import UPDATES


@UPDATES.register
@dataclass(frozen=True, slots=True)
class ExponentiatedGradient(Learner):
    """EG. O(nnz n_outputs log n_features) a row.

    Arrays: `scores` (n_features, n_outputs); `sums_0`, `sums_1`, ... the levels of the tree over
    them, of which the last is (1, n_outputs): log Z.

    Attributes
    ----------
    radius : float
        U, the l1 norm of the weights of an output (in EG+-: its upper bound).
    loss : Loss
    step_size : float
        eta.
    """

    radius: float = 1.0
    loss: Loss = field(default=Hinge(), metadata=BOUND)
    step_size: float = field(default=0.1, metadata=BOUND)

    name: ClassVar[str] = "eg"
    has_step_size: ClassVar[bool] = True
    signed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("step_size", self.step_size, positive=True)
        check_number("radius", self.radius, positive=True)

    def init(self, n_features: int, n_outputs: int) -> LearnerState:
        arrays = {"scores": np.zeros((n_features, n_outputs))}
        state = LearnerState(0.0, arrays)
        levels = build_tree(
            lambda ids: self._log_shares(arrays["scores"][ids]), n_features, n_outputs
        )
        arrays.update({f"sums_{depth}": level for depth, level in enumerate(levels)})
        return state

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        sizes = (n_features, *tree_sizes(n_features))
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
        refresh_tree(
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
        """The logarithm of the term of each score in Z."""
        return np.logaddexp(scores, -scores) if self.signed else scores


@UPDATES.register
@dataclass(frozen=True, slots=True)
class SignedExponentiatedGradient(ExponentiatedGradient):
    """EG+-: as `ExponentiatedGradient`, with weights of either sign."""

    name: ClassVar[str] = "eg-signed"
    signed: ClassVar[bool] = True


def _levels(state: LearnerState) -> list[Array]:
    """The levels of the tree, from the leaves up."""
    return [state.arrays[f"sums_{depth}"] for depth in range(len(state.arrays) - 1)]


FANOUT = 32


def build_tree(leaves: Callable[[Ids], Array], n_leaves: int, n_columns: int) -> list[Array]:
    """The levels of the tree over `leaves`, from the nodes above them to the (1, n_columns) root.

    Parameters
    ----------
    leaves : function
        Gives the scores at an array of places, with one more axis of n_columns.
    n_leaves, n_columns : int
        At least 1.
    """
    levels = [np.zeros((size, n_columns)) for size in tree_sizes(n_leaves)]
    refresh_tree(levels, leaves, n_leaves, np.arange(n_leaves))
    return levels


def tree_sizes(n_leaves: int) -> list[int]:
    """Number of nodes of each level, from the level above the leaves to the root."""
    found = [-(-n_leaves // FANOUT)]
    while found[-1] > 1:
        found.append(-(-found[-1] // FANOUT))
    return found


def refresh_tree(
    levels: list[Array], leaves: Callable[[Ids], Array], n_leaves: int, ids: Ids
) -> None:
    """Bring the `levels` up to date, in place, after the leaves `ids` changed."""
    below, n_below, touched = leaves, n_leaves, ids
    for level in levels:
        touched = np.unique(touched // FANOUT)
        children = touched[:, None] * FANOUT + np.arange(FANOUT)
        terms = below(np.minimum(children, n_below - 1))
        terms[children >= n_below] = -np.inf
        largest = terms.max(axis=1)
        level[touched] = largest + np.log(np.exp(terms - largest[:, None]).sum(axis=1))
        below, n_below = level.__getitem__, len(level)
