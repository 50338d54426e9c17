"""Reading partitions into memory that is used again, and keeping what will be wanted soon."""

from __future__ import annotations

from dataclasses import dataclass

from dadagrad.data.buffers import Arena, Arenas
from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows


@dataclass(frozen=True, slots=True)
class Loaded:
    """The `rows` of a partition, which may be views of `arena`: they are valid until `release`."""

    partition: int
    rows: Rows
    arena: Arena


class Loader:
    """Reads the partitions of `data`; threads may use it at the same time."""

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self._arenas, self._scratch = Arenas(), Arenas()
        self._kept: dict[int, Loaded] = {}

    def load(self, partition: int) -> Loaded:
        """The rows of a partition: those that were kept, or else read now."""
        loaded = self._kept.pop(partition, None)
        if loaded is not None:
            return loaded
        arena, scratch = self._arenas.take(), self._scratch.take()
        rows = self._data.read_into(partition, arena, scratch)
        self._scratch.append(scratch)
        return Loaded(partition, rows, arena)

    def release(self, loaded: Loaded) -> None:
        """Nobody looks at the rows any more: their memory is for others."""
        self._arenas.append(loaded.arena)

    def keep(self, loaded: Loaded) -> None:
        """Have the next `load` of this partition give these rows."""
        self._kept[loaded.partition] = loaded

    def clear(self) -> None:
        """Let go of all memory."""
        for cache in (self._arenas, self._scratch, self._kept):
            cache.clear()
