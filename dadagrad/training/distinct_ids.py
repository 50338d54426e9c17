"""The distinct ids among many, increasing, and where each of the many is among them.

A bit for each feature is set where it is met, and one for each word of 64 such bits, so that words
without any cost next to nothing. The place of an id is how many are met before it: before its word,
which is counted once, and within its word. No id is compared with another, and all that is looked
up stays close to the processor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dadagrad.training.compact import BITS, ONE, SIX, lowest_one, place_among


class DistinctIds:
    """Memory to find distinct ids with, about a fifth of a byte for each of `n_features`."""

    def __init__(self, n_features: int) -> None:
        n_words = -(-n_features // 64)
        self._marks = np.zeros(n_words, np.uint64)
        self._words = np.zeros(-(-n_words // 64), np.uint64)
        self._before = np.empty(n_words, np.int32)

    def among(
        self, some: Sequence[NDArray[np.int64]]
    ) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
        """The distinct ids among all of `some`, increasing, and where in them each of some is."""
        ids = np.concatenate(some)
        places = np.empty(len(ids), np.int64)
        distinct: NDArray[np.int64] = _distinct(ids, self._marks, self._words, self._before, places)
        ends = np.cumsum([len(own) for own in some])
        return distinct, np.split(places, ends[:-1])


@njit(nogil=True, cache=True)
def _distinct(ids, marks, words, before, places):  # type: ignore[no-untyped-def]
    """The distinct `ids`; writes `places`. `marks` and `words` are all 0 before and after."""
    for one in ids:
        feature = np.uint64(one)
        word = feature >> SIX
        marks[word] |= ONE << (feature & BITS)
        words[word >> SIX] |= ONE << (word & BITS)
    distinct = np.empty(len(ids), np.int64)
    count = 0
    for block in range(len(words)):
        left = words[block]
        while left:
            number = 64 * block + lowest_one(left)
            before[number] = count
            bits = marks[number]
            while bits:
                distinct[count] = 64 * number + lowest_one(bits)
                count += 1
                bits &= bits - ONE
            left &= left - ONE
    for j in range(len(ids)):
        places[j] = place_among(np.uint64(ids[j]), marks, before)
    for one in distinct[:count]:
        word = np.uint64(one) >> SIX
        marks[word] = np.uint64(0)
        words[word >> SIX] = np.uint64(0)
    return distinct[:count].copy()
