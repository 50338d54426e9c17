"""The updates, as plain formulas: the reference for everything faster.

With gradient g of step t, sums u = sum g and G = sum g^2, metric H = delta + sqrt(G) and

    prox(center, scale) = argmin_w  scale phi(w) + 1/2 |w - center|_H^2,

one primitive gives all three (Duchi, Hazan and Singer 2011; McMahan et al. 2013):

==================  =============================  ======  =====================================
update              center                         scale   keeps
==================  =============================  ======  =====================================
`DualAveraging`     -eta H^-1 u           (eq. 3)  eta t   u, G
`MirrorDescent`     w - eta H^-1 g        (eq. 4)  eta     w, G
`FollowTheLeader`   -eta H^-1 z                    eta t   z = sum(g - (H_t - H_t-1) w_t / eta), G
==================  =============================  ======  =====================================

A step of `importance` c stands for f_t counted c times: g and the share of phi are both
multiplied by c, so t is the importance seen so far and needs not be whole.

Training itself runs the compiled forms in `dadagrad.kernels`, which touch only the features of a
batch; tests hold them to what is written here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import InputError
from dadagrad.metrics import Diagonal
from dadagrad.regularizers import ElasticBox

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class State:
    """What an update remembers of the stream; each array is (n_features,) float64.

    `primary` is the gradient sum u of dual averaging, the corrected sum z of FTRL-proximal, or
    the weights w of mirror descent.
    """

    t: float
    primary: Array
    gradient_squares: Array


class Update(Protocol):
    """One way to turn gradients into weights."""

    step_size: float
    metric: Diagonal
    regularizer: ElasticBox

    def weights(self, state: State) -> Array:
        """The weights after the steps seen so far, (n_features,)."""

    def step(self, state: State, gradient: Array, importance: float = 1.0) -> State:
        """The state after one more (n_features,) `gradient`."""


def init(n_features: int) -> State:
    """The state before the first step: no gradient seen, all weights 0."""
    return State(0.0, np.zeros(n_features), np.zeros(n_features))


@dataclass(frozen=True, slots=True)
class DualAveraging:
    """Regularized dual averaging: follow the average of all gradients."""

    step_size: float
    metric: Diagonal
    regularizer: ElasticBox

    def weights(self, state: State) -> Array:
        center = -self.step_size * self.metric.solve(state.primary, state.gradient_squares)
        curvature = self.metric.curvature(state.gradient_squares)
        return self.regularizer.prox(center, curvature, self.step_size * state.t)

    def step(self, state: State, gradient: Array, importance: float = 1.0) -> State:
        gradient = importance * gradient
        return State(
            state.t + importance,
            state.primary + gradient,
            state.gradient_squares + np.square(gradient),
        )


@dataclass(frozen=True, slots=True)
class MirrorDescent:
    """Composite mirror descent: step from the present weights, then shrink all of them."""

    step_size: float
    metric: Diagonal
    regularizer: ElasticBox

    def weights(self, state: State) -> Array:
        return state.primary

    def step(self, state: State, gradient: Array, importance: float = 1.0) -> State:
        gradient = importance * gradient
        squares = state.gradient_squares + np.square(gradient)
        center = state.primary - self.step_size * self.metric.solve(gradient, squares)
        scale = self.step_size * importance
        weights = self.regularizer.prox(center, self.metric.curvature(squares), scale)
        return State(state.t + importance, weights, squares)


@dataclass(frozen=True, slots=True)
class FollowTheLeader:
    """FTRL-proximal: dual averaging whose past steps stay centered where they were taken.

    Without l1 it takes the very steps of mirror descent without a constraint; with l1 it keeps
    the exact zeros of dual averaging.
    """

    step_size: float
    metric: Diagonal
    regularizer: ElasticBox

    def weights(self, state: State) -> Array:
        return DualAveraging(self.step_size, self.metric, self.regularizer).weights(state)

    def step(self, state: State, gradient: Array, importance: float = 1.0) -> State:
        gradient = importance * gradient
        squares = state.gradient_squares + np.square(gradient)
        # delta is in both metrics, so it falls out of their difference.
        growth = np.sqrt(squares) - np.sqrt(state.gradient_squares)
        corrected = gradient - growth * self.weights(state) / self.step_size
        return replace(
            state,
            t=state.t + importance,
            primary=state.primary + corrected,
            gradient_squares=squares,
        )


UPDATES: dict[str, type[DualAveraging] | type[MirrorDescent] | type[FollowTheLeader]] = {
    "dual-averaging": DualAveraging,
    "mirror-descent": MirrorDescent,
    "ftrl": FollowTheLeader,
}
"""Every update by the name that configuration and the command line use."""


def make_update(
    name: str, step_size: float, metric: Diagonal, regularizer: ElasticBox
) -> DualAveraging | MirrorDescent | FollowTheLeader:
    """The update called `name`."""
    if name not in UPDATES:
        raise InputError(f"update {name!r} is not known; choose one of {', '.join(UPDATES)}")
    if not (np.isfinite(step_size) and step_size > 0):
        raise InputError(f"step_size must be finite and positive, not {step_size}")
    return UPDATES[name](step_size, metric, regularizer)
