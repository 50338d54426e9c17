"""Run and partitions on a worker of a Dask cluster, which the tasks of batches and streams share.

An error that would come again is returned as a result: Dask must neither try again nor write a
traceback to the log of a worker. Only errors of a store are raised: they may not come again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeVar

from distributed import get_worker
from zict import LRU

from dadagrad._version import __version__
from dadagrad.clusters import naming_worker
from dadagrad.data.buffers import POOL
from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows
from dadagrad.data.skipping import SkippingDataset, skipped_partitions
from dadagrad.errors import DadagradError, InputError, StorageError
from dadagrad.problem import Problem
from dadagrad.storage.memory import resident
from dadagrad.training.engines.dask.messages import Reply
from dadagrad.training.engines.dask.partition_cache import Key, PartitionCache, Read
from dadagrad.training.engines.trace import Measured
from dadagrad.training.engines.warm_up import compile_kernels
from dadagrad.training.memory.workers import cache_bytes
from dadagrad.training.schedule.base import Slice

W = TypeVar("W", bound="Work")

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

    @classmethod
    def of(cls, data: Dataset, problem: Problem) -> Job:
        """The job of a run; rows that lose their means are others than those of the data."""
        means = b"" if problem.units.means is None else problem.units.means.tobytes()
        return cls(data, data.digest + hashlib.sha256(means).hexdigest(), problem)

    def rows(self, partition: int, measured: Measured) -> Rows:
        """Return the rows of a partition, from the cache of this worker if possible.

        Raises `InputError` on a worker of another release, which may compute other bits.
        """
        if self.release != __version__:
            raise InputError(
                f"the worker has dadagrad {__version__}, and the run is of {self.release}; "
                "install the same release there as here"
            )
        load = partial(partition_cache().load, *self._reading(partition, measured))
        if isinstance(self.data, SkippingDataset):
            # The replacement of a skipped partition is not cached: other runs do not want it.
            return self.data.guarded(partition, load)
        return load()

    def read_ahead(self, partition: int, measured: Measured) -> None:
        """Begin to read a partition that will be wanted."""
        partition_cache().read_ahead(*self._reading(partition, measured))

    def done_with(self, slice_: Slice) -> None:
        """Let go of the partition of a slice if it was the last of the run."""
        if slice_.final:
            partition_cache().drop((self.digest, slice_.partition))

    def reply(self, partitions: Iterable[int], results: Iterable[Any], **others: Any) -> Reply:
        """Return the reply of a task with the numbers of its `partitions`; see `Reply`."""
        content = self.data.content
        names = {self.data.partitions[number].name for number in partitions}
        return Reply(
            get_worker().address,
            dict(skipped_partitions(self.data)),
            {name: content[name] for name in names & content.keys()},
            tuple(results),
            **others,
        )

    def _reading(self, partition: int, measured: Measured) -> tuple[Key, Read]:
        """Return the key of a partition in the cache of a worker, and what reads it."""
        data = self.data.source if isinstance(self.data, SkippingDataset) else self.data

        def read() -> Rows:
            with measured("read", partition=partition):
                return self.problem.units.center_columns(data.read(partition))

        return (self.digest, partition), read


_cache: PartitionCache | None = None
_jobs: LRU[str, Job] = LRU(MAX_JOBS, {})
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Work:
    """Work of a task of `run`. `skipped` has the partitions that the run skips, and the reasons."""

    run: str
    skipped: Mapping[str, str]


def with_job(
    task: Callable[[W, Job], Reply],
) -> Callable[[W, Job | None], Reply | DadagradError | None]:
    """Give a task the job of its run; it returns None if the worker does not know the job.

    It also returns an error that would come again. Each error names the worker.
    """

    @wraps(task)
    def call(work: W, job: Job | None = None) -> Reply | DadagradError | None:
        try:
            with naming_worker():
                job = _job_of(work, job)
                return None if job is None else task(work, job)
        except StorageError:
            raise
        except DadagradError as error:
            return error

    return call


async def prepare(problem: Problem) -> None:
    """Load and compile the kernels of a problem.

    On a thread, because Dask calls this in the event loop of the worker, which must answer the
    scheduler meanwhile.
    """
    await asyncio.to_thread(compile_kernels, problem, logger.info)


def partition_cache() -> PartitionCache:
    """Return the cache of this worker, whose size depends on its memory at the first call."""
    global _cache
    with _lock:
        if _cache is None:
            limit = get_worker().memory_manager.memory_limit
            _cache = PartitionCache(cache_bytes(limit, resident()))
        return _cache


def _job_of(work: Work, job: Job | None) -> Job | None:
    """Return the job of a run, which only its first tasks bring along; None if it is not known.

    Partitions that other workers have skipped are skipped from now on.
    """
    with _lock:
        if job is not None:
            _jobs[work.run] = job
        job = _jobs.get(work.run)
    if job is not None and isinstance(job.data, SkippingDataset):
        job.data.skip(work.skipped)
    return job


def forget(run: str) -> None:
    """Drop the job of a run."""
    with _lock:
        _jobs.pop(run, None)


def forget_partitions(digest: str) -> None:
    """Drop the cached partitions of a dataset."""
    if _cache is not None:
        _cache.forget(digest)
    POOL.release()
