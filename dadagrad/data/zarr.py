"""Reading a dataset that is stored as a Zarr group of partitions.

The format, and functions that write it, are in `dadagrad.data.zarr_writer`. Reading a partition
takes one small object, its ``zarr.json``, and then all chunks of the arrays that matter. Every
byte is checked: the root vouches for each ``zarr.json``, and that for each chunk. That says nothing
of who wrote them: see `dadagrad.data.zarr_partition` for what is not believed. Symbolic links in a
folder are followed, as by any program; what they lead to must fit size and checksum like a chunk.
"""

from __future__ import annotations

import json
import re
import reprlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.arena import Arena
from dadagrad.data.dataset import Dataset, Partition, Schema
from dadagrad.data.rows import Rows
from dadagrad.data.schema_json import check_plain
from dadagrad.data.zarr_partition import AGAIN, PartitionReader
from dadagrad.data.zarr_writer import (
    FORMAT,
    FORMAT_VERSION,
    attributes_checksum,
    check_label_names,
    check_partition_name,
    write_partition,
    write_root,
)
from dadagrad.errors import CorruptionError, InputError, StorageError
from dadagrad.storage import MissingKey, Storage

__all__ = ["ZarrDataset", "looks_like_zarr", "write_partition", "write_root"]

_MAX_ROOT = 1 << 28  # bytes: a million partitions take most of it
_MAX_ENTRIES = 2**31 - 1


def looks_like_zarr(storage: Storage) -> bool:
    """Whether there is a Zarr group at `storage`, or partitions of a half-written dataset."""
    return storage.exists("zarr.json") or _has_partitions(storage)


def _has_partitions(storage: Storage) -> bool:
    try:
        return any(re.match(r"part-\d+/", key) for key in storage.list())
    except StorageError:  # a web server that cannot list
        return False


