"""The base class of updates that learn row by row, and their state.

A learner sees one row at a time. Its parameters are frozen and its state is explicit: named arrays
and one number, which can be copied, stored and continued.

    scores = learner.scores(state, ids, values)                     # predict, then
    state = learner.learn(state, Row(ids, values, targets, scores))
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from dadagrad.optim.arrays import Array, Arrays, Ids
from dadagrad.optim.losses import Hinge, Loss
from dadagrad.optim.registry import BOUND
from dadagrad.optim.updates import Update

HALVINGS = 50
"""Bisections of an implicit step: what is left is rounding."""


@dataclass(slots=True)
class LearnerState:
    """State of a learner: float64 arrays by name, as `Learner.shapes` lists them.

    `t` is the importance of the rows learned from so far: their number, if each counts once.
    """

    t: float
    arrays: Arrays

    def with_arrays(self, arrays: Arrays, t: float) -> LearnerState:
        return LearnerState(t, arrays)


class Row(NamedTuple):
    """A row to learn from.

    Attributes
    ----------
    ids, values : (nnz,) int64 and float64
        The row's features, each once.
    targets : (n_outputs,) float64
        Signs -1 and +1 in classification, numbers in regression.
    scores : (n_outputs,) float64
        The result of `Learner.scores` for the present state and this row.
    importance : float
        Weight of the row; 0 leaves the state as it is, bit for bit.
    """

    ids: Ids
    values: Array
    targets: Array
    scores: Array
    importance: float = 1.0


@dataclass(frozen=True)
class Learner(Update):
    """Update that learns linear models row by row, by the slopes or the task of its loss.

    A subclass defines `shapes`, `weights` and `_learn`, and `init` if its arrays are not 0 at
    first.
    """

    loss: Loss = field(default=Hinge(), metadata=BOUND, kw_only=True)

    by_row: ClassVar[bool] = True
    takes_batches: ClassVar[bool] = False
    uses_penalties: ClassVar[bool] = False
    has_step_size: ClassVar[bool] = False

    def init(self, n_features: int, n_outputs: int) -> LearnerState:
        """The state before the first row; `InputError` if the settings cannot serve the sizes."""
        shapes = self.shapes(n_features, n_outputs)
        return LearnerState(0.0, {name: np.zeros(shape) for name, shape in shapes.items()})

    def scores(self, state: LearnerState, ids: Ids, values: Array) -> Array:
        """The (n_outputs,) scores of the row with `values` at the features `ids`."""
        return values @ self.weights(state, ids)

    def learn(self, state: LearnerState, row: Row) -> LearnerState:
        """The state after one more row; it may reuse the memory of `state`."""
        if row.importance > 0.0:
            state.t += row.importance
            self._learn(state, row)
        return state

    @abstractmethod
    def _learn(self, state: LearnerState, row: Row) -> None:
        """Change the arrays of `state`, whose t counts the row already."""

    def _implicit_steps(self, row: Row, spreads: Array | float, price: float) -> Array:
        """s with s = -price * slope(scores + s * spreads) for each output.

        Steps s x in a metric with x' H^-1 x = spreads minimise the distance to the present weights
        plus price times the loss *after* the step. Bisection between no step and the explicit one.
        """
        near, far = np.zeros_like(row.scores), -price * self.loss.slope(row.scores, row.targets)
        for _ in range(HALVINGS):
            middle = 0.5 * (near + far)
            after = -price * self.loss.slope(row.scores + middle * spreads, row.targets)
            short = np.abs(middle) < np.abs(after)
            near, far = np.where(short, middle, near), np.where(short, far, middle)
        return 0.5 * (near + far)


@dataclass(frozen=True)
class GradientLearner(Learner):
    """Learner whose step is a function of a gradient: that of a row, or the mean of a batch."""

    takes_batches: ClassVar[bool] = True

    def step(self, state: LearnerState, gradient: Array, ids: Ids) -> LearnerState:
        """The state after a batch, which counts as one row, with its mean `gradient` at `ids`."""
        state.t += 1.0
        self._step(state, gradient, ids, 1.0)
        return state

    def _learn(self, state: LearnerState, row: Row) -> None:
        slopes = self.loss.slope(row.scores, row.targets)
        self._step(state, np.outer(row.values, slopes), row.ids, row.importance)

    @abstractmethod
    def _step(self, state: LearnerState, gradient: Array, ids: Ids, importance: float) -> None:
        """Change the arrays of `state`, whose t counts the step already."""
