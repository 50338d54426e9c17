"""Reading one partition of a Zarr dataset: its metadata, and then all chunks that matter.

Nothing here is taken on trust. A checksum says that the bytes are those that somebody wrote, not
that whoever wrote them meant well: so sizes are checked before memory is taken for them, and what
the kernels rely on is checked before they run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from dadagrad.data.arena import Arena
from dadagrad.data.dataset import Partition
from dadagrad.data.rows import Rows
from dadagrad.data.zarr_arrays import ArrayReader
from dadagrad.data.zarr_strings import decode_strings, most_bytes
from dadagrad.data.zarr_writer import pointer_type
from dadagrad.errors import CorruptionError
from dadagrad.storage import MissingKey, Storage, TooLarge

AGAIN = "make the dataset again with `dadagrad ingest`, or copy it again"
_MAX_DOCUMENT = 1 << 24  # bytes: 200,000 chunks take half of it


class PartitionReader:
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
        except TooLarge as error:
            raise self.corrupt("zarr.json", str(error)) from None
        if hashlib.sha256(document).hexdigest() != partition.checksum:
            raise self.corrupt("zarr.json", "it does not match the checksum in the root metadata")
        try:
            plain = json.loads(document)
            metadata = plain["consolidated_metadata"]["metadata"]
            seals = plain["attributes"]["dadagrad"]["chunks"]
        except (ValueError, KeyError, TypeError, RecursionError):
            metadata = seals = None
        if type(metadata) is not dict or type(seals) is not dict:
            raise self.corrupt("zarr.json", "it is malformed")
        self._metadata: dict[str, Any] = metadata
        self._seals: dict[str, Any] = seals

    def __contains__(self, path: str) -> bool:
        return path in self._metadata

    def corrupt(self, array: str, what: str) -> CorruptionError:
        """The error that names dataset, partition and array."""
        return CorruptionError(
            f"{self._url}: partition {self.partition.name}, {array}: {what}; {AGAIN}"
        )

    def rows(self, label_names: list[str], *, queried: bool, n_features: int) -> Rows:
        """All rows; the arrays are views of the arena."""
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
        wanted |= {path: kind for path, kind in optional.items() if path in self}
        if queried:
            wanted["obs/query"] = (n_rows, "int64")
        arrays = self.arrays(wanted)
        self._check(arrays)
        self._check_vocabulary(arrays["var/feature"], n_features)
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

    def vocabulary(self, n_features: int) -> NDArray[np.int64]:
        """The (n_local,) int64 feature ids that occur."""
        path = "var/feature"
        vocabulary: NDArray[np.int64] = self.arrays({path: (self.partition.n_local, "int64")})[path]
        self._check_vocabulary(vocabulary, n_features)
        return vocabulary

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
            try:
                buffers = reader.take(path, self._arena, self._scratch)
            except MemoryError:
                what = f"it declares {reader.n_bytes} bytes, more than there is memory for"
                raise self.corrupt(path, what) from None
            for number, buffer in enumerate(buffers):
                chunks[f"{path}/c/{number}"] = buffer
        self._fill(chunks)
        arrays = {}
        for path, reader in readers.items():
            try:
                arrays[path] = reader.decode()
            except CorruptionError as error:
                raise self.corrupt(path, str(error)) from None
        return arrays

    def strings(self, path: str, length: int) -> NDArray[np.object_]:
        """The strings of the array `path`, where `length` > 0 of them are known to be needed."""
        try:
            ((size, _),) = self._seals[path]
        except (KeyError, TypeError, ValueError):
            size = None
        if type(size) is not int or not 0 < size <= most_bytes(length):
            raise self.corrupt(path, "its metadata is missing or malformed")
        try:
            chunk = self._scratch.empty(path, size, np.uint8)
        except MemoryError:
            what = f"it declares {size} bytes, more than there is memory for"
            raise self.corrupt(path, what) from None
        self._fill({f"{path}/c/0": chunk})
        try:
            return decode_strings(chunk, length)
        except CorruptionError as error:
            raise self.corrupt(path, str(error)) from None

    def _reader(self, path: str, length: int, dtype: str) -> ArrayReader:
        try:
            return ArrayReader(self._metadata[path], self._seals[path], length, dtype)
        except CorruptionError as error:
            raise self.corrupt(path, str(error)) from None
        except (KeyError, TypeError, ValueError, IndexError):
            raise self.corrupt(path, "its metadata is missing or malformed") from None

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
        for path, array in arrays.items():
            if array.dtype.kind == "f":
                self._check_finite(path, array)
        weights = arrays.get("obs/weight")
        if weights is not None and len(weights) and weights.min() < 0:
            row = int(weights.argmin())
            raise self.corrupt(
                "obs/weight", f"row {row} is {weights[row]}; no weight may be negative"
            )

    def _check_finite(self, path: str, array: NDArray[np.floating[Any]]) -> None:
        finite = np.isfinite(array)
        if not finite.all():
            wrong = np.flatnonzero(~finite)
            place = f"{'entry' if path == 'X/data' else 'row'} {wrong[0]}"
            raise self.corrupt(path, f"{place} is {array[wrong[0]]}; it must be finite")

    def _check_vocabulary(self, vocabulary: NDArray[np.int64], n_features: int) -> None:
        if len(vocabulary) and (
            vocabulary[0] < 0
            or vocabulary[-1] >= n_features
            or (vocabulary[1:] <= vocabulary[:-1]).any()
        ):
            raise self.corrupt(
                "var/feature", f"its ids are not increasing numbers from 0 to {n_features - 1}"
            )
