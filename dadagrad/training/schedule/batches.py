"""The schedules of one stream: the online pass, and batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from dadagrad.training.schedule.base import Schedule, Slice, Stretch

FIRST_ROWS = 256
"""Rows of the first round of the online pass."""


@dataclass(frozen=True)
class OnlineSchedule(Schedule):
    """Rounds of neighbouring rows with one step each, one partition after the other."""

    def stretches(self, pass_number: int) -> Iterator[tuple[Stretch, ...]]:
        """One slice for each round.

        A round at most doubles the rows so far, for a learning curve that shows the begin.
        """
        in_last_pass = pass_number + 1 == self.passes
        before = pass_number * sum(self.partition_rows)
        for position, partition in enumerate(self.order(pass_number)):
            rows, start = self.partition_rows[partition], 0
            reading = pass_number * len(self.partition_rows) + position
            while start < rows:
                most = min(self.chunk_rows, max(FIRST_ROWS, before))
                stop = min(start + most, rows)
                last = stop == rows
                yield ((Slice(reading, partition, start, stop, last, last and in_last_pass),),)
                before += stop - start
                start = stop


@dataclass(slots=True)
class _Reading:
    """A reading of a partition, whose rows from `next_row` on are in no batch yet."""

    number: int
    partition: int
    n_rows: int
    next_row: int = 0


@dataclass(frozen=True)
class BatchSchedule(Schedule):
    """Rounds of one batch each.

    Attributes
    ----------
    partitions_per_batch : int
        Number of partitions that each batch takes rows from.
    """

    partitions_per_batch: int = 4

    def stretches(self, pass_number: int) -> Iterator[tuple[Stretch, ...]]:
        """The slices of each batch."""
        in_last_pass = pass_number + 1 == self.passes
        first_reading = pass_number * len(self.partition_rows)
        waiting = deque(
            _Reading(first_reading + position, partition, self.partition_rows[partition])
            for position, partition in enumerate(self.order(pass_number))
        )
        giving: list[_Reading] = []  # that give rows now
        for missing in self._batch_sizes():
            slices: dict[int, Slice] = {}
            while missing:
                while waiting and len(giving) < self.partitions_per_batch:
                    giving.append(waiting.popleft())
                share, extra = divmod(missing, len(giving))
                for place, reading in enumerate(giving):
                    start = reading.next_row
                    stop = min(start + share + (place < extra), reading.n_rows)
                    if stop > start:
                        number = reading.number
                        # Where another partition ended, this one gives a second time.
                        first = slices[number].start if number in slices else start
                        last = stop == reading.n_rows
                        slices[number] = Slice(
                            number, reading.partition, first, stop, last, last and in_last_pass
                        )
                    missing -= stop - start
                    reading.next_row = stop
                giving = [reading for reading in giving if reading.next_row < reading.n_rows]
            yield tuple((slice_,) for slice_ in slices.values())

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
