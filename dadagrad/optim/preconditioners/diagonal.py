"""Diagonal preconditioners: each weight has a curvature of its own.

============  =============================  =================================================
`Diagonal`    H_i = delta + sqrt(G_i)        AdaGrad (Duchi, Hazan and Singer 2011, fig. 1)
`Identity`    H_i = t^p                      RDA, FOBOS, projected gradient descent
`Global`      H_i = delta + sqrt(sum_i G_i)  one adaptive rate for all (McMahan's lecture)
`Normalized`  H_i = m_i (delta + sqrt G_i)   the same at any scale of a feature
============  =============================  =================================================

G_i is the sum over steps of g_i^2, m_i the largest abs(x_i), t the importance of all steps.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from dadagrad.optim.arrays import Array, Arrays, Ids, add_rows, rows_of
from dadagrad.optim.preconditioners.base import PRECONDITIONERS, DiagonalPreconditioner, Step
from dadagrad.optim.registry import NonNegative, Schedule, register

POWERS = {"constant": 0.0, "sqrt": 0.5, "linear": 1.0}


@register(PRECONDITIONERS, "diagonal")
class Diagonal(DiagonalPreconditioner):
    """H_i = delta + sqrt(G_i): a coordinate slows down as it collects gradient.

    Keeps G as ``squares``.
    """

    delta: NonNegative = 1e-6

    def init(self, n_features: int, n_outputs: int) -> Arrays:
        return {"squares": np.zeros((n_features, n_outputs))}

    def add(self, arrays: Arrays, step: Step) -> Arrays:
        return {"squares": add_rows(arrays["squares"], np.square(step.gradient), step.ids)}

    def curvature(self, arrays: Arrays, ids: Ids | None = None) -> Array:
        return self.delta + np.sqrt(rows_of(arrays["squares"], ids))


class _Uniform(DiagonalPreconditioner):
    """Base of H = h I. Keeps a sum over steps as `total`, (n_outputs,)."""

    local: ClassVar[bool] = False
    total: ClassVar[str]

    def init(self, n_features: int, n_outputs: int) -> Arrays:
        # Nothing else tells the length of the diagonal.
        return {self.total: np.zeros(n_outputs), "n_features": np.array(n_features)}

    def add(self, arrays: Arrays, step: Step) -> Arrays:
        return {**arrays, self.total: np.asarray(arrays[self.total] + self._growth(step))}

    def curvature(self, arrays: Arrays, ids: Ids | None = None) -> Array:
        n_rows = int(arrays["n_features"]) if ids is None else len(ids)
        total = arrays[self.total]
        # Before the first step H = 0, hence no weights.
        row = np.where(total > 0, self._height(total), 0.0)
        return np.broadcast_to(row, (n_rows, *row.shape))

    @abstractmethod
    def _growth(self, step: Step) -> Array | float:
        """The term of a step in the sum, for each output."""

    @abstractmethod
    def _height(self, total: Array) -> Array:
        """h of a sum above 0."""


@register(PRECONDITIONERS, "identity")
class Identity(_Uniform):
    """H = t^p I, which adapts to nothing but time.

    ================  ===  ================================================================
    schedule           p   algorithm
    ================  ===  ================================================================
    ``"constant"``     0   mirror descent is projected gradient descent with a fixed step
    ``"sqrt"``       1/2   dual averaging is RDA (Xiao 2010), mirror descent is FOBOS with
                           eta / sqrt(t) (Duchi and Singer 2009)
    ``"linear"``       1   steps eta / t, for strongly convex losses (Shalev-Shwartz and
                           Singer 2007)
    ================  ===  ================================================================

    Keeps t, the importance up to and with the present step, as ``time``.
    """

    schedule: Schedule = "sqrt"
    total: ClassVar[str] = "time"

    def _growth(self, step: Step) -> Array | float:
        return step.importance

    def _height(self, total: Array) -> Array:
        return np.asarray(np.power(total, POWERS[self.schedule]))


@register(PRECONDITIONERS, "global")
class Global(_Uniform):
    """H = (delta + sqrt(sum_s |g_s|_2^2)) I: one rate, which adapts to the gradients seen.

    The global learning rate of McMahan's lecture, whose regret the per-coordinate one of `Diagonal`
    is at least as good as. Keeps sum |g|^2 of each output as ``squares``.
    """

    delta: NonNegative = 0.0
    total: ClassVar[str] = "squares"

    def _growth(self, step: Step) -> Array | float:
        return np.asarray(np.square(step.gradient).sum(axis=0))

    def _height(self, total: Array) -> Array:
        return np.asarray(self.delta + np.sqrt(total))


@register(PRECONDITIONERS, "normalized")
class Normalized(DiagonalPreconditioner):
    """H_i = m_i (delta + sqrt(G_i)), which does not see the scale of a feature.

    Scaling a feature by s scales its gradients and m_i by s and, with delta = 0, H_i by s^2, its
    weight -eta u_i / H_i by 1/s, and so no score at all (after Ross, Mineiro and Langford 2013).
    Data need no pass that scales them. As |u_i| <= sqrt(t G_i), no weight of dual averaging adds
    more than eta sqrt(t) to the score of a row that was seen, whatever the size of the slopes.

    The values x come as `scales` with each step. Without them m_i is the largest |g_i|, which has
    the same scale, but not the same bound: a feature that is first met with the slope d weighs
    eta / (d x). That is harmless where slopes are 0 or of one size (hinge, absolute). With other
    losses a tiny first slope gives a huge weight, which a positive delta bounds at the price of
    seeing scales. No formula in gradients alone helps: of one gradient d x_i nothing but the sign
    is free of the scale, so the weight after it must be a multiple of 1 / (d x_i), or 0.

    Keeps G as ``squares`` and m as ``largest``.
    """

    delta: NonNegative = 1e-6

    def init(self, n_features: int, n_outputs: int) -> Arrays:
        return {name: np.zeros((n_features, n_outputs)) for name in ("squares", "largest")}

    def add(self, arrays: Arrays, step: Step) -> Arrays:
        sizes = np.abs(step.gradient)
        if step.scales is not None:
            sizes = step.scales[:, None]
        squares = add_rows(arrays["squares"], np.square(step.gradient), step.ids)
        largest = np.maximum(rows_of(arrays["largest"], step.ids), sizes)
        if step.ids is not None:
            arrays["largest"][step.ids] = largest
            largest = arrays["largest"]
        return {"squares": squares, "largest": largest}

    def curvature(self, arrays: Arrays, ids: Ids | None = None) -> Array:
        root = np.sqrt(rows_of(arrays["squares"], ids))
        return rows_of(arrays["largest"], ids) * (self.delta + root)
