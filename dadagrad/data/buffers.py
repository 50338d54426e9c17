"""Memory that is used again: partition after partition is read into the same buffers.

Fresh memory is not free. The operating system hands it out page by page, each of which it clears
first, at an interrupt each; and freed memory is scattered over the allocator's heaps, where the
next partition may not fit. Reading into existing buffers saves a tenth of a pass, and a long run
takes as much memory as a short one. Large pages, which must be requested, come seven times as fast:
a partition of 20 MB takes 5,000 pages of 4 KiB, or ten of 2 MiB.
"""

from __future__ import annotations

import math
import mmap
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


class Arena:
    """Buffers of one partition, by name.

    An arena holds one partition at a time: the next one overwrites the arrays of the last.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, NDArray[np.uint8]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(map(len, self._buffers.values()))

    def empty(self, name: str, length: int, dtype: DTypeLike) -> NDArray[Any]:
        """An uninitialised (length,) array in the buffer `name`, whose last array it overwrites."""
        nbytes = length * np.dtype(dtype).itemsize
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < nbytes:
            # The old buffer is freed first. The new one has some spare bytes, as partitions have
            # almost the same size; untouched bytes take no memory.
            buffer = None
            self._buffers.pop(name, None)
            buffer = self._buffers[name] = zeros(nbytes + nbytes // 8, np.uint8)
        return buffer[:nbytes].view(dtype)


class Arenas(list[Arena]):
    """Unused arenas, which threads may `take` and `append` at the same time."""

    def take(self) -> Arena:
        """The arena that was appended last, or a new one."""
        try:
            return self.pop()
        except IndexError:
            return Arena()
