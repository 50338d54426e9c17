"""Workers of a cluster: their memory, their threads, and the share of a state that they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dadagrad.kernels.parallel import available_cores
from dadagrad.problem import Problem
from dadagrad.training.state import state_bytes

CACHE_SHARE = 0.4
"""Share of the memory of a worker beside its libraries that keeps decoded partitions; the rest is
for reading, for weights and gradients, and for messages. Dask lets a worker have four fifths of its
limit."""

HOLDERS_SHARE = 0.4
"""Share of the memory of all workers that a state may take which is held twice."""
MAX_GATHERED = 256 << 20
"""Bytes of a state that comes from the workers to this process at the end."""


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


def n_holders(problem: Problem, workers: Sequence[WorkerMemory]) -> int:
    """Return how many of the workers hold each shard of the state of streams.

    They are two, unless that would take more than `HOLDERS_SHARE` of the memory of all workers.
    """
    limits = [worker.limit for worker in workers if worker.limit is not None]
    share = 2 * state_bytes(problem) / sum(limits) if limits else 0.0
    return 2 if len(workers) > 1 and share <= HOLDERS_SHARE else 1


def stays_on_workers(problem: Problem) -> bool:
    """Return True if the state of streams on a cluster is never whole in one process."""
    is_needed = problem.config.early_stopping or problem.n_settings > 1
    return state_bytes(problem) > MAX_GATHERED and not is_needed
