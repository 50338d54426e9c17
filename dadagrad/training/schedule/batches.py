"""The schedule of batches: which rows make up which step; and that of the online pass.

A cursor into a schedule is all that a checkpoint needs to say where the run was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dadagrad.training.schedule.base import Cursor, Round, Slice, Stretch, rounds_of_passes

CHUNK_ROWS = 262_144
"""Rows worked on in one go, at most: nearly always all of a partition, whose part of the state is
copied out and back each time."""

PLAIN_CHUNK_ROWS = 32_768
"""The same for algorithms that are not compiled, which are slow and copy nothing."""


@dataclass(frozen=True, slots=True)
class BatchSchedule:
    """Rounds of one batch each, or of neighbouring rows with one step each.

    Attributes
    ----------
    partition_rows : tuple of int
        Rows of each partition.
    batch_size : int
        Rows of a step at most; 1 makes the online pass, one partition after the
        other.
    partitions_per_batch : int
        Number of partitions that each batch takes rows from.
    passes : int
    shuffle : bool
        Whether each pass has its own order of partitions.
    seed : int
    chunk_rows : int
        Rows of a slice of the online pass at most; no bit of the model depends on it.
    """

    partition_rows: tuple[int, ...]
    batch_size: int
    partitions_per_batch: int
    passes: int
    shuffle: bool
    seed: int
    chunk_rows: int = CHUNK_ROWS

    def order(self, pass_number: int) -> Sequence[int]:
        """The partitions that have rows, in the order of the pass."""
        filled = [number for number, rows in enumerate(self.partition_rows) if rows]
        if not self.shuffle:
            return filled
        generator = np.random.default_rng([self.seed, pass_number])
        return [filled[position] for position in generator.permutation(len(filled))]

    def rounds(self, start: Cursor) -> Iterator[Round]:
        """The rounds from `start` on, over all the passes that are left."""
        stretches = self._online if self.batch_size == 1 else self._batches
        return rounds_of_passes(start, self.passes, stretches)

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

    def _reading(self, pass_number: int, position: int) -> int:
        return pass_number * len(self.partition_rows) + position

    def _online(self, pass_number: int) -> Iterator[tuple[Stretch, ...]]:
        in_last_pass = pass_number + 1 == self.passes
        for position, partition in enumerate(self.order(pass_number)):
            rows = self.partition_rows[partition]
            reading = self._reading(pass_number, position)
            for start in range(0, rows, self.chunk_rows):
                stop = min(start + self.chunk_rows, rows)
                last = stop == rows
                yield ((Slice(reading, partition, start, stop, last, last and in_last_pass),),)

    def _batches(self, pass_number: int) -> Iterator[tuple[Stretch, ...]]:
        in_last_pass = pass_number + 1 == self.passes
        waiting = deque(
            [self._reading(pass_number, position), partition, 0]
            for position, partition in enumerate(self.order(pass_number))
        )
        # Of each partition that gives rows now: [reading, partition, next row].
        giving: list[list[int]] = []
        for missing in self._batch_sizes():
            slices: dict[int, Slice] = {}
            while missing:
                while waiting and len(giving) < self.partitions_per_batch:
                    giving.append(waiting.popleft())
                share, extra = divmod(missing, len(giving))
                for number, place in enumerate(giving):
                    reading, partition, start = place
                    rows = self.partition_rows[partition]
                    stop = min(start + share + (number < extra), rows)
                    if stop > start:
                        # Where another partition ended, this one gives a second time.
                        first = slices[reading].start if reading in slices else start
                        last = stop == rows
                        slices[reading] = Slice(
                            reading, partition, first, stop, last, last and in_last_pass
                        )
                    missing -= stop - start
                    place[2] = stop
                giving = [place for place in giving if place[2] < self.partition_rows[place[1]]]
            yield tuple((slice_,) for slice_ in slices.values())
