"""What streams walk with: shares of a state, of the features that their rows touch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dadagrad.training.state import State
from dadagrad.training.touched import check_touched


@dataclass(frozen=True, slots=True)
class Walk:
    """How a stream has left the features that it changed.

    Attributes
    ----------
    ids : (k,) int64
        The features, strictly increasing.
    share : State
        Their state, the intercept, and the t that the stream has come to.
    """

    ids: NDArray[np.int64]
    share: State

    def then(self, other: Walk) -> Walk:
        """What the stream has changed that walked on from here to `other`."""
        from dadagrad.training.compact import unite

        ids, *places = unite(self.ids, other.ids)
        n_bundles, _, width, _ = other.share.accumulators.shape
        lazy = self.share.settled.size > 0 or other.share.settled.size > 0
        joined = replace(
            other.share,
            accumulators=np.empty((n_bundles, len(ids), width, 2), np.float32),
            settled=np.empty((n_bundles, len(ids) if lazy else 0)),
        )
        for walk, own in zip((self, other), places, strict=True):
            joined.push(own, walk.share)
        return Walk(ids, joined)

    def put_into(self, ids: NDArray[np.int64], share: State) -> None:
        """Overwrite in `share`, of the increasing `ids`, what the stream has changed of it."""
        from dadagrad.training.compact import common

        places, found = common(self.ids, ids)
        share.push(found, self.share.pull(places))


@dataclass(frozen=True, slots=True)
class StateShare:
    """The state of some features, to walk rows with.

    Attributes
    ----------
    share : State
    partial : bool
        Whether the features are those that the rows touch, in the order of the partition's
        vocabulary; else they are all of it.
    """

    share: State
    partial: bool = False

    def take(self, touched: NDArray[np.int32] | None) -> State:
        """That of what is `touched` of the vocabulary, or of all: as it came, perhaps read-only."""
        if touched is not None:
            if not self.partial or not len(touched):  # a partition that has been skipped since
                # To a kernel what is read-only is another type.
                return self.share.copy().pull(touched.astype(np.int64))
            check_touched(self.share.n_features, touched)
        return self.share


@dataclass(frozen=True, slots=True)
class ShareInState:
    """The same, still in the coordinator's state, which stays as it is until all streams are done.

    `walk` is what the stream has changed since: it goes on from there.
    """

    state: State
    vocabulary: NDArray[np.int64]
    walk: Walk | None

    @property
    def partial(self) -> bool:
        """False: the state of all of the vocabulary can be taken."""
        return False

    def take(self, touched: NDArray[np.int32] | None) -> State:
        """As `StateShare.take`; only what is asked for is looked up."""
        from dadagrad.training.compact import look_up

        ids = self.vocabulary if touched is None else look_up(self.vocabulary, touched)
        share = self.state.pull(ids)
        if self.walk is not None:
            self.walk.put_into(ids, share)
        return share

    def at(self, touched: NDArray[np.int32] | None) -> StateShare:
        """That of what is `touched`, or all, to be sent to another process."""
        return StateShare(self.take(touched), touched is not None)
