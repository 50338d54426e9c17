"""Compiled sets of feature ids: distinct ids, unions, and the numbers of some features.

A slice of a few rows touches a small share of its partition's vocabulary, and a step a small share
of all features: work for each slice and for each step must not go through the rest.

A set is a bit for each number that it may contain, in words of 64. The place of an id is the number
of set bits before it: before its word, counted once for each word, and within its word. No id is
compared with another, and the bits stay close to the processor.

Increasing numbers travel as such bits where they are many: a slice of some thousand rows touches a
third of its partition's vocabulary, and 32 bits for each number become 3. Else the steps from each
number to the next take 16 bits, unless one of them is too long for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

ONE, SIX, BITS = np.uint64(1), np.uint64(6), np.uint64(63)
_MAX_BITS = 1 << 31  # `marked` numbers them with 32 bits
_MAX_STEP = np.iinfo(np.uint16).max


@njit(nogil=True, cache=True, inline="always")
def count_ones(bits):  # type: ignore[no-untyped-def]
    """The number of ones among 64 bits, by adding them side by side."""
    bits -= (bits >> np.uint64(1)) & np.uint64(0x5555555555555555)
    bits = (bits & np.uint64(0x3333333333333333)) + (
        (bits >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (bits * np.uint64(0x0101010101010101)) >> np.uint64(56)


@njit(nogil=True, cache=True, inline="always")
def lowest_bit(bits):  # type: ignore[no-untyped-def]
    """The place of the lowest 1 among 64 bits, which are not all 0."""
    return np.int64(count_ones((bits ^ (bits & (bits - ONE))) - ONE))


@njit(nogil=True, cache=True, inline="always")
def position_among(value, marks, before):  # type: ignore[no-untyped-def]
    """The number of marks below `value`; `before` has those below each word."""
    word = value >> SIX
    below = marks[word] & ((ONE << (value & BITS)) - ONE)
    return before[word] + np.int64(count_ones(below))


@njit(nogil=True, cache=True)
def mark(indices, n_local):  # type: ignore[no-untyped-def]
    """The set of `indices`, which are below `n_local`: a bit for each, in words of 64."""
    marks = np.zeros((n_local + 63) // 64, np.uint64)
    for index in indices:
        value = np.uint64(index)
        marks[value >> SIX] |= ONE << (value & BITS)
    return marks


@njit(nogil=True, cache=True)
def marked(marks):  # type: ignore[no-untyped-def]
    """The numbers of a set, (k,) int32 increasing, and how many are before each of its words."""
    before = np.empty(len(marks), np.int32)
    count = 0
    for word in range(len(marks)):
        before[word] = count
        count += int(count_ones(marks[word]))
    positions = np.empty(count, np.int32)
    count = 0
    for word in range(len(marks)):
        bits = marks[word]
        while bits:
            positions[count] = 64 * word + lowest_bit(bits)
            count += 1
            bits &= bits - ONE
    return positions, before


@njit(nogil=True, cache=True)
def relabel(indices, n_local):  # type: ignore[no-untyped-def]
    """The distinct `indices`, increasing, and the place of each index among them.

    All are below `n_local`.
    """
    marks = mark(indices, n_local)
    positions, before = marked(marks)
    relabelled = np.empty_like(indices)
    for j in range(len(indices)):
        relabelled[j] = position_among(np.uint64(indices[j]), marks, before)
    return positions, relabelled


class DistinctIds:
    """Memory for the union of sets of ids, about a fifth of a byte for each of `n_features`.

    A second set has a bit for each word of the first: words without ids cost next to nothing.
    """

    def __init__(self, n_features: int) -> None:
        n_words = -(-n_features // 64)
        self._marks = np.zeros(n_words, np.uint64)
        self._words = np.zeros(-(-n_words // 64), np.uint64)
        self._before = np.empty(n_words, np.int32)

    def unite(
        self, sets: Sequence[NDArray[np.int64]]
    ) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
        """The union of `sets`, increasing, and the positions of the ids of each set in it."""
        ids = np.concatenate(sets)
        positions = np.empty(len(ids), np.int64)
        distinct: NDArray[np.int64] = _distinct(
            ids, self._marks, self._words, self._before, positions
        )
        ends = np.cumsum([len(each) for each in sets])
        return distinct, np.split(positions, ends[:-1])


@njit(nogil=True, cache=True)
def _distinct(ids, marks, words, before, positions):  # type: ignore[no-untyped-def]
    """The distinct `ids`; writes `positions`. `marks` and `words` are all 0 before and after."""
    for number in ids:
        feature = np.uint64(number)
        word = feature >> SIX
        marks[word] |= ONE << (feature & BITS)
        words[word >> SIX] |= ONE << (word & BITS)
    distinct = np.empty(len(ids), np.int64)
    count = 0
    for block in range(len(words)):
        numbers = words[block]
        while numbers:
            number = 64 * block + lowest_bit(numbers)
            before[number] = count
            bits = marks[number]
            while bits:
                distinct[count] = 64 * number + lowest_bit(bits)
                count += 1
                bits &= bits - ONE
            numbers &= numbers - ONE
    for j in range(len(ids)):
        positions[j] = position_among(np.uint64(ids[j]), marks, before)
    for number in distinct[:count]:
        word = np.uint64(number) >> SIX
        marks[word] = np.uint64(0)
        words[word >> SIX] = np.uint64(0)
    return distinct[:count].copy()


def distinct_ids(
    ids: NDArray[np.int32] | NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The distinct `ids`, increasing, and the place of each of the (nnz,) ids among them.

    `numpy.unique` sorts every id. Here each id is looked up in a hash table of the distinct ids,
    which is several times smaller than the data and stays in cache, and only those are sorted.
    """
    positions = np.empty(len(ids), np.int32)
    distinct = np.empty(len(ids), np.int64)
    count = _number_by_appearance(ids, positions, distinct)
    order = np.argsort(distinct[:count])
    rank = np.empty(count, np.int32)
    rank[order] = np.arange(count, dtype=np.int32)
    return distinct[order], rank[positions]


