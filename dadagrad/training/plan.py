"""The plan: which rows make up which step, fixed before the first is read.

A plan depends on the partitions, the batch size, the lanes, the passes and the seed, and on
nothing else: not on threads, workers or who is fast. It is what makes the bits of a run the same
everywhere, and a cursor into it is all that a checkpoint needs to say where it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import TypeVar

import numpy as np

T = TypeVar("T")

CHUNK_ROWS = 262_144
"""Rows walked in one go, at most: nearly always all of a partition, whose share of the state is
taken out and put back each time."""

PLAIN_CHUNK_ROWS = 32_768
"""The same for algorithms that are not compiled, which are slow and have no such share."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows ``start:stop`` of a partition, worked on in one go.

    `visit` tells one reading of a partition from the next pass's; `last` marks the piece after
    which the visit is over, `final` the one after which no other visit comes to the partition.
    """

    visit: int
    partition: int
    start: int
    stop: int
    last: bool
    final: bool = False

    @property
    def n_rows(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place between two rounds: `round` counts from the start of the pass."""

    pass_number: int = 0
    round: int = 0


def n_turns(lanes: int, delay: int) -> int:
    """How many groups of lanes give rows to batches in turn.

    With a delay several batches are under way at a time. Where they take their rows from different
    partitions, each of them is worked on at one place, in one message, while others are at others.
    A power of two, so that the groups can be shared out evenly among 1, 2, 4, ... workers; and one
    that divides the batches under way, so that each group has as many of them as the others.
    """
    under_way = delay + 1
    return min(under_way & -under_way, 1 << (lanes.bit_length() - 1))


def in_passes(
    start: Cursor, passes: int, rounds: Callable[[int], Iterable[T]]
) -> Iterator[tuple[Cursor, Cursor, T]]:
    """What there is to do from `start` on, each with the places before and after it.

    `rounds` says what there is in a pass.
    """
    for pass_number in range(start.pass_number, passes):
        found = iter(rounds(pass_number))
        following = next(found, None)
        number = 0
        while following is not None:
            content, following = following, next(found, None)
            is_last = following is None
            after = Cursor(pass_number + 1) if is_last else Cursor(pass_number, number + 1)
            if pass_number > start.pass_number or number >= start.round:
                yield Cursor(pass_number, number), after, content
            number += 1


@dataclass(frozen=True, slots=True)
class Round:
    """What is worked on side by side: the pieces of one batch, or one stretch of the walk.

    `cursor` is the place before the round, `after` the place after it.
    """

    cursor: Cursor
    after: Cursor
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The rounds of a run.

    Attributes
    ----------
    partition_rows : tuple of int
        Rows of each partition.
    batch_size : int
        Rows of a step at most; 1 plans the online walk, one partition after the other.
    lanes : int
        Partitions that are walked at the same time.
    passes : int
    shuffle : bool
        Whether each pass has its own order of partitions.
    seed : int
    chunk_rows : int
        Rows that the online walk takes between two looks at the outside world; no bit of the
        model depends on it.
    turns : int
        At most as many as lanes. Lanes give rows to a batch all together, or in so many turns:
        batch b takes those of the lanes whose number leaves the same remainder as b.
    """

    partition_rows: tuple[int, ...]
    batch_size: int
    lanes: int
    passes: int
    shuffle: bool
    seed: int
    chunk_rows: int = CHUNK_ROWS
    turns: int = 1

    def order(self, pass_number: int) -> Sequence[int]:
        """The partitions that have rows, in the order of the pass."""
        filled = [number for number, rows in enumerate(self.partition_rows) if rows]
        if not self.shuffle:
            return filled
        generator = np.random.default_rng([self.seed, pass_number])
        return [filled[position] for position in generator.permutation(len(filled))]

    def rounds(self, start: Cursor) -> Iterator[Round]:
        """The rounds from `start` on, over all the passes that are left."""
        batches = self._walk if self.batch_size == 1 else self._lanes
        return starmap(Round, in_passes(start, self.passes, batches))

    def _batch_sizes(self) -> Iterator[int]:
        """Rows of each batch of a pass: at most `batch_size`, and even.

        A short last batch would count as much as any other: its few rows would be learned from
        with many times the weight of the rest.
        """
        n_rows = sum(self.partition_rows)
        n_batches = -(-n_rows // self.batch_size)
        share, extra = divmod(n_rows, n_batches) if n_batches else (0, 0)
        for number in range(n_batches):
            yield share + (number < extra)

    def _visit(self, pass_number: int, position: int) -> int:
        return pass_number * len(self.partition_rows) + position

    def _walk(self, pass_number: int) -> Iterator[tuple[Piece, ...]]:
        in_last_pass = pass_number + 1 == self.passes
        for position, partition in enumerate(self.order(pass_number)):
            rows = self.partition_rows[partition]
            visit = self._visit(pass_number, position)
            for start in range(0, rows, self.chunk_rows):
                stop = min(start + self.chunk_rows, rows)
                last = stop == rows
                yield (Piece(visit, partition, start, stop, last, last and in_last_pass),)

    def _lanes(self, pass_number: int) -> Iterator[tuple[Piece, ...]]:
        in_last_pass = pass_number + 1 == self.passes
        # A partition has the same turn in every pass, unless other turns run out of theirs first:
        # the worker that has read it can keep it.
        waiting: list[deque[tuple[int, int]]] = [deque() for _ in range(self.turns)]
        for position, partition in enumerate(self.order(pass_number)):
            visit = self._visit(pass_number, position)
            waiting[partition % self.turns].append((visit, partition))
        # By turn. A lane is [visit, partition, next row]; it ends when no partition waits for it.
        lanes: list[list[list[int]]] = [[] for _ in range(self.turns)]

        def refill() -> None:
            for number in range(self.lanes):
                place, turn = divmod(number, self.turns)
                from_here = waiting[turn] or max(waiting, key=len)
                if len(lanes[turn]) <= place and from_here:
                    lanes[turn].append([*from_here.popleft(), 0])

        refill()
        for batch, missing in enumerate(self._batch_sizes()):
            pieces: dict[int, Piece] = {}
            while missing and any(lanes):
                turn = batch % self.turns
                giving = lanes[turn] or next(filter(None, lanes))
                share, extra = divmod(missing, len(giving))
                for number, lane in enumerate(giving):
                    visit, partition, start = lane
                    rows = self.partition_rows[partition]
                    stop = min(start + share + (number < extra), rows)
                    if stop > start:
                        # Where another lane ran dry, this one gives a second time.
                        first = pieces[visit].start if visit in pieces else start
                        last = stop == rows
                        pieces[visit] = Piece(
                            visit, partition, first, stop, last, last and in_last_pass
                        )
                    missing -= stop - start
                    lane[2] = stop
                giving[:] = [lane for lane in giving if lane[2] < self.partition_rows[lane[1]]]
                refill()
            yield tuple(pieces.values())
