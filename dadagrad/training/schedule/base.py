"""Slices, rounds and the places between rounds: the words in which schedules are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows ``start:stop`` of a partition, within one batch or one stretch of a stream.

    `reading` is the number of one reading of the partition, which another pass reads again; `last`
    marks the last slice of a reading, `final` the last slice of the partition in the run.
    """

    reading: int
    partition: int
    start: int
    stop: int
    last: bool
    final: bool = False

    @property
    def n_rows(self) -> int:
        return self.stop - self.start


Stretch: TypeAlias = tuple[Slice, ...]
"""Slices that are worked on one after the other: those of one stream in one round."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place between two rounds: `round` counts from the start of the pass."""

    pass_number: int = 0
    round: int = 0


@dataclass(frozen=True, slots=True)
class Round:
    """Work between two changes of the state.

    `cursor` is the place before the round, `after` the place after it. The `stretches` are worked
    on at the same time: one for each stream, or for each slice of a batch.
    """

    cursor: Cursor
    after: Cursor
    stretches: tuple[Stretch, ...]

    @property
    def slices(self) -> list[Slice]:
        """All slices of the round, the first of each stretch before the second of any."""
        depth = max(map(len, self.stretches), default=0)
        return [
            stretch[place]
            for place in range(depth)
            for stretch in self.stretches
            if place < len(stretch)
        ]


class Schedule(Protocol):
    """The rounds of a run, fixed before the first row is read.

    They depend on the rows of the partitions, the settings and the seed, and on nothing else: not
    on threads, workers or who is fast.
    """

    @property
    def partition_rows(self) -> tuple[int, ...]:
        """Rows of each partition."""

    @property
    def batch_size(self) -> int:
        """Rows of a step at most; 1 for one step for each row."""

    @property
    def chunk_rows(self) -> int:
        """Rows of a slice at most, where each row is a step."""

    @property
    def passes(self) -> int: ...

    def order(self, pass_number: int) -> Sequence[int]:
        """The partitions that have rows, in the order of the pass."""

    def rounds(self, start: Cursor) -> Iterator[Round]:
        """The rounds from `start` on, over all the passes that are left."""


def rounds_of_passes(
    start: Cursor, passes: int, stretches: Callable[[int], Iterable[tuple[Stretch, ...]]]
) -> Iterator[Round]:
    """The rounds from `start` on, with the stretches that `stretches` gives for each pass."""
    for pass_number in range(start.pass_number, passes):
        rest = iter(stretches(pass_number))
        following = next(rest, None)
        number = 0
        while following is not None:
            content, following = following, next(rest, None)
            after = (
                Cursor(pass_number + 1) if following is None else Cursor(pass_number, number + 1)
            )
            if pass_number > start.pass_number or number >= start.round:
                yield Round(Cursor(pass_number, number), after, content)
            number += 1
