"""Tasks that run on the workers of a Dask cluster.

An error that would come again is returned as a result: Dask must neither try again nor write a
traceback to the log of a worker. Only errors of a store are raised: they may not come again.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from distributed import Worker, get_worker
from zict import LRU

from dadagrad._version import __version__
from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows
from dadagrad.data.skipping import SkippingDataset, skipped_partitions
from dadagrad.errors import DadagradError, InputError, StorageError
from dadagrad.kernels.id_sets import common, pack
from dadagrad.problem import Problem
from dadagrad.storage.memory import resident
from dadagrad.training.engines import warm_up
from dadagrad.training.engines.dask.messages import Reply, Touched, Work
from dadagrad.training.engines.dask.peers import PeerLost
from dadagrad.training.engines.dask.shard_store import ShardStore
from dadagrad.training.engines.dask.shards import NotMerging
from dadagrad.training.memory.available import cache_bytes
from dadagrad.training.messages import Open, RemoteFeatures, Result
from dadagrad.training.schedule.base import Slice
from dadagrad.training.state.slices import FeatureSlice, SentFeatures
from dadagrad.training.trace import Measured
from dadagrad.training.worker.compute import compute, touched

logger = logging.getLogger(__name__)

MAX_JOBS = 4
"""Number of runs that a worker remembers."""


@dataclass(frozen=True)
class Job:
    """Data and problem of a run, which all of its tasks share."""

    data: Dataset
    digest: str
    problem: Problem
    release: str = __version__


class PartitionCache(LRU[tuple[str, int], Rows]):
    """Decoded partitions, by the digest of their dataset and their number.

    It keeps those that were used last, of at most `most_bytes` together; threads may share it.
    """

    def __init__(self, most_bytes: int) -> None:
        super().__init__(most_bytes, {}, weight=lambda key, rows: rows.nbytes)

    def load(self, key: tuple[str, int], read: Callable[[], Rows]) -> Rows:
        """Return the rows of `key`, which `read` gives where they are not kept."""
        with suppress(KeyError):
            return self[key]
        rows = self[key] = read()
        return rows

    def forget(self, digest: str) -> None:
        """Let go of all partitions of a dataset."""
        for key in [key for key in self if key[0] == digest]:
            self.pop(key, None)


_cache: PartitionCache | None = None
_jobs: OrderedDict[str, Job] = OrderedDict()
_stores: dict[tuple[str, str], ShardStore] = {}
_lock = threading.Lock()


def identity(job: Job) -> Job:
    """Return the job, as the result of a task: workers get it from each other, and only once."""
    return job


async def prepare(problem: Problem) -> None:
    """Load and compile the kernels of a problem.

    On a thread, because Dask calls this in the event loop of the worker, which must answer the
    scheduler meanwhile.
    """
    await asyncio.to_thread(warm_up.warm_up, problem, logger.info)


def dask_setup(worker: object) -> None:
    """Ignore interrupts, which a terminal sends to the coordinator and to all workers.

    Dask calls this in every worker of a cluster that is started for a run.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def open_partitions(job: Job, run: str, opens: tuple[Open, ...]) -> Reply | DadagradError:
    """Read partitions; replies with their vocabularies, and what the first slices touch."""
    _remember(run, job)
    vocabularies, positions = [], []
    measured = Measured(get_worker().address)
    try:
        for instruction in opens:
            with measured("read", reading=instruction.reading, partition=instruction.partition):
                rows = _rows(job, instruction.partition)
            if job.problem.online:  # nothing of it travels through the client
                continue
            vocabularies.append(pack(rows.vocabulary))
            positions.append(tuple(_touched(rows, slice_) for slice_ in instruction.first_slices))
    except StorageError:
        raise
    except DadagradError as error:
        return error
    partitions = [each.partition for each in opens]
    return _reply(job, measured, partitions, vocabularies, positions, run)


def compute_slices(work: Work, job: Job | None = None) -> Reply | DadagradError | None:
    """Compute the results of slices; None if the task must come again.

    So it must if this worker does not know the `job`, or the merge before the round has not begun.

    Each slice keeps its own result: which workers computed what must not change the order of sums.
    """
    if job is not None:
        _remember(work.run, job)
    with _lock:
        job = _jobs.get(work.run)
    if job is None:
        return None
    if isinstance(job.data, SkippingDataset):
        job.data.skip(work.skipped)
    measured = Measured(get_worker().address)
    try:
        if work.merging is not None:
            assert work.layout is not None
            with measured("merge", workers=len(work.merging.workers)):
                store_of(get_worker(), work.run, job.problem).merge(work.layout, work.merging)
        slices = zip(work.slices, work.inputs, work.following, strict=True)
        computed = [_compute_slice(job, measured, work, *slice_) for slice_ in slices]
    except StorageError:
        raise
    except DadagradError as error:
        return error
    except NotMerging:
        return None
    except PeerLost as error:
        return _reply(job, measured, [], [], [], work.run, lost=str(error))
    partitions = [each.partition for each in work.slices]
    results, positions = zip(*computed, strict=True)
    return _reply(job, measured, partitions, results, positions, work.run)


