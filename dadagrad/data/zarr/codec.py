"""Chunks of Zarr arrays, checked and decoded into memory that is used again.

zarr-python writes the arrays and reads them for everybody else. Training reads chunks with the
functions of this file instead: each chunk is read into a buffer that exists already and is checked
against its size and checksum before it is decoded. ``examples/benchmarks/reading.py`` measures what
this saves of a pass.
"""

from __future__ import annotations

import reprlib
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numcodecs import blosc
from numcodecs.vlen import VLenUTF8
from numpy.typing import NDArray

from dadagrad.data.buffers import POOL
from dadagrad.errors import CorruptionError

MAX_CHUNK = 1 << 22
"""Elements of the largest chunk."""
DECIMALS = "numcodecs.fixedscaleoffset"
"""Zarr codec of numbers that are stored as whole multiples of a power of ten."""
MAX_PLACES = 7
"""Decimal places at most: up to here quotients of 32 and of 64 bits round to the same float32."""
MAX_RATIO = 300
"""Ratio of decoded to encoded bytes that no codec used here exceeds."""

_MAX_STRING = 1 << 16  # bytes, on average
_DIVIDED = 1 << 16  # numbers that are divided at a time: they stay in the processor's cache

# Partitions are decoded in parallel with computing, so blosc must not start threads of its own.
blosc.use_threads = False


