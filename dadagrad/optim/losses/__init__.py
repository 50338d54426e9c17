"""Losses: the error of a score, and its slope.

With score m = <w, x> + b and label y, a loss has a ``value(m, y)`` and a
``slope(m, y) = d value / d m``; the gradient of a row is ``slope * x``. Everything here is plain
NumPy over whole arrays. The compiled formulas in `dadagrad.kernels.training` are tested against it.
"""

from __future__ import annotations

from dadagrad.optim.losses.base import LOSSES, Link, Loss, Task, check_targets
from dadagrad.optim.losses.binary import HINGES, Hinge, Logistic, Ranking, SquaredHinge
from dadagrad.optim.losses.multiclass import MulticlassHinge, Softmax
from dadagrad.optim.losses.regression import (
    MAX_LOG_MEAN,
    Absolute,
    Huber,
    Poisson,
    Quantile,
    Squared,
)

__all__ = [
    "HINGES",
    "LOSSES",
    "MAX_LOG_MEAN",
    "Absolute",
    "Hinge",
    "Huber",
    "Link",
    "Logistic",
    "Loss",
    "MulticlassHinge",
    "Poisson",
    "Quantile",
    "Ranking",
    "Softmax",
    "Squared",
    "SquaredHinge",
    "Task",
    "check_targets",
]
