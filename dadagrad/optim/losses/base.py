"""Base class of the losses: the error of a score, and its slope."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np

from dadagrad.errors import InputError
from dadagrad.optim.arrays import Array
from dadagrad.optim.registry import Named, Registry

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
            cls.center = vars(cls).get("center", Loss.center)  # type: ignore[method-assign]
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

    def center(self, labels: Array, centers: Array) -> tuple[Array, Array] | None:
        """Return labels for scores that are less by `centers`, and a factor of each label column.

        The loss of a score and a label is the factor times that of the score less its center and
        the returned label. None if a loss has no such labels. `labels` are (n_rows,
        n_label_columns), and `centers` (n_label_columns,).
        """
        return (labels - centers, np.ones_like(centers)) if self.of_residual else None

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
