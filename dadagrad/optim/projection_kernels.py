"""The compiled heap under `dadagrad.optim.projection_tree`: features, the least key on top.

Each parent has four children: half the levels of a binary heap, and the four keys that are compared
lie side by side.

* signed (n,) float64: the key of each feature with the sign of its weight, 0 where it has none
* place (n,) int32: where in the heap a feature is
* keys (n,) float64 and order (n,) int32: key and feature at each place of the heap
* totals (4,) float64: shift, mass (sum of keys - shift), features in the heap, changes since the
  mass was last counted

Numba caches by file: kernels call only functions that are defined here.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]
Places = NDArray[np.int32]

SHIFT, MASS, SIZE, CHANGES = range(4)
MAX_SHIFT = 1024.0  # radii; beyond it, keys lose digits that weights need
MIN_CHANGES = 1024

_compiled = njit(nogil=True, cache=True, error_model="numpy")


@_compiled
def _put(keys: Array, order: Places, place: Places, at: int, key: float, feature: int) -> None:
    """Put a feature at `at`."""
    keys[at] = key
    order[at] = feature
    place[feature] = at


@_compiled
def _rise(keys: Array, order: Places, place: Places, at: int, key: float, feature: int) -> None:
    """Put a feature at `at` or above, moving larger parents down."""
    while at > 0:
        parent = (at - 1) >> 2
        if keys[parent] <= key:
            break
        _put(keys, order, place, at, keys[parent], order[parent])
        at = parent
    _put(keys, order, place, at, key, feature)


@_compiled
def _sink(
    keys: Array, order: Places, place: Places, size: int, at: int, key: float, feature: int
) -> None:
    """Put a feature at `at` or below, moving smaller children up."""
    while True:
        first = 4 * at + 1
        if first >= size:
            break
        child = first
        for other in range(first + 1, min(first + 4, size)):
            if keys[other] < keys[child]:
                child = other
        if keys[child] >= key:
            break
        _put(keys, order, place, at, keys[child], order[child])
        at = child
    _put(keys, order, place, at, key, feature)


@_compiled
def _set_key(
    keys: Array, order: Places, place: Places, size: int, at: int, key: float, feature: int
) -> None:
    """Put a feature at `at`, or where it belongs from there."""
    if at > 0 and keys[(at - 1) >> 2] > key:
        _rise(keys, order, place, at, key, feature)
    else:
        _sink(keys, order, place, size, at, key, feature)


@_compiled
def _remove(signed: Array, keys: Array, order: Places, place: Places, size: int, at: int) -> int:
    """Take out what is at `at`; how many are left."""
    signed[order[at]] = 0.0
    size -= 1
    if at < size:
        _set_key(keys, order, place, size, at, keys[size], order[size])
    return size


@_compiled
def _count(keys: Array, size: int, shift: float) -> float:
    """The mass, added up anew in short runs."""
    mass = 0.0
    for first in range(0, size, 256):
        run = 0.0
        for at in range(first, min(first + 256, size)):
            run += keys[at] - shift
        mass += run
    return mass


@_compiled
def _change(
    ids: NDArray[np.int64],
    change: Array,
    signed: Array,
    place: Places,
    keys: Array,
    order: Places,
    totals: Array,
) -> None:
    """Add `change` to the weights of `ids`, one after the other."""
    shift, mass, size = totals[SHIFT], totals[MASS], int(totals[SIZE])
    for j in range(len(ids)):
        feature = ids[j]
        old = signed[feature]
        weight = np.copysign(abs(old) - shift, old) if old != 0.0 else 0.0
        changed = weight + change[j]
        key = abs(changed) + shift
        if key > shift:
            signed[feature] = np.copysign(key, changed)
            mass += (key - shift) - abs(weight)
            if old != 0.0:
                _set_key(keys, order, place, size, place[feature], key, feature)
            else:
                size += 1
                _rise(keys, order, place, size - 1, key, feature)
        elif old != 0.0:
            mass -= abs(weight)
            size = _remove(signed, keys, order, place, size, place[feature])
    totals[MASS], totals[SIZE] = mass, size
    totals[CHANGES] += len(ids)


@_compiled
def add(
    ids: NDArray[np.int64],
    change: Array,
    radius: float,
    signed: Array,
    place: Places,
    keys: Array,
    order: Places,
    totals: Array,
) -> None:
    """Add `change` to the weights of `ids` and project them all on the l1 ball of `radius`."""
    _change(ids, change, signed, place, keys, order, totals)
    size, shift = int(totals[SIZE]), totals[SHIFT]
    if totals[CHANGES] > max(size, MIN_CHANGES):
        totals[MASS] = _count(keys, size, shift)
        totals[CHANGES] = 0.0
    mass = totals[MASS]
    if not mass > radius:
        return
    while size > 1 and keys[0] - shift <= (mass - radius) / size:
        mass -= keys[0] - shift
        size = _remove(signed, keys, order, place, size, 0)
    moved = shift + (mass - radius) / size
    if size == 1:  # exact, however large the last weight was
        feature = order[0]
        signed[feature] = np.copysign(radius, signed[feature])
        keys[0] = radius
        mass, shift = radius, 0.0
    elif moved <= MAX_SHIFT * radius:
        mass -= size * (moved - shift)
        shift = moved
    else:
        for at in range(size):  # in the same order, so still a heap
            keys[at] = max(keys[at] - moved, 0.0)
            signed[order[at]] = np.copysign(keys[at], signed[order[at]])
        mass, shift = _count(keys, size, 0.0), 0.0
    totals[SHIFT], totals[MASS], totals[SIZE] = shift, mass, size