def _compute_slice(
    job: Job,
    measured: Measured,
    work: Work,
    slice_: Slice,
    slice_input: SentFeatures | RemoteFeatures,
    following: Slice | None,
) -> tuple[Result, Touched]:
    place = f"{job.data.url}, partition {job.data.partitions[slice_.partition].name}"
    rows = _rows(job, slice_.partition)
    if isinstance(slice_input, RemoteFeatures):
        assert work.layout is not None
        store = store_of(get_worker(), work.run, job.problem)
        with measured("exchange", reading=slice_.reading):
            features = store.features(work.layout, slice_input)
    with measured("learn", reading=slice_.reading, rows=slice_.n_rows):
        if isinstance(slice_input, RemoteFeatures):
            assert work.layout is not None
            result = compute(job.problem, rows, slice_, features, place)
            assert isinstance(result.change, FeatureSlice)
            result = replace(result, change=store.keep(work.layout, slice_input, result.change))
        else:
            result = compute(job.problem, rows, slice_, slice_input, place)
            assert isinstance(result.change, FeatureSlice)
            positions = common(rows.vocabulary, result.change.ids)[0]
            packed = FeatureSlice(pack(positions.astype(np.int32)), result.change.content)
            result = replace(result, change=packed)
    if slice_.final and _cache is not None:
        _cache.pop((job.digest, slice_.partition), None)
    return result, None if following is None else _touched(rows, following)


async def on_store(
    run: str,
    problem: Problem | None,
    operation: Callable[..., Any],
    *arguments: Any,
    dask_worker: Worker,
) -> Any:
    """Call a method of the store that a worker has for a run, on a thread; see `store_of`."""
    store = store_of(dask_worker, run, problem)
    return await store.peers.on_thread(operation, store, *arguments)


def store_of(worker: Worker, run: str, problem: Problem | None = None) -> ShardStore:
    """The store of a run on a worker; the first call needs the `problem`, or raises `PeerLost`."""
    key = worker.address, run
    with _lock:
        if key not in _stores:
            if problem is None:
                raise PeerLost(f"worker {worker.address} does not know the run")
            _stores[key] = ShardStore(worker, run, problem)
        return _stores[key]


def _touched(rows: Rows, slice_: Slice) -> Touched:
    positions = touched(rows, slice_)
    return None if positions is None else pack(positions)


def _reply(
    job: Job,
    measured: Measured,
    numbers: list[int],
    results: Sequence[Any],
    positions: Sequence[Any],
    run: str,
    lost: str | None = None,
) -> Reply:
    skipped, content = dict(skipped_partitions(job.data)), job.data.content
    names = {job.data.partitions[number].name for number in numbers}
    content = {name: content[name] for name in names & content.keys()}
    return Reply(
        get_worker().address,
        skipped,
        content,
        tuple(results),
        tuple(positions),
        tuple(measured.tasks),
        store_of(get_worker(), run, job.problem).peers.take_bytes() if job.problem.online else 0,
        lost,
    )


def _rows(job: Job, partition: int) -> Rows:
    """Return the rows of a partition, from the cache of this worker if possible.

    Raises `InputError` on a worker of another release, which may compute other bits.
    """
    if job.release != __version__:
        raise InputError(
            f"the worker at {get_worker().address} has dadagrad {__version__}, and the run is of "
            f"{job.release}; install the same release there as here"
        )
    key, data = (job.digest, partition), job.data
    if isinstance(data, SkippingDataset):
        # The replacement of a skipped partition is not cached: other runs do not want it.
        return data.guarded(
            partition, lambda: partitions().load(key, lambda: data.source.read(partition))
        )
    return partitions().load(key, lambda: data.read(partition))


def partitions() -> PartitionCache:
    """Return the cache of this worker, whose size depends on its memory at the first call."""
    global _cache
    with _lock:
        if _cache is None:
            limit = get_worker().memory_manager.memory_limit
            _cache = PartitionCache(cache_bytes(limit, resident()))
        return _cache


def _remember(run: str, job: Job) -> None:
    """Store the job of a run: only its first tasks bring the job along."""
    with _lock:
        _jobs[run] = job
        _jobs.move_to_end(run)
        while len(_jobs) > MAX_JOBS:
            _jobs.popitem(last=False)


def forget(run: str, digest: str) -> int:
    """Drop the job of a run, its shards, and the cached partitions of its data.

    The shards are those of all workers that this process has, or had. Returns the bytes that these
    moved, and no reply has told: some workers only merge.
    """
    with _lock:
        _jobs.pop(run, None)
        stores = [_stores.pop(key) for key in list(_stores) if key[1] == run]
    for store in stores:
        store.peers.close()
    if _cache is not None:
        _cache.forget(digest)
    return sum(store.peers.take_bytes() for store in stores)
