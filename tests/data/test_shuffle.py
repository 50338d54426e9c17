"""The spool: rows come out whole, in order or shuffled, from memory or from files."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.data.blocks import Block
from dadagrad.data.combine import concatenate, cut, take, transform_values
from dadagrad.data.spool import FileRun, MemoryRun, Spool, explain_full_disk, write_array
from dadagrad.data.vocabulary import find_vocabulary
from dadagrad.errors import StorageError


def make_block(lengths: list[int], first_label: int = 0, seed: int = 0) -> Block:
    """Rows of the given lengths whose labels count from `first_label`."""
    generator = np.random.default_rng(seed)
    rows = [np.sort(generator.choice(1000, size, replace=False)) for size in lengths]
    n_rows = len(lengths)
    return Block(
        indptr=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        ids=np.concatenate([*rows, np.zeros(0)]).astype(np.int64),
        values=generator.normal(size=sum(lengths)).astype(np.float32),
        labels=np.arange(first_label, first_label + n_rows, dtype=np.float64)[:, None],
        weights=generator.random(n_rows).astype(np.float32),
        queries=np.arange(first_label, first_label + n_rows),
        tags=np.array([f"row {first_label + row}" for row in range(n_rows)], object),
    )


def as_rows(block: Block) -> list[tuple[Any, ...]]:
    values = np.ones(block.nnz, np.float32) if block.values is None else block.values
    return [
        (
            float(block.labels[row, 0]),
            tuple(block.ids[start:stop].tolist()),
            tuple(values[start:stop].tolist()),
            None if block.weights is None else float(block.weights[row]),
            None if block.tags is None else str(block.tags[row]),
            None if block.queries is None else int(block.queries[row]),
        )
        for row, (start, stop) in enumerate(zip(block.indptr, block.indptr[1:], strict=False))
    ]


def run_spool(
    blocks: list[Block], tmp_path: Path, *, shuffle: int | None, run_bytes: int, nnz: int = 20
) -> tuple[list[Block], int]:
    with Spool(shuffle=shuffle, folder=str(tmp_path), run_bytes=run_bytes) as spool:
        for block in blocks:
            spool.append(block)
        spool.finish()
        bounds = spool.bounds(nnz)
        parts = [spool.read(bounds, part) for part in range(bounds.shape[1] - 1)]
        n_runs = len(spool.runs)
    assert list(tmp_path.iterdir()) == []
    return parts, n_runs


blocks_of_rows = st.lists(
    st.lists(st.integers(0, 9), min_size=1, max_size=8), min_size=1, max_size=8
)


@given(blocks_of_rows, st.integers(1, 40), st.sampled_from([1, 500, 1 << 30]))
def test_without_shuffle_rows_keep_their_order(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[list[int]], nnz: int, run_bytes: int
) -> None:
    blocks = [make_block(sizes, 10 * number, number) for number, sizes in enumerate(lengths)]
    folder = tmp_path_factory.mktemp("spool")
    parts, _ = run_spool(blocks, folder, shuffle=None, run_bytes=run_bytes, nnz=nnz)
    assert as_rows(concatenate(parts)) == as_rows(concatenate(blocks))
    longest = max(max(sizes) for sizes in lengths) + 1
    for part in parts:
        assert part.n_rows > 0
        assert part.nnz + part.n_rows < nnz + longest


@given(blocks_of_rows, st.integers(0, 5), st.integers(1, 40))
def test_shuffle_keeps_rows_whole_and_depends_on_the_seed_alone(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[list[int]], seed: int, nnz: int
) -> None:
    blocks = [make_block(sizes, 10 * number, number) for number, sizes in enumerate(lengths)]
    folder = tmp_path_factory.mktemp("spool")
    results = [
        concatenate(run_spool(blocks, folder, shuffle=seed, run_bytes=size, nnz=cut_at)[0])
        for size, cut_at in ((1, nnz), (700, 7), (1 << 30, nnz))
    ]
    assert as_rows(results[0]) == as_rows(results[1]) == as_rows(results[2])
    assert sorted(as_rows(results[0])) == sorted(as_rows(concatenate(blocks)))


@pytest.mark.parametrize("run_bytes", [1, 1 << 30])
@pytest.mark.parametrize("queried", [False, True])
def test_every_order_is_equally_likely(tmp_path: Path, run_bytes: int, queried: bool) -> None:
    blocks = [make_block([1, 1], 0), make_block([1, 9], 2)]
    if not queried:
        blocks = [replace(block, queries=None) for block in blocks]
    orders: Counter[tuple[float, ...]] = Counter()
    n_seeds = 2400
    for seed in range(n_seeds):
        parts, _ = run_spool(blocks, tmp_path, shuffle=seed, run_bytes=run_bytes, nnz=4)
        orders[tuple(concatenate(parts).labels[:, 0].tolist())] += 1
        if run_bytes == 1 and seed == 599:
            n_seeds = 600
            break
    expected = n_seeds / 24
    assert len(orders) == 24
    chi_square = sum((count - expected) ** 2 / expected for count in orders.values())
    assert chi_square < 49.7  # 23 degrees of freedom: a chance of 0.001, and the seeds are fixed


def test_small_data_stays_in_memory_and_large_data_goes_to_files(tmp_path: Path) -> None:
    block = make_block([3] * 50)
    with Spool(shuffle=None, folder=str(tmp_path)) as spool:
        spool.append(block)
        spool.finish()
        assert [type(run) for run in spool.runs] == [MemoryRun]
        assert list(tmp_path.iterdir()) == []
    with Spool(shuffle=None, folder=str(tmp_path), run_bytes=2000) as spool:
        for number in range(10):
            spool.append(make_block([3] * 50, 50 * number))
        spool.finish()
        assert len(spool.runs) > 1
        assert all(isinstance(run, FileRun) for run in spool.runs)
    assert list(tmp_path.iterdir()) == []


def test_temporary_files_go_when_something_fails(tmp_path: Path) -> None:
    def fill() -> None:
        with Spool(shuffle=1, folder=str(tmp_path), run_bytes=1) as spool:
            spool.append(make_block([1]))
            assert list(tmp_path.iterdir())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's full device")
def test_a_full_disk_is_explained() -> None:
    with (
        pytest.raises(StorageError, match=r"temporary files to /tmp/x is full; free space there"),
        explain_full_disk(Path("/tmp/x")),
    ):
        write_array(Path("/dev/full"), np.arange(10))


def test_temporary_folder_that_is_not_there_is_explained(tmp_path: Path) -> None:
    with (
        Spool(shuffle=None, folder=str(tmp_path / "none"), run_bytes=1) as spool,
        pytest.raises(StorageError, match=r"temporary files to .*none failed: .* TMPDIR"),
    ):
        spool.append(make_block([1]))


def test_missing_columns_are_filled() -> None:
    plain = Block(np.array([0, 1]), np.array([3]), None, np.array([[1.0]]))
    joined = concatenate([plain, make_block([2], 7)])
    assert joined.values is not None
    assert joined.values[0] == 1
    assert joined.weights is not None
    assert joined.weights[0] == 1
    assert joined.tags is not None
    assert joined.tags.tolist() == ["", "row 7"]


def test_cut_and_take_agree_with_rows() -> None:
    block = make_block([2, 0, 3, 1, 4])
    rows = as_rows(block)
    assert as_rows(cut(block, 1, 4)) == rows[1:4]
    assert as_rows(take(block, np.array([4, 1, 2]))) == [rows[4], rows[1], rows[2]]


def test_norm_of_rows_with_values_and_without() -> None:
    block = transform_values(make_block([3, 0, 1]), binary=False, norm="l2")
    assert block.values is not None
    assert np.linalg.norm(block.values[:3]) == pytest.approx(1, abs=1e-6)
    assert abs(block.values[3]) == pytest.approx(1, abs=1e-6)
    block = transform_values(make_block([4, 0]), binary=True, norm="l2")
    assert block.values is None
    assert block.row_scale is not None
    assert block.row_scale.tolist() == [0.5, 1]


@given(st.lists(st.integers(0, 2**62), max_size=300), st.integers(1, 30))
def test_vocabulary_is_that_of_unique(ids: list[int], repeats: int) -> None:
    everything = np.array(ids * repeats, np.int64)
    vocabulary, indices = find_vocabulary(everything)
    expected, inverse = np.unique(everything, return_inverse=True)
    np.testing.assert_array_equal(vocabulary, expected)
    np.testing.assert_array_equal(indices, inverse)


def test_vocabulary_of_many_ids() -> None:
    ids = np.random.default_rng(0).integers(0, 2**31, 100_000).astype(np.int32)
    vocabulary, indices = find_vocabulary(ids)
    np.testing.assert_array_equal(vocabulary[indices], ids)
    assert (np.diff(vocabulary) > 0).all()
