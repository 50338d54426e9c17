"""Losses of signs: each of two classes, or of several, against the others; and pairs of rows."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dadagrad.optim.arrays import Array, mean_decay
from dadagrad.optim.losses.base import LOSSES, Link, Loss, Task
from dadagrad.optim.registry import register


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
        return self.slope(scores, labels) * mean_decay(pace)


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


@register(LOSSES, "ranking")
class Ranking(Hinge):
    """max(0, 1 - m), m the score of a row less that of another row that belongs after it.

    It is the hinge loss of differences of rows, all with the label 1.
    """

    task: ClassVar[Task] = "ranking"


HINGES = (Hinge.name, SquaredHinge.name, Ranking.name)
"""Losses whose labels are signs and that ask for a score beyond a margin."""
