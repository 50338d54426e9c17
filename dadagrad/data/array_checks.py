"""What is checked of array files before a library reads them: nothing is unpickled, and no memory
is taken on the word of a header alone."""

from __future__ import annotations

import json
import math
import os
import re
import zipfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from dadagrad.errors import InputError
from dadagrad.regular_files import check_regular

MAX_RATIO = 1000
"""What claims to be more than this times the size of its file is not to be believed."""
_ALWAYS = 64 << 20  # bytes that a file may claim whatever its own size
_MAX_METADATA = 64 << 20
_MOST_ARRAYS = 1 << 17
_DEEPEST = 4

# Without the headers that need evaluating: records, and objects, which would be unpickled.
_ITEMS = {
    b"descr": re.compile(rb"['\"][<>|=]?(?:b1|\?|[iufcSU][0-9]{1,6})['\"]"),
    b"fortran_order": re.compile(rb"True|False"),
    b"shape": re.compile(rb"\((?:\s*[0-9]{1,19}\s*,?){0,8}\)"),
}
_KEY = re.compile(rb"\s*['\"]([a-z_]+)['\"]\s*:\s*")
_MAX_HEADER = 4096

# Of Zarr's versions 2 and 3. What unpickles, or is added by other packages, is not among them.
_CODECS = {
    *("bytes", "endian", "transpose", "sharding_indexed", "vlen-utf8", "vlen-bytes", "delta"),
    *("crc32c", "crc32", "adler32", "fletcher32", "shuffle"),
    *("blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "lzma"),
}
_OF_CODECS = ("codecs", "index_codecs", "filters", "compressor", "compressors", "serializer")
_METADATA = ("zarr.json", ".zarray", ".zmetadata")


def refuse_too_large(what: str, declared: int, stored: int) -> None:
    """Raise `InputError` if `declared` bytes cannot well come out of `stored` ones."""
    if declared > _ALWAYS + MAX_RATIO * stored:
        raise InputError(
            f"{what} declares {declared} bytes, which cannot come out of the {stored} that are "
            "there; the file is damaged or was made to do harm: get another copy"
        )


def check_npz(path: str, file: IO[bytes]) -> None:
    """Raise `InputError` for members that are no plain arrays, or too large to be believed."""
    stored = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        names = [member.filename for member in members]
        if len(set(names)) < len(names):
            raise InputError(f"{path} holds two arrays of the same name; write the file again")
        refuse_too_large(path, sum(member.file_size for member in members), stored)
        for member in members:
            with archive.open(member) as stream:
                where = f"cannot read {path} as npz: {member.filename}"
                check_npy(where, stream, member.file_size)


def check_npy(where: str, stream: IO[bytes], size: int) -> None:
    """Raise `InputError` unless `stream`, of `size` bytes, is one plain array in npy format."""
    head = stream.read(12)
    wide = head[6:7] != b"\1"
    start = 12 if wide else 10
    length = int.from_bytes(head[8:start], "little")
    if head[:6] != b"\x93NUMPY" or length > _MAX_HEADER:
        raise InputError(f"{where} is no array in npy format; save it with numpy.save")
    header = head[start:] + stream.read(length - (12 - start))
    found = _plain_header(header)
    if found is None:
        raise InputError(
            f"{where} holds objects or records, or its header is damaged: {header[:60]!r}; save "
            "plain arrays of numbers or texts"
        )
    shape = [int(number) for number in re.findall(rb"[0-9]+", found[b"shape"])]
    declared = start + length + math.prod(shape) * np.dtype(found[b"descr"][1:-1].decode()).itemsize
    if declared != size:
        raise InputError(
            f"{where} declares {declared} bytes and has {size}; write or copy the file again"
        )


def _plain_header(header: bytes) -> dict[bytes, bytes] | None:
    """The items of the header of a plain array; None for any other."""
    text = header.strip()
    if not (text.startswith(b"{") and text.endswith(b"}")):
        return None
    found: dict[bytes, bytes] = {}
    at, end = 1, len(text) - 1
    while text[at:end].strip():
        key = _KEY.match(text, at, end)
        item = _ITEMS[key[1]].match(text, key.end(), end) if key and key[1] in _ITEMS else None
        if key is None or item is None or key[1] in found:
            return None
        found[key[1]] = item[0]
        rest = text[item.end() : end].lstrip()
        if rest and not rest.startswith(b","):
            return None
        at = end - len(rest) + 1 if rest else end
    return found if len(found) == len(_ITEMS) else None


def guarded_zarr(path: str) -> Any:
    """The Zarr group in the folder `path`, whose metadata is checked as it is read.

    Raises `InputError` where it names a codec that could run code, or is not known to be harmless.
    """
    import zarr
    from zarr.storage import LocalStore, WrapperStore

    class Guarded(WrapperStore[Any]):
        async def get(self, key: str, *arguments: Any, **options: Any) -> Any:
            value = await super().get(key, *arguments, **options)
            if value is not None and key.rpartition("/")[2] in _METADATA:
                _check_codecs(value.to_bytes(), f"{path}, {key}")
            return value

    return zarr.open_group(Guarded(LocalStore(path, read_only=True)), mode="r")


def _check_codecs(document: bytes, where: str) -> None:
    if len(document) > _MAX_METADATA:
        raise InputError(f"{where} has {len(document)} bytes; no metadata is that large")
    try:
        for codec in _codecs(json.loads(document), named=False):
            if codec.removeprefix("numcodecs.") not in _CODECS:
                raise InputError(
                    f"{where} names the codec {codec[:40]!r}, which is not known to be harmless; "
                    f"write the data again with one of {', '.join(sorted(_CODECS))}"
                )
    except RecursionError:
        raise InputError(f"{where} is nested too deep") from None


def _codecs(plain: Any, *, named: bool) -> Iterator[str]:
    """The names of all codecs in a document; `named` where `plain` is one or a list of them."""
    if isinstance(plain, list):
        for item in plain:
            yield from _codecs(item, named=named)
    elif isinstance(plain, dict):
        if named:
            yield str(plain.get("id", plain.get("name")))
        # What users noted of a node is no metadata; there is such a thing where a node is.
        is_node = type(plain.get("zarr_format")) is int
        for key, value in plain.items():
            if not (is_node and key == "attributes") and not key.endswith(".zattrs"):
                yield from _codecs(value, named=key in _OF_CODECS)
    elif named and plain is not None:
        yield str(plain)


def stored_bytes(path: str) -> int:
    """The size of a file, or of all files in a folder.

    Raises `InputError` for what is no regular file, nor a link to one.
    """
    found = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    files = found if os.path.isdir(path) else [path]
    for file in files:
        if os.path.exists(file):
            check_regular(file, os.stat(file).st_mode)
    return sum(os.lstat(file).st_size for file in files)


def check_here(path: str, group: Any, name: str, stored: int) -> None:
    """Check an array, or a group and all in it, of an HDF5 file or a Zarr store.

    Raises `InputError` for arrays too large to come out of `stored` bytes, and for what lies in
    other files.
    """
    _refuse_link(path, group, name)
    _check_stored(path, group[name], stored, 0)


def _check_stored(path: str, item: Any, stored: int, depth: int) -> int:
    """As `check_here`; returns the number of arrays."""
    if hasattr(item, "shape"):
        name = f"{path}, {item.name}"
        width = np.dtype(item.dtype).itemsize
        refuse_too_large(name, math.prod(item.shape) * width, stored)
        chunk = item.chunks if isinstance(item.chunks, tuple) else ()
        refuse_too_large(name, math.prod(chunk) * width, stored)
        if getattr(item, "external", None) or getattr(item, "is_virtual", False):
            raise InputError(f"{name} lies in another file; write all data into one file")
        return 1
    if depth > _DEEPEST:
        raise InputError(f"{path}, {item.name} lies too deep; this is no AnnData file")
    count = 0
    for name in item:
        _refuse_link(path, item, name)
        count += _check_stored(path, item[name], stored, depth + 1)
        if count > _MOST_ARRAYS:
            raise InputError(f"{path} has more than {_MOST_ARRAYS} arrays; give a smaller file")
    return count


def _refuse_link(path: str, group: Any, name: str) -> None:
    """An HDF5 file can hold links to other files; nothing outside `path` is read."""
    import h5py  # type: ignore[import-untyped]

    if isinstance(group, h5py.Group) and isinstance(
        group.get(name, getlink=True), h5py.ExternalLink
    ):
        raise InputError(f"{path}, {name} is a link to another file; copy what it points to")
