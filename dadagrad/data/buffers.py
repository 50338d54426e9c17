"""Memory that is used again: partition after partition is read into that of earlier ones.

Fresh memory is not free. The operating system hands it out page by page, each of which it clears
first, at an interrupt each; and freed memory is scattered over the allocator's heaps, where the
next partition may not fit. Reading into existing buffers saves a tenth of a pass, and a long run
takes as much memory as a short one. Large pages, which must be requested, come seven times as fast:
a partition of 20 MB takes 5,000 pages of 4 KiB, or ten of 2 MiB.
"""

from __future__ import annotations

import math
import mmap
import threading
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

LARGE_PAGE = 1 << 21
"""Bytes of a large page: those of x86-64 and of most ARM systems."""


def zeros(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Like `numpy.zeros`, in large pages from 2 MiB on."""
    dtype = np.dtype(dtype)
    sizes = (shape,) if isinstance(shape, int) else shape
    nbytes = math.prod(sizes) * dtype.itemsize
    if nbytes < LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(shape, dtype)
    # One page more than needed, as the mapping may begin anywhere: it is never touched.
    try:
        pages = mmap.mmap(-1, nbytes + LARGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        pages.madvise(mmap.MADV_HUGEPAGE)
    except (OSError, ValueError, OverflowError) as error:
        raise MemoryError(f"no {nbytes} bytes for an array of shape {sizes}") from error
    buffer = np.frombuffer(pages, np.uint8)
    start = -buffer.__array_interface__["data"][0] % LARGE_PAGE
    return buffer[start : start + nbytes].view(dtype).reshape(sizes)


MIN_REUSED = 1 << 16
"""Bytes of the smallest array whose memory is used again."""

MAX_RATIO = 1.25
"""Ratio of the memory that is held to the most that was in use at a time."""


class Pool:
    """Memory of arrays, which others use again when these are garbage.

    Threads may use it at the same time.
    """

    def __init__(self) -> None:
        self._unused: list[NDArray[np.uint8]] = []
        self._held = self._most_used = 0
        self._lock = threading.Lock()

    @property
    def unused_bytes(self) -> int:
        """Bytes that wait to be used again."""
        return sum(map(len, tuple(self._unused)))

    def empty(self, length: int, dtype: DTypeLike) -> NDArray[Any]:
        """An uninitialised (length,) array, in the memory of an earlier one if possible.

        Its memory is used again when nothing refers to the array or to a view of it any more.
        """
        dtype = np.dtype(dtype)
        nbytes = length * dtype.itemsize
        if nbytes < MIN_REUSED:
            return np.empty(length, dtype)
        with self._lock:
            memory = self._take(nbytes)
        return np.asarray(_Loan(memory, self._unused))[:nbytes].view(dtype)

    def release(self) -> None:
        """Return unused memory to the system."""
        with self._lock:
            self._free(0)
            self._most_used = self._held

    def _take(self, nbytes: int) -> NDArray[np.uint8]:
        """Unused memory of at least `nbytes` and at most twice that, or new memory."""
        sizes = [(len(memory), number) for number, memory in enumerate(tuple(self._unused))]
        suitable = [(size, number) for size, number in sizes if nbytes <= size <= 2 * nbytes]
        if suitable:
            return self._unused.pop(min(suitable)[1])
        # Some spare bytes, as partitions have almost the same size; untouched bytes take no memory.
        size = nbytes + nbytes // 8
        self._most_used = max(self._most_used, self._held - self.unused_bytes + size)
        self._free(int(MAX_RATIO * self._most_used) - size)
        memory = zeros(size, np.uint8)
        self._held += size
        return memory

    def _free(self, most_held: int) -> None:
        """Return unused memory, the oldest first, until at most `most_held` bytes are held."""
        while self._unused and self._held > most_held:
            self._held -= len(self._unused.pop(0))


class _Loan:
    """Owner of the `memory` of an array, which becomes `unused` when the owner is garbage."""

    def __init__(self, memory: NDArray[np.uint8], unused: list[NDArray[np.uint8]]) -> None:
        self._memory, self._unused = memory, unused
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        self._unused.append(self._memory)  # without the lock, which this thread may hold


POOL = Pool()
"""Memory of this process."""
