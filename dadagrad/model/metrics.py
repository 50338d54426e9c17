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
        """Add rows with these (n_rows,) labels and predictions."""
        true, guess = (np.searchsorted(self._values, each) for each in (labels, predicted))
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
        """Metrics as plain JSON; F1 is that of the larger of two classes, or the mean over all."""
        confusion, right = self._confusion, np.diag(self._confusion)
        total = confusion.sum()
        precision, recall = (quotient(right, confusion.sum(axis=axis)) for axis in (0, 1))
        f1 = quotient(2 * right, confusion.sum(axis=0) + confusion.sum(axis=1))
        columns = zip(precision.tolist(), recall.tolist(), f1.tolist(), strict=True)
        plain: dict[str, Any] = {"f1": float(f1[1] if len(f1) == 2 else f1.mean())}
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
