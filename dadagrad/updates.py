"""The updates, as plain formulas: the reference for everything faster.

With gradient g of step t, their sum u, a metric H_t made of all gradients up to and with g, and

    prox(center, scale) = argmin_w  scale phi(w) + 1/2 |w - center|_H^2,

one primitive gives all three (Duchi, Hazan and Singer 2011; McMahan et al. 2013):

==================  =============================  ======  =====================================
update              center                         scale   keeps
==================  =============================  ======  =====================================
`DualAveraging`     -eta H^-1 u           (eq. 3)  eta t   u
`MirrorDescent`     w - eta H^-1 g        (eq. 4)  eta     w
`FollowTheLeader`   -eta H^-1 z                    eta t   z = sum(g - (H_t - H_t-1) w_t / eta)
==================  =============================  ======  =====================================

and each keeps what its metric keeps. The metric says which algorithm of the papers it is: AdaGrad
(`Diagonal`), ADA-FULL (`Full`), ADA-FD (`Sketch`), RDA and FOBOS (`Identity`), and others; see
`dadagrad.metrics`.

A step of `importance` c stands for f_t counted c times: g and the share of phi are both
multiplied by c, so t is the importance seen so far and needs not be whole.

With `ids` a gradient has only those rows, and the others are 0. Steps and weights by `ids` then
cost as much as the ids, not as the features, and have the same bits as those without:

- dual averaging in a `Separable` metric, with a regularizer that does not couple features
- FTRL-proximal too, if the metric is `local`
- dual averaging in a `Sketch` or `CorrectedSketch` without a regularizer, per row of the sketch

Everywhere else `ids` cost as much as all features.

Training itself runs compiled forms in `dadagrad.kernels`, which touch only the features of a
batch; tests hold them to what is written here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import InputError
from dadagrad.metrics import Metric, Separable
from dadagrad.metrics.metric import Arrays, Ids, zeros
from dadagrad.metrics.proximal import is_nothing
from dadagrad.regularizers import Regularizer

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class State:
    """What an update remembers of the stream.

    `primary`, (n_features, n_outputs) float64, is the gradient sum u of dual averaging, the
    corrected sum z of FTRL-proximal, or the weights w of mirror descent. `metric` holds the arrays
    of the metric, by name. For separable metrics all of it may be plain (n_features,) vectors.
    """

    t: float
    primary: Array
    metric: Arrays


class Update(Protocol):
    """One way to turn gradients into weights."""

    @property
    def step_size(self) -> float: ...
    @property
    def metric(self) -> Metric: ...
    @property
    def regularizer(self) -> Regularizer: ...

    @property
    def weighs_ids(self) -> bool: ...

    def init(self, n_features: int, n_outputs: int | None = None) -> State:
        """Before the first step: no gradient seen, all weights 0.

        Without `n_outputs` vectors are plain (n_features,), which separable metrics take.
        """

    def weights(self, state: State, ids: Ids | None = None) -> Array:
        """The weights after the steps seen so far, or their rows `ids`."""

    def step(
        self,
        state: State,
        gradient: Array,
        importance: float = 1.0,
        ids: Ids | None = None,
        scales: Array | None = None,
    ) -> State:
        """The state after one more gradient.

        Parameters
        ----------
        state : State
            Not to be used again: its memory may become that of the new one.
        gradient : (n_features, n_outputs) or (len(ids), n_outputs) float64
        importance : float
        ids : (len(ids),) int64, optional
            The rows that `gradient` has, strictly increasing.
        scales : (n_features,) or (len(ids),) float64, optional
            The largest absolute value that each feature has in the rows of the step: what the
            metric `Normalized` wants to know.
        """


@dataclass(frozen=True, slots=True)
class _Base:
    step_size: float
    metric: Metric
    regularizer: Regularizer

    def init(self, n_features: int, n_outputs: int | None = None) -> State:
        arrays = self.metric.init(n_features, n_outputs)
        return State(0.0, zeros(n_features, n_outputs), arrays)

    @property
    def weighs_ids(self) -> bool:
        """Whether the weights of some features cost less than those of all."""
        return self._by_feature() or is_nothing(self.regularizer)

    def _by_feature(self) -> bool:
        """Whether each feature's weights depend on that feature alone."""
        return isinstance(self.metric, Separable) and self.regularizer.couples != "features"

    def _led(
        self, state: State, solve: Callable[[Arrays, Array, Ids | None], Array], ids: Ids | None
    ) -> Array:
        """The prox around -eta H^-1 `primary`, by a given way to solve."""
        direct = self.weighs_ids
        rows = ids if direct else None
        center = -self.step_size * solve(state.metric, state.primary, rows)
        scale = self.step_size * state.t
        weights = self.metric.prox(state.metric, self.regularizer, center, scale, rows)
        return weights if ids is None or direct else weights[ids]


