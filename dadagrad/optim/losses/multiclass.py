"""Losses that couple the outputs: one loss of the scores of all classes.

They take arrays whose last axis is the classes, with a label of +1 at the right class and -1
elsewhere. The slope of each class depends on the scores of all.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dadagrad.optim.arrays import Array
from dadagrad.optim.losses.base import LOSSES, Link, Loss, Task
from dadagrad.optim.registry import register


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
