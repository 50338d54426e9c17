"""The state of training, as the coordinator and the work on rows see it, and its intercepts.

Whatever preconditioner, regularizer and domain the weights have, the intercepts step by the same
update in a diagonal preconditioner of their own. Their state is ``(n_groups, 1, width, 2)``
float64, that of a single feature: primary sum (or value, in mirror descent) and sum of squared
gradients. Compiled averaging has a third number, what the average lags behind the intercept, times
t^2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.rows import Rows
from dadagrad.kernels import training as kernels
from dadagrad.kernels.parallel import Spread
from dadagrad.optim.arrays import Array, is_nonzero
from dadagrad.problem import Problem
from dadagrad.training.state.slices import FeatureSlice, Gradient

NOTHING = np.zeros((0, 0))
"""Scores or squares that are not needed."""

Shapes: TypeAlias = dict[str, tuple[tuple[int, ...], type[np.generic]]]
"""The shape of each array of a state, and the kind of its numbers."""


class TrainingState(ABC):
    """Everything that training changes: of compiled updates, or of algorithms in NumPy."""

    __slots__ = ()
    t: float

    @property
    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that a checkpoint must keep besides `t`."""

    @abstractmethod
    def with_arrays(self, arrays: dict[str, NDArray[Any]], t: float) -> Self:
        """The state with other `arrays`, which become its own."""

    def copy(self) -> Self:
        """The same state in memory of its own."""
        return self.with_arrays({name: array.copy() for name, array in self.arrays.items()}, self.t)

    def restored(self, arrays: dict[str, NDArray[Any]], t: float) -> Self:
        """Return `with_arrays`; `ValueError` if the `arrays` do not have the form of these."""
        expected = self.arrays
        if arrays.keys() != expected.keys():
            raise ValueError(f"arrays {sorted(arrays)} where {sorted(expected)} were expected")
        for name, template in expected.items():
            array = arrays[name]
            if (array.shape, array.dtype) != (template.shape, template.dtype):
                raise ValueError(
                    f"{name} is {array.dtype}, shape {array.shape}, where {template.dtype}, shape "
                    f"{template.shape} was expected"
                )
        return self.with_arrays(arrays, t)

    def of_setting(self, problem: Problem, number: int) -> TrainingState:
        """The state of one setting of `problem` alone, in the same memory."""
        assert problem.n_settings == 1, "several settings are compiled"
        return self

    @abstractmethod
    def weights(self, problem: Problem) -> NDArray[np.float32]:
        """The (n_features, n_outputs) weights of the model: at t, or their average."""

    def nonzero_weights(self, problem: Problem) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The increasing ids of features with a weight other than 0, (k,), and their weights."""
        weights = self.weights(problem)
        ids = np.flatnonzero(is_nonzero(weights))
        return ids, weights[ids]

    @abstractmethod
    def weights_at(self, problem: Problem, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The (len(ids), n_outputs) weights of some features at t."""

    @abstractmethod
    def intercepts(self, problem: Problem) -> NDArray[np.float64]:
        """The (n_outputs,) intercepts of the model: at t, or their average."""

    @abstractmethod
    def intercepts_now(self, problem: Problem) -> NDArray[np.float64]:
        """The (n_outputs,) intercepts at t, with which the next rows are predicted."""

    @abstractmethod
    def step(self, problem: Problem, total: FeatureSlice[Gradient], importance: float) -> None:
        """Take one step with the mean gradient of rows whose gradients sum to `total`."""

    @abstractmethod
    def learn(
        self,
        problem: Problem,
        rows: Rows,
        batch: kernels.Batch,
        scores: NDArray[np.float64],
        spread: Spread,
        average_scores: Array,
    ) -> Sequence[int | None]:
        """Take one step for each of the `rows`, in order; `batch` are the same for the kernels.

        The (n_outputs, n_rows) `scores` before each step are written. `spread` calls a function for
        each group of outputs. The scores of the average weights are written into `average_scores`,
        if it is like `scores` and they are compiled, where it is not NaN. Returns for each group a
        feature whose sums are no longer finite.
        """


def intercepts(problem: Problem, state: Array, t: float) -> Array:
    """The (n_outputs,) intercepts at t; 0 where none is fitted."""
    if problem.config.update.shrinks_lazily:
        return state[..., 0].flatten()
    weights = np.zeros((1, problem.n_outputs))
    sums = np.ascontiguousarray(state[..., :2])
    kernels.dual_weights(sums, free_steps(problem), t, weights)
    biases: Array = weights[0]
    return biases


def step_intercepts(
    problem: Problem, state: Array, t: float, gradient: Array, squares: Array
) -> None:
    """One step of the intercepts at `t`, in place, with the mean gradient.

    `gradient` is (1, n_outputs); so is what is added to the squares, or (0, 0) for its own.
    """
    shape = problem.n_groups, state.shape[-1] - 2, problem.group_width
    averages = state[..., 2:].reshape(shape)
    if problem.config.update.shrinks_lazily:
        last_update = np.full((problem.n_groups, 1), t)
        steps = free_steps(problem)
        kernels.apply_mirror(state, last_update, averages, steps, t, gradient, squares)
    else:
        kernels.apply_dual(state, averages, free_steps(problem), t, gradient, squares)
    state[..., 2:] = averages.reshape(state[..., 2:].shape)


def free_steps(problem: Problem) -> kernels.Hyperparameters:
    """The settings of the intercepts: no penalty, no box."""
    none = np.zeros(problem.n_groups)
    return problem.hyperparameters._replace(l1=none, l2=none, low=-np.inf, high=np.inf)
