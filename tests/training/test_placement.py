"""Placement of work on workers: near the rows, and evenly."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad.training.engines.dask.placement import Placement
from dadagrad.training.engines.dask.streams.holders import choose_holders
from dadagrad.training.messages import Compute, Open
from dadagrad.training.schedule.base import Slice


@settings(max_examples=50)
@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 8), min_size=1),
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 8), min_size=1),
    st.integers(8, 64),
)
def test_shards_have_holders_by_threads_and_stay_with_those_that_stay(before, threads, n_shards):
    def chosen(threads, having):
        return choose_holders(n_shards, threads, having, min(2, len(threads)))

    first = chosen(before, {})
    holders = chosen(threads, {number: list(some) for number, some in enumerate(first)})
    loads = Counter(worker for some in holders for worker in some)
    for some in holders:
        assert len(set(some)) == min(2, len(threads))
        assert set(some) <= threads.keys()
    fair = n_shards * min(2, len(threads)) / sum(threads.values())
    assert all(loads[worker] >= min(n_shards, 0.4 * fair * n) - 2 for worker, n in threads.items())
    if before == threads:
        assert list(map(set, holders)) == list(map(set, first))


def placed(threads, tasks, readings):
    """A placement with so many open readings, and the workers that it chose for them."""
    placement = Placement(threads, tasks)
    return placement, [placement.open(reading, reading) for reading in range(readings)]


def slice_of(reading):
    return Slice(reading, reading, 0, 1, False)


def tasks_of(placement, n_readings):
    """The workers of the tasks of a step with a slice of each reading, and their readings."""
    computes = [Compute(reading, (slice_of(reading),), None) for reading in range(n_readings)]
    groups = placement.tasks_of(computes)
    return [(worker, [each.task for each in group]) for worker, group in groups]


def test_work_follows_the_rows():
    placement, homes = placed({"a": 1, "b": 1}, 2, 4)
    assert homes == ["a", "b", "a", "b"]
    assert tasks_of(placement, 4) == [("a", [0, 2]), ("b", [1, 3])]
    placement.read_by(0, 0, "b")  # a lost worker's, or one that another took over
    assert tasks_of(placement, 4) == [("b", [0, 1, 3]), ("a", [2])]
    placement.update({"b": 1})  # of what the other had, nobody is known to have the rows
    assert tasks_of(placement, 4) == [("b", [0, 1, 3]), (None, [2])]


def test_a_stream_goes_on_where_the_partition_is_that_it_has_begun():
    placement = Placement({"a": 1, "b": 1}, 2)
    for stretch in ((0, 1), (2, 3), (1, 4), (3,), (4, 5)):
        placement.keep_together([slice_of(reading) for reading in stretch])
    assert tasks_of(placement, 6) == [("a", [0, 1, 4, 5]), ("b", [2, 3])]


def test_partitions_needed_in_the_same_round_are_read_together():
    placement = Placement({"a": 1, "b": 2}, 8)
    for reading, worker in enumerate("aabbbba"):
        placement.read_by(reading, reading, worker)
    opens = [Open(reading, reading, needed_at=5 if reading < 5 else 6) for reading in range(8)]
    groups = placement.reading_groups(opens)
    assert [(worker, [each.reading for each in group]) for worker, group in groups] == [
        ("a", [0, 1]), ("b", [2, 4]), ("b", [3]), ("b", [5]), ("a", [6]), (None, [7])
    ]  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(1, 3)), min_size=1, max_size=6),
    st.integers(1, 6),
)
def test_partitions_are_only_at_workers_that_are_there(changes, tasks):
    threads = {"0": 1, "1": 1}
    placement, homes = placed(threads, tasks, 8)
    for reading, home in enumerate(homes):
        placement.read_by(reading, reading, str(home))
    for worker, n_threads in changes:
        if len(threads) > 1 and str(worker) in threads:
            del threads[str(worker)]
        else:
            threads[str(worker)] = n_threads
        placement.update(threads)
        for reading in range(8):
            placement.close(reading)
        assert {placement.open(reading, reading) for reading in range(8)} <= set(threads)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 12), st.integers(1, 30))
def test_every_slice_is_in_one_task_and_tasks_are_as_many_as_threads(threads, n_readings, tasks):
    workers = {f"w{number}": count for number, count in enumerate(threads)}
    placement, _ = placed(workers, tasks, n_readings)
    groups = tasks_of(placement, n_readings)
    assert sorted(position for _, group in groups for position in group) == list(range(n_readings))
    assert all(group == sorted(group) and group for _, group in groups)
    for name, count in workers.items():
        assert sum(worker == name for worker, _ in groups) <= count
    # Rounding up a worker's share may make a task more for each but one of them.
    assert len(groups) <= min(n_readings, sum(threads), tasks + len(threads) - 1)
    if tasks >= sum(threads):
        assert len(groups) == min(n_readings, sum(threads))
