"""Rows between sources and partitions, shuffled, in temporary files if memory is too small.

Labels, the first id and the number of partitions are known only after the last row. So rows are
first collected: runs of `RUN_BYTES` are written to temporary files as plain arrays, and partitions
are then read from them. Data that fits in one run stays in memory.

The shuffle is an external sort by random keys of 64 bits, one for each row. Each run is sorted by
key; partition p of n gets the rows whose key is in the p-th of n equal parts of the range of keys,
one slice of each run, sorted once more. Every order is equally likely, and the order depends
neither on the number of partitions nor on that of workers.

The rows of a query (for rankings) stay together: they share one key, and partitions are cut
between queries.
"""

from __future__ import annotations

import errno
import math
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.blocks import COLUMNS, Block, compact, concatenate, cut, n_bytes, take
from dadagrad.data.labels import recode
from dadagrad.data.rows import query_begins, split_mix
from dadagrad.errors import StorageError

RUN_BYTES = 128 << 20
"""Rows are held in memory up to this size; making a run of them takes as much again."""

_OF_SHUFFLES = 0x5A1FF1E
"""Bits that differ between a seed and that of its keys. Without them, the keys of seed 0 would be
the numbers of ``default_rng(0)``, with which people make labels: these would come in order."""


class LocalRun:
    """Rows that were collected together, in memory; sorted by key, if any."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.n_rows, self.nnz = block.n_rows, block.nnz

    def column(self, name: str) -> Any:
        """A whole column of the block; None if it has none of this name."""
        return getattr(self.block, name)

    def read(self, start: int, stop: int) -> Block:
        """Rows ``start:stop``."""
        return cut(self.block, start, stop)

    def layout(self) -> tuple[dict[str, SavedArray], list[memoryview]]:
        """Places of the arrays in a file, and the content of the file."""
        arrays, content, offset = {}, [], 0
        for name in COLUMNS:
            if (column := self.column(name)) is not None:
                column = np.ascontiguousarray(column)
                arrays[name] = SavedArray(offset, column.dtype.str, column.shape)
                content.append(column.reshape(-1).view(np.uint8).data)
                offset += column.nbytes
        return arrays, content


@dataclass(frozen=True, slots=True)
class SavedArray:
    """An array in a file, from byte `offset` on."""

    offset: int
    dtype: str
    shape: tuple[int, ...]

    def read(self, file: BinaryIO, start: int, stop: int) -> NDArray[Any]:
        """Read the items ``start:stop`` of the first axis."""
        shape, dtype = (stop - start, *self.shape[1:]), np.dtype(self.dtype)
        item = dtype.itemsize * math.prod(self.shape[1:])
        file.seek(self.offset + start * item)
        buffer = bytearray(item * (stop - start))
        file.readinto(buffer)  # type: ignore[attr-defined]
        return np.frombuffer(buffer, dtype).reshape(shape)


@dataclass
class SavedRun:
    """A run in a file, with the methods of `LocalRun`; memory holds only the rows that are read.

    The file is not mapped: pages of a mapping count as memory of the process until it ends. `codes`
    are the final numbers of its text labels, and `first_line` counts the lines before it.
    """

    n_rows: int
    nnz: int
    arrays: dict[str, SavedArray]
    open: Callable[[], AbstractContextManager[BinaryIO]]
    codes: NDArray[np.int64] | None = None
    first_line: int = 0

    def column(self, name: str) -> Any:
        if name not in self.arrays:
            return None
        with self.open() as file:
            return self.arrays[name].read(file, 0, self.arrays[name].shape[0])

    def read(self, start: int, stop: int) -> Block:
        columns: dict[str, Any] = dict.fromkeys(COLUMNS)
        with self.open() as file:
            indptr = self.arrays["indptr"].read(file, start, stop + 1)
            first, last = int(indptr[0]), int(indptr[-1])
            for name, array in self.arrays.items():
                ends = (first, last) if name in ("ids", "values") else (start, stop)
                columns[name] = array.read(file, *ends)
        columns["indptr"] = indptr - first
        if self.codes is not None:
            columns["labels"] = recode(columns["labels"], self.codes)
        if columns["lines"] is not None:
            columns["lines"] += self.first_line
        return Block(**columns)


Run: TypeAlias = LocalRun | SavedRun


def to_temporary_file(run: LocalRun) -> SavedRun:
    """Write a run to a file without a name, which goes with the run or the process."""
    arrays, content = run.layout()
    try:
        with ExitStack() as stack:
            file: Any = stack.enter_context(tempfile.TemporaryFile())
            file.writelines(content)
            file.flush()
            close = stack.pop_all().close
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "is full" if full else f"failed: {error}"
        raise StorageError(
            f"writing temporary files to {tempfile.gettempdir()} {reason}; free space there "
            "(about 8 bytes for each non-zero of the data), or name another folder "
            "in the environment variable TMPDIR"
        ) from error
    saved = SavedRun(run.n_rows, run.nnz, arrays, partial(_locked, file, threading.Lock()))
    weakref.finalize(saved, close)
    return saved


@contextmanager
def _locked(file: BinaryIO, lock: AbstractContextManager[Any]) -> Iterator[BinaryIO]:
    """The file for one thread at a time."""
    with lock:
        yield file


class ShuffledRows:
    """Rows of `runs`, in the random order of their keys, or in their own if `seed` is None.

    `map_runs` applies a function to each run, as the built-in `map` does.
    """

    def __init__(
        self, runs: Sequence[Run], seed: int | None, map_runs: Callable[..., Iterable[Any]] = map
    ) -> None:
        self.runs = list(runs)
        self.n_rows = sum(run.n_rows for run in runs)
        self.nnz = sum(run.nnz for run in runs)
        self._seed = seed
        self._map = map_runs

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the workers."""
        return self.__dict__ | {"_map": map}

    @property
    def in_memory(self) -> bool:
        """True if no row lies in a temporary file."""
        return all(isinstance(run, LocalRun) for run in self.runs)

    def sample(self, n_rows: int) -> Block:
        """About `n_rows` rows: those of the smallest keys, or evenly spaced ones.

        They are the same whatever the runs are.
        """
        places: list[Any] = [2**64 * n_rows // self.n_rows] * len(self.runs)
        if self._seed is None:
            rows = np.linspace(0, self.n_rows - 1, min(n_rows, self.n_rows)).astype(np.int64)
            ends = np.cumsum([run.n_rows for run in self.runs])
            starts = np.searchsorted(rows, ends[:-1])
            places = [
                part - (end - run.n_rows)
                for part, end, run in zip(np.split(rows, starts), ends, self.runs, strict=True)
            ]
        return concatenate(list(self._map(_sample, self.runs, places)))

    def bounds(self, partition_nnz: int, n_label_columns: int = 1) -> NDArray[np.int64]:
        """Cut the rows into partitions, none of which is empty.

        A partition has up to `partition_nnz` entries, of which each row counts as one more, or as a
        quarter of its labels if it has more than four: rows without entries take memory, too.
        Partition p takes rows ``bounds[r, p]:bounds[r, p + 1]`` of run r: as many by size, in
        order, or equal parts of the range of keys.
        """
        row_size = max(1, n_label_columns // 4)
        total = self.nnz + self.n_rows * row_size
        n_partitions = -(-total // partition_nnz)
        parts = np.arange(1, n_partitions, dtype=object)
        sizes = [run.nnz + run.n_rows * row_size for run in self.runs]
        if self._seed is not None:
            limits = [(parts * 2**64 // n_partitions).astype(np.uint64)] * len(self.runs)
        else:
            ends = (parts * total // n_partitions).astype(np.int64)
            limits = [ends - before for before in np.cumsum([0, *sizes[:-1]])]
        inner_bounds = self._map(_find, self.runs, limits, [row_size] * len(self.runs))
        inner = zip(self.runs, inner_bounds, strict=True)
        bounds = np.array([[0, *rows, run.n_rows] for run, rows in inner], np.int64)
        if self._seed is None:
            bounds = self._between_queries(bounds)
        empty = (np.diff(bounds, axis=1) == 0).all(axis=0)
        return np.delete(bounds, np.flatnonzero(empty) + 1, axis=1)

    def _between_queries(self, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Move `bounds` of rows in order forward to the start of the next query, if rows have any.

        Bounds of one run can be moved to the next run, so rows are counted over all runs.
        """
        starts: list[NDArray[np.int64]] = []
        n_rows, last = 0, None
        for run in self.runs:
            queries = run.column("queries")
            if queries is None:
                return bounds
            begins = query_begins(queries) + n_rows
            starts.append(begins[1:] if queries[0] == last else begins)
            n_rows, last = n_rows + len(queries), queries[-1]
        rows = np.concatenate([*starts, [n_rows]])
        moved = rows[np.searchsorted(rows, bounds.sum(axis=0))]
        sizes = bounds[:, -1:]
        between: NDArray[np.int64] = np.clip(moved - (np.cumsum(sizes, axis=0) - sizes), 0, sizes)
        return between

    def read(self, bounds: NDArray[np.int64], partition: int) -> Block:
        """Rows of one partition; `bounds` is the result of the method `bounds`."""
        ranges = bounds[:, partition : partition + 2].tolist()
        pairs = zip(self.runs, ranges, strict=True)
        slices = [run.read(start, stop) for run, (start, stop) in pairs if start < stop]
        block = concatenate(slices)
        return block if len(slices) == 1 else _in_order_of_keys(block)


class ExternalShuffle(ShuffledRows):
    """Collects blocks and returns the rows of partitions.

    A `seed` of None keeps the order of the rows. All runs are saved by `save` if it is given, else
    in temporary files unless there is only one.
    """

    def __init__(
        self,
        *,
        seed: int | None,
        run_bytes: int | None = None,
        save: Callable[[LocalRun], SavedRun] | None = None,
    ) -> None:
        super().__init__([], seed)
        self._save = save
        self._run_bytes = RUN_BYTES if run_bytes is None else run_bytes
        self._blocks: list[Block] = []
        self._held_bytes = 0
        self._n_appended = 0

    def append(self, block: Block) -> None:
        """Add rows, if there are any; keys of a shuffle depend on the origin of block and row.

        The origin is by default the number of the append.
        """
        if not block.n_rows:
            return
        block = replace(compact(block), names=())
        self._held_bytes += n_bytes(block)
        if self._seed is not None:
            origin = block.origin or (self._n_appended,)
            block = replace(block, keys=_random_keys(self._seed, origin, block))
        self._blocks.append(block)
        self._n_appended += 1
        self.n_rows += block.n_rows
        self.nnz += block.nnz
        if self._held_bytes >= self._run_bytes:
            self._close_run(self._save or to_temporary_file)

    def finish(self) -> None:
        """Close the last run."""
        if self._blocks:
            self._close_run(self._save or (to_temporary_file if self.runs else None))

    def _close_run(self, save: Callable[[LocalRun], SavedRun] | None) -> None:
        run = LocalRun(_in_order_of_keys(concatenate(self._blocks)))
        self._blocks, self._held_bytes = [], 0
        self.runs.append(run if save is None else save(run))


def _sample(run: Run, place: Any) -> Block:
    """Rows of a run whose keys are below `place`, or the rows `place`."""
    keys = run.column("keys")
    if keys is None:
        return take(run.read(0, run.n_rows), place)
    below = run.n_rows if place >= 2**64 else np.searchsorted(keys, np.uint64(place))
    return run.read(0, int(below))


def _find(run: Run, limits: NDArray[Any], row_size: int) -> NDArray[np.int64]:
    """First row of a run at each of `limits`, which are keys, or sizes of the rows before."""
    places = run.column("keys")
    if places is None:
        places = run.column("indptr")[:-1] + np.arange(run.n_rows) * row_size
    return np.searchsorted(places, limits, side="left").astype(np.int64)


def _random_keys(seed: int, origin: tuple[int, ...], block: Block) -> NDArray[np.uint64]:
    """A random key for each row, or for each query: that of a query is the same in any block."""
    if block.queries is None:
        generator = np.random.default_rng([seed ^ _OF_SHUFFLES, *origin])
        return generator.integers(0, 2**64, block.n_rows, dtype=np.uint64)
    start = np.random.default_rng(seed ^ _OF_SHUFFLES).integers(0, 2**64, 1, dtype=np.uint64)
    return split_mix(start, block.queries.astype(np.uint64))


def _in_order_of_keys(block: Block) -> Block:
    """The rows of `block`, sorted by their keys if they have any."""
    return block if block.keys is None else take(block, np.argsort(block.keys, kind="stable"))
