"""Arrays as compressed, checksummed objects.

Models and checkpoints store their arrays first, in parts under new names, and then one sealed
document that lists them (see `dadagrad.storage.documents`). A part is trusted only with the size
and sha256 that the document names, and its sizes are checked before memory is taken.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import zstandard
from numpy.typing import NDArray

from dadagrad.errors import (
    CorruptionError,
    InputError,
    MissingKey,
    OutOfMemory,
    StorageError,
    TooLarge,
    lacks_memory,
)
from dadagrad.storage.documents import field, fields
from dadagrad.storage.store import Storage

MAX_PART_BYTES = 64 * 2**20
"""Maximum of raw bytes of a part: saving and loading need as much memory besides the array."""

# Measured on 64 MiB of float32 pairs (sum and squares of gradients), 2, 15 and 60 % of them
# non-zero: zstd level 1 compresses 39, 5.9 and 1.7 times at 3.2, 1.0 and 0.5 GB/s on one thread.
# Blosc's best (byte shuffle, zstd): 24, 4.2 and 1.5 times at 0.9, 0.4 and 0.3 GB/s, because the
# shuffle splits the runs of zeros. zstd level 3 is slower and not smaller.
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
    """An array whose bytes, in C order, are those of its `parts`, one after the other."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    parts: tuple[Part, ...]


WriteShards: TypeAlias = Callable[[str, str], Sequence[ArrayRecord]]
"""Has other processes write arrays into a folder of a store, given its URL and the folder."""

_PROBE = "probe"


@contextmanager
def shared_folder(storage: Storage, folder: str) -> Iterator[None]:
    """Let other processes write to a new `folder` in the block, by `shared_storage`."""
    storage.put(f"{folder}/{_PROBE}", b"dadagrad")
    yield
    storage.delete(f"{folder}/{_PROBE}")


def shared_storage(url: str, folder: str) -> Storage:
    """The store at `url`, where another process shares a `folder`.

    Raises `StorageError` if this process sees another store at the URL, or the folder is gone.
    """
    storage = Storage(url)
    if not storage.exists(f"{folder}/{_PROBE}"):
        raise StorageError(
            f"{url} is another folder on this machine; choose one in object storage, or one that "
            "this machine and all workers share"
        )
    return storage


_PART_FIELDS = {"key": str, "sha256": str, "bytes": int, "raw_bytes": int}


def read_records(document: Mapping[str, Any], place: str) -> tuple[ArrayRecord, ...]:
    """Read the ``arrays`` of a document, which `asdict` made; `CorruptionError` names `place`."""
    return tuple(_read_record(plain, place) for plain in field(document, "arrays", list, place))


def _read_record(plain: object, place: str) -> ArrayRecord:
    name, dtype = field(plain, "name", str, place), field(plain, "dtype", str, place)
    place = f"{place}: array {name!r}"
    shape = field(plain, "shape", list, place)
    parts = tuple(_read_part(part, place) for part in field(plain, "parts", list, place))
    if not all(type(size) is int and 0 <= size < 2**62 for size in shape) or len(shape) > 32:
        raise CorruptionError(f"{place} has the shape {str(shape)[:80]}")
    try:
        itemsize = np.dtype(dtype if _DTYPE.fullmatch(dtype) else "no number").itemsize
    except TypeError:
        raise CorruptionError(
            f"{place} has the dtype {dtype[:40]!r}; only numbers are stored"
        ) from None
    declared = math.prod(shape) * itemsize
    if sum(part.raw_bytes for part in parts) != declared:
        raise CorruptionError(f"{place}: its parts do not add up to {declared} bytes")
    return ArrayRecord(name, dtype, tuple(shape), parts)


def _read_part(plain: object, place: str) -> Part:
    part = Part(**fields(plain, _PART_FIELDS, place))
    if not _SAFE_KEY.fullmatch(part.key):
        raise CorruptionError(f"{place} names the part {part.key[:80]!r}, which is not a safe key")
    fits = 0 < part.raw_bytes <= MAX_PART_BYTES and 0 < part.bytes <= 2 * MAX_PART_BYTES
    if not fits or part.raw_bytes > part.bytes * _MAX_RATIO:
        raise CorruptionError(
            f"{place}: part {part.key} declares {part.raw_bytes} bytes stored as {part.bytes}; "
            f"a part has 1 to {MAX_PART_BYTES}, at most {_MAX_RATIO} times as many as are stored"
        )
    return part


def check_arrays(arrays: Mapping[str, AnyArray]) -> None:
    """Raise `InputError` for anything but NumPy arrays of numbers."""
    for name, array in arrays.items():
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        if not isinstance(kind, np.dtype) or not _DTYPE.fullmatch(kind.str):
            raise InputError(f"array {name!r} is {kind}; only NumPy arrays of numbers are stored")


