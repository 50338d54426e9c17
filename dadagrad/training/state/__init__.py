"""States of training: sums of features, of which a slice of rows takes out its part."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dadagrad.problem import Problem
from dadagrad.training.state.base import TrainingState
from dadagrad.training.state.compiled import State
from dadagrad.training.state.reference import PlainState


def zero_state(problem: Problem) -> TrainingState:
    """The state before the first step."""
    return State.zero(problem) if problem.compiled else PlainState.zero(problem)


def count_nonzeros(problem: Problem, state: TrainingState) -> NDArray[np.int64]:
    """The number of weights other than 0 of each setting, (n_settings,)."""
    _, weights = state.nonzero_weights(problem)
    counts: NDArray[np.int64] = np.count_nonzero(
        weights.reshape(len(weights), problem.n_settings, problem.n_targets), axis=(0, 2)
    )
    return counts


def state_bytes(problem: Problem) -> int:
    """The size of all arrays of the state of `problem`, which are not made."""
    shapes = State.shapes(problem) if problem.compiled else PlainState.shapes(problem)
    return sum(math.prod(shape) * np.dtype(kind).itemsize for shape, kind in shapes.values())


def feature_bytes(problem: Problem) -> int:
    """The size of the compiled state of one feature that is learned from, for all outputs."""
    lazy = problem.config.update.shrinks_lazily
    return (8 + 4 * problem.averages) * problem.n_outputs + 8 * lazy * problem.n_groups
