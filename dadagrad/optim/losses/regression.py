"""Losses of numbers: regressions, quantiles and counts."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dadagrad.errors import InputError
from dadagrad.optim.arrays import Array, mean_decay
from dadagrad.optim.losses.base import LOSSES, Link, Loss, Task
from dadagrad.optim.registry import Positive, register


@register(LOSSES, "squared")
class Squared(Loss):
    """(m - y)^2 / 2."""

    code: ClassVar[int | None] = 3
    of_residual: ClassVar[bool] = True
    task: ClassVar[Task] = "regression"

    def value(self, scores: Array, labels: Array) -> Array:
        return 0.5 * np.square(scores - labels)

    def slope(self, scores: Array, labels: Array) -> Array:
        return scores - labels

    def mean_slope(self, scores: Array, labels: Array, pace: Array) -> Array:
        return (scores - labels) * mean_decay(pace)


@register(LOSSES, "absolute")
class Absolute(Loss):
    """|m - y|; the slope at m = y exactly is 0."""

    code: ClassVar[int | None] = 4
    of_residual: ClassVar[bool] = True
    has_kink: ClassVar[bool] = True
    task: ClassVar[Task] = "regression"

    def value(self, scores: Array, labels: Array) -> Array:
        return np.abs(scores - labels)

    def slope(self, scores: Array, labels: Array) -> Array:
        return np.sign(scores - labels)

    def mean_slope(self, scores: Array, labels: Array, pace: Array) -> Array:
        return np.clip((scores - labels) / pace, -1.0, 1.0)


@register(LOSSES, "huber")
class Huber(Loss):
    """(m - y)^2 / 2 where |m - y| <= width, and width (|m - y| - width / 2) beyond."""

    width: Positive = 1.0
    code: ClassVar[int | None] = 5
    of_residual: ClassVar[bool] = True
    task: ClassVar[Task] = "regression"

    def value(self, scores: Array, labels: Array) -> Array:
        distance = np.abs(scores - labels)
        inside = np.minimum(distance, self.width)
        return inside * (distance - 0.5 * inside)

    def slope(self, scores: Array, labels: Array) -> Array:
        return np.clip(scores - labels, -self.width, self.width)

    def mean_slope(self, scores: Array, labels: Array, pace: Array) -> Array:
        """A share of the step is outside of the width, where the slope is constant."""
        distance, width = scores - labels, self.width
        outside = np.clip((np.abs(distance) - width) / (width * pace), 0.0, 1.0)
        inside = np.minimum(np.abs(distance), width) * (1.0 - outside)
        return np.sign(distance) * (width * outside + inside * mean_decay(pace * (1.0 - outside)))


@register(LOSSES, "quantile")
class Quantile(Loss):
    """q (y - m) where m < y, (1 - q) (m - y) where m > y: the pinball loss of the quantile q.

    Its mean is least where a share q of the targets lies below m. The slope at m = y exactly is 0.
    """

    q: Positive = 0.5
    code: ClassVar[int | None] = 6
    of_residual: ClassVar[bool] = True
    has_kink: ClassVar[bool] = True
    task: ClassVar[Task] = "regression"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.q >= 1.0:
            raise InputError(f"q of quantile must be below 1, not {self.q!r}")

    def value(self, scores: Array, labels: Array) -> Array:
        distance = scores - labels
        return np.maximum(-self.q * distance, (1.0 - self.q) * distance)

    def slope(self, scores: Array, labels: Array) -> Array:
        distance = scores - labels
        above = np.where(distance > 0.0, 1.0 - self.q, 0.0)
        return np.where(distance < 0.0, -self.q, above)

    def mean_slope(self, scores: Array, labels: Array, pace: Array) -> Array:
        return np.clip((scores - labels) / pace, -self.q, 1.0 - self.q)


MAX_LOG_MEAN = 30.0
"""Margins above this stand for no larger means: exp(30) is 10^13."""


@register(LOSSES, "poisson")
class Poisson(Loss):
    """exp(m) - y m - (y - y log y): half the Poisson deviance of the mean exp(m).

    Above m = `MAX_LOG_MEAN` the exponential goes on as its tangent there. The loss stays convex,
    nothing overflows, and the slope is at most exp(30).
    """

    code: ClassVar[int | None] = 7
    task: ClassVar[Task] = "regression"
    link: ClassVar[Link] = "log"
    label_range: ClassVar[tuple[float, float]] = (0.0, 1e13)

    def value(self, scores: Array, labels: Array) -> Array:
        mean = np.exp(np.minimum(scores, MAX_LOG_MEAN))
        beyond = 1.0 + np.maximum(scores - MAX_LOG_MEAN, 0.0)
        least = labels - labels * np.log(np.where(labels > 0.0, labels, 1.0))
        return np.maximum(mean * beyond - labels * scores - least, 0.0)

    def slope(self, scores: Array, labels: Array) -> Array:
        return np.exp(np.minimum(scores, MAX_LOG_MEAN)) - labels

    def center(self, labels: Array, centers: Array) -> tuple[Array, Array]:
        """Labels divided by the mean of their center: exact up to `MAX_LOG_MEAN`."""
        means = np.exp(centers)
        return labels / means, means

    def mean_slope(self, scores: Array, labels: Array, pace: Array) -> Array:
        """Exact up to `MAX_LOG_MEAN`."""
        mean = np.exp(np.minimum(scores, MAX_LOG_MEAN))
        added = mean * pace * mean_decay(pace * labels)
        growth = np.expm1(-pace * labels) + added
        small = np.log(np.exp(-pace * labels) + added)
        return np.where(growth < -0.5, small, np.log1p(np.maximum(growth, -0.5))) / pace
