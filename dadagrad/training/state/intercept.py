"""The intercept of every output: a feature that is always 1, never regularized, never confined.

Whatever preconditioner, regularizer and domain the weights have, the intercepts step by the same
update in a diagonal preconditioner of their own. Their state is ``(n_groups, 1, width, 2)``
float64, that of a single feature: primary sum (or value, in mirror descent) and sum of squared
gradients. Compiled averaging has a third number, what the average lags behind the intercept, times
t^2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dadagrad.kernels import training as kernels
from dadagrad.problem import Problem

Array = NDArray[np.float64]


def zero_intercept(problem: Problem) -> Array:
    """The state before the first step."""
    return np.zeros((problem.n_groups, 1, problem.group_width, 2 + problem.averages))


def intercepts(problem: Problem, state: Array, t: float) -> Array:
    """The (n_outputs,) intercepts at t; 0 where none is fitted."""
    if problem.config.update.shrinks_lazily:
        values: Array = state[..., 0].flatten()
        return values
    weights = np.zeros((1, problem.n_outputs))
    kernels.dual_weights(state, free_steps(problem), t, weights)
    found: Array = weights[0]
    return found


def step_intercepts(
    problem: Problem, state: Array, t: float, gradient: Array, squares: Array
) -> None:
    """One step at `t`, in place, with the mean gradient.

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
