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
        waiting = deque(
            [pass_number * len(self.partition_rows) + position, partition, 0]
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
