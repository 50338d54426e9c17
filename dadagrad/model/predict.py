"""Prediction into a Parquet or CSV file, one partition at a time, or into a table in memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow.csv import CSVWriter
from pyarrow.parquet import ParquetWriter

from dadagrad.data.dataset import Dataset, LabelColumn
from dadagrad.data.ingest.ingest import as_dataset
from dadagrad.data.rows import Rows
from dadagrad.data.tables.cells import as_number
from dadagrad.errors import InputError, OnError
from dadagrad.model.base import refuse_not_finite
from dadagrad.model.evaluate import RowsDone, score_partitions
from dadagrad.model.metrics import count_unseen
from dadagrad.model.model import Model, as_model
from dadagrad.model.raw import is_unprepared, read_raw, rows_to_predict
from dadagrad.optim.arrays import Array
from dadagrad.settings import Number
from dadagrad.storage.output import is_text_stream, output_file
from dadagrad.summary import number_text

_PARQUET_WRITER = partial(ParquetWriter, compression="zstd")


def predict(
    model: Model | str | os.PathLike[str],
    data: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    overwrite: bool = False,
    on_error: OnError = "raise",
    reasons: int | None = None,
    progress: RowsDone | None = None,
    **options: Any,
) -> Any:
    """Write the predictions of `model` for each row of `data` to a Parquet or CSV file.

    Without `out`, return them.

    Parameters
    ----------
    model : Model or str
        A model, or the URL of one.
    data : Dataset, str, matrix, data frame or list
        Data in the feature space of the model; labels are ignored. Or raw rows of any kind that
        `ingest` reads: files, ``-`` for standard input, a data frame, a list of dicts, or, for a
        model of one column of text, a list or a Series of texts. They get the features of the model
        by its recorded options.
    out : str, optional
        Path or URL of the file: Parquet, or CSV with a header if it ends in ``.csv``. It appears
        once it is complete. ``-`` is standard output, which receives CSV, and a raw row is answered
        as soon as it is there; a pipe with a name and a device are written to as they are, as CSV.
    overwrite : bool
        True to replace a file at `out`, or the one that a symbolic link at `out` leads to.
    on_error : "raise" or "skip"
        Stop at a raw row that is wrong, or leave it out.
    reasons : int or None
        Number of features to name for each row: those that contribute most to its score.
    progress : callable, optional
    **options
        Options of `ingest` that may differ from the recorded ones, such as ``id="customer"``.

    Returns
    -------
    dict or pyarrow.Table
        ``rows``, ``bytes`` (of the file; None of a pipe), ``seconds``, and for raw rows ``unseen``:
        the share of their non-zeros whose feature has no weight in the model, such as new
        categories. Without `out`, the table that a file would have.

    Raises
    ------
    InputError
        The features of the data are not those the model was trained on, or `out` exists or has
        a suffix that is not known.
    CorruptionError, StorageError
        The model or the data cannot be read, or `out` cannot be written.

    Notes
    -----
    The columns are ``row`` (int64, counted from 0 over the whole dataset, or data in memory),
    ``file`` where there are several, ``line`` (of the source, counted from 1), ``tag``, ``query``
    and ``label`` if rows have them, ``score`` (float64), ``prediction`` (the label: text where
    labels were text, else float64), and ``probability`` (of the larger label) where the model has
    probabilities. With several classes, and with two where the loss is softmax or multiclass hinge,
    there is a ``score_CLASS`` and a ``probability_CLASS`` for each, and with several label columns
    a ``score_COLUMN``, a ``prediction_COLUMN`` and a ``probability_COLUMN``. With `reasons` there
    is a column ``reasons``, such as ``job=nurse +0.8; age -0.31``: what each feature adds to the
    score of the larger of two classes or of the predicted one, weight times value. With several
    label columns there is a ``reasons_COLUMN`` for each.
    """
    begun = time.perf_counter()
    Number(whole=True, minimum=1, optional=True).convert("reasons", reasons)
    counts = {"non_zeros": 0, "unseen": 0}  # of raw rows
    model = as_model(model)
    if reasons is not None and model.feature_space.of_table and not model.names:
        raise InputError(
            "the model has no names of features, so no reasons can be named; train it on data that "
            "were read with names (--keep-names)"
        )
    data = rows_to_predict(data)
    is_raw = is_unprepared(model.schema, data)
    if is_raw:
        tables = _raw_tables(model, data, counts, reasons, on_error=on_error, **options)
    else:
        data = as_dataset(data, like=model, **options)
        model.check_compatible(data.schema)
        tables = _stored_tables(model, data, progress, reasons)
    if out is None:
        return pa.concat_tables(_of_one_schema(tables))
    url = os.fspath(out)
    as_text = is_text_stream(url) or _suffix(url) == ".csv"
    make_writer = CSVWriter if as_text else _PARQUET_WRITER
    with output_file(url, overwrite) as file:
        n_rows = _write(tables, file, make_writer)
        n_bytes = file.tell() if file.seekable() else None
    result: dict[str, Any] = {"rows": n_rows, "bytes": n_bytes}
    if is_raw:
        result["unseen"] = counts["unseen"] / max(counts["non_zeros"], 1)
    return result | {"seconds": time.perf_counter() - begun}


def _write(tables: Iterator[pa.Table], file: BinaryIO, make_writer: Any) -> int:
    """Write tables, each as soon as it is there; return the number of rows."""
    whole, n_rows = _of_one_schema(tables), 0
    first = next(whole)
    with make_writer(file, first.schema) as writer:
        for table in chain([first], whole):
            writer.write_table(table)
            file.flush()
            n_rows += table.num_rows
    return n_rows


def _of_one_schema(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Give all tables the columns of the first: later rows may lack a tag or a label."""
    none = None
    for table in tables:
        none = table.schema.empty_table() if none is None else none
        whole = pa.concat_tables([none, table], promote_options="default")
        yield whole.select(none.schema.names)
    if none is None:
        raise InputError("there are no rows to predict; give at least one")


