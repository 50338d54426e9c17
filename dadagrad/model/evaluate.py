"""Evaluation of a model on labelled data, one partition at a time.

Memory holds a partition for each thread and two more, and for a binary model at most `MAX_SCORES`
scores, whatever the size of the data.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from dadagrad.data.buffers import POOL
from dadagrad.data.dataset import Dataset, Schema
from dadagrad.data.ingest.ingest import as_dataset
from dadagrad.data.ingest.workers import WorkerPool
from dadagrad.data.labels import check_labels
from dadagrad.data.rows import Rows
from dadagrad.data.views import check_features, with_label_columns
from dadagrad.errors import InputError
from dadagrad.kernels.parallel import available_cores
from dadagrad.model.base import refuse_not_finite
from dadagrad.model.metrics import (
    ClassMetrics,
    LabelMetrics,
    RegressionMetrics,
    RocCurve,
    count_unseen,
)
from dadagrad.model.model import Model, as_model
from dadagrad.model.ranking import RankingScores
from dadagrad.optim.arrays import Array
from dadagrad.optim.losses import LOSSES, Loss, Ranking, check_targets
from dadagrad.settings import Number
from dadagrad.task import Task, has_classes

RowsDone = Callable[[int, int], None]
"""Receives the number of rows that are done, and of all rows."""

Scored = tuple[int, Rows, Array]


def evaluate(
    model: Model | str | os.PathLike[str],
    data: Any,
    *,
    loss: Loss | str | None = None,
    curves: bool = False,
    progress: RowsDone | None = None,
    threads: int | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Measure the loss, error and area under the ROC curve of `model` on labelled `data`.

    Parameters
    ----------
    model : Model or str
        A model, or the URL of one.
    data : Dataset, str, pair (X, y) or data frame
        Data in the feature space of the model, with its labels: a dataset, its URL, or a matrix and
        its labels, and weights if any; or raw rows of any kind that `ingest` reads, which get the
        features of the model by its recorded options.
    loss : Loss, str or None
        Loss to compute; by default that of the training. It is needed for a loss of a user's own
        class, because the model stores its name only.
    curves : bool
        Add ``curves``, for pictures: "roc" (false and true positive rate) and "precision_recall"
        (recall and precision) of two classes, at most `MAX_POINTS` points each, and "calibration"
        (mean probability of the predicted class, share of right rows, weight) of each bin.
    progress : callable or None
    threads : int or None
        Number of threads that read and score partitions; by default one for each core.
    **options
        Options of `ingest` that may differ from the recorded ones, such as ``label="y"``.

    Returns
    -------
    dict
        ``rows`` (rows of positive weight), ``loss`` (mean over rows, and over outputs unless
        the loss couples them), ``error`` (share of rows, or of labels of a multilabel task, that
        are predicted wrong), ``accuracy`` (1 - error), ``auc`` (ties count half), ``seconds``,
        ``unseen`` (share of the non-zeros whose features have no weight, such as categories that
        training has not seen).
        All are weighted by the weights of the rows. The error of a regression is None, and the auc
        is None unless there are two classes and both occur, or several labels, up to 100: then it
        is the mean over those that occur. The auc is exact up to half a million distinct scores,
        and its error is less than 0.00002 with more; several labels share these scores. ``pr_auc``
        is the average precision of two classes. With several labels: ``f1`` (the mean over labels),
        with probabilities ``log_loss`` (likewise), and ``classes`` (precision, recall, F1, weight
        and auc of each label). With classes: ``f1``
        (of the larger of two, else the mean over classes), ``classes`` (precision, recall, F1 and
        weight of each), ``confusion`` (weights by true and predicted class), and with probabilities
        ``log_loss`` and ``calibration_error`` (10 bins of the probability of the predicted class).
        A regression has ``rmse``, ``mae`` and ``r2``, and of one label in rows with queries
        ``queries`` and ``ndcg``, as a ranking.

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
    Number(whole=True, minimum=1, optional=True).convert("threads", threads)
    model = as_model(model)
    data = suit(model.task, model.schema, as_dataset(data, like=model, **options))
    scored = score_partitions(model, data, progress, threads)
    loss = LOSSES.make(model.loss if loss is None else loss)
    if model.task == "ranking":
        result = _evaluate_ranking(data, loss, scored)
    else:
        result = _evaluate_labels(model, data, loss, scored, curves=curves)
    return result | {"seconds": time.perf_counter() - begun}


def _evaluate_labels(
    model: Model, data: Dataset, loss: Loss, scored: Iterator[Scored], *, curves: bool
) -> dict[str, Any]:
    two_classes = model.task == "binary" or (model.task == "multiclass" and model.n_outputs == 2)
    curve = RocCurve() if two_classes else None
    classes: ClassMetrics | LabelMetrics | None = None
    if model.has_classes:
        classes = LabelMetrics(model) if model.task == "multilabel" else ClassMetrics(model)
    numbers = RegressionMetrics(len(model.label_columns)) if model.task == "regression" else None
    ranked_numbers = numbers is not None and data.schema.queried and model.n_outputs == 1
    orders = RankingScores() if ranked_numbers else None
    n_rows, total, loss_sum, mistakes, n_unseen = 0, 0.0, 0.0, 0.0, 0
    for first, rows, scores in scored:
        labels = rows.labels
        if model.has_classes:
            check_labels(model.label_columns, labels, data.url, first)
        check_targets(loss, labels, data.url, first)
        weight = np.ones(rows.n_rows) if rows.weights is None else rows.weights.astype(np.float64)
        targets = _targets(model, labels)
        n_rows += int(np.count_nonzero(weight))
        n_unseen += count_unseen(model, rows)
        total += float(weight.sum())
        losses = loss.value(scores, targets)
        loss_sum += float(weight @ (losses if loss.couples else losses.mean(axis=1)))
        predicted = model.predict_labels(scores).reshape(labels.shape)
        if numbers is not None:
            numbers.add(labels, predicted, weight)
        else:
            mistakes += float(weight @ (predicted != labels).mean(axis=1))
        if orders is not None:
            assert rows.queries is not None
            orders.add(labels[:, 0], rows.queries, scores[:, 0])
        if classes is not None:
            classes.add(scores, labels, predicted, weight)
        if curve is not None:
            # The difference of their scores separates two classes with an output each.
            ranked = scores[:, -1] if model.n_outputs == 1 else scores[:, 1] - scores[:, 0]
            curve.add(ranked, targets[:, -1], weight)
    if total == 0.0:
        raise InputError(
            f"all rows of {data.url} have weight 0; an evaluation needs at least one that counts"
        )
    result: dict[str, Any] = {"rows": n_rows, "loss": loss_sum / total, "error": None, "auc": None}
    result["unseen"] = n_unseen / max(data.nnz, 1)
    if curve is not None:
        result |= {"auc": curve.area(), "pr_auc": curve.average_precision()}
    if orders is not None:
        result |= {"queries": orders.queries, "ndcg": orders.means()["ndcg"]}
    if numbers is not None:
        return result | {"accuracy": None} | numbers.result()
    result |= {"error": mistakes / total, "accuracy": 1.0 - mistakes / total}
    if curves:
        drawn: dict[str, Any] = {} if curve is None else curve.points()
        if isinstance(classes, ClassMetrics) and model.has_probabilities:
            drawn["calibration"] = classes.reliability()
        result["curves"] = drawn
    return result if classes is None else result | classes.result()


def _evaluate_ranking(data: Dataset, loss: Loss, scored: Iterator[Scored]) -> dict[str, Any]:
    totals = RankingScores(None if type(loss) is Ranking else loss)
    for _, rows, scores in scored:
        assert rows.queries is not None
        totals.add(rows.labels[:, 0], rows.queries, scores[:, 0])
    if not totals.paired:
        raise InputError(
            f"no query of {data.url} has rows of different relevance; an evaluation of a ranking "
            "needs at least one, and the rows of a query must be neighbours"
        )
    means = totals.means()
    error = 1.0 - (means["accuracy"] or 0.0)
    return {"rows": data.n_rows, "queries": totals.queries, "error": error, "auc": None} | means


def suit(task: Task, trained: Schema, data: Dataset) -> Dataset:
    """Return `data` with the numbers that models of a `task`, `trained` on others, have for labels.

    Only metadata is read. `InputError` says why no such model can be evaluated on `data`.
    """
    check_features(trained, data.schema)
    if not data.schema.label_columns:
        raise InputError(
            f"the data at {data.url} has no labels to compare predictions with; ingest it "
            "with its labels, that is without --no-labels (in Parquet, the column must be "
            "named 'label'), or use `dadagrad predict`"
        )
    if task == "ranking" and not data.schema.queried:
        raise InputError(
            f"the data at {data.url} has no queries, and the model is a ranking; ingest svmlight "
            "with a qid:N in each line, or a table with --query, or give Parquet of ids a column "
            "'query', or dataset_from_arrays a query="
        )
    if data.n_rows == 0:
        raise InputError(f"the data at {data.url} has no rows; an evaluation needs at least one")
    columns, n_features = trained.label_columns, data.schema.n_features
    return with_label_columns(data, columns, n_features, any_numbers=not has_classes(task))


def score_partitions(
    model: Model, data: Dataset, progress: RowsDone | None = None, threads: int | None = None
) -> Iterator[Scored]:
    """Yield the number of the first row, the rows and their scores, for each partition.

    All cores, or so many threads, read and score partitions, some of them ahead.
    """

    def score(number: int) -> tuple[Rows, Array]:
        rows = data.read(number)
        return rows, model.scores(rows)

    first, threads = 0, threads or available_cores()
    with ThreadPoolExecutor(threads, thread_name_prefix="dadagrad") as pool:
        parts = WorkerPool(pool.submit, threads + 1)(score, range(len(data.partitions)))
        for number, (rows, scores) in enumerate(parts):
            refuse_not_finite(scores, f"{data.place_of(number)}, row")
            yield first, rows, scores
            first += rows.n_rows
            if progress is not None:
                progress(first, data.n_rows)
    POOL.release()


def _targets(model: Model, labels: Array) -> Array:
    """Targets of the outputs, (n_rows, n_outputs): signs, or the labels of a regression."""
    if model.task == "regression":
        return labels
    values = [column.values or () for column in model.label_columns]
    positive = values[0] if model.task == "multiclass" else [each[-1] for each in values]
    return np.where(labels == np.array(positive), 1.0, -1.0)
