"""Which rows make up which step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.training.schedule import Cursor
from dadagrad.training.schedule.batches import BatchSchedule

schedules = st.builds(
    BatchSchedule,
    partition_rows=st.lists(st.integers(0, 40), min_size=1, max_size=8).map(tuple),
    batch_size=st.integers(1, 50),
    partitions_per_batch=st.integers(1, 5),
    passes=st.integers(1, 3),
    shuffle=st.booleans(),
    seed=st.integers(0, 1000),
    chunk_rows=st.integers(1, 30),
)


@given(schedules)
def test_every_row_comes_exactly_once_a_pass(schedule):
    seen = Counter()
    for round_ in schedule.rounds(Cursor()):
        for slice_ in round_.slices:
            rows = [(round_.cursor.pass_number, slice_.partition, row)
                    for row in range(slice_.start, slice_.stop)]  # fmt: skip
            seen.update(rows)
    wanted = {
        (pass_number, partition, row)
        for pass_number in range(schedule.passes)
        for partition, rows in enumerate(schedule.partition_rows)
        for row in range(rows)
    }
    assert set(seen) == wanted
    assert not wanted or max(seen.values()) == 1


@given(schedules)
def test_the_rows_of_a_partition_come_in_order_and_only_the_last_piece_says_so(schedule):
    reached: dict[int, int] = {}
    ended: dict[int, int] = {}
    for round_ in schedule.rounds(Cursor()):
        assert round_.slices
        readings = [slice_.reading for slice_ in round_.slices]
        assert len(set(readings)) == len(readings)
        for slice_ in round_.slices:
            assert slice_.reading not in ended
            assert slice_.start == reached.get(slice_.reading, 0) < slice_.stop
            reached[slice_.reading] = slice_.stop
            if slice_.last:
                ended[slice_.reading] = slice_.partition
                assert slice_.stop == schedule.partition_rows[slice_.partition]
    assert ended.keys() == reached.keys()
    filled = sum(rows > 0 for rows in schedule.partition_rows)
    assert len(ended) == filled * schedule.passes


@given(schedules.filter(lambda schedule: schedule.batch_size > 1))
def test_batches_are_even_and_none_is_too_large(schedule):
    sizes = [sum(slice_.n_rows for slice_ in round_.slices) for round_ in schedule.rounds(Cursor())]
    n_rows = sum(schedule.partition_rows)
    assert len(sizes) == schedule.passes * -(-n_rows // schedule.batch_size)
    if sizes:
        assert max(sizes) <= schedule.batch_size
        assert max(sizes) - min(sizes) <= 1


@given(schedules)
def test_at_most_so_many_partitions_are_between_their_first_and_last_piece(schedule):
    most = 1 if schedule.batch_size == 1 else schedule.partitions_per_batch
    begun: set[int] = set()
    for round_ in schedule.rounds(Cursor()):
        begun |= {slice_.reading for slice_ in round_.slices}
        begun -= {slice_.reading for slice_ in round_.slices if slice_.last}
        assert len(begun) <= most


@given(schedules, st.data())
def test_from_any_cursor_the_same_rounds_follow(schedule, data):
    rounds = list(schedule.rounds(Cursor()))
    # A schedule is its fields: an equal one made anew says the same.
    assert list(replace(schedule).rounds(Cursor())) == rounds
    start = data.draw(st.integers(0, len(rounds)))
    cursor = rounds[start].cursor if start < len(rounds) else Cursor(schedule.passes)
    assert list(schedule.rounds(cursor)) == rounds[start:]
    for before, after in pairwise(rounds):
        assert before.after == after.cursor
    if rounds:
        assert rounds[-1].after == Cursor(schedule.passes)


def test_passes_have_orders_of_their_own_when_shuffled():
    schedule = BatchSchedule((5,) * 20, 4, 2, 3, True, seed=1)
    orders = [list(schedule.order(number)) for number in range(3)]
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert [list(schedule.order(number)) for number in range(3)] == orders
    assert list(replace(schedule, seed=2).order(0)) != orders[0]
    assert list(replace(schedule, shuffle=False).order(1)) == list(range(20))


def test_no_rows_no_rounds():
    assert list(BatchSchedule((0, 0), 3, 2, 2, True, 0).rounds(Cursor())) == []
    assert list(BatchSchedule((0, 0), 1, 2, 2, True, 0).rounds(Cursor())) == []


@pytest.mark.parametrize("batch_size", [1, 64])
def test_a_late_cursor_is_found_quickly(batch_size):
    schedule = BatchSchedule((1000,) * 200, batch_size, 4, 50, True, 0, chunk_rows=100)
    rounds = schedule.rounds(Cursor(49, 1000))
    assert next(rounds).cursor == Cursor(49, 1000)
