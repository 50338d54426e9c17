"""One-dimensional Zarr v3 arrays as chunks of bytes and the metadata that describes them.

The files are plain Zarr that any Zarr library reads. They are encoded and decoded here so that
every chunk is checked against its checksum and its size before it is decoded, and so that reading
needs no event loop and no copies: one buffer for each array, which is used again, and into which
files are read or blosc decompresses without the interpreter lock.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import blosc, zstd
from numcodecs.vlen import VLenUTF8
from numpy.typing import NDArray

from dadagrad.data.arena import Arena
from dadagrad.errors import CorruptionError

MAX_CHUNK = 1 << 22
"""Elements of the largest chunk."""
MAX_RATIO = 300
"""No codec used here shrinks its input by more: what claims to is not to be believed."""

# Decoding runs beside computing: blosc's own threads, which are shared by the whole process and
# used from the main thread only, would take the cores of the others.
blosc.use_threads = False

_SHUFFLES = {"noshuffle": blosc.NOSHUFFLE, "shuffle": blosc.SHUFFLE, "bitshuffle": blosc.BITSHUFFLE}
_MOST_UNEVEN = 16  # chunks of one array are no smaller than this part of the largest
_WORTH_IT = 0.9  # compressed values must be below this part of the uncompressed


@dataclass(frozen=True, slots=True)
class EncodedArray:
    """The ``zarr.json`` of an array, and its chunks in order."""

    metadata: dict[str, Any]
    chunks: tuple[bytes, ...]

    @property
    def seals(self) -> list[list[int]]:
        """Size and CRC-32C of every chunk."""
        return [[len(chunk), google_crc32c.value(chunk)] for chunk in self.chunks]


def encode(
    array: NDArray[Any], shuffle: str | None = "shuffle", attributes: dict[str, Any] | None = None
) -> EncodedArray:
    """Encode numbers with lz4 after `shuffle` (a key of `_SHUFFLES`), or as they are if None."""
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    n_chunks, length = _grid(len(array))
    codecs: list[dict[str, Any]] = [{"name": "bytes", "configuration": {"endian": "little"}}]
    if shuffle is not None:
        codecs.append({"name": "blosc", "configuration": _blosc(shuffle, array.itemsize)})
    chunks = []
    for number in range(n_chunks):
        piece = array[number * length : (number + 1) * length]
        if len(piece) < length:
            piece = np.concatenate([piece, np.zeros(length - len(piece), array.dtype)])
        chunks.append(piece.tobytes() if shuffle is None else _compress(piece, shuffle))
    metadata = _metadata(len(array), length, str(array.dtype), 0, codecs, attributes)
    return EncodedArray(metadata, tuple(chunks))


def encode_values(values: NDArray[np.float32] | None, nnz: int) -> EncodedArray:
    """Encode the values of the entries; None, which means that all are 1, takes no chunk at all.

    They are compressed only where that pays: reading random digits is faster without.
    """
    if values is None:
        _, length = _grid(nnz)
        codecs = [{"name": "bytes", "configuration": {"endian": "little"}}]
        return EncodedArray(_metadata(nnz, length, "float32", 1.0, codecs, None), ())
    sample = np.ascontiguousarray(values[: 1 << 16])
    sizes = {name: len(_compress(sample, name)) for name in ("noshuffle", "shuffle")}
    best = min(sizes, key=lambda name: sizes[name])
    return encode(values, best if sizes[best] < _WORTH_IT * sample.nbytes else None)


def encode_strings(data: bytes, length: int) -> EncodedArray:
    """Encode strings that `VLenUTF8` (or its like) has laid out in `data`."""
    codecs = [
        {"name": "vlen-utf8", "configuration": {}},
        {"name": "zstd", "configuration": {"level": 1, "checksum": False}},
    ]
    attributes = {"encoding-type": "string-array", "encoding-version": "0.2.0"}
    # One chunk, whatever the length: no partition has many strings.
    metadata = _metadata(length, max(length, 1), "string", "", codecs, attributes)
    return EncodedArray(metadata, (zstd.compress(data, 1),) if length else ())


def lay_out_strings(strings: Sequence[str]) -> bytes:
    """The bytes of `strings` as the codec ``vlen-utf8`` defines them."""
    return bytes(VLenUTF8().encode(np.array(strings, object)))


class ArrayReader:
    """Decodes one array of numbers by its metadata: `take`, read the chunks, then `decode`.

    Raises `CorruptionError` from the constructor if the metadata does not describe an array of
    `length` numbers of type `dtype` that `encode` could have written, and before any memory is
    taken for it.
    """

    def __init__(self, metadata: Any, seals: Any, length: int, dtype: str) -> None:
        if metadata["shape"] != [length] or metadata["data_type"] != dtype:
            kind, shape = map(reprlib.repr, (metadata["data_type"], metadata["shape"]))
            raise CorruptionError(
                f"its metadata declares {kind[1:-1]}{shape} where {dtype}[{length}] was expected"
            )
        self.length, self.dtype = length, np.dtype(dtype)
        self.sizes = [size for size, _ in seals]
        self.fill_value = metadata["fill_value"]
        self.is_fill = not self.sizes and (length > 0 or self.fill_value == 1)
        (self._chunk,) = metadata["chunk_grid"]["configuration"]["chunk_shape"]
        codecs = metadata["codecs"]
        names = [codec["name"] for codec in codecs]
        if names not in (["bytes"], ["bytes", "blosc"]):
            raise CorruptionError(
                f"its codecs are {reprlib.repr(names)}; only bytes and blosc are known"
            )
        if codecs[0]["configuration"] != {"endian": "little"}:
            raise CorruptionError("its bytes are not little-endian")
        self._compressed = len(names) == 2
        self._check_grid()

    @property
    def n_bytes(self) -> int:
        """What `take` takes."""
        stored = sum(self.sizes) if self._compressed else 0
        return int(len(self.sizes) * self._chunk * self.dtype.itemsize + stored)

    def _check_grid(self) -> None:
        if type(self._chunk) is not int or any(type(size) is not int for size in self.sizes):
            raise CorruptionError("the sizes of its chunks are no whole numbers")
        whole = 0 < self._chunk <= MAX_CHUNK and len(self.sizes) == -(-self.length // self._chunk)
        # Many small chunks would cost much more memory than they hold.
        fine = len(self.sizes) > 1 and self._chunk < MAX_CHUNK // _MOST_UNEVEN
        if not (whole or self.is_fill) or fine:
            raise CorruptionError(
                f"{len(self.sizes)} chunks of {self._chunk} do not make {self.length} elements"
            )
        nbytes = self._chunk * self.dtype.itemsize
        low = max(blosc.MAX_OVERHEAD, (nbytes - 1024) / MAX_RATIO) if self._compressed else nbytes
        high = nbytes + blosc.MAX_OVERHEAD if self._compressed else nbytes
        for size in self.sizes:
            if not low <= size <= high:
                raise CorruptionError(f"a chunk of {size} bytes cannot hold {nbytes} bytes")

    def take(self, name: str, arena: Arena, scratch: Arena) -> list[NDArray[np.uint8]]:
        """Take memory for the array from `arena`; where its chunks are to be read to.

        What is not compressed is read to where it stays, the rest to `scratch`.
        """
        n_chunks = len(self.sizes)
        self._array = arena.empty(name, n_chunks * self._chunk, self.dtype)
        self._parts = list(self._array.view(np.uint8).reshape(n_chunks, -1)) if n_chunks else []
        self._chunks = self._parts
        if self._compressed:
            ends = np.cumsum(self.sizes, dtype=np.int64)
            stored = scratch.empty(name, sum(self.sizes), np.uint8)
            self._chunks = np.split(stored, ends[:-1]) if n_chunks else []
        return self._chunks

    def decode(self) -> NDArray[Any]:
        """The array, once its chunks were read and checked; raises `CorruptionError`."""
        if self._compressed:
            for number, (chunk, part) in enumerate(zip(self._chunks, self._parts, strict=True)):
                if _blosc_sizes(chunk) != (part.nbytes, len(chunk)):
                    raise CorruptionError(f"chunk {number} is not {part.nbytes} bytes of blosc")
                try:
                    blosc.decompress(chunk, part)
                except (RuntimeError, ValueError) as error:
                    raise CorruptionError(f"chunk {number} does not decompress ({error})") from None
        return self._array[: self.length]


def _grid(length: int) -> tuple[int, int]:
    """Number and length of the chunks: even ones, as each is stored with its padding."""
    n_chunks = -(-length // MAX_CHUNK)
    return n_chunks, -(-length // n_chunks) if n_chunks else 1


def _blosc(shuffle: str, itemsize: int) -> dict[str, Any]:
    return {"typesize": itemsize, "cname": "lz4", "clevel": 5, "shuffle": shuffle, "blocksize": 0}


def _compress(array: NDArray[Any], shuffle: str) -> bytes:
    return bytes(blosc.compress(array, b"lz4", 5, _SHUFFLES[shuffle], 0))


def _blosc_sizes(chunk: NDArray[np.uint8]) -> tuple[int, int]:
    """Size of the content and of the whole, from the header."""
    if len(chunk) < 16:
        return 0, 0
    _, content, _, whole = chunk[:16].view("<u4").tolist()
    return content, whole


def _metadata(
    length: int,
    chunk: int,
    data_type: str,
    fill_value: float | str,
    codecs: list[dict[str, Any]],
    attributes: dict[str, Any] | None,
) -> dict[str, Any]:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [length],
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_value,
        "codecs": codecs,
        "attributes": attributes or {},
        "storage_transformers": [],
    }
