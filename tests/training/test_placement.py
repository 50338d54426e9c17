"""Where work is asked for: near the rows, and evenly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dadagrad.training.engines.dask.placement import Placement, worthwhile_tasks


def test_steps_are_cut_as_far_as_it_pays():
    assert [worthwhile_tasks(work) for work in (0, 1e4, 2e5, 3e5, 1e6)] == [1, 1, 1, 2, 7]


def test_partitions_are_spread_by_threads():
    placement = Placement({"a": 1, "b": 3}, 4)
    homes = [placement.open(reading, reading) for reading in range(8)]
    assert homes.count("a") == 2
    assert homes.count("b") == 6


def test_no_more_workers_are_used_than_there_are_tasks():
    placement = Placement({"a": 1, "b": 1, "c": 1}, 2)
    assert [placement.open(reading, reading) for reading in range(4)] == ["a", "b", "a", "b"]
    # One that was there before has gone, and another took its partitions over.
    for reading in (0, 2):
        placement.read_by(reading, reading, "c")
    placement.update({"b": 1, "c": 1, "d": 1})
    assert {placement.open(reading, reading) for reading in range(4, 8)} == {"b", "c"}


def test_a_step_of_one_task_stays_with_one_worker():
    placement = Placement({"a": 4, "b": 4}, 1)
    for reading in range(4):
        placement.open(reading, reading)
    assert placement.tasks_of(range(4)) == [("a", [0, 1, 2, 3])]


def test_a_worker_that_read_a_partition_before_is_asked_again_where_that_is_even():
    placement = Placement({"a": 1, "b": 1}, 2)
    placement.open(0, 0)
    placement.read_by(0, 0, "b")
    placement.close(0)
    assert placement.open(1, 0) == "b"
    placement.read_by(1, 0, "b")
    placement.read_by(2, 5, "b")
    placement.close(2)
    # It has one already.
    assert placement.open(3, 5) == "a"


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(1, 3)), min_size=1, max_size=6),
    st.integers(1, 6),
)
def test_partitions_are_only_at_workers_that_are_there(changes, tasks):
    placement = Placement({"0": 1, "1": 1}, tasks)
    for reading in range(8):
        placement.read_by(reading, reading, str(placement.open(reading, reading)))
    threads = {"0": 1, "1": 1}
    for worker, n_threads in changes:
        if len(threads) > 1 and str(worker) in threads:
            del threads[str(worker)]
        else:
            threads[str(worker)] = n_threads
        placement.update(threads)
        for reading in range(8):
            placement.close(reading)
        assert {placement.open(reading, reading) for reading in range(8)} <= set(threads)


def test_partitions_needed_in_the_same_round_are_read_together():
    placement = Placement({"a": 1, "b": 2}, 8)
    for reading, worker in enumerate("aabbbba"):
        placement.read_by(reading, reading, worker)
    needed_at = {0: 5, 1: 5, 2: 5, 3: 5, 4: 5, 5: 6, 6: 6, 7: 6}
    assert placement.reading_groups(needed_at) == [
        ("a", [0, 1]), ("b", [2, 4]), ("b", [3]), ("b", [5]), ("a", [6]), (None, [7])
    ]  # fmt: skip


def test_work_follows_the_rows():
    placement = Placement({"a": 1, "b": 1}, 2)
    assert [placement.open(reading, reading) for reading in range(4)] == ["a", "b", "a", "b"]
    assert placement.tasks_of([0, 1, 2, 3]) == [("a", [0, 2]), ("b", [1, 3])]
    placement.read_by(0, 0, "b")  # a lost worker's, or one that another took over
    assert placement.tasks_of([0, 1, 2, 3]) == [("b", [0, 1, 3]), ("a", [2])]


def test_a_worker_that_has_gone_is_given_no_partition():
    placement = Placement({"a": 1, "b": 1}, 2)
    placement.open(0, 0)
    placement.update({"b": 2})
    assert {placement.open(reading, reading) for reading in range(1, 4)} == {"b"}
    # Of what it had, nobody is known to have the rows.
    assert placement.tasks_of([0, 1]) == [(None, [0]), ("b", [1])]


def test_a_worker_that_joins_gets_its_share_of_what_is_open():
    placement = Placement({"a": 1}, 4)
    for reading in range(4):
        placement.open(reading, reading)
        placement.read_by(reading, reading, "a")
    placement.update({"a": 1, "b": 1})
    assert placement.tasks_of(range(4)) == [("a", [0, 1]), ("b", [2, 3])]
    placement.update({"a": 1, "b": 2})
    assert placement.tasks_of(range(4)) == [("a", [0]), ("b", [1, 3]), ("b", [2])]
    placement.update({"b": 2})
    assert placement.tasks_of(range(4)) == [(None, [0]), ("b", [1, 3]), ("b", [2])]


def test_a_worker_that_joins_is_left_alone_where_steps_are_not_worth_cutting():
    placement = Placement({"a": 1}, 1)
    for reading in range(4):
        placement.open(reading, reading)
    placement.update({"a": 1, "b": 1})
    assert placement.tasks_of(range(4)) == [("a", [0, 1, 2, 3])]


def test_without_workers_nothing_is_asked_of_those_that_were():
    placement = Placement({"a": 1}, 2)
    for reading in range(2):
        placement.open(reading, reading)
    placement.update({})
    assert placement.open(2, 2) is None
    assert placement.tasks_of([0, 1]) == [(None, [0]), (None, [1])]
    placement.update({"c": 1})
    assert placement.open(3, 3) == "c"


def test_without_a_known_worker_there_is_no_preference():
    placement = Placement({}, 2)
    assert placement.open(0, 0) is None
    assert placement.tasks_of([0, 1]) == [(None, [0]), (None, [1])]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(1, 12),
    st.integers(1, 30),
)
def test_every_piece_is_in_one_group_and_groups_are_as_many_as_threads(threads, n_readings, tasks):
    placement = Placement({f"w{number}": count for number, count in enumerate(threads)}, tasks)
    for reading in range(n_readings):
        placement.open(reading, reading)
    groups = placement.tasks_of(range(n_readings))
    assert sorted(position for _, group in groups for position in group) == list(range(n_readings))
    assert all(group == sorted(group) and group for _, group in groups)
    for number, count in enumerate(threads):
        assert sum(worker == f"w{number}" for worker, _ in groups) <= count
    # Rounding up a worker's share may make a task more for each but one of them.
    assert len(groups) <= min(n_readings, sum(threads), tasks + len(threads) - 1)
    if tasks >= sum(threads):
        assert len(groups) == min(n_readings, sum(threads))
