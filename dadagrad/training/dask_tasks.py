"""What runs on the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows
from dadagrad.data.skipping import SkippingDataset
from dadagrad.errors import DadagradError, StorageError
from dadagrad.method import Method
from dadagrad.training.dask_messages import Read, Touched, Work, Worked, packed
from dadagrad.training.partition_cache import PartitionCache, cache_bytes
from dadagrad.training.plan import Piece
from dadagrad.training.protocol import Given, Open, Result
from dadagrad.training.room import resident
from dadagrad.training.touched import pack

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """What all tasks of a run share."""

    data: Dataset
    fingerprint: str
    method: Method


def same(job: Job) -> Job:
    """The job, as the result of a task: workers get it from each other, and only once."""
    return job


async def prepare(method: Method) -> None:
    """Load and compile what work on a piece takes.

    On a thread: Dask calls this in the event loop of the worker, and while that is kept busy the
    worker gives no sign of life.
    """

    def load() -> None:
        from dadagrad.training.warm_up import warm_up

        warm_up(method, logger.info)

    await asyncio.to_thread(load)


def dask_setup(worker: object) -> None:
    """Leave interrupts to the coordinator: a terminal sends them to all of its processes.

    Dask calls this in every worker of a cluster that is started for a run, also in those that it
    starts again.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


KNOWN_JOBS = 4
_cache: PartitionCache | None = None
_jobs: OrderedDict[str, Job] = OrderedDict()
_lock = threading.Lock()


def _rows(job: Job, partition: int) -> Rows:
    """The rows of a partition, from this worker's cache if it read them before."""
    key, data = (job.fingerprint, partition), job.data
    if isinstance(data, SkippingDataset):
        # What stands for a partition is not kept: other runs do not want it.
        return data.guarded(
            partition, lambda: partitions().get(key, lambda: data.read_plainly(partition))
        )
    return partitions().get(key, lambda: data.read(partition))


def _skipped(job: Job) -> Mapping[str, str]:
    """The partitions that this worker knows to be skipped."""
    return dict(job.data.skipped) if isinstance(job.data, SkippingDataset) else {}


def partitions() -> PartitionCache:
    """The cache of this worker: of the size that its memory allows when it is first needed."""
    global _cache
    with _lock:
        if _cache is None:
            from distributed import get_worker

            limit = get_worker().memory_manager.memory_limit
            _cache = PartitionCache(cache_bytes(limit, resident()))
        return _cache


def _remember(run: str, job: Job) -> None:
    """Keep what the tasks of a run share: only the first of them bring it along."""
    with _lock:
        _jobs[run] = job
        _jobs.move_to_end(run)
        while len(_jobs) > KNOWN_JOBS:
            _jobs.popitem(last=False)


def forget(run: str, fingerprint: str) -> None:
    """Let go of what this process knows of a run, and has read of its data."""
    with _lock:
        _jobs.pop(run, None)
    if _cache is not None:
        _cache.forget(fingerprint)


# An error that would come again is handed back as a result: Dask must neither try again nor write
# a traceback to the log of a worker. Only a store may do better the next time.


def open_partitions(job: Job, run: str, opens: tuple[Open, ...]) -> Read | DadagradError:
    """Read partitions; what the pieces ahead touch goes with the vocabulary of each."""
    _remember(run, job)
    vocabularies, touched = [], []
    try:
        for one in opens:
            rows = _rows(job, one.partition)
            vocabularies.append(pack(rows.vocabulary))
            touched.append(tuple(_touched(rows, piece) for piece in one.ahead))
        return Read(_address(), tuple(vocabularies), tuple(touched), _skipped(job))
    except StorageError:
        raise
    except DadagradError as error:
        return error


def compute_pieces(work: Work, job: Job | None = None) -> Worked | DadagradError | None:
    """Do some work; None if the `job` is needed for it, which this worker does not know.

    The pieces travel together, but each keeps its own result: what is added up, and in which
    order, must not depend on who did what.
    """
    if job is not None:
        _remember(work.run, job)
    with _lock:
        job = _jobs.get(work.run)
    if job is None:
        return None
    if isinstance(job.data, SkippingDataset):
        job.data.skip(work.skipped)
    try:
        done = [
            _compute_piece(job, *one)
            for one in zip(work.pieces, work.given, work.ahead, strict=True)
        ]
    except StorageError:
        raise
    except DadagradError as error:
        return error
    results, touched = zip(*done, strict=True)
    return Worked(_address(), results, touched, _skipped(job))


def _compute_piece(
    job: Job, piece: Piece, given: Given, ahead: Piece | None
) -> tuple[Result, Touched]:
    from dadagrad.training.worker import compute

    where = f"{job.data.url}, partition {job.data.partitions[piece.partition].name}"
    rows = _rows(job, piece.partition)
    result = compute(job.method, rows, piece, given, where)
    if piece.final and _cache is not None:
        _cache.drop((job.fingerprint, piece.partition))
    return packed(result), None if ahead is None else _touched(rows, ahead)


def _touched(rows: Rows, piece: Piece) -> Touched:
    from dadagrad.training.worker import touched

    positions = touched(rows, piece)
    return None if positions is None else pack(positions)


def _address() -> str:
    from distributed import get_worker

    return str(get_worker().address)
