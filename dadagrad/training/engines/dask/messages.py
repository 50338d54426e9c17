"""Messages between the coordinator and the workers of a Dask cluster, and checks of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from distributed.protocol.serialize import pickle_dumps, pickle_loads, register_serialization
from numpy.typing import NDArray

from dadagrad.problem import Problem
from dadagrad.training.engines.trace import Task
from dadagrad.training.messages import Result
from dadagrad.training.progressive import ProgressiveMetrics, n_bins_of
from dadagrad.training.schedule.base import Slice
from dadagrad.training.state.slices import FeatureSlice, SentFeatures, not_finite

Touched: TypeAlias = NDArray[Any] | None
"""Packed positions that some rows touch (`dadagrad.training.worker.compute.touched`)."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Result of a task.

    Attributes
    ----------
    skipped : mapping of str to str
        Partitions that the worker skips, and the reasons.
    content : mapping of str to int
        The `Dataset.content` of the partitions of the task.
    results : tuple
        Packed vocabularies of the partitions read, the packed `Result` of each slice, or those of
        each stretch.
    touched : tuple
        Features that the first slices of each partition touch, or the slice after each slice.
    tasks : tuple of Task
        Measured times of the work.
    n_bytes : int
        Size of the messages between this worker and others.
    """

    worker: str
    skipped: Mapping[str, str]
    content: Mapping[str, int]
    results: tuple[Any, ...]
    touched: tuple[Any, ...] = ()
    tasks: Sequence[Task] = ()
    n_bytes: int = 0


# Without this, Dask copies the arrays of a reply into the message, on the thread of the event loop.
register_serialization(Reply, pickle_dumps, pickle_loads)


def n_bytes(message: SentFeatures | FeatureSlice[Any]) -> int:
    """Return the size of the numbers of a message."""
    return sum(array.nbytes for array in message.content.arrays.values())


def validate(
    result: Result, problem: Problem, slice_: Slice, vocabulary: NDArray[np.int64]
) -> str | None:
    """Explain why the gradient `result` cannot be that of `slice`; None if it can.

    Workers check their own computations. These errors come from the memory of a machine, or from
    the network. The change has positions in `vocabulary`, that of the slice's partition, (n_local,)
    int64.
    """
    metrics, change = result.metrics, result.features
    each = len(change.ids), problem.n_outputs
    shapes = {
        "gradient": each,
        "squares": each if problem.config.accumulate == "row" else (0, 0),
        "intercept": (2, problem.n_outputs),
    }
    for name, shape in shapes.items():
        if change.content.arrays[name].shape != shape:
            return f"its {name} has the shape {change.content.arrays[name].shape}, not {shape}"
    wrong = wrong_features(change, len(vocabulary), _diverged(metrics, problem))
    return wrong or wrong_metrics(metrics, problem, slice_)


def wrong_features(
    change: FeatureSlice[Any], n_features: int, diverged: NDArray[np.bool_]
) -> str | None:
    """Explain why `change` of `n_features` cannot be right; None if it can.

    Only the settings that have `diverged`, (n_settings,), may have numbers that are not finite.
    """
    for name, settings in not_finite(change.content, len(diverged)).items():
        if (settings & ~diverged).any():
            return f"its {name} is not finite"
    ids = change.ids
    in_range = not len(ids) or 0 <= ids[0] <= ids[-1] < n_features
    if not in_range or (ids[1:] <= ids[:-1]).any():
        return f"its positions are not increasing numbers below {n_features}"
    return None


def wrong_metrics(metrics: ProgressiveMetrics, problem: Problem, slice_: Slice) -> str | None:
    """Explain why `metrics` cannot be those of `slice`; None if they can."""
    for name, array in (("loss", metrics.loss), ("mistakes", metrics.mistakes)):
        if array.shape != (problem.n_settings,):
            return f"its {name} has the shape {array.shape}, not {(problem.n_settings,)}"
        diverged = _diverged(metrics, problem) & (name == "loss")
        if not (np.isfinite(array) | diverged).all():
            return f"its {name} is not finite"
    if not 0 <= metrics.rows <= slice_.n_rows or not 0.0 <= metrics.weight < np.inf:
        return f"it counts {metrics.rows} rows of weight {metrics.weight:g}"
    histogram = metrics.histogram
    if histogram.shape != (problem.n_settings, n_bins_of(problem), 2):
        return f"its histogram has the shape {histogram.shape}"
    if not ((histogram >= 0.0) & (histogram < np.inf)).all():
        return "its histogram is not one of weights"
    return None


def _diverged(metrics: ProgressiveMetrics, problem: Problem) -> NDArray[np.bool_]:
    """Settings that have diverged, which only some of several may: their loss is infinite."""
    return np.isposinf(metrics.loss) & (problem.n_settings > 1)
