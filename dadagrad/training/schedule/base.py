"""Slices, rounds and the places between rounds: the words in which schedules are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise, zip_longest
from typing import TypeAlias

import numpy as np

CHUNK_ROWS = 262_144
"""Rows worked on in one go, at most: nearly always all of a partition, whose part of the state is
copied out and back each time."""

PLAIN_CHUNK_ROWS = 32_768
"""The same for algorithms that are not compiled, which are slow and copy nothing."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows ``start:stop`` of a partition, within one batch or one stretch of a stream.

    `reading` is the number of one reading of the partition, which another pass reads again; `last`
    marks the last slice of a reading, `final` the last slice of the partition in the run. Of one of
    several datasets, `in_dataset` has the reading and the partition as they are numbered there.
    """

    reading: int
    partition: int
    start: int
    stop: int
    last: bool
    final: bool = False
    in_dataset: tuple[int, int] | None = None

    @property
    def n_rows(self) -> int:
        return self.stop - self.start


Stretch: TypeAlias = tuple[Slice, ...]
"""Slices that are worked on one after the other: those of one stream in one round."""


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """A place between two rounds: `round` counts from the start of the pass.

    It is all that a checkpoint needs to say where the run was.
    """

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
        columns = zip_longest(*self.stretches)
        return [slice_ for column in columns for slice_ in column if slice_ is not None]


@dataclass(frozen=True)
class Schedule(ABC):
    """The rounds of a run, fixed before the first row is read.

    They depend on these fields and nothing else: not on threads, workers or who is fast.

    Attributes
    ----------
    partition_rows : tuple of int
        Rows of each partition.
    shuffle : bool
        Whether each pass has its own order of partitions.
    chunk_rows : int
        Rows of a slice at most, where each row is a step; no bit of the model depends on it.
    batch_size : int
        Rows of a step at most.
    """

    partition_rows: tuple[int, ...]
    passes: int = 1
    shuffle: bool = True
    seed: int = 0
    chunk_rows: int = CHUNK_ROWS
    batch_size: int = 1

    def order(self, pass_number: int) -> Sequence[int]:
        """The partitions that have rows, in the order of the pass."""
        filled = [number for number, rows in enumerate(self.partition_rows) if rows]
        if not self.shuffle:
            return filled
        generator = np.random.default_rng([self.seed, pass_number])
        return [filled[position] for position in generator.permutation(len(filled))]

    def rounds(self, start: Cursor, stop: Cursor | None = None) -> Iterator[Round]:
        """The rounds from `start` to `stop`, by default over all the passes that are left."""
        for pass_number in range(start.pass_number, self.passes):
            contents = chain(self.stretches(pass_number), [()])  # the last stands for no round
            for number, (content, following) in enumerate(pairwise(contents)):
                cursor = Cursor(pass_number, number)
                if cursor == stop:
                    return
                after = Cursor(pass_number, number + 1) if following else Cursor(pass_number + 1)
                if cursor >= start:
                    yield Round(cursor, after, content)
            if stop == Cursor(pass_number + 1):
                return

    @abstractmethod
    def stretches(self, pass_number: int) -> Iterable[tuple[Stretch, ...]]:
        """The stretches of each round of a pass."""

    @property
    def first(self) -> Schedule:
        """The schedule of the first of several datasets."""
        return self


@dataclass(frozen=True)
class SequenceSchedule(Schedule):
    """The schedules of several datasets, one after the other in each pass.

    A pass has the rounds of runs that learn from one dataset each.
    """

    parts: tuple[Schedule, ...] = ()

    @property
    def first(self) -> Schedule:
        return self.parts[0]

    def order(self, pass_number: int) -> list[int]:
        orders = ((before, part.order(pass_number)) for before, part in self._parts())
        return [before + partition for before, order in orders for partition in order]

    def stretches(self, pass_number: int) -> Iterator[tuple[Stretch, ...]]:
        """The stretches of each round, whose partitions and readings are numbered anew."""
        for number, (before, part) in enumerate(self._parts()):
            for stretches in part.stretches(pass_number):
                yield tuple(
                    tuple(
                        replace(
                            slice_,
                            partition=before + slice_.partition,
                            reading=slice_.reading * len(self.parts) + number,
                            in_dataset=(slice_.reading, slice_.partition),
                        )
                        for slice_ in stretch
                    )
                    for stretch in stretches
                )

    def _parts(self) -> Iterator[tuple[int, Schedule]]:
        """Each part, with the number of partitions before it."""
        sizes = (len(part.partition_rows) for part in self.parts)
        return zip(accumulate(sizes, initial=0), self.parts, strict=False)
