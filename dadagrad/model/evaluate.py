"""Evaluation of a model on labelled data, one partition at a time.

Memory holds three partitions, whatever the size of the data. A binary model takes 12 bytes for
each row besides, because the area under the ROC curve is computed exactly.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data import open_dataset
from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows
from dadagrad.errors import InputError
from dadagrad.model.compatibility import LabelTranslation, check_suitable
from dadagrad.model.model import Model
from dadagrad.optim.losses import LOSSES, Loss, check_targets

RowsDone = Callable[[int, int], None]
"""Receives the number of rows that are done, and of all rows."""

Array = NDArray[np.float64]


def evaluate(
    model: Model | str | os.PathLike[str],
    data: Dataset | str,
    *,
    loss: Loss | str | None = None,
    progress: RowsDone | None = None,
) -> dict[str, Any]:
    """Loss, error and area under the ROC curve of `model` on labelled `data`.

    Parameters
    ----------
    model : Model or str
        A model, or the URL of one.
    data : Dataset or str
        Data in the feature space of the model, with its labels.
    loss : Loss, str or None
        Loss to compute; by default that of the training. It is needed for a loss of a user's own
        class, because the model stores its name only.
    progress : callable or None

    Returns
    -------
    dict
        ``rows`` (rows of positive weight), ``loss`` (mean over rows, and over outputs unless
        the loss couples them), ``error`` (share of rows, or of labels of a multilabel task, that
        are predicted wrong), ``accuracy`` (1 - error), ``auc`` (ties count half), ``seconds``.
        All are weighted by the weights of the rows. The error of a regression is None, and the
        auc is None unless there are two classes and both occur.

        For a ranking, ``loss`` is that of all pairs of rows of different relevance, ``accuracy``
        the share of the pairs in the right order, ``ndcg`` that of the first 10 rows, and
        ``queries`` their number. Each is a mean over the queries that have it, without weights.

    Raises
    ------
    InputError
        The features or the labels of the data are not those the model was trained on.
    CorruptionError, StorageError
        The model or the data cannot be read.
    """
    begun = time.perf_counter()
    model, data = open_both(model, data)
    check_suitable(model.task, model.schema, data)
    if model.task == "ranking":
        result = _evaluate_ranking(model, data, progress)
    else:
        loss = LOSSES.make(model.loss if loss is None else loss)
        result = _evaluate_labels(model, data, loss, progress)
    return result | {"seconds": time.perf_counter() - begun}


def _evaluate_labels(
    model: Model, data: Dataset, loss: Loss, progress: RowsDone | None
) -> dict[str, Any]:
    translate = LabelTranslation(model.task, model.label_columns, data)
    two_classes = model.task == "binary" or (model.task == "multiclass" and model.n_outputs == 2)
    curve = _Curve() if two_classes else None
    n_rows, total, loss_sum, mistakes = 0, 0.0, 0.0, 0.0
    for first, rows, scores in score_partitions(model, data, progress):
        labels = translate(rows.labels, first)
        check_targets(loss, labels, data.url, first)
        weight = np.ones(rows.n_rows) if rows.weights is None else rows.weights.astype(np.float64)
        targets = _targets(model, labels)
        n_rows += int(np.count_nonzero(weight))
        total += float(weight.sum())
        losses = loss.value(scores, targets)
        loss_sum += float(weight @ (losses if loss.couples else losses.mean(axis=1)))
        if model.task != "regression":
            predicted = model.predict_labels(scores).reshape(labels.shape)
            mistakes += float(weight @ (predicted != labels).mean(axis=1))
        if curve is not None:
            # The difference of their scores separates two classes with an output each.
            ranked = scores[:, -1] if model.n_outputs == 1 else scores[:, 1] - scores[:, 0]
            curve.add(ranked, targets[:, -1], weight)
    if total == 0.0:
        raise InputError(
            f"all rows of {data.url} have weight 0; an evaluation needs at least one that counts"
        )
    error = None if model.task == "regression" else mistakes / total
    return {
        "rows": n_rows,
        "loss": loss_sum / total,
        "error": error,
        "auc": None if curve is None else curve.area(),
        "accuracy": None if error is None else 1.0 - error,
    }


def _evaluate_ranking(model: Model, data: Dataset, progress: RowsDone | None) -> dict[str, Any]:
    from dadagrad.model.ranking import RankingScores  # needs numba, which loads slowly

    totals = RankingScores()
    for _, rows, scores in score_partitions(model, data, progress):
        assert rows.queries is not None
        totals.add(rows.labels[:, 0], rows.queries, scores[:, 0])
    if not totals.paired:
        raise InputError(
            f"no query of {data.url} has rows of different relevance; an evaluation of a ranking "
            "needs at least one, and the rows of a query must be neighbours"
        )
    means = totals.means()
    return {
        "rows": data.n_rows,
        "queries": totals.queries,
        "loss": means["loss"],
        "error": 1.0 - (means["accuracy"] or 0.0),
        "auc": None,
        "accuracy": means["accuracy"],
        "ndcg": means["ndcg"],
    }


def open_both(model: Model | str | os.PathLike[str], data: Dataset | str) -> tuple[Model, Dataset]:
    """Open the model and the data, if they are given by URL."""
    if isinstance(model, str | os.PathLike):
        model = Model.load(model)
    return model, open_dataset(data) if isinstance(data, str) else data


def score_partitions(
    model: Model, data: Dataset, progress: RowsDone | None = None
) -> Iterator[tuple[int, Rows, Array]]:
    """Yield the number of the first row, the rows and their scores, for each partition."""
    first = 0
    for number, rows in enumerate(_read_ahead(data)):
        scores = model.scores(rows)
        finite = np.isfinite(scores).all(axis=1)
        if not finite.all():
            row = int(np.flatnonzero(~finite)[0])
            raise InputError(
                f"{data.url}, partition {data.partitions[number].name}: the score of row {row} "
                "is not finite: its values are too large for this model"
            )
        yield first, rows, scores
        first += rows.n_rows
        if progress is not None:
            progress(first, data.n_rows)


def _read_ahead(data: Dataset) -> Iterator[Rows]:
    """Yield the partitions in order, and read the next one meanwhile."""
    with ThreadPoolExecutor(1, thread_name_prefix="dadagrad") as pool:
        numbers = range(len(data.partitions))
        pending = [pool.submit(data.read, number) for number in numbers[:1]]
        for number in numbers:
            rows = pending.pop().result()
            pending = [pool.submit(data.read, after) for after in numbers[number + 1 : number + 2]]
            yield rows


def _targets(model: Model, labels: Array) -> Array:
    """Targets of the outputs, (n_rows, n_outputs): signs, or the labels of a regression."""
    if model.task == "regression":
        return labels
    if model.task == "multiclass":
        positive = np.array(model.label_columns[0].values)
    else:
        positive = np.array([(column.values or ())[-1] for column in model.label_columns])
    return np.where(labels == positive, 1.0, -1.0)


class _Curve:
    """The exact area under the ROC curve, from all scores: 12 bytes a row."""

    def __init__(self) -> None:
        # In pieces, because the number of rows in the metadata is not trusted yet.
        self._scores: list[Array] = []
        self._signed: list[NDArray[np.float32]] = []  # weights with the signs of the labels

    def add(self, scores: Array, targets: Array, weight: Array) -> None:
        self._scores.append(scores.copy())
        self._signed.append((weight * targets).astype(np.float32))

    def area(self) -> float | None:
        """The chance that a positive row has a larger score than a negative one."""
        scores, signed = np.concatenate(self._scores), np.concatenate(self._signed)
        order = np.argsort(scores)
        scores, signed = scores[order], signed[order].astype(np.float64)
        starts = np.flatnonzero(np.diff(scores, prepend=np.nan) != 0.0)
        positive = np.add.reduceat(np.maximum(signed, 0.0), starts)
        negative = np.add.reduceat(np.maximum(-signed, 0.0), starts)
        pairs = positive.sum() * negative.sum()
        if pairs == 0.0:
            return None
        below = np.cumsum(negative) - 0.5 * negative
        return float(positive @ below / pairs)
