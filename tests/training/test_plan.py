"""Which rows make up which step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.training.plan import Cursor, Plan, n_turns

plans = st.builds(
    Plan,
    partition_rows=st.lists(st.integers(0, 40), min_size=1, max_size=8).map(tuple),
    batch_size=st.integers(1, 50),
    lanes=st.integers(1, 5),
    passes=st.integers(1, 3),
    shuffle=st.booleans(),
    seed=st.integers(0, 1000),
    chunk_rows=st.integers(1, 30),
).flatmap(
    lambda plan: st.sampled_from((1, 2, 4)).map(
        lambda turns: replace(plan, turns=min(turns, n_turns(plan.lanes, 3)))
    )
)


@given(plans)
def test_every_row_comes_exactly_once_a_pass(plan):
    seen = Counter()
    for round_ in plan.rounds(Cursor()):
        for piece in round_.pieces:
            rows = [(round_.cursor.pass_number, piece.partition, row)
                    for row in range(piece.start, piece.stop)]  # fmt: skip
            seen.update(rows)
    wanted = {
        (pass_number, partition, row)
        for pass_number in range(plan.passes)
        for partition, rows in enumerate(plan.partition_rows)
        for row in range(rows)
    }
    assert set(seen) == wanted
    assert not wanted or max(seen.values()) == 1


@given(plans)
def test_the_rows_of_a_partition_come_in_order_and_only_the_last_piece_says_so(plan):
    reached: dict[int, int] = {}
    ended: dict[int, int] = {}
    for round_ in plan.rounds(Cursor()):
        assert round_.pieces
        visits = [piece.visit for piece in round_.pieces]
        assert len(set(visits)) == len(visits)
        for piece in round_.pieces:
            assert piece.visit not in ended
            assert piece.start == reached.get(piece.visit, 0) < piece.stop
            reached[piece.visit] = piece.stop
            if piece.last:
                ended[piece.visit] = piece.partition
                assert piece.stop == plan.partition_rows[piece.partition]
    assert ended.keys() == reached.keys()
    filled = sum(rows > 0 for rows in plan.partition_rows)
    assert len(ended) == filled * plan.passes


@given(plans.filter(lambda plan: plan.batch_size > 1))
def test_batches_are_even_and_none_is_too_large(plan):
    sizes = [sum(piece.n_rows for piece in round_.pieces) for round_ in plan.rounds(Cursor())]
    n_rows = sum(plan.partition_rows)
    assert len(sizes) == plan.passes * -(-n_rows // plan.batch_size)
    if sizes:
        assert max(sizes) <= plan.batch_size
        assert max(sizes) - min(sizes) <= 1


@given(plans)
def test_at_most_lanes_partitions_are_between_their_first_and_last_piece(plan):
    lanes = 1 if plan.batch_size == 1 else plan.lanes
    begun: set[int] = set()
    for round_ in plan.rounds(Cursor()):
        begun |= {piece.visit for piece in round_.pieces}
        begun -= {piece.visit for piece in round_.pieces if piece.last}
        assert len(begun) <= lanes


def test_there_are_as_many_turns_as_lanes_and_delay_allow():
    by_delay = {lanes: [n_turns(lanes, delay) for delay in range(9)] for lanes in (1, 2, 3, 4, 9)}
    assert by_delay == {
        1: [1, 1, 1, 1, 1, 1, 1, 1, 1],
        2: [1, 2, 1, 2, 1, 2, 1, 2, 1],
        3: [1, 2, 1, 2, 1, 2, 1, 2, 1],
        4: [1, 2, 1, 4, 1, 2, 1, 4, 1],
        9: [1, 2, 1, 4, 1, 2, 1, 8, 1],
    }


@given(plans.filter(lambda plan: plan.batch_size > 1))
def test_batches_of_different_turns_share_a_partition_only_when_a_turn_has_run_out(plan):
    rounds = list(plan.rounds(Cursor()))
    for pass_number in range(plan.passes):
        of_pass = [one for one in rounds if one.cursor.pass_number == pass_number]
        left = {piece.visit for one in of_pass for piece in one.pieces}
        turn_of: dict[int, int] = {}
        for one in of_pass:
            left -= {piece.visit for piece in one.pieces if piece.last}
            for piece in one.pieces:
                turn = turn_of.setdefault(piece.visit, one.cursor.round % plan.turns)
                # All that are left have a lane: nothing waits to take the place of what is done.
                assert turn == one.cursor.round % plan.turns or len(left) <= plan.lanes


def test_a_partition_has_the_same_turn_in_all_passes():
    plan = Plan((20,) * 8, 10, 4, 5, True, 0, turns=2)
    for round_ in plan.rounds(Cursor()):
        assert {piece.partition % 2 for piece in round_.pieces} == {round_.cursor.round % 2}


@given(plans, st.data())
def test_from_any_cursor_the_same_rounds_follow(plan, data):
    rounds = list(plan.rounds(Cursor()))
    # A plan is its fields: an equal one made anew says the same.
    assert list(replace(plan).rounds(Cursor())) == rounds
    start = data.draw(st.integers(0, len(rounds)))
    cursor = rounds[start].cursor if start < len(rounds) else Cursor(plan.passes)
    assert list(plan.rounds(cursor)) == rounds[start:]
    for before, after in pairwise(rounds):
        assert before.after == after.cursor
    if rounds:
        assert rounds[-1].after == Cursor(plan.passes)


def test_passes_have_orders_of_their_own_when_shuffled():
    plan = Plan((5,) * 20, 4, 2, 3, True, seed=1)
    orders = [list(plan.order(number)) for number in range(3)]
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert [list(plan.order(number)) for number in range(3)] == orders
    assert list(replace(plan, seed=2).order(0)) != orders[0]
    assert list(replace(plan, shuffle=False).order(1)) == list(range(20))


def test_no_rows_no_rounds():
    assert list(Plan((0, 0), 3, 2, 2, True, 0).rounds(Cursor())) == []
    assert list(Plan((0, 0), 1, 2, 2, True, 0).rounds(Cursor())) == []


@pytest.mark.parametrize("batch_size", [1, 64])
def test_a_late_cursor_is_found_quickly(batch_size):
    plan = Plan((1000,) * 200, batch_size, 4, 50, True, 0, chunk_rows=100)
    rounds = plan.rounds(Cursor(49, 1000))
    assert next(rounds).cursor == Cursor(49, 1000)
