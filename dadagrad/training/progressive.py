"""Progressive validation: each row is predicted before it is learned from, and counted here."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.labels import check_labels
from dadagrad.errors import TrainingError
from dadagrad.kernels.parallel import Spread, serial
from dadagrad.optim.calibration import FIRST_KEY, N_BINS
from dadagrad.optim.losses import check_targets

if TYPE_CHECKING:
    from dadagrad.kernels.training import Batch
    from dadagrad.problem import Problem


SUMS, HISTOGRAM = "progressive", "histogram"
"""Names of the arrays of metrics that are saved with a state."""

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
    histogram: NDArray[np.float64] = field(repr=False)

    @classmethod
    def zero(cls, problem: Problem) -> ProgressiveMetrics:
        n, n_bins = problem.n_settings, n_bins_of(problem)
        return cls(0, 0, 0.0, np.zeros(n), np.zeros(n), np.zeros((n, n_bins, 2)))

    def __add__(self, other: ProgressiveMetrics) -> ProgressiveMetrics:
        return self._combined(other, operator.add)

    def __sub__(self, other: ProgressiveMetrics) -> ProgressiveMetrics:
        """Metrics of the rows since `other`."""
        with np.errstate(invalid="ignore"):  # both are infinite where a setting has diverged
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

    def mean_error(self) -> NDArray[np.float64]:
        """Share of rows that each setting predicted wrong; NaN before the first row."""
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

    def to_arrays(self, setting: int) -> dict[str, NDArray[np.float64]]:
        """The metrics of a setting as arrays, which are saved with the state of its model."""
        sums = self.rows, self.entries, self.weight, self.loss[setting], self.mistakes[setting]
        return {SUMS: np.array(sums, np.float64), HISTOGRAM: self.histogram[setting]}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ProgressiveMetrics:
        rows, entries, weight, loss, mistakes = arrays[SUMS].tolist()
        histogram = arrays[HISTOGRAM][None]
        return cls(
            int(rows), int(entries), weight, np.full(1, loss), np.full(1, mistakes), histogram
        )


def n_bins_of(problem: Problem) -> int:
    """Bins of a histogram of scores: none if they will not be calibrated."""
    return N_BINS if problem.loss.classifies and problem.config.calibration.is_fitted else 0


def best_setting(passes: Sequence[ProgressiveMetrics]) -> int:
    """The setting with the least loss in the first pass, of those that have not diverged."""
    if not passes or len(passes[0].loss) == 1:
        return 0
    diverged = ~np.isfinite([metrics.loss for metrics in passes]).all(axis=0)
    return int(np.argmin(np.where(diverged, np.inf, passes[0].loss)))


def count(
    problem: Problem,
    batch: Batch,
    scores: NDArray[np.float64],
    place: str,
    first_row: int,
    *,
    overflowed: Sequence[int | None] = (),
    final_scores: NDArray[np.float64] = np.zeros((0, 0)),  # noqa: B008 (empty)
    share: int = 1,
    t: float = 1e12,
    spread: Spread = serial,
) -> ProgressiveMetrics:
    """Count rows by the scores that they had before they were learned from.

    Parameters
    ----------
    batch : Batch
        The rows, the first of which is row `first_row` of `place`.
    scores : (n_outputs, n_rows) float64
    overflowed : sequence of int or None
        For each group of outputs that has learned, a feature whose sums are no longer finite.
    final_scores : (n_outputs, n_rows) or (0, 0) float64
        Scores of the weights that would be the model, if these are averages; NaN at rows that are
        not counted in the histogram.
    share : int
        Rows for which one counts in the histogram.
    t : float
        Importance of the rows that were learned from before; so large that all rows count alike
        in the histogram, unless each is a step.
    spread : Spread
        Threads that count the outputs.

    Raises
    ------
    TrainingError
        Every setting has diverged; names `place` and the first row whose score is not finite.
    InputError
        A label is not one of the classes, or no target of the loss; names `place`, the row and the
        label.
    """
    n_targets, importance, labels = problem.n_targets, batch.importance, batch.labels.T
    finite = _finite_settings(problem, scores, overflowed, place, first_row)
    if problem.loss.classifies:
        check_labels(problem.label_columns, labels, place, first_row)
    elif problem.units.centers is None:  # else they were checked before
        check_targets(problem.loss, labels, place, first_row)
    targets = np.ascontiguousarray(problem.settings[0].targets(labels).T)
    couples = problem.loss.couples
    losses = np.zeros((problem.n_settings, 1 if couples else n_targets))
    mistakes = np.zeros(losses.shape)

    def weigh(rows: NDArray[Any]) -> float:
        # No product with BLAS, which has other bits on another number of threads.
        return float((importance * rows).sum() if len(importance) else rows.sum())

    def count_loss(number: int) -> None:
        """Count one output, or all outputs of a setting whose loss couples them."""
        setting, target = divmod(number, losses.shape[1])
        if not finite[setting]:
            losses[setting] = np.inf
            return
        loss = problem.settings[setting].loss
        of_setting = scores[setting * n_targets :][:n_targets]
        outputs = slice(None) if couples else target
        predicted, expected = of_setting[outputs].T, targets[outputs].T
        with np.errstate(over="ignore"):  # the loss of a score that is finite may be infinite
            values = np.asarray(loss.value(predicted, expected), np.float64)
            losses[setting, target] = weigh(values)
        if math.isnan(losses[setting, target]) and np.isnan(values).any():
            row = int(np.isnan(values).argmax())
            raise TrainingError(
                f"{place}: the value of {loss.name} is NaN in row {first_row + row}, for score "
                f"{predicted[row]} and label {expected[row]}; return a number for each finite score"
            )
        if problem.task == "multiclass" and target == 0:
            mistakes[setting] = weigh(problem.classes[of_setting.argmax(axis=0)] != labels[:, 0])
        elif problem.task in ("binary", "multilabel", "ranking"):
            mistakes[setting, target] = weigh((of_setting[target] > 0.0) != (targets[target] > 0.0))

    spread(count_loss, losses.size)
    if problem.units.centers is not None:
        losses *= problem.loss_factors
    n_rows, n_entries, weight = len(labels), int(batch.indptr[-1]), float(len(labels))
    if len(importance):
        counted, weight = importance > 0.0, float(importance.sum())
        n_rows, n_entries = int(counted.sum()), int(np.diff(batch.indptr)[counted].sum())
    return ProgressiveMetrics(
        n_rows,
        n_entries,
        weight,
        losses.sum(axis=1) / losses.shape[1],
        mistakes.sum(axis=1) / losses.shape[1],
        _histogram(problem, batch, final_scores if final_scores.size else scores, share, t),
    )


def _histogram(
    problem: Problem, batch: Batch, scores: NDArray[np.float64], share: int, t: float
) -> NDArray[np.float64]:
    from dadagrad.kernels.training import count_by_score

    histogram = np.zeros((problem.n_settings, n_bins_of(problem), 2))
    if histogram.size:
        settings = scores.reshape(problem.n_settings, problem.n_targets, -1)
        for scores_of_setting, counts in zip(settings, histogram, strict=True):
            count_by_score(
                scores_of_setting, batch.labels, problem.kernel_targets,
                problem.task == "multiclass", share, batch.importance, t, FIRST_KEY, counts,
            )  # fmt: skip
    return histogram


def _finite_settings(
    problem: Problem,
    scores: NDArray[np.float64],
    overflowed: Sequence[int | None],
    place: str,
    first_row: int,
) -> NDArray[np.bool_]:
    """(n_settings,): False for the settings that have diverged; `TrainingError` if all have."""
    finite = np.isfinite(scores)
    is_finite = np.asarray(finite.reshape(problem.n_settings, -1).all(axis=1))
    features = {group: each for group, each in enumerate(overflowed) if each is not None}
    for group in features:
        is_finite[group * problem.n_settings // problem.n_groups] = False
    if is_finite.any():
        return is_finite
    rows = np.flatnonzero(~finite.all(axis=0))
    if not len(rows):
        raise TrainingError(f"{place}: {OVERFLOW}", next(iter(features.values())))
    raise TrainingError(
        f"{place}: the score of row {first_row + rows[0]} is not finite, so the weights have "
        f"diverged or a value is too large; {remedy(problem)}"
    )


def remedy(problem: Problem) -> str:
    """Advice for a run of `problem` whose weights have diverged."""
    if not problem.config.update.has_step_size:
        return "normalise the rows"
    if of_preconditioner := problem.config.preconditioner.divergence_remedy:
        return of_preconditioner
    largest = problem.hyperparameters.step_size.max()
    return f"choose a step size below {largest:g}, or normalise the rows"
