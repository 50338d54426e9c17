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
_cache: OrderedDict[tuple[str, int], Rows] = OrderedDict()
_cache_lock = threading.Lock()


def _rows(job: Job, partition: int) -> Rows:
    """The rows of a partition, from this process's cache if it read them before."""
    key = (job.fingerprint, partition)
    with _cache_lock:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
    rows = job.data.read(partition)
    with _cache_lock:
        _cache[key] = rows
        while len(_cache) > CACHED_PARTITIONS:
            _cache.popitem(last=False)
    return rows


def forget(fingerprint: str) -> None:
    """Let go of what this process has read of a dataset."""
    with _cache_lock:
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
    """What the `n_rows` rows from `start` on touch; None where that is most of the vocabulary."""
    from dadagrad.training.compact import relabel

    stop = min(start + n_rows, rows.n_rows)
    part = rows.slice(start, stop)
    if start == stop or part.nnz >= part.n_local:
        return None
    return Touched(start, stop, relabel(part.indices, part.n_local)[0])


def open_partition(
    job: Job, partition: int, n_rows: int
) -> tuple[NDArray[np.int64], str, Touched | None] | DadagradError:
    """Read a partition.

    Returns its vocabulary, the address of the worker that now holds it, and what its first
    `n_rows` rows touch.
    """
    from distributed import get_worker

    try:
        rows = _rows(job, partition)
        return rows.vocabulary, str(get_worker().address), _touched(rows, 0, n_rows)
    except StorageError:
        raise
    except DadagradError as error:
        return error


def compute_piece(
    job: Job, piece: Piece, given: Given, n_rows: int
) -> tuple[Result, Touched | None] | DadagradError:
    """Work on a piece; its result, and what the `n_rows` rows after it touch."""
    from dadagrad.training.worker import compute

    where = f"{job.data.url}, partition {job.data.partitions[piece.partition].name}"
    try:
        rows = _rows(job, piece.partition)
        result = compute(job.method, rows, piece, given, where)
        return result, _touched(rows, piece.stop, n_rows)
    except StorageError:
        raise
    except DadagradError as error:
        return error
