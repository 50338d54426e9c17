"""Compiled helpers: taking out and putting back the state of some features, and small batches.

A piece of a few rows touches a small share of its partition's vocabulary, and a step a small share
of all features. What is done once a piece or once a step must not walk through the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

ONE, SIX, BITS = np.uint64(1), np.uint64(6), np.uint64(63)


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
def lowest_one(bits):  # type: ignore[no-untyped-def]
    """Which of 64 bits, not all 0, is the lowest that is 1."""
    return np.int64(count_ones((bits ^ (bits & (bits - ONE))) - ONE))


@njit(nogil=True, cache=True, inline="always")
def place_among(value, marks, before):  # type: ignore[no-untyped-def]
    """How many numbers are marked below `value`; `before` says it for each word of marks."""
    word = value >> SIX
    below = marks[word] & ((ONE << (value & BITS)) - ONE)
    return before[word] + np.int64(count_ones(below))


@njit(nogil=True, cache=True)
def mark(indices, n_local):  # type: ignore[no-untyped-def]
    """A bit for each number below `n_local`, in words of 64, set where it is among `indices`.

    That is all it takes to count distinct values, and all of it stays close to the processor.
    """
    marks = np.zeros((n_local + 63) // 64, np.uint64)
    for index in indices:
        value = np.uint64(index)
        marks[value >> SIX] |= ONE << (value & BITS)
    return marks


@njit(nogil=True, cache=True)
def marked(marks):  # type: ignore[no-untyped-def]
    """The numbers that are marked, (k,) int32, and how many there are before each word of marks."""
    before = np.empty(len(marks), np.int32)
    count = 0
    for word in range(len(marks)):
        before[word] = count
        count += int(count_ones(marks[word]))
    positions = np.empty(count, np.int32)
    count = 0
    for word in range(len(marks)):
        left = marks[word]
        while left:
            positions[count] = 64 * word + lowest_one(left)
            count += 1
            left &= left - ONE
    return positions, before


@njit(nogil=True, cache=True)
def relabel(indices, n_local):  # type: ignore[no-untyped-def]
    """The distinct values of `indices`, increasing, and where each index is in them.

    All are below `n_local`. A value is behind all marks before its own.
    """
    marks = mark(indices, n_local)
    positions, before = marked(marks)
    relabelled = np.empty_like(indices)
    for j in range(len(indices)):
        relabelled[j] = place_among(np.uint64(indices[j]), marks, before)
    return positions, relabelled


@njit(nogil=True, cache=True)
def unite(ids, others):  # type: ignore[no-untyped-def]
    """All of two increasing int64 arrays, each once, and where each of `ids` and of `others` is.

    Nobody can predict which is the smaller: steps that are 0 or 1 take half the time of branches.
    """
    united = np.empty(len(ids) + len(others), np.int64)
    places, other_places = np.empty(len(ids), np.int64), np.empty(len(others), np.int64)
    i, j, count = 0, 0, 0
    while i < len(ids) and j < len(others):
        one, other = ids[i], others[j]
        united[count] = min(one, other)
        # Until it is left behind, a number's place is written again.
        places[i] = other_places[j] = count
        i += int(one <= other)
        j += int(other <= one)
        count += 1
    for rest in range(i, len(ids)):
        united[count], places[rest] = ids[rest], count
        count += 1
    for rest in range(j, len(others)):
        united[count], other_places[rest] = others[rest], count
        count += 1
    return united[:count], places, other_places


@njit(nogil=True, cache=True)
def common(ids, others):  # type: ignore[no-untyped-def]
    """Where in either of two increasing arrays those are that both have; as `unite`."""
    most = min(len(ids), len(others))
    places, other_places = np.empty(most, np.int64), np.empty(most, np.int64)
    i, j, count = 0, 0, 0
    while i < len(ids) and j < len(others):
        one, other = ids[i], others[j]
        places[count], other_places[count] = i, j
        count += int(one == other)
        i += int(one <= other)
        j += int(other <= one)
    return places[:count], other_places[:count]


@njit(nogil=True, cache=True)
def add_common(sums, ids, others, terms, divisor):  # type: ignore[no-untyped-def]
    """Add to the rows of `sums`, of increasing `ids`, those of `terms` that both have, divided."""
    places, other_places = common(ids, others)
    for j in range(len(places)):
        for k in range(sums.shape[1]):
            sums[places[j], k] += terms[other_places[j], k] / divisor


@njit(nogil=True, cache=True)
def take(array, ids, out):  # type: ignore[no-untyped-def]
    """Into (k, width) `out` the rows `ids` of `array`."""
    if array.shape[1] == 1:
        numbers, taken = array.reshape(-1), out.reshape(-1)
        for j in range(len(ids)):
            taken[j] = numbers[np.uint64(ids[j])]
    else:
        for j in range(len(ids)):
            for k in range(array.shape[1]):
                out[j, k] = array[ids[j], k]


def look_up(numbers: NDArray[Any], positions: NDArray[Any]) -> NDArray[Any]:
    """`numbers[positions]` several times as fast; `IndexError` where there is no such number."""
    if len(positions) and not 0 <= positions.min() <= positions.max() < len(numbers):
        raise IndexError(
            f"positions from {positions.min()} to {positions.max()} in {len(numbers)} numbers"
        )
    found = np.empty(len(positions), numbers.dtype)
    take(numbers.reshape(-1, 1), positions, found.reshape(-1, 1))
    return found


@njit(nogil=True, cache=True)
def put(array, ids, values):  # type: ignore[no-untyped-def]
    """Make (k, width) `values` the rows `ids` of `array`."""
    if array.shape[1] == 1:
        numbers, given = array.reshape(-1), values.reshape(-1)
        for j in range(len(ids)):
            numbers[np.uint64(ids[j])] = given[j]
    else:
        for j in range(len(ids)):
            for k in range(array.shape[1]):
                array[ids[j], k] = values[j, k]


@njit(nogil=True, cache=True)
def add_at(sums, places, terms):  # type: ignore[no-untyped-def]
    """Add (k, n_outputs) float32 `terms` to the rows `places` of float64 `sums`."""
    for j in range(len(places)):
        for k in range(sums.shape[1]):
            sums[places[j], k] += terms[j, k]
