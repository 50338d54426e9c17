"""Compiled subtraction of the means of dense columns from sparse rows.

A row without an entry of a column has the value 0 there, and minus the mean after. So a row becomes
the union of its entries and of the dense columns. Both are increasing positions in the vocabulary,
and are merged in one walk; a walk before counts, so that no memory is left over.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Entries = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]
"""Bounds of rows (n_rows + 1,), and positions and values of their entries (nnz,)."""


def subtract_means(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    centered: NDArray[np.int32],
    means: NDArray[np.float32],
) -> Entries:
    """The rows without the (n_local,) `means`, which are 0 but at the increasing `centered`."""
    bounds: NDArray[np.int64] = _bounds(indptr, indices, centered, len(means))
    entries = np.empty(bounds[-1], np.int32), np.empty(bounds[-1], np.float32)
    _merge(indptr, indices, values, centered, means, *entries)
    return bounds, *entries


@njit(nogil=True, cache=True)
def _bounds(indptr, indices, centered, n_local):  # type: ignore[no-untyped-def]
    """Bounds of the rows that `_merge` fills."""
    bounds = np.zeros(len(indptr), np.int64)
    for row in range(len(indptr) - 1):
        begin, end = indptr[row], indptr[row + 1]
        size = end - begin
        if size < n_local:
            size, column = len(centered), 0
            for entry in range(begin, end):
                while column < len(centered) and centered[column] < indices[entry]:
                    column += 1
                if column == len(centered) or centered[column] != indices[entry]:
                    size += 1
        bounds[row + 1] = bounds[row] + size
    return bounds


@njit(nogil=True, cache=True)
def _merge(indptr, indices, values, centered, means, out, out_values):  # type: ignore[no-untyped-def]
    """Fill the positions `out` and the values `out_values` of all rows."""
    n_local, place = len(means), 0
    for row in range(len(indptr) - 1):
        begin, end = indptr[row], indptr[row + 1]
        if end - begin == n_local:  # a row of all columns
            for position in range(n_local):
                out[place + position] = position
                out_values[place + position] = values[begin + position] - means[position]
            place += n_local
            continue
        column = 0
        for entry in range(begin, end):
            position = indices[entry]
            while column < len(centered) and centered[column] < position:
                out[place], out_values[place] = centered[column], -means[centered[column]]
                column, place = column + 1, place + 1
            if column < len(centered) and centered[column] == position:
                column += 1
            out[place], out_values[place] = position, values[entry] - means[position]
            place += 1
        while column < len(centered):
            out[place], out_values[place] = centered[column], -means[centered[column]]
            column, place = column + 1, place + 1
