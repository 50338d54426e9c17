"""Reading a dataset that is stored as a Zarr group of partitions.

The format, and functions that write it, are in `dadagrad.data.zarr_writer`. Reading a partition
takes one small object, its ``zarr.json``, and then all chunks of the arrays that matter. Every
byte is checked: the root vouches for each ``zarr.json``, and that for each chunk.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from dadagrad.data.arena import Arena
from dadagrad.data.dataset import Dataset, Partition, Schema
from dadagrad.data.rows import Rows
from dadagrad.data.zarr_arrays import MAX_RATIO, ArrayReader, decode_strings
from dadagrad.data.zarr_writer import (
    FORMAT,
    FORMAT_VERSION,
    attributes_checksum,
    check_label_names,
    check_partition_name,
    pointer_type,
    write_partition,
    write_root,
)
from dadagrad.errors import CorruptionError, InputError, StorageError
from dadagrad.storage import MissingKey, Storage, TooLarge

__all__ = ["ZarrDataset", "looks_like_zarr", "write_partition", "write_root"]

_MAX_ROOT = 1 << 30  # bytes: a million partitions take a fifth of it
_MAX_DOCUMENT = 1 << 26
_MAX_ENTRIES = 2**31 - 1
_AGAIN = "make the dataset again with `dadagrad ingest`, or copy it again"


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
            self.schema = Schema.from_json(attributes["schema"])
            self.partitions = tuple(_partition(plain) for plain in attributes["partitions"])
            self.provenance: dict[str, Any] = dict(attributes["provenance"])
            self._label_names = [column.name for column in self.schema.label_columns]
            check_label_names(self._label_names)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptionError(
                f"{self.url}: the root metadata (zarr.json) is malformed: {error!r}; {_AGAIN}"
            ) from None

    def read(self, partition: int) -> Rows:
        """Read and check partition number `partition`.

        Raises `CorruptionError`, naming dataset, partition and array, if any byte differs from
        what was written.
        """
        return self.read_into(partition, Arena(), Arena())

    def read_into(self, partition: int, arena: Arena, scratch: Arena) -> Rows:
        """As `read`; all arrays are views of `arena`, and `scratch` holds what is compressed."""
        source = _PartitionReader(
            self._storage, self.url, self.partitions[partition], arena, scratch
        )
        rows = source.rows(self._label_names, queried=self.schema.queried)
        self._check_vocabulary(source, rows.vocabulary)
        return rows

    def read_vocabulary(self, partition: int) -> NDArray[np.int64]:
        """The (n_local,) int64 feature ids that occur in the partition, increasing."""
        source = _PartitionReader(self._storage, self.url, self.partitions[partition])
        vocabulary = source.arrays({"var/feature": (source.partition.n_local, "int64")})
        self._check_vocabulary(source, vocabulary["var/feature"])
        return vocabulary["var/feature"]

    def names(self, ids: NDArray[np.int64]) -> dict[int, str]:
        """The names of those `ids` that have one."""
        wanted = np.asarray(ids, np.int64)
        if (wanted[1:] <= wanted[:-1]).any():
            wanted = np.unique(wanted)
        found: dict[int, str] = {}
        for partition in self.partitions:
            if not len(wanted):
                break
            source = _PartitionReader(self._storage, self.url, partition)
            names = source.strings("var/name", partition.n_local)
            if names is None and partition.n_local:
                break  # Names are kept for all features or for none.
            if names is None:
                continue
            vocabulary = source.arrays({"var/feature": (partition.n_local, "int64")})["var/feature"]
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
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise CorruptionError(
                f"{self.url}: the root metadata (zarr.json) is not that of a Zarr group; {_AGAIN}"
            ) from None
        if kind != FORMAT:
            raise InputError(
                f"{self.url} is a Zarr group of type {kind!r}, not {FORMAT!r}; convert it with "
                "`dadagrad ingest`"
            )
        if version != str(FORMAT_VERSION):
            raise InputError(
                f"{self.url} has format version {version!r}; this dadagrad reads version "
                f"{FORMAT_VERSION}; use the dadagrad that wrote it, or ingest the data again"
            )
        if attributes.get("checksum") != attributes_checksum(attributes):
            raise CorruptionError(
                f"{self.url}: the root metadata (zarr.json) does not match its checksum; {_AGAIN}"
            )
        return dict(attributes)

    def _check_vocabulary(self, source: _PartitionReader, vocabulary: NDArray[np.int64]) -> None:
        if len(vocabulary) and (
            vocabulary[0] < 0
            or vocabulary[-1] >= self.schema.n_features
            or (vocabulary[1:] <= vocabulary[:-1]).any()
        ):
            raise source.corrupt(
                "var/feature",
                f"its ids are not increasing numbers from 0 to {self.schema.n_features - 1}",
            )

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


def _partition(plain: Mapping[str, Any]) -> Partition:
    partition = Partition(
        check_partition_name(plain["name"]),
        plain["n_rows"],
        plain["nnz"],
        plain["n_local"],
        str(plain["checksum"]),
    )
    for count in (partition.n_rows, partition.nnz, partition.n_local):
        if type(count) is not int or not 0 <= count <= _MAX_ENTRIES:
            raise ValueError(f"a count of partition {partition.name} is {count!r}")
    return partition


class _PartitionReader:
    """One partition while it is read; its metadata is checked when this is made."""

    def __init__(
        self,
        storage: Storage,
        url: str,
        partition: Partition,
        arena: Arena | None = None,
        scratch: Arena | None = None,
    ) -> None:
        self.partition = partition
        self._arena, self._scratch = arena or Arena(), scratch or Arena()
        self._storage, self._url = storage, url
        try:
            document = storage.get(f"{partition.name}/zarr.json", max_bytes=_MAX_DOCUMENT)
        except MissingKey:
            raise self.corrupt("zarr.json", "it is missing") from None
        if hashlib.sha256(document).hexdigest() != partition.checksum:
            raise self.corrupt("zarr.json", "it does not match the checksum in the root metadata")
        try:
            plain = json.loads(document)
            self._metadata: dict[str, Any] = plain["consolidated_metadata"]["metadata"]
            self._seals: dict[str, list[list[int]]] = plain["attributes"]["dadagrad"]["chunks"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self.corrupt("zarr.json", "it is malformed") from None

    def corrupt(self, array: str, what: str) -> CorruptionError:
        """The error that names dataset, partition and array."""
        return CorruptionError(
            f"{self._url}: partition {self.partition.name}, {array}: {what}; {_AGAIN}"
        )

    def rows(self, label_names: list[str], *, queried: bool) -> Rows:
        partition = self.partition
        n_rows, nnz = partition.n_rows, partition.nnz
        wanted = {
            "X/indices": (nnz, "int32"),
            "X/data": (nnz, "float32"),
            "X/indptr": (n_rows + 1, pointer_type(nnz)),
            "var/feature": (partition.n_local, "int64"),
            **{f"obs/{name}": (n_rows, "float64") for name in label_names},
        }
        optional = {"obs/weight": (n_rows, "float32"), "obs/row_scale": (n_rows, "float32")}
        wanted |= {path: kind for path, kind in optional.items() if path in self._metadata}
        if queried:
            wanted["obs/query"] = (n_rows, "int64")
        arrays = self.arrays(wanted)
        self._check(arrays)
        labels = self._arena.empty("labels", n_rows * len(label_names), np.float64)
        labels = labels.reshape(n_rows, len(label_names))
        for number, name in enumerate(label_names):
            labels[:, number] = arrays[f"obs/{name}"]
        indptr = self._arena.empty("indptr", n_rows + 1, np.int64)
        indptr[:] = arrays["X/indptr"]
        return Rows(
            arrays["var/feature"],
            indptr,
            arrays["X/indices"],
            arrays.get("X/data"),
            labels,
            arrays.get("obs/weight"),
            arrays.get("obs/row_scale"),
            arrays.get("obs/query"),
        )

    def arrays(self, wanted: Mapping[str, tuple[int, str]]) -> dict[str, NDArray[Any]]:
        """The arrays of those paths, lengths and types; ``X/data`` only if it is stored."""
        readers: dict[str, ArrayReader] = {}
        chunks: dict[str, NDArray[np.uint8]] = {}
        for path, (length, dtype) in wanted.items():
            reader = self._reader(path, length, dtype)
            if not reader.is_fill:
                readers[path] = reader
            elif path != "X/data" or reader.fill_value != 1:
                raise self.corrupt(path, "its chunks are missing")
        for path, reader in readers.items():
            for number, buffer in enumerate(reader.take(path, self._arena, self._scratch)):
                chunks[f"{path}/c/{number}"] = buffer
        self._fill(chunks)
        arrays = {}
        for path, reader in readers.items():
            try:
                arrays[path] = reader.decode()
            except CorruptionError as error:
                raise self.corrupt(path, str(error)) from None
        return arrays

    def strings(self, path: str, length: int) -> NDArray[np.object_] | None:
        """The strings of the array `path`, or None if there is none."""
        if path not in self._metadata or not length:
            return None
        try:
            ((size, _),) = self._seals[path]
            if length * 4 > size * MAX_RATIO * 300:
                raise CorruptionError(f"{size} bytes cannot hold {length} strings")
            chunk = np.empty(size, np.uint8)
            self._fill({f"{path}/c/0": chunk})
            return decode_strings(chunk, length)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise self.corrupt(path, repr(error)) from None

    def _reader(self, path: str, length: int, dtype: str) -> ArrayReader:
        try:
            return ArrayReader(self._metadata[path], self._seals[path], length, dtype)
        except CorruptionError as error:
            raise self.corrupt(path, str(error)) from None
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise self.corrupt(path, f"its metadata is missing or malformed ({error!r})") from None

    def _fill(self, chunks: Mapping[str, NDArray[np.uint8]]) -> None:
        """Read chunks, each compared with the size and checksum that were written."""
        name = self.partition.name
        try:
            sizes = self._storage.read_many(
                {f"{name}/{key}": chunk.data for key, chunk in chunks.items()}
            )
        except MissingKey:
            missing = [key for key in chunks if not self._storage.exists(f"{name}/{key}")]
            raise self.corrupt((missing or list(chunks))[0], "the chunk is missing") from None
        except TooLarge as error:
            raise self.corrupt("a chunk", str(error)) from None
        for (key, chunk), size in zip(chunks.items(), sizes, strict=True):
            path, _, number = key.rpartition("/c/")
            if size != len(chunk):
                raise self.corrupt(path, f"chunk {number} has {size} bytes, not {len(chunk)}")
            if google_crc32c.value(chunk) != self._seals[path][int(number)][1]:
                raise self.corrupt(path, f"chunk {number} does not match its checksum")

    def _check(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """What the kernels rely on: without it they would read outside their arrays."""
        indptr, indices = arrays["X/indptr"], arrays["X/indices"]
        if indptr[0] != 0 or indptr[-1] != self.partition.nnz or (indptr[1:] < indptr[:-1]).any():
            raise self.corrupt("X/indptr", f"it does not rise from 0 to {self.partition.nnz}")
        # Seen as unsigned, a negative position is too large as well: one pass finds both.
        if len(indices) and indices.view(np.uint32).max() >= self.partition.n_local:
            raise self.corrupt(
                "X/indices", f"positions must be below {self.partition.n_local}, the vocabulary"
            )
