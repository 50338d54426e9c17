"""The Parquet or CSV file that `dadagrad.evaluation.predict` writes."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dadagrad.data.dataset import LabelColumn
from dadagrad.errors import InputError, StorageError
from dadagrad.labels import label_text
from dadagrad.storage import Storage

if TYPE_CHECKING:
    from dadagrad.model import Model

Array = NDArray[np.float64]


class PredictionFile:
    """A file that is written under another name and appears when it is complete.

    Parameters
    ----------
    url : str
        A path, or a URL that `Storage` takes. For a URL the file is made in the system's
        temporary folder first. Its suffix says what is written: Parquet for ``.parquet``, ``.pq``
        and none, CSV with a header for ``.csv``.
    model : Model
        Says which columns there are.
    overwrite : bool
        Whether a file that is there may be replaced.
    """

    def __init__(self, url: str, model: Model, *, overwrite: bool) -> None:
        self.n_bytes = 0
        self._url = url
        self._model = model
        self._storage = Storage(url)
        self._refuse_existing(overwrite)
        make_writer = _writer_for(url)
        with self._failing_as_storage():
            if self._storage.is_local:
                target = self._storage.local_path()
                os.makedirs(os.path.dirname(target), exist_ok=True)
                folder, name = os.path.split(target)
                self._temporary = os.path.join(folder, f".{name}-{uuid4().hex}.part")
            else:
                handle, self._temporary = tempfile.mkstemp(suffix=".part")
                os.close(handle)
            self._schema = pa.schema(_fields(model))
            self._writer: Any = make_writer(self._temporary, self._schema)

    def write(self, first: int, margins: Array) -> None:
        """Add the rows from number `first` on, by their (n_rows, n_outputs) margins."""
        columns = _columns(self._model, first, margins)
        table = pa.Table.from_arrays(columns, schema=self._schema)
        with self._failing_as_storage():
            self._writer.write_table(table)

    def __enter__(self) -> PredictionFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                with self._failing_as_storage():
                    self._writer.close()
                self._publish()
            else:
                with suppress(OSError, pa.ArrowException):
                    self._writer.close()
        finally:
            with suppress(FileNotFoundError):
                os.remove(self._temporary)

    def _publish(self) -> None:
        with self._failing_as_storage():
            self.n_bytes = os.path.getsize(self._temporary)
            if self._storage.is_local:
                with open(self._temporary, "rb") as file:
                    os.fsync(file.fileno())
                os.replace(self._temporary, self._storage.local_path())
                return
        # A large file goes up in parts, and is there when the last of them is.
        self._storage.put_file("", self._temporary)

    def _refuse_existing(self, overwrite: bool) -> None:
        if self._storage.is_local and os.path.isdir(self._storage.local_path()):
            raise InputError(f"{self._url} is a folder; give the name of a file to write")
        if not overwrite and self._storage.exists(""):
            raise InputError(
                f"there is a file at {self._url} already; give another name, or --overwrite to "
                "replace it"
            )

    @contextmanager
    def _failing_as_storage(self) -> Iterator[None]:
        """Turn a failure of the system or of Arrow into a `StorageError` that names the file."""
        try:
            yield
        except StorageError:
            raise
        except (OSError, pa.ArrowException) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise StorageError(
                f"cannot write {self._storage.url}: {reason}; check the folder and the space on it"
            ) from error


class _ParquetWriter:
    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._writer: Any = pq.ParquetWriter(path, schema, compression="zstd")

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def close(self) -> None:
        self._writer.close()


class _CsvWriter:
    """Numbers in as many digits as it takes to read the same number back."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        from pyarrow.csv import CSVWriter, WriteOptions

        # Arrow would put quotes around every name.
        header = io.StringIO()
        csv.writer(header, lineterminator="\n").writerow(schema.names)
        self._file = pa.OSFile(path, mode="wb")
        try:
            self._file.write(header.getvalue().encode())
            options = WriteOptions(include_header=False, quoting_style="needed")
            self._writer: Any = CSVWriter(self._file, schema, write_options=options)
        except BaseException:
            self._file.close()
            raise

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        with self._file:
            self._writer.close()


_WRITERS: dict[str, Callable[[str, pa.Schema], Any]] = {
    ".parquet": _ParquetWriter,
    ".pq": _ParquetWriter,
    "": _ParquetWriter,
    ".csv": _CsvWriter,
}


def _writer_for(url: str) -> Callable[[str, pa.Schema], Any]:
    """What writes the file that the suffix of `url` asks for."""
    suffix = os.path.splitext(url.rpartition("/")[2])[1]
    writer = _WRITERS.get(suffix.lower())
    if writer is None:
        raise InputError(
            f"predictions cannot be written to {url}: the suffix {suffix} is not known; give "
            ".parquet (or none) for Parquet, or .csv for CSV"
        )
    return writer


def _fields(model: Model) -> list[Any]:
    """The columns of the file."""
    margins = [f"margin{suffix}" for suffix in _suffixes(model)]
    predictions = (
        [f"prediction_{column.name}" for column in model.label_columns]
        if len(model.label_columns) > 1
        else ["prediction"]
    )
    kinds = [
        pa.string() if column.names and model.task != "regression" else pa.float64()
        for column in model.label_columns
    ]
    fields = [("row", pa.int64())]
    fields += [(name, pa.float64()) for name in margins]
    fields += list(zip(predictions, kinds, strict=True))
    if model.has_probabilities:
        fields += [(f"probability{suffix}", pa.float64()) for suffix in _suffixes(model)]
    return fields


def _suffixes(model: Model) -> list[str]:
    """What tells the outputs apart in the names of columns."""
    if model.task == "multiclass":
        (column,) = model.label_columns
        return [f"_{label_text(column, value)}" for value in column.values or ()]
    if len(model.label_columns) > 1:
        return [f"_{column.name}" for column in model.label_columns]
    return [""]


def _columns(model: Model, first: int, margins: Array) -> list[Any]:
    """The content of the columns for some rows, in the order of `_fields`."""
    predicted = model.predict_labels(margins).reshape(len(margins), len(model.label_columns))
    columns = [pa.array(np.arange(first, first + len(margins)))]
    columns += [pa.array(np.ascontiguousarray(margin)) for margin in margins.T]
    for number, column in enumerate(model.label_columns):
        columns.append(_named(column, np.ascontiguousarray(predicted[:, number])))
    if model.has_probabilities:
        probabilities = model.probabilities(margins)
        if model.task == "binary":
            probabilities = probabilities[:, 1:]
        columns += [pa.array(np.ascontiguousarray(column)) for column in probabilities.T]
    return columns


def _named(column: LabelColumn, predicted: Array) -> Any:
    if column.names is None or column.values is None:
        return pa.array(predicted)
    return pa.array(column.names).take(pa.array(np.searchsorted(column.values, predicted)))
