"""What the coordinator and the engines say to each other.

Events go in, instructions come out; both are plain data. An engine may carry out instructions on
threads or on a cluster, in any order it likes: the coordinator puts results back into the order
of the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dadagrad.method import Method
from dadagrad.training.plan import Cursor, Piece
from dadagrad.training.shares import ShareInState, StateShare
from dadagrad.training.state import State
from dadagrad.training.states import TrainingState
from dadagrad.training.tally import Tally
from dadagrad.training.touched import check_touched

if TYPE_CHECKING:
    from dadagrad.training.gradient_sums import RoundSum

# What a piece is worked on with, and what comes of it.


@dataclass(frozen=True, slots=True)
class Weights:
    """Fixed weights, to compute a gradient at.

    Attributes
    ----------
    weights : (k, n_outputs) float32
    intercept : (n_outputs,) float64
    partial : bool
        Whether they are those of the features that the rows touch, in the order of the partition's
        vocabulary; else those of all of it.
    """

    weights: NDArray[np.float32]
    intercept: NDArray[np.float64]
    partial: bool = False

    def take(self, touched: NDArray[np.int32] | None) -> NDArray[np.float32]:
        """The (k, n_outputs) weights of what is `touched` of the vocabulary; of all for None."""
        if touched is not None:
            if not self.partial:
                return self.weights[touched]
            if not len(touched):  # the partition has been skipped since it was asked for
                return self.weights[:0]
            check_touched(len(self.weights), touched)
        # What came over a network may be read-only, which to a kernel is another type.
        return np.require(self.weights, requirements="W")


@dataclass(frozen=True, slots=True)
class WeightsInState:
    """The same weights, still in the coordinator's state.

    They can be taken until the coordinator is called again, which changes its state. Without delay
    it does so only after the last result of their round: until then, and on any thread.
    """

    method: Method
    state: TrainingState
    vocabulary: NDArray[np.int64]
    intercept: NDArray[np.float64]

    def take(self, touched: NDArray[np.int32] | None) -> NDArray[np.float32]:
        """As `Weights.take`; only what is asked for is looked up."""
        from dadagrad.training.compact import look_up

        ids = self.vocabulary if touched is None else look_up(self.vocabulary, touched)
        return self.state.weights_at(self.method, ids)

    @property
    def partial(self) -> bool:
        """False: all weights of the vocabulary can be taken."""
        return False

    def at(self, touched: NDArray[np.int32] | None) -> Weights:
        """Those of what is `touched`, or all, to be sent to another process."""
        return Weights(self.take(touched), self.intercept, touched is not None)


@dataclass(frozen=True, slots=True)
class Gradient:
    """The importance-weighted sum of the rows' gradients, where it is not 0.

    Attributes
    ----------
    positions : (k,) int32
        Positions in the partition's vocabulary, strictly increasing.
    gradient : (k, n_outputs) float32
    squares : (k, n_outputs) float32, or (0, 0)
        Sum of the squares of the rows' gradients, where the method wants them.
    intercept : (2, n_outputs) float64
        Sums of the intercept's gradients and of their squares.
    tally : Tally
        Its `weight` is the total importance of the rows.
    """

    positions: NDArray[np.int32]
    gradient: NDArray[np.float32]
    squares: NDArray[np.float32]
    intercept: NDArray[np.float64]
    tally: Tally


@dataclass(frozen=True, slots=True)
class Walked:
    """The rows have been walked one by one, and the state that was given has been changed."""

    tally: Tally


@dataclass(frozen=True, slots=True)
class WalkedShare:
    """What a stream has made of the share of the state that it was given.

    Attributes
    ----------
    positions : (k,) int32
        Positions in the partition's vocabulary of the features that it changed, strictly
        increasing.
    state : State
        Theirs, after the rows have been walked one by one.
    tally : Tally
    """

    positions: NDArray[np.int32]
    state: State
    tally: Tally


Given: TypeAlias = Weights | WeightsInState | StateShare | ShareInState | TrainingState
Result: TypeAlias = Gradient | Walked | WalkedShare


# Events: what happened.


@dataclass(frozen=True, slots=True)
class Opened:
    """A partition can be worked on; `vocabulary` is (n_local,) int64."""

    visit: int
    vocabulary: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Computed:
    """What was to be reported as `task` is done."""

    task: int
    result: Result


@dataclass(frozen=True, slots=True)
class SaveRequested:
    """Somebody wants a checkpoint soon."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Somebody wants the run to end soon, to be resumed later."""


Event: TypeAlias = Opened | Computed | SaveRequested | StopRequested


# Instructions: what to do.


@dataclass(frozen=True, slots=True)
class Open:
    """Read a partition, or have it read, and report its vocabulary.

    `ahead` are the pieces whose weights are wanted before a result of this visit is in: what they
    touch can be found out meanwhile. Partitions with the same `moment` are needed at the same time:
    where rounds take their rows, it is the number of the first of them.
    """

    visit: int
    partition: int
    ahead: tuple[Piece, ...] = ()
    moment: int = 0


@dataclass(frozen=True, slots=True)
class Compute:
    """Work on a piece of an open partition, and report it as `task`.

    `ahead` is the piece of this visit whose weights are wanted once the result is in.
    """

    task: int
    piece: Piece
    given: Given
    ahead: Piece | None = None


@dataclass(frozen=True, slots=True)
class Close:
    """The partition will not be needed again in this visit."""

    visit: int


@dataclass(frozen=True, slots=True)
class Report:
    """How far the run is; for people and logs."""

    cursor: Cursor
    steps: int
    tally: Tally


@dataclass(frozen=True, slots=True)
class Save:
    """Keep this state; `state` is the coordinator's own, to be copied before anything else.

    `pending` is what came of the rounds after `cursor` that were under way: with a delay their
    gradients are those of earlier weights, which nobody has any more. Before them come the rounds
    whose steps were made since those weights were taken.
    """

    cursor: Cursor
    steps: int
    tally: Tally
    state: TrainingState
    pending: tuple[RoundSum, ...] = ()


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over: `complete`, or stopped on request."""

    complete: bool


Instruction: TypeAlias = Open | Compute | Close | Report | Save | Finish
