"""Metrics of predictions as sums over rows, which any order and any partitions leave the same.

The formulas are those of `sklearn.metrics` with sample weights: `log_loss`, `confusion_matrix`,
`precision_recall_fscore_support`, `mean_squared_error`, `mean_absolute_error`, `r2_score`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dadagrad.data.rows import Rows
from dadagrad.model.model import Model
from dadagrad.optim.arrays import Array, quotient

_N_BINS = 10
"""Bins of equal width of the calibration error (Guo et al. 2017, equation 3)."""
_MAX_CONFUSION = 100  # classes up to which the confusion matrix is reported

MAX_SCORES = 2**19
"""Distinct scores from which the area under the ROC curve is computed."""

MAX_POINTS = 200
"""Points of a curve for a picture."""


class RocCurve:
    """The area under the ROC curve, from the weight of each class at each score.

    It is exact up to `max_scores` distinct scores, by default `MAX_SCORES`. Of more, neighbours are
    merged, such that each has about 2 / `max_scores` of the weight of a class: only the order
    within them is lost.
    """

    def __init__(self, max_scores: int | None = None) -> None:
        self._max_scores = max_scores or MAX_SCORES
        self._scores = np.zeros(0)
        self._weights = np.zeros((0, 2))  # of negative and positive rows
        self._new: list[tuple[Array, Array]] = []
        self._n_new = 0

    def add(self, scores: Array, targets: Array, weight: Array) -> None:
        self._new.append((scores, np.stack([weight * (targets < 0), weight * (targets > 0)], 1)))
        self._n_new += len(scores)
        if self._n_new > self._max_scores:
            self._merge()

    def _merge(self) -> Array:
        """Sort the scores, and sum the weights at each, which are returned; few enough are kept."""
        pieces = [(self._scores, self._weights), *self._new]
        scores, weights = (np.concatenate(each) for each in zip(*pieces, strict=True))
        order = np.argsort(scores, kind="stable")  # most are in order
        scores, weights = scores[order], weights[order]
        starts = np.flatnonzero(np.diff(scores, prepend=np.nan) != 0.0)
        scores, weights = scores[starts], np.add.reduceat(weights, starts)
        if len(scores) > self._max_scores:
            totals = weights.sum(axis=0)
            shares = (weights / np.where(totals > 0.0, totals, 1.0)).sum(axis=1)
            bins = np.floor((np.cumsum(shares) - shares) * (self._max_scores / 2))
            starts = np.flatnonzero(np.diff(bins, prepend=-1.0))
            ends = np.append(starts[1:], len(scores)) - 1  # a score of great weight is at an end
            scores, weights = scores[ends], np.add.reduceat(weights, starts)
        self._scores, self._weights, self._new, self._n_new = scores, weights, [], 0
        return weights

    def area(self) -> float | None:
        """The chance that a positive row has a larger score than a negative one."""
        negative, positive = self._merge().T
        pairs = positive.sum() * negative.sum()
        if pairs == 0.0:
            return None
        below = np.cumsum(negative) - 0.5 * negative
        return float(positive @ below / pairs)

    def points(self) -> dict[str, list[list[float]]]:
        """The ROC curve and the curve of precision and recall; none without both classes."""
        sums = np.cumsum(self._merge()[::-1], axis=0)
        negative, positive = sums.T
        if not len(sums) or not sums[-1].all():
            return {}
        rates = sums / sums[-1]
        # The same step along the curve between any two points.
        places = np.searchsorted(rates.sum(axis=1), np.linspace(0.0, 2.0, MAX_POINTS))
        places = np.unique(np.minimum(places, len(sums) - 1))
        roc = np.vstack([np.zeros(2), rates[places]])
        precision = positive[places] / (positive + negative)[places]
        pairs = np.stack([rates[places, 1], precision], axis=1)
        return {"roc": roc.tolist(), "precision_recall": pairs.tolist()}

    def average_precision(self) -> float | None:
        """Mean precision over the positive rows, from the largest score down (ties together)."""
        negative, positive = self._merge()[::-1].T
        if positive.sum() == 0.0:
            return None
        right, chosen = np.cumsum(positive), np.cumsum(positive + negative)
        counts = positive > 0.0
        precision = right[counts] / chosen[counts]
        return float(positive[counts] @ precision / right[-1])


class ClassMetrics:
    """Confusion, precision, recall and F1 by class; log loss and calibration error if known."""

    def __init__(self, model: Model) -> None:
        self._model = model
        (column,) = model.label_columns
        self._values = np.array(column.values)
        self._names = column.texts
        self._confusion = np.zeros((len(self._values), len(self._values)))
        self._log_loss = 0.0
        self._bins = np.zeros((_N_BINS, 3))  # weight, sum of confidence, weight of right ones

    def add(self, scores: Array, labels: Array, predicted: Array, weight: Array) -> None:
        """Add rows with these (n_rows, 1) labels and predictions."""
        true, guess = (np.searchsorted(self._values, each[:, 0]) for each in (labels, predicted))
        np.add.at(self._confusion, (true, guess), weight)
        if not self._model.has_probabilities:
            return
        probabilities = self._model.probabilities(scores)
        chosen = np.clip(probabilities[np.arange(len(true)), true], np.finfo(float).eps, 1.0)
        self._log_loss -= float(weight @ np.log(chosen))
        confidence = probabilities.max(axis=1)
        bins = np.minimum((confidence * _N_BINS).astype(int), _N_BINS - 1)
        right = weight * (guess == true)
        np.add.at(self._bins, bins, np.stack([weight, weight * confidence, right], axis=1))

    def reliability(self) -> list[list[float]]:
        """Mean confidence, share of right rows and weight of each bin that has rows."""
        weight, confidence, right = self._bins[self._bins[:, 0] > 0.0].T
        columns: Array = np.stack([confidence / weight, right / weight, weight], axis=1)
        rows: list[list[float]] = columns.tolist()
        return rows

    def result(self) -> dict[str, Any]:
        """Metrics as plain JSON.

        F1 is that of the larger of two classes. Of several classes it is the mean over those that
        occur or are predicted, as in scikit-learn.
        """
        confusion, right = self._confusion, np.diag(self._confusion)
        total = confusion.sum()
        precision, recall = (quotient(right, confusion.sum(axis=axis)) for axis in (0, 1))
        f1 = quotient(2 * right, confusion.sum(axis=0) + confusion.sum(axis=1))
        columns = zip(precision.tolist(), recall.tolist(), f1.tolist(), strict=True)
        occurs = confusion.sum(axis=0) + confusion.sum(axis=1) > 0.0
        plain: dict[str, Any] = {"f1": float(f1[1] if len(f1) == 2 else f1[occurs].mean())}
        if self._model.has_probabilities:
            plain["log_loss"] = self._log_loss / float(total)
            gaps = np.abs(self._bins[:, 1] - self._bins[:, 2])
            plain["calibration_error"] = float(gaps.sum() / total)
        plain["classes"] = {
            name: {"precision": p, "recall": r, "f1": f, "weight": float(weight)}
            for name, (p, r, f), weight in zip(
                self._names, columns, confusion.sum(axis=1), strict=True
            )
        }
        if len(confusion) <= _MAX_CONFUSION:
            plain["confusion"] = confusion.tolist()
        return plain


class LabelMetrics:
    """Precision, recall, F1 and the area under the ROC curve of each of several labels; log loss.

    The areas are those of at most `_MAX_CONFUSION` labels, which share `MAX_SCORES` scores. The log
    loss is the mean over the labels, if probabilities are known.
    """

    def __init__(self, model: Model) -> None:
        self._model, self._total, self._log_loss = model, 0.0, 0.0
        self._names = [column.name for column in model.label_columns]
        self._set = np.array([(column.values or (1.0,))[-1] for column in model.label_columns])
        n_labels = len(self._names)
        self._sums = np.zeros((3, n_labels))  # weight of rows predicted rightly, predicted, set
        self._curves: list[RocCurve] = []
        if n_labels <= _MAX_CONFUSION:
            self._curves = [RocCurve(MAX_SCORES // n_labels) for _ in range(n_labels)]

    def add(self, scores: Array, labels: Array, predicted: Array, weight: Array) -> None:
        """Add rows with these (n_rows, n_labels) labels and predictions."""
        true, guess = labels == self._set, predicted == self._set
        self._sums += np.stack([weight @ (true & guess), weight @ guess, weight @ true])
        for curve, score, is_set in zip(self._curves, scores.T, true.T, strict=False):
            curve.add(score, np.where(is_set, 1.0, -1.0), weight)
        if self._model.has_probabilities:
            probabilities = self._model.probabilities(scores)
            chosen = np.where(true, probabilities, 1.0 - probabilities)
            losses = -np.log(np.clip(chosen, np.finfo(float).eps, 1.0))
            self._log_loss += float(weight @ losses.mean(axis=1))
            self._total += float(weight.sum())

    def result(self) -> dict[str, Any]:
        """Metrics as plain JSON; "f1" and "auc" are means over the labels that have them."""
        right, predicted, true = self._sums
        f1 = quotient(2 * right, predicted + true)
        columns = quotient(right, predicted), quotient(right, true), f1, true
        classes: dict[str, dict[str, float | None]] = {
            name: dict(zip(("precision", "recall", "f1", "weight"), facts, strict=True))
            for name, *facts in zip(self._names, *(each.tolist() for each in columns), strict=True)
        }
        areas = [curve.area() for curve in self._curves]
        for facts, area in zip(classes.values(), areas, strict=False):
            facts["auc"] = area
        known = [area for area in areas if area is not None]
        auc = float(np.mean(known)) if known else None
        plain = {"auc": auc, "f1": float(f1.mean())}
        if self._model.has_probabilities:
            plain["log_loss"] = self._log_loss / self._total
        return plain | {"classes": classes}


class RegressionMetrics:
    """Root mean squared error, mean absolute error and R2, each a mean over label columns."""

    def __init__(self, n_columns: int) -> None:
        self._total = 0.0
        self._sums = np.zeros((4, n_columns))  # squares, absolutes, labels, squares of labels
        self._shift: Array | None = None

    def add(self, labels: Array, predicted: Array, weight: Array) -> None:
        """Add rows with these (n_rows, n_columns) labels and predictions."""
        if self._shift is None:  # sums of squares far from 0 would lose their digits
            self._shift = labels[:1].copy()
        gap, shifted = labels - predicted, labels - self._shift
        self._total += float(weight.sum())
        self._sums += np.stack(
            [weight @ gap**2, weight @ np.abs(gap), weight @ shifted, weight @ shifted**2]
        )

    def result(self) -> dict[str, Any]:
        """Metrics as plain JSON; R2 is None where all labels are equal."""
        squares, absolutes, labels, squares_of_labels = self._sums
        variance = squares_of_labels - labels**2 / self._total
        return {
            "rmse": float(np.sqrt(squares / self._total).mean()),
            "mae": float((absolutes / self._total).mean()),
            "r2": float((1 - squares / variance).mean()) if (variance > 0).all() else None,
        }


def count_unseen(model: Model, rows: Rows) -> int:
    """Number of non-zeros whose features have no weight."""
    is_unseen = np.ones(rows.n_local, np.bool_)
    is_unseen[model.common_features(rows)[0]] = False
    return int(np.count_nonzero(is_unseen[rows.indices[rows.indptr[0] : rows.indptr[-1]]]))