def write_arrays(
    storage: Storage, folder: str, arrays: Mapping[str, AnyArray]
) -> tuple[ArrayRecord, ...]:
    """Write `arrays` under a new `folder`, flush them to disk, and return their records."""
    check_arrays(arrays)
    # The checksum of the frame covers the raw bytes, and so also errors of the memory.
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    records = []
    for number, (name, array) in enumerate(arrays.items()):
        parts = []
        whole = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        for piece, start in enumerate(range(0, len(whole), MAX_PART_BYTES)):
            raw = whole[start : start + MAX_PART_BYTES]
            data = compressor.compress(raw)
            key = f"{folder}/{number:03d}-{piece:05d}.zst"
            storage.put(key, data)
            parts.append(Part(key, hashlib.sha256(data).hexdigest(), len(data), len(raw)))
        records.append(ArrayRecord(name, array.dtype.str, array.shape, tuple(parts)))
    sync(storage, [part.key for record in records for part in record.parts])
    return tuple(records)


def read_arrays(
    storage: Storage, records: tuple[ArrayRecord, ...], place: str
) -> dict[str, AnyArray]:
    """Read all arrays back, bit for bit, checking every part.

    Raises `CorruptionError` naming `place`, the array and the part for anything that is not as
    the records say; `StorageError` where the store itself fails.
    """
    keys = [part.key for record in records for part in record.parts]
    if len(set(keys)) != len(keys) or len({record.name for record in records}) != len(records):
        raise CorruptionError(f"{place}: an array or a part is named twice")
    arrays: dict[str, AnyArray] = {}
    jobs: list[tuple[Part, NDArray[np.uint8]]] = []
    for record in records:
        # Pages take no memory until a part that was checked is written to them.
        try:
            array = arrays[record.name] = np.empty(record.shape, record.dtype)
        except MemoryError:
            raise OutOfMemory(
                f"{place}: there is not enough memory for array {record.name!r} of shape "
                f"{record.shape}; free some"
            ) from None
        except ValueError:
            raise CorruptionError(
                f"{place}: array {record.name!r} has the impossible shape {record.shape}"
            ) from None
        start, raw = 0, array.reshape(-1).view(np.uint8)
        for part in record.parts:
            jobs.append((part, raw[start : start + part.raw_bytes]))
            start += part.raw_bytes
    with ThreadPoolExecutor(_READERS) as pool:
        # The first error cancels the parts that have not begun.
        list(pool.map(lambda job: _fill(storage, job[0], job[1], place), jobs))
    return arrays


def check_parts(storage: Storage, records: Sequence[ArrayRecord], place: str) -> None:
    """Check every part of arrays without keeping any; raises as `read_arrays`."""
    parts = [part for record in records for part in record.parts]
    with ThreadPoolExecutor(_READERS) as pool:
        list(pool.map(lambda part: _get(storage, part, place), parts))


def _fill(storage: Storage, part: Part, target: NDArray[np.uint8], place: str) -> None:
    """Read one part, check it, and decompress it into `target`."""
    data = _get(storage, part, place)
    place = f"{place}: part {part.key}"
    try:
        content = zstandard.frame_content_size(data)
        if content != part.raw_bytes:
            raise CorruptionError(
                f"{place} holds {content} bytes where {part.raw_bytes} were declared"
            )
        raw = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        kind = OutOfMemory if lacks_memory(error) else CorruptionError
        raise kind(f"{place} cannot be decompressed: {error}") from None
    target[:] = np.frombuffer(raw, np.uint8)


def _get(storage: Storage, part: Part, place: str) -> bytes:
    place = f"{place}: part {part.key}"
    try:
        data = storage.get(part.key, max_bytes=part.bytes)
    except (MissingKey, TooLarge) as error:
        raise CorruptionError(f"{place} is missing or too large: {error}") from None
    if hashlib.sha256(data).hexdigest() != part.sha256:
        raise CorruptionError(f"{place} is damaged: its bytes have another sha256")
    return data


def sync(storage: Storage, keys: list[str]) -> None:
    """Flush `keys` of a local folder to disk, so that no document outlives its parts."""
    if not storage.is_local:
        return
    paths = [storage.local_path(key) for key in keys]
    folders = {os.path.dirname(path) for path in paths}
    for path in [*paths, *sorted(folders), storage.local_path()]:
        try:
            handle = os.open(path, os.O_RDONLY)
        except OSError:
            continue  # a system that cannot open a folder cannot flush one
        try:
            os.fsync(handle)
        except OSError as error:
            raise StorageError(f"cannot write {path} to disk: {error.strerror}") from None
        finally:
            os.close(handle)
