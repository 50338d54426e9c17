"""Memory in large pages, where the system has them.

Fresh memory is not free: the system hands it out page by page, each of which it clears first, at an
interrupt each. A partition of 20 MB takes 5,000 of them in pages of 4 KiB, and ten in pages of
2 MiB, which come seven times as fast. It has to be asked for them.
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
    """As `numpy.zeros`, in large pages from 2 MiB on.

    Raises
    ------
    MemoryError
        There is not that much memory.
    """
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
