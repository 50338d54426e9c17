"""Reading a dataset that is stored as a Zarr group of partitions.

`dadagrad.data.zarr.writer` describes the format. Reading a partition takes one small object, its
``zarr.json``, and then all chunks of the arrays that matter. The root metadata hold the checksum of
each ``zarr.json``, and that holds the checksum of each chunk.

A checksum proves that bytes are as somebody wrote them, and not that their author meant well:
sizes are checked before memory is taken, and the properties on which kernels rely are checked
before they run. Symbolic links in a folder are followed, as by any program; their content must have
the size and the checksum of a chunk.
"""

from __future__ import annotations

import hashlib
import json
import re
import reprlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from dadagrad.data.buffers import POOL
from dadagrad.data.dataset import MAX_COUNT, Dataset, Partition, Schema, check_plain, need
from dadagrad.data.labels import check_label_names
from dadagrad.data.rows import Rows
from dadagrad.data.zarr.codec import ArrayDecoder, check_strings_size, decode_strings
from dadagrad.data.zarr.writer import FORMAT, READ_VERSIONS, attributes_checksum, pointer_type
from dadagrad.errors import CorruptionError, InputError, MissingKey, OutOfMemory, TooLarge
from dadagrad.storage.memory import check_free_memory
from dadagrad.storage.store import Storage

_ADVICE = "make the dataset again with `dadagrad ingest`, or copy it again"
_PARTITION_NAME = re.compile(r"part-[0-9]{5,9}")
_MAX_ROOT = 1 << 28  # bytes: a million partitions take most of it
_MAX_DOCUMENT = 1 << 24  # bytes: 200,000 chunks take half of it
_MAX_ENTRIES = 2**31 - 1
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)


def looks_like_zarr(storage: Storage) -> bool:
    """True if there is a Zarr group at `storage`, or partitions of a half-written dataset."""
    partition = re.compile(r"part-\d+/")
    return storage.exists("zarr.json") or any(map(partition.match, storage.list_if_possible()))


