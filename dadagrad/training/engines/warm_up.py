"""Compilation of the kernels that a problem needs, before the clock of a run starts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any, get_args

import locket
import numpy as np

from dadagrad.data.dataset import MemoryDataset, Schema
from dadagrad.data.rows import Rows
from dadagrad.data.units import Units
from dadagrad.errors import InputError, TrainingError
from dadagrad.kernels import is_compiled
from dadagrad.kernels import training as kernels
from dadagrad.kernels.id_sets import mark, marked
from dadagrad.optim.arrays import Array, rows_of
from dadagrad.optim.losses import LOSSES
from dadagrad.optim.preconditioners import (
    PRECONDITIONERS,
    DiagonalPreconditioner,
    Preconditioner,
    Step,
)
from dadagrad.optim.registry import Named
from dadagrad.optim.regularizers import REGULARIZERS
from dadagrad.optim.regularizers.base import Coupling
from dadagrad.problem import Problem
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines.threads import LocalEngine
from dadagrad.training.engines.watcher import Watcher
from dadagrad.training.progressive import count
from dadagrad.training.schedule import make_schedule
from dadagrad.training.state.base import step_intercepts
from dadagrad.training.state.compiled import State
from dadagrad.training.worker.compute import as_batch

WAIT_SECONDS = 120.0
"""Longest wait for another process that compiles."""

_warm: set[tuple[bool, ...]] = set()


def warm_up(problem: Problem, messages: Callable[[str], None]) -> float:
    """Check a user's own objects and compile the kernels; the seconds that the latter took.

    Raises `InputError` if an own loss, regularizer or preconditioner cannot be right.
    """
    _check_own_objects(problem.settings[0])
    return compile_kernels(problem, messages)


def compile_kernels(problem: Problem, messages: Callable[[str], None]) -> float:
    """Compile, or load from the cache on disk, the kernels of `problem`; the seconds it took.

    A run on a few rows has all of them compiled: types decide, not sizes. `messages` is called
    beforehand if it may take long.
    """
    begun = time.perf_counter()
    config, couples = problem.config, problem.loss.couples
    kind: tuple[bool, ...] = (
        problem.compiled,
        problem.online,
        config.update.shrinks_lazily,
        couples,
        problem.group_width % 2 == 0,
        problem.group_width == 1,
        config.n_streams > 1,
        problem.loss.code is None,
        problem.loss.has_kernels,
    )
    first: Any = kernels.apply_dual
    if problem.compiled:
        first = kernels.online_kernel(config.update.shrinks_lazily, problem.group_width)
    if problem.learns_by_row and problem.online:  # it calls no kernel but that of the metrics
        kind, first = (), kernels.count_by_score
    if kind in _warm:
        return 0.0
    if not is_compiled(first):
        messages("compiling the kernels (once on this machine, a few seconds)")
    few = replace(
        config,
        step_size=1.0,
        batch_size=1 if problem.online else 4,
        passes=1,
        partitions_per_batch=2,
        streams=min(config.n_streams, 2),
    )
    # The rows have some of the features, not all. One setting of a grid has the types of all.
    units = Units(means=np.array([1.0, 0.0, 0.0], np.float32))
    problem = replace(problem, config=few, configs=(), n_features=3, units=units)
    # An own loss may have no value at labels that the data does not have.
    with _one_at_a_time(first.stats.cache_path), suppress(TrainingError):
        _run(problem)
    _warm.add(kind)
    return time.perf_counter() - begun


def _check_own_objects(problem: Problem) -> None:
    """Refuse an object of a user's own class whose arrays have a wrong shape."""
    loss, penalty = problem.loss, problem.config.regularizer
    with np.errstate(all="ignore"):  # the labels may be none that the loss is for
        if not LOSSES.is_built_in(loss):
            targets = problem.targets(_two_rows(problem).labels)
            scores, of_value = np.zeros(targets.shape), targets.shape[: 1 if loss.couples else 2]
            _check_shape(loss, "value", loss.value(scores, targets), "scores", scores, of_value)
            _check_shape(loss, "slope", loss.slope(scores, targets), "scores", scores, scores.shape)
        if penalty is not None and not REGULARIZERS.is_built_in(penalty):
            if penalty.couples not in get_args(Coupling):
                raise InputError(
                    f"{penalty.name} couples {penalty.couples!r}; it must be one of "
                    f"{get_args(Coupling)}"
                )
            center = np.zeros((problem.n_features, problem.n_outputs))
            weights = penalty.prox(center, np.ones(center.shape), 1.0)
            _check_shape(penalty, "prox", weights, "a center", center, center.shape)
    preconditioner = problem.config.preconditioner
    if not PRECONDITIONERS.is_built_in(preconditioner):
        _check_preconditioner(preconditioner, problem.n_features, problem.n_outputs)


