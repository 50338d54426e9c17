"""Types of arrays in the equation, and sparse rows of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ids = NDArray[np.int64]
Arrays = dict[str, NDArray[Any]]
"""All that an algorithm remembers, by name."""
Shapes = dict[str, tuple[int, ...]]
"""Shapes of arrays by name; each of their numbers has 8 bytes."""


def quotient(numerator: Array | float, denominator: Array) -> Array:
    """`numerator` / `denominator`, and 0 where that is not above 0."""
    zeros = np.zeros(np.broadcast(numerator, denominator).shape)
    return np.divide(numerator, denominator, out=zeros, where=denominator > 0)


def is_nonzero(array: NDArray[Any]) -> NDArray[np.bool_]:
    """(n,): True for the rows of an (n, m) array that have a number other than 0."""
    differs: NDArray[np.bool_] = array != 0
    # The common case apart: numpy is slow at reducing rows of one.
    return differs[:, 0] if differs.shape[1] == 1 else np.asarray(differs.any(axis=1))


def rows_of(array: Array, ids: Ids | None) -> Array:
    """The rows `ids` of an array, or all of it."""
    return array if ids is None else array[ids]


def add_rows(total: Array, change: Array, ids: Ids | None) -> Array:
    """`total` + `change`: in place where `change` has only the rows `ids`."""
    if ids is None:
        return total + change
    total[ids] += change
    return total


def all_rows(part: Array, ids: Ids | None, n_rows: int) -> Array:
    """An array of `n_rows` with `part` in the rows `ids` and 0 in all others."""
    if ids is None:
        return part
    whole = np.zeros((n_rows, *part.shape[1:]))
    whole[ids] = part
    return whole


def mean_decay(pace: Array) -> Array:
    """The mean of exp(-pace h) for h from 0 to 1."""
    positive = np.where(pace > 0.0, pace, 1.0)
    return np.where(pace > 0.0, -np.expm1(-positive) / positive, 1.0)
