"""The schedule of streams: the rows from which each stream learns in each round.

The first rows of the first pass are those of one stream: weights move fast, and streams that know
nothing of each other would all learn the same. The rows of a pass, in the order of its partitions,
are cut into a block of neighbours for each group of streams. In a round a group takes the next rows
of what is left of its block, and each of its streams learns from an equal stretch of them, one step
per row, from the state that all share; then the states are merged
(`dadagrad.training.coordinator.merge`). Each group has a partition open. So up to `MIN_GROUPS`
streams are a group each, and more are up to `GROUP` in one: 64 streams of 64 groups would hold 64
partitions in memory.

Rounds grow with the data that has been seen: while weights move fast, streams must be merged
often. After round r, (r / R)^2 passes have been seen, R being the rounds of the first pass: so
round r is 2/r of what came before, the last of R = 40 rounds 5 % of it, and each pass has fewer
rounds than the one before. The rounds of the rows of one stream alone, the first 5 of 40, are left
out. Where rows are many, R is less: more rounds make little difference there.
`examples/benchmarks/rounds.py` compares this with other ways.

Where a partition ends close to the end of a group's rows, the round ends there: of a partition in
two slices, the features that both touch would travel twice.

Every second group takes the partitions of its block from the last to the first. A partition in
which one block ends and the next begins is then the first of both groups, or the last of both, and
is read once for the two.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

from dadagrad.training.schedule.base import Schedule, Slice, Stretch

CLOSE = Fraction(2, 5)
"""A round ends with a partition that ends close to the planned end of a group's rows: at most this
share of these rows away. With one half, a round could lose all its rows to its neighbours; with two
fifths only the last of a pass can, which may be shorter than the one before."""

ALONE_SHARE, MIN_ROWS_ALONE, MAX_ROWS_ALONE = 0.02, 8_192, 262_144
"""Share of the first pass from which one stream learns alone, and the bounds of these rows: less
data is no work for several streams, and while one learns alone, all other threads wait."""

MIN_GROUPS, GROUP = 16, 4
"""Groups at least, if there are as many streams; streams of a group at most, if there are more."""

SHARING = 4
"""Groups that share an open partition at most: others read it again, maybe elsewhere."""

_Cut: TypeAlias = tuple[int, int, int]
"""Position of a partition in the pass, and its rows from the first to before the last."""


class _Piece(NamedTuple):
    """Rows ``start:stop`` of the partition at a position in the pass, for a stream in a round."""

    round: int
    group: int
    stream: int
    position: int
    start: int
    stop: int


@dataclass(frozen=True)
class StreamSchedule(Schedule):
    """The rounds of a run with several streams.

    Attributes
    ----------
    streams : int
        With one stream, all rows come in the order of the online pass.
    first_rounds : int
        Rounds of the first pass, if it has rows enough.
    """

    streams: int = 2
    first_rounds: int = 40

    def stretches(self, pass_number: int) -> list[tuple[Stretch, ...]]:
        """The stretches of each round of a pass; rounds without rows are left out."""
        order = self.order(pass_number)
        places: list[tuple[int, int]] = []  # of each slice, its round and stream
        slices: list[Slice] = []
        pieces = self._pieces(pass_number, [self.partition_rows[partition] for partition in order])
        readings = self._readings(pass_number, pieces)
        for piece in pieces:
            reading = readings[piece.position, piece.group]
            for first in range(piece.start, piece.stop, self.chunk_rows):
                end = min(first + self.chunk_rows, piece.stop)
                places.append((piece.round, piece.stream))
                slices.append(Slice(reading, order[piece.position], first, end, False))
        for place in {slice_.reading: place for place, slice_ in enumerate(slices)}.values():
            slices[place] = replace(slices[place], last=True)
        if pass_number + 1 == self.passes:
            for place in {slice_.partition: place for place, slice_ in enumerate(slices)}.values():
                slices[place] = replace(slices[place], final=True)
        rounds: dict[int, dict[int, list[Slice]]] = {}
        for (number, stream), slice_ in zip(places, slices, strict=True):
            rounds.setdefault(number, {}).setdefault(stream, []).append(slice_)
        return [tuple(map(tuple, streams.values())) for streams in rounds.values()]

    def _pieces(self, pass_number: int, sizes: list[int]) -> list[_Piece]:
        """The rows of each stream in each round, in that order, cut where partitions end."""
        starts = [0, *accumulate(sizes)]
        n_rows = starts[-1]
        alone = 0 if pass_number else self._rows_alone(n_rows)
        n_groups = min(self.streams, max(MIN_GROUPS, -(-self.streams // GROUP)))
        firsts = [self.streams * group // n_groups for group in range(n_groups + 1)]
        edges = [n_rows * first // self.streams for first in firsts]
        blocks = [_cut(starts, max(first, alone), stop) for first, stop in pairwise(edges)]
        ways = [_Way(tuple(block)[:: -1 if n % 2 else 1]) for n, block in enumerate(blocks)]
        pieces = [_Piece(0, 0, 0, *cut) for cut in _cut(starts, 0, alone)]
        number = int(alone > 0)
        for share in self._shares(pass_number, n_rows, alone):
            before = len(pieces)
            for group, (way, streams) in enumerate(zip(ways, pairwise(firsts), strict=True)):
                stretches = way.advance(share, streams[1] - streams[0])
                for stream, cuts in enumerate(stretches, streams[0]):
                    pieces += [_Piece(number, group, stream, *cut) for cut in cuts]
            number += len(pieces) > before
        return pieces

    def _rows_alone(self, n_rows: int) -> int:
        """Rows of the first pass that one stream learns from before all streams begin."""
        few = min(max(int(ALONE_SHARE * n_rows), MIN_ROWS_ALONE), MAX_ROWS_ALONE)
        return min(few, n_rows) if self.streams > 1 else 0

    def _shares(self, pass_number: int, n_rows: int, alone: int) -> Iterator[Fraction]:
        """The share of the blocks that has been seen after each round.

        One stream has learned `alone` rows of the pass before, which are not in the blocks.
        """
        passed, whole = pass_number * self.first_rounds**2, n_rows * self.first_rounds**2
        first = seen = alone * self.first_rounds**2
        number = math.isqrt(passed + first // max(n_rows, 1))
        while seen < whole:
            number += 1
            seen = min(n_rows * (number**2 - passed), whole)
            yield Fraction(seen - first, whole - first)

    def _readings(self, pass_number: int, pieces: list[_Piece]) -> dict[tuple[int, int], int]:
        """The reading in which each group learns from its part of each partition.

        Groups share one where the rounds in which they are at the partition meet. Where they do
        not, as with the partition at which a group ends and the next has begun, it would stay
        open all the time between, and is read again instead. So it is for more than `SHARING`
        groups, or few partitions would keep few workers busy.
        """
        spans: dict[int, dict[int, tuple[int, int]]] = {}
        for piece in pieces:
            of_groups = spans.setdefault(piece.position, {})
            first, _ = of_groups.get(piece.group, (piece.round, piece.round))
            of_groups[piece.group] = first, piece.round
        # More than there can be in a pass.
        following = pass_number * (len(self.partition_rows) + self.streams)
        readings = {}
        for position, of_groups in sorted(spans.items()):
            until, sharing = -2, 0
            for group, (first, last) in sorted(of_groups.items(), key=lambda item: item[1]):
                if first > until + 1 or sharing == SHARING:
                    following += 1
                    sharing = 0
                sharing += 1
                readings[position, group] = following - 1
                until = max(until, last)
        return readings


class _Way:
    """The way of a group through its block: the rows of partitions, in the order of the group."""

    def __init__(self, cuts: tuple[_Cut, ...]) -> None:
        self._cuts = cuts
        self._starts = [0, *accumulate(stop - first for _, first, stop in cuts)]
        self._reached = 0
        self._planned = 0  # the end of the last round without the ends of partitions

    def advance(self, share: Fraction, n_streams: int) -> Iterator[Iterator[_Cut]]:
        """The stretch of each stream in the next round, after which so much has been seen."""
        begin, end = self._reached, self._end(share)
        edges = (begin + (end - begin) * stream // n_streams for stream in range(n_streams + 1))
        self._reached = end
        return (self._rows(first, stop) for first, stop in pairwise(edges))

    def _rows(self, first: int, stop: int) -> Iterator[_Cut]:
        """The rows of partitions that are rows ``first:stop`` of the way."""
        for place, start, end in _cut(self._starts, first, stop):
            position, begin, _ = self._cuts[place]
            yield position, begin + start, begin + end

    def _end(self, share: Fraction) -> int:
        """The row after a share of the way, or the end of a partition if one is close."""
        end = math.floor(share * self._starts[-1] + Fraction(1, 2))
        n_rows, self._planned = end - self._planned, end
        after = bisect_right(self._starts, end)
        nearest = min(self._starts[after - 1 : after + 1], key=lambda start: abs(start - end))
        return nearest if abs(nearest - end) <= CLOSE * n_rows else end


def _cut(starts: list[int], first: int, stop: int) -> Iterator[_Cut]:
    """Cut rows ``first:stop`` where parts end, which start at `starts`."""
    while first < stop:
        position = bisect_right(starts, first) - 1
        end = min(stop, starts[position + 1])
        yield position, first - starts[position], end - starts[position]
        first = end
