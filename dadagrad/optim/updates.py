"""The updates, as plain formulas: the reference for everything faster.

With gradient g of step t, their sum u, a preconditioner H_t made of all gradients up to and with g,
and

    prox(center, scale) = argmin_w  scale phi(w) + 1/2 |w - center|_H^2,

one primitive gives all three (Duchi, Hazan and Singer 2011; McMahan et al. 2013):

==================  =============================  ======  =====================================
update              center                         scale   keeps
==================  =============================  ======  =====================================
`DualAveraging`     -eta H^-1 u           (eq. 3)  eta t   u
`MirrorDescent`     w - eta H^-1 g        (eq. 4)  eta     w
`FollowTheLeader`   -eta H^-1 z                    eta t   z = sum(g - (H_t - H_t-1) w_t / eta)
==================  =============================  ======  =====================================

and each keeps what its preconditioner keeps. The preconditioner says which algorithm of the papers
it is: AdaGrad (`Diagonal`), ADA-FULL (`Full`), ADA-FD (`Sketch`), RDA and FOBOS (`Identity`), and
others; see `dadagrad.optim.preconditioners`.

A step of `importance` c stands for f_t counted c times: g and the share of phi are both
multiplied by c, so t is the importance seen so far and needs not be whole.

The average of the weights w_1 to w_T after each step counts w_t 2t - 1 times, so that the first
steps are forgotten (Shamir and Zhang 2013):

    average = sum_t (t^2 - (t - 1)^2) w_t / T^2 = w_T - A / T^2,   A = sum_t (t - 1)^2 (w_t - w_t-1)

A coordinate adds to A only where it changes. Compiled averaging keeps A, without l1 and l2, whose
shrinking between the gradients of a coordinate would add to it in each step.

With `ids` a gradient has only those rows, and the others are 0. Steps and weights by `ids` have the
same bits as those without. They cost as much as the ids, not as the features, in dual averaging
with a `DiagonalPreconditioner` and a regularizer that does not couple features, in FTRL-proximal if
the preconditioner is `local` besides, and in dual averaging with a `Sketch` or `CorrectedSketch`
and no regularizer. Everywhere else `ids` cost as much as all features.

Training itself runs compiled forms in `dadagrad.kernels.training`, which touch only the features
of a batch; tests hold them to what is written here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self, cast

import numpy as np

from dadagrad.errors import InputError
from dadagrad.optim.arrays import Array, Arrays, Ids, Shapes, add_rows, all_rows, rows_of
from dadagrad.optim.preconditioners import Diagonal, DiagonalPreconditioner, Preconditioner, Step
from dadagrad.optim.registry import BOUND, Named, Positive, Registry, register
from dadagrad.optim.regularizers import ElasticBox, Regularizer


@dataclass(frozen=True, slots=True)
class State:
    """State of an update that takes gradients.

    `primary`, (n_features, n_outputs) float64, is the gradient sum u of dual averaging, the
    corrected sum z of FTRL-proximal, or the weights w of mirror descent. `preconditioner` holds the
    arrays of the preconditioner, by name.
    """

    t: float
    primary: Array
    preconditioner: Arrays

    @property
    def arrays(self) -> Arrays:
        """All arrays by name, as `GradientUpdate.shapes` lists them."""
        named = {f"preconditioner.{name}": array for name, array in self.preconditioner.items()}
        return named | {"primary": self.primary}

    def with_arrays(self, arrays: Arrays, t: float) -> State:
        accumulators = {
            name.partition(".")[2]: array for name, array in arrays.items() if "." in name
        }
        return State(t, arrays["primary"], accumulators)


def average_count(t: float, importance: float) -> float:
    """Count of the weights after a step of `importance` at t, in the average."""
    return importance * (2.0 * t + importance)


class Update(Named, ABC):
    """A rule that turns gradients, or rows, into weights.

    Attributes
    ----------
    by_row : bool
        True if it learns from rows, and not from gradients.
    takes_batches : bool
        True if a batch can be a step.
    has_kernels : bool
        True if compiled loops run it in the diagonal preconditioner.
    uses_penalties : bool
        True if it steps in any preconditioner, with any regularizer.
    shrinks_lazily : bool
        True if the state is the weights, each of which is shrunk when it is next read.
    is_proximal : bool
        True if each gradient is corrected by the growth of the preconditioner.
    losses : tuple of str
        Names of the losses that it can follow; empty if that is every loss.
    """

    by_row: ClassVar[bool] = False
    takes_batches: ClassVar[bool] = True
    has_step_size: ClassVar[bool] = True
    has_kernels: ClassVar[bool] = False
    uses_penalties: ClassVar[bool] = True
    shrinks_lazily: ClassVar[bool] = False
    is_proximal: ClassVar[bool] = False
    losses: ClassVar[tuple[str, ...]] = ()

    @property
    def weighs_ids(self) -> bool:
        """True if the weights of some features cost less than those of all."""
        return True

    def bind(self, **values: Any) -> Self:
        """Return the update with its bound fields filled in.

        `values` are loss, step_size, preconditioner and regularizer; an update takes those that
        it has. `InputError` if it cannot follow the loss.
        """
        loss = values["loss"]
        if self.losses and loss.name not in self.losses:
            raise InputError(
                f"update {self.name!r} follows a loss of its own and cannot follow {loss.name!r}; "
                f"choose one of {', '.join(self.losses)}, or another update"
            )
        names = {each.name for each in fields(cast(Any, self)) if each.metadata.get("bound")}
        used = {name: value for name, value in values.items() if name in names}
        return cast(Self, replace(cast(Any, self), **used))

    @abstractmethod
    def init(self, n_features: int, n_outputs: int) -> Any:
        """The state before the first step."""

    @abstractmethod
    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        """The shapes of the named arrays of the state, without taking their memory."""

    @abstractmethod
    def weights(self, state: Any, ids: Ids | None = None) -> Array:
        """The (n_features, n_outputs) weights of a state, or their rows `ids`."""


UPDATES: Registry[Update] = Registry("update", Update)  # type: ignore[type-abstract]
"""Built-in updates by name."""


@dataclass(frozen=True)
class GradientUpdate(Update):
    """Base of the updates that take gradients."""

    step_size: Positive = field(default=1.0, metadata=BOUND)
    preconditioner: Preconditioner = field(default=Diagonal(), metadata=BOUND)
    regularizer: Regularizer = field(default=ElasticBox(), metadata=BOUND)

    has_kernels: ClassVar[bool] = True

    def init(self, n_features: int, n_outputs: int) -> State:
        """The state before the first step: no gradient seen, all weights 0."""
        arrays = self.preconditioner.init(n_features, n_outputs)
        return State(0.0, np.zeros((n_features, n_outputs)), arrays)

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        shapes = self._held_shapes(n_features, n_outputs)
        named = {f"preconditioner.{name}": shape for name, shape in shapes.items()}
        return named | {"primary": (n_features, n_outputs)}

    def _held_shapes(self, n_features: int, n_outputs: int) -> Shapes:
        return self.preconditioner.shapes(n_features, n_outputs)

    def step(
        self,
        state: State,
        gradient: Array,
        importance: float = 1.0,
        ids: Ids | None = None,
        scales: Array | None = None,
    ) -> State:
        """The state after one more gradient, which may take over the memory of `state`.

        `gradient`, `ids` and `scales` are as in `Step`, but the gradient is not yet multiplied by
        its importance.
        """
        gradient = gradient if importance == 1.0 else importance * gradient
        return self._step(state, Step(gradient, importance, ids, None, scales))

    @abstractmethod
    def _step(self, state: State, step: Step) -> State:
        """The state after a step whose gradient is multiplied by its importance."""

    @property
    def weighs_ids(self) -> bool:
        return self._by_feature() or self.regularizer.is_zero

    def _by_feature(self) -> bool:
        """True if each feature's weights depend on that feature alone."""
        return (
            isinstance(self.preconditioner, DiagonalPreconditioner)
            and self.regularizer.couples != "features"
        )

    def _weights_around_sum(
        self, state: State, solve: Callable[[Arrays, Array, Ids | None], Array], ids: Ids | None
    ) -> Array:
        """The prox around -eta H^-1 `primary`; `solve` multiplies by H^-1."""
        direct = self.weighs_ids
        rows = ids if direct else None
        center = -self.step_size * solve(state.preconditioner, state.primary, rows)
        scale = self.step_size * state.t
        weights = self.preconditioner.prox(
            state.preconditioner, self.regularizer, center, scale, rows
        )
        return weights if direct else rows_of(weights, ids)


