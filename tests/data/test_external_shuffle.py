"""External shuffle: rows come out whole, in order or shuffled, from memory or from files."""

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from helpers.blocks import block_rows, make_block
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad import StorageError, dataset_from_arrays
from dadagrad.data.blocks import Block, concatenate
from dadagrad.data.external_shuffle import ExternalShuffle

row_lengths = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=8), min_size=1, max_size=8)


def partitions(blocks, *, seed, run_bytes, nnz=20):
    collected = ExternalShuffle(seed=seed, run_bytes=run_bytes)
    for block in blocks:
        collected.append(block)
    collected.finish()
    bounds = collected.bounds(nnz)
    return [collected.read(bounds, part) for part in range(bounds.shape[1] - 1)]


@given(row_lengths, st.integers(1, 40), st.sampled_from([1, 500, 1 << 30]))
@settings(max_examples=30)
def test_without_a_seed_rows_keep_their_order(lengths, nnz, run_bytes):
    blocks = [make_block(sizes, 10 * number, number) for number, sizes in enumerate(lengths)]
    parts = partitions(blocks, seed=None, run_bytes=run_bytes, nnz=nnz)
    assert block_rows(concatenate(parts)) == block_rows(concatenate(blocks))
    longest = max(max(sizes) for sizes in lengths) + 1
    assert all(part.n_rows > 0 and part.nnz + part.n_rows < nnz + longest for part in parts)


@given(row_lengths, st.integers(0, 5), st.integers(1, 40))
def test_a_shuffle_keeps_rows_whole_and_depends_only_on_the_seed(lengths, seed, nnz):
    blocks = [make_block(sizes, 10 * number, number) for number, sizes in enumerate(lengths)]
    results = [
        block_rows(concatenate(partitions(blocks, seed=seed, run_bytes=size, nnz=cut_at)))
        for size, cut_at in ((1, nnz), (700, 7), (1 << 30, nnz))
    ]
    assert results[0] == results[1] == results[2]
    assert sorted(results[0]) == sorted(block_rows(concatenate(blocks)))


@pytest.mark.parametrize("queried", [False, True])
def test_every_order_is_equally_likely(queried):
    """The test before shows that the order depends on the seed, and not on files."""
    n_seeds = 600
    blocks = [make_block([1, 1], 0), make_block([1, 9], 2)]
    if not queried:
        blocks = [replace(block, queries=None) for block in blocks]
    orders = Counter()
    for seed in range(n_seeds):
        parts = partitions(blocks, seed=seed, run_bytes=1 << 30, nnz=4)
        orders[tuple(concatenate(parts).labels[:, 0].tolist())] += 1
    expected = n_seeds / 24
    assert len(orders) == 24
    chi_square = sum((count - expected) ** 2 / expected for count in orders.values())
    assert chi_square < 49.7  # 23 degrees of freedom: a chance of 0.001, and the seeds are fixed


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=25),
    run_rows=st.integers(1, 12),
    partition_nnz=st.integers(1, 40),
    shuffle=st.none() | st.integers(0, 3),
)
def test_no_partition_cuts_a_query(lengths, run_rows, partition_nnz, shuffle):
    queries = np.repeat(np.arange(len(lengths)), lengths)

    def collect(size, nnz, run_bytes):
        """Partitions of rows of one entry each, labelled by their numbers."""
        starts = range(0, len(queries), size)
        pieces = [(start, queries[start : start + size]) for start in starts]
        blocks = [replace(make_block([1] * len(q), start), queries=q) for start, q in pieces]
        return partitions(blocks, seed=shuffle, run_bytes=run_bytes, nnz=nnz)

    parts = collect(run_rows, partition_nnz, 1)
    rows = np.concatenate([part.labels[:, 0] for part in parts]).astype(int)
    np.testing.assert_array_equal(np.sort(rows), np.arange(len(queries)))
    # The rows of a query are neighbours, in their order, in one partition.
    holders = [set(part.queries.tolist()) for part in parts]
    assert sum(map(len, holders)) == len(set().union(*holders)) == len(lengths)
    assert all(part.n_rows for part in parts)
    met = queries[rows]
    assert np.count_nonzero(np.diff(met)) == len(lengths) - 1
    assert (np.diff(rows)[np.diff(met) == 0] == 1).all()
    if shuffle is None:
        np.testing.assert_array_equal(rows, np.arange(len(queries)))
    # The order does not depend on runs and partitions.
    whole = np.concatenate([part.queries for part in collect(1000, 1000, 1 << 30)])
    np.testing.assert_array_equal(met, whole)


def test_only_large_data_goes_to_files_which_have_no_names(tmp_path, monkeypatch):
    """Files without names go with the process, however it ends."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for run_bytes, n_files in ((None, 0), (1, 1)):
        collected = ExternalShuffle(seed=1, run_bytes=run_bytes)
        collected.append(make_block([3] * 50))
        collected.finish()
        opened = [path for path in Path("/proc/self/fd").iterdir() if str(tmp_path) in target(path)]
        assert (len(opened), list(tmp_path.iterdir())) == (n_files, [])


def target(link):
    return str(link.readlink()) if link.is_symlink() else ""


def test_memory_does_not_grow_with_the_rows_that_were_read():
    """All 64 MB are read from files, 1 MB at a time."""
    collected = ExternalShuffle(seed=1, run_bytes=1 << 20)
    for _ in range(64):
        collected.append(make_block([100] * 1000))
    bounds = collected.bounds(100_000)
    before = memory()
    for number in range(bounds.shape[1] - 1):
        collected.read(bounds, number)
    assert collected.nnz * 8 > 50e6
    assert memory() - before < 20e6


def memory():
    """Bytes of this process, with those of mapped files."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmRSS:\s*(\d+)", status)[1])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's full device")
def test_a_disk_that_cannot_be_written_is_explained(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    collected = ExternalShuffle(seed=None, run_bytes=1)
    with pytest.raises(StorageError, match=r"temporary files to .*none failed: .* TMPDIR"):
        collected.append(make_block([1]))
    full = partial(open, "/dev/full", "wb")
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(StorageError, match=r"temporary files to .* is full; free space there"):
        collected.append(make_block([1]))


def test_columns_that_only_some_blocks_have_are_filled():
    plain = Block(np.array([0, 1]), np.array([3]), None, np.array([[1.0]]))
    rows = block_rows(concatenate([plain, make_block([2], 7)]))
    assert rows == [(1.0, ((3, 1.0),), 1.0, "", 0), *block_rows(make_block([2], 7))]


@pytest.mark.parametrize("seed", [0, 42])
def test_labels_of_the_generator_of_the_same_seed_are_shuffled_too(seed):
    """People make labels with the seed that they give, or with that of the default."""
    rng = np.random.default_rng(seed)
    y = rng.random(4000) < 0.5
    data = dataset_from_arrays(rng.normal(size=(4000, 2)), y, shuffle=seed)
    labels = data.read(0).labels[:, 0]
    assert np.count_nonzero(np.diff(labels)) > 1500
