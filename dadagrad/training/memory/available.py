"""Memory and cores that are available to this process and to the workers of a cluster."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

_CGROUPS = Path("/sys/fs/cgroup")
_VERSION_1 = "memory.limit_in_bytes", "memory.usage_in_bytes"
_VERSION_2 = "memory.max", "memory.current"
_UNLIMITED = 1 << 60

CACHE_SHARE = 0.4
"""Share of the memory of a worker beside its libraries that keeps decoded partitions; the rest is
for reading, for weights and gradients, and for messages. Dask lets a worker have four fifths of its
limit."""


def resident() -> int:
    """Return the bytes of memory that this process takes now."""
    return int(psutil.Process().memory_info().rss)


def free_memory() -> int:
    """Return the bytes that this process can take in addition.

    The minimum of the free memory of the machine, of what the control groups of the process leave,
    and of what its limit of addresses (``ulimit -v``) leaves.

    Notes
    -----
    `distributed.system.memory_limit` sees only the limit of the root control group, in which no job
    of a batch system is, and takes half a second to import.
    """
    free = int(psutil.virtual_memory().available)
    addresses = free_addresses()
    return max(0, min([free, *_cgroup_rests(), *([] if addresses is None else [addresses])]))


def trim_malloc() -> None:
    """Return freed memory to the system, if the C library can.

    The library of GNU keeps up to 64 MB for later requests, which may have other sizes.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _cgroup_rests(
    root: Path = _CGROUPS, membership: Path = Path("/proc/self/cgroup")
) -> Iterator[int]:
    """Yield the bytes that each control group of this process, and each parent of it, leaves."""
    with contextlib.suppress(OSError):
        for line in membership.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            base = root / "memory" if controllers else root
            limit_file, usage_file = _VERSION_1 if controllers else _VERSION_2
            group = base / path.lstrip("/")
            # In a container the path may be that of the host, and then only the root exists here.
            for folder in {base, group, *(p for p in group.parents if base in p.parents)}:
                with contextlib.suppress(OSError, ValueError):  # no such file, or it says "max"
                    limit = int((folder / limit_file).read_text())
                    used = int((folder / usage_file).read_text())
                    if limit < _UNLIMITED:
                        yield limit - used + _reclaimable(folder)


def _reclaimable(folder: Path) -> int:
    """Return the bytes of cached files in a control group."""
    with contextlib.suppress(OSError):
        counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        prefix = "total_" if "total_inactive_file" in counts else ""  # of version 1
        return sum(int(counts.get(f"{prefix}{kind}_file", 0)) for kind in ("active", "inactive"))
    return 0


def free_addresses() -> int | None:
    """Return the bytes that the limit of addresses (``ulimit -v``) leaves; None without one."""
    try:
        import resource  # absent on Windows
    except ImportError:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return limit - int(psutil.Process().memory_info().vms) if 0 < limit < _UNLIMITED else None


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


def cache_bytes(memory_limit: int | None, taken: int) -> int:
    """Return the bytes of rows that a worker may keep, if so much of its memory is `taken`.

    Without a limit, it is a worker's usual share of the machine that counts: that of one processor.
    """
    return int(CACHE_SHARE * max(0, (memory_limit or _usual_limit(1)) - taken))


def threads_of_worker(n_workers: int) -> int:
    """Return the threads of each of the workers that share the cores of this machine."""
    return max(1, available_cores() // n_workers)


def available_cores() -> int:
    """Return the cores that this process may use, by its affinity and the quota of its container.

    Like `dask.system.CPU_COUNT`, whose import takes longer than a small run.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass  # no container, or "max": no quota
    return cores


def usable_share() -> float:
    """Return the share of its limit at which Dask pauses a worker."""
    import dask.config
    import distributed  # noqa: F401 (adds its defaults to the configuration)

    share = dask.config.get("distributed.worker.memory.pause")
    return float(share) if share else 1.0
