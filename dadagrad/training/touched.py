"""Which features of a vocabulary some rows touch: as positions, and as these travel.

Positions are increasing. Where they are many, a bit for each place of the vocabulary takes less
than a number for each of them: a piece of some thousand rows touches a third of its partition's
vocabulary, and 32 bits for each become 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import TrainingError
from dadagrad.training.compact import mark, marked


def pack(positions: NDArray[np.int32]) -> NDArray[Any]:
    """Increasing (k,) `positions` as bits, uint8, or as they are, int32, whichever is smaller."""
    if not len(positions) or positions.nbytes <= 8 * (positions[-1] // 64 + 1):
        return positions
    marks: NDArray[np.uint64] = mark(positions, int(positions[-1]) + 1)
    return marks.astype("<u8").view(np.uint8)


def unpack(packed: NDArray[Any]) -> NDArray[np.int32]:
    """The positions that `pack` was given."""
    if packed.dtype != np.uint8:
        return packed
    positions: NDArray[np.int32] = marked(packed.view("<u8").astype(np.uint64))[0]
    return positions


def packed_bytes(touched: float, n_local: int) -> float:
    """About what so many positions in a vocabulary take when they travel."""
    return min(4.0 * touched, n_local / 8)


def check_touched(n_given: int, touched: NDArray[np.int32]) -> None:
    """Raise `TrainingError` where what came for some rows cannot be for what they touch."""
    if len(touched) != n_given:
        raise TrainingError(
            f"what was sent for {n_given} features came to rows that touch {len(touched)}: the "
            "data was changed during the run, or not all workers read the same"
        )
