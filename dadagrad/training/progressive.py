"""Progressive validation: each row is predicted before it is learned from, and counted here."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import check_labels
from dadagrad.errors import TrainingError
from dadagrad.kernels.parallel import serial
from dadagrad.optim.calibration import FIRST_KEY, N_BINS
from dadagrad.optim.losses import Loss, check_targets

if TYPE_CHECKING:
    from dadagrad.kernels.training import Batch
    from dadagrad.problem import Problem


OVERFLOW = (
    "the sums of {feature} have left the range of 32-bit numbers, so its values are too large; "
    "scale the feature, or normalise the rows"
)
"""Message about a feature whose sums are not finite."""


@dataclass(frozen=True, slots=True)
class ProgressiveMetrics:
    """Sums over rows; metrics of disjoint rows add up.

    Attributes
    ----------
    rows, entries : int
        Rows of positive importance, and their non-zeros.
    weight : float
        Total importance.
    loss : (n_settings,) float64
        Importance-weighted sum of the loss of each setting: the mean over its targets, or the one
        loss of all its outputs where it couples them.
    mistakes : (n_settings,) float64
        Importance-weighted count of the rows that were predicted wrong; for a multilabel task
        the mean over its labels.
    histogram : (n_settings, N_BINS, 2) float64
        Of the scores of each setting, by label (`dadagrad.optim.calibration`).
    """

    rows: int
    entries: int
    weight: float
    loss: NDArray[np.float64]
    mistakes: NDArray[np.float64]
    histogram: NDArray[np.float64]

    @classmethod
    def zero(cls, problem: Problem) -> ProgressiveMetrics:
        n, n_bins = problem.n_settings, n_bins_of(problem)
        return cls(0, 0, 0.0, np.zeros(n), np.zeros(n), np.zeros((n, n_bins, 2)))

    def __add__(self, other: ProgressiveMetrics) -> ProgressiveMetrics:
        return self._combined(other, operator.add)

    def __sub__(self, other: ProgressiveMetrics) -> ProgressiveMetrics:
        """Metrics of the rows since `other`."""
        return self._combined(other, operator.sub)

    def _combined(
        self, other: ProgressiveMetrics, combine: Callable[[Any, Any], Any]
    ) -> ProgressiveMetrics:
        pairs = ((getattr(self, each.name), getattr(other, each.name)) for each in fields(self))
        return ProgressiveMetrics(*(combine(mine, others) for mine, others in pairs))

    def of_settings(self, numbers: Sequence[int]) -> ProgressiveMetrics:
        """The metrics of some of the settings."""
        chosen = list(numbers)
        return replace(
            self,
            loss=self.loss[chosen],
            mistakes=self.mistakes[chosen],
            histogram=self.histogram[chosen],
        )

    def mean_loss(self) -> NDArray[np.float64]:
        """Mean loss of each setting over rows and targets; NaN before the first row."""
        return self.loss / (self.weight or np.nan)

    def error(self, problem: Problem) -> NDArray[np.float64] | None:
        """Share of rows predicted wrong, by setting; None for a regression."""
        if problem.task == "regression":
            return None
        return self.mistakes / (self.weight or np.nan)

    def without_histogram(self) -> ProgressiveMetrics:
        """The metrics of rows whose scores are not to be calibrated."""
        return replace(self, histogram=np.zeros_like(self.histogram))

    def to_json(self) -> dict[str, Any]:
        plain = {each.name: np.asarray(getattr(self, each.name)).tolist() for each in fields(self)}
        weights = self.histogram.ravel()
        places = np.flatnonzero(weights)  # few of them
        plain["histogram"] = [places.tolist(), weights[places].tolist()] if weights.size else None
        return plain

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> ProgressiveMetrics:
        loss, mistakes = (np.array(plain[name], np.float64) for name in ("loss", "mistakes"))
        counts = int(plain["rows"]), int(plain["entries"]), float(plain["weight"])
        histogram = np.zeros((len(loss), 0 if plain["histogram"] is None else N_BINS, 2))
        places, weights = plain["histogram"] or ([], [])
        np.put(histogram, np.array(places, np.int64), weights)
        return cls(*counts, loss, mistakes, histogram)


def n_bins_of(problem: Problem) -> int:
    """Bins of a histogram of scores: none if they will not be calibrated."""
    return N_BINS if problem.loss.classifies and problem.config.calibration.is_fitted else 0


def best_setting(passes: Sequence[ProgressiveMetrics]) -> int:
    """The setting with the least loss in the first pass, of those that have not diverged."""
    if not passes or len(passes[0].loss) == 1:
        return 0
    diverged = ~np.isfinite([metrics.loss for metrics in passes]).all(axis=0)
    return int(np.argmin(np.where(diverged, np.inf, passes[0].loss)))


class MetricsAccumulator:
    """Counts the rows of a slice, group of outputs by group.

    Parameters
    ----------
    problem : Problem
    batch : Batch
        The rows, the first of which is row `first_row` of `place`.
    scores : (n_outputs, n_rows) float64
        Those of a group must be there when it is counted, and stay.
    t : float
        Importance of the rows that were learned from before; so large that all rows count alike
        in the histogram, unless each is a step.

    Attributes
    ----------
    final_scores : (n_outputs, n_rows) float64
        Scores of the weights that would be the model: of their averages, if the model is that; NaN
        at rows that are not counted in the histogram.
    share : int
        Rows for which one counts in the histogram.
    """

    def __init__(
        self,
        problem: Problem,
        batch: Batch,
        scores: NDArray[np.float64],
        place: str,
        first_row: int,
        t: float = 1e12,
    ) -> None:
        self.final_scores = scores
        self.share = 1
        self._problem = problem
        self._batch = batch
        self._scores = scores
        self._place = place
        self._first_row = first_row
        self._t = t
        self._loss = np.zeros(problem.n_groups if problem.loss.couples else problem.n_outputs)
        self._mistakes = np.zeros(problem.n_outputs)
        # Groups of which some row cannot be counted.
        self._not_finite = np.zeros(problem.n_groups, np.bool_)
        self._culprit: int | None = None
        self._unknown = np.zeros(problem.n_groups, np.bool_)

    def count(self, group: int, culprit: int | None = None) -> None:
        """Count the rows by the scores of one group; several threads may count at a time.

        `culprit` is a feature of which the sums of the group are no longer finite.
        """
        if culprit is not None:
            self._not_finite[group] = True
            self._culprit = culprit
        problem = self._problem
        outputs = range(group * problem.group_width, (group + 1) * problem.group_width)
        scores = self._scores[outputs.start : outputs.stop]
        if not np.isfinite(scores).all():
            self._not_finite[group] = True
            return
        loss = problem.settings[group * problem.n_settings // problem.n_groups].loss
        with np.errstate(over="ignore"):  # the loss of a score that is finite may be infinite
            if loss.couples:  # all outputs of a setting are a group
                is_class = problem.classes == self._batch.labels.T
                losses = loss.value(scores.T, np.where(is_class, 1.0, -1.0))
                self._loss[group] = self._weighted(losses)
                return
            for output in outputs:
                self._count_output(group, output, loss)

    def _count_output(self, group: int, output: int, loss: Loss) -> None:
        problem, scores = self._problem, self._scores[output]
        label_column = problem.kernel_targets.label_column[output]
        labels = targets = self._batch.labels[label_column]
        if loss.classifies:
            targets = np.where(labels == problem.kernel_targets.positive[output], 1.0, -1.0)
        if problem.task in ("binary", "multilabel"):
            negative = problem.label_columns[label_column].values[0]
            self._unknown[group] |= not ((targets > 0.0) | (labels == negative)).all()
        self._loss[output] = self._weighted(np.asarray(loss.value(scores, targets), np.float64))
        self._mistakes[output] = self._weighted((scores > 0.0) != (targets > 0.0))

    def _weighted(self, rows: NDArray[Any]) -> float:
        """The importance-weighted sum of (n_rows,) numbers."""
        importance = self._batch.importance
        # No product with BLAS, which has other bits on another number of threads.
        return float((importance * rows).sum() if len(importance) else rows.sum())

    def metrics(self) -> ProgressiveMetrics:
        """Return the metrics, when all groups are counted.

        The loss of a setting that has diverged is infinite.

        Raises
        ------
        TrainingError
            Every setting has a score that is not finite; names `place` and the first row of one.
        InputError
            A label is not one of the classes, or no target of the loss; names `place`, the row
            and the label.
        """
        self._check()
        problem, batch = self._problem, self._batch
        loss = self._loss.reshape(problem.n_settings, -1).mean(axis=1)
        loss[self._not_finite.reshape(problem.n_settings, -1).any(axis=1)] = np.inf
        lengths = np.diff(batch.indptr)
        n_rows = len(lengths)
        counted = batch.importance > 0.0 if len(batch.importance) else np.ones(n_rows, np.bool_)
        if problem.task == "multiclass":
            mistakes = self._wrong_classes()
        elif problem.task == "regression":
            mistakes = np.zeros(problem.n_settings)
        else:
            mistakes = self._mistakes.reshape(problem.n_settings, -1).mean(axis=1)
        return ProgressiveMetrics(
            int(np.count_nonzero(counted)),
            int(lengths[counted].sum()),
            float(batch.importance.sum()) if len(batch.importance) else float(n_rows),
            loss,
            mistakes,
            self._histogram(),
        )

    def _histogram(self) -> NDArray[np.float64]:
        from dadagrad.kernels.training import count_by_score

        problem, batch = self._problem, self._batch
        histogram = np.zeros((problem.n_settings, n_bins_of(problem), 2))
        if not histogram.size:
            return histogram
        compares = problem.task == "multiclass"
        settings = self.final_scores.reshape(problem.n_settings, problem.n_targets, -1)
        for scores, counts in zip(settings, histogram, strict=True):
            count_by_score(
                scores, batch.labels, problem.kernel_targets, compares,
                self.share, batch.importance, self._t, FIRST_KEY, counts,
            )  # fmt: skip
        return histogram

    def _wrong_classes(self) -> NDArray[np.float64]:
        """(n_settings,): rows of which another class has the largest score."""
        problem, labels = self._problem, self._batch.labels[0]
        settings = self._scores.reshape(problem.n_settings, problem.n_targets, -1)
        return np.array(
            [
                self._weighted(problem.classes[scores.argmax(axis=0)] != labels)
                for scores in settings
            ]
        )

    def _check(self) -> None:
        problem, labels = self._problem, self._batch.labels.T
        if self._not_finite.reshape(problem.n_settings, -1).any(axis=1).all():
            finite = np.isfinite(self._scores).all(axis=0)
            for row in np.flatnonzero(~finite)[:1]:
                raise TrainingError(
                    f"{self._place}: the score of row {self._first_row + row} is not finite, so "
                    "the weights have diverged or a value is too large; choose a step size below "
                    f"{problem.hyperparameters.step_size.max():g}, or normalise the rows"
                )
            if self._culprit is not None:
                raise TrainingError(f"{self._place}: {OVERFLOW}", self._culprit)
        if not problem.loss.classifies:
            check_targets(problem.loss, labels, self._place, self._first_row)
        elif problem.task == "multiclass" or self._unknown.any():
            check_labels(problem.label_columns, labels, self._place, self._first_row)


def count(
    problem: Problem, batch: Batch, scores: NDArray[np.float64], place: str, first_row: int
) -> ProgressiveMetrics:
    """Count the rows of `batch` by their (n_outputs, n_rows) scores."""
    accumulator = MetricsAccumulator(problem, batch, np.ascontiguousarray(scores), place, first_row)
    serial(accumulator.count, problem.n_groups)
    return accumulator.metrics()
