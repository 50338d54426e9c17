"""Arrays as compressed, checksummed objects.

A model and a checkpoint are both written like this: the arrays first, in parts under names never
used before, then one sealed document (see `dadagrad.documents`) that lists them. Nothing is
trusted that the document does not name with its size and sha256, and no memory is taken on the
word of a number in a file alone.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.documents import field
from dadagrad.errors import CorruptionError, InputError, StorageError

if TYPE_CHECKING:
    from dadagrad.storage import Storage

MAX_PART_BYTES = 64 * 2**20
"""Raw bytes of one part: what saving and loading hold in memory besides the array itself."""

# Measured on 64 MiB of (gradient sum, gradient squares) float32 pairs of which 2, 15 and 60 % are
# not zero: zstd level 1 shrinks them 39, 5.9 and 1.7 times at 3.2, 1.0 and 0.5 GB/s on one
# thread. Blosc's best, zstd after a byte shuffle, reaches 24, 4.2 and 1.5 times at 0.9, 0.4 and
# 0.3 GB/s: shuffling tears the runs of zeros apart. zstd level 3 is slower and no smaller.
_LEVEL = 1
_MAX_RATIO = 2**16  # zstd stores at most 128 KiB in a block of 4 bytes
_READERS = 4
_DTYPE = re.compile(r"[<>|][biufc][0-9]{1,2}")
_SAFE_KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
AnyArray = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Part:
    """One stored object: a zstd frame of `raw_bytes` bytes that takes `bytes` bytes."""

    key: str
    sha256: str
    bytes: int
    raw_bytes: int


@dataclass(frozen=True, slots=True)
class ArrayRecord:
    """Where the bytes of an array, in C order, lie: its `parts`, one after the other."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    parts: tuple[Part, ...]

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON types."""
        return asdict(self) | {
            "shape": list(self.shape),
            "parts": [asdict(part) for part in self.parts],
        }

    @classmethod
    def from_json(cls, plain: object, where: str) -> ArrayRecord:
        """The inverse of `to_json`; raises `CorruptionError` for anything else."""
        name, dtype = field(plain, "name", str, where), field(plain, "dtype", str, where)
        where = f"{where}: array {name!r}"
        shape = field(plain, "shape", list, where)
        parts = tuple(_part_from_json(part, where) for part in field(plain, "parts", list, where))
        if not all(type(size) is int and 0 <= size < 2**62 for size in shape) or len(shape) > 32:
            raise CorruptionError(f"{where} has the shape {str(shape)[:80]}")
        record = cls(name, dtype, tuple(shape), parts)
        declared = math.prod(shape) * record.numpy_dtype(where).itemsize
        if sum(part.raw_bytes for part in parts) != declared:
            raise CorruptionError(f"{where}: its parts do not add up to {declared} bytes")
        return record

    def numpy_dtype(self, where: str) -> np.dtype[Any]:
        """The dtype; raises `CorruptionError` unless it is one of plain numbers."""
        try:
            if _DTYPE.fullmatch(self.dtype):
                return np.dtype(self.dtype)
        except TypeError:
            pass
        raise CorruptionError(f"{where} has the dtype {self.dtype[:40]!r}; only numbers are stored")


def _part_from_json(plain: object, where: str) -> Part:
    part = Part(
        field(plain, "key", str, where),
        field(plain, "sha256", str, where),
        field(plain, "bytes", int, where),
        field(plain, "raw_bytes", int, where),
    )
    if not _SAFE_KEY.fullmatch(part.key):
        raise CorruptionError(f"{where} names the part {part.key[:80]!r}, which is no safe key")
    if not (0 < part.raw_bytes <= MAX_PART_BYTES and 0 < part.bytes <= 2 * MAX_PART_BYTES):
        raise CorruptionError(
            f"{where}: part {part.key} declares {part.raw_bytes} bytes stored as {part.bytes}; "
            f"a part has 1 to {MAX_PART_BYTES}"
        )
    if part.raw_bytes > part.bytes * _MAX_RATIO:
        raise CorruptionError(
            f"{where}: part {part.key} declares {part.raw_bytes} bytes, which cannot come out of "
            f"{part.bytes}"
        )
    return part


def check_arrays(arrays: Mapping[str, AnyArray]) -> None:
    """Raise `InputError` for an array that is not one of numbers."""
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or not _DTYPE.fullmatch(array.dtype.str):
            kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise InputError(f"array {name!r} is {kind}; only NumPy arrays of numbers are stored")


def write_arrays(
    storage: Storage, folder: str, arrays: Mapping[str, AnyArray]
) -> tuple[ArrayRecord, ...]:
    """Write `arrays` under `folder`, which nobody else writes, and say where they are."""
    import zstandard

    check_arrays(arrays)
    # The frame's own checksum covers the raw bytes: wrong memory on the way shows as well.
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    records = []
    for number, (name, array) in enumerate(arrays.items()):
        parts = []
        for piece, raw in enumerate(_raw_pieces(array)):
            data = compressor.compress(raw)
            key = f"{folder}/{number:03d}-{piece:05d}.zst"
            storage.put(key, data)
            parts.append(Part(key, hashlib.sha256(data).hexdigest(), len(data), len(raw)))
        records.append(ArrayRecord(name, array.dtype.str, array.shape, tuple(parts)))
    return tuple(records)


def _raw_pieces(array: AnyArray) -> Iterator[memoryview]:
    """The bytes of `array` in C order, at most `MAX_PART_BYTES` at a time."""
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    raw = array.reshape(-1).view(np.uint8).data
    for start in range(0, len(raw), MAX_PART_BYTES):
        yield raw[start : start + MAX_PART_BYTES]


def read_arrays(
    storage: Storage, records: tuple[ArrayRecord, ...], where: str
) -> dict[str, AnyArray]:
    """Read all arrays back, bit for bit, checking every part.

    Raises `CorruptionError` naming `where`, the array and the part for anything that is not as
    the records say; `StorageError` where the store itself fails.
    """
    keys = [part.key for record in records for part in record.parts]
    if len(set(keys)) != len(keys) or len({record.name for record in records}) != len(records):
        raise CorruptionError(f"{where}: an array or a part is named twice")
    arrays: dict[str, AnyArray] = {}
    with ThreadPoolExecutor(_READERS) as pool:
        jobs = []
        for record in records:
            array = arrays[record.name] = _allocate(record, where)
            raw = array.reshape(-1).view(np.uint8)
            start = 0
            for part in record.parts:
                piece = raw[start : start + part.raw_bytes]
                jobs.append(pool.submit(_fill, storage, part, piece, where))
                start += part.raw_bytes
        try:
            for job in jobs:
                job.result()
        finally:
            pool.shutdown(cancel_futures=True)
    return arrays


def _allocate(record: ArrayRecord, where: str) -> AnyArray:
    # Untouched pages take no memory, and pages are touched only by parts found to be genuine.
    dtype = record.numpy_dtype(where)
    try:
        return np.empty(record.shape, dtype)
    except (MemoryError, ValueError):
        size = math.prod(record.shape) * dtype.itemsize
        raise CorruptionError(
            f"{where}: array {record.name!r} declares {size} bytes, more than there is memory for"
        ) from None


def _fill(storage: Storage, part: Part, target: NDArray[np.uint8], where: str) -> None:
    """Read one part, check it, and decompress it into `target`."""
    import zstandard

    where = f"{where}: part {part.key}"
    data = _read_exactly(storage, part, where)
    if hashlib.sha256(data).hexdigest() != part.sha256:
        raise CorruptionError(f"{where} is damaged: its bytes have another sha256")
    try:
        content = zstandard.frame_content_size(data)
        if content != part.raw_bytes:
            raise CorruptionError(
                f"{where} holds {content} bytes where {part.raw_bytes} were declared"
            )
        raw = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptionError(f"{where} cannot be decompressed: {error}") from None
    target[:] = np.frombuffer(raw, np.uint8)


def _read_exactly(storage: Storage, part: Part, where: str) -> bytes:
    from dadagrad.storage import MissingKey

    try:
        data = storage.get(part.key, max_bytes=part.bytes)
    except MissingKey:
        raise CorruptionError(f"{where} is missing") from None
    except StorageError:
        size = storage.size(part.key)
        if size <= part.bytes:
            raise
        raise CorruptionError(f"{where} has {size} bytes instead of {part.bytes}") from None
    if len(data) != part.bytes:
        raise CorruptionError(f"{where} has {len(data)} bytes instead of {part.bytes}")
    return data


def sync(storage: Storage, keys: list[str]) -> None:
    """Have `keys` of a local folder survive a power cut: a document must not outlive its parts."""
    if not storage.is_local:
        return
    paths = [storage.local_path(key) for key in keys]
    folders = {os.path.dirname(path) for path in paths}
    for path in [*paths, *sorted(folders), storage.local_path()]:
        _sync_path(path)


def _sync_path(path: str) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return  # Where a folder cannot be opened, it cannot be synchronised either.
    try:
        os.fsync(handle)
    except OSError as error:
        raise StorageError(f"cannot write {path} to disk: {error.strerror}") from None
    finally:
        os.close(handle)
