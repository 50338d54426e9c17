"""Passive-aggressive learning (Crammer, Dekel, Keshet, Shalev-Shwartz and Singer 2006).

Each row asks for a margin. Where the weights give it, nothing happens (passive); where they do
not, they move to the nearest point that does (aggressive), or as far towards it as C allows:

    w_t+1 = argmin_w  1/2 |w - w_t|^2 + penalty(slack),   slack >= loss(w; x, y)

    PA     no slack                          tau = loss / |x|^2
    PA-I   penalty C slack,  slack >= 0      tau = min(C, loss / |x|^2)
    PA-II  penalty C slack^2                 tau = loss / (|x|^2 + 1 / (2 C))

=============  ==========================================  =======================================
task           loss                                        step
=============  ==========================================  =======================================
binary         max(0, 1 - y m), each output alone          w += tau y x
regression     max(0, abs(m - y) - epsilon)                w += tau sign(y - m) x
multiclass     max(0, 1 - m_y + m_s), s the wrong output   w_y += tau x, w_s -= tau x, and 2 |x|^2
               of the largest margin                       in place of |x|^2
=============  ==========================================  =======================================

With the logistic loss, PA-I minimises 1/2 |w - w_t|^2 + C log(1 + exp(-y m)), which has no closed
form: the length of the step is found by bisection (sec. 6 of Duchi, Hazan and Singer 2011).

A row of importance c has its penalty counted c times, which puts c C in place of C. For PA-I that
is the very step of c rows in a row. For PA, whose demand knows no price, any importance above 0 is
the same.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dadagrad.errors import InputError
from dadagrad.optim.arrays import Array, Ids, Shapes, rows_of
from dadagrad.optim.baselines.base import Learner, LearnerState, Row
from dadagrad.optim.losses import HINGES, Logistic
from dadagrad.optim.registry import NonNegative, Positive, register
from dadagrad.optim.updates import UPDATES

MARGINS = (*HINGES, "multiclass-hinge", "absolute")
"""Losses whose task PA solves by a margin."""


@register(UPDATES, "pa")
class PassiveAggressive(Learner):
    """PA. O(nnz n_outputs) a row; arrays: weights (n_features, n_outputs).

    The task is that of the loss, but the loss is PA's own. "binary" and "ranking" ask each output
    alone for the sign of its label; "multiclass" takes one +1 among the labels of a row and
    separates it from the best of the others; "regression" has no loss within `epsilon`.
    """

    epsilon: NonNegative = 0.1

    losses: ClassVar[tuple[str, ...]] = MARGINS

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        return {"weights": (n_features, n_outputs)}

    def _learn(self, state: LearnerState, row: Row) -> None:
        squared_length = float(row.values @ row.values)
        if self.loss.couples:
            squared_length *= 2.0
        if squared_length > 0.0:  # a row without values has the same margin at any weights
            steps = self._steps(row, squared_length)
            state.arrays["weights"][row.ids] += np.outer(row.values, steps)

    def weights(self, state: LearnerState, ids: Ids | None = None) -> Array:
        return rows_of(state.arrays["weights"], ids).copy()

    def _steps(self, row: Row, squared_length: float) -> Array:
        """The step of each output along x."""
        loss, direction = self._demand(row.targets, row.scores)
        return self._step_lengths(loss, squared_length, row.importance) * direction

    def _demand(self, targets: Array, scores: Array) -> tuple[Array, Array]:
        """The loss of each output, and the direction of its step along x."""
        if self.loss.task in ("binary", "ranking"):
            return np.maximum(0.0, 1.0 - targets * scores), targets
        if self.loss.task == "regression":
            error = targets - scores
            return np.maximum(0.0, np.abs(error) - self.epsilon), np.sign(error)
        right = np.flatnonzero(targets > 0)
        if len(right) != 1:
            raise InputError(
                f"multiclass targets must have one +1 and -1 elsewhere, not {len(right)} above 0"
            )
        wrong = int(np.argmax(np.where(targets > 0, -np.inf, scores)))
        direction = np.zeros(len(scores))
        direction[right], direction[wrong] = 1.0, -1.0
        return np.maximum(0.0, 1.0 - scores[right] + scores[wrong]), direction

    def _step_lengths(self, loss: Array, squared_length: float, importance: float) -> Array:
        """tau of a row that counts `importance` times."""
        return loss / squared_length


@register(UPDATES, "pa-1")
class PassiveAggressive1(PassiveAggressive):
    """PA-I: as `PassiveAggressive`, with steps of at most C, the price of slack."""

    C: Positive = 1.0

    losses: ClassVar[tuple[str, ...]] = (*MARGINS, Logistic.name)

    def _steps(self, row: Row, squared_length: float) -> Array:
        if self.loss.name in MARGINS:
            return super()._steps(row, squared_length)
        return self._implicit_steps(row, squared_length, self.C * row.importance)

    def _step_lengths(self, loss: Array, squared_length: float, importance: float) -> Array:
        return np.minimum(self.C * importance, loss / squared_length)


@register(UPDATES, "pa-2")
class PassiveAggressive2(PassiveAggressive1):
    """PA-II: as `PassiveAggressive`, with a squared price C slack^2."""

    losses: ClassVar[tuple[str, ...]] = MARGINS

    def _step_lengths(self, loss: Array, squared_length: float, importance: float) -> Array:
        return loss / (squared_length + 0.5 / (self.C * importance))
