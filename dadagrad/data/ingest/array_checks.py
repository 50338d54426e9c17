"""Checks of array files before a library reads them.

Nothing is unpickled, and no memory is allocated because of a size in a header alone.
"""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from dadagrad.errors import DadagradError, InputError, OutOfMemory
from dadagrad.storage.memory import check_free_memory, free_memory

MAX_RATIO = 1000
"""Largest ratio of the bytes that a file declares to its size."""

_ALWAYS_ALLOWED = 64 << 20  # bytes that a file may declare whatever its size
_MAX_REASON = 500
_MAX_HEADER = 1024
_MAX_ARRAYS = 1 << 17
_MAX_DEPTH = 4
_UNINFLATED = 1 << 30
_MAX_CHECKSUM = 16
_PIECE = 1 << 20  # bytes that are inflated at once
_MAX_INFLATION = 1032  # of deflate, https://zlib.net/zlib_tech.html


@contextmanager
def readable(path: str, kind: str) -> Iterator[None]:
    """Turn every error of a library about a damaged file into an `InputError` that names it."""
    try:
        yield
    except (DadagradError, ImportError):
        raise
    except MemoryError as error:
        raise OutOfMemory(f"there is not enough memory to read {path}; free some") from error
    except Exception as error:
        reason = " ".join(str(error).split())[:_MAX_REASON] or type(error).__name__
        raise InputError(
            f"cannot read {path} as {kind}: {reason}; write or copy it again"
        ) from error


def refuse_too_large(name: str, declared: int, stored: int) -> None:
    """Raise `InputError` if `declared` bytes cannot come out of `stored` ones."""
    if declared > _ALWAYS_ALLOWED + MAX_RATIO * stored:
        raise InputError(
            f"{name} declares {declared} bytes, which cannot come out of the {stored} that are "
            "there; the file is damaged or was made to do harm: get another copy"
        )


def check_npz(path: str, file: IO[bytes]) -> None:
    """Raise `InputError` unless the members are plain arrays, of a size that `file` can hold."""
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if len({member.filename for member in members}) < len(members):
            raise InputError(f"{path} has two arrays of one name; save it again")
        declared = sum(member.file_size for member in members)
        refuse_too_large(path, declared, os.fstat(file.fileno()).st_size)
        check_free_memory(declared, path)
        for member in members:
            with archive.open(member) as stream:
                check_npy(f"{path}, {member.filename}", stream, member.file_size)


def check_npy(place: str, stream: IO[bytes], size: int) -> None:
    """Raise `InputError` unless `stream`, of `size` bytes, is one array of numbers or texts."""
    with readable(place, "npy"):
        major, _ = np.lib.format.read_magic(stream)
        read: Any = getattr(np.lib.format, f"read_array_header_{min(major, 2)}_0")
        shape, _, dtype = read(stream, max_header_size=_MAX_HEADER)
    if dtype.hasobject or dtype.fields or dtype.subdtype:
        raise InputError(f"{place} holds {dtype}; save plain arrays of numbers or texts")
    declared = stream.tell() + math.prod(shape) * dtype.itemsize
    if declared != size:
        raise InputError(
            f"{place} declares {declared} bytes and has {size}; write or copy the file again"
        )


def check_stored(
    path: str, group: Any, member: str, stored: int, depth: int = 0, *, sliced: bool = False
) -> int:
    """Check a member of a group of an HDF5 file, an array or a group of arrays; count the arrays.

    Raises `InputError` for arrays too large to come out of `stored` bytes, or in other files, and
    `OutOfMemory` for those too large for the memory. Of arrays read in slices, a chunk must fit.
    """
    import h5py  # type: ignore[import-untyped]

    if isinstance(group.get(member, getlink=True), h5py.ExternalLink):
        raise InputError(f"{path}, {member} is a link to another file; copy what it points to")
    item = group[member]
    name = f"{path}, {item.name}"
    if hasattr(item, "shape"):
        chunk = item.chunks or ()
        for shape in (item.shape, chunk):
            declared = math.prod(shape) * np.dtype(item.dtype).itemsize
            refuse_too_large(name, declared, stored)
            if shape is chunk or not sliced:
                check_free_memory(declared, name)
        if item.external or item.is_virtual:
            raise InputError(f"{name} lies in another file; write all data into one file")
        if chunk:
            _check_inflated(name, item, math.prod(chunk))
        return 1
    if depth > _MAX_DEPTH:
        raise InputError(f"{name} lies too deep; this is not an AnnData file")
    count = 0
    for inner in item:
        sliced = inner != "indptr" and item.attrs.get("encoding-type") == "csr_matrix"
        count += check_stored(path, item, inner, stored, depth + 1, sliced=sliced)
        if count > _MAX_ARRAYS:
            raise InputError(f"{path} has more than {_MAX_ARRAYS} arrays; give a smaller file")
    return count


def _check_inflated(name: str, item: Any, n_values: int) -> None:
    """Raise `InputError` for a deflated chunk of an HDF5 file with more than `n_values`.

    HDF5 inflates a chunk to its end. Only chunks that could have a gigabyte are inflated here.
    """
    import h5py

    limit = min(free_memory(), _UNINFLATED) // _MAX_INFLATION
    properties = item.id.get_create_plist()
    filters = [properties.get_filter(number)[0] for number in range(properties.get_nfilters())]
    n_deflated = filters.count(h5py.h5z.FILTER_DEFLATE)
    if n_deflated > 1:
        raise InputError(f"{name} is compressed {n_deflated} times; write it again")
    if not n_deflated or item.id.get_storage_size() <= limit:
        return
    declared = n_values * item.id.get_type().get_size()
    allowed = 2 * declared + _MAX_CHECKSUM  # in the file a text takes 16 bytes, not 8
    offsets: list[tuple[int, ...]] = []

    def note(chunk: Any) -> None:
        if chunk.size > limit:
            offsets.append(chunk.chunk_offset)

    item.id.chunk_iter(note)
    for offset in offsets:
        _, data = item.id.read_direct_chunk(offset)
        if _inflated(data, allowed) > allowed:
            raise InputError(
                f"the chunk at {offset} of {name} declares {declared} bytes and has more; the file "
                "is damaged or was made to do harm: get another copy"
            )


def _inflated(data: bytes, allowed: int) -> int:
    """Bytes of deflated data, counted until there are more than `allowed`."""
    inflater, n_bytes = zlib.decompressobj(), 0
    while data and n_bytes <= allowed:
        n_bytes += len(inflater.decompress(data, _PIECE))
        data = inflater.unconsumed_tail
    return n_bytes