def _stored_tables(
    model: Model, data: Dataset, progress: RowsDone | None, reasons: int | None
) -> Iterator[pa.Table]:
    """Predictions for each partition, with what identifies a row."""
    columns, tagged = data.schema.label_columns, data.tags(0) is not None
    has_lines = data.lines(0) is not None
    for number, (first, rows, scores) in enumerate(score_partitions(model, data, progress)):
        table: dict[str, Any] = {"row": np.arange(first, first + rows.n_rows, dtype=np.int64)}
        if has_lines:
            files, lines = data.lines(number) or ([""] * rows.n_rows, [None] * rows.n_rows)
            if len(data.files) > 1:
                table["file"] = pa.array(files, pa.string())
            table["line"] = pa.array(lines, pa.int64())
        if tagged:
            tags = data.tags(number)
            table["tag"] = pa.array([None] * rows.n_rows if tags is None else tags, pa.string())
        if rows.queries is not None:
            table["query"] = rows.queries
        for column, labels in zip(columns, rows.labels.T, strict=True):
            name = f"label_{column.name}" if len(columns) > 1 else "label"
            table[name] = _texts_of(column, labels)
        yield pa.table(table | _predictions(model, rows, scores, reasons))


def _raw_tables(
    model: Model, data: Any, counts: dict[str, int], reasons: int | None, **options: Any
) -> Iterator[pa.Table]:
    """Predictions for each chunk of raw rows, with what identifies a row."""
    schema = model.schema
    is_text = schema.has_sets or any(each.names is not None for each in schema.label_columns)
    for raw in read_raw(model.schema, data, **options):
        scores = model.scores(raw.rows)
        refuse_not_finite(scores, f"{raw.path}, {raw.unit}", raw.numbers)
        counts["non_zeros"] += raw.rows.nnz
        counts["unseen"] += count_unseen(model, raw.rows)
        table: dict[str, Any] = {}
        if raw.file is not None:
            table["file"] = pa.array([raw.file] * raw.rows.n_rows, pa.string())
        table[raw.unit] = raw.numbers
        if raw.tags is not None:
            table["tag"] = pa.array(raw.tags, pa.string())
        if raw.rows.queries is not None:
            table["query"] = raw.rows.queries
        several = raw.labels is not None and raw.labels.shape[1] > 1
        names = [f"label_{name}" for name in schema.label_names] if several else ["label"]
        for name, labels in zip(names, () if raw.labels is None else raw.labels.T, strict=False):
            table[name] = _labels(labels, is_text)
        yield pa.table(table | _predictions(model, raw.rows, scores, reasons))


