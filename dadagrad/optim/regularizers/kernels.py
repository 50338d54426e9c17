"""Compiled kernels of the norms that act on rows and on blocks.

All take flat arrays that are cut into segments: segment s is ``[starts[s], starts[s + 1])``. A row
of a matrix is a segment, as is a block of features. The tests have the same in plain NumPy, and
hold the two together.

Sums are taken in runs of fixed length, so that their rounding stays small in segments of millions,
and in a fixed order, so that the bits do not depend on the machine.

Numba caches by file: kernels call only functions that are defined here.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]
Starts = NDArray[np.int64]

MIN_CURVATURE = 1e-300
MAX_STEPS = 100
RUN = 256  # terms added up before the sum joins the sum of the whole segment
CLOSE = 4.0 * 2.0**-52

_compiled = njit(nogil=True, cache=True, error_model="numpy")


@_compiled
def _length(products: Array, curvatures: Array, size: int, shift: float) -> tuple[float, float]:
    """|x|_2 and -(d |x|_2 / d shift) / |x|_2 of x = products / (curvatures + shift)."""
    squares = decline = 0.0
    for first in range(0, size, RUN):
        run_squares = run_decline = 0.0
        for i in range(first, min(first + RUN, size)):
            inverse = 1.0 / (curvatures[i] + shift)
            weight = products[i] * inverse
            run_squares += weight * weight
            run_decline += weight * weight * inverse
        squares += run_squares
        decline += run_decline
    return np.sqrt(squares), decline / squares


@_compiled
def _multiplier(products: Array, curvatures: Array, size: int, radius: float) -> float:
    """The least shift >= 0 with |products / (curvatures + shift)|_2 <= radius.

    Fig. 4 of Duchi, Hazan and Singer (2011): the length falls with the shift and lies between
    length(0) / (1 + shift / least curvature) and length(0) / (1 + shift / largest curvature),
    which brackets the shift. Newton's method on 1 / length (nearly straight, and concave, so steps
    from the left do not overshoot) converges in a few steps; a bisection of the bracket helps
    where it would creep. The largest product / curvature should be about 1.
    """
    length, _ = _length(products, curvatures, size, 0.0)
    if not length > radius:
        return 0.0
    least, largest = np.inf, 0.0
    for i in range(size):
        least = min(least, curvatures[i])
        largest = max(largest, curvatures[i])
    low = least * (length / radius - 1.0)
    high = largest * (length / radius - 1.0)
    shift, before = low, np.inf
    for _ in range(MAX_STEPS):
        length, decline = _length(products, curvatures, size, shift)
        excess = length / radius - 1.0
        if excess > 0.0:
            low = shift
        else:
            high = shift
        if not (abs(excess) > CLOSE and low < high):
            break
        following = shift + excess / decline
        if not low < following < high or abs(excess) > 0.25 * before:
            wide = high > 2.0 * low
            following = np.sqrt(low) * np.sqrt(high) if wide else 0.5 * (low + high)
            if not low < following < high:
                break
        shift, before = following, abs(excess)
    return shift


@_compiled
def _unit(largest: float) -> float:
    """A power of two that brings `largest` close to 1: multiplying by it rounds nothing."""
    if not 0.0 < largest < np.inf:
        return 1.0
    return float(2.0 ** -max(np.floor(np.log2(largest)), -1000.0))


@_compiled
def _scale_segments(
    center: Array, curvature: Array, starts: Starts, radius: float, is_norm: bool, out: Array
) -> None:
    longest = 0
    for s in range(len(starts) - 1):
        longest = max(longest, starts[s + 1] - starts[s])
    products, metric = np.empty(longest), np.empty(longest)
    for s in range(len(starts) - 1):
        size, largest = 0, 0.0
        for i in range(starts[s], starts[s + 1]):
            if curvature[i] > MIN_CURVATURE and center[i] != 0.0:
                products[size] = center[i]
                metric[size] = 1.0 / curvature[i] if is_norm else curvature[i]
                length = abs(curvature[i] * center[i]) if is_norm else abs(center[i])
                largest = max(largest, length)
                size += 1
        unit = _unit(largest)
        for j in range(size):
            products[j] *= unit if is_norm else unit * metric[j]
        shift = np.inf
        if not (is_norm and radius == 0.0):
            shift = _multiplier(products, metric, size, radius * unit)
        for i in range(starts[s], starts[s + 1]):
            if not curvature[i] > MIN_CURVATURE or (is_norm and shift == 0.0):
                out[i] = 0.0
            elif is_norm:
                out[i] = center[i] / (1.0 + 1.0 / (shift * curvature[i]))
            else:
                out[i] = center[i] / (1.0 + shift / curvature[i])


@_compiled
def l2_norms(center: Array, curvature: Array, starts: Starts, strength: float, out: Array) -> None:
    """argmin_w  sum_s strength |w_s|_2 + 1/2 sum_i curvature_i (w_i - center_i)^2, into `out`.

    The dual of a segment is the projection of H center on the ball of radius `strength` in the
    metric 1 / H: alpha = center / (1 / H + theta), and w = theta alpha.
    """
    _scale_segments(center, curvature, starts, strength, True, out)


@_compiled
def l2_balls(center: Array, curvature: Array, starts: Starts, radius: float, out: Array) -> None:
    """The nearest point in the metric with |w_s|_2 <= radius for every segment, into `out`."""
    _scale_segments(center, curvature, starts, radius, False, out)


@_compiled
def l_infinity_norms(
    center: Array, curvature: Array, starts: Starts, strength: float, out: Array
) -> None:
    """argmin_w  sum_s strength |w_s|_inf + 1/2 sum_i curvature_i (w_i - center_i)^2, into `out`.

    |w| is cut at the level M where sum_i curvature_i [|center_i| - M]_+ = strength. That sum is
    convex and piecewise linear in M, so Newton's method from M = 0 ends at the root in few steps,
    and at most as many as a segment is long.
    """
    for s in range(len(starts) - 1):
        level = 0.0
        for step in range(starts[s + 1] - starts[s] + 1):
            total = slope = 0.0
            for i in range(starts[s], starts[s + 1]):
                size = abs(center[i])
                if size > level and curvature[i] > MIN_CURVATURE:
                    total += curvature[i] * (size - level)
                    slope += curvature[i]
            if step == 0 and not total > strength:
                level = 0.0 if total <= strength else np.nan
                break
            if slope == 0.0 or not level + (total - strength) / slope > level:
                break
            level += (total - strength) / slope
        for i in range(starts[s], starts[s + 1]):
            if level == 0.0 or not curvature[i] > MIN_CURVATURE:
                out[i] = 0.0
            else:
                out[i] = np.copysign(min(abs(center[i]), level), center[i])
