"""A compiled kernel that sorts the entries of rows and adds up those of one feature."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def _sort(
    ids: NDArray[np.int64],
    values: NDArray[np.float32],
    spare_ids: NDArray[np.int64],
    spare_values: NDArray[np.float32],
) -> None:
    """Sort the entries of one row by id; equal ids keep their order."""
    n = len(ids)
    if n <= 24:
        for entry in range(1, n):
            feature, value = ids[entry], values[entry]
            place = entry
            while place > 0 and ids[place - 1] > feature:
                ids[place] = ids[place - 1]
                values[place] = values[place - 1]
                place -= 1
            ids[place], values[place] = feature, value
        return
    largest = ids.max()
    starts = np.empty(256, np.int64)
    shift = 0
    while shift < 63 and largest >> shift > 0:
        starts[:] = 0
        for entry in range(n):
            starts[(ids[entry] >> shift) & 255] += 1
        total = 0
        for digit in range(256):
            total, starts[digit] = total + starts[digit], total
        for entry in range(n):
            digit = (ids[entry] >> shift) & 255
            place = starts[digit]
            starts[digit] += 1
            spare_ids[place] = ids[entry]
            spare_values[place] = values[entry]
        ids[:] = spare_ids[:n]
        values[:] = spare_values[:n]
        shift += 8


@njit(cache=True, nogil=True)
def merge_entries(
    indptr: NDArray[np.int64], ids: NDArray[np.int64], values: NDArray[np.float32]
) -> None:
    """In place: sort each row by id, add up entries of one id, drop zeros. `indptr` follows."""
    longest = 0
    for row in range(len(indptr) - 1):
        longest = max(longest, indptr[row + 1] - indptr[row])
    spare_ids = np.empty(longest, np.int64)
    spare_values = np.empty(longest, np.float32)
    start = out = 0
    for row in range(len(indptr) - 1):
        stop = indptr[row + 1]
        for entry in range(start + 1, stop):
            if ids[entry] < ids[entry - 1]:
                _sort(ids[start:stop], values[start:stop], spare_ids, spare_values)
                break
        entry = start
        while entry < stop:
            feature = ids[entry]
            total = np.float64(values[entry])  # float() of a float32 stays a float32 here
            entry += 1
            while entry < stop and ids[entry] == feature:
                total += values[entry]
                entry += 1
            single = np.float32(total)
            if single != 0:
                ids[out] = feature
                values[out] = single
                out += 1
        indptr[row + 1] = out
        start = stop
