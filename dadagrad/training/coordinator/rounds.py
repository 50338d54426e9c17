"""The rounds to come, and the partitions that are open for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from dadagrad.training.messages import Open
from dadagrad.training.schedule.base import Round, Slice

MAX_AHEAD = 2_000
"""Rounds ahead of the present one that are searched for partitions to open. A partition that gives
rows to more rounds leaves time enough to read the next one; and metadata may declare so many rounds
that a list of all would fill the memory."""


class RoundQueue:
    """Rounds of a schedule in their order, and the readings that are open.

    Parameters
    ----------
    prefetch : int
        Partitions opened ahead of those in use, if they are needed in the next `MAX_AHEAD` rounds.
    together : bool
        True if all slices of a round begin at the same time, so that their partitions are best read
        together.
    """

    def __init__(self, rounds: Iterator[Round], prefetch: int, *, together: bool) -> None:
        self._rounds = rounds
        self._prefetch = prefetch
        self._together = together
        self._planned: deque[Round] = deque()
        self._n_planned = self._n_begun = 0
        # Slices that have not been looked at for partitions to open, with the numbers of rounds.
        self._candidates: deque[tuple[int, Slice]] = deque()
        self._ahead: set[int] = set()
        # Readings that have begun, and True once they are open.
        self._open: dict[int, bool] = {}
        self._closed: set[int] = set()  # in the present round
        # By reading and first row, the planned slices that have not been issued.
        self._begins: dict[int, dict[int, Slice]] = {}

    def next_round(self) -> Round | None:
        """The next round, or None after the last."""
        self._plan(2)  # the round after it tells which slices follow
        self._n_begun += 1
        while self._candidates and self._candidates[0][0] < self._n_begun:
            self._candidates.popleft()
        self._closed.clear()
        return self._planned.popleft() if self._planned else None

    @property
    def is_over(self) -> bool:
        """True if there are no more rounds."""
        self._plan(1)
        return not self._planned

    def opened(self, reading: int) -> None:
        """Take note that a partition can be worked on."""
        self._open[reading] = True

    def is_open(self, slice_: Slice) -> bool:
        """True if the partition of `slice` can be worked on."""
        return self._open.get(slice_.reading, False)

    def issue(self, slice_: Slice) -> Slice | None:
        """Take note that `slice` is worked on; the slice that begins at its end, if known."""
        self._ahead.discard(slice_.reading)
        self._open.setdefault(slice_.reading, True)
        begins = self._begins[slice_.reading]
        del begins[slice_.start]
        return begins.get(slice_.stop)

    def close(self, reading: int) -> None:
        """Forget a reading that is over."""
        del self._open[reading], self._begins[reading]
        self._closed.add(reading)

    def opens(self, waiting: Iterable[Slice]) -> list[Open]:
        """Open the partitions of the `waiting` slices of the present round, and some ahead."""
        opens = []
        for slice_ in waiting:
            self._ahead.discard(slice_.reading)
            if slice_.reading not in self._open:
                opens.append(self._open_reading(slice_, self._n_begun))
        while len(self._ahead) < self._prefetch:
            if not self._candidates and not self._plan(len(self._planned) + 1):
                break
            number, slice_ = self._candidates.popleft()
            if slice_.reading not in self._open and slice_.reading not in self._closed:
                self._ahead.add(slice_.reading)
                opens.append(self._open_reading(slice_, number))
        return opens

    def _open_reading(self, slice_: Slice, number: int) -> Open:
        reading = slice_.reading
        self._open[reading] = False
        begins = self._begins[reading]
        stops = {planned.stop for planned in begins.values()}
        first = tuple(begins[start] for start in begins if start not in stops)
        return Open(reading, slice_.partition, first, number if self._together else reading)

    def _plan(self, n_rounds: int) -> bool:
        """Plan so many rounds beyond the present one; True if there are new ones."""
        n_before = len(self._planned)
        if n_rounds <= MAX_AHEAD:
            for planned in islice(self._rounds, max(0, n_rounds - n_before)):
                self._planned.append(planned)
                self._n_planned += 1
                for slice_ in planned.slices:
                    self._candidates.append((self._n_planned, slice_))
                    self._begins.setdefault(slice_.reading, {})[slice_.start] = slice_
        return len(self._planned) > n_before
