"""What runs on the workers of a Dask cluster."""

from __future__ import annotations

import logging
import signal
import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows
from dadagrad.errors import DadagradError, StorageError
from dadagrad.method import Method
from dadagrad.training.plan import Piece
from dadagrad.training.protocol import Given, Result

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """What all tasks of a run share."""

    data: Dataset
    fingerprint: str
    method: Method


@dataclass(frozen=True, slots=True)
class Work:
    """Pieces of one step, to be worked on one after the other.

    Attributes
    ----------
    run : str
        The run that they belong to.
    pieces, given : tuples of the same length
        What is worked on, and with what.
    rows_ahead : int
        How many of the rows after each piece the next step may take.
    """

    run: str
    pieces: tuple[Piece, ...]
    given: tuple[Given, ...]
    rows_ahead: int


def same(job: Job) -> Job:
    """The job, as the result of a task: workers get it from each other, and only once."""
    return job


def prepare(method: Method) -> None:
    """Load and compile what work on a piece takes."""
    from dadagrad.training.warm_up import warm_up

    warm_up(method, logger.info)


def dask_setup(worker: object) -> None:
    """Leave interrupts to the coordinator: a terminal sends them to all of its processes.

    Dask calls this in every worker of a cluster that is started for a run, also in those that it
    starts again.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


CACHED_PARTITIONS = 8
"""Kept by a worker at least; all that can be open at a time are."""

KNOWN_JOBS = 4
_cache: OrderedDict[tuple[str, int], Rows] = OrderedDict()
_jobs: OrderedDict[str, Job] = OrderedDict()
_lock = threading.Lock()


def _rows(job: Job, partition: int) -> Rows:
    """The rows of a partition, from this process's cache if it read them before."""
    key = (job.fingerprint, partition)
    with _lock:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
    rows = job.data.read(partition)
    with _lock:
        _cache[key] = rows
        while len(_cache) > max(CACHED_PARTITIONS, 2 * job.method.config.lanes):
            _cache.popitem(last=False)
    return rows


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
        for key in [key for key in _cache if key[0] == fingerprint]:
            del _cache[key]


# An error that would come again is handed back as a result: Dask must neither try again nor write
# a traceback to the log of a worker. Only a store may do better the next time.


@dataclass(frozen=True, slots=True)
class Touched:
    """The features that a stretch of rows touches.

    `positions` is (k,) int32, increasing positions in the partition's vocabulary.
    """

    start: int
    stop: int
    positions: NDArray[np.int32]

    def covers(self, piece: Piece) -> bool:
        return self.start <= piece.start and piece.stop <= self.stop


def _touched(rows: Rows, start: int, n_rows: int) -> Touched | None:
    """What the `n_rows` rows from `start` on touch; None where that is most of the vocabulary.

    Also where the rows have queries: pairs touch what other rows of the query do.
    """
    from dadagrad.training.compact import relabel

    stop = min(start + n_rows, rows.n_rows)
    part = rows.slice(start, stop)
    if start == stop or part.nnz >= part.n_local or rows.queries is not None:
        return None
    return Touched(start, stop, relabel(part.indices, part.n_local)[0])


@dataclass(frozen=True, slots=True)
class Read:
    """A partition was read by the worker at an address.

    `vocabulary` is (n_local,) int64; `touched` is what the first rows touch.
    """

    worker: str
    vocabulary: NDArray[np.int64]
    touched: Touched | None


@dataclass(frozen=True, slots=True)
class Worked:
    """All pieces of some work were worked on by the worker at an address.

    `touched` is what the rows after each piece touch.
    """

    worker: str
    results: tuple[Result, ...]
    touched: tuple[Touched | None, ...]


def open_partition(job: Job, run: str, partition: int, n_rows: int) -> Read | DadagradError:
    """Read a partition; what its first `n_rows` rows touch goes with its vocabulary."""
    _remember(run, job)
    try:
        rows = _rows(job, partition)
        return Read(_address(), rows.vocabulary, _touched(rows, 0, n_rows))
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
    try:
        done = [
            _compute_piece(job, piece, given, work.rows_ahead)
            for piece, given in zip(work.pieces, work.given, strict=True)
        ]
    except StorageError:
        raise
    except DadagradError as error:
        return error
    results, touched = zip(*done, strict=True)
    return Worked(_address(), results, touched)


def _compute_piece(
    job: Job, piece: Piece, given: Given, rows_ahead: int
) -> tuple[Result, Touched | None]:
    from dadagrad.training.worker import compute

    where = f"{job.data.url}, partition {job.data.partitions[piece.partition].name}"
    rows = _rows(job, piece.partition)
    result = compute(job.method, rows, piece, given, where)
    return result, _touched(rows, piece.stop, rows_ahead)


def _address() -> str:
    from distributed import get_worker

    return str(get_worker().address)
