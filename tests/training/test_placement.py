"""Where work is asked for: near the rows, and evenly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dadagrad.training.placement import Placement, worthwhile_tasks


def test_steps_are_cut_as_far_as_it_pays():
    assert [worthwhile_tasks(work) for work in (0, 1e4, 2e5, 3e5, 1e6)] == [1, 1, 1, 2, 7]


def test_partitions_are_spread_by_threads():
    placement = Placement({"a": 1, "b": 3}, 4)
    homes = [placement.open(visit, visit) for visit in range(8)]
    assert homes.count("a") == 2
    assert homes.count("b") == 6


def test_no_more_workers_are_used_than_there_are_tasks():
    placement = Placement({"a": 1, "b": 1, "c": 1}, 2)
    assert [placement.open(visit, visit) for visit in range(4)] == ["a", "b", "a", "b"]
    # One that was there before has gone, and another took its partitions over.
    for visit in (0, 2):
        placement.found(visit, visit, "c")
    placement.update({"b": 1, "c": 1, "d": 1})
    assert {placement.open(visit, visit) for visit in range(4, 8)} == {"b", "c"}


def test_one_task_stays_with_one_worker_whatever_its_threads():
    placement = Placement({"a": 4, "b": 4}, 1)
    for visit in range(4):
        placement.open(visit, visit)
    assert placement.groups(range(4)) == [("a", [0, 1, 2, 3])]


def test_a_worker_that_read_a_partition_before_is_asked_again_where_that_is_even():
    placement = Placement({"a": 1, "b": 1}, 2)
    placement.open(0, 0)
    placement.found(0, 0, "b")
    placement.close(0)
    assert placement.open(1, 0) == "b"
    placement.found(1, 0, "b")
    placement.found(2, 5, "b")
    placement.close(2)
    # It has one already.
    assert placement.open(3, 5) == "a"


def test_each_turn_has_workers_of_its_own():
    for workers in (1, 2, 4, 8):
        names = [f"w{number}" for number in range(workers)]
        placement = Placement(dict.fromkeys(names, 1), 8, turns=2)
        homes = [placement.open(visit, visit, round_number=visit % 2) for visit in range(8)]
        assert all(homes.count(name) == 8 // workers for name in names)
        if workers > 1:
            assert not set(homes[::2]) & set(homes[1::2])


def test_a_worker_beyond_an_even_number_helps_all_turns():
    placement = Placement(dict.fromkeys("abc", 1), 8, turns=2)
    homes = [placement.open(visit, visit, round_number=visit % 2) for visit in range(6)]
    assert [homes.count(name) for name in "abc"] == [2, 2, 2]
    assert "b" not in homes[::2]
    assert "a" not in homes[1::2]


def test_no_more_workers_are_used_than_the_steps_under_way_have_tasks():
    placement = Placement(dict.fromkeys("abcd", 1), 1, turns=2)
    homes = [placement.open(visit, visit, round_number=visit % 4) for visit in range(8)]
    assert homes == ["a", "b"] * 4


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(1, 3)), min_size=1, max_size=6),
    st.sampled_from((1, 2, 4)),
    st.integers(1, 6),
)
def test_turns_keep_to_their_workers_while_workers_come_and_go(changes, turns, tasks):
    placement = Placement({"0": 1, "1": 1}, tasks, turns)
    for visit in range(8):
        placement.found(visit, visit, str(placement.open(visit, visit, visit)))
    threads = {"0": 1, "1": 1}
    for worker, n_threads in changes:
        if len(threads) > 1 and str(worker) in threads:
            del threads[str(worker)]
        else:
            threads[str(worker)] = n_threads
        placement.update(threads)
        for visit in range(8):
            placement.close(visit)
        homes = [placement.open(visit, visit, visit) for visit in range(8)]
        assert set(homes) <= set(threads)
        used = [worker for worker in threads if worker in homes]
        if len(used) in (1, 2, 4) and turns >= len(used):
            for side in range(len(used)):
                assert len(set(homes[side :: len(used)])) == 1


def test_what_is_needed_at_the_same_time_is_read_in_one_go():
    placement = Placement({"a": 1, "b": 2}, 8)
    for visit, worker in enumerate("aabbbba"):
        placement.found(visit, visit, worker)
    moments = {0: 5, 1: 5, 2: 5, 3: 5, 4: 5, 5: 6, 6: 6, 7: 6}
    assert placement.readings(moments) == [
        ("a", [0, 1]), ("b", [2, 4]), ("b", [3]), ("b", [5]), ("a", [6]), (None, [7])
    ]  # fmt: skip


def test_work_follows_the_rows():
    placement = Placement({"a": 1, "b": 1}, 2)
    assert [placement.open(visit, visit) for visit in range(4)] == ["a", "b", "a", "b"]
    assert placement.groups([0, 1, 2, 3]) == [("a", [0, 2]), ("b", [1, 3])]
    placement.found(0, 0, "b")  # a lost worker's, or one that another took over
    assert placement.groups([0, 1, 2, 3]) == [("b", [0, 1, 3]), ("a", [2])]


def test_a_worker_that_has_gone_is_given_no_partition():
    placement = Placement({"a": 1, "b": 1}, 2)
    placement.open(0, 0)
    placement.update({"b": 2})
    assert {placement.open(visit, visit) for visit in range(1, 4)} == {"b"}
    # Of what it had, nobody is known to have the rows.
    assert placement.groups([0, 1]) == [(None, [0]), ("b", [1])]


def test_a_worker_that_joins_gets_its_share_of_what_is_open():
    placement = Placement({"a": 1}, 4)
    for visit in range(4):
        placement.open(visit, visit)
        placement.found(visit, visit, "a")
    placement.update({"a": 1, "b": 1})
    assert placement.groups(range(4)) == [("a", [0, 1]), ("b", [2, 3])]
    placement.update({"a": 1, "b": 2})
    assert placement.groups(range(4)) == [("a", [0]), ("b", [1, 3]), ("b", [2])]
    placement.update({"b": 2})
    assert placement.groups(range(4)) == [(None, [0]), ("b", [1, 3]), ("b", [2])]


def test_a_worker_that_joins_is_left_alone_where_steps_are_not_worth_cutting():
    placement = Placement({"a": 1}, 1)
    for visit in range(4):
        placement.open(visit, visit)
    placement.update({"a": 1, "b": 1})
    assert placement.groups(range(4)) == [("a", [0, 1, 2, 3])]


def test_without_workers_nothing_is_asked_of_those_that_were():
    placement = Placement({"a": 1}, 2)
    for visit in range(2):
        placement.open(visit, visit)
    placement.update({})
    assert placement.open(2, 2) is None
    assert placement.groups([0, 1]) == [(None, [0]), (None, [1])]
    placement.update({"c": 1})
    assert placement.open(3, 3) == "c"


def test_without_a_known_worker_there_is_no_preference():
    placement = Placement({}, 2)
    assert placement.open(0, 0) is None
    assert placement.groups([0, 1]) == [(None, [0]), (None, [1])]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(1, 12),
    st.integers(1, 30),
)
def test_every_piece_is_in_one_group_and_groups_are_as_many_as_threads(threads, n_visits, tasks):
    placement = Placement({f"w{number}": count for number, count in enumerate(threads)}, tasks)
    for visit in range(n_visits):
        placement.open(visit, visit)
    groups = placement.groups(range(n_visits))
    assert sorted(position for _, group in groups for position in group) == list(range(n_visits))
    assert all(group == sorted(group) and group for _, group in groups)
    for number, count in enumerate(threads):
        assert sum(worker == f"w{number}" for worker, _ in groups) <= count
    # Rounding up a worker's share may make a task more for each but one of them.
    assert len(groups) <= min(n_visits, sum(threads), tasks + len(threads) - 1)
    if tasks >= sum(threads):
        assert len(groups) == min(n_visits, sum(threads))
