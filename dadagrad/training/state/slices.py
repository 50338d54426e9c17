"""Features as they go to the work on a slice of rows, and their changes as they come back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dadagrad.kernels.id_sets import common, look_up, unite
from dadagrad.kernels.packed_ids import check_touched
from dadagrad.training.state.compiled import State


class Content(Protocol):
    """Numbers of some features, a row of each array for a feature."""

    @property
    def n_features(self) -> int: ...

    @property
    def arrays(self) -> dict[str, NDArray[Any]]: ...

    def pull(self, positions: NDArray[np.int64]) -> Self:
        """The numbers of the features at some positions."""

    def writeable(self) -> Self:
        """The same numbers, in arrays that a kernel takes: a network makes read-only ones."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of some features, to compute a gradient at.

    `weights` is (k, n_outputs) float32, `intercept` (n_outputs,) float64.
    """

    weights: NDArray[np.float32]
    intercept: NDArray[np.float64]

    @property
    def n_features(self) -> int:
        return len(self.weights)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"weights": self.weights, "intercept": self.intercept}

    def pull(self, positions: NDArray[np.int64]) -> Weights:
        return Weights(self.weights[positions], self.intercept)

    def writeable(self) -> Weights:
        return replace(self, weights=np.require(self.weights, requirements="W"))


@dataclass(frozen=True, slots=True)
class FeatureSlice:
    """Weights or state of the features of a partition that some of its rows may touch.

    Attributes
    ----------
    content : Weights or State
    partial : bool
        True if the features are those that the rows touch, in the order of the partition's
        vocabulary; else they are all of it.
    """

    content: Content
    partial: bool = False

    def take(self, touched: NDArray[np.int32] | None) -> Any:
        """The content of the `touched` positions of the vocabulary; of all of it for None."""
        content = self.content.writeable()
        if touched is None:
            return content
        if not self.partial or not len(touched):  # of a partition that has been skipped since
            return content.pull(touched.astype(np.int64))
        check_touched(content.n_features, touched)
        return content


@dataclass(frozen=True, slots=True)
class LazyFeatureSlice:
    """The same, to be looked up in the coordinator's state, which stays as it is until the round
    ends.

    `read` gives the content of increasing feature ids.
    """

    read: Callable[[NDArray[np.int64]], Content]
    vocabulary: NDArray[np.int64]

    @property
    def partial(self) -> bool:
        """False: all of the vocabulary can be looked up."""
        return False

    def take(self, touched: NDArray[np.int32] | None) -> Any:
        """Slice of some of the features, like `FeatureSlice.take`; only these are looked up."""
        return self.read(self.vocabulary if touched is None else look_up(self.vocabulary, touched))

    def at(self, touched: NDArray[np.int32] | None) -> FeatureSlice:
        """The `touched` features, or all, to be sent to another process."""
        return FeatureSlice(self.take(touched), touched is not None)


@dataclass(frozen=True, slots=True)
class Gradient:
    """The importance-weighted sum of the rows' gradients, of the features where it is not 0.

    Attributes
    ----------
    gradient : (k, n_outputs) float32
    squares : (k, n_outputs) float32, or (0, 0)
        Sum of the squares of the rows' gradients, where the problem needs them.
    intercept : (2, n_outputs) float64
        Sums of the intercept's gradients and of their squares.
    """

    gradient: NDArray[np.float32]
    squares: NDArray[np.float32]
    intercept: NDArray[np.float64]

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"gradient": self.gradient, "squares": self.squares, "intercept": self.intercept}


Change: TypeAlias = Gradient | State
"""Result of the work on a slice: a gradient, or the state after a step for each row."""


@dataclass(frozen=True, slots=True)
class StreamDelta:
    """State of the features that a stream has changed since the beginning of a round.

    Attributes
    ----------
    ids : (k,) int64
        The features, strictly increasing.
    state : State
        Their state, the intercept, and the t that the stream has reached.
    """

    ids: NDArray[np.int64]
    state: State

    def then(self, later: StreamDelta) -> StreamDelta:
        """Both changes, of which `later` wins."""
        ids, *places = unite(self.ids, later.ids)
        n_groups, _, width, _ = later.state.accumulators.shape
        lazy = self.state.last_update.size > 0 or later.state.last_update.size > 0
        joined = replace(
            later.state,
            accumulators=np.empty((n_groups, len(ids), width, 2), np.float32),
            last_update=np.empty((n_groups, len(ids) if lazy else 0)),
        )
        for delta, place in zip((self, later), places, strict=True):
            joined.push(place, delta.state)
        return StreamDelta(ids, joined)

    def put_into(self, ids: NDArray[np.int64], state: State) -> None:
        """Overwrite in `state`, which is that of the increasing `ids`, what the stream changed."""
        places, positions = common(self.ids, ids)
        state.push(positions, self.state.pull(places))
