"""The plan of local steps: every row once, in its own stream, in rounds that grow."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dadagrad.training.plan import Cursor, Piece, Plan
from dadagrad.training.streams import SHARING, StreamPlan, StreamRound

sizes = st.lists(st.integers(0, 60), min_size=1, max_size=9).filter(any)
plans = st.builds(
    lambda rows, passes, shuffle, seed, chunk, streams, rounds: StreamPlan(
        Plan(tuple(rows), 1, 4, passes, shuffle, seed, chunk), streams, rounds
    ),
    sizes,
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 5),
    st.sampled_from([1, 7, 1000]),
    st.integers(1, 12),
    st.integers(1, 12),
)


def all_rounds(plan: StreamPlan) -> list[StreamRound]:
    return list(plan.rounds(Cursor()))


def rows_of(pieces: tuple[Piece, ...]) -> list[tuple[int, int]]:
    return [(piece.partition, row) for piece in pieces for row in range(piece.start, piece.stop)]


def in_order(plan: StreamPlan, pass_number: int) -> dict[tuple[int, int], int]:
    """The place of each row in the pass."""
    order = plan.order(pass_number)
    rows = [(part, row) for part in order for row in range(plan.partition_rows[part])]
    return {row: place for place, row in enumerate(rows)}


@given(plans)
def test_each_row_is_walked_once_a_pass_by_the_stream_of_its_block(plan):
    for pass_number in range(plan.walk.passes):
        places = in_order(plan, pass_number)
        n_rows = len(places)
        walked: dict[int, list[int]] = defaultdict(list)
        for one in all_rounds(plan):
            if one.cursor.pass_number != pass_number:
                continue
            streams = []
            for stretch in one.stretches:
                found = [places[row] for row in rows_of(stretch)]
                streams.append((found[0] * plan.streams + plan.streams - 1) // n_rows)
                walked[streams[-1]] += found
            assert streams == sorted(set(streams))
        for stream, found in walked.items():
            first = n_rows * stream // plan.streams
            assert found == list(range(first, n_rows * (stream + 1) // plan.streams))
        assert sum(map(len, walked.values())) == n_rows


@given(plans)
def test_rounds_grow_with_the_data_seen(plan):
    n_rows = sum(plan.partition_rows)
    seen, found = 0, all_rounds(plan)
    rounds = [0] * plan.walk.passes
    for one in found:
        seen += sum(piece.n_rows for stretch in one.stretches for piece in stretch)
        rounds[one.cursor.pass_number] += 1
    assert seen == n_rows * plan.walk.passes
    assert rounds[0] <= plan.first_rounds
    assert found[-1].after == Cursor(plan.walk.passes)
    # Rounds that nobody has rows for are left out of few rows; with many, all are there.
    many = StreamPlan(
        Plan((20_000, 30_000), 1, 4, plan.walk.passes, True, 0), plan.streams, plan.first_rounds
    )
    total, before, number = 0, 0, 0
    for one in all_rounds(many):
        size = sum(piece.n_rows for stretch in one.stretches for piece in stretch)
        number += 1
        wanted = min(50_000 * number**2 / many.first_rounds**2, 50_000 * many.walk.passes)
        if one.after.round == 0:  # a pass ends with its own round
            wanted = 50_000 * one.after.pass_number
            number = int(many.first_rounds * one.after.pass_number**0.5)
        total += size
        # A stretch may end two fifths of its length from there, with a partition.
        assert abs(total - wanted) <= many.streams + 0.4 * (wanted - before)
        before = wanted


def test_stretches_end_with_partitions_where_some_do_nearby():
    plan = StreamPlan(Plan((100,) * 40, 1, 4, 1, True, 0), 2, 10)
    found = all_rounds(plan)
    # They would end after 20, 80, 180, 320 rows and so on; 80 is two fifths of 60 from 100.
    cut = [
        sum((piece.start, piece.stop) != (0, 100) for piece in stretch)
        for one in found
        for stretch in one.stretches
    ]
    assert cut == [1, 1, 1, 1, *[0] * 16]
    assert [len(one.stretches) for one in found] == [2] * 10


def test_later_passes_have_fewer_rounds():
    plan = StreamPlan(Plan((90_000,), 1, 4, 3, True, 0), 16, 40)
    counts = [0, 0, 0]
    for one in all_rounds(plan):
        counts[one.cursor.pass_number] += 1
    assert counts == [40, 17, 14]  # up to 40 times the roots of 1, 2 and 3


@given(plans)
def test_one_stream_takes_the_rows_of_the_online_walk_in_order(plan):
    one = StreamPlan(plan.walk, 1, plan.first_rounds)
    walked = [piece for each in all_rounds(one) for stretch in each.stretches for piece in stretch]
    online = [piece for each in plan.walk.rounds(Cursor()) for piece in each.pieces]
    assert rows_of(tuple(walked)) == rows_of(tuple(online))


@given(plans)
def test_pieces_are_short_and_visits_close_after_their_last(plan):
    of_visit: dict[int, tuple[int, int]] = {}
    streams: dict[int, set[int]] = defaultdict(set)
    last_round: dict[int, int] = {}
    closed: dict[int, int] = {}
    n_rows = sum(plan.partition_rows)
    for number, one in enumerate(all_rounds(plan)):
        places = in_order(plan, one.cursor.pass_number)
        for stretch in one.stretches:
            stream = (places[rows_of(stretch)[0]] * plan.streams + plan.streams - 1) // n_rows
            for piece in stretch:
                assert 0 < piece.n_rows <= plan.chunk_rows
                key = (one.cursor.pass_number, piece.partition)
                assert of_visit.setdefault(piece.visit, key) == key
                streams[piece.visit].add(stream)
                assert piece.visit not in closed or closed[piece.visit] == number
                last_round[piece.visit] = number
                if piece.last:
                    assert piece.visit not in closed
                    closed[piece.visit] = number
    assert closed == last_round
    assert max(map(len, streams.values())) <= SHARING


def test_a_partition_between_two_streams_is_not_kept_open_in_between():
    """One stream begins in the middle of a partition, another ends there, a pass later."""
    plan = StreamPlan(Plan((300, 300, 300), 1, 4, 1, False, 0), 2, 10)
    visits = defaultdict(set)
    for one in all_rounds(plan):
        for stretch in one.stretches:
            for piece in stretch:
                visits[piece.partition].add(piece.visit)
    assert [len(visits[partition]) for partition in range(3)] == [1, 2, 1]


def test_few_partitions_are_opened_for_few_streams_each():
    plan = StreamPlan(Plan((3000,), 1, 4, 1, False, 0), 16, 10)
    visits = {p.visit for one in all_rounds(plan) for stretch in one.stretches for p in stretch}
    assert len(visits) == 4


@given(plans, st.data())
def test_the_rest_of_a_plan_is_its_end(plan, data):
    found = all_rounds(plan)
    number = data.draw(st.integers(0, len(found) - 1))
    assert list(plan.rounds(found[number].cursor)) == found[number:]
    assert list(plan.rounds(found[number].after)) == found[number + 1 :]


@given(plans)
def test_the_final_piece_of_a_partition_ends_all_its_visits(plan):
    """So that a worker which lets go of a partition there does not read it again."""
    for rounds in (
        [one.stretches for one in all_rounds(plan)],
        [(one.pieces,) for one in plan.walk.rounds(Cursor())],
        [(one.pieces,) for one in replace(plan.walk, batch_size=7).rounds(Cursor())],
    ):
        pieces = [piece for stretches in rounds for stretch in stretches for piece in stretch]
        latest = {piece.partition: piece for piece in pieces}
        final = [piece for piece in pieces if piece.final]
        assert sorted(piece.partition for piece in final) == sorted(latest)
        assert all(piece.last and piece == latest[piece.partition] for piece in final)
