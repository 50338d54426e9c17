"""Datasets: a schema and a list of immutable partitions that can be read one at a time."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.arena import Arena
from dadagrad.data.rows import Rows
from dadagrad.data.schema_json import check_schema
from dadagrad.errors import InputError

MAX_LISTED_VALUES = 1000
"""A label column with more distinct values than this is a regression target, not classes."""


@dataclass(frozen=True, slots=True)
class LabelColumn:
    """One label of the rows.

    `values` are the distinct values in increasing order with their `counts`, or None where there
    are more than `MAX_LISTED_VALUES`; `names[i]` is the text that became ``values[i]``, where
    labels were text.
    """

    name: str
    values: tuple[float, ...] | None = None
    counts: tuple[int, ...] | None = None
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """What all partitions of a dataset share.

    `feature_space` says, as plain JSON, how the source became features (format, hashing, n-grams,
    normalisation). A model trained in one feature space refuses data of another. `queried` tells
    whether the rows belong to queries, as those of a ranking do.
    """

    n_features: int
    label_columns: tuple[LabelColumn, ...]
    weighted: bool = False
    feature_space: dict[str, Any] | None = None
    queried: bool = False

    @property
    def numbers_own_features(self) -> bool:
        """Whether feature ids are those the source gave, with no bound but the highest seen."""
        space = self.feature_space or {}
        return space.get("format") in ("svmlight", "vw") and not space.get("hash_bits")

    def to_json(self) -> dict[str, Any]:
        """The schema as plain JSON types."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        if not self.queried:
            del plain["queried"]  # as before there were queries: fingerprints stay what they were
        return plain

    @classmethod
    def from_json(cls, plain: Any) -> Schema:
        """The inverse of `to_json`; raises `InputError` for anything that `to_json` cannot make."""
        check_schema(plain)

        def optional(items: Sequence[Any] | None) -> tuple[Any, ...] | None:
            return None if items is None else tuple(items)

        columns = tuple(
            LabelColumn(
                column["name"],
                optional(column.get("values")),
                optional(column.get("counts")),
                optional(column.get("names")),
            )
            for column in plain["label_columns"]
        )
        return cls(
            plain["n_features"],
            columns,
            plain["weighted"],
            plain.get("feature_space"),
            plain.get("queried", False),
        )


@dataclass(frozen=True, slots=True)
class Partition:
    """Names one immutable piece of a dataset; holds none of its data."""

    name: str
    n_rows: int
    nnz: int
    n_local: int
    checksum: str


class Dataset(ABC):
    """Partitions that can be read in any order, any number of times, from any process."""

    url: str
    schema: Schema
    partitions: tuple[Partition, ...]

    @abstractmethod
    def read(self, partition: int) -> Rows:
        """Read and check partition number `partition`."""

    def read_into(self, partition: int, arena: Arena, scratch: Arena) -> Rows:
        """As `read`, but the arrays may be views of `arena`, valid until it is used again.

        `scratch` is free again when this returns.
        """
        return self.read(partition)

    def read_vocabulary(self, partition: int) -> NDArray[np.int64]:
        """The (n_local,) int64 feature ids that occur in the partition, increasing."""
        return self.read(partition).vocabulary

    def names(self, ids: NDArray[np.int64]) -> dict[int, str]:
        """The names of those `ids` that have one."""
        return {}

    @property
    def n_rows(self) -> int:
        return sum(partition.n_rows for partition in self.partitions)

    @property
    def nnz(self) -> int:
        return sum(partition.nnz for partition in self.partitions)

    @property
    def fingerprint(self) -> str:
        """sha256 over the schema and the partitions' checksums: the identity of the data."""
        content = [self.schema.to_json(), [asdict(partition) for partition in self.partitions]]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class MemoryDataset(Dataset):
    """Partitions that are held in memory: arrays a user has at hand, and tests."""

    def __init__(self, parts: Sequence[Rows], schema: Schema, url: str = "memory") -> None:
        self.url = url
        self.schema = schema
        self._parts = tuple(parts)
        self.partitions = tuple(
            Partition(f"part-{number:05d}", rows.n_rows, rows.nnz, rows.n_local, checksum(rows))
            for number, rows in enumerate(self._parts)
        )

    def read(self, partition: int) -> Rows:
        return self._parts[partition]


def checksum(rows: Rows) -> str:
    """sha256 over the content of `rows`: equal content gives equal checksums."""
    digest = hashlib.sha256()
    columns = (
        rows.vocabulary,
        rows.indptr,
        rows.indices,
        rows.values,
        rows.labels,
        rows.weights,
        rows.row_scale,
        *(() if rows.queries is None else (rows.queries,)),
    )
    for column in columns:
        if column is None:
            digest.update(b"absent")
        else:
            digest.update(f"{column.dtype}{column.shape}".encode())
            digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()


def describe_labels(labels: NDArray[np.float64], names: Sequence[str]) -> tuple[LabelColumn, ...]:
    """The label columns of (n_rows, n_label_columns) `labels`, with their distinct values."""
    columns = []
    for number, name in enumerate(names):
        values, counts = np.unique(labels[:, number], return_counts=True)
        if len(values) > MAX_LISTED_VALUES:
            columns.append(LabelColumn(name))
        else:
            columns.append(LabelColumn(name, tuple(values.tolist()), tuple(counts.tolist())))
    return tuple(columns)


def open_dataset(url: str) -> Dataset:
    """Open the dataset at `url`: a Zarr dataset, or a Parquet file or folder.

    Only metadata is read. Raises `InputError` where there is neither.
    """
    # Both modules import this one and heavy libraries besides: they load when they are needed.
    from dadagrad.data.parquet import ParquetDataset, looks_like_parquet
    from dadagrad.data.zarr import ZarrDataset, looks_like_zarr
    from dadagrad.storage import Storage

    storage = Storage(url)
    if looks_like_zarr(storage):
        return ZarrDataset(url)
    if looks_like_parquet(storage):
        return ParquetDataset(url)
    if storage.is_local and not os.path.exists(storage.local_path()):
        raise InputError(
            f"no dataset at {url}: nothing is there; is the path right? `dadagrad ingest SOURCE "
            "--out URL` makes one"
        )
    raise InputError(
        f"no dataset at {url}: found neither the root metadata of a Zarr dataset nor a Parquet "
        "file; make one with `dadagrad ingest SOURCE --out URL`"
    )
