"""The algorithms of Duchi, Hazan and Singer 2011 as settings of `dadagrad.train`.

All are online: one pass, a step for each row, no intercept, the last weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad import Dataset, TrainResult, dataset_from_arrays, train

ONLINE: dict[str, Any] = {
    "loss": "hinge",
    "batch_size": 1,
    "shuffle": False,
    "fit_intercept": False,
    "average": False,
    "importance_aware": False,
    "scale_columns": False,
}
ALGORITHMS: dict[str, dict[str, str]] = {
    "RDA": {"preconditioner": "identity"},
    "FB": {"update": "mirror-descent", "preconditioner": "identity"},
    "AdaGrad-RDA": {},
    "AdaGrad-FB": {"update": "mirror-descent"},
    "PA": {"update": "pa-1:C={}"},
    "AROW": {"update": "arow:r={}"},
}
"""Settings by name."""
PRICED = ("PA", "AROW")
"""Algorithms with a price in the place of a step size, and no l1."""
GRIDS: dict[str, tuple[float, ...]] = {
    "RDA": (0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    "FB": (0.1, 0.3, 1.0),
    "AdaGrad-RDA": (0.01, 0.02, 0.04, 0.08, 0.16, 0.32),
    "AdaGrad-FB": (0.01, 0.02, 0.04, 0.08, 0.16, 0.32),
    "PA": (0.0001, 0.001, 0.01, 0.1, 1.0),
    "AROW": (0.1, 1.0, 10.0, 100.0, 1e3, 1e4),
}
"""Step sizes, C of PA and r of AROW."""


def make_dataset(rows: Any, labels: NDArray[Any], order: NDArray[np.int64]) -> Dataset:
    """Rows in an order."""
    return dataset_from_arrays(rows[order], np.where(labels[order], 1.0, -1.0))


def learn(name: str, data: Any, value: float, l1: float = 0.0, **settings: Any) -> TrainResult:
    """One pass of an algorithm with a step size or price."""
    configuration: dict[str, Any] = {"step_size": value, "l1": l1, **ALGORITHMS[name]}
    if name in PRICED:
        configuration = {"update": configuration["update"].format(value)}
    return train(data, threads=1, **ONLINE, **configuration, **settings)


def tune(name: str, data: Any, l1: float = 0.0, **settings: Any) -> tuple[float, TrainResult]:
    """The value with the fewest mistakes in a pass, and its result."""
    results = ((value, learn(name, data, value, l1, **settings)) for value in GRIDS[name])
    return min(results, key=lambda pair: pair[1].report["progressive_error"])


def choose_l1(name: str, data: Any, strengths: Iterable[float], proportion: float) -> float:
    """The strength nearest to a proportion of non-zero weights, by logarithms.

    The value is the best one without l1.
    """
    value, _ = tune(name, data)
    results = {strength: learn(name, data, value, strength) for strength in strengths}
    distances = {
        strength: abs(float(np.log(max(density(each), 1e-9) / proportion)))
        for strength, each in results.items()
    }
    return min(distances, key=lambda strength: distances[strength])


def density(result: TrainResult) -> float:
    """Proportion of weights other than 0."""
    return int(np.count_nonzero(result.model.weights)) / result.model.n_features


def cell(error: float, proportion: float | None = None, digits: int = 3) -> str:
    """An error, with the proportion of non-zero weights in parentheses as in the paper."""
    shown = f"{error:.{digits}f}"
    return shown if proportion is None else f"{shown} ({proportion:.3f})"
