"""Rows of each step: every row once a pass, in rounds that a cursor finds again."""

import hashlib
from bisect import bisect_right
from collections import defaultdict
from dataclasses import replace
from itertools import groupby, pairwise
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.config import TrainConfig
from dadagrad.training.checkpoints.manifest import VERSION
from dadagrad.training.schedule import make_schedule
from dadagrad.training.schedule import streams as streams_module
from dadagrad.training.schedule.base import Cursor
from dadagrad.training.schedule.batches import BatchSchedule, OnlineSchedule
from dadagrad.training.schedule.streams import GROUP, MIN_GROUPS, SHARING, StreamSchedule

COMMON = {
    "partition_rows": st.lists(st.integers(0, 40), min_size=1, max_size=8).map(tuple),
    "passes": st.integers(1, 3),
    "shuffle": st.booleans(),
    "seed": st.integers(0, 1000),
    "chunk_rows": st.integers(1, 30),
}
online = st.builds(OnlineSchedule, **COMMON)
batches = st.builds(
    BatchSchedule, **COMMON, batch_size=st.integers(1, 50), partitions_per_batch=st.integers(1, 5)
)
streams = st.builds(
    StreamSchedule, **COMMON, streams=st.integers(1, 40), first_rounds=st.integers(1, 12)
)
schedules = st.one_of(online, batches, streams)


def all_rounds(schedule):
    return list(schedule.rounds(Cursor()))


def rows_of(slices):
    return [
        (slice_.partition, row) for slice_ in slices for row in range(slice_.start, slice_.stop)
    ]


def in_order(schedule, pass_number):
    """The place of each row in the pass."""
    order = schedule.order(pass_number)
    rows = [(part, row) for part in order for row in range(schedule.partition_rows[part])]
    return {row: place for place, row in enumerate(rows)}


@given(schedules)
def test_every_row_comes_exactly_once_a_pass(schedule):
    seen = defaultdict(list)
    for round_ in all_rounds(schedule):
        assert round_.slices
        longest = 50 if isinstance(schedule, BatchSchedule) else schedule.chunk_rows
        assert all(0 < slice_.n_rows <= longest for slice_ in round_.slices)
        seen[round_.cursor.pass_number] += rows_of(round_.slices)
    for pass_number in range(schedule.passes):
        assert sorted(seen[pass_number]) == sorted(in_order(schedule, pass_number))


@given(schedules)
def test_a_reading_ends_with_its_last_slice_and_a_partition_with_its_final_one(schedule):
    """A worker that drops a partition there does not read it again."""
    rounds = all_rounds(schedule)
    of_reading = defaultdict(list)
    for number, round_ in enumerate(rounds):
        for stretch in round_.stretches:
            for slice_ in stretch:
                of_reading[slice_.reading].append((number, slice_))
    for visits in of_reading.values():
        assert len({(rounds[number].cursor.pass_number, s.partition) for number, s in visits}) == 1
        (end,) = [number for number, slice_ in visits if slice_.last]
        assert end == max(number for number, _ in visits)
    slices = [s for round_ in rounds for stretch in round_.stretches for s in stretch]
    latest = {slice_.partition: slice_ for slice_ in slices}
    final = [slice_ for slice_ in slices if slice_.final]
    assert sorted(slice_.partition for slice_ in final) == sorted(latest)
    assert all(slice_.last and slice_ == latest[slice_.partition] for slice_ in final)


@given(schedules, st.data())
def test_from_any_cursor_the_same_rounds_follow(schedule, data):
    rounds = all_rounds(schedule)
    # A schedule is its fields: an equal one made anew says the same.
    assert all_rounds(replace(schedule)) == rounds
    start = data.draw(st.integers(0, len(rounds)))
    cursor = rounds[start].cursor if start < len(rounds) else Cursor(schedule.passes)
    assert list(schedule.rounds(cursor)) == rounds[start:]
    for before, after in pairwise(rounds):
        assert before.after == after.cursor
    if rounds:
        assert rounds[-1].after == Cursor(schedule.passes)


