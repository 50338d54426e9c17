"""Losses: how wrong a margin is, and how fast that changes.

With margin m = <w, x> + b and target y, a loss has a ``value(m, y)`` and a
``slope(m, y) = d value / d m``; the gradient of one example is then ``slope * x``. Everything here
is plain NumPy over whole arrays: the reference to which the compiled slopes in
`dadagrad.kernels` are held, and what progressive validation sums.

=================  ==============================  =========================
loss               value                           targets
=================  ==============================  =========================
`Hinge`            max(0, 1 - y m)                 -1, +1
`SquaredHinge`     max(0, 1 - y m)^2 / 2           -1, +1
`Logistic`         log(1 + exp(-y m))              -1, +1
`Squared`          (m - y)^2 / 2                   real
`Absolute`         |m - y|                         real
`Huber`            squared near y, linear beyond   real
=================  ==============================  =========================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import InputError

Array = NDArray[np.float64]


class Loss(Protocol):
    """What training needs of a loss.

    `code` names the loss to the kernels, `parameter` is the one number it may have, and
    `classifies` tells whether its targets are the signs -1 and +1.
    """

    @property
    def name(self) -> str: ...
    @property
    def code(self) -> int: ...
    @property
    def parameter(self) -> float: ...
    @property
    def classifies(self) -> bool: ...

    def value(self, margin: Array, target: Array) -> Array:
        """The loss at each margin: non-negative, of the broadcast shape."""

    def slope(self, margin: Array, target: Array) -> Array:
        """The derivative of `value` by the margin; at a kink, the element nearest to 0."""


@dataclass(frozen=True, slots=True)
class Hinge:
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
class SquaredHinge:
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
class Logistic:
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
class Squared:
    """(m - y)^2 / 2."""

    name: ClassVar[str] = "squared"
    code: ClassVar[int] = 3
    parameter: ClassVar[float] = 0.0
    classifies: ClassVar[bool] = False

    def value(self, margin: Array, target: Array) -> Array:
        return 0.5 * np.square(margin - target)

    def slope(self, margin: Array, target: Array) -> Array:
        return margin - target


@dataclass(frozen=True, slots=True)
class Absolute:
    """|m - y|; the slope at m = y exactly is 0."""

    name: ClassVar[str] = "absolute"
    code: ClassVar[int] = 4
    parameter: ClassVar[float] = 0.0
    classifies: ClassVar[bool] = False

    def value(self, margin: Array, target: Array) -> Array:
        return np.abs(margin - target)

    def slope(self, margin: Array, target: Array) -> Array:
        return np.sign(margin - target)


@dataclass(frozen=True, slots=True)
class Huber:
    """(m - y)^2 / 2 where |m - y| <= width, and width (|m - y| - width / 2) beyond."""

    width: float = 1.0
    name: ClassVar[str] = "huber"
    code: ClassVar[int] = 5
    classifies: ClassVar[bool] = False

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


LOSSES: dict[str, type[Loss]] = {
    loss.name: loss for loss in (Hinge, SquaredHinge, Logistic, Squared, Absolute, Huber)
}
"""Every loss by the name that configuration and the command line use."""


def make_loss(name: str, huber_width: float = 1.0) -> Loss:
    """The loss called `name`; `huber_width` matters to the Huber loss alone."""
    if name not in LOSSES:
        raise InputError(f"loss {name!r} is not known; choose one of {', '.join(LOSSES)}")
    return Huber(huber_width) if name == Huber.name else LOSSES[name]()
