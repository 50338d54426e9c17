"""Memory that is used again: partition after partition is read into the same buffers.

Fresh memory is not free. The operating system hands it out page by page, each of which it clears
first, and what is given back is scattered over the allocator's heaps, where the next partition may
not fit. Reading into buffers that are there already saves a tenth of a pass, and a long run takes
as much memory as a short one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dadagrad.memory import zeros


class Arena:
    """Buffers of one partition, by name.

    Whoever owns an arena reads one partition into it at a time, and the next one only when nobody
    looks at the arrays of the last any more.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, NDArray[np.uint8]] = {}

    def empty(self, name: str, length: int, dtype: DTypeLike) -> NDArray[Any]:
        """An uninitialised (length,) array in the buffer `name`, whose last array it overwrites."""
        nbytes = length * np.dtype(dtype).itemsize
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < nbytes:
            # Some more, as partitions are of almost the same size. What is not touched is not
            # taken. The old buffer goes first.
            buffer = None
            self._buffers.pop(name, None)
            buffer = self._buffers[name] = zeros(nbytes + nbytes // 8, np.uint8)
        return buffer[:nbytes].view(dtype)


class Arenas:
    """Arenas that nobody uses at present; there get to be as many as are in use at a time.

    Threads may take them, and give them back, at the same time.
    """

    def __init__(self) -> None:
        self._free: list[Arena] = []

    def __iter__(self) -> Iterator[Arena]:
        return iter(self._free)

    def take(self) -> Arena:
        """The arena that was given back last, or a new one."""
        try:
            return self._free.pop()
        except IndexError:
            return Arena()

    def give_back(self, arena: Arena) -> None:
        """Nobody looks at the arrays of `arena` any more."""
        self._free.append(arena)

    def clear(self) -> None:
        """Let go of the memory."""
        self._free.clear()
