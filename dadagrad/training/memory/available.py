"""Memory and threads of the workers of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dadagrad.kernels.parallel import available_cores

CACHE_SHARE = 0.4
"""Share of the memory of a worker beside its libraries that keeps decoded partitions; the rest is
for reading, for weights and gradients, and for messages. Dask lets a worker have four fifths of its
limit."""


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """Memory limit of a worker of a cluster, in bytes; None if it has no limit."""

    address: str
    threads: int
    limit: int | None


def workers_of(client: Any) -> list[WorkerMemory]:
    """Return the workers that the scheduler of a `distributed.Client` knows."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return [
        WorkerMemory(str(address), int(info["nthreads"]), int(info["memory_limit"] or 0) or None)
        for address, info in workers.items()
    ]


def local_workers(n_workers: int) -> list[WorkerMemory]:
    """Return the workers that a run starts on this machine for itself."""
    threads = threads_of_worker(n_workers)
    return [WorkerMemory("each worker", threads, _usual_limit(threads))] * n_workers


def _usual_limit(threads: int) -> int:
    """Return the memory limit that Dask gives to a worker of so many threads."""
    from dask.system import CPU_COUNT
    from distributed.system import MEMORY_LIMIT

    return int(MEMORY_LIMIT * min(1.0, threads / CPU_COUNT))


def cache_bytes(memory_limit: int | None, used: int) -> int:
    """Return the bytes of rows that a worker may keep, if so much of its memory is `used`.

    Without a limit, it is a worker's usual share of the machine that counts: that of one processor.
    """
    return int(CACHE_SHARE * max(0, (memory_limit or _usual_limit(1)) - used))


def threads_of_worker(n_workers: int) -> int:
    """Return the threads of each of the workers that share the cores of this machine."""
    return max(1, available_cores() // n_workers)


def usable_share() -> float:
    """Return the share of its limit at which Dask pauses a worker."""
    import dask.config
    import distributed  # noqa: F401 (adds its defaults to the configuration)

    share = dask.config.get("distributed.worker.memory.pause")
    return float(share) if share else 1.0
