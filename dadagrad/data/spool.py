"""Rows on their way into partitions, held in temporary files when they do not fit in memory.

Some things are known only when the last row was seen: which labels there are, whether ids start
at 0 or 1, how many partitions of equal size to make. So rows are first spooled: runs of
`RUN_BYTES` are written to temporary files as plain arrays, and partitions are then read from them
piece by piece. Data that fits in one run never touches the disk.

Shuffling is a sort by random keys, out of core. Every row draws a 64-bit key; a run is sorted by
it before it is written; partition p of n gets the rows whose key is in the p-th of n equal parts
of the key range: one stretch of each run. Inside a partition rows are sorted by key once more. The
result is all rows sorted by independent keys, so every order is equally likely, and neither the
number of partitions nor that of workers changes the order.

The rows of a query (for rankings) stay together: they share one key, and partitions are cut
between queries.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.blocks import Block
from dadagrad.data.combine import PER_ROW, compact, concatenate, cut, n_bytes, take
from dadagrad.errors import StorageError

RUN_BYTES = 128 << 20
"""Rows are held in memory up to this size; making a run of them takes as much again."""

Keys = NDArray[np.uint64]


class Run(Protocol):
    """Rows that were spooled together; sorted by key where there are keys."""

    @property
    def n_rows(self) -> int: ...

    @property
    def nnz(self) -> int: ...

    def read(self, start: int, stop: int) -> tuple[Block, Keys | None]:
        """Rows ``start:stop`` and their keys."""

    def row_starts(self) -> NDArray[np.int64]:
        """Number of entries before each row, (n_rows + 1,)."""

    def keys(self) -> Keys:
        """The keys of all rows."""

    def queries(self) -> NDArray[np.int64]:
        """The queries of all rows."""


@dataclass(frozen=True, slots=True)
class MemoryRun:
    """The only run of data that fits in memory."""

    block: Block
    row_keys: Keys | None

    @property
    def n_rows(self) -> int:
        return self.block.n_rows

    @property
    def nnz(self) -> int:
        return self.block.nnz

    def read(self, start: int, stop: int) -> tuple[Block, Keys | None]:
        keys = None if self.row_keys is None else self.row_keys[start:stop]
        return cut(self.block, start, stop), keys

    def row_starts(self) -> NDArray[np.int64]:
        return self.block.indptr

    def keys(self) -> Keys:
        assert self.row_keys is not None
        return self.row_keys

    def queries(self) -> NDArray[np.int64]:
        assert self.block.queries is not None
        return self.block.queries


@dataclass(frozen=True, slots=True)
class FileRun:
    """A run in a folder: one raw file a column. Only what is asked for is read."""

    folder: Path
    n_rows: int
    nnz: int
    columns: dict[str, tuple[str, tuple[int, ...]]]
    """dtype and shape of an item, by the name of the column."""

    @classmethod
    def write(cls, folder: Path, block: Block, keys: Keys | None) -> FileRun:
        columns = {}
        with explain_full_disk(folder):
            folder.mkdir()
            for name in ("indptr", "ids", "values", *PER_ROW, "keys"):
                column = keys if name == "keys" else getattr(block, name)
                if column is not None:
                    columns[name] = (column.dtype.str, column.shape[1:])
                    write_array(folder / name, column)
        return cls(folder, block.n_rows, block.nnz, columns)

    def _read(self, name: str, start: int, stop: int) -> Any:
        if name not in self.columns:
            return None
        dtype, item = np.dtype(self.columns[name][0]), self.columns[name][1]
        size = int(np.prod(item, dtype=np.int64))
        flat = np.fromfile(
            self.folder / name,
            dtype,
            count=(stop - start) * size,
            offset=start * size * dtype.itemsize,
        )
        return flat.reshape(stop - start, *item)

    def read(self, start: int, stop: int) -> tuple[Block, Keys | None]:
        indptr = self._read("indptr", start, stop + 1)
        first, last = int(indptr[0]), int(indptr[-1])
        block = Block(
            indptr=indptr - first,
            ids=self._read("ids", first, last),
            values=self._read("values", first, last),
            **{name: self._read(name, start, stop) for name in PER_ROW},
        )
        return block, self._read("keys", start, stop)

    def row_starts(self) -> NDArray[np.int64]:
        starts: NDArray[np.int64] = self._read("indptr", 0, self.n_rows + 1)
        return starts

    def keys(self) -> Keys:
        keys: Keys = self._read("keys", 0, self.n_rows)
        return keys

    def queries(self) -> NDArray[np.int64]:
        queries: NDArray[np.int64] = self._read("queries", 0, self.n_rows)
        return queries


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write the bytes of `array`; unlike ``array.tofile``, say why if that fails."""
    with open(path, "wb") as file:
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


