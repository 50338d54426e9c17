"""String arrays as the one chunk that they are: ``vlen-utf8`` in a frame of zstd."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import CorruptionError

_MAX_RATIO = 1000
"""Text shrinks by less. What is nothing but lengths may shrink by more."""
_LONGEST = 1 << 16


def most_bytes(length: int) -> int:
    """No compressed chunk of `length` strings has more bytes than this."""
    return 1024 + length * (2 * _LONGEST)


def decode_strings(chunk: NDArray[np.uint8], length: int) -> NDArray[np.object_]:
    """The `length` > 0 strings of a chunk.

    Raises `CorruptionError` for anything else, and before memory is taken for a chunk that claims
    to hold more than `length` strings and its own size can stand for.
    """
    import zstandard

    data = chunk.data
    try:
        declared = zstandard.frame_content_size(data)
        if not 0 < declared <= 4 + 4 * length + _MAX_RATIO * len(chunk):
            raise CorruptionError(
                f"{len(chunk)} bytes declare {declared} bytes of text in {length} strings"
            )
        text = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptionError(f"it does not decompress ({error})") from None
    if int.from_bytes(text[:4], "little") != length:
        raise CorruptionError(f"it does not hold {length} strings")
    strings = np.empty(length, object)
    at = 4
    try:
        for number in range(length):
            start = at + 4
            at = start + int.from_bytes(text[at:start], "little")
            strings[number] = text[start:at].decode()
    except UnicodeDecodeError:
        raise CorruptionError(f"string {number} is no UTF-8") from None
    if at != len(text):
        raise CorruptionError(f"its {length} strings have {at} bytes where there are {len(text)}")
    return strings