class ZarrDataset(Dataset):
    """A dataset in the project's own format, at a path or URL that `Storage` accepts.

    `provenance` is the origin of the data, as ingest noted it. Raises `InputError` for a
    half-written dataset or a Zarr group of another kind, `CorruptionError` if the root metadata
    does not match its checksum.
    """

    def __init__(self, url: str) -> None:
        self._storage = Storage(url)
        self.url = self._storage.url
        attributes = self._read_root()
        try:
            self.schema = Schema.from_json(attributes.get("schema"))
            self.partitions = _read_partitions(attributes.get("partitions"))
            provenance: Any = attributes.get("provenance")
            need(type(provenance) is dict, "provenance", provenance, "an object")
            check_plain(provenance, "provenance")
            self.provenance: dict[str, Any] = provenance
            check_label_names(self.schema.label_names)
            for column in self.schema.label_columns:
                counted = column.counts is None or sum(column.counts) == self.n_rows
                name = f"the sum of the counts of label column {column.name!r}"
                need(counted, name, sum(column.counts or ()), f"the number of rows, {self.n_rows}")
        except InputError as error:
            raise self._corrupt(f"is malformed: {error}") from None

    def read(self, partition: int) -> Rows:
        """Read and check a partition; `CorruptionError` names the array of any changed byte."""
        return self._reader(partition).read_rows()

    def names(self, ids: NDArray[np.int64]) -> dict[int, str]:
        unnamed = np.asarray(ids, np.int64)
        names: dict[int, str] = {}
        for number, partition in enumerate(self.partitions):
            if not len(unnamed):
                break
            reader = self._reader(number)
            if not partition.n_local:
                continue
            if not reader.has("var/name"):
                break  # Names are kept for all features or for none.
            strings = reader.read_strings("var/name", partition.n_local)
            expected = {"var/feature": (partition.n_local, "int64")}
            vocabulary = reader.read_numbers(expected)["var/feature"]
            present = np.isin(vocabulary, unnamed)
            pairs = zip(vocabulary[present].tolist(), strings[present].tolist(), strict=True)
            names |= {feature: name for feature, name in pairs if name}
            unnamed = np.setdiff1d(unnamed, np.fromiter(names, np.int64), assume_unique=True)
        return names

    @property
    def has_names(self) -> bool:
        for number, partition in enumerate(self.partitions):
            with suppress(CorruptionError, MissingKey):  # another one tells the same
                if partition.n_local:
                    return self._reader(number).has("var/name")
        return False

    def tags(self, partition: int) -> NDArray[Any] | None:
        reader, n_rows = self._reader(partition), self.partitions[partition].n_rows
        return reader.read_strings("obs/tag", n_rows) if reader.has("obs/tag") else None

    @property
    def files(self) -> list[str]:
        files = self.provenance.get("sources")
        return list(map(str, files)) if type(files) is list else []

    def _lines_of_sources(self) -> list[int]:
        sizes = self.provenance.get("lines")
        sizes = sizes if type(sizes) is list and len(sizes) == len(self.files) else [None]
        if not all(type(size) is int and 0 <= size <= MAX_COUNT for size in sizes):
            raise self._corrupt("has no number of lines of each source")
        return sizes

    @property
    def lines_of_files(self) -> dict[str, int]:
        has_lines = bool(self.partitions) and self._reader(0).has("obs/line")
        return dict(zip(self.files, self._lines_of_sources(), strict=True)) if has_lines else {}

    def lines(self, partition: int) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
        reader, n_rows = self._reader(partition), self.partitions[partition].n_rows
        if not reader.has("obs/line"):
            return None
        lines = reader.read_numbers({"obs/line": (n_rows, "int64")})["obs/line"]
        files, sizes = self.files, self._lines_of_sources()
        begins = np.cumsum([0, *sizes])[: max(len(files), 1)]
        numbers = np.searchsorted(begins, lines, side="right") - 1
        return np.array(files or [""], object)[numbers], lines - begins[numbers] + 1

    def _reader(self, partition: int) -> _PartitionReader:
        return _PartitionReader(self._storage, self.partitions[partition], self.schema)

    def _read_root(self) -> dict[str, Any]:
        """The root attributes of a whole dataset in a known version."""
        try:
            data = self._storage.get("zarr.json", max_bytes=_MAX_ROOT)
        except MissingKey:
            raise InputError(
                f"{self.url} is a half-written dataset: there is no zarr.json, which is written "
                "last; run the ingest again with --overwrite"
            ) from None
        try:
            attributes: dict[str, Any] = json.loads(data)["attributes"]
            kind, version = attributes.get("encoding-type"), attributes.get("encoding-version")
            checksum = attributes_checksum(attributes)
        except _MALFORMED:
            raise self._corrupt("is not that of a Zarr group") from None
        if kind != FORMAT:
            raise InputError(
                f"{self.url} is a Zarr group of type {reprlib.repr(kind)}, not {FORMAT!r}; convert "
                "it with `dadagrad ingest`"
            )
        if version not in READ_VERSIONS:
            raise InputError(
                f"{self.url} has format version {reprlib.repr(version)}; this dadagrad reads "
                f"versions {' and '.join(READ_VERSIONS)}; ingest the data again"
            )
        if attributes.get("checksum") != checksum:
            raise self._corrupt("does not match its checksum")
        return attributes

    def _corrupt(self, problem: str) -> CorruptionError:
        return CorruptionError(f"{self.url}: the root metadata (zarr.json) {problem}; {_ADVICE}")


