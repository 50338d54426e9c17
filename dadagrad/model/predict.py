"""Prediction into a Parquet or CSV file, one partition at a time."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, BinaryIO
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow.csv import CSVWriter
from pyarrow.parquet import ParquetWriter

from dadagrad.data.dataset import Dataset
from dadagrad.errors import InputError, StorageError
from dadagrad.model.evaluate import RowsDone, open_both, score_partitions
from dadagrad.model.model import Model
from dadagrad.storage.store import Storage

Array = NDArray[np.float64]

STDOUT = ("-", "/dev/stdout")
_PARQUET_WRITER = partial(ParquetWriter, compression="zstd")


def predict(
    model: Model | str | os.PathLike[str],
    data: Dataset | str,
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: RowsDone | None = None,
) -> dict[str, Any]:
    """Write the predictions of `model` for each row of `data` to a Parquet or CSV file.

    Parameters
    ----------
    model : Model or str
        A model, or the URL of one.
    data : Dataset or str
        Data in the feature space of the model; its labels are ignored.
    out : str
        Path or URL of the file: Parquet, or CSV with a header if it ends in ``.csv``. It appears
        once it is complete. ``-`` is standard output, which receives CSV; a pipe with a name and
        a device are written to as they are.
    overwrite : bool
        True to replace a file at `out`, or the one that a symbolic link at `out` leads to.
    progress : callable, optional

    Returns
    -------
    dict
        ``rows``, ``bytes`` (of the file; None of a pipe) and ``seconds``.

    Raises
    ------
    InputError
        The features of the data are not those the model was trained on, or `out` exists or has
        a suffix that is not known.
    CorruptionError, StorageError
        The model or the data cannot be read, or `out` cannot be written.

    Notes
    -----
    The columns are ``row`` (int64, counted over the whole dataset), ``score`` (float64),
    ``prediction`` (the label: text where labels were text, else float64), and ``probability`` (of
    the larger label) where the loss is logistic or softmax. With several classes, and with two
    where the loss is softmax or multiclass hinge, there is a ``score_CLASS``
    and a ``probability_CLASS`` for each, and with several label columns a ``score_COLUMN``, a
    ``prediction_COLUMN`` and a ``probability_COLUMN``.
    """
    begun = time.perf_counter()
    model, data = open_both(model, data)
    model.check_compatible(data.schema)
    url = os.fspath(out)
    make_writer = CSVWriter if url in STDOUT or _suffix(url) == ".csv" else _PARQUET_WRITER
    schema = _table(model, 0, np.zeros((0, model.n_outputs))).schema
    with _output(url, overwrite) as file:
        with make_writer(file, schema) as writer:
            for first, _, scores in score_partitions(model, data, progress):
                writer.write_table(_table(model, first, scores))
        n_bytes = os.path.getsize(file) if isinstance(file, str) else None
    return {"rows": data.n_rows, "bytes": n_bytes, "seconds": time.perf_counter() - begun}


@contextmanager
def _output(url: str, overwrite: bool) -> Iterator[str | BinaryIO]:
    """Yield standard output, an open pipe or device, or the path of a `_new_file`."""
    if url in STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    elif "://" not in url and os.path.exists(url) and _is_special(os.stat(url).st_mode):
        with open(url, "wb", buffering=0) as file:
            yield file
    else:
        with _new_file(url, overwrite) as path:
            yield path


def _is_special(mode: int) -> bool:
    """Return True for a pipe, a socket or a device, which is not replaced."""
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def _new_file(url: str, overwrite: bool) -> Iterator[str]:
    """Yield the path of a temporary file, which becomes the file at `url` at the end."""
    storage = Storage(url)
    if storage.is_local and os.path.isdir(storage.local_path()):
        raise InputError(f"{url} is a folder; give the name of a file to write")
    if not overwrite and storage.exists(""):
        raise InputError(
            f"there is a file at {url} already; give another name, or --overwrite to replace it"
        )
    # The file that a link leads to is replaced, and the link stays.
    target = os.path.realpath(storage.local_path()) if storage.is_local else ""
    folder, name = os.path.split(target)
    path = os.path.join(folder or tempfile.gettempdir(), f".{name}-{uuid4().hex}.part")
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        yield path
        if not target:  # sent in parts, and exists once the last of them has arrived
            storage.put_file("", path)
            return
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        os.replace(path, target)
    except StorageError:
        raise
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StorageError(
            f"cannot write {storage.url}: {reason}; check the folder and the space on it"
        ) from error
    finally:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.remove(path)


def _suffix(url: str) -> str:
    """Return the suffix, which decides the format; `InputError` if it is not known."""
    suffix = os.path.splitext(url.rpartition("/")[2])[1]
    if suffix.lower() not in ("", ".parquet", ".pq", ".csv"):
        raise InputError(
            f"predictions cannot be written to {url}: the suffix {suffix} is not known; give "
            ".parquet (or none) for Parquet, or .csv for CSV"
        )
    return suffix.lower()


def _table(model: Model, first: int, scores: Array) -> pa.Table:
    """Predictions for rows from number `first` on, by their (n_rows, n_outputs) scores."""
    columns, names = model.label_columns, model.output_names
    outputs = [f"_{name}" for name in names] if len(names) > 1 else [""]
    labels = outputs if len(columns) > 1 else [""]
    table: dict[str, Any] = {"row": np.arange(first, first + len(scores), dtype=np.int64)}
    for suffix, values in zip(outputs, scores.T, strict=True):
        table[f"score{suffix}"] = np.ascontiguousarray(values)
    predicted = model.predict_labels(scores).reshape(len(scores), len(columns))
    for suffix, column, values in zip(labels, columns, predicted.T, strict=True):
        table[f"prediction{suffix}"] = np.ascontiguousarray(values)
        if column.names is not None and column.values is not None:
            number = pa.array(np.searchsorted(column.values, values))
            table[f"prediction{suffix}"] = pa.array(column.names).take(number)
    if model.has_probabilities:
        probabilities = model.probabilities(scores)[:, -len(outputs) :]
        for suffix, values in zip(outputs, probabilities.T, strict=True):
            table[f"probability{suffix}"] = np.ascontiguousarray(values)
    return pa.table(table)
