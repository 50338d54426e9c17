"""Reading of partitions, some of which are kept from the first look at the rows for the run."""

from __future__ import annotations

from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows


class Loader:
    """Reader of the partitions of `data`; threads may use it at the same time."""

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self._kept: dict[int, Rows] = {}

    def load(self, partition: int) -> Rows:
        """The rows of a partition: those that were kept, or else read now."""
        rows = self._kept.pop(partition, None)
        return self._data.read(partition) if rows is None else rows

    def keep(self, partition: int, rows: Rows) -> None:
        """Have the next `load` of this partition give these rows."""
        self._kept[partition] = rows

    def clear(self) -> None:
        """Let go of all rows."""
        self._kept.clear()
