"""Loss and error of the best constant scores, which a model must beat; warning of sorted labels."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import Dataset, LabelColumn
from dadagrad.data.rows import Rows
from dadagrad.errors import name_options
from dadagrad.optim.calibration import Histogram, bin_scores
from dadagrad.problem import Problem
from dadagrad.training.progressive import ProgressiveMetrics

logger = logging.getLogger(__name__)

_Sample: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Labels and weights of rows."""

MAX_SCORE = 50.0
HALVINGS = 45  # of an interval of scores: to a rounding of its length

NEARLY = 0.9
"""Share of the error of a constant below which a model is not worse, whatever its loss: scores of
averages may be long, and are calibrated."""

MANY_CLASSES = 100
"""Numbers among the labels of classes, more of which are likely to be a quantity."""

MIN_ROWS, MIN_PARTITIONS = 4_096, 4
"""Rows whose labels are read at least where nothing counts them, and partitions that have them."""


def constant_metrics(problem: Problem, data: Dataset) -> dict[str, float | None]:
    """The `constant_loss` and `constant_error` of the best constant score of each target.

    They are means over the targets; a regression has no error. Where the schema of `data` does not
    count the labels, or rows have weights, the labels are those of some partitions. Of a ranking it
    is the loss of rows without an order.
    """
    problem = problem.settings[0]
    if problem.loss.ranks:
        return {"constant_loss": float(problem.loss.value(np.zeros(1), np.ones(1))[0])}
    numbers, sample = range(len(problem.label_columns)), cache(partial(_sample, data))
    columns = [_of_column(problem, data, number, sample) for number in numbers]
    loss, error = np.mean(columns, axis=0)
    return {
        "constant_loss": float(loss),
        "constant_error": None if problem.task == "regression" else float(error),
    }