def _labels(labels: Any, is_text: bool) -> pa.Array:
    """Labels of raw rows as the model has them: texts or numbers; null where there is none."""
    if is_text and labels.dtype != object:
        labels = [None if np.isnan(x) else number_text(x) for x in labels.tolist()]
    elif not is_text and labels.dtype == object:
        labels = np.array(list(map(as_number, labels)))
    return pa.array(labels, pa.string() if is_text else pa.float64(), from_pandas=True)


def _texts_of(column: LabelColumn, labels: Array) -> Any:
    """The texts that numbers of labels stand for, or the numbers if labels were numbers."""
    if column.names is None or column.values is None:
        return np.ascontiguousarray(labels)
    return pa.array(column.names).take(pa.array(np.searchsorted(column.values, labels)))


def _suffix(url: str) -> str:
    """Return the suffix, which decides the format; `InputError` if it is not known."""
    suffix = os.path.splitext(url.rpartition("/")[2])[1]
    if suffix.lower() not in ("", ".parquet", ".pq", ".csv"):
        shown = suffix.partition("?")[0]  # of a URL: a query has credentials
        raise InputError(
            f"predictions cannot be written to {url}: the suffix {shown} is not known; give "
            ".parquet (or none) for Parquet, or .csv for CSV"
        )
    return suffix.lower()


def _predictions(model: Model, rows: Rows, scores: Array, reasons: int | None) -> dict[str, Any]:
    """Scores, predictions, probabilities and reasons by (n_rows, n_outputs) scores."""
    columns, names = model.label_columns, model.output_names
    outputs = [f"_{name}" for name in names] if len(names) > 1 else [""]
    labels = outputs if len(columns) > 1 else [""]
    table: dict[str, Any] = {}
    for suffix, values in zip(outputs, scores.T, strict=True):
        table[f"score{suffix}"] = np.ascontiguousarray(values)
    predicted = model.predict_labels(scores).reshape(len(scores), len(columns))
    for suffix, column, values in zip(labels, columns, predicted.T, strict=True):
        table[f"prediction{suffix}"] = _texts_of(column, values)
    if model.has_probabilities:
        probabilities = model.probabilities(scores)[:, -len(outputs) :]
        for suffix, values in zip(outputs, probabilities.T, strict=True):
            table[f"probability{suffix}"] = np.ascontiguousarray(values)
    if reasons is not None:
        for number, suffix in enumerate(labels):
            is_class = model.task == "multiclass"
            explained = scores.argmax(axis=1) if is_class else np.full(len(scores), number)
            table[f"reasons{suffix}"] = _reasons(model, rows, explained, reasons)
    return table


def _reasons(model: Model, rows: Rows, outputs: NDArray[np.int64], count: int) -> list[str]:
    """Name the `count` features that contribute most to the score of an output, for each row.

    A contribution is weight times value; all of them and the intercept sum to the score, or where
    two classes have one each, to that of the second less that of the first.
    """
    weights, texts = model.weights_of(rows), []
    if model.task == "multiclass" and model.n_outputs == 2:  # for the second, as with one score
        weights, outputs = weights[:, 1:] - weights[:, :1], np.zeros_like(outputs)
    for row, output in enumerate(outputs.tolist()):
        entries = slice(rows.indptr[row], rows.indptr[row + 1])
        local = rows.indices[entries]
        parts = weights[local, output]
        if rows.values is not None:
            parts *= rows.values[entries]
        if rows.row_scale is not None:
            parts *= rows.row_scale[row]
        largest = np.argsort(-np.abs(parts), kind="stable")[:count]
        largest = largest[parts[largest] != 0.0]
        ids = rows.vocabulary[local[largest]]
        columns = ids.tolist(), model.schema.names_of(ids, model.names), parts[largest].tolist()
        texts.append(
            "; ".join(
                f"{feature if name is None else name} {part:+.3g}"
                for feature, name, part in zip(*columns, strict=True)
            )
        )
    return texts
