"""The compiled heap under `dadagrad.optim.projection_tree`: features, the least key on top.

Each parent has four children: half the levels of a binary heap, and the four keys that are compared
lie side by side.

Numba caches by file: kernels call only functions that are defined here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]
Places = NDArray[np.int32]

SHIFT, MASS, SIZE, CHANGES = range(4)
MAX_SHIFT = 1024.0  # radii; beyond it, keys lose digits that weights need
MIN_CHANGES = 1024


class Heap(NamedTuple):
    """Features with a weight by their keys, of one output."""

    signed: Array  # (n,): the key of each feature with the sign of its weight, 0 where it has none
    places: Places  # (n,): where in the heap a feature is
    keys: Array  # (n,): the key at each place of the heap
    order: Places  # (n,): the feature at each place of the heap
    totals: Array  # shift, mass (sum of keys - shift), features in the heap, changes since `_count`


Function = TypeVar("Function", bound=Callable[..., Any])
# Kernels allocate no arrays, so nobody needs to count references to them.
_compiled: Callable[[Function], Function] = njit(  # type: ignore[call-overload]
    nogil=True, cache=True, error_model="numpy", _nrt=False
)


@_compiled
def _put(heap: Heap, at: int, key: float, feature: int) -> None:
    """Put a feature at `at`."""
    heap.keys[at] = key
    heap.order[at] = feature
    heap.places[feature] = at


@_compiled
def _rise(heap: Heap, at: int, key: float, feature: int) -> None:
    """Put a feature at `at` or above, moving larger parents down."""
    keys, order = heap.keys, heap.order
    while at > 0:
        parent = (at - 1) >> 2
        if keys[parent] <= key:
            break
        _put(heap, at, keys[parent], order[parent])
        at = parent
    _put(heap, at, key, feature)


@_compiled
def _sink(heap: Heap, size: int, at: int, key: float, feature: int) -> None:
    """Put a feature at `at` or below, moving smaller children up."""
    keys, order = heap.keys, heap.order
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
        _put(heap, at, keys[child], order[child])
        at = child
    _put(heap, at, key, feature)


@_compiled
def _set_key(heap: Heap, size: int, at: int, key: float, feature: int) -> None:
    """Put a feature at `at`, or where it belongs from there."""
    if at > 0 and heap.keys[(at - 1) >> 2] > key:
        _rise(heap, at, key, feature)
    else:
        _sink(heap, size, at, key, feature)


@_compiled
def _remove(heap: Heap, size: int, at: int) -> int:
    """Take out what is at `at`; how many are left."""
    heap.signed[heap.order[at]] = 0.0
    size -= 1
    if at < size:
        _set_key(heap, size, at, heap.keys[size], heap.order[size])
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
def _change(heap: Heap, ids: NDArray[np.int64], change: Array) -> None:
    """Add `change` to the weights of `ids`, one after the other."""
    signed, places, totals = heap.signed, heap.places, heap.totals
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
                _set_key(heap, size, places[feature], key, feature)
            else:
                size += 1
                _rise(heap, size - 1, key, feature)
        elif old != 0.0:
            mass -= abs(weight)
            size = _remove(heap, size, places[feature])
    totals[MASS], totals[SIZE] = mass, size
    totals[CHANGES] += len(ids)


@_compiled
def add(heap: Heap, ids: NDArray[np.int64], change: Array, radius: float) -> None:
    """Add `change` to the weights of `ids` and project them all on the l1 ball of `radius`."""
    _change(heap, ids, change)
    signed, _, keys, order, totals = heap
    size, shift = int(totals[SIZE]), totals[SHIFT]
    if totals[CHANGES] > max(size, MIN_CHANGES):
        totals[MASS] = _count(keys, size, shift)
        totals[CHANGES] = 0.0
    mass = totals[MASS]
    if not mass > radius:
        return
    while size > 1 and keys[0] - shift <= (mass - radius) / size:
        mass -= keys[0] - shift
        size = _remove(heap, size, 0)
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
