"""Memory that is used again must not be used too early, and arrays in large pages are like others.

Unused memory turns to garbage at once here.
"""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from helpers.training_cases import as_dataset, bits, make_data
from helpers.zarr_cases import write_zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad import TrainConfig, train
from dadagrad.data import buffers
from dadagrad.data.buffers import LARGE_PAGE, Pool, zeros
from dadagrad.data.zarr.dataset import ZarrDataset
from dadagrad.training import execution

GARBAGE = 0
"""Rows of zeros are wrong, but a kernel that works on them stays inside its arrays."""


class Garbage(list):
    """Unused memory, which is overwritten when it is given back."""

    n_overwritten = 0

    def append(self, memory):
        memory.fill(GARBAGE)
        Garbage.n_overwritten += 1
        super().append(memory)


@pytest.fixture
def pool(monkeypatch):
    """The pool of this process, for arrays of any size, whose unused memory is overwritten."""
    monkeypatch.setattr(buffers, "MIN_REUSED", 1)
    monkeypatch.setattr(buffers.POOL, "_unused", Garbage())
    monkeypatch.setattr(Garbage, "n_overwritten", 0)
    return buffers.POOL


@pytest.fixture(scope="module")
def in_memory():
    """Partitions of many sizes; some have no values, and all have weights."""
    made = make_data((30, 17, 41, 8, 60, 25, 33, 1, 50), weighted=True)
    parts = [made.read(number) for number in range(len(made.partitions))]
    parts[2], parts[5] = (replace(parts[number], values=None) for number in (2, 5))
    return as_dataset(parts)


@pytest.fixture(scope="module")
def url(in_memory, tmp_path_factory):
    return write_zarr(in_memory, tmp_path_factory.mktemp("reused") / "data")


@pytest.mark.parametrize(
    ("settings", "threads"),
    [
        ({"batch_size": 1}, 1),
        ({"batch_size": 1, "step_size": "auto"}, 3),
        ({"streams": 3, "rounds": 4}, 3),
        ({"batch_size": 9, "partitions_per_batch": 1}, 1),
        ({"batch_size": 64, "partitions_per_batch": 4, "step_size": "auto"}, 3),
    ],
    ids=str,
)
def test_rows_are_not_overwritten_while_they_are_needed(
    in_memory, url, settings, threads, monkeypatch, pool
):
    monkeypatch.setattr(execution, "CHUNK_ROWS", 7)
    config = TrainConfig(**{"step_size": 0.3, "l1": 1e-3, "passes": 3} | settings)
    result = train(ZarrDataset(url), config, threads=threads)
    assert Garbage.n_overwritten > 3 * len(in_memory.partitions)
    assert bits(result) == bits(train(in_memory, config, threads=threads))


def test_a_run_takes_the_memory_of_a_few_partitions(url, pool, monkeypatch):
    held = []

    class Noting(ZarrDataset):
        def read(self, partition):
            rows = super().read(partition)
            held.append(pool._held)
            return rows

    train(Noting(url), TrainConfig(step_size=0.3, batch_size=1, passes=9), threads=2)
    assert len(held) >= 9 * 9
    assert max(held) < 2 * max(held[:9])


def test_memory_is_used_again_when_the_last_view_is_gone():
    pool = Pool()
    array = pool.empty(100_000, np.float64)
    address, view = array.ctypes.data, array.reshape(100, 1000)[5:]
    del array
    assert pool.unused_bytes == 0
    del view
    assert pool.unused_bytes >= 800_000
    assert pool.empty(800_000, np.uint8).ctypes.data == address


def test_a_pool_holds_little_more_than_was_in_use():
    pool = Pool()
    for length in range(100_000, 8_000_000, 250_000):  # each too long for the one before
        pool.empty(length, np.uint8)
    assert pool.unused_bytes < 1.5 * length
    pool.release()
    assert pool.unused_bytes == 0


@settings(max_examples=30, deadline=None)
@given(
    shape=st.one_of(
        st.integers(0, 2 * LARGE_PAGE),
        st.tuples(st.integers(0, 300), st.integers(0, 3000), st.integers(1, 2)),
    ),
    dtype=st.sampled_from([np.uint8, np.float32, np.float64, np.complex128]),
)
def test_zeros_of_a_shape(shape, dtype):
    array, expected = zeros(shape, dtype), np.zeros(shape, dtype)
    assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert not array.any()
    array.fill(3)
    assert (array == 3).all()
    if array.size:
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(array[:1])), array[:1])


@pytest.mark.parametrize("shape", [1 << 60, (1 << 31, 1 << 31)])
def test_more_than_there_is(shape):
    with pytest.raises((MemoryError, ValueError)):
        zeros(shape, np.float64)
