"""Rows of a table: cells of their columns, what describes them, and those that are left out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dadagrad.data.blocks import MAX_NOTES, Note
from dadagrad.data.parquet.columns import is_list
from dadagrad.data.reading.options import Options
from dadagrad.data.tables.cells import (
    BOOLEANS,
    Batch,
    is_value,
    suits,
    to_categories,
    to_labels,
    to_numbers,
)
from dadagrad.data.tables.row_columns import RECORDED, RowColumns, no_column, shown
from dadagrad.errors import InputError

_FLAGS = {"true": "1", "false": "0"}
_FLAGS |= {text: _FLAGS[boolean] for text, boolean in BOOLEANS.items()}
_WHOLE = re.compile(r"-?[0-9]{1,18}")


class BatchReader:
    """Reader of the columns of a batch; `kept` are the rows that are right so far.

    Rows that are wrong raise `InputError`, or are described in `notes`.
    """

    def __init__(self, batch: Batch, columns: RowColumns, options: Options) -> None:
        self._batch, self._columns, self._options = batch, columns, options
        self._positions = {name: n for n, name in enumerate(batch.table.schema.names)}
        self._required = columns.required(options)
        self.n_rows = batch.table.num_rows
        self.kept = np.ones(self.n_rows, bool)
        self.notes: list[Note] = []
        for note in batch.notes:
            self._refuse(note)

    def column(self, name: str) -> pa.Array:
        """Cells of a column; raises `InputError` if there is none of this name."""
        if name not in self._positions:
            names = list(self._positions)
            needed_by = self._required.get(name, RECORDED)
            raise no_column(names, name, needed_by, self.source())
        return self._batch.table.column(self._positions[name])

    def source(self) -> str:
        """Place of the rows without a line: a file or a table."""
        place = str(self._batch.place(0))
        return place.rpartition(", ")[0] or place

    def _refuse(self, note: Note) -> None:
        """Raise `InputError` about a wrong row, or describe it as one that is left out."""
        if self._options.on_error == "raise":
            raise InputError("{}: {}".format(*note))
        self.notes.append(note)

    def refuse_rows(self, wrong: NDArray[np.bool_], problem: Callable[[int], str]) -> None:
        """Refuse the `wrong` rows, or leave them out; the first of them are described."""
        self.kept &= ~wrong
        for row in np.flatnonzero(wrong)[:MAX_NOTES].tolist():
            self._refuse((self._batch.place(row), problem(row)))

    def labels(self) -> NDArray[Any]:
        """Labels, (n_rows, n_label_columns) numbers or (n_rows,) texts of a single column."""
        names = () if self._options.no_labels else self._columns.labels
        n_rows = self.n_rows
        are_there = all(name in self._positions for name in names)
        if not names or not (are_there or self._required.keys() & names):
            return np.zeros((n_rows, 0))
        if not n_rows:  # all were wrong, and lines of JSON without rows have no columns
            return np.zeros((0, len(names)))
        columns = [self._label(name, of_several=len(names) > 1) for name in names]
        return np.concatenate(columns, axis=1) if len(names) > 1 else columns[0]

    def _label(self, name: str, *, of_several: bool) -> NDArray[Any]:
        """Labels of a column; rows without one are refused, and texts if it is one of several."""
        cells = self.column(name)
        if not is_value(cells.type):
            needed = "it must be a number or a text"
            if is_list(cells.type):
                needed = (
                    "several labels of a row need a column of 0 and 1 each, such as scikit-learn's "
                    "MultiLabelBinarizer makes, and --label with the names of all"
                )
            raise InputError(
                f"{self.source()}: the label, column {shown(name)}, is {cells.type}; {needed}"
            )
        codes, texts = to_categories(cells)
        if of_several:
            as_numbers = [_FLAGS.get(text, text) for text in texts.to_pylist()]
            numbers, _ = to_numbers(pa.array(as_numbers, pa.string()))
            labels, has_label = numbers[codes, None], np.isfinite(numbers)[codes]
        else:
            labels, has_label = to_labels(codes, texts)
        if self._options.to_predict:
            return labels
        needed = "a finite number or a boolean" if of_several else "a class or a finite number"

        def problem(row: int) -> str:
            text = texts[int(codes[row])].as_py()
            column = f"{name} counted from 0" if name.isdecimal() else shown(name)
            state = f"is {text[:60]}" if text else "is missing"
            return (
                f"the label, column {column}, {state}; every row needs {needed} "
                "there (--on-error skip leaves out rows that have none, and "
                "--no-labels reads a file without labels, to be predicted)"
            )

        self.refuse_rows(~has_label, problem)
        return labels

    def weights(self) -> NDArray[np.float32] | None:
        """Weights of the rows, if they have any; rows whose weight is wrong are refused."""
        name = self._columns.weight
        if name is None or self._options.to_predict or self._is_absent(name):
            return None
        cells = self.column(name)
        is_right = suits(cells, "number")
        numbers = to_numbers(cells)[0] if is_right else np.full(self.n_rows, np.nan)
        right = (numbers >= 0) & (numbers <= np.finfo(np.float32).max)

        def problem(row: int) -> str:
            return (
                f"the weight, column {shown(name)}, is {shown(str(cells[row].as_py()))}; every row "
                "needs a finite number of at least 0 there (--on-error skip leaves the row out)"
            )

        self.refuse_rows(~right, problem)
        return numbers.astype(np.float32)

    def queries(self) -> NDArray[np.int64] | None:
        """Queries of the rows, if they have any; rows without one are refused."""
        name = self._columns.query
        if name is None or self._is_absent(name):
            return None
        codes, texts = self._texts_of_rows(name, "queries")
        problem = (
            f"the query, column {shown(name)}, is missing; every row needs a number or a text "
            "there (--on-error skip leaves the row out)"
        )
        self.refuse_rows(texts[codes] == "", lambda row: problem)
        return np.array(list(map(query_number, texts)), np.int64)[codes]

    def tags(self) -> NDArray[np.object_] | None:
        """Names of the rows, if they have any."""
        name = self._columns.row_name
        if name is None or self._is_absent(name):
            return None
        codes, texts = self._texts_of_rows(name, "names of rows")
        return texts[codes]

    def _is_absent(self, name: str) -> bool:
        """True if the rows have no column of this name, and need none."""
        return name not in self._positions and not (self.n_rows and name in self._required)

    def _texts_of_rows(
        self, name: str, content: str
    ) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
        """Codes of cells, and the text of each code, of a column of numbers or texts."""
        cells = self.column(name)
        if pa.types.is_nested(cells.type):
            raise InputError(
                f"{self.source()}: the {content}, column {shown(name)}, are {cells.type}; they "
                "must be numbers or texts"
            )
        codes, texts = to_categories(cells)
        return codes, np.asarray(texts.to_numpy(zero_copy_only=False))


def query_number(text: str) -> int:
    """The number of a query: the text as a whole number, or else a hash of 63 bits."""
    if _WHOLE.fullmatch(text):
        return int(text)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
