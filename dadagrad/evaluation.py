"""How good a model is on data, and what it predicts there: one partition at a time.

Memory holds three partitions, whatever the size of the data; `evaluate` of a binary model keeps 12
bytes of each row besides, because the area under the ROC curve is computed exactly.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import Dataset, open_dataset
from dadagrad.errors import InputError
from dadagrad.labels import Labels
from dadagrad.losses import Loss, check_targets, make_loss

if TYPE_CHECKING:
    from dadagrad.data.rows import Rows
    from dadagrad.model import Model

RowsDone = Callable[[int, int], None]
"""Told how many rows are done, and of how many."""

Array = NDArray[np.float64]


def evaluate(
    model: Model | str | os.PathLike[str],
    data: Dataset | str,
    *,
    progress: RowsDone | None = None,
) -> dict[str, Any]:
    """Loss, error and area under the ROC curve of `model` on labelled `data`.

    Parameters
    ----------
    model : Model or str
        A model, or the URL of one.
    data : Dataset or str
        Data in the feature space of the model, with its labels.
    progress : callable or None

    Returns
    -------
    dict
        ``examples`` (rows of positive weight), ``loss`` (mean over rows, and over outputs unless
        the loss couples them), ``error`` (share of rows, or of labels of a multilabel task, that
        are predicted wrong) and ``accuracy`` (1 - error), ``auc`` (ties count half), ``seconds``.
        All are weighted by the weights of the rows. None is what does not apply: the error of a
        regression, and the auc unless there are two classes and both occur.

        Of a ranking, ``loss`` is that of all pairs of rows of different relevance, ``accuracy``
        the share of them in the right order, and there are ``ndcg`` (of the first 10 rows) and
        ``queries``. Each is a mean over the queries that have it; weights do not matter.

    Raises
    ------
    InputError
        The features or the labels of the data are not those the model was trained on.
    CorruptionError, StorageError
        The model or the data cannot be read.
    """
    begun = time.perf_counter()
    model, data = _open(model, data)
    check_suitable(model, data)
    if model.task == "ranking":
        return _evaluate_ranking(model, data, progress) | {"seconds": time.perf_counter() - begun}
    translate = Labels(model, data)
    loss = _loss_of(model)
    two_classes = model.task == "binary" or (model.task == "multiclass" and model.n_outputs == 2)
    curve = _Curve() if two_classes else None
    examples, total, loss_sum, mistakes = 0, 0.0, 0.0, 0.0
    for first, rows, margins in _walk(model, data, progress):
        labels = translate(rows.labels, first)
        check_targets(loss, labels, data.url, first)
        weight = np.ones(rows.n_rows) if rows.weights is None else rows.weights.astype(np.float64)
        targets = _targets(model, labels)
        examples += int(np.count_nonzero(weight))
        total += float(weight.sum())
        losses = loss.value(margins, targets)
        loss_sum += float(weight @ (losses if loss.couples else losses.mean(axis=1)))
        if model.task != "regression":
            predicted = model.predict_labels(margins).reshape(labels.shape)
            mistakes += float(weight @ (predicted != labels).mean(axis=1))
        if curve is not None:
            # With an output for each of the two classes, what tells them apart is the difference.
            score = margins[:, -1] if model.n_outputs == 1 else margins[:, 1] - margins[:, 0]
            curve.add(score, targets[:, -1], weight)
    if total == 0.0:
        raise InputError(
            f"all rows of {data.url} have weight 0; an evaluation needs at least one that counts"
        )
    error = None if model.task == "regression" else mistakes / total
    return {
        "examples": examples,
        "loss": loss_sum / total,
        "error": error,
        "auc": None if curve is None else curve.area(),
        "accuracy": None if error is None else 1.0 - error,
        "seconds": time.perf_counter() - begun,
    }


def _evaluate_ranking(model: Model, data: Dataset, progress: RowsDone | None) -> dict[str, Any]:
    from dadagrad.ranking import RankingScores

    scores, examples, queries = RankingScores(), 0, 0
    for _, rows, margins in _walk(model, data, progress):
        assert rows.queries is not None
        queries += scores.add(rows.labels[:, 0], rows.queries, margins[:, 0])
        examples += rows.n_rows
    if not scores.paired:
        raise InputError(
            f"no query of {data.url} has rows of different relevance; an evaluation of a ranking "
            "needs at least one, and the rows of a query must be neighbours"
        )
    means = scores.means()
    return {
        "examples": examples,
        "queries": queries,
        "loss": means["loss"],
        "error": 1.0 - (means["accuracy"] or 0.0),
        "auc": None,
        "accuracy": means["accuracy"],
        "ndcg": means["ndcg"],
    }


def predict(
    model: Model | str | os.PathLike[str],
    data: Dataset | str,
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: RowsDone | None = None,
) -> dict[str, Any]:
    """Write what `model` says of each row of `data` to a Parquet or CSV file.

    Parameters
    ----------
    model : Model or str
        A model, or the URL of one.
    data : Dataset or str
        Data in the feature space of the model; its labels are not looked at.
    out : str
        Path or URL of the file: Parquet, or CSV with a header if it ends in ``.csv``. It appears
        when it is complete.
    overwrite : bool
        Whether a file at `out` may be replaced.
    progress : callable or None

    Returns
    -------
    dict
        ``examples``, ``bytes`` (of the file) and ``seconds``.

    Raises
    ------
    InputError
        The features of the data are not those the model was trained on, or `out` exists or has
        a suffix that is not known.
    CorruptionError, StorageError
        The model or the data cannot be read, or `out` cannot be written.

    Notes
    -----
    The columns are ``row`` (int64, counted over the whole dataset), ``margin`` (float64),
    ``prediction`` (the label: text where labels were text, else float64), and ``probability`` (of
    the larger label) where the loss is logistic or softmax. With several classes, and with two
    where the loss is softmax or multiclass hinge, there is a ``margin_CLASS``
    and a ``probability_CLASS`` for each, and with several label columns a ``margin_COLUMN``, a
    ``prediction_COLUMN`` and a ``probability_COLUMN``.
    """
    from dadagrad.predictions import PredictionFile

    begun = time.perf_counter()
    model, data = _open(model, data)
    model.check_compatible(data.schema)
    with PredictionFile(os.fspath(out), model, overwrite=overwrite) as file:
        for first, _, margins in _walk(model, data, progress):
            file.write(first, margins)
    return {
        "examples": data.n_rows,
        "bytes": file.n_bytes,
        "seconds": time.perf_counter() - begun,
    }


def check_suitable(model: Model, data: Dataset) -> None:
    """Raise `InputError` unless `model` can be evaluated on `data`, as far as metadata shows."""
    model.check_compatible(data.schema)
    Labels(model, data)
    if model.task == "ranking" and not data.schema.queried:
        raise InputError(
            f"the data at {data.url} has no queries, and the model is a ranking; ingest svmlight "
            "with a qid:N in each line, or give Parquet a column 'query'"
        )
    if data.n_rows == 0:
        raise InputError(f"the data at {data.url} has no rows; an evaluation needs at least one")


def _open(model: Model | str | os.PathLike[str], data: Dataset | str) -> tuple[Model, Dataset]:
    if isinstance(model, str | os.PathLike):
        from dadagrad.model import Model

        model = Model.load(model)
    return model, open_dataset(data) if isinstance(data, str) else data


def _walk(
    model: Model, data: Dataset, progress: RowsDone | None
) -> Iterator[tuple[int, Rows, Array]]:
    """The number of its first row, the rows and their margins, of each partition in turn."""
    first = 0
    for number, rows in enumerate(_read_ahead(data)):
        margins = model.margins(rows)
        finite = np.isfinite(margins).all(axis=1)
        if not finite.all():
            row = int(np.flatnonzero(~finite)[0])
            raise InputError(
                f"{data.url}, partition {data.partitions[number].name}: the margin of row {row} "
                "is not finite: its values are too large for this model"
            )
        yield first, rows, margins
        first += rows.n_rows
        if progress is not None:
            progress(first, data.n_rows)


def _read_ahead(data: Dataset) -> Iterator[Rows]:
    """The partitions in order; one is read while another is worked on."""
    with ThreadPoolExecutor(1, thread_name_prefix="dadagrad") as pool:
        numbers = range(len(data.partitions))
        coming = pool.submit(data.read, 0) if numbers else None
        for number in numbers:
            assert coming is not None
            rows = coming.result()
            coming = pool.submit(data.read, number + 1) if number + 1 in numbers else None
            yield rows


def _loss_of(model: Model) -> Loss:
    config = model.report.get("config", {})
    return make_loss(
        model.loss, float(config.get("huber_width", 1.0)), float(config.get("quantile", 0.5))
    )


def _targets(model: Model, labels: Array) -> Array:
    """What each output should say, (n_rows, n_outputs): signs, or the labels of a regression."""
    if model.task == "regression":
        return labels
    if model.task == "multiclass":
        positive = labels == np.array(model.label_columns[0].values)
    else:
        positive = labels == np.array([(column.values or ())[-1] for column in model.label_columns])
    return np.where(positive, 1.0, -1.0)


class _Curve:
    """The area under the ROC curve, exactly: all margins are kept, at 12 bytes a row."""

    def __init__(self) -> None:
        # As they come: what the metadata say of the number of rows is not known to be true yet.
        self._margins: list[Array] = []
        # The weight with the sign of the label.
        self._signed: list[NDArray[np.float32]] = []

    def add(self, margins: Array, targets: Array, weight: Array) -> None:
        self._margins.append(margins.copy())
        self._signed.append((weight * targets).astype(np.float32))

    def area(self) -> float | None:
        """The chance that a positive row has a larger margin than a negative one."""
        margins, signed = np.concatenate(self._margins), np.concatenate(self._signed)
        order = np.argsort(margins)
        margins, signed = margins[order], signed[order].astype(np.float64)
        starts = np.flatnonzero(np.diff(margins, prepend=np.nan) != 0.0)
        positive = np.add.reduceat(np.maximum(signed, 0.0), starts)
        negative = np.add.reduceat(np.maximum(-signed, 0.0), starts)
        pairs = positive.sum() * negative.sum()
        if pairs == 0.0:
            return None
        below = np.cumsum(negative) - 0.5 * negative
        return float(positive @ below / pairs)