@njit(nogil=True, cache=True)
def _number_by_appearance(ids, appearance, distinct):  # type: ignore[no-untyped-def]
    """Give every id the number of its first appearance; returns how many are distinct."""
    bits = 12
    table = np.full(1 << bits, -1, np.int32)
    count = 0
    for entry in range(len(ids)):
        feature = np.int64(ids[entry])
        slot = _slot_of(feature, table, bits, distinct)
        if table[slot] < 0:
            table[slot] = count
            distinct[count] = feature
            count += 1
        appearance[entry] = table[slot]
        if 2 * count > len(table):
            bits += 2
            table = np.full(1 << bits, -1, np.int32)
            for number in range(count):
                table[_slot_of(distinct[number], table, bits, distinct)] = number
    return count


@njit(nogil=True, cache=True, inline="always")
def _slot_of(feature, table, bits, distinct):  # type: ignore[no-untyped-def]
    """The slot of an id in a table of ``2**bits`` slots, or the free slot in which it belongs."""
    # Fibonacci hashing: the upper bits of the product mix all bits of the id.
    slot = np.int64((np.uint64(feature) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - bits))
    while table[slot] >= 0 and distinct[table[slot]] != feature:
        slot = (slot + 1) & (len(table) - 1)
    return slot


@njit(nogil=True, cache=True)
def unite(ids, others):  # type: ignore[no-untyped-def]
    """The union of two increasing int64 arrays, and the positions of `ids` and of `others` in it.

    Branch-free: the comparison is unpredictable, so adding 0 or 1 is twice as fast.
    """
    united = np.empty(len(ids) + len(others), np.int64)
    positions, other_positions = np.empty(len(ids), np.int64), np.empty(len(others), np.int64)
    i, j, count = 0, 0, 0
    while i < len(ids) and j < len(others):
        first, second = ids[i], others[j]
        united[count] = min(first, second)
        # The place of a number is written again until the loop is past it.
        positions[i] = other_positions[j] = count
        i += int(first <= second)
        j += int(second <= first)
        count += 1
    for rest in range(i, len(ids)):
        united[count], positions[rest] = ids[rest], count
        count += 1
    for rest in range(j, len(others)):
        united[count], other_positions[rest] = others[rest], count
        count += 1
    return united[:count], positions, other_positions


@njit(nogil=True, cache=True)
def common(ids, others):  # type: ignore[no-untyped-def]
    """The positions, in two increasing arrays, of the numbers that both have; see `unite`."""
    most = min(len(ids), len(others))
    positions, other_positions = np.empty(most, np.int64), np.empty(most, np.int64)
    i, j, count = 0, 0, 0
    while i < len(ids) and j < len(others):
        first, second = ids[i], others[j]
        positions[count], other_positions[count] = i, j
        count += int(first == second)
        i += int(first <= second)
        j += int(second <= first)
    return positions[:count], other_positions[:count]


@njit(nogil=True, cache=True)
def different(rows, others):  # type: ignore[no-untyped-def]
    """The increasing positions of the rows of an (n, width) array that differ from another's.

    Branch-free for one number a row: the comparison is unpredictable.
    """
    positions = np.empty(len(rows) + 1, np.int64)
    count = 0
    if rows.shape[1] == 1:
        numbers, before = rows.reshape(-1), others.reshape(-1)
        for i in range(len(numbers)):
            positions[count] = i
            count += int(numbers[i] != before[i])
    else:
        for i in range(len(rows)):
            positions[count] = i
            differs = False
            for k in range(rows.shape[1]):
                differs |= rows[i, k] != others[i, k]
            count += int(differs)
    return positions[:count]


def take(array: NDArray[Any], ids: NDArray[Any], out: NDArray[Any]) -> None:
    """Copy the rows `ids` of `array` into (k, width) `out`; nothing checks the ids."""
    if array.shape[1] == 1:
        _look_up(array.reshape(-1), ids, out.reshape(-1))
    else:  # by whole rows
        np.take(array, ids, axis=0, out=out, mode="clip")


def look_up(numbers: NDArray[Any], positions: NDArray[Any]) -> NDArray[Any]:
    """``numbers[positions]``, several times as fast; nothing checks the positions."""
    chosen = np.empty(len(positions), numbers.dtype)
    _look_up(numbers, positions, chosen)
    return chosen


@njit(nogil=True, cache=True)
def _look_up(numbers, positions, out):  # type: ignore[no-untyped-def]
    for j in range(len(positions)):
        out[j] = numbers[np.uint64(positions[j])]


@njit(nogil=True, cache=True)
def put(array, ids, values):  # type: ignore[no-untyped-def]
    """Copy (k, width) `values` into the rows `ids` of `array`."""
    if array.shape[1] == 1:
        target, source = array.reshape(-1), values.reshape(-1)
        for j in range(len(ids)):
            target[np.uint64(ids[j])] = source[j]
    else:
        for j in range(len(ids)):
            i = np.uint64(ids[j])
            for k in range(array.shape[1]):
                array[i, k] = values[j, k]


@njit(nogil=True, cache=True)
def add_at(sums, positions, terms):  # type: ignore[no-untyped-def]
    """Add (k, n_outputs) float32 `terms` to the rows `positions` of float64 `sums`."""
    for j in range(len(positions)):
        for k in range(sums.shape[1]):
            sums[positions[j], k] += terms[j, k]


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
    """The approximate bytes of so many packed positions in a vocabulary."""
    return min(2.0 * touched, n_local / 8)
