"""Compiled progressive validation: all that is counted of an output, in one pass over its margins.

Held by tests to the plain formulas of `dadagrad.losses`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from dadagrad.kernels import (
    ABSOLUTE,
    HINGE,
    HUBER,
    LOGISTIC,
    MOST_LOG_MEAN,
    QUANTILE,
    SQUARED,
    SQUARED_HINGE,
)

_compiled = njit(nogil=True, cache=True, error_model="numpy")
_inlined = njit(nogil=True, cache=True, error_model="numpy", inline="always")


@_inlined
def _loss_value(loss, parameter, margin, target):  # type: ignore[no-untyped-def]
    """The loss of one example."""
    if loss == HINGE:
        return max(0.0, 1.0 - target * margin)
    if loss == SQUARED_HINGE:
        shortfall = max(0.0, 1.0 - target * margin)
        return 0.5 * shortfall * shortfall
    if loss == LOGISTIC:
        agreement = target * margin
        return max(0.0, -agreement) + np.log1p(np.exp(-abs(agreement)))
    distance = margin - target
    if loss == SQUARED:
        return 0.5 * distance * distance
    if loss == ABSOLUTE:
        return abs(distance)
    if loss == HUBER:
        inside = min(abs(distance), parameter)
        return inside * (abs(distance) - 0.5 * inside)
    if loss == QUANTILE:
        return max(-parameter * distance, (1.0 - parameter) * distance)
    mean = np.exp(min(margin, MOST_LOG_MEAN)) * (1.0 + max(margin - MOST_LOG_MEAN, 0.0))
    least = target - target * np.log(target) if target > 0.0 else 0.0
    return max(mean - target * margin - least, 0.0)


@_compiled
def count_rows(batch, problem, other, margins):  # type: ignore[no-untyped-def]
    """How well (n_rows,) float64 `margins` of one output predict the rows.

    Parameters
    ----------
    batch : Batch
    problem : Problem
        Of the output, whose loss couples nothing.
    other : float
        The only label besides ``problem.positive`` that there may be; NaN if there is no rule.
    margins : (n_rows,) float64

    Returns
    -------
    loss, mistakes : float
        Importance-weighted sums. A margin of 0 predicts -1. The loss is NaN where a margin is not
        finite.
    unknown : int
        Rows whose label is not allowed.
    """
    loss, parameter = problem.loss, problem.loss_parameter
    column, positive = problem.label_column[0], problem.positive[0]
    signs, checked = not np.isnan(positive), not np.isnan(other)
    total, mistakes, unknown = 0.0, 0.0, 0
    for row in range(len(margins)):
        importance = batch.importance[row] if len(batch.importance) else 1.0
        label, margin = batch.labels[column, row], margins[row]
        target = (1.0 if label == positive else -1.0) if signs else label
        total += importance * _loss_value(loss, parameter, margin, target) + 0.0 * margin
        # Sums, and no branches: half of the rows take either.
        mistakes += importance * ((margin > 0.0) != (target > 0.0))
        unknown += checked & (label != positive) & (label != other)
    return total, mistakes, unknown
