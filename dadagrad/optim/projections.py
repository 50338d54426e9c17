"""Projections on the l1 ball and the simplex, weighted, and on the simplex with a floor.

All of them come down to one number: the threshold theta with

    sum_i [center_i - theta slope_i]_+ = total.

* simplex {z >= 0, sum z = c}: center = v, slope = 1 (Duchi, Shalev-Shwartz, Singer and Chandra
  2008, eq. 3 and 6)
* weighted, {z >= 0, <a, z> = c}: z_i = [v_i - theta a_i]_+, so center = a v and slope = a^2 (Duchi,
  Hazan and Singer 2011, eq. 26 and fig. 3)
* in a diagonal metric H, {w >= 0, sum w = c}: w_i = [center_i - theta / H_i]_+, so slope = 1 / H
* the dual of the l-infinity norm in a diagonal metric: center = H |c|, slope = H

The coordinates that stay positive are those whose ratio center_i / slope_i exceeds theta. Sorting
finds them in O(n log n) (2011, fig. 3; 2008, fig. 1), random pivots in expected O(n) (2008,
fig. 2, here with slopes). For sparse gradients see `dadagrad.optim.projection_tree`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from dadagrad.errors import InputError
from dadagrad.optim.arrays import Array

Method = Literal["auto", "sort", "pivot"]

SORT_BELOW = 4_000  # where sorting is as fast as pivots
MAX_REFINEMENTS = 4


def threshold_by_sorting(centers: Array, slopes: Array, total: float) -> float:
    """The theta with sum [centers - theta slopes]_+ = total, by sorting: O(n log n).

    There is at least one center; `slopes` and `total` are positive.
    """
    ratios = centers / slopes
    order = np.argsort(-ratios, kind="stable")
    sums, slope_sums = np.cumsum(centers[order]), np.cumsum(slopes[order])
    positive = sums - ratios[order] * slope_sums < total
    positive[0] = True
    # Running sums round with every term; those of the coordinates found are taken again, pairwise.
    support = order[: np.flatnonzero(positive)[-1] + 1]
    return float((centers[support].sum() - total) / slopes[support].sum())


def threshold_by_pivot(centers: Array, slopes: Array, total: float) -> float:
    """The same theta in expected O(n): a random pivot tells on which side of it theta lies.

    Each round sums over the coordinates whose ratio is at least the pivot's. If at theta = pivot
    they sum to less than `total`, theta is smaller and they all stay positive; otherwise theta is
    not smaller, and all up to the pivot are 0. Coordinates with equal ratios fall together.
    """
    rng = np.random.default_rng(0)
    ratios = centers / slopes
    open_centers, open_slopes, open_ratios = centers, slopes, ratios
    kept_sum = kept_slope = 0.0
    while len(open_ratios):
        pivot = open_ratios[rng.integers(len(open_ratios))]
        above = open_ratios >= pivot
        new_sum = kept_sum + float(open_centers[above].sum())
        new_slope = kept_slope + float(open_slopes[above].sum())
        if new_sum - new_slope * pivot < total:
            kept_sum, kept_slope = new_sum, new_slope
            still_open = ~above
        else:
            still_open = open_ratios > pivot
        open_centers, open_slopes = open_centers[still_open], open_slopes[still_open]
        open_ratios = open_ratios[still_open]
    if kept_slope == 0.0:  # `total` is lost in the rounding of the largest center
        largest = np.argmax(ratios)
        return float((centers[largest] - total) / slopes[largest])
    return (kept_sum - total) / kept_slope


def threshold(centers: Array, slopes: Array, total: float, method: Method = "auto") -> float:
    """The theta with sum [centers - theta slopes]_+ = total, by what is fastest for n."""
    if method == "auto":
        method = "sort" if len(centers) < SORT_BELOW else "pivot"
    if method == "sort":
        return threshold_by_sorting(centers, slopes, total)
    return threshold_by_pivot(centers, slopes, total)


def shares(centers: Array, slopes: Array, total: float, method: Method = "auto") -> Array:
    """The point [centers - theta slopes]_+ whose sum is `total`.

    Where the centers are so much larger than `total` that it is lost in their rounding, the search
    starts again at centers - theta slopes, which has the same answer.
    """
    for _ in range(MAX_REFINEMENTS):
        centers = centers - threshold(centers, slopes, total, method) * slopes
        projected = np.maximum(centers, 0.0)
        reached = float(projected.sum())
        if abs(reached - total) <= 1e-12 * total:
            break
    return projected * (total / reached) if reached > 0.0 else projected


def project_l1_ball(vector: Array, slopes: Array, radius: float, method: Method = "auto") -> Array:
    """The point with |w|_1 <= radius nearest to `vector` in the diagonal metric 1 / `slopes`.

    Each coordinate keeps its sign, so this is the projection of |vector| on the simplex unless
    `vector` is inside the ball (Duchi et al. 2008, section 4).
    """
    sizes = np.abs(vector)
    if sizes.sum() <= radius:
        return vector.copy()
    return np.copysign(shares(sizes, slopes, radius, method), vector)


def entropic_floor_projection(weights: Array, floor: float) -> Array:
    """The point of {w : w_j >= floor, sum w = 1} nearest to `weights` in relative entropy.

    argmin sum_j w_j log(w_j / u_j) has w_j = max(floor, u_j / Z): sort u, and put the smallest l at
    the floor, for the first l that leaves all others above it (Shalev-Shwartz and Singer 2007,
    appendix B). The others share what is left, so Z = sum_{j > l} u_j / (1 - l floor). The paper
    prints 1 - floor instead of 1 - l floor, which misses sum w = 1 for l > 1.

    Parameters
    ----------
    weights : (n,) or (n, n_outputs) float64
        u: not negative, with a positive sum; they need not sum to 1. Each column by itself.
    floor : float
        At least 0, at most 1 / n.
    """
    n = len(weights)
    weights = weights / weights.max(axis=0)
    ordered = np.sort(weights, axis=0)
    sums_of_larger = np.cumsum(ordered[::-1], axis=0)[::-1]
    free = 1.0 - floor * np.arange(n).reshape((n,) + (1,) * (weights.ndim - 1))
    # With the l smallest at the floor, the others share free[l]; weight l must get the floor of it.
    enough = ordered * free >= floor * sums_of_larger
    at_floor = np.where(enough.any(axis=0), enough.argmax(axis=0), n - 1)
    above = np.arange(n).reshape(free.shape) >= at_floor
    sums = np.where(above, ordered, 0.0).sum(axis=0)
    projected: Array = np.maximum(floor, weights * ((1.0 - floor * at_floor) / sums))
    return projected


def check_floor(floor: float, n: int) -> None:
    """Raise `InputError` if `n` weights that sum to 1 cannot all be at least `floor`."""
    # n (1 / n) may round to just above 1.
    if not 0 <= n * floor <= 1.0 + 1e-12:
        raise InputError(
            f"a floor of {floor} under {n} weights that sum to 1 is not possible; choose a floor "
            f"from 0 to {1 / max(n, 1):g}"
        )
