"""Sizes of partitions: bytes of their rows, and features, from metadata alone."""

from __future__ import annotations

import math
from collections.abc import Iterable

from dadagrad.data.dataset import Dataset, MemoryDataset, Partition
from dadagrad.data.zarr.dataset import ZarrDataset
from dadagrad.problem import Problem

_READING, _READING_PARQUET = 0.75, 3.0
"""Memory to read a partition of Zarr or Parquet, as a share of its decoded bytes."""
_DENSE_SHARE = 0.25
"""Share of the columns of a partition that a row has in the mean, where some may be dense."""


def touched_features(nnz: float, partition: Partition) -> float:
    """Estimate how many features the rows of `partition` touch that have `nnz` non-zeros.

    The geometric mean of an upper bound, ``n_local (1 - (1 - nnz / all)^(all / n_local))`` (all
    features equally frequent), and of Heaps' law, ``nnz^b`` with ``n_local = all^b``. Within a
    third of the truth on text and on categories, from single rows to half a partition.
    """
    whole, n_local = partition.nnz, partition.n_local
    if nnz >= whole or n_local <= 1 or whole <= 1:
        return float(min(nnz, n_local))
    bound = n_local * -math.expm1(whole / n_local * math.log1p(-nnz / whole))
    heaps = max(nnz, 1.0) ** (math.log(n_local) / math.log(whole))
    return min(nnz, math.sqrt(bound * heaps))


def distinct_features(n_features: int, partitions: Iterable[Partition]) -> int:
    """Estimate how many features occur in some of `partitions`, as if these were independent."""
    log_absent = 0.0
    for partition in partitions:
        if partition.n_local >= n_features:
            return n_features
        log_absent += math.log1p(-partition.n_local / n_features)
    return round(-n_features * math.expm1(log_absent))


def decoded_bytes(data: Dataset, partition: Partition) -> int:
    """Bytes of the rows of a partition; 0 if they are in memory already."""
    if isinstance(data, MemoryDataset):
        return 0
    schema = data.schema
    entry = 4 if schema.feature_space.binary else 8
    labels = 16 * len(schema.label_columns)  # as they are read, and as they are used
    row = 20 + labels + 4 * schema.weighted + 8 * schema.queried
    return entry * partition.nnz + row * partition.n_rows + 8 * partition.n_local


def reading_bytes(data: Dataset, partition: Partition) -> int:
    """Bytes that reading a partition takes in addition to its rows."""
    is_zarr = all(isinstance(source, ZarrDataset) for source in data.sources)
    return int((_READING if is_zarr else _READING_PARQUET) * decoded_bytes(data, partition))


def centered_bytes(problem: Problem, partition: Partition) -> int:
    """Bytes of the rows of a partition whose columns lose means, as those of dense rows may."""
    is_dense = _DENSE_SHARE * partition.n_rows * partition.n_local <= partition.nnz
    return 8 * partition.nnz if is_dense and problem.may_center else 0
