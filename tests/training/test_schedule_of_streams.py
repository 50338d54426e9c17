"""The schedule of streams: every row once, in its own stream, in rounds that grow."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dadagrad.training.schedule import Cursor, Round, Slice
from dadagrad.training.schedule.batches import BatchSchedule
from dadagrad.training.schedule.streams import SHARING, StreamSchedule

sizes = st.lists(st.integers(0, 60), min_size=1, max_size=9).filter(any)
schedules = st.builds(
    lambda rows, passes, shuffle, seed, chunk, streams, rounds: StreamSchedule(
        BatchSchedule(tuple(rows), 1, 4, passes, shuffle, seed, chunk), streams, rounds
    ),
    sizes,
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 5),
    st.sampled_from([1, 7, 1000]),
    st.integers(1, 12),
    st.integers(1, 12),
)


def all_rounds(schedule: StreamSchedule) -> list[Round]:
    return list(schedule.rounds(Cursor()))


def rows_of(slices: tuple[Slice, ...]) -> list[tuple[int, int]]:
    return [
        (slice_.partition, row) for slice_ in slices for row in range(slice_.start, slice_.stop)
    ]


def in_order(schedule: StreamSchedule, pass_number: int) -> dict[tuple[int, int], int]:
    """The place of each row in the pass."""
    order = schedule.order(pass_number)
    rows = [(part, row) for part in order for row in range(schedule.partition_rows[part])]
    return {row: place for place, row in enumerate(rows)}


@given(schedules)
def test_each_row_is_walked_once_a_pass_by_the_stream_of_its_block(schedule):
    for pass_number in range(schedule.online.passes):
        places = in_order(schedule, pass_number)
        n_rows = len(places)
        walked: dict[int, list[int]] = defaultdict(list)
        for one in all_rounds(schedule):
            if one.cursor.pass_number != pass_number:
                continue
            streams = []
            for stretch in one.stretches:
                found = [places[row] for row in rows_of(stretch)]
                streams.append((found[0] * schedule.streams + schedule.streams - 1) // n_rows)
                walked[streams[-1]] += found
            assert streams == sorted(set(streams))
        for stream, found in walked.items():
            first = n_rows * stream // schedule.streams
            assert found == list(range(first, n_rows * (stream + 1) // schedule.streams))
        assert sum(map(len, walked.values())) == n_rows


@given(schedules)
def test_rounds_grow_with_the_data_seen(schedule):
    n_rows = sum(schedule.partition_rows)
    seen, found = 0, all_rounds(schedule)
    rounds = [0] * schedule.online.passes
    for one in found:
        seen += sum(slice_.n_rows for stretch in one.stretches for slice_ in stretch)
        rounds[one.cursor.pass_number] += 1
    assert seen == n_rows * schedule.online.passes
    assert rounds[0] <= schedule.first_rounds
    assert found[-1].after == Cursor(schedule.online.passes)
    # Rounds that nobody has rows for are left out of few rows; with many, all are there.
    many = StreamSchedule(
        BatchSchedule((20_000, 30_000), 1, 4, schedule.online.passes, True, 0),
        schedule.streams,
        schedule.first_rounds,
    )
    total, before, number = 0, 0, 0
    for one in all_rounds(many):
        size = sum(slice_.n_rows for stretch in one.stretches for slice_ in stretch)
        number += 1
        wanted = min(50_000 * number**2 / many.first_rounds**2, 50_000 * many.online.passes)
        if one.after.round == 0:  # a pass ends with its own round
            wanted = 50_000 * one.after.pass_number
            number = int(many.first_rounds * one.after.pass_number**0.5)
        total += size
        # A stretch may end two fifths of its length from there, with a partition.
        assert abs(total - wanted) <= many.streams + 0.4 * (wanted - before)
        before = wanted


def test_stretches_end_with_partitions_where_some_do_nearby():
    schedule = StreamSchedule(BatchSchedule((100,) * 40, 1, 4, 1, True, 0), 2, 10)
    found = all_rounds(schedule)
    # They would end after 20, 80, 180, 320 rows and so on; 80 is two fifths of 60 from 100.
    cut = [
        sum((slice_.start, slice_.stop) != (0, 100) for slice_ in stretch)
        for one in found
        for stretch in one.stretches
    ]
    assert cut == [1, 1, 1, 1, *[0] * 16]
    assert [len(one.stretches) for one in found] == [2] * 10


def test_later_passes_have_fewer_rounds():
    schedule = StreamSchedule(BatchSchedule((90_000,), 1, 4, 3, True, 0), 16, 40)
    counts = [0, 0, 0]
    for one in all_rounds(schedule):
        counts[one.cursor.pass_number] += 1
    assert counts == [40, 17, 14]  # up to 40 times the roots of 1, 2 and 3


@given(schedules)
def test_one_stream_takes_the_rows_of_the_online_walk_in_order(schedule):
    one = StreamSchedule(schedule.online, 1, schedule.first_rounds)
    walked = [
        slice_ for each in all_rounds(one) for stretch in each.stretches for slice_ in stretch
    ]
    online = [slice_ for each in schedule.online.rounds(Cursor()) for slice_ in each.slices]
    assert rows_of(tuple(walked)) == rows_of(tuple(online))


@given(schedules)
def test_pieces_are_short_and_visits_close_after_their_last(schedule):
    of_visit: dict[int, tuple[int, int]] = {}
    streams: dict[int, set[int]] = defaultdict(set)
    last_round: dict[int, int] = {}
    closed: dict[int, int] = {}
    n_rows = sum(schedule.partition_rows)
    for number, one in enumerate(all_rounds(schedule)):
        places = in_order(schedule, one.cursor.pass_number)
        for stretch in one.stretches:
            stream = (
                places[rows_of(stretch)[0]] * schedule.streams + schedule.streams - 1
            ) // n_rows
            for slice_ in stretch:
                assert 0 < slice_.n_rows <= schedule.chunk_rows
                key = (one.cursor.pass_number, slice_.partition)
                assert of_visit.setdefault(slice_.reading, key) == key
                streams[slice_.reading].add(stream)
                assert slice_.reading not in closed or closed[slice_.reading] == number
                last_round[slice_.reading] = number
                if slice_.last:
                    assert slice_.reading not in closed
                    closed[slice_.reading] = number
    assert closed == last_round
    assert max(map(len, streams.values())) <= SHARING


def test_a_partition_between_two_streams_is_not_kept_open_in_between():
    """One stream begins in the middle of a partition, another ends there, a pass later."""
    schedule = StreamSchedule(BatchSchedule((300, 300, 300), 1, 4, 1, False, 0), 2, 10)
    readings = defaultdict(set)
    for one in all_rounds(schedule):
        for stretch in one.stretches:
            for slice_ in stretch:
                readings[slice_.partition].add(slice_.reading)
    assert [len(readings[partition]) for partition in range(3)] == [1, 2, 1]


def test_few_partitions_are_opened_for_few_streams_each():
    schedule = StreamSchedule(BatchSchedule((3000,), 1, 4, 1, False, 0), 16, 10)
    readings = {
        p.reading for one in all_rounds(schedule) for stretch in one.stretches for p in stretch
    }
    assert len(readings) == 4


@given(schedules, st.data())
def test_the_rest_of_a_plan_is_its_end(schedule, data):
    found = all_rounds(schedule)
    number = data.draw(st.integers(0, len(found) - 1))
    assert list(schedule.rounds(found[number].cursor)) == found[number:]
    assert list(schedule.rounds(found[number].after)) == found[number + 1 :]


@given(schedules)
def test_the_final_piece_of_a_partition_ends_all_its_visits(schedule):
    """So that a worker which lets go of a partition there does not read it again."""
    for rounds in (
        [one.stretches for one in all_rounds(schedule)],
        [(one.slices,) for one in schedule.online.rounds(Cursor())],
        [(one.slices,) for one in replace(schedule.online, batch_size=7).rounds(Cursor())],
    ):
        slices = [slice_ for stretches in rounds for stretch in stretches for slice_ in stretch]
        latest = {slice_.partition: slice_ for slice_ in slices}
        final = [slice_ for slice_ in slices if slice_.final]
        assert sorted(slice_.partition for slice_ in final) == sorted(latest)
        assert all(slice_.last and slice_ == latest[slice_.partition] for slice_ in final)
