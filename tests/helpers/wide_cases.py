"""Data of many features, and what a process or a run took of memory."""

import math
import re
from pathlib import Path

import numpy as np

from dadagrad.data.rows import Rows
from dadagrad.training.engines.dask import tasks as dask_tasks
from dadagrad.training.engines.dask.partition_cache import PartitionCache


def hashed_rows(seed, n_rows, words, bits):
    """Rows of words of probability 1 / rank, hashed to 2^bits features."""
    random = np.random.default_rng([bits, seed])
    ranks = np.exp(random.random((n_rows, words)) * math.log(4 << bits)).astype(np.uint64)
    mixed = ranks * np.uint64(0x9E3779B97F4A7C15)
    ids = np.sort((mixed >> np.uint64(64 - bits)).astype(np.int64), axis=1)
    first = np.diff(ids, axis=1, prepend=-1) > 0
    labels = np.where(ids[:, :1] % 3 == 0, 1.0, -1.0)
    indptr = np.concatenate([[0], np.cumsum(first.sum(axis=1))])
    values = np.full(int(indptr[-1]), 1.0 / math.sqrt(words), np.float32)
    return Rows.from_csr(indptr, ids[first], values, labels)


def write_wide(folder, bits, partitions, n_rows, words=50):
    # Workers of little memory import this module, and not these.
    from helpers.training_cases import as_dataset
    from helpers.zarr_cases import write_zarr

    parts = [hashed_rows(number, n_rows, words, bits) for number in range(partitions)]
    return write_zarr(as_dataset(parts, 1 << bits), folder)


def peak_memory():
    found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    return 1024 * int(found[1])


# Functions that run on a worker, which imports this module.


def set_cache(most_bytes):
    """Have a worker begin with an empty cache; None leaves its size to the worker."""
    dask_tasks._cache = None if most_bytes is None else PartitionCache(most_bytes)


def kept():
    """Number of partitions that a worker keeps, and their bytes."""
    return len(_cache().kept), int(_cache().kept.total_weight)


def _cache():
    return dask_tasks._cache
