"""Memory that this process has and can take."""

from __future__ import annotations

import contextlib
import ctypes
import resource
from collections.abc import Iterator
from pathlib import Path

import psutil
from rich.filesize import decimal

from dadagrad.errors import OutOfMemory

_CGROUPS = Path("/sys/fs/cgroup")
_VERSION_1 = "memory.limit_in_bytes", "memory.usage_in_bytes"
_VERSION_2 = "memory.max", "memory.current"
_UNLIMITED = 1 << 60

_UNCHECKED_BYTES = _THREAD_ADDRESSES = 64 << 20


def check_free_memory(needed: int, place: str) -> None:
    """Raise `OutOfMemory` before `place` is read, if it takes more memory than is free.

    Less than 64 MB is taken without a look at the free memory, which takes time.
    """
    if needed > _UNCHECKED_BYTES and needed > (free := free_memory()):
        raise OutOfMemory(
            f"{place} takes {decimal(needed)} of memory, and {decimal(free)} are free; free some, "
            "or split the data into smaller files, row groups or partitions"
        )


def check_addresses(place: str) -> None:
    """Raise `OutOfMemory` if a limit of addresses (``ulimit -v``) leaves too few for a thread.

    Python and the library of stores would wait for ever for a thread that cannot start.
    """
    free = free_addresses()
    if free is not None and free < _THREAD_ADDRESSES:
        raise OutOfMemory(
            f"{place}: the limit of addresses (ulimit -v) leaves {decimal(max(0, free))}, and "
            f"a thread needs {decimal(_THREAD_ADDRESSES)}; raise it"
        )


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


def has_limited_group() -> bool:
    """Return True if a control group limits the memory of this process."""
    return any(True for _ in _cgroup_rests())


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
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return limit - int(psutil.Process().memory_info().vms) if 0 < limit < _UNLIMITED else None