@register(UPDATES, "dual-averaging")
class DualAveraging(GradientUpdate):
    """Regularized dual averaging: follow the average of all gradients."""

    def weights(self, state: State, ids: Ids | None = None) -> Array:
        return self._weights_around_sum(state, self.preconditioner.solve_sum, ids)

    def _step(self, state: State, step: Step) -> State:
        primary = add_rows(state.primary, step.gradient, step.ids)
        step = step._replace(total=rows_of(primary, step.ids))
        arrays = self.preconditioner.add(state.preconditioner, step)
        return State(state.t + step.importance, primary, arrays)


@register(UPDATES, "mirror-descent")
class MirrorDescent(GradientUpdate):
    """Composite mirror descent: step from the present weights, then shrink all of them."""

    shrinks_lazily: ClassVar[bool] = True
    weighs_ids: ClassVar[bool] = True

    def init(self, n_features: int, n_outputs: int) -> State:
        """The state before the first step: the weights of least norm in the domain."""
        state = super().init(n_features, n_outputs)
        if self.regularizer.zero_stays:
            return state
        return replace(state, primary=self.regularizer.prox(state.primary, 0.0, 0.0))

    def weights(self, state: State, ids: Ids | None = None) -> Array:
        return rows_of(state.primary, ids)

    def _step(self, state: State, step: Step) -> State:
        arrays = self.preconditioner.add(state.preconditioner, step)
        gradient = all_rows(step.gradient, step.ids, len(state.primary))
        center = state.primary - self.step_size * self.preconditioner.solve(arrays, gradient)
        scale = self.step_size * step.importance
        weights = self.preconditioner.prox(
            arrays, self.regularizer, center, scale, start=state.primary
        )
        return State(state.t + step.importance, weights, arrays)