@contextmanager
def explain_full_disk(where: Path) -> Iterator[None]:
    """Turn the errors of a disk that cannot be written into a `StorageError`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        reason = "is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else f"failed: {error}"
        raise StorageError(
            f"writing temporary files to {where} {reason}; free space there (about 8 bytes for "
            "each non-zero of the data), or name another folder in the environment variable TMPDIR"
        ) from error


class Spool:
    """Takes blocks in, gives the rows of partitions out.

    Parameters
    ----------
    shuffle
        Seed of the shuffle; None keeps rows in the order in which they came.
    folder
        Where to make the temporary folder; None is the system's place (`TMPDIR`).
    run_bytes
        How much to hold in memory; None is `RUN_BYTES`.

    Use it as a context manager: the temporary files go when it closes.
    """

    def __init__(
        self, *, shuffle: int | None, folder: str | None = None, run_bytes: int | None = None
    ) -> None:
        self.n_rows = 0
        self.nnz = 0
        self.runs: list[Run] = []
        self._shuffle = shuffle
        self._parent = folder
        self._run_bytes = RUN_BYTES if run_bytes is None else run_bytes
        self._folder: Path | None = None
        self._blocks: list[Block] = []
        self._keys: list[Keys] = []
        self._held = 0
        self._appended = 0
        self._queried = False

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def append(self, block: Block) -> None:
        """Add rows. The keys of a shuffle depend on the number of the append and of the row."""
        block = replace(compact(block), names={})
        self._blocks.append(block)
        self._queried = block.queries is not None
        if self._shuffle is not None and block.queries is not None:
            self._keys.append(query_keys(self._shuffle, block.queries))
        elif self._shuffle is not None:
            self._keys.append(draw_keys(self._shuffle, self._appended, block.n_rows))
        self._appended += 1
        self.n_rows += block.n_rows
        self.nnz += block.nnz
        self._held += n_bytes(block)
        if self._held >= self._run_bytes:
            self._flush()

    def finish(self) -> None:
        """No more rows come: close the last run. It stays in memory if it is the only one."""
        if self._blocks:
            block, keys = self._sorted_run()
            if self.runs:
                self._write(block, keys)
            else:
                self.runs.append(MemoryRun(block, keys))

    def _flush(self) -> None:
        self._write(*self._sorted_run())

    def _write(self, block: Block, keys: Keys | None) -> None:
        if self._folder is None:
            with explain_full_disk(Path(self._parent or tempfile.gettempdir())):
                self._folder = Path(tempfile.mkdtemp(prefix="dadagrad-", dir=self._parent))
        self.runs.append(FileRun.write(self._folder / f"run-{len(self.runs):05d}", block, keys))

    def _sorted_run(self) -> tuple[Block, Keys | None]:
        block = concatenate(self._blocks)
        keys = np.concatenate(self._keys) if self._shuffle is not None else None
        self._blocks, self._keys, self._held = [], [], 0
        if keys is not None:
            order = np.argsort(keys, kind="stable")
            block, keys = take(block, order), keys[order]
        return block, keys

    def bounds(self, partition_nnz: int, n_label_columns: int = 1) -> NDArray[np.int64]:
        """Which rows of each run each partition gets.

        Parameters
        ----------
        partition_nnz
            The size of a partition: its entries, and one more for a row, or a quarter of its
            labels where it has more than four: rows without entries take memory, too.
        n_label_columns
            How many labels a row will have.

        Returns
        -------
        (n_runs, n_partitions + 1) int64
            Partition p takes rows ``bounds[r, p]:bounds[r, p + 1]`` of run r. In the order of the
            source, partitions are of equal size, give or take a row or a query; shuffled, they
            take equal parts of the range of keys. No partition is empty, and no query is cut.
        """
        row_size = max(1, n_label_columns // 4)
        total = self.nnz + self.n_rows * row_size
        n_partitions = -(-total // partition_nnz)
        bounds = np.empty((len(self.runs), n_partitions + 1), np.int64)
        parts = np.arange(1, n_partitions, dtype=object)
        before = 0
        whole_queries = _WholeQueries(len(parts)) if self._queried else None
        for number, run in enumerate(self.runs):
            if self._shuffle is not None:
                limits = (parts * 2**64 // n_partitions).astype(np.uint64)
                inner = np.searchsorted(run.keys(), limits, side="left")
            else:
                starts = run.row_starts()[:-1] + np.arange(run.n_rows) * row_size + before
                limits = (parts * total // n_partitions).astype(np.int64)
                inner = np.searchsorted(starts, limits, side="left")
                before += run.nnz + run.n_rows * row_size
                if whole_queries is not None:
                    inner = whole_queries.move(inner, run.queries())
            bounds[number] = [0, *inner, run.n_rows]
        empty = (np.diff(bounds, axis=1) == 0).all(axis=0)
        return np.delete(bounds, np.flatnonzero(empty) + 1, axis=1)

    def read(self, bounds: NDArray[np.int64], partition: int) -> Block:
        """The rows of one partition; `bounds` is what the method `bounds` returned."""
        pieces = [
            run.read(int(start), int(stop))
            for run, (start, stop) in zip(
                self.runs, bounds[:, partition : partition + 2], strict=True
            )
            if stop > start
        ]
        block = concatenate([piece for piece, _ in pieces])
        if self._shuffle is None or len(pieces) == 1:
            return block
        keys = np.concatenate([keys for _, keys in pieces if keys is not None])
        return take(block, np.argsort(keys, kind="stable"))


class _WholeQueries:
    """Moves the bounds of partitions on to where the next query begins, run by run."""

    def __init__(self, n_bounds: int) -> None:
        self._last: int | None = None
        # Which bounds are not in the runs so far.
        self._ahead = np.ones(n_bounds, np.bool_)

    def move(self, inner: NDArray[np.int64], queries: NDArray[np.int64]) -> NDArray[np.int64]:
        """The bounds of one run, given as rows of it, and the queries of its rows."""
        new = np.ones(len(queries), np.bool_)
        new[1:] = queries[1:] != queries[:-1]
        new[0] = self._last is None or queries[0] != self._last
        self._last = int(queries[-1])
        begins = np.append(np.flatnonzero(new), len(queries))
        moved: NDArray[np.int64] = np.where(
            self._ahead, begins[np.searchsorted(begins, inner, side="left")], 0
        )
        self._ahead &= moved == len(queries)
        return moved


def query_keys(seed: int, queries: NDArray[np.int64]) -> Keys:
    """Random keys that all rows of a query share, wherever they come (SplitMix64)."""
    start = np.random.default_rng([seed, 0]).integers(0, 2**64, 1, dtype=np.uint64)
    mixed = start + queries.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    keys: Keys = mixed ^ (mixed >> np.uint64(31))
    return keys


def draw_keys(seed: int, number: int, n_rows: int) -> Keys:
    """The random keys of append `number`: the same whoever parsed it, and in whatever order."""
    generator = np.random.default_rng([seed, number])
    return generator.integers(0, 2**64, n_rows, dtype=np.uint64)
