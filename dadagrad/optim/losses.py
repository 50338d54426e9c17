"""Losses: the error of a score, and its slope.

With score m = <w, x> + b and label y, a loss has a ``value(m, y)`` and a
``slope(m, y) = d value / d m``; the gradient of a row is ``slope * x``. Everything here is plain
NumPy over whole arrays. The compiled formulas in `dadagrad.kernels.training` are tested against it.

The losses of several classes couple the outputs: one loss belongs to the scores of all classes, and
the slope of each depends on all of them. They take arrays whose last axis is the classes, with a
label of +1 at the right class and -1 elsewhere.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np

from dadagrad.errors import InputError
from dadagrad.optim.arrays import Array
from dadagrad.optim.registry import Named, Positive, Registry, register

Task = Literal["binary", "multiclass", "regression", "ranking"]
Link = Literal["identity", "logit", "log"]


class Loss(Named, ABC):
    """A convex loss of scores.

    A subclass defines `value` and `slope` for NumPy arrays. With a `slope` that is a static Numba
    function of two floats, ``@staticmethod`` over ``@numba.njit``, training compiles it into its
    loops, and arrays are passed to it element by element.

    Attributes
    ----------
    name : str
        Name in reports and checkpoints; by default that of the class.
    task : {"binary", "multiclass", "regression", "ranking"}
        "binary": labels are -1 or 1, and each of several classes has a model of its own.
        "multiclass": the scores of all classes make one loss. "regression": labels are numbers.
        "ranking": scores are differences of two rows of a query, of which the first belongs
        before the second.
    link : {"identity", "logit", "log"}
        The meaning of a score: the prediction itself, log-odds, or the prediction's logarithm.
    label_range : (float, float)
        The smallest and the largest label of a regression.
    has_kink : bool
        True if the slope jumps, so that steps can pass the best score of their row at full size.
    of_residual : bool
        True if the loss depends on the difference of score and label alone: training may learn from
        labels less a constant.
    """

    task: ClassVar[Task] = "binary"
    link: ClassVar[Link] = "identity"
    label_range: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    has_kink: ClassVar[bool] = False
    of_residual: ClassVar[bool] = False
    code: ClassVar[int | None] = None
    """Number of the formulas in `dadagrad.kernels.training`, or None without any."""
    scalar_slope: ClassVar[Any] = None
    """The slope as a Numba function, for the compiled loops."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if vars(cls).keys() & {"value", "slope"} and "code" not in vars(cls):
            cls.code = None
            cls.of_residual = vars(cls).get("of_residual", False)
        slope = inspect.getattr_static(cls, "slope")
        if isinstance(slope, staticmethod) and hasattr(slope.__func__, "py_func"):
            from numba import vectorize

            cls.scalar_slope = slope.__func__
            cls.slope = staticmethod(vectorize(slope.__func__.py_func))  # type: ignore

    @abstractmethod
    def value(self, scores: Array, labels: Array) -> Array:
        """Return the loss of each score: non-negative, of the broadcast shape.

        A multiclass loss has no last axis of that shape: it is one number for all classes.
        """

    @abstractmethod
    def slope(self, scores: Array, labels: Array) -> Array:
        """Return the derivative of `value` by the score; at a kink, the element nearest to 0."""

    def mean_slope(self, scores: Array, labels: Array, pace: Array) -> Array:
        """Return the mean of the slope along a step, of which `slope` is that at its beginning.

        Along the step, for h from 0 to 1, the score moves as d score / dh = -pace slope(score), and
        so by -pace times this mean in all (Karampatziakis and Langford 2011, table 1). A row of
        weight c has a pace c times as large, as if it came in many small parts. A loss without a
        closed form has the slope at the beginning.
        """
        return self.slope(scores, labels)

    @property
    def has_kernels(self) -> bool:
        """True if compiled loops can compute its slope."""
        return self.code is not None or self.scalar_slope is not None

    @property
    def classifies(self) -> bool:
        """True if the labels are the signs -1 and 1."""
        return self.task in ("binary", "multiclass")

    @property
    def couples(self) -> bool:
        """True if the scores of all classes make one loss."""
        return self.task == "multiclass"

    @property
    def ranks(self) -> bool:
        """True if scores are differences of two rows."""
        return self.task == "ranking"


LOSSES: Registry[Loss] = Registry("loss", Loss)  # type: ignore[type-abstract]
"""Built-in losses by name."""


@register(LOSSES, "hinge")
class Hinge(Loss):
    """max(0, 1 - y m); the slope at y m = 1 exactly is 0."""

    code: ClassVar[int | None] = 0
    has_kink: ClassVar[bool] = True

    def value(self, scores: Array, labels: Array) -> Array:
        return np.maximum(0.0, 1.0 - labels * scores)

    def slope(self, scores: Array, labels: Array) -> Array:
        return np.where(labels * scores < 1.0, -labels, 0.0)

    def mean_slope(self, scores: Array, labels: Array, pace: Array) -> Array:
        return -labels * np.minimum(1.0, self.value(scores, labels) / pace)


@register(LOSSES, "squared-hinge")
class SquaredHinge(Loss):
    """max(0, 1 - y m)^2 / 2."""

    code: ClassVar[int | None] = 1

    def value(self, scores: Array, labels: Array) -> Array:
        return 0.5 * np.square(np.maximum(0.0, 1.0 - labels * scores))

    def slope(self, scores: Array, labels: Array) -> Array:
        return -labels * np.maximum(0.0, 1.0 - labels * scores)

    def mean_slope(self, scores: Array, labels: Array, pace: Array) -> Array:
        return self.slope(scores, labels) * _decay(pace)


