"""Runs of a shuffle in a store, written by one worker of a cluster and read by others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.blocks import Block
from dadagrad.data.external_shuffle import COLUMNS, ExternalShuffle, Keys, LocalRun, Run
from dadagrad.data.labels import recode
from dadagrad.storage.store import Storage


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array in an object of a store, from byte `offset` on."""

    offset: int
    dtype: str
    shape: tuple[int, ...]

    def read(self, file: BinaryIO, start: int, stop: int) -> NDArray[Any]:
        """Read the items ``start:stop`` of the first axis."""
        shape, dtype = (stop - start, *self.shape[1:]), np.dtype(self.dtype)
        item = dtype.itemsize * math.prod(self.shape[1:])
        file.seek(self.offset + start * item)
        buffer = bytearray(item * (stop - start))
        view = memoryview(buffer)
        while view and (n_read := file.readinto(view)):  # type: ignore[attr-defined]
            view = view[n_read:]
        return np.frombuffer(buffer, dtype).reshape(shape)


@dataclass(frozen=True)
class StoredRun(Run):
    """A run in an object of a store; `codes` are the final numbers of its text labels."""

    storage: Storage
    key: str
    n_rows: int
    nnz: int
    arrays: dict[str, StoredArray]
    codes: NDArray[np.int64] | None = None

    def column(self, name: str) -> Any:
        if name not in self.arrays:
            return None
        with self.storage.open(self.key) as file:
            return self.arrays[name].read(file, 0, self.arrays[name].shape[0])

    def read(self, start: int, stop: int) -> tuple[Block, Keys | None]:
        columns: dict[str, Any] = dict.fromkeys((*COLUMNS, "keys"))
        with self.storage.open(self.key) as file:
            indptr = self.arrays["indptr"].read(file, start, stop + 1)
            first, last = int(indptr[0]), int(indptr[-1])
            for name, array in self.arrays.items():
                ends = (first, last) if name in ("ids", "values") else (start, stop)
                columns[name] = array.read(file, *ends)
        columns["indptr"] = indptr - first
        if self.codes is not None:
            columns["labels"] = recode(columns["labels"], self.codes)
        keys = columns.pop("keys")
        return Block(**columns), keys


def store_run(run: LocalRun, storage: Storage, key: str) -> StoredRun:
    """Write a run as the object `key`."""
    arrays, content = {}, bytearray()
    for name in (*COLUMNS, "keys"):
        if (column := run.column(name)) is not None:
            column = np.ascontiguousarray(column)
            arrays[name] = StoredArray(len(content), column.dtype.str, column.shape)
            content += column.reshape(-1).view(np.uint8).data
    storage.put(key, content)
    return StoredRun(storage, key, run.n_rows, run.nnz, arrays)


class StoredShuffle(ExternalShuffle):
    """Collects blocks as runs in a store, whose keys begin with `name`."""

    def __init__(self, *, seed: int | None, storage: Storage, name: str) -> None:
        super().__init__(seed=seed)
        self._storage, self._name = storage, name

    def finish(self) -> None:
        """Store the last run."""
        if self._blocks:
            self._close_run(to_files=True)

    def _store(self, run: LocalRun) -> Run:
        return store_run(run, self._storage, f"{self._name}-{len(self.runs):05d}")


def store_runs(
    tasks: Iterable[Any],
    summary: Any,
    seed: int | None,
    folder: str,
    pool: Any,
    report: Callable[[int, int], None],
) -> list[Run]:
    """Have the workers of a cluster parse `tasks` and store sorted runs of rows in a folder.

    The `summary` gets what the workers have learned about all rows. `report` is called with the
    bytes that were read, and the number of all rows so far.
    """
    runs: list[Run] = []
    n_rows = 0
    numbers = itertools.count()
    empty = (summary.empty() for _ in numbers)  # made after each task, which may learn the encoder
    names = (f"run-{number:06d}" for number in itertools.count())
    same = itertools.repeat(seed), itertools.repeat(Storage(folder))
    for part, part_runs, n_bytes in pool(_make_runs, tasks, empty, names, *same):
        codes = summary.merge(part)
        runs += [replace(run, codes=codes) for run in part_runs]
        n_rows += sum(run.n_rows for run in part_runs)
        report(n_bytes, n_rows)
    return runs


def _make_runs(
    task: Callable[[], Iterable[tuple[Block, int]]],
    summary: Any,
    name: str,
    seed: int | None,
    storage: Storage,
) -> tuple[Any, list[Any], int]:
    """Parse a part of the sources and store its rows; return the facts about it, and its runs."""
    rows, n_bytes = StoredShuffle(seed=seed, storage=storage, name=name), 0
    for block, size in task():
        if (block := summary.add(block)).n_rows:
            rows.append(block)
        n_bytes += size
    rows.finish()
    return summary, rows.runs, n_bytes
