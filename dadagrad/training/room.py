"""How much memory there is: for this process, and for the workers of a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CGROUPS = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60


def resident() -> int:
    """Bytes of memory that this process takes now."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def free_memory() -> int:
    """Bytes that this process can take besides what it has.

    The least of what the machine has free, what the control groups of the process leave it, and
    what its own limit of addresses leaves it.
    """
    import psutil

    free = int(psutil.virtual_memory().available)
    return max(0, min([free, *_group_rests(), *_address_rest()]))


def give_back() -> None:
    """Have the C library give memory that was freed back to the system, where it can.

    It holds back up to 64 MB for what comes next, which may be of another size.
    """
    import ctypes

    with contextlib.suppress(AttributeError, OSError, TypeError):  # it is not that of GNU
        ctypes.CDLL(None).malloc_trim(0)


def _group_rests(root: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> Iterator[int]:
    """What each control group of this process, and each above it, has left."""
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            base = root / "memory" if controllers else root
            group = base / path.lstrip("/")
            # In a container the path may be that of the host, where only the root is to be seen.
            for folder in {base, group, *(one for one in group.parents if base in one.parents)}:
                yield from _group_rest(folder)


def _group_rest(folder: Path) -> Iterator[int]:
    for limit, usage in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # no such file, or the limit is "max"
            most = int((folder / limit).read_text())
            if most < _UNLIMITED:
                yield most - int((folder / usage).read_text()) + _droppable(folder)


def _droppable(folder: Path) -> int:
    """Bytes of files that a control group is charged for, and lets go when memory is short."""
    with contextlib.suppress(OSError):
        for line in (folder / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name in ("inactive_file", "total_inactive_file"):
                return int(value)
    return 0


def _address_rest() -> Iterator[int]:
    """What `ulimit -v` leaves, where it is set."""
    with contextlib.suppress(ImportError):
        import resource

        import psutil

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if 0 < most < _UNLIMITED:
            yield most - int(psutil.Process().memory_info().vms)


@dataclass(frozen=True, slots=True)
class WorkerRoom:
    """What a worker of a cluster may take.

    Attributes
    ----------
    address : str
    threads : int
    limit : int or None
        Bytes; None where it has no limit.
    """

    address: str
    threads: int
    limit: int | None


def workers_of(client: Any) -> list[WorkerRoom]:
    """The workers that the scheduler of a Dask `client` knows."""
    known = client.scheduler_info(n_workers=-1)["workers"]
    return [
        WorkerRoom(str(address), int(worker["nthreads"]), int(worker["memory_limit"] or 0) or None)
        for address, worker in known.items()
    ]


def own_workers(n_workers: int) -> list[WorkerRoom]:
    """Those of a cluster that a run would start on this machine, with a thread each."""
    from dask.system import CPU_COUNT
    from distributed.system import MEMORY_LIMIT

    limit = int(MEMORY_LIMIT * min(1.0, 1.0 / CPU_COUNT))
    return [WorkerRoom("a worker of the run's own", 1, limit)] * n_workers


def usable_share() -> float:
    """The share of a worker's limit that Dask lets it have before it gets no more to do."""
    import dask.config
    import distributed  # noqa: F401 (adds its defaults to the configuration)

    share = dask.config.get("distributed.worker.memory.pause")
    return float(share) if share else 1.0