class _PartitionReader:
    """Reader of one partition; its metadata is read and compared with the root's checksum."""

    def __init__(self, storage: Storage, partition: Partition, schema: Schema) -> None:
        self._storage, self._partition, self._schema = storage, partition, schema
        with self._errors_of("zarr.json"):
            document = storage.get(f"{partition.name}/zarr.json", max_bytes=_MAX_DOCUMENT)
            if hashlib.sha256(document).hexdigest() != partition.checksum:
                raise CorruptionError("it does not match the checksum in the root metadata")
            plain = json.loads(document)
            self._metadata: dict[str, Any] = {**plain["consolidated_metadata"]["metadata"]}
            self._seals: dict[str, Any] = {**plain["attributes"]["dadagrad"]["chunks"]}

    def has(self, path: str) -> bool:
        return path in self._metadata

    def read_rows(self) -> Rows:
        n_rows, nnz, names = self._partition.n_rows, self._partition.nnz, self._schema.label_names
        expected = {
            "X/indices": (nnz, "int32"),
            "X/indptr": (n_rows + 1, pointer_type(nnz)),
            "var/feature": (self._partition.n_local, "int64"),
            **{f"obs/{name}": (n_rows, "float64") for name in names},
        }
        optional = ("obs/weight", "obs/row_scale")
        expected |= {path: (n_rows, "float32") for path in optional if self.has(path)}
        if self._schema.queried:
            expected["obs/query"] = (n_rows, "int64")
        with self._errors_of("X/data"):
            # Values that are all 1 have no chunks.
            if self._seals["X/data"] or self._metadata["X/data"]["fill_value"] != 1:
                expected["X/data"] = (nnz, "float32")
        arrays = self.read_numbers(expected)
        labels = POOL.empty(n_rows * len(names), np.float64)
        labels = labels.reshape(n_rows, len(names))
        for number, name in enumerate(names):
            labels[:, number] = arrays[f"obs/{name}"]
        indptr = POOL.empty(n_rows + 1, np.int64)
        indptr[:] = arrays["X/indptr"]
        paths = ("obs/weight", "obs/row_scale", "obs/query")
        columns = [arrays.get(path) for path in paths]
        vocabulary, indices = arrays["var/feature"], arrays["X/indices"]
        return Rows(vocabulary, indptr, indices, arrays.get("X/data"), labels, *columns)

    def read_strings(self, path: str, length: int) -> NDArray[np.object_]:
        """Texts of an array of this path and length."""
        with self._errors_of(path):
            ((size, _),) = self._seals[path]
            chunk = POOL.empty(check_strings_size(size, length), np.uint8)
        self._read_chunks({f"{path}/c/0": chunk})
        with self._errors_of(path):
            return decode_strings(chunk, length)

    def read_numbers(self, expected: Mapping[str, tuple[int, str]]) -> dict[str, NDArray[Any]]:
        """Checked arrays of these paths, lengths and types."""
        decoders: dict[str, ArrayDecoder] = {}
        for path, (length, dtype) in expected.items():
            with self._errors_of(path):
                metadata, seals = self._metadata[path], self._seals[path]
                decoders[path] = ArrayDecoder(metadata, seals, length, dtype)
        needed = sum(decoder.nbytes for decoder in decoders.values()) - POOL.unused_bytes
        check_free_memory(needed, f"{self._storage.url}: partition {self._partition.name}")
        chunks: dict[str, NDArray[np.uint8]] = {}
        for path, decoder in decoders.items():  # no memory is taken before all sizes are known
            with self._errors_of(path):
                buffers = decoder.allocate()
            chunks |= {f"{path}/c/{number}": buffer for number, buffer in enumerate(buffers)}
        self._read_chunks(chunks)
        arrays = {}
        for path, decoder in decoders.items():
            with self._errors_of(path):
                arrays[path] = decoder.decode()
                self._check(path, arrays[path], decoder.is_finite)
        return arrays

    def _read_chunks(self, chunks: Mapping[str, NDArray[np.uint8]]) -> None:
        """Read chunks and compare each with its size and checksum."""
        folder = self._partition.name
        try:
            sizes = self._storage.read_many(
                {f"{folder}/{key}": chunk.data for key, chunk in chunks.items()}
            )
        except (MissingKey, TooLarge) as error:
            raise self._corrupt("a chunk", f"it is missing or too large: {error}") from None
        for (key, chunk), size in zip(chunks.items(), sizes, strict=True):
            path, _, number = key.rpartition("/c/")
            if size != len(chunk):
                raise self._corrupt(path, f"chunk {number} has {size} bytes, not {len(chunk)}")
            if crc32c(chunk.data) != self._seals[path][int(number)][1]:
                raise self._corrupt(path, f"chunk {number} does not match its checksum")

    def _check(self, path: str, array: NDArray[Any], is_finite: bool) -> None:
        """Check that kernels stay inside their arrays, and that numbers are finite."""
        nnz, n_local = self._partition.nnz, self._partition.n_local
        if path == "X/indptr":
            if array[0] != 0 or array[-1] != nnz or (array[1:] < array[:-1]).any():
                raise CorruptionError(f"it does not rise from 0 to {nnz}")
        elif path == "X/indices":
            # As unsigned numbers, negative positions are too large: one pass finds both.
            if len(array) and array.view(np.uint32).max() >= n_local:
                raise CorruptionError(f"positions must be below {n_local}, the vocabulary")
        elif path == "var/feature":
            most = self._schema.n_features
            if len(array) and (
                array[0] < 0 or array[-1] >= most or (array[1:] <= array[:-1]).any()
            ):
                raise CorruptionError(f"its ids are not increasing numbers below {most}")
        elif path == "obs/line":
            if len(array) and array.min() < 0:
                raise CorruptionError("its lines must be 0 or above")
        elif not is_finite:
            valid, needed = np.isfinite(array), "finite"
            if path == "obs/weight":
                valid, needed = valid & (array >= 0), "finite and not negative"
            if not valid.all():
                entry = int(valid.argmin())
                raise CorruptionError(f"number {entry} is {array[entry]}; it must be {needed}")

    @contextmanager
    def _errors_of(self, array: str) -> Iterator[None]:
        """Name dataset, partition and array in the errors of the block."""
        try:
            yield
        except InputError:
            raise
        except MissingKey:
            raise self._corrupt(array, "it is missing") from None
        except (CorruptionError, TooLarge) as error:
            raise self._corrupt(array, str(error)) from None
        except MemoryError:
            raise OutOfMemory(
                f"{self._place(array)}: there is not enough memory to read it; free some or ingest "
                "the data again with smaller partitions"
            ) from None
        except _MALFORMED:
            raise self._corrupt(array, "its metadata is missing or malformed") from None

    def _corrupt(self, array: str, problem: str) -> CorruptionError:
        """The error that names dataset, partition and array."""
        return CorruptionError(f"{self._place(array)}: {problem}; {_ADVICE}")

    def _place(self, array: str) -> str:
        return f"{self._storage.url}: partition {self._partition.name}, {array}"


def _read_partitions(plain: Any) -> tuple[Partition, ...]:
    """The partitions in the root's list; raises `InputError` if it is not such a list."""
    need(type(plain) is list and plain != [], "partitions", plain, "a list of at least one")
    partitions = []
    for item in plain:
        need(type(item) is dict, "a partition", item, "an object")
        name, checksum = item.get("name"), item.get("checksum")
        if type(name) is not str or not _PARTITION_NAME.fullmatch(name):
            raise InputError(f"{reprlib.repr(name)} is not the name of a partition")
        counts: Any = [item.get(key) for key in ("n_rows", "nnz", "n_local")]
        suit = all(type(count) is int and 0 <= count <= _MAX_ENTRIES for count in counts)
        need(suit, f"n_rows, nnz, n_local of partition {name}", counts, f"0 to {_MAX_ENTRIES}")
        need(type(checksum) is str, f"the checksum of partition {name}", checksum, "a text")
        n_rows, nnz, n_local = counts
        partitions.append(Partition(name, n_rows, nnz, n_local, checksum))
    if len({partition.name for partition in partitions}) < len(partitions):
        raise InputError("two partitions have the same name")
    return tuple(partitions)
