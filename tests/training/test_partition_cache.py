"""The partitions of a worker: each read once, whoever asks for it first."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.training_cases import make_data
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.errors import CorruptionError
from dadagrad.training.engines.dask.partition_cache import PartitionCache

DATA = make_data((30, 20, 40, 10))


class Reader:
    def __init__(self):
        self.numbers = []

    def __call__(self, number):
        def read():
            self.numbers.append(number)
            return DATA.read(number)

        return ("digest", number), read


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=30))
def test_a_partition_is_read_once_by_all_threads_together(requests):
    cache, read = PartitionCache(1 << 30), Reader()

    def ask(request):
        ahead, number = request
        if ahead:
            cache.read_ahead(*read(number))
        return number, None if ahead else cache.load(*read(number))

    with ThreadPoolExecutor(4) as pool:
        for number, rows in pool.map(ask, requests):
            assert rows is None or rows.n_rows == DATA.read(number).n_rows
    assert sorted(set(read.numbers)) == sorted(read.numbers)
    assert set(read.numbers) <= {number for _, number in requests}


def test_a_partition_read_ahead_waits_for_its_use():
    cache, read = PartitionCache(0), Reader()
    cache.read_ahead(*read(1))
    for _ in range(2):
        cache.load(*read(1))
    assert read.numbers == [1, 1]
    assert not cache.kept


def test_an_error_of_reading_ahead_is_that_of_the_use_and_is_tried_again():
    cache, read = PartitionCache(1 << 30), Reader()
    failed = threading.Event()

    def fail():
        failed.set()
        raise CorruptionError("partition part-00001 is damaged")

    cache.read_ahead(("digest", 1), fail)
    failed.wait()
    with pytest.raises(CorruptionError, match="part-00001"):
        cache.load(*read(1))
    assert cache.load(*read(1)).n_rows == 20
    cache.forget("digest")
    cache.load(*read(1))
    assert read.numbers == [1, 1]
