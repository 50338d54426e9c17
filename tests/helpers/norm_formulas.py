"""The prox of the norms on rows in plain NumPy: what the compiled kernels are held to.

Each takes (n_rows, n) arrays and solves every row by itself:

    argmin_w  strength |w|_2 or |w|_inf  +  1/2 sum_i curvature_i (w_i - center_i)^2
"""

from __future__ import annotations

import numpy as np

from dadagrad.optim.regularizers.base import MIN_CURVATURE, Array

MAX_HALVINGS = 3000


def l2_rows(center: Array, curvature: Array, strength: float) -> Array:
    """Fig. 4 of Duchi, Hazan and Singer (2011), bisection only.

    w = -H^-1 (u + alpha(theta)) with alpha = -(H^-1 + theta I)^-1 H^-1 u and u = -H center, so
    w = theta center / (1 / H + theta), where theta makes |center / (1 / H + theta)| = strength.
    """
    counts = (curvature > MIN_CURVATURE) & (center != 0)
    center = np.where(counts, center, 0.0)
    inverse = 1.0 / np.where(counts, curvature, 1.0)
    length = np.linalg.norm(center / inverse, axis=1)
    kept = length > strength
    if strength == 0:
        return center
    low = np.where(counts, inverse, np.inf).min(axis=1) * (length / strength - 1.0)
    high = np.where(counts, inverse, 0.0).max(axis=1) * (length / strength - 1.0)
    low, high = np.where(kept, low, 0.0), np.where(kept, high, 0.0)
    for _ in range(MAX_HALVINGS):
        middle = 0.5 * (low + high)
        if np.all((middle == low) | (middle == high)):
            break
        alpha = center / (inverse + middle[:, np.newaxis])
        inside = np.linalg.norm(alpha, axis=1) <= strength
        low, high = np.where(inside, low, middle), np.where(inside, middle, high)
    theta = np.where(kept, 0.5 * (low + high), 0.0)[:, np.newaxis]
    return theta * center / (inverse + theta)


def l_infinity_rows(center: Array, curvature: Array, strength: float) -> Array:
    """Through the dual, the projection of H |center| on the weighted l1 ball, by sorting.

    w = sign(center) min(|center|, M) with sum_i curvature_i [|center_i| - M]_+ = strength.
    """
    curvature = np.where(curvature > MIN_CURVATURE, curvature, 0.0)
    sizes = np.where(curvature > 0, np.abs(center), 0.0)
    order = np.argsort(-sizes, axis=1, kind="stable")
    sizes_down = np.take_along_axis(sizes, order, axis=1)
    curvature_down = np.take_along_axis(curvature, order, axis=1)
    sums = np.cumsum(sizes_down * curvature_down, axis=1)
    slopes = np.cumsum(curvature_down, axis=1)
    positive = (sums - sizes_down * slopes < strength) & (slopes > 0)
    last = positive.shape[1] - 1 - np.argmax(positive[:, ::-1], axis=1)[:, np.newaxis]
    found = positive.any(axis=1, keepdims=True)
    total = np.take_along_axis(sums, last, axis=1) - strength
    slope = np.where(found, np.take_along_axis(slopes, last, axis=1), 1.0)
    level = np.where(found, np.maximum(total / slope, 0.0), sizes.max(axis=1, keepdims=True))
    return np.sign(center) * np.minimum(sizes, level)
