"""Finding the vocabulary of many feature ids: a hash table, and a sort of the distinct ids only.

`numpy.unique` sorts every id. Here each id is looked up in a table of the distinct ones, which is
several times smaller than the data and stays in cache, and only the distinct ids are sorted.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

_EMPTY = -1


@njit(cache=True, nogil=True)
def _number_by_appearance(ids, appearance, distinct):  # type: ignore[no-untyped-def]
    """Give every id the number of its first appearance; returns how many are distinct."""
    size = 1 << 12
    table = np.full(size, _EMPTY, np.int32)
    shift = 64 - 12
    count = 0
    for entry in range(len(ids)):
        wanted = np.int64(ids[entry])
        # Fibonacci hashing: the upper bits of the product mix all bits of the id.
        slot = np.int64((np.uint64(wanted) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(shift))
        while table[slot] != _EMPTY and distinct[table[slot]] != wanted:
            slot = (slot + 1) & (size - 1)
        if table[slot] == _EMPTY:
            table[slot] = count
            distinct[count] = wanted
            count += 1
        appearance[entry] = table[slot]
        if 2 * count > size:
            size *= 4
            shift -= 2
            table = np.full(size, _EMPTY, np.int32)
            for number in range(count):
                product = np.uint64(distinct[number]) * np.uint64(0x9E3779B97F4A7C15)
                slot = np.int64(product >> np.uint64(shift))
                while table[slot] != _EMPTY:
                    slot = (slot + 1) & (size - 1)
                table[slot] = number
    return count


@njit(cache=True, nogil=True)
def _relabel(appearance, rank):  # type: ignore[no-untyped-def]
    for entry in range(len(appearance)):
        appearance[entry] = rank[appearance[entry]]


def find_vocabulary(
    ids: NDArray[np.int32] | NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The distinct `ids` and the position of every id among them.

    Parameters
    ----------
    ids : (nnz,) int32 or int64
        Feature ids; nnz must be below 2**31.

    Returns
    -------
    vocabulary : (n_local,) int64
        The distinct ids, increasing.
    indices : (nnz,) int32
        ``vocabulary[indices]`` equals `ids`.
    """
    indices = np.empty(len(ids), np.int32)
    distinct = np.empty(len(ids), np.int64)
    count = _number_by_appearance(ids, indices, distinct)
    order = np.argsort(distinct[:count])
    rank = np.empty(count, np.int32)
    rank[order] = np.arange(count, dtype=np.int32)
    _relabel(indices, rank)
    return distinct[order], indices
