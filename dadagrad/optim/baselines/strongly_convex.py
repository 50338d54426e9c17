"""Logarithmic regret with strongly convex losses (Shalev-Shwartz and Singer 2007).

With f strongly convex and g_t(w) = sigma f(w) + loss_t(w), the scheme of section 3 is

    w_t+1 = grad f*(grad f(w_t) - eta_t lambda_t),   lambda_t in dg_t(w_t),   eta_t = 1 / (sigma t)

and its theorem 1: with |lambda_t|_*^2 / 2 <= L for all t, for any u in the domain

    sum_t g_t(w_t) - sum_t g_t(u)  <=  L / sigma (1 + log T).

=======================  ================================  ======================
learner                  f                                 domain
=======================  ================================  ======================
`StronglyConvexBall`     |w|_2^2 / 2  (ex. 3, eq. 9)       |w|_2 <= radius
`StronglyConvexSimplex`  sum w_j log w_j + log n (eq. 12)  sum w = 1, w_j >= floor
=======================  ================================  ======================

The loss of a batch is the mean of those of its rows, and lambda_t the mean of their subgradients.
A row of importance c has g_t counted c times: t grows by c, and lambda_t is c times as long. The
proof of theorem 1 holds as it is, with L sum_t c_t^2 / (sigma t) on its right.
"""

from __future__ import annotations

import numpy as np

from dadagrad.errors import InputError
from dadagrad.optim.arrays import Array, Ids, Shapes, rows_of
from dadagrad.optim.baselines.base import GradientLearner, LearnerState
from dadagrad.optim.projections import check_floor, entropic_floor_projection
from dadagrad.optim.registry import Positive, register
from dadagrad.optim.updates import UPDATES

MIN_SCALE = 1e-100
"""Below this the common factor of the weights is multiplied into them."""


@register(UPDATES, "strongly-convex")
class StronglyConvexBall(GradientLearner):
    """sigma/2 |w|^2 + loss, in a ball. O(nnz n_outputs) a row, whatever shrinks.

    With the hinge loss and the radius that goes with it this is the support vector machine of
    section 4. Weights are kept as scale * direction, so that shrinking all of them is one product.

    Arrays: `direction` (n_features, n_outputs), `scale` (n_outputs,), `norm_squares` (n_outputs,),
    the last being |w|^2.

    Attributes
    ----------
    sigma : float
        Strength of the l2 penalty that is part of what is minimised.
    radius : float or None
        Of the ball. None finds one that holds the minimiser: sqrt(2 loss(0) / sigma), since
        sigma/2 |w*|^2 <= g(w*) <= g(0) = loss(0). For the hinge loss, and ranking by it,
        lemma 4 halves the square: 1 / sqrt(sigma). In a regression the loss at 0 depends on the
        targets, so None is refused.
    """

    sigma: Positive = 1e-4
    radius: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.radius is None and not (self.loss.classifies or self.loss.ranks):
            raise InputError(
                f"no ball is known to hold the minimiser for the loss {self.loss.name!r}; give a "
                "radius"
            )

    def ball(self, n_outputs: int) -> float:
        """The radius in force: each output has a ball of its own."""
        if self.radius is not None:
            return self.radius
        if self.loss.name in ("hinge", "ranking"):
            return float(1.0 / np.sqrt(self.sigma))
        targets = np.where(np.arange(n_outputs) == 0, 1.0, -1.0)  # losses may couple the outputs
        at_zero = np.max(self.loss.value(np.zeros(n_outputs), targets))
        return float(np.sqrt(2.0 * at_zero / self.sigma))

    def init(self, n_features: int, n_outputs: int) -> LearnerState:
        state = super().init(n_features, n_outputs)
        state.arrays["scale"][:] = 1.0
        return state

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        of_outputs = dict.fromkeys(("scale", "norm_squares"), (n_outputs,))
        return {"direction": (n_features, n_outputs), **of_outputs}

    def scores(self, state: LearnerState, ids: Ids, values: Array) -> Array:
        return (values @ state.arrays["direction"][ids]) * state.arrays["scale"]

    def _step(self, state: LearnerState, gradient: Array, ids: Ids, importance: float) -> None:
        direction, scale = state.arrays["direction"], state.arrays["scale"]
        norm_squares = state.arrays["norm_squares"]

        # w - eta lambda = (1 - c / t) w - c / (sigma t) gradient
        keep = 1.0 - importance / state.t
        move = -importance / (self.sigma * state.t) * gradient
        product = (direction[ids] * move).sum(axis=0) * scale
        grown = keep**2 * norm_squares + 2.0 * keep * product
        norm_squares[:] = np.maximum(grown + np.square(move).sum(axis=0), 0.0)
        scale *= keep
        tiny = scale < MIN_SCALE
        if tiny.any():
            direction[:, tiny] *= scale[tiny]
            scale[tiny] = 1.0
        direction[ids] += move / scale

        ball = np.float64(self.ball(len(scale)))
        with np.errstate(over="ignore"):  # a huge radius stands for none
            ball_square = ball**2
        outside = norm_squares > ball_square
        scale[outside] *= ball / np.sqrt(norm_squares[outside])
        norm_squares[outside] = ball_square

    def weights(self, state: LearnerState, ids: Ids | None = None) -> Array:
        return rows_of(state.arrays["direction"], ids) * state.arrays["scale"]


@register(UPDATES, "strongly-convex-simplex")
class StronglyConvexSimplex(GradientLearner):
    """sigma times the negative entropy + loss, on a simplex with a floor.

    O(n_features log n_features) a row: the entropy pulls every weight towards every other, and the
    projection sorts. Arrays: `shares` (n_features, n_outputs), which are w / radius.

    Attributes
    ----------
    sigma : float
        Strength of the entropy.
    floor : float or None
        The smallest share a weight may have, at most 1 / n_features; None is 1 / n_features^2.
    radius : float
        What the weights of an output sum to; 1 in the paper.
    """

    sigma: Positive = 1e-4
    floor: Positive | None = None
    radius: Positive = 1.0

    def init(self, n_features: int, n_outputs: int) -> LearnerState:
        check_floor(self._floor(n_features), n_features)
        return LearnerState(0.0, {"shares": np.full((n_features, n_outputs), 1.0 / n_features)})

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        return {"shares": (n_features, n_outputs)}

    def _step(self, state: LearnerState, gradient: Array, ids: Ids, importance: float) -> None:
        shares = state.arrays["shares"]
        # theta = log w - eta lambda, less what is the same for all: the sum of w settles that.
        theta = (1.0 - importance / state.t) * np.log(shares)
        theta[ids] -= importance / (self.sigma * state.t) * self.radius * gradient
        shares[:] = entropic_floor_projection(
            np.exp(theta - theta.max(axis=0)), self._floor(len(shares))
        )

    def weights(self, state: LearnerState, ids: Ids | None = None) -> Array:
        return self.radius * rows_of(state.arrays["shares"], ids)

    def _floor(self, n_features: int) -> float:
        return 1.0 / n_features**2 if self.floor is None else self.floor