def best_scores(
    problem: Problem, targets: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The score of the least mean loss of each column of `targets`: there its slope is 0."""
    low, high = np.full((2, targets.shape[1]), MAX_SCORE) * [[-1.0], [1.0]]
    if problem.task == "regression" and problem.loss.link == "identity":
        low, high = targets.min(axis=0), targets.max(axis=0)
    for _ in range(HALVINGS):
        middle = 0.5 * low + 0.5 * high
        slopes = problem.loss.slope(np.full(targets.shape, middle), targets)
        rises = weights @ slopes > 0.0
        low, high = np.where(rises, low, middle), np.where(rises, middle, high)
    best: NDArray[np.float64] = 0.5 * (low + high)
    return best


def _of_column(
    problem: Problem, data: Dataset, number: int, sample: Callable[[], _Sample]
) -> tuple[float, float]:
    """Mean loss and error of the targets of one label column."""
    labels, weights = _labels(problem, data, number, sample)
    targets = labels[:, None]
    if problem.task != "regression":
        values = problem.label_columns[number].values or ()
        positive = problem.classes if problem.task == "multiclass" else np.array(values[-1:])
        targets = np.where(targets == positive, 1.0, -1.0)
    shares = weights @ (targets > 0.0)
    if problem.loss.couples:
        chosen = np.where(shares == shares.max(), 1.0, 0.0)
        tried = [np.zeros_like(shares), chosen, np.log(np.maximum(shares, 1e-12))]
    else:
        tried = [best_scores(problem, targets, weights)]
    losses = [problem.loss.value(np.broadcast_to(each, targets.shape), targets) for each in tried]
    error = 1.0 - shares.max() if problem.task == "multiclass" else min(shares[0], 1.0 - shares[0])
    return min(float(np.mean(weights @ each)) for each in losses), float(error)


def worse_than_constant(
    problem: Problem, report: Mapping[str, Any], passes: Sequence[ProgressiveMetrics]
) -> str | None:
    """Warning about a run that predicted the last rows worse than a constant does.

    These are the last half of the last pass: long steps begin with large losses, and recover. They
    were predicted by the weights that step, which say nothing of their average. The histogram
    of the scores of the average does: it has no rows from the beginning, so that a loss of twice
    that of the constant is enough. Of several classes it has the error alone.
    """
    if not passes or not passes[-1].weight:
        return None
    far = False
    names = [name for name in ("loss", "error") if report.get(f"constant_{name}") is not None]
    reached = _of_last_rows(report, names)
    constant = {name: report[f"constant_{name}"] for name in names}
    if problem.config.average is True:
        histogram = passes[-1].histogram[report["best"]]
        if not histogram.any():
            return None
        of_average = _of_histogram(problem, histogram)
        reached |= of_average
        if problem.task == "binary":  # of some of the rows
            constant = _constant_of_histogram(problem, histogram)
        if "loss" in of_average:
            is_wrong = of_average["error"] > NEARLY * constant["error"]
            far = is_wrong and of_average["loss"] > 2.0 * constant["loss"]
    if not (far or all(reached[name] > constant[name] for name in names)):
        return None
    config, remedies = problem.config, ["check the labels and the order of the rows"]
    if of_preconditioner := config.preconditioner.divergence_remedy:
        remedies.insert(0, of_preconditioner)
    if problem.loss.classifies and problem.loss.link != "logit":
        remedies.insert(0, name_options("try --loss logistic"))
    if config.update.has_step_size:
        remedies.append("try smaller step sizes")
    if not config.scale_columns:
        remedies.append(name_options("try --scale-columns"))
    return (
        f"the model is worse than a constant: its loss is {reached['loss']:.4g} and that "
        f"of the best constant {constant['loss']:.4g}; {', '.join(remedies)}"
    )


def _of_last_rows(report: Mapping[str, Any], names: Sequence[str]) -> dict[str, float]:
    """Mean loss and error of the last half of the last pass, by the curve of the run."""
    curve, last = report["curve"], report["by_pass"][-1]
    if not curve["rows"]:
        return {name: last[name] for name in names}
    in_pass = np.array(curve["pass_number"]) == curve["pass_number"][-1]
    weights = np.append(0.0, np.array(curve["weight"])[in_pass])
    begin = int(np.searchsorted(weights, weights[-1] / 2, side="right")) - 1
    means = {name: np.append(0.0, np.array(curve[name], float)[in_pass]) for name in names}
    sums = {name: of_points * weights for name, of_points in means.items()}
    weight = weights[-1] - weights[begin]
    return {name: float((total[-1] - total[begin]) / weight) for name, total in sums.items()}


def _of_histogram(problem: Problem, histogram: Histogram) -> dict[str, float]:
    """Error of rows by their histogram of scores, and of two classes the loss too."""
    scores = bin_scores()
    if problem.task == "multiclass":  # scores are leads before all other classes
        return {
            "error": float(histogram[scores <= 0, 1].sum() / max(histogram[:, 1].sum(), 1e-300))
        }
    losses = [problem.loss.value(scores, np.full(len(scores), label)) for label in (-1.0, 1.0)]
    wrong = np.stack([scores > 0, scores <= 0], axis=1)
    total = histogram.sum()
    return {
        "loss": float((histogram * np.stack(losses, axis=1)).sum() / total),
        "error": float((histogram * wrong).sum() / total),
    }


def _constant_of_histogram(problem: Problem, histogram: Histogram) -> dict[str, float]:
    """Loss and error of the best constant for the rows of a histogram of two classes."""
    shares = histogram.sum(axis=0) / histogram.sum()
    labels = np.array([[-1.0], [1.0]])
    score = best_scores(problem.settings[0], labels, shares)
    losses = problem.loss.value(np.broadcast_to(score, labels.shape), labels)
    return {"loss": float(shares @ losses[:, 0]), "error": float(shares.min())}


def warn_of_rows(problem: Problem, rows: Rows, *, is_temporary: bool) -> None:
    """Warn of rows sorted by label, of queries and several classes, and of very many classes.

    Classes beside queries are likely to be grades. A dataset that `is_temporary` cannot be written
    again.
    """
    if rows.queries is not None and problem.task == "multiclass":
        logger.warning(
            "the rows have queries, and the loss learns the labels as classes, not the order of "
            "the rows of a query; the ranking loss learns that"
        )
    column, n_values = problem.label_columns[0], len(problem.classes)
    if problem.task == "multiclass" and column.names is None and n_values > MANY_CLASSES:
        logger.warning(
            f"the label has {n_values:,} different numbers, and each is a class; if it is a "
            "quantity, choose a loss for numbers, such as squared"
        )
    labels = rows.labels[:, 0]
    if rows.weights is not None:  # those of a partition that is skipped are all 0
        labels = labels[rows.weights > 0.0]
    if in_order(labels, problem.label_columns[0]):
        remedy = "write the data again with `dadagrad ingest`, which shuffles all rows"
        if is_temporary:
            remedy = "shuffle them"
            if not problem.config.shuffle:
                remedy += name_options(", or leave out --no-shuffle")
        logger.warning(
            "the labels come in order: training learns little from rows that are sorted by "
            f"label, and its error before learning is far too low; {remedy}"
        )


def in_order(labels: NDArray[np.float64], column: LabelColumn) -> bool:
    """True if the rows of each class are neighbours, where many changes of the label are expected.

    `labels` are those of some rows of the data, and `column` counts the classes of all.
    """
    if column.counts is None:
        return False
    shares = np.array(column.counts) / max(sum(column.counts), 1)
    expected = len(labels) * (1.0 - shares @ shares)
    fewest = max(10, 2 * len(shares))
    return bool(expected > 10.0 * fewest and np.count_nonzero(np.diff(labels)) < fewest)


def _labels(problem: Problem, data: Dataset, number: int, sample: Callable[[], _Sample]) -> _Sample:
    """Labels of a column, and their weights, which sum to 1."""
    column = problem.label_columns[number]
    if column.values is not None and column.counts is not None and not data.schema.weighted:
        labels, weights = np.array(column.values), np.array(column.counts, np.float64)
    else:
        all_labels, weights = sample()
        labels = all_labels[:, number]
    if problem.class_importance is not None:
        weights = weights * problem.class_importance[np.searchsorted(problem.classes, labels)]
    return labels, weights / (weights.sum() or 1.0)


def _sample(data: Dataset) -> _Sample:
    """Labels of all columns, and weights, of rows that are spread over the data."""

    def read(partition: int) -> _Sample:
        rows = data.read(partition)
        weights = np.ones(rows.n_rows) if rows.weights is None else rows.weights
        return rows.labels, weights.astype(np.float64)

    n_partitions = len(data.partitions)
    n_read = max(MIN_PARTITIONS, math.ceil(MIN_ROWS * n_partitions / max(data.n_rows, 1)))
    spread = np.linspace(0, n_partitions - 1, min(n_read, n_partitions)).astype(int)
    for partitions in (spread.tolist(), range(n_partitions)):  # all if those have no weight
        labels, weights = map(np.concatenate, zip(*map(read, partitions), strict=True))
        if weights.any():
            break
    return labels, weights