def chunk_grid(length: int) -> tuple[int, int]:
    """Number and length of the chunks of an array: even ones, as each is stored with padding."""
    n_chunks = -(-length // MAX_CHUNK)
    return n_chunks, -(-length // n_chunks) if n_chunks else 1


def decimals(values: NDArray[np.float32], places: int) -> NDArray[np.int32] | None:
    """Whole numbers of up to 24 bits that give exactly `values` divided by 10^`places`, if any."""
    whole = np.empty(len(values), np.int32)
    for start in range(0, len(values), _DIVIDED):
        part = values[start : start + _DIVIDED]
        numbers = np.rint(part.astype(np.float64) * 10**places)
        if np.abs(numbers).max() > 1 << 24:
            return None
        quotients = numbers.astype(np.float32) / np.float32(10**places)
        if not np.array_equal(quotients.view(np.uint32), part.view(np.uint32)):
            return None
        whole[start : start + _DIVIDED] = numbers
    return whole


def decimals_codec(places: int) -> dict[str, Any]:
    """Metadata of the codec of numbers with `places` decimals."""
    types = {"dtype": "<f4", "astype": "<i4"}
    return {"name": DECIMALS, "configuration": {"offset": 0, "scale": 10**places, **types}}


class ArrayDecoder:
    """Decoder of one array of numbers: `allocate`, read the chunks, then `decode`.

    `metadata` is the array's ``zarr.json``; `seals` are size and CRC-32C of each chunk. Raises
    `CorruptionError`, before any memory is taken, unless they describe an array of this `length`
    and `dtype` in the chunks that the writer makes.
    """

    def __init__(self, metadata: Any, seals: Any, length: int, dtype: str) -> None:
        n_chunks, self._chunk = chunk_grid(length)
        self.length, self.dtype = length, np.dtype(dtype)
        self.sizes = [size for size, _ in seals]
        (chunk,) = metadata["chunk_grid"]["configuration"]["chunk_shape"]
        _need("shape", metadata["shape"], [length])
        _need("type", metadata["data_type"], dtype)
        _need("number and size of chunks", [len(self.sizes), chunk], [n_chunks, self._chunk])
        codecs, self._places = metadata["codecs"], None
        if dtype == "float32" and codecs[0]["name"] == DECIMALS:
            known = [decimals_codec(places) for places in range(MAX_PLACES + 1)]
            if codecs[0] not in known:
                raise CorruptionError(f"its codec is {reprlib.repr(codecs[0])}; one of {known}")
            codecs, self._places = codecs[1:], known.index(codecs[0])
        names = [codec["name"] for codec in codecs]
        self._compressed = len(names) == 2
        _need("codecs", names, ["bytes", "blosc"][: len(names) or 1])
        _need("byte order", codecs[0]["configuration"], {"endian": "little"})
        nbytes = self._chunk * self.dtype.itemsize
        low = max(blosc.MAX_OVERHEAD, (nbytes - 1024) / MAX_RATIO) if self._compressed else nbytes
        high = nbytes + blosc.MAX_OVERHEAD if self._compressed else nbytes
        for size in self.sizes:
            if type(size) is not int or not low <= size <= high:
                raise CorruptionError(
                    f"a chunk of {reprlib.repr(size)} bytes cannot hold {nbytes} bytes"
                )

    @property
    def is_finite(self) -> bool:
        """True if no number can be infinite or NaN."""
        return self._places is not None or self.dtype.kind != "f"

    @property
    def nbytes(self) -> int:
        """Bytes of the array and of its chunks as they are stored."""
        return int(self.length * self.dtype.itemsize + sum(self.sizes))

    def allocate(self) -> list[NDArray[np.uint8]]:
        """Buffers to read the chunks into: pieces of the array, or others if compressed."""
        n_chunks = len(self.sizes)
        self._array = POOL.empty(n_chunks * self._chunk, self.dtype)
        self._decoded = list(self._array.view(np.uint8).reshape(n_chunks, -1)) if n_chunks else []
        self._stored = self._decoded
        if self._compressed:
            stored = POOL.empty(sum(self.sizes), np.uint8)
            ends = accumulate(self.sizes, initial=0)
            self._stored = [stored[start:stop] for start, stop in pairwise(ends)]
        return self._stored

    def decode(self) -> NDArray[Any]:
        """The array, after its chunks were read; raises `CorruptionError`."""
        if self._compressed:
            pairs = zip(self._stored, self._decoded, strict=True)
            for number, (stored, decoded) in enumerate(pairs):
                # The header holds the sizes of the content and of the whole.
                sizes = stored[:16].view("<u4").tolist() if len(stored) >= 16 else [0] * 4
                if sizes[1::2] != [decoded.nbytes, len(stored)]:
                    raise CorruptionError(f"chunk {number} is not {decoded.nbytes} bytes of blosc")
                # Without memory for its own buffers blosc ends the process.
                np.empty(4 * min(sizes[2], decoded.nbytes), np.uint8)
                try:
                    blosc.decompress(stored, decoded)
                except (RuntimeError, ValueError) as error:
                    # Without memory for its own buffers blosc fails as for a damaged chunk.
                    np.ones(2 * decoded.nbytes, np.uint8)
                    raise CorruptionError(f"chunk {number} does not decompress ({error})") from None
        array = self._array[: self.length]
        if self._places is not None:
            numbers, power = array.view(np.int32), np.float32(10**self._places)
            for start in range(0, self.length, _DIVIDED):
                part = slice(start, start + _DIVIDED)
                np.divide(numbers[part].astype(np.float32), power, out=array[part])
        return array


def _need(name: str, declared: Any, needed: Any) -> None:
    if declared != needed:
        raise CorruptionError(f"its {name} is {reprlib.repr(declared)}; needed is {needed!r}")


def check_strings_size(size: Any, length: int) -> int:
    """Return the `size` of a chunk of strings; raise `CorruptionError` if it is absurd."""
    if type(size) is not int or not 0 < size <= 4 + length * _MAX_STRING:
        raise CorruptionError(f"{reprlib.repr(size)} bytes cannot hold {length} strings")
    return size


def decode_strings(chunk: NDArray[np.uint8], length: int) -> NDArray[np.object_]:
    """The `length` strings of an uncompressed chunk; raises `CorruptionError`."""
    if len(chunk) < 4 or int(chunk[:4].view("<u4")[0]) != length:
        raise CorruptionError(f"it does not hold {length} strings")
    try:
        strings: NDArray[np.object_] = VLenUTF8().decode(chunk)
    except ValueError as error:
        raise CorruptionError(f"its strings cannot be decoded ({error})") from None
    return strings
