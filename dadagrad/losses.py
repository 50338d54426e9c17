"""Losses: how wrong a margin is, and how fast that changes.

With margin m = <w, x> + b and target y, a loss has a ``value(m, y)`` and a
``slope(m, y) = d value / d m``; the gradient of one example is then ``slope * x``. Everything here
is plain NumPy over whole arrays: the reference to which the compiled slopes in
`dadagrad.kernels` are held, and what progressive validation sums.

=================  =====================================  =========================
loss               value                                  targets
=================  =====================================  =========================
`Hinge`            max(0, 1 - y m)                        -1, +1
`SquaredHinge`     max(0, 1 - y m)^2 / 2                  -1, +1
`Logistic`         log(1 + exp(-y m))                     -1, +1
`Squared`          (m - y)^2 / 2                          real
`Absolute`         |m - y|                                real
`Huber`            squared near y, linear beyond          real
`Quantile`         q (y - m) below y, (1 - q)(m - y)      real
                   above
`Poisson`          exp(m) - y m, less its least value     real, at least 0
`MulticlassHinge`  max(0, 1 + max_(j != c) m_j - m_c)     one of several classes, c
`Softmax`          log(sum_j exp(m_j)) - m_c              one of several classes, c
`Ranking`          max(0, 1 - (m_a - m_b))                pairs of rows, a before b
=================  =====================================  =========================

The losses of several classes couple the outputs: one loss belongs to the margins of all classes,
and the slope of each depends on all of them. They take arrays whose last axis is the classes, with
a target of +1 at the right class and -1 elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import InputError

Array = NDArray[np.float64]


class Loss(Protocol):
    """What training needs of a loss.

    Attributes
    ----------
    name : str
    code : int
        Names the loss to the kernels.
    parameter : float
        The one number it may have.
    classifies : bool
        Whether its targets are the signs -1 and +1.
    couples : bool
        Whether the margins of all classes make one loss.
    ranks : bool
        Whether its margins are differences of two rows.
    log_link : bool
        Whether a margin is the logarithm of what is predicted.
    target_range : (float, float)
        The least and the greatest target.
    """

    @property
    def name(self) -> str: ...
    @property
    def code(self) -> int: ...
    @property
    def parameter(self) -> float: ...
    @property
    def classifies(self) -> bool: ...
    @property
    def couples(self) -> bool: ...
    @property
    def ranks(self) -> bool: ...
    @property
    def log_link(self) -> bool: ...
    @property
    def target_range(self) -> tuple[float, float]: ...

    def value(self, margin: Array, target: Array) -> Array:
        """The loss at each margin: non-negative, of the broadcast shape.

        Where the loss couples outputs, without the last axis of that shape.
        """

    def slope(self, margin: Array, target: Array) -> Array:
        """The derivative of `value` by the margin; at a kink, the element nearest to 0."""


class _Plain:
    """What most losses have in common."""

    __slots__ = ()
    classifies: ClassVar[bool] = False
    couples: ClassVar[bool] = False
    ranks: ClassVar[bool] = False
    log_link: ClassVar[bool] = False
    target_range: ClassVar[tuple[float, float]] = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Hinge(_Plain):
    """max(0, 1 - y m); the slope at y m = 1 exactly is 0."""

    name: ClassVar[str] = "hinge"
    code: ClassVar[int] = 0
    parameter: ClassVar[float] = 0.0
    classifies: ClassVar[bool] = True

    def value(self, margin: Array, target: Array) -> Array:
        return np.maximum(0.0, 1.0 - target * margin)

    def slope(self, margin: Array, target: Array) -> Array:
        return np.where(target * margin < 1.0, -target, 0.0)


@dataclass(frozen=True, slots=True)
class SquaredHinge(_Plain):
    """max(0, 1 - y m)^2 / 2."""

    name: ClassVar[str] = "squared-hinge"
    code: ClassVar[int] = 1
    parameter: ClassVar[float] = 0.0
    classifies: ClassVar[bool] = True

    def value(self, margin: Array, target: Array) -> Array:
        return 0.5 * np.square(np.maximum(0.0, 1.0 - target * margin))

    def slope(self, margin: Array, target: Array) -> Array:
        return -target * np.maximum(0.0, 1.0 - target * margin)


@dataclass(frozen=True, slots=True)
class Logistic(_Plain):
    """log(1 + exp(-y m)), computed without overflow at any margin."""

    name: ClassVar[str] = "logistic"
    code: ClassVar[int] = 2
    parameter: ClassVar[float] = 0.0
    classifies: ClassVar[bool] = True

    def value(self, margin: Array, target: Array) -> Array:
        return np.logaddexp(0.0, -target * margin)

    def slope(self, margin: Array, target: Array) -> Array:
        agreement = target * margin
        decay = np.exp(-np.abs(agreement))
        return -target * np.where(agreement >= 0.0, decay, 1.0) / (1.0 + decay)


@dataclass(frozen=True, slots=True)
class Squared(_Plain):
    """(m - y)^2 / 2."""

    name: ClassVar[str] = "squared"
    code: ClassVar[int] = 3
    parameter: ClassVar[float] = 0.0

    def value(self, margin: Array, target: Array) -> Array:
        return 0.5 * np.square(margin - target)

    def slope(self, margin: Array, target: Array) -> Array:
        return margin - target


@dataclass(frozen=True, slots=True)
class Absolute(_Plain):
    """|m - y|; the slope at m = y exactly is 0."""

    name: ClassVar[str] = "absolute"
    code: ClassVar[int] = 4
    parameter: ClassVar[float] = 0.0

    def value(self, margin: Array, target: Array) -> Array:
        return np.abs(margin - target)

    def slope(self, margin: Array, target: Array) -> Array:
        return np.sign(margin - target)


@dataclass(frozen=True, slots=True)
class Huber(_Plain):
    """(m - y)^2 / 2 where |m - y| <= width, and width (|m - y| - width / 2) beyond."""

    width: float = 1.0
    name: ClassVar[str] = "huber"
    code: ClassVar[int] = 5

    def __post_init__(self) -> None:
        if not (np.isfinite(self.width) and self.width > 0):
            raise InputError(f"the width of the Huber loss must be positive, not {self.width}")

    @property
    def parameter(self) -> float:
        return self.width

    def value(self, margin: Array, target: Array) -> Array:
        distance = np.abs(margin - target)
        inside = np.minimum(distance, self.width)
        return inside * (distance - 0.5 * inside)

    def slope(self, margin: Array, target: Array) -> Array:
        return np.clip(margin - target, -self.width, self.width)


@dataclass(frozen=True, slots=True)
class Quantile(_Plain):
    """q (y - m) where m < y, (1 - q) (m - y) where m > y: the pinball loss of the quantile q.

    Its mean is least where a share q of the targets lies below m. The slope at m = y exactly is 0.
    """

    quantile: float = 0.5
    name: ClassVar[str] = "quantile"
    code: ClassVar[int] = 6

    def __post_init__(self) -> None:
        if not 0.0 < self.quantile < 1.0:
            raise InputError(f"the quantile must be between 0 and 1, not {self.quantile}")

    @property
    def parameter(self) -> float:
        return self.quantile

    def value(self, margin: Array, target: Array) -> Array:
        distance = margin - target
        return np.maximum(-self.quantile * distance, (1.0 - self.quantile) * distance)

    def slope(self, margin: Array, target: Array) -> Array:
        distance = margin - target
        above = np.where(distance > 0.0, 1.0 - self.quantile, 0.0)
        return np.where(distance < 0.0, -self.quantile, above)


MOST_LOG_MEAN = 30.0
"""Margins above this stand for no larger means: exp(30) is 10^13."""


@dataclass(frozen=True, slots=True)
class Poisson(_Plain):
    """exp(m) - y m - (y - y log y): half the Poisson deviance of the mean exp(m).

    Above m = `MOST_LOG_MEAN` the exponential goes on as its tangent there. The loss stays convex,
    nothing overflows, and the slope is at most exp(30).
    """

    name: ClassVar[str] = "poisson"
    code: ClassVar[int] = 7
    parameter: ClassVar[float] = 0.0
    log_link: ClassVar[bool] = True
    target_range: ClassVar[tuple[float, float]] = (0.0, 1e13)

    def value(self, margin: Array, target: Array) -> Array:
        mean = np.exp(np.minimum(margin, MOST_LOG_MEAN))
        beyond = 1.0 + np.maximum(margin - MOST_LOG_MEAN, 0.0)
        least = target - target * np.log(np.where(target > 0.0, target, 1.0))
        value: Array = np.maximum(mean * beyond - target * margin - least, 0.0)
        return value

    def slope(self, margin: Array, target: Array) -> Array:
        return np.exp(np.minimum(margin, MOST_LOG_MEAN)) - target


@dataclass(frozen=True, slots=True)
class MulticlassHinge(_Plain):
    """max(0, 1 + m_best - m_c), m_best the largest margin of a wrong class (Crammer and Singer).

    The slope is +1 at the best wrong class (the first among equals), -1 at the right one, and 0
    everywhere where the loss is exactly 0.
    """

    name: ClassVar[str] = "multiclass-hinge"
    code: ClassVar[int] = 8
    parameter: ClassVar[float] = 0.0
    classifies: ClassVar[bool] = True
    couples: ClassVar[bool] = True

    def value(self, margin: Array, target: Array) -> Array:
        right, wrong = _right_and_wrong(margin, target)
        value: Array = np.maximum(0.0, 1.0 + wrong.max(axis=-1) - right)
        return value

    def slope(self, margin: Array, target: Array) -> Array:
        right, wrong = _right_and_wrong(margin, target)
        best = wrong.argmax(axis=-1)[..., None] == np.arange(wrong.shape[-1])
        loses = (1.0 + wrong.max(axis=-1) - right > 0.0)[..., None]
        return np.where(loses, np.where(best, 1.0, 0.0) - np.where(target > 0.0, 1.0, 0.0), 0.0)


@dataclass(frozen=True, slots=True)
class Softmax(_Plain):
    """log(sum_j exp(m_j)) - m_c: the cross entropy of the probabilities exp(m_j) / sum exp(m).

    Computed from the largest margin down, so that no exponential overflows.
    """

    name: ClassVar[str] = "softmax"
    code: ClassVar[int] = 9
    parameter: ClassVar[float] = 0.0
    classifies: ClassVar[bool] = True
    couples: ClassVar[bool] = True

    def value(self, margin: Array, target: Array) -> Array:
        right, _ = _right_and_wrong(margin, target)
        largest = margin.max(axis=-1)
        total = np.exp(margin - largest[..., None]).sum(axis=-1)
        value: Array = np.log(total) + (largest - right)
        return value

    def slope(self, margin: Array, target: Array) -> Array:
        parts = np.exp(margin - margin.max(axis=-1, keepdims=True))
        others = np.where(target > 0.0, 0.0, parts).sum(axis=-1, keepdims=True)
        # Not p - 1, which is 0 long before the probability of the other classes is.
        slope: Array = np.where(target > 0.0, -others, parts) / parts.sum(axis=-1, keepdims=True)
        return slope


def _right_and_wrong(margin: Array, target: Array) -> tuple[Array, Array]:
    """The margin of the right class, and those of the wrong ones, with -inf in its place."""
    right = np.where(target > 0.0, margin, 0.0).sum(axis=-1)
    return right, np.where(target > 0.0, -np.inf, margin)


@dataclass(frozen=True, slots=True)
class Ranking(_Plain):
    """max(0, 1 - m), m the margin of one row less that of another that belongs after it.

    Over single rows of differences it is the hinge loss with target 1, and so it is to the kernels.
    """

    name: ClassVar[str] = "ranking"
    code: ClassVar[int] = Hinge.code
    parameter: ClassVar[float] = 0.0
    ranks: ClassVar[bool] = True

    def value(self, margin: Array, target: Array) -> Array:
        return Hinge().value(margin, target)

    def slope(self, margin: Array, target: Array) -> Array:
        return Hinge().slope(margin, target)


LOSSES: dict[str, type[Loss]] = {
    loss.name: loss
    for loss in (
        Hinge, SquaredHinge, Logistic, Squared, Absolute, Huber, Quantile, Poisson,
        MulticlassHinge, Softmax, Ranking,
    )
}  # fmt: skip
"""Every loss by the name that configuration and the command line use."""

WITH_PROBABILITIES = (Logistic.name, Softmax.name)
"""The losses whose margins stand for probabilities."""


def make_loss(name: str, huber_width: float = 1.0, quantile: float = 0.5) -> Loss:
    """The loss called `name`.

    `huber_width` matters to the Huber loss alone, and `quantile` to the quantile loss.

    Raises
    ------
    InputError
        There is no such loss, or its parameter is out of range.
    """
    if name not in LOSSES:
        raise InputError(f"loss {name!r} is not known; choose one of {', '.join(LOSSES)}")
    if name == Huber.name:
        return Huber(huber_width)
    return Quantile(quantile) if name == Quantile.name else LOSSES[name]()


def check_targets(loss: Loss, labels: Array, where: str, first_row: int) -> None:
    """Raise `InputError` for a label that is no target of `loss`.

    `labels` is (n_rows, n_label_columns); the message names `where` and the row, the first of
    which is `first_row`.
    """
    least, most = loss.target_range
    if least == -math.inf and most == math.inf:
        return
    wrong = (labels < least) | (labels > most)
    if wrong.any():
        row = int(np.flatnonzero(wrong.any(axis=1))[0])
        raise InputError(
            f"{where}: row {first_row + row} has label {labels[row][wrong[row]][0]:g}; the "
            f"{loss.name} loss needs labels from {least:g} to {most:g}"
        )
