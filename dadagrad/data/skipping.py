"""Data of which some partitions cannot be read: they are left out, and said so.

What is left out of a dataset stays in its place as rows without features and without weight, from
which nothing is learned: steps, order and everything else are those of the whole dataset.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.arena import Arena
from dadagrad.data.dataset import Dataset, MemoryDataset
from dadagrad.data.rows import Rows
from dadagrad.errors import CorruptionError, InputError
from dadagrad.storage import MissingKey

OnError: TypeAlias = Literal["raise", "skip"]

logger = logging.getLogger(__name__)


class SkippingDataset(Dataset):
    """Skips the partitions of another dataset that are missing, damaged or not what they were.

    A partition that was skipped once stays skipped, also where it can be read again.

    Parameters
    ----------
    data : Dataset
    skipped : mapping of str to str
        The names of partitions that are skipped already, and why.

    Attributes
    ----------
    skipped : dict of str to str
        The names of the partitions that are skipped, and why.
    """

    def __init__(self, data: Dataset, skipped: Mapping[str, str] | None = None) -> None:
        self.url = data.url
        self.schema = data.schema
        self.partitions = data.partitions
        self.skipped = dict(skipped or {})
        self._data = data

    def read(self, partition: int) -> Rows:
        """The rows of the partition, or what stands for them.

        Raises
        ------
        CorruptionError
            There is nothing left that could be read.
        """
        return self.guarded(partition, lambda: self._data.read(partition))

    def read_into(self, partition: int, arena: Arena, scratch: Arena) -> Rows:
        """As `read`, for `Dataset.read_into`."""
        return self.guarded(partition, lambda: self._data.read_into(partition, arena, scratch))

    def read_plainly(self, partition: int) -> Rows:
        """The rows of the partition; raises where that cannot be."""
        return self._data.read(partition)

    def read_vocabulary(self, partition: int) -> NDArray[np.int64]:
        """The (n_local,) int64 feature ids of `read`."""
        # All of it is read: what is damaged may be elsewhere in the partition.
        return self.read(partition).vocabulary

    def guarded(self, partition: int, read: Callable[[], Rows]) -> Rows:
        """What `read` gives of the partition, or what stands for it."""
        name = self.partitions[partition].name
        if name not in self.skipped:
            try:
                return read()
            except (CorruptionError, MissingKey) as error:
                self.skip({name: str(error)})
        return self._nothing(partition)

    def skip(self, why: Mapping[str, str]) -> None:
        """Skip the partitions of these names from now on.

        Raises
        ------
        CorruptionError
            Nothing is left.
        """
        for name, reason in why.items():
            if name not in self.skipped:
                self.skipped[name] = reason
                if all(one.name in self.skipped for one in self.partitions if one.n_rows):
                    raise CorruptionError(f"no partition can be read, {name} as little: {reason}")
                logger.warning("partition %s is skipped: %s", name, reason)

    def names(self, ids: NDArray[np.int64]) -> dict[int, str]:
        """The names of those `ids` that have one, in what can be read."""
        whole = copy.copy(self._data)
        whole.partitions = tuple(one for one in self.partitions if one.name not in self.skipped)
        return whole.names(ids)

    def _nothing(self, partition: int) -> Rows:
        """As many rows, of no features and no weight."""
        n_rows = self.partitions[partition].n_rows
        columns = self.schema.label_columns
        labels = [column.values[0] if column.values else 0.0 for column in columns]
        return Rows(
            np.zeros(0, np.int64),
            np.zeros(n_rows + 1, np.int64),
            np.zeros(0, np.int32),
            None,
            np.tile(np.array(labels, np.float64), (n_rows, 1)),
            np.zeros(n_rows, np.float32),
            None,
            np.zeros(n_rows, np.int64) if self.schema.queried else None,
        )


def skipping(data: Dataset, on_error: OnError, skipped: Mapping[str, str] | None = None) -> Dataset:
    """`data`, or what skips of it what cannot be read where `on_error` is "skip"."""
    if on_error not in ("raise", "skip"):
        raise InputError(f"on_error must be 'raise' or 'skip', not {on_error!r}")
    in_memory = isinstance(data, MemoryDataset)
    return SkippingDataset(data, skipped) if on_error == "skip" and not in_memory else data


def skipped_partitions(data: Dataset) -> dict[str, str]:
    """The names of the partitions of `data` that are skipped, and why."""
    return data.skipped if isinstance(data, SkippingDataset) else {}


def n_skipped(data: Dataset) -> int:
    """The rows of those partitions."""
    skipped = skipped_partitions(data)
    return sum(one.n_rows for one in data.partitions if one.name in skipped)
