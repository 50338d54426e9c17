"""Runs of a shuffle in a store, written by one worker of a cluster and read by others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.blocks import Block
from dadagrad.data.external_shuffle import (
    ExternalShuffle,
    Keys,
    LocalRun,
    Run,
    SavedArray,
    SavedRun,
)
from dadagrad.data.labels import recode
from dadagrad.storage.store import Storage


@dataclass(frozen=True)
class StoredRun(SavedRun):
    """A run in an object of a store; `codes` are the final numbers of its text labels."""

    storage: Storage
    key: str
    n_rows: int
    nnz: int
    arrays: dict[str, SavedArray]
    codes: NDArray[np.int64] | None = None

    def open(self) -> AbstractContextManager[BinaryIO]:
        return self.storage.open(self.key)

    def read(self, start: int, stop: int) -> tuple[Block, Keys | None]:
        block, keys = super().read(start, stop)
        if self.codes is not None:
            labels = np.asarray(block.labels, np.float64)
            block = replace(block, labels=recode(labels, self.codes))
        return block, keys


def store_run(run: LocalRun, storage: Storage, key: str) -> StoredRun:
    """Write a run as the object `key`."""
    arrays, content = run.layout()
    storage.put(key, b"".join(content))
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
