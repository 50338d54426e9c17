"""Decimal numbers as the bytes of a string array: the index of ``obs`` and ``var``.

AnnData wants its indexes to be strings. Nothing here reads them, so all that counts is that they
cost little to write: no Python string is made.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def _lay_out(numbers, out):  # type: ignore[no-untyped-def]
    """Write ``vlen-utf8``: the count, then each length and its digits; returns the size."""
    for byte in range(4):
        out[byte] = (len(numbers) >> (8 * byte)) & 255
    position = 4
    for number in numbers:
        n_digits, rest = 1, number // 10
        while rest:
            n_digits += 1
            rest //= 10
        out[position] = n_digits
        out[position + 1 : position + 4] = 0
        position += 4 + n_digits
        rest = number
        for place in range(1, n_digits + 1):
            out[position - place] = 48 + rest % 10
            rest //= 10
    return position


def lay_out_numbers(numbers: NDArray[np.int64]) -> bytes:
    """The bytes of the decimal forms of (n,) non-negative `numbers` in the codec ``vlen-utf8``."""
    out = np.empty(4 + len(numbers) * 23, np.uint8)
    return bytes(out[: _lay_out(np.ascontiguousarray(numbers, np.int64), out)])