def _check_preconditioner(owner: Preconditioner, n_features: int, n_outputs: int) -> None:
    vector, first = np.zeros((n_features, n_outputs)), np.arange(1)
    arrays: Any = owner.add(owner.init(n_features, n_outputs), Step(vector[first], ids=first))
    if not isinstance(arrays, dict):
        raise InputError(
            f"the add of {owner.name} is a {type(arrays).__name__}; return a dict of arrays"
        )
    for ids, argument in ((None, "a vector"), (first, "one id and a vector")):
        if isinstance(owner, DiagonalPreconditioner):
            name, result = "curvature", owner.curvature(arrays, ids)
        else:
            name, result = "solve", owner.solve(arrays, vector, ids)
        _check_shape(owner, name, result, argument, vector, rows_of(vector, ids).shape)
        if name == "curvature" and not (result >= 0.0).all():
            raise InputError(
                f"the curvature of {owner.name} is {result[~(result >= 0.0)][0]} after a gradient "
                "of 0; return numbers of at least 0"
            )


def _check_shape(
    owner: Named, name: str, result: Any, argument: str, given: Array, shape: Any
) -> None:
    is_array = isinstance(result, np.ndarray)
    if not is_array or result.shape != shape:
        found = f"an array of shape {result.shape}" if is_array else f"a {type(result).__name__}"
        raise InputError(
            f"the {name} of {owner.name} is {found} for {argument} of shape {given.shape}; return "
            f"an array of shape {shape}"
        )


@contextmanager
def _one_at_a_time(folder: str) -> Iterator[None]:
    """Let the processes that share Numba's cache in `folder` compile one after the other.

    All but the first find the kernels compiled. Two that compile forms of one kernel at the same
    time can leave the code of one under the name of the other (numba/numba#4807).
    """
    with ExitStack() as stack:
        with suppress(OSError, locket.LockError):  # the folder cannot be written, or a long wait
            path = os.path.join(folder, "compile.lock")
            stack.enter_context(locket.lock_file(path, timeout=WAIT_SECONDS))
        yield


def _run(problem: Problem) -> None:
    rows = _two_rows(problem)
    scores = np.zeros((problem.n_outputs, 1))
    count(problem, as_batch(rows.slice(0, 1), None), scores, "the warm-up", 0)
    if not (problem.learns_by_row and problem.online):
        # What runs in NumPy calls the kernels of intercepts and gradients alone, and may not be
        # possible with so few features.
        state = State.zero(problem)
        if problem.online and not problem.compiled:
            step_intercepts(problem, state.intercept, 0.0, scores.T, np.zeros((0, 0)))
            state.intercepts(problem)
        else:
            schedule = make_schedule(problem.config, (rows.n_rows, rows.n_rows), chunk_rows=1)
            data = MemoryDataset([rows, rows], Schema(3, problem.label_columns), "the warm-up")
            LocalEngine(data, 1).run(Coordinator(problem, schedule, state), Watcher())
        state.weights(problem)
    for numbers in (rows.indices, rows.vocabulary):  # as they are sent
        marked(mark(numbers, rows.n_local))


def _two_rows(problem: Problem) -> Rows:
    """Two rows of one query, whose classes are those of the data."""
    numbers = tuple(np.clip((0.0, 1.0), *problem.loss.label_range))
    labels = [
        (column.values if problem.loss.classifies else None) or numbers
        for column in problem.label_columns
    ]
    return Rows(
        np.arange(2),
        np.arange(3),
        np.arange(2, dtype=np.int32),
        np.ones(2, np.float32),
        np.array([[values[0] for values in labels], [values[-1] for values in labels]]),
        queries=np.zeros(2, np.int64),
    )