@register(LOSSES, "logistic")
class Logistic(Loss):
    """log(1 + exp(-y m)), computed without overflow at any score."""

    code: ClassVar[int | None] = 2
    link: ClassVar[Link] = "logit"

    def value(self, scores: Array, labels: Array) -> Array:
        return np.logaddexp(0.0, -labels * scores)

    def slope(self, scores: Array, labels: Array) -> Array:
        agreement = labels * scores
        decay = np.exp(-np.abs(agreement))
        return -labels * np.where(agreement >= 0.0, decay, 1.0) / (1.0 + decay)

    def mean_slope(self, scores: Array, labels: Array, pace: Array) -> Array:
        """With a = y m, the move b of a solves b + exp(a) (exp(b) - 1) = pace."""
        growth = np.exp(np.minimum(labels * scores, 500.0))
        move = np.minimum(pace / (1.0 + growth), np.log1p(pace / growth))
        for _ in range(20):  # Newton's method, from above
            excess = move + growth * np.expm1(move) - pace
            move = move - excess / (1.0 + growth * np.exp(move))
        return -labels * move / pace


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
        return (scores - labels) * _decay(pace)


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
        return np.sign(distance) * (width * outside + inside * _decay(pace * (1.0 - outside)))


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


def _decay(pace: Array) -> Array:
    """The mean of exp(-pace h) for h from 0 to 1."""
    positive = np.where(pace > 0.0, pace, 1.0)
    return np.where(pace > 0.0, -np.expm1(-positive) / positive, 1.0)


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

    def mean_slope(self, scores: Array, labels: Array, pace: Array) -> Array:
        """Exact up to `MAX_LOG_MEAN`."""
        mean = np.exp(np.minimum(scores, MAX_LOG_MEAN))
        added = mean * pace * _decay(pace * labels)
        growth = np.expm1(-pace * labels) + added
        small = np.log(np.exp(-pace * labels) + added)
        return np.where(growth < -0.5, small, np.log1p(np.maximum(growth, -0.5))) / pace


@register(LOSSES, "multiclass-hinge")
class MulticlassHinge(Loss):
    """max(0, 1 + m_best - m_c), m_best the largest margin of a wrong class (Crammer and Singer).

    The slope is +1 at the best wrong class (the first among equals), -1 at the right one, and 0
    everywhere where the loss is exactly 0.
    """

    code: ClassVar[int | None] = 8
    task: ClassVar[Task] = "multiclass"

    def value(self, scores: Array, labels: Array) -> Array:
        right, wrong = _right_and_wrong(scores, labels)
        value: Array = np.maximum(0.0, 1.0 + wrong.max(axis=-1) - right)
        return value

    def slope(self, scores: Array, labels: Array) -> Array:
        right, wrong = _right_and_wrong(scores, labels)
        best = wrong.argmax(axis=-1)[..., None] == np.arange(wrong.shape[-1])
        loses = (1.0 + wrong.max(axis=-1) - right > 0.0)[..., None]
        return np.where(loses, np.where(best, 1.0, 0.0) - np.where(labels > 0.0, 1.0, 0.0), 0.0)


@register(LOSSES, "softmax")
class Softmax(Loss):
    """log(sum_j exp(m_j)) - m_c: the cross entropy of the probabilities exp(m_j) / sum exp(m).

    Computed from the largest margin down, so that no exponential overflows.
    """

    code: ClassVar[int | None] = 9
    link: ClassVar[Link] = "logit"
    task: ClassVar[Task] = "multiclass"

    def value(self, scores: Array, labels: Array) -> Array:
        right, _ = _right_and_wrong(scores, labels)
        largest = scores.max(axis=-1)
        total = np.exp(scores - largest[..., None]).sum(axis=-1)
        value: Array = np.log(total) + (largest - right)
        return value

    def slope(self, scores: Array, labels: Array) -> Array:
        parts = np.exp(scores - scores.max(axis=-1, keepdims=True))
        others = np.where(labels > 0.0, 0.0, parts).sum(axis=-1, keepdims=True)
        # Not p - 1, which is 0 long before the probability of the other classes is.
        slope: Array = np.where(labels > 0.0, -others, parts) / parts.sum(axis=-1, keepdims=True)
        return slope


def _right_and_wrong(scores: Array, labels: Array) -> tuple[Array, Array]:
    """The score of the right class, and the scores of all classes with -inf in its place."""
    right = np.where(labels > 0.0, scores, 0.0).sum(axis=-1)
    return right, np.where(labels > 0.0, -np.inf, scores)


@register(LOSSES, "ranking")
class Ranking(Hinge):
    """max(0, 1 - m), m the score of a row less that of another row that belongs after it.

    It is the hinge loss of differences of rows, all with the label 1.
    """

    task: ClassVar[Task] = "ranking"


HINGES = (Hinge.name, SquaredHinge.name, Ranking.name)
"""Losses whose labels are signs and that ask for a score beyond a margin."""


def check_targets(loss: Loss, labels: Array, place: str, first_row: int) -> None:
    """Raise `InputError` for a label out of the range of `loss`.

    `labels` is (n_rows, n_label_columns); the message names `place` and the row, the first of
    which is `first_row`.
    """
    least, most = loss.label_range
    if least == -math.inf and most == math.inf:
        return
    wrong = (labels < least) | (labels > most)
    if wrong.any():
        row = int(np.flatnonzero(wrong.any(axis=1))[0])
        raise InputError(
            f"{place}: row {first_row + row} has label {labels[row][wrong[row]][0]:g}; the "
            f"{loss.name} loss needs labels from {least:g} to {most:g}"
        )
