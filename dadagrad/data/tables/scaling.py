"""Robust scaling of numbers: centers and scales from quantiles, and long tails compressed.

A number x becomes z = (x - center) / scale, and beyond 4 in absolute value 4 (1 + log(|z| / 4)):
a normal distribution stays as it is, and a count of a million does not drown all other features. A
missing number becomes 0, which is the center.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dadagrad.data.blocks import Block

MAX_SAMPLE, MAX_SAMPLE_ROWS = 1 << 24, 100_000
"""Cells and rows of the sample from which scales are learned."""

_QUARTILES = 0.25, 0.5, 0.75
_NORMAL_QUARTILES = 1.349  # distance of the quartiles of the standard normal distribution
LINEAR = 4.0
"""Scaled number beyond which numbers are compressed."""


def learn_scale(sample: Block, n_numbers: int, first_missing: int) -> list[tuple[float, float]]:
    """Center and scale of each of the first `n_numbers` features.

    The center is the median, and the scale that of a normal distribution with these quartiles. A
    column that is mostly one number has the mean deviation of the others as its scale.
    """
    dense = np.zeros((sample.n_rows, n_numbers), np.float64, order="F")  # sorted by column
    rows = np.repeat(np.arange(sample.n_rows), np.diff(sample.indptr))
    is_number, is_missing = sample.ids < n_numbers, sample.ids >= first_missing
    values = np.ones(sample.nnz, np.float32) if sample.values is None else sample.values
    dense[rows[is_number], sample.ids[is_number]] = values[is_number]
    dense[rows[is_missing], sample.ids[is_missing] - first_missing] = np.nan
    return [scale_of(column[~np.isnan(column)]) for column in dense.T]


def scale_of(numbers: NDArray[np.float64]) -> tuple[float, float]:
    """Center and scale of numbers."""
    if not len(numbers):
        return 0.0, 1.0
    numbers = np.sort(numbers)  # the order of the sample changes no bit
    low, center, high = numbers[[round(share * (len(numbers) - 1)) for share in _QUARTILES]]
    scale = (high - low) / _NORMAL_QUARTILES
    if scale == 0:
        others = np.abs(numbers[numbers != center] - center)
        scale = others.mean() if len(others) else 1.0
    return float(center), float(scale)


def scale_numbers(block: Block, numbers: Sequence[Any], first_missing: int) -> Block:
    """`block` with scaled numbers, the first features; zeros are not stored."""
    centers = np.array([column.center for column in numbers])
    scales = np.array([column.scale for column in numbers])
    values = np.ones(block.nnz, np.float32) if block.values is None else block.values
    indptr, ids, scaled = _scale(
        block.indptr, np.asarray(block.ids, np.int64), values, centers, scales, first_missing
    )
    return replace(block, indptr=indptr, ids=ids, values=scaled)


@njit(cache=True, nogil=True)
def _compressed(number, center, scale):  # type: ignore[no-untyped-def]
    z = (number - center) / scale
    if abs(z) <= LINEAR:
        return z
    return np.sign(z) * LINEAR * (1.0 + np.log(abs(z) / LINEAR))


@njit(cache=True, nogil=True)
def _scale(indptr, ids, values, centers, scales, first_missing):  # type: ignore[no-untyped-def]
    n_rows, n_numbers = len(indptr) - 1, len(centers)
    zeros = np.empty(n_numbers, np.float32)
    for number in range(n_numbers):
        zeros[number] = _compressed(0.0, centers[number], scales[number])
    n_filled = np.count_nonzero(zeros)
    out_indptr = np.zeros(n_rows + 1, np.int64)
    out_ids = np.empty(len(ids) + n_rows * n_filled, np.int64)
    out_values = np.empty(len(out_ids), np.float32)
    row_values = np.empty(n_numbers, np.float32)
    end = 0
    for row in range(n_rows):
        row_values[:] = zeros
        first_other = indptr[row + 1]
        for entry in range(indptr[row], indptr[row + 1]):
            feature = ids[entry]
            if feature < n_numbers:
                row_values[feature] = _compressed(values[entry], centers[feature], scales[feature])
            else:
                first_other = min(first_other, entry)
                if feature >= first_missing:
                    row_values[feature - first_missing] = 0.0
        for number in range(n_numbers):
            if row_values[number] != 0.0:
                out_ids[end] = number
                out_values[end] = row_values[number]
                end += 1
        for entry in range(first_other, indptr[row + 1]):
            out_ids[end] = ids[entry]
            out_values[end] = values[entry]
            end += 1
        out_indptr[row + 1] = end
    return out_indptr, out_ids[:end].copy(), out_values[:end].copy()
