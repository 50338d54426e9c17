"""Workers of an ingest: threads, or those of a Dask cluster.

The workers of a cluster write runs of a shuffle to a store, from which others read them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import get_ident
from typing import Any
from uuid import uuid4

from dadagrad.data.blocks import Block
from dadagrad.data.external_shuffle import ExternalShuffle, LocalRun, Run, SavedRun
from dadagrad.data.ingest.summary import SourceSummary
from dadagrad.data.reading.options import Options
from dadagrad.errors import DadagradError, InputError, StorageError
from dadagrad.settings import Number
from dadagrad.storage.store import Storage

CHECK_SECONDS = 1.0
"""Time to wait for a result before the state of the cluster is checked."""

SETTLE_SECONDS, SETTLE_PAUSE = 15.0, 0.1
"""Time for tasks to end after an error, and between two looks at them."""

_busy_threads: set[int] = set()


@dataclass(frozen=True)
class BlockTask:
    """A function of a block of a dask collection, which is computed where the task runs."""

    function: Callable[..., Any]
    block: Any

    def __call__(self) -> Any:
        return self.function(self.block.compute())


class WorkerPool:
    """Workers that apply functions to items, and yield the results in the order of the items.

    Memory holds a few items and results only.
    """

    def __init__(self, submit: Callable[..., Any] | None, max_pending: int = 1) -> None:
        self._submit, self._max_pending = submit, max_pending

    def __call__(self, function: Callable[..., Any], *items: Iterable[Any]) -> Iterator[Any]:
        """Apply `function` to the items, as `map` does."""
        if self._submit is None:
            yield from map(function, *items)
            return
        pending: deque[Any] = deque()
        try:
            for arguments in zip(*items, strict=False):
                pending.append(self._submit(function, *arguments))
                if len(pending) >= self._max_pending:
                    yield self._first_result(pending)
            while pending:
                yield self._first_result(pending)
        except BaseException as error:
            for future in pending:
                future.cancel()
            self._settle(error)
            raise

    def _first_result(self, pending: deque[Any]) -> Any:
        result = self._result(pending[0])
        pending.popleft()
        return result

    def _result(self, future: Any) -> Any:
        return future.result()

    def _settle(self, error: BaseException) -> None:
        """Wait for tasks that run on after they were cancelled, because of an `error`."""


class ClusterPool(WorkerPool):
    """Workers of a Dask cluster, which must see the same files as this process.

    `check` is called while results are waited for, and raises an error if the cluster is lost. The
    workers leave rows in the folder `runs`, which all of them can reach.
    """

    def __init__(self, client: Any, check: Callable[[], None], runs: Storage) -> None:
        super().__init__(self._call, 2 * max(sum(client.nthreads().values()), 1))
        self._client, self._check, self.runs = client, check, runs

    def share(self, value: Any) -> Any:
        """Send a value to all workers; the result stands for it among the items."""
        return self._client.scatter(value, broadcast=True, hash=False)

    def _call(self, function: Any, *arguments: Any) -> Any:
        if isinstance(arguments[0], BlockTask):
            task, *others = arguments
            block = self._client.compute(task.block)
            function = partial(_call_block_function, function, task.function)
            arguments = (block, *others)
        return self._client.submit(_on_worker, function, *arguments, pure=False)

    def _result(self, future: Any) -> Any:
        gathering = self._client.gather(future, asynchronous=True)
        waiting = asyncio.run_coroutine_threadsafe(gathering, self._client.loop.asyncio_loop)
        while not wait([waiting], timeout=CHECK_SECONDS).done:
            self._check()
        return waiting.result()

    def _settle(self, error: BaseException) -> None:
        # Whatever a task still writes would stay: what was written is removed next.
        is_interrupt, loop = not isinstance(error, Exception), self._client.loop.asyncio_loop
        with suppress(Exception):
            if not (is_interrupt or isinstance(error, InputError | StorageError)):
                return  # it may be that of a cluster that is lost, which answers nobody
            self._check()
            settling = self._client.run(_until_idle, asynchronous=True)
            future = asyncio.run_coroutine_threadsafe(settling, loop)
            if not wait([future], timeout=SETTLE_SECONDS + CHECK_SECONDS).done:
                future.cancel()


def _cluster_lost(reason: str) -> DadagradError:
    return DadagradError(f"{reason}; when the cluster is back, start again")


def _call_block_function(function: Any, block_function: Any, block: Any, *others: Any) -> Any:
    """Apply `function` to a task whose block is computed."""
    return function(partial(block_function, block), *others)


def _on_worker(function: Callable[..., Any], *arguments: Any) -> Any:
    """Apply a function on a Dask worker, whose address goes into an error."""
    from dadagrad.clusters import naming_worker

    _busy_threads.add(get_ident())
    try:
        with naming_worker():
            return function(*arguments)
    finally:
        _busy_threads.discard(get_ident())


async def _until_idle() -> None:
    """Wait, on a Dask worker, until none of its threads runs a task of `_on_worker`."""
    for _ in range(round(SETTLE_SECONDS / SETTLE_PAUSE)):
        await asyncio.sleep(SETTLE_PAUSE)  # first, for tasks that begin before they are cancelled
        if not _busy_threads:
            break


@contextmanager
def worker_pool(workers: int, client: Any, out: Storage) -> Iterator[WorkerPool]:
    """Open workers: those of a Dask `client`, threads, or this thread alone for 1.

    Those of a client leave rows in a folder beside `out`, which is removed at the end.
    """
    Number(whole=True, minimum=1).convert("workers", workers)
    if client is not None:
        from dadagrad.clusters import connected
        from dadagrad.clusters.monitor import ClusterMonitor

        place = out.local_path() if out.is_local else out.url.rstrip("/")
        runs = Storage(f"{place}.runs-{uuid4().hex[:12]}")
        with connected(client) as opened:
            monitor = ClusterMonitor(opened, _cluster_lost)
            try:
                yield ClusterPool(opened, monitor.check, runs)
            finally:
                monitor.stop()
                runs.delete_prefix()
    elif workers == 1:
        yield WorkerPool(None)
    else:
        pool = ThreadPoolExecutor(workers)
        try:
            yield WorkerPool(pool.submit, 2 * workers)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def store_runs(
    tasks: Iterable[Any],
    summary: SourceSummary,
    seed: int | None,
    pool: ClusterPool,
    report: Callable[[int, int], None],
) -> list[Run]:
    """Have the workers of a cluster parse `tasks` and store sorted runs of rows in their folder.

    The `summary` gets what the workers have learned about all rows. `report` is called with the
    bytes that were read, and the number of all rows so far.
    """
    runs: list[Run] = []
    n_rows = 0
    names = (f"run-{number:06d}" for number in itertools.count())
    same = map(itertools.repeat, (summary.options, seed, pool.runs))
    for part, part_runs, n_bytes in pool(_make_runs, tasks, names, *same):
        first_line = summary.n_lines
        codes = summary.merge(part)
        runs += [replace(run, codes=codes, first_line=first_line) for run in part_runs]
        n_rows += sum(run.n_rows for run in part_runs)
        report(n_bytes, n_rows)
    return runs


def _make_runs(
    task: Callable[[], Iterable[Block]],
    name: str,
    options: Options,
    seed: int | None,
    storage: Storage,
) -> tuple[SourceSummary, list[Run], int]:
    """Parse a part of the sources and store its rows; return the facts about it, and its runs."""
    summary = SourceSummary(options)
    names = (f"{name}-{number:05d}" for number in itertools.count())
    rows = ExternalShuffle(seed=seed, save=lambda run: _store(run, storage, next(names)))
    n_bytes = 0
    for block in task():
        rows.append(summary.add(block))
        n_bytes += block.source_bytes
    rows.finish()
    return summary, rows.runs, n_bytes


def _store(run: LocalRun, storage: Storage, key: str) -> SavedRun:
    """Write a run to an object of a store."""
    arrays, content = run.layout()
    storage.put(key, b"".join(content))
    return SavedRun(run.n_rows, run.nnz, arrays, partial(storage.open, key))