class ZarrDataset(Dataset):
    """A dataset in the project's own format.

    Parameters
    ----------
    url : str
        What `Storage` takes.

    Attributes
    ----------
    provenance : dict
        Where the data came from, as ingest noted it.

    Raises
    ------
    InputError
        If there is no dataset, a half-written one, or a Zarr group of another kind.
    CorruptionError
        If the root metadata does not match its checksum.
    """

    def __init__(self, url: str) -> None:
        self._storage = Storage(url)
        self.url = self._storage.url
        attributes = self._open()
        try:
            self.schema = Schema.from_json(attributes.get("schema"))
            self.partitions = _partitions(attributes.get("partitions"))
            self.provenance = _provenance(attributes.get("provenance"))
            self._label_names = [column.name for column in self.schema.label_columns]
            check_label_names(self._label_names)
        except InputError as error:
            raise CorruptionError(
                f"{self.url}: the root metadata (zarr.json) is malformed: {error}; {AGAIN}"
            ) from None

    def read(self, partition: int) -> Rows:
        """Read and check partition number `partition`.

        Raises `CorruptionError`, naming dataset, partition and array, if any byte differs from
        what was written.
        """
        return self.read_into(partition, Arena(), Arena())

    def read_into(self, partition: int, arena: Arena, scratch: Arena) -> Rows:
        """As `read`; all arrays are views of `arena`, and `scratch` holds what is compressed."""
        source = PartitionReader(
            self._storage, self.url, self.partitions[partition], arena, scratch
        )
        return source.rows(
            self._label_names, queried=self.schema.queried, n_features=self.schema.n_features
        )

    def read_vocabulary(self, partition: int) -> NDArray[np.int64]:
        """The (n_local,) int64 feature ids that occur in the partition, increasing."""
        source = PartitionReader(self._storage, self.url, self.partitions[partition])
        return source.vocabulary(self.schema.n_features)

    def names(self, ids: NDArray[np.int64]) -> dict[int, str]:
        """The names of those `ids` that have one."""
        wanted = np.asarray(ids, np.int64)
        if (wanted[1:] <= wanted[:-1]).any():
            wanted = np.unique(wanted)
        found: dict[int, str] = {}
        for partition in self.partitions:
            if not len(wanted):
                break
            source = PartitionReader(self._storage, self.url, partition)
            if not partition.n_local:
                continue
            if "var/name" not in source:
                break  # Names are kept for all features or for none.
            vocabulary = source.vocabulary(self.schema.n_features)
            names = source.strings("var/name", partition.n_local)
            here, _, positions = np.intersect1d(
                wanted, vocabulary, assume_unique=True, return_indices=True
            )
            named = {
                feature: name
                for feature, name in zip(here.tolist(), names[positions].tolist(), strict=True)
                if name
            }
            found.update(named)
            wanted = np.setdiff1d(wanted, np.array(list(named), np.int64), assume_unique=True)
        return found

    def _open(self) -> dict[str, Any]:
        """The root attributes, once they are known to be those of a whole dataset."""
        try:
            data = self._storage.get("zarr.json", max_bytes=_MAX_ROOT)
        except MissingKey:
            if _has_partitions(self._storage):
                raise InputError(
                    f"{self.url} is a half-written dataset: it has partitions but no root "
                    "metadata, which is written last; run the ingest again with --overwrite"
                ) from None
            raise InputError(
                f"no dataset at {self.url}: there is no zarr.json; make one with `dadagrad ingest "
                "SOURCE --out URL`"
            ) from None
        try:
            attributes = json.loads(data)["attributes"]
            kind, version = attributes.get("encoding-type"), attributes.get("encoding-version")
            checksum = attributes_checksum(attributes)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise CorruptionError(
                f"{self.url}: the root metadata (zarr.json) is not that of a Zarr group; {AGAIN}"
            ) from None
        if kind != FORMAT:
            raise InputError(
                f"{self.url} is a Zarr group of type {reprlib.repr(kind)}, not {FORMAT!r}; convert "
                "it with `dadagrad ingest`"
            )
        if version != str(FORMAT_VERSION):
            raise InputError(
                f"{self.url} has format version {reprlib.repr(version)}; this dadagrad reads "
                f"version {FORMAT_VERSION}; use the one that wrote it, or ingest the data again"
            )
        if attributes.get("checksum") != checksum:
            raise CorruptionError(
                f"{self.url}: the root metadata (zarr.json) does not match its checksum; {AGAIN}"
            )
        return dict(attributes)

    def __reduce__(self) -> tuple[Any, ...]:
        # The metadata travels along: a worker does not read it again.
        state = {key: value for key, value in self.__dict__.items() if key != "url"}
        return (_restore, (self.url, state))

    def __repr__(self) -> str:
        return f"ZarrDataset({self.url!r})"


def _restore(url: str, state: dict[str, Any]) -> ZarrDataset:
    dataset = object.__new__(ZarrDataset)
    dataset.__dict__.update(state, url=url)
    return dataset


def _partitions(plain: Any) -> tuple[Partition, ...]:
    """The partitions that the root lists; raises `InputError` for what is no such list."""
    if type(plain) is not list or not plain:
        raise InputError(f"partitions is {reprlib.repr(plain)}; needed is a list of at least one")
    partitions = tuple(map(_partition, plain))
    if len({partition.name for partition in partitions}) < len(partitions):
        raise InputError("two partitions have the same name")
    return partitions


def _partition(plain: Any) -> Partition:
    if type(plain) is not dict:
        raise InputError(f"a partition is {reprlib.repr(plain)}, no object")
    name, checksum = check_partition_name(plain.get("name")), plain.get("checksum")
    for key in ("n_rows", "nnz", "n_local"):
        count = plain.get(key)
        if type(count) is not int or not 0 <= count <= _MAX_ENTRIES:
            raise InputError(f"{key} of partition {name} is {reprlib.repr(count)}")
    if type(checksum) is not str:
        raise InputError(f"the checksum of partition {name} is {reprlib.repr(checksum)}")
    return Partition(name, plain["n_rows"], plain["nnz"], plain["n_local"], checksum)


def _provenance(plain: Any) -> dict[str, Any]:
    if type(plain) is not dict:
        raise InputError(f"provenance is {reprlib.repr(plain)}, no object")
    check_plain(plain, "provenance")
    return plain
