"""Calibration: probabilities of classes from scores.

A calibration is fitted to progressive scores, each of which was computed before its row was learned
from, so that it costs no held-out rows and no further pass. With several passes, these are the
scores of the first pass, or of the last one where rows that were learned from before are predicted
little better than new ones. A run sums a histogram of these scores for each kind of label:
histograms of disjoint rows add up. Later rows, whose scores are closer to those of the final model,
count more, by the cube of the number of rows before: averages of weights, and weights of long
steps, are far from the final ones even after half of the rows.

A row of two classes has one score, and so has each label of a multilabel task: the probability of a
score of 0 is one half. With several classes, the score of each is the difference to the largest of
the others; all classes share one calibration, and their probabilities are divided by the sum.
Therefore the label that is predicted is always the one of the largest probability.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dadagrad.optim.arrays import Array, quotient
from dadagrad.optim.registry import Finite, Named, Numbers, Registry, register

BINS_PER_OCTAVE = 8
MIN_POWER, OCTAVES = -10, 24
N_BINS = 2 * OCTAVES * BINS_PER_OCTAVE
"""Bins of a histogram of scores: eight between a power of two and the next, on both sides of 0."""

FIRST_KEY = (127 + MIN_POWER) * BINS_PER_OCTAVE
"""The first 12 bits of a float32 of the least power: sign, exponent and 3 bits of the mantissa."""

MIN_SLOPE = 1e-9
"""Slope of log-odds over scores at least, so that the larger score has the larger probability."""

Histogram = NDArray[np.float64]
"""(N_BINS, 2): weight of the rows without and with the label, by score."""


def bin_scores() -> Array:
    """The increasing scores that stand for the bins: their middles, and 0 for the inner two."""
    keys = np.arange(FIRST_KEY, FIRST_KEY + N_BINS // 2 + 1, dtype=np.int32) << 20
    edges = keys.view(np.float32).astype(np.float64)
    middles = 0.5 * (edges[1:] + edges[:-1])
    middles[0] = 0.0
    return np.concatenate([-middles[::-1], middles])


class Calibration(Named, ABC):
    """A function from scores to log-odds; before `fit`, one of its kind."""

    is_fitted: ClassVar[bool] = True

    def fit(self, histogram: Histogram, *, even_at_0: bool = False) -> Self:
        """Return the calibration of this kind that suits a histogram of progressive scores.

        With `even_at_0`, the probability of a score of 0 is one half.
        """
        return self

    @abstractmethod
    def log_odds(self, scores: Array) -> Array:
        """Return the log-odds that a row of each score has the label; of the same shape."""


CALIBRATIONS: Registry[Calibration] = Registry("calibration", Calibration, takes_own=False)  # type: ignore[type-abstract]
"""Calibrations by name."""


@register(CALIBRATIONS, "platt")
class Platt(Calibration):
    """1 / (1 + exp(-(slope score + offset))) of the least log loss (Platt 1999).

    Fitted by Newton's method with backtracking, to targets that are a little away from 0 and 1
    (Lin, Lin and Weng 2007, "A note on Platt's probabilistic outputs for support vector machines").
    """

    slope: Finite = 1.0
    offset: Finite = 0.0

    def fit(self, histogram: Histogram, *, even_at_0: bool = False) -> Platt:
        scores, weights = bin_scores(), histogram.sum(axis=1)
        negative, positive = histogram.sum(axis=0)
        if not weights.any():
            return self
        low, high = 1.0 / (negative + 2.0), (positive + 1.0) / (positive + 2.0)
        targets = quotient(histogram @ [low, high], weights)

        def loss(point: Array) -> float:
            odds = point @ features
            return float(weights @ (np.logaddexp(0.0, odds) - targets * odds))

        features = np.stack([scores, np.ones(len(scores))])[: 1 if even_at_0 else 2]
        point = np.array([0.0, np.log((positive + 1.0) / (negative + 1.0))])[: len(features)]
        for _ in range(100):
            chances = _logistic(point @ features)
            gradient = features @ (weights * (chances - targets))
            if np.abs(gradient).max() < 1e-9 * weights.sum():
                break
            curvature = (features * (weights * chances * (1.0 - chances))) @ features.T
            ridge = 1e-12 * weights.sum() * np.eye(len(point))
            step = np.linalg.solve(curvature + ridge, gradient)
            point = _backtrack(loss, point, step, float(gradient @ step))
        slope, offset = np.append(point, 0.0)[:2].tolist()
        if slope < MIN_SLOPE:  # the best for scores that say nothing about the label
            share = float(weights @ targets / weights.sum())
            slope, offset = MIN_SLOPE, 0.0 if even_at_0 else float(np.log(share / (1.0 - share)))
        return replace(self, slope=slope, offset=offset)

    def log_odds(self, scores: Array) -> Array:
        return self.slope * scores + self.offset


def _backtrack(loss: Callable[[Array], float], point: Array, step: Array, decrease: float) -> Array:
    """Return `point` less the longest of `step`, its half, its quarter, ... that lowers `loss`."""
    before, share = loss(point), 1.0
    while share > 1e-10 and not loss(point - share * step) <= before - 1e-4 * share * decrease:
        share /= 2.0
    return point - share * step


@register(CALIBRATIONS, "isotonic")
class Isotonic(Calibration):
    """The non-decreasing function of the least squared error (Zadrozny and Elkan 2002).

    It takes the `chances` at the increasing `scores`, is linear between them and constant beyond.
    It bends as the data do, and wants thousands of rows.
    """

    scores: Numbers = (0.0,)
    chances: Numbers = (0.5,)

    def fit(self, histogram: Histogram, *, even_at_0: bool = False) -> Isotonic:
        from sklearn.isotonic import isotonic_regression

        weights = histogram.sum(axis=1)
        is_used = (weights > 0) & (bin_scores() != 0)
        if not is_used.any():
            return self
        scores, weights, total = bin_scores()[is_used], weights[is_used], weights.sum()
        chances = isotonic_regression(
            histogram[is_used, 1] / weights,
            sample_weight=weights,
            y_min=1.0 / (total + 2.0),
            y_max=(total + 1.0) / (total + 2.0),
        )
        if even_at_0:
            chances = np.where(scores < 0, np.minimum(chances, 0.5), np.maximum(chances, 0.5))
            place = np.searchsorted(scores, 0.0)
            scores, chances = np.insert(scores, place, 0.0), np.insert(chances, place, 0.5)
        edges = np.diff(chances, prepend=np.nan, append=np.nan) != 0  # ends of the level stretches
        ends = edges[1:] | edges[:-1]
        return replace(
            self, scores=tuple(scores[ends].tolist()), chances=tuple(chances[ends].tolist())
        )

    def log_odds(self, scores: Array) -> Array:
        from scipy.special import logit

        odds: Array = logit(np.interp(scores, self.scores, self.chances))
        return odds


@register(CALIBRATIONS, "none")
class Uncalibrated(Calibration):
    """The score itself, which is the log-odds with logistic loss alone."""

    is_fitted: ClassVar[bool] = False

    def log_odds(self, scores: Array) -> Array:
        return scores


def log_loss(calibration: Calibration, histogram: Histogram) -> float:
    """Mean log loss of the probabilities of rows by their histogram of scores."""
    odds = calibration.log_odds(bin_scores())
    losses = np.stack([np.logaddexp(0.0, odds), np.logaddexp(0.0, -odds)], axis=1)
    return float((histogram * losses).sum() / histogram.sum())


def probabilities(
    calibration: Calibration, task: str, scores: Array, *, coupled: bool = False
) -> Array:
    """Probabilities by (n_rows, n_outputs) scores, as `dadagrad.Model.probabilities`.

    Scores that are `coupled` and not calibrated are those of softmax loss.
    """
    from scipy.special import softmax

    if task != "multiclass":
        odds = calibration.log_odds(scores)
        return _logistic(np.hstack([-odds, odds]) if task == "binary" else odds)
    if calibration.is_fitted:  # the difference of each score to the largest of the others
        second, best = np.sort(scores, axis=1)[:, -2:, None].swapaxes(0, 1)
        scores = scores - np.where(scores == best, second, best)
    elif coupled:
        shares: Array = softmax(scores, axis=1)
        return shares
    chances = _logistic(calibration.log_odds(scores))
    # Classes tie if all their probabilities have underflowed to 0.
    total = chances.sum(axis=1, keepdims=True)
    even = np.full_like(chances, 1.0 / chances.shape[1])
    np.divide(chances, total, out=even, where=total > 0.0)
    return even


def _logistic(odds: Any) -> Array:
    from scipy.special import expit

    chances: Array = expit(odds)
    return chances
