"""Messages between the coordinator and the workers of a Dask cluster, and checks of results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from distributed.protocol.serialize import pickle_dumps, pickle_loads, register_serialization
from numpy.typing import NDArray

from dadagrad.problem import Problem
from dadagrad.training.messages import Result
from dadagrad.training.schedule.base import Slice
from dadagrad.training.state.compiled import State
from dadagrad.training.state.slices import Gradient, SentFeatures, not_finite
from dadagrad.training.trace import Task

Touched: TypeAlias = NDArray[Any] | None
"""Packed positions that some rows touch (`dadagrad.training.worker.compute.touched`)."""


@dataclass(frozen=True, slots=True)
class Work:
    """Slices of one step, for one task of `run`.

    A slice is `given` weights or a state. The worker reports the features that the slice
    `following` it in its partition touches. `skipped` has the partitions that the run skips, and
    the reasons.
    """

    run: str
    slices: tuple[Slice, ...]
    given: tuple[SentFeatures, ...]
    following: tuple[Slice | None, ...]
    skipped: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """Result of a task.

    Attributes
    ----------
    worker : str
    skipped : mapping of str to str
        Partitions that the worker skips, and the reasons.
    content : mapping of str to int
        The `Dataset.content` of the partitions of the task.
    results : tuple
        Packed vocabularies of the partitions read, or packed `Result` of the slices.
    touched : tuple
        Features that the first slices of each partition touch, or the slice after each slice.
    tasks : tuple of Task
        Measured times of the work.
    """

    worker: str
    skipped: Mapping[str, str]
    content: Mapping[str, int]
    results: tuple[Any, ...]
    touched: tuple[Any, ...]
    tasks: tuple[Task, ...] = ()


def _in_frames(reply: Reply) -> tuple[dict[str, Any], list[Any]]:
    """Serialize a reply without copies of its arrays, as Dask does between workers.

    For the scheduler Dask would copy them into the message, on the thread of the event loop.
    """
    header, frames = pickle_dumps(reply)
    return header, frames


register_serialization(Reply, _in_frames, pickle_loads)


def n_bytes(message: SentFeatures | Result) -> int:
    """Return the size of the arrays of a message."""
    if isinstance(message, SentFeatures):
        return sum(array.nbytes for array in message.content.arrays.values())
    change = message.change
    assert change is not None
    return sum(array.nbytes for array in (change.ids, *change.content.arrays.values()))


def validate(
    result: Result, problem: Problem, slice_: Slice, vocabulary: NDArray[np.int64]
) -> str | None:
    """Explain why `result` cannot be that of `slice`; None if it can.

    Workers check their own computations. These errors come from the memory of a machine, or from
    the network. The change has positions in `vocabulary`, that of the slice's partition, (n_local,)
    int64.
    """
    assert result.change is not None
    metrics, positions, change = result.metrics, result.change.ids, result.change.content
    arrays = {**change.arrays, "loss": metrics.loss, "mistakes": metrics.mistakes}
    each_setting = (problem.n_settings,)
    shapes = _expected_shapes(change, problem, len(positions))
    for name, shape in {**shapes, "loss": each_setting, "mistakes": each_setting}.items():
        if arrays[name].shape != shape:
            return f"its {name} has the shape {arrays[name].shape}, not {shape}"
    # The loss of a setting that has diverged, which only one of several may, is infinite.
    diverged = (metrics.loss == np.inf) & (problem.n_settings > 1)
    found = not_finite(change, problem.n_settings) | {"loss": ~np.isfinite(metrics.loss)}
    wrong = {name: settings & ~diverged for name, settings in found.items()}
    wrong["mistakes"] = ~np.isfinite(metrics.mistakes)
    for name, settings in wrong.items():
        if settings.any():
            return f"its {name} is not finite"
    if isinstance(change, State) and not np.isfinite(change.t):
        return "its time is not finite"
    in_range = not len(positions) or 0 <= positions[0] <= positions[-1] < len(vocabulary)
    if not in_range or (positions[1:] <= positions[:-1]).any():
        return f"its positions are not increasing numbers below {len(vocabulary)}"
    if not 0 <= metrics.rows <= slice_.n_rows or not 0.0 <= metrics.weight < np.inf:
        return f"it counts {metrics.rows} rows of weight {metrics.weight:g}"
    return None


def _expected_shapes(
    change: Gradient | State, problem: Problem, n_changed: int
) -> dict[str, tuple[int, ...]]:
    """Return the shapes that the arrays of a change must have."""
    if isinstance(change, Gradient):
        each = (n_changed, problem.n_outputs)
        return {
            "gradient": each,
            "squares": each if problem.config.accumulate == "row" else (0, 0),
            "intercept": (2, problem.n_outputs),
        }
    shapes = {name: shape for name, (shape, _) in State.shapes(problem).items()}
    for name in ("accumulators", "last_update"):
        n_groups, n_features, *numbers = shapes[name]
        shapes[name] = (n_groups, n_changed if n_features else 0, *numbers)
    return shapes
