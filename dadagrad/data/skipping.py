"""Datasets of which some partitions cannot be read: these are skipped and reported.

A skipped partition stays in its place as rows without features and without weight, from which
nothing is learned: steps, order and everything else are those of the whole dataset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows
from dadagrad.errors import CorruptionError, InputError, MissingKey, OnError

logger = logging.getLogger(__name__)


class SkippingDataset(Dataset):
    """A dataset without the partitions that are missing, damaged or changed.

    A partition that was skipped once stays skipped, also if it can be read again. When no partition
    is left, each method raises `CorruptionError`.

    Parameters
    ----------
    source : Dataset
    skipped : mapping of str to str
        Names of partitions that are skipped already, and the reasons; more are added.
    """

    def __init__(self, source: Dataset, skipped: Mapping[str, str] | None = None) -> None:
        self.url, self.schema, self.partitions = source.url, source.schema, source.partitions
        self.source, self.skipped = source, dict(skipped or {})

    @property
    def sources(self) -> tuple[Dataset, ...]:
        return self.source.sources

    @property
    def content(self) -> dict[str, int]:
        return self.source.content

    def compare_content(self, content: Mapping[str, int]) -> None:
        self.source.compare_content(content)

    def read(self, partition: int) -> Rows:
        """Rows of the partition, or its replacement."""
        return self.guarded(partition, lambda: self.source.read(partition))

    def guarded(self, partition: int, read: Callable[[], Rows]) -> Rows:
        """Result of `read`, or the replacement of a partition that is damaged or missing.

        The read is tried twice. Errors that prove no damage, such as those of the memory and of
        the store, are raised.
        """
        name, damage = self.partitions[partition].name, (CorruptionError, MissingKey)
        if name not in self.skipped:
            with suppress(*damage):
                return read()
            try:
                return read()
            except damage as error:
                self.skip({name: str(error)})
        return self._replacement(partition)

    def skip(self, reasons: Mapping[str, str]) -> None:
        """Skip the partitions of these names from now on."""
        for name, reason in reasons.items():
            if name not in self.skipped:
                self.skipped[name] = reason
                if all(each.name in self.skipped for each in self.partitions if each.n_rows):
                    raise CorruptionError(
                        f"no partition can be read; the last one, {name}, failed: {reason}"
                    )
                logger.warning("partition %s is skipped: %s", name, reason)

    def names(self, ids: NDArray[np.int64]) -> dict[int, str]:
        """Names of those `ids` that have one, in the partitions that can be read."""
        readable = [each for each in self.partitions if each.name not in self.skipped]
        with suppress(CorruptionError, MissingKey):
            return self.source.with_partitions(readable).names(ids)
        names: dict[int, str] = {}
        for partition in readable:
            with suppress(CorruptionError, MissingKey):  # its rows can be read all the same
                names |= self.source.with_partitions([partition]).names(ids)
        return names

    def _replacement(self, partition: int) -> Rows:
        """Rows without features and without weight, as many as the partition has."""
        n_rows = self.partitions[partition].n_rows
        columns = self.schema.label_columns
        labels = [column.values[0] if column.values else 0.0 for column in columns]
        return Rows(
            vocabulary=np.zeros(0, np.int64),
            indptr=np.zeros(n_rows + 1, np.int64),
            indices=np.zeros(0, np.int32),
            values=None,
            labels=np.tile(np.array(labels, np.float64), (n_rows, 1)),
            weights=np.zeros(n_rows, np.float32),
            queries=np.zeros(n_rows, np.int64) if self.schema.queried else None,
        )


def skipping(data: Dataset, on_error: OnError, skipped: Mapping[str, str] | None = None) -> Dataset:
    """`data`, or a `SkippingDataset` of it if `on_error` is "skip" and it is not in memory."""
    if on_error not in ("raise", "skip"):
        raise InputError(f"on_error must be 'raise' or 'skip', not {on_error!r}")
    return SkippingDataset(data, skipped) if on_error == "skip" and not data.in_memory else data


def skipped_partitions(data: Dataset) -> dict[str, str]:
    """Names of the partitions of `data` that are skipped, and the reasons."""
    return data.skipped if isinstance(data, SkippingDataset) else {}


def n_skipped(data: Dataset) -> int:
    """Number of rows in the skipped partitions."""
    skipped = skipped_partitions(data)
    return sum(each.n_rows for each in data.partitions if each.name in skipped)
