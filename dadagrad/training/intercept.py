"""The intercept of every output: a feature that is always 1, never regularized, never confined.

Whatever metric, regularizer and domain the weights have, the intercepts step by the same update in
a diagonal metric of their own. Their state is ``(n_bundles, 1, width, 2)`` float64, that of a
single feature: primary sum (or value, in mirror descent) and sum of squared gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dadagrad.kernels import Steps
    from dadagrad.method import Method

Array = NDArray[np.float64]


def zero_intercept(method: Method) -> Array:
    """The state before the first step."""
    return np.zeros((method.n_bundles, 1, method.bundle_width, 2))


def intercepts(method: Method, state: Array, t: float) -> Array:
    """The (n_outputs,) intercepts at t; 0 where none is fitted."""
    from dadagrad import kernels

    if method.config.update == "mirror-descent":
        values: Array = state[..., 0].flatten()
        return values
    weights = np.zeros((1, method.n_outputs))
    kernels.dual_weights(state, free_steps(method), t, weights)
    found: Array = weights[0]
    return found


def step_intercepts(
    method: Method, state: Array, t: float, gradient: Array, squares: Array
) -> None:
    """One step at `t`, in place, with the mean gradient.

    `gradient` is (1, n_outputs); so is what is added to the squares, or (0, 0) for its own.
    """
    from dadagrad import kernels

    if method.config.update == "mirror-descent":
        settled = np.full((method.n_bundles, 1), t)
        kernels.apply_mirror(state, settled, free_steps(method), t, gradient, squares)
    else:
        kernels.apply_dual(state, free_steps(method), t, gradient, squares)


def free_steps(method: Method) -> Steps:
    """The settings of the intercepts: no penalty, no box."""
    none = np.zeros(method.n_bundles)
    return method.steps._replace(l1=none, l2=none, low=-np.inf, high=np.inf)
