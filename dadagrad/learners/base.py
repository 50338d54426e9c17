"""What all learners share: their protocol, their state, and the checks of their settings.

A learner sees one row at a time. Its configuration is frozen and its state is explicit: named
arrays and one number, so that whoever holds the state can copy it, store it and go on from it.

    margins = learner.margins(state, ids, values)            # predict, then
    state = learner.learn(state, ids, values, targets, margins)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import InputError

Array = NDArray[np.float64]
Ids = NDArray[np.integer[Any]]
Arrays = dict[str, Array]
Shapes = dict[str, tuple[int, ...]]
"""Of arrays by name; each of their numbers has 8 bytes."""


@dataclass(slots=True)
class LearnerState:
    """Everything a learner remembers of the stream.

    Attributes
    ----------
    t : float
        The importance of the rows learned from so far: their number, if each counts once.
    arrays : dict of str to float64 arrays
        Which ones, and of what shapes, each learner says.
    """

    t: float
    arrays: Arrays

    def copy(self) -> LearnerState:
        """The same state in memory of its own."""
        return LearnerState(self.t, {name: array.copy() for name, array in self.arrays.items()})


class Learner(Protocol):
    """One way to learn linear models row by row.

    `local` tells whether a row changes the weights of its own features alone. Then the weights of
    all others keep their very bits, and averages of weights can be kept up lazily.
    """

    local: ClassVar[bool]

    def init(self, n_features: int, n_outputs: int) -> LearnerState:
        """The state before the first row.

        Raises
        ------
        InputError
            If the settings cannot serve that many features or outputs.
        """

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        """The shapes of the arrays that `init` gives, found without taking the memory."""

    def margins(self, state: LearnerState, ids: Ids, values: Array) -> Array:
        """The (n_outputs,) margins of the row with `values` at the features `ids`."""

    def learn(
        self,
        state: LearnerState,
        ids: Ids,
        values: Array,
        targets: Array,
        margins: Array,
        importance: float = 1.0,
    ) -> LearnerState:
        """The state after one more row; it may reuse the memory of `state`.

        Parameters
        ----------
        state : LearnerState
        ids : (nnz,) integers
            The row's features, each once.
        values : (nnz,) float
        targets : (n_outputs,) float64
            Signs -1 and +1 in classification, numbers in regression.
        margins : (n_outputs,) float64
            What `margins` says of this state and row.
        importance : float
            How many times the row counts; 0 leaves the state as it is, bit for bit.

        Raises
        ------
        InputError
            If the importance is negative or not finite.
        """

    def weights(self, state: LearnerState, ids: Ids | None = None) -> Array:
        """The (n_features, n_outputs) weights, or the (len(ids), n_outputs) of features `ids`."""


def rows_of(array: Array, ids: Ids | None) -> Array:
    """A copy of the rows `ids` of `array`, or of all of it."""
    return array.copy() if ids is None else array[ids]


def counts(importance: float) -> bool:
    """Whether a row of this importance is learned from at all.

    Raises
    ------
    InputError
        If the importance is negative or not finite.
    """
    if not 0.0 <= importance < np.inf:
        raise InputError(
            f"the importance of a row must be finite and not negative, not {importance}; "
            "0 leaves a row out"
        )
    return importance > 0.0


def require_positive(name: str, given: float) -> None:
    """Refuse a setting that is not a finite number above 0.

    Raises
    ------
    InputError
        Naming the setting and what was given.
    """
    number = isinstance(given, int | float | np.number) and not isinstance(given, bool)
    if not (number and np.isfinite(given) and given > 0):
        raise InputError(f"{name} must be a finite number above 0, not {given!r}")


def require_one_of(name: str, given: str, choices: tuple[str, ...]) -> None:
    """Refuse a setting that is none of `choices`.

    Raises
    ------
    InputError
        Naming the setting, what was given and the choices.
    """
    if given not in choices:
        raise InputError(f"{name} {given!r} is not known; choose one of {', '.join(choices)}")