@dataclass(frozen=True, slots=True)
class DualAveraging(_Base):
    """Regularized dual averaging: follow the average of all gradients."""

    def weights(self, state: State, ids: Ids | None = None) -> Array:
        return self._led(state, self.metric.solve_sum, ids)

    def step(
        self,
        state: State,
        gradient: Array,
        importance: float = 1.0,
        ids: Ids | None = None,
        scales: Array | None = None,
    ) -> State:
        gradient = _times(importance, gradient)
        primary = _plus(state.primary, gradient, ids)
        total = primary if ids is None else primary[ids]
        arrays = self.metric.add(state.metric, gradient, importance, ids, total, scales)
        return State(state.t + importance, primary, arrays)


@dataclass(frozen=True, slots=True)
class MirrorDescent(_Base):
    """Composite mirror descent: step from the present weights, then shrink all of them."""

    @property
    def weighs_ids(self) -> bool:
        return True

    def weights(self, state: State, ids: Ids | None = None) -> Array:
        return state.primary if ids is None else state.primary[ids]

    def step(
        self,
        state: State,
        gradient: Array,
        importance: float = 1.0,
        ids: Ids | None = None,
        scales: Array | None = None,
    ) -> State:
        gradient = _times(importance, gradient)
        arrays = self.metric.add(state.metric, gradient, importance, ids, scales=scales)
        moved = self.metric.solve(arrays, _spread(gradient, state.primary, ids))
        center = state.primary - self.step_size * moved
        weights = self.metric.prox(
            arrays, self.regularizer, center, self.step_size * importance, start=state.primary
        )
        return State(state.t + importance, weights, arrays)


@dataclass(frozen=True, slots=True)
class FollowTheLeader(_Base):
    """FTRL-proximal: dual averaging whose past steps stay centered where they were taken.

    Without l1 it takes the very steps of mirror descent without a constraint; with l1 it keeps
    the exact zeros of dual averaging.
    """

    def weights(self, state: State, ids: Ids | None = None) -> Array:
        return self._led(state, self.metric.solve, ids)

    def step(
        self,
        state: State,
        gradient: Array,
        importance: float = 1.0,
        ids: Ids | None = None,
        scales: Array | None = None,
    ) -> State:
        gradient = _times(importance, gradient)
        metric = self.metric
        if isinstance(metric, Separable):
            # Rows without gradient keep their curvature in a local metric, and so their z.
            rows = ids if metric.local and self._by_feature() else None
            before = metric.curvature(state.metric, rows)
            weights = self.weights(state, rows)
            arrays = metric.add(state.metric, gradient, importance, ids, scales=scales)
            pull = (metric.curvature(arrays, rows) - before) * weights
        else:
            rows = None
            weights = self.weights(state)
            drawn = metric.multiply(state.metric, weights)
            arrays = metric.add(state.metric, gradient, importance, ids, scales=scales)
            pull = metric.multiply(arrays, weights) - drawn
        if rows is None:
            gradient = _spread(gradient, state.primary, ids)
        primary = _plus(state.primary, gradient - pull / self.step_size, rows)
        return State(state.t + importance, primary, arrays)


def _times(importance: float, gradient: Array) -> Array:
    return gradient if importance == 1.0 else importance * gradient


def _plus(total: Array, change: Array, ids: Ids | None) -> Array:
    """`total` + `change`: in place where `change` has only the rows `ids`."""
    if ids is None:
        return total + change
    total[ids] += change
    return total


def _spread(gradient: Array, like: Array, ids: Ids | None) -> Array:
    """`gradient` with all rows."""
    if ids is None:
        return gradient
    whole = np.zeros_like(like)
    whole[ids] = gradient
    return whole


UPDATES: dict[str, type[DualAveraging] | type[MirrorDescent] | type[FollowTheLeader]] = {
    "dual-averaging": DualAveraging,
    "mirror-descent": MirrorDescent,
    "ftrl": FollowTheLeader,
}
"""Every update by the name that configuration and the command line use."""


def make_update(
    name: str, step_size: float, metric: Metric, regularizer: Regularizer
) -> DualAveraging | MirrorDescent | FollowTheLeader:
    """The update called `name`; `InputError` says what cannot be, and why."""
    if name not in UPDATES:
        raise InputError(f"update {name!r} is not known; choose one of {', '.join(UPDATES)}")
    if not (np.isfinite(step_size) and step_size > 0):
        raise InputError(f"step_size must be finite and positive, not {step_size}")
    return UPDATES[name](step_size, metric, regularizer)