@register(UPDATES, "ftrl")
class FollowTheLeader(GradientUpdate):
    """FTRL-proximal: dual averaging whose past steps stay centered where they were taken.

    Without l1 it takes the very steps of mirror descent without a constraint; with l1 it keeps
    the exact zeros of dual averaging.
    """

    is_proximal: ClassVar[bool] = True

    def weights(self, state: State, ids: Ids | None = None) -> Array:
        return self._weights_around_sum(state, self.preconditioner.solve, ids)

    def _step(self, state: State, step: Step) -> State:
        preconditioner, rows = self.preconditioner, None
        if isinstance(preconditioner, DiagonalPreconditioner):
            # Rows without gradient keep their curvature in a local preconditioner, and so their z.
            rows = step.ids if preconditioner.local and self._by_feature() else None
            weights = self.weights(state, rows)
            before = preconditioner.curvature(state.preconditioner, rows)
            arrays = preconditioner.add(state.preconditioner, step)
            pull = (preconditioner.curvature(arrays, rows) - before) * weights
        else:
            weights = self.weights(state)
            drawn = preconditioner.multiply(state.preconditioner, weights)
            arrays = preconditioner.add(state.preconditioner, step)
            pull = preconditioner.multiply(arrays, weights) - drawn
        gradient = step.gradient
        if rows is None:
            gradient = all_rows(gradient, step.ids, len(state.primary))
        primary = add_rows(state.primary, gradient - pull / self.step_size, rows)
        return State(state.t + step.importance, primary, arrays)
