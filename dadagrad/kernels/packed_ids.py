"""Increasing numbers as they travel: ids of a vocabulary, and positions in it that rows touch.

A bit for each place takes less than a number for each that is there, where they are many: a piece
of some thousand rows touches a third of its partition's vocabulary, and 32 bits for each become 3.
Else the steps from each number to the next take 16 bits, unless one of them is too long for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import TrainingError
from dadagrad.kernels.id_sets import mark, marked

_MAX_BITS = 1 << 31  # `marked` numbers them with 32 bits
_MAX_STEP = np.iinfo(np.uint16).max


def pack(numbers: NDArray[Any]) -> NDArray[Any]:
    """Increasing (k,) `numbers` as bits, uint8, or steps, uint16, or as they are.

    Whichever is smallest. Numbers are not negative, int32 or int64.
    """
    if not len(numbers):
        return numbers
    last = int(numbers[-1])
    if last < _MAX_BITS and last // 64 * 8 + 8 <= 2 * len(numbers):
        marks: NDArray[np.uint64] = mark(numbers, last + 1)
        return marks.astype("<u8", copy=False).view(np.uint8)
    steps = np.diff(numbers, prepend=numbers.dtype.type(0))
    return steps.astype(np.uint16) if steps.max() <= _MAX_STEP else numbers


def unpack(packed: NDArray[Any], dtype: type[np.signedinteger[Any]]) -> NDArray[Any]:
    """The numbers of `dtype` that `pack` was given."""
    if packed.dtype == np.uint8:
        words = np.require(packed.view("<u8").astype(np.uint64, copy=False), requirements="W")
        numbers: NDArray[Any] = marked(words)[0]
        return numbers.astype(dtype, copy=False)
    if packed.dtype == np.uint16:
        return np.cumsum(packed, dtype=dtype)
    return packed


def packed_bytes(touched: float, n_local: int) -> float:
    """About what so many positions in a vocabulary take when they travel."""
    return min(2.0 * touched, n_local / 8)


def check_touched(n_given: int, touched: NDArray[np.int32]) -> None:
    """Raise `TrainingError` where what came for some rows cannot be for what they touch."""
    if len(touched) != n_given:
        raise TrainingError(
            f"what was sent for {n_given} features came to rows that touch {len(touched)}: the "
            "data was changed during the run, or not all workers read the same"
        )
