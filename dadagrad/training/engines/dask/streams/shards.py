"""Shards of the state of streams, which the workers of a Dask cluster hold.

The features are cut into shards, and each shard has one or two holders among the workers. The
client decides; workers send each other numbers of features directly, never through the scheduler:

- Before a slice of rows, its worker asks holders for the state of the features that the rows touch.
- When its streams have learned, a worker sends what they changed to the first holders of the
  shards, each the features of its own.
- When all streams have learned, the client asks the first holder of each shard to merge it, in
  place, and to send the merged numbers to the second holder. The next round begins when all have
  answered.

A round is a transaction. Each holder keeps what a merge overwrote, so that all can go back to the
begin of the round. All requests name a `Version`: the round, and an epoch that begins anew
whenever shards get other holders. A worker that froze and comes back has an old epoch, and nobody
takes its numbers. The content of a shard at the begin of a round depends on the number of the round
alone: a run that goes back to an earlier state gives its rounds new numbers.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dadagrad.training.checkpoints.shards import StoredShard
from dadagrad.training.engines.dask.streams.peers import Version
from dadagrad.training.state.compiled import State
from dadagrad.training.state.slices import FeatureSlice

Base: TypeAlias = State | StoredShard | None
"""State of a shard, here or in a checkpoint; None for zeros."""

Source: TypeAlias = str | Base
"""Address of a worker that has a shard; or what it begins with."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Holders of all shards at the begin of a round.

    Attributes
    ----------
    edges : (n_shards + 1,) int64
        Shard k has the features from ``edges[k]`` to before ``edges[k + 1]``.
    holders : tuple of tuple of str
        Addresses of the workers that hold each shard; the first one merges it.
    """

    version: Version
    edges: NDArray[np.int64]
    holders: tuple[tuple[str, ...], ...]

    def by_first_holder(self) -> dict[str, list[int]]:
        """The shards of which each worker is the first holder."""
        shards: dict[str, list[int]] = defaultdict(list)
        for number, (first, *_) in enumerate(self.holders):
            shards[first].append(number)
        return shards


@dataclass(slots=True)
class Shard:
    """State of the features from `start` on; `before` is what the last merge overwrote.

    `round` is the round at whose begin the state is that of the run.
    """

    start: int
    state: State
    round: int
    before: FeatureSlice[State] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def merging(self, positions: NDArray[np.int64]) -> Iterator[None]:
        """Keep the numbers of some features, which the block overwrites to end the round."""
        self.before = FeatureSlice(positions, self.state.pull(positions))
        try:
            yield
        except BaseException:
            self._undo(self.before)
            raise
        self.round += 1

    def go_back(self, round_number: int) -> bool:
        """Undo a merge of this round; False if the shard is not at it."""
        if self.round == round_number + 1 and self.before is not None:
            self._undo(self.before)
            self.round = round_number
        return self.round == round_number

    def _undo(self, before: FeatureSlice[State]) -> None:
        self.state.push_features(before.ids, before.content)
        self.before = None
