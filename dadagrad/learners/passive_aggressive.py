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

A row of importance c has its penalty counted c times, which puts c C in place of C. For PA-I that
is the very step of c rows in a row. For PA, whose demand knows no price, any importance above 0 is
the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dadagrad.errors import InputError
from dadagrad.learners.base import (
    Array,
    Ids,
    LearnerState,
    Shapes,
    counts,
    require_one_of,
    require_positive,
    rows_of,
)

VARIANTS = ("pa", "pa-1", "pa-2")
TASKS = ("binary", "multiclass", "regression")


@dataclass(frozen=True, slots=True)
class PassiveAggressive:
    """PA, PA-I or PA-II. O(nnz n_outputs) a row; arrays: weights (n_features, n_outputs).

    Attributes
    ----------
    variant : {"pa", "pa-1", "pa-2"}
    task : {"binary", "multiclass", "regression"}
        "binary" asks each output alone for the sign of its target; "multiclass" takes one +1
        among the targets of a row and separates it from the best of the others.
    aggressiveness : float
        C, the price of slack; "pa" has none and ignores it.
    epsilon : float
        How far off a regression may be without a loss.

    Raises
    ------
    InputError
        If a setting is out of its range.
    """

    variant: str = "pa-1"
    task: str = "binary"
    aggressiveness: float = 1.0
    epsilon: float = 0.1

    local: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_one_of("passive-aggressive variant", self.variant, VARIANTS)
        require_one_of("passive-aggressive task", self.task, TASKS)
        require_positive("aggressiveness", self.aggressiveness)
        if not (np.isfinite(self.epsilon) and self.epsilon >= 0):
            raise InputError(f"epsilon must be finite and not negative, not {self.epsilon}")

    def init(self, n_features: int, n_outputs: int) -> LearnerState:
        if self.task == "multiclass" and n_outputs < 2:
            raise InputError(
                f"multiclass learning needs at least 2 outputs, one per class, not {n_outputs}; "
                "for two classes in one output choose the task 'binary'"
            )
        return LearnerState(0.0, {"weights": np.zeros((n_features, n_outputs))})

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        return {"weights": (n_features, n_outputs)}

    def margins(self, state: LearnerState, ids: Ids, values: Array) -> Array:
        margins: Array = values @ state.arrays["weights"][ids]
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
        squared_length = float(values @ values)
        if self.task == "multiclass":
            squared_length *= 2.0
        if squared_length > 0.0:  # a row without values has the same margin at any weights
            loss, direction = self._demand(targets, margins)
            steps = self._step_lengths(loss, squared_length, importance) * direction
            state.arrays["weights"][ids] += np.outer(values, steps)
        return state

    def weights(self, state: LearnerState, ids: Ids | None = None) -> Array:
        return rows_of(state.arrays["weights"], ids)

    def _demand(self, targets: Array, margins: Array) -> tuple[Array, Array]:
        """The loss of each output, and which way along x it wants to go."""
        if self.task == "binary":
            return np.maximum(0.0, 1.0 - targets * margins), targets
        if self.task == "regression":
            error = targets - margins
            return np.maximum(0.0, np.abs(error) - self.epsilon), np.sign(error)
        right = np.flatnonzero(targets > 0)
        if len(right) != 1:
            raise InputError(
                f"multiclass targets must have one +1 and -1 elsewhere, not {len(right)} above 0"
            )
        wrong = int(np.argmax(np.where(targets > 0, -np.inf, margins)))
        direction = np.zeros(len(margins))
        direction[right], direction[wrong] = 1.0, -1.0
        return np.maximum(0.0, 1.0 - margins[right] + margins[wrong]), direction

    def _step_lengths(self, loss: Array, squared_length: float, importance: float) -> Array:
        """tau, for the C of a row that counts `importance` times."""
        price = self.aggressiveness * importance
        if self.variant == "pa-2":
            return loss / (squared_length + 0.5 / price)
        exact = loss / squared_length
        return exact if self.variant == "pa" else np.minimum(price, exact)