@given(st.one_of(online, batches))
def test_the_rows_of_a_partition_come_in_order_and_few_partitions_are_open(schedule):
    most = getattr(schedule, "partitions_per_batch", 1)
    reached = {}
    begun = set()
    for round_ in all_rounds(schedule):
        readings = [slice_.reading for slice_ in round_.slices]
        assert len(set(readings)) == len(readings)
        for slice_ in round_.slices:
            assert slice_.start == reached.get(slice_.reading, 0)
            reached[slice_.reading] = slice_.stop
        begun |= set(readings)
        begun -= {slice_.reading for slice_ in round_.slices if slice_.last}
        assert len(begun) <= most


@given(batches)
def test_batches_are_even_and_none_is_too_large(schedule):
    sizes = [sum(slice_.n_rows for slice_ in round_.slices) for round_ in all_rounds(schedule)]
    n_rows = sum(schedule.partition_rows)
    assert len(sizes) == schedule.passes * -(-n_rows // schedule.batch_size)
    if sizes:
        assert max(sizes) <= schedule.batch_size
        assert max(sizes) - min(sizes) <= 1


def test_passes_have_orders_of_their_own_when_shuffled():
    schedule = OnlineSchedule((5,) * 20, 3, True, seed=1)
    orders = [list(schedule.order(number)) for number in range(3)]
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert list(replace(schedule, seed=2).order(0)) != orders[0]
    assert list(replace(schedule, shuffle=False).order(1)) == list(range(20))


# Streams.


def n_groups_of(n_streams):
    return min(n_streams, max(MIN_GROUPS, -(-n_streams // GROUP)))


@given(streams)
def test_each_group_of_streams_learns_from_its_own_block_in_order(schedule):
    """After the rows of the first pass that one stream has learned from alone.

    Every second group takes the partitions of its block from the last to the first.
    """
    n_rows, n_streams = sum(schedule.partition_rows), schedule.streams
    n_groups = n_groups_of(n_streams)
    firsts = [n_streams * group // n_groups for group in range(n_groups + 1)]
    edges = [n_rows * first // n_streams for first in firsts]
    for pass_number in range(schedule.passes):
        places = in_order(schedule, pass_number)
        learned = defaultdict(list)
        readers = defaultdict(set)
        alone = 0
        for round_ in all_rounds(schedule):
            if round_.cursor.pass_number != pass_number:
                continue
            sizes = defaultdict(list)
            if round_.cursor == Cursor() and schedule.streams > 1:
                (stretch,) = round_.stretches
                alone = len(list(rows_of(stretch)))
                assert alone == min(n_rows, max(streams_module.MIN_ROWS_ALONE, n_rows // 50))
                assert [places[row] for row in rows_of(stretch)] == list(range(alone))
                continue
            for stretch in round_.stretches:
                rows = [places[row] for row in rows_of(stretch)]
                group = bisect_right(edges, min(rows)) - 1
                learned[group] += rows
                sizes[group].append(len(rows))
                for slice_ in stretch:
                    readers[slice_.reading].add(group)
            assert list(sizes) == sorted(sizes)
            for group, stretches in sizes.items():
                assert len(stretches) <= firsts[group + 1] - firsts[group]
                assert max(stretches) - min(stretches) <= 1
        for group, rows in learned.items():
            first, stop = edges[group : group + 2]
            block = [row for row in places if max(first, alone) <= places[row] < stop]
            by_partition = [list(part) for _, part in groupby(block, key=itemgetter(0))]
            wanted = [row for part in by_partition[:: -1 if group % 2 else 1] for row in part]
            assert rows == [places[row] for row in wanted]
        assert max(map(len, readers.values()), default=0) <= SHARING


@given(st.integers(1, 3), st.integers(1, 12), st.integers(1, 12))
def test_rounds_grow_with_the_data_seen(passes, n_streams, first_rounds):
    schedule = StreamSchedule((20_000, 30_000), passes, True, 0, 1000, 1, n_streams, first_rounds)
    total, before, number = 0, 0, 0
    rounds = all_rounds(schedule)
    if n_streams > 1:  # one stream learns from the first 2 %
        total = before = sum(slice_.n_rows for slice_ in rounds.pop(0).slices)
        assert total == 1_000
        number = int(first_rounds * 0.02**0.5)
    for round_ in rounds:
        number += 1
        wanted = min(50_000 * number**2 / first_rounds**2, 50_000 * passes)
        if round_.after.round == 0:  # a pass ends with its own round
            wanted = 50_000 * round_.after.pass_number
            number = int(first_rounds * round_.after.pass_number**0.5)
        total += sum(slice_.n_rows for slice_ in round_.slices)
        # A stretch may end two fifths of its length from there, with a partition.
        assert abs(total - wanted) <= n_streams + 0.4 * (wanted - before)
        before = wanted
    assert total == 50_000 * passes


@pytest.mark.parametrize(
    ("n_rows", "rounds"), [(1, 40), (100_000, 40), (200_000, 28), (800_000, 14), (10**9, 14)]
)
def test_many_rows_have_fewer_rounds_unless_they_are_given(n_rows, rounds):
    config = TrainConfig(streams=16, batch_size=1)
    for given_rounds, wanted in (("auto", rounds), (30, 30)):
        several = make_schedule(
            replace(config, rounds=given_rounds), [1, n_rows], source_partitions=[1, 1]
        )
        assert several.parts[1].first_rounds == wanted


@given(st.integers(1, 300), st.integers(2, 20))
def test_many_streams_have_few_partitions_open(n_streams, n_partitions):
    """Rows of all streams of a group are neighbours: in one partition, or at the end of one."""
    schedule = StreamSchedule((40_000,) * n_partitions, streams=n_streams)
    n_groups = n_groups_of(n_streams)
    for round_ in all_rounds(schedule):
        assert len({slice_.reading for slice_ in round_.slices}) <= 2 * n_groups


@given(st.lists(st.integers(50, 400), min_size=3, max_size=40), st.integers(2, 40))
def test_no_partition_is_read_twice_where_each_has_few_streams(sizes, n_streams):
    n_streams = min(n_streams, len(sizes))  # blocks are as long as a partition, or longer
    schedule = StreamSchedule(tuple(100 * size for size in sizes), streams=n_streams)
    readings = defaultdict(set)
    for round_ in all_rounds(schedule):
        for slice_ in round_.slices:
            readings[slice_.partition].add(slice_.reading)
    assert all(len(of_partition) == 1 for of_partition in readings.values())


def test_stretches_end_with_partitions_where_some_do_nearby(monkeypatch):
    monkeypatch.setattr(StreamSchedule, "_rows_alone", lambda schedule, n_rows: 0)
    # They would end after 20, 80, 180, 320 rows and so on; 80 is two fifths of 60 from 100.
    rounds = all_rounds(StreamSchedule((100,) * 40, shuffle=False, streams=2, first_rounds=10))
    cut = [
        sum((slice_.start, slice_.stop) != (0, 100) for slice_ in stretch)
        for round_ in rounds
        for stretch in round_.stretches
    ]
    assert cut == [1, 1, 1, 1, *[0] * 16]


def test_rounds_are_those_of_this_version_of_checkpoints():
    """A checkpoint names a round by number: whoever changes rounds raises `VERSION`, too."""
    common = (9_000, 0, 900, 20_000, 11_000), 2
    schedules = [
        OnlineSchedule(*common),
        BatchSchedule(*common, batch_size=700),
        StreamSchedule(*common, streams=3),
        StreamSchedule(*common, streams=40),
    ]
    rounds = repr([all_rounds(schedule) for schedule in schedules])
    digest = hashlib.sha256(rounds.encode()).hexdigest()[:16]
    assert (VERSION, digest) == (5, "1a8e87506da7c008")
