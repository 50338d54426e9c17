"""Rows of a table, and cells of a column as numbers, categories, times and lists of words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from dadagrad.data.blocks import Note
from dadagrad.data.parquet.columns import is_list, is_text
from dadagrad.errors import InputError
from dadagrad.summary import number_text

MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "NaT", "?", "\\N")
"""Texts that stand for a missing number."""
NOT_A_NUMBER = r"^[+-]?[nN][aA][nN](\(\w*\))?$"
"""Other texts of a missing number, as C writes it."""
_MISSING_CELLS = pa.array([*MISSING, None])
BOOLEANS = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}
"""Other texts of booleans, and those of Arrow."""
_SPARE_ZEROS = r"(\.\d*[1-9])0+$|\.0*$| 00:00:00(\.0*)?$"
"""Zeros at the end of a decimal number or a time, which depend on the type of the column."""
WHOLE_NUMBER = r"^(-?[0-9]+)\.0$"
"""Texts of whole numbers in a column with missing ones: 3.0 is the category 3."""

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_SMALL_BYTES = 1 << 24  # of columns of texts that are joined to be read as numbers


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of a table; `place` names a row in a message, and `skipped` rows were left out.

    `lines` counts the lines of the rows in their chunk, from 0 (None for rows that are not lines),
    and `notes` describes the first of the rows that were left out.
    """

    table: pa.RecordBatch
    place: Callable[[int], object]
    skipped: int = 0
    lines: Callable[[], NDArray[np.int64]] | None = None
    notes: tuple[Note, ...] = ()


def columns_of_rows(rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """A table of rows, which have their cells by column; NaN is a missing cell, as in pandas.

    A row may leave out a column, in which its cell is missing.
    """
    names = list(dict.fromkeys(chain.from_iterable(rows)))
    columns = [_column_of([_for_arrow(row.get(name)) for row in rows]) for name in names]
    return pa.RecordBatch.from_arrays(columns, names)


def _column_of(cells: list[Any]) -> pa.Array:
    try:
        return pa.array(cells, from_pandas=True)
    except OverflowError:  # ids of 64 bits; others raise it again
        return pa.array(cells, pa.uint64(), from_pandas=True)


def _for_arrow(cell: Any) -> Any:
    """A cell as Arrow takes it: it knows dates of NumPy in some units alone."""
    return cell.astype("datetime64[us]").item() if isinstance(cell, np.datetime64) else cell


def column_of_labels(labels: NDArray[Any]) -> pa.Array:
    """A column of labels; None, NaN and what pandas has in their place are missing."""
    try:
        return pa.array(labels, from_pandas=True)
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"y: {reason}; give labels of one kind: texts, numbers or booleans"
        ) from None


def flatten(table: pa.Table) -> pa.Table:
    """`table` with the fields of nested columns as columns ``outer.inner``, without views."""
    while any(types.is_struct(column.type) for column in table.columns):
        table = table.flatten()
    kinds = [(column.name, _without_views(column.type)) for column in table.schema]
    return table.cast(pa.schema(kinds))


def _without_views(kind: pa.DataType) -> pa.DataType:
    """The type with plain strings instead of views, for which Arrow lacks functions."""
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _without_views(kind.value_type))
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.large_list(_without_views(kind.value_type))
    return kind


def is_missing(cell: object) -> bool:
    """True for None, and for what NumPy and pandas have in the place of a missing value."""
    return cell is None or (
        not isinstance(cell, str | int | Sized) and str(cell) in ("nan", "NaT", "<NA>")
    )


def is_number(kind: pa.DataType) -> bool:
    """True for a column of numbers."""
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def is_value(kind: pa.DataType) -> bool:
    """True for a column whose cells have a text: of numbers, strings, booleans, dates or times."""
    kind = kind.value_type if types.is_dictionary(kind) else kind
    plain = is_number(kind) or is_text(kind) or types.is_boolean(kind) or types.is_null(kind)
    return bool(plain or (types.is_temporal(kind) and not types.is_duration(kind)))


def is_date(kind: pa.DataType) -> bool:
    """True for a column of days or of points in time."""
    return bool(types.is_date(kind) or types.is_timestamp(kind))


def suits(cells: pa.Array, kind: str) -> bool:
    """True if cells of this type can be read as a column of another kind, as `Column` names it."""
    stored = cells.type.value_type if types.is_dictionary(cells.type) else cells.type
    if types.is_null(stored) or (is_text(stored) and kind != "words"):
        return True
    if kind in ("number", "code"):
        return is_number(stored) or bool(types.is_boolean(stored))
    if kind in ("day", "time"):
        return is_date(stored)
    if is_list(stored) and kind in ("text", "words"):
        item = stored.value_type
        is_word = is_text(item) or types.is_null(item)
        return bool(is_word or (kind == "words" and types.is_integer(item)))
    return kind in ("category", "text") and is_value(stored)


def to_numbers(cells: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Numbers in cells, NaN where one is missing, and the cells that hold something else."""
    if types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if not is_text(cells.type):
        numbers = pc.cast(cells, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return numbers, np.abs(numbers) > _FLOAT32_MAX
    texts = trimmed(cells, "nan")
    try:
        numbers = pc.cast(texts, pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:  # some are words, or numbers that only Python reads, such as "+1"
        coded = texts.dictionary_encode()
        parsed = np.array([as_number(text) for text in coded.dictionary.to_pylist()], np.float64)
        numbers = parsed[coded.indices.to_numpy()]
    wrong = ~(np.abs(numbers) <= _FLOAT32_MAX)
    if wrong.any():
        missing = pc.match_substring_regex(texts, NOT_A_NUMBER)
        wrong &= ~missing.to_numpy(zero_copy_only=False)
    return numbers, wrong


def trimmed(texts: pa.Array, missing: str | None) -> pa.Array:
    """Texts without white space around them, and `missing` in the place of a missing one."""
    texts = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.is_in(texts, value_set=_MISSING_CELLS), missing, texts)


def to_matrix(columns: Sequence[pa.Array]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """`to_numbers` of several columns, as arrays of the shape (n_rows, n_columns)."""
    # Not one by one: of some rows of many columns, each call would take longer than its work.
    kinds = {column.type for column in columns}
    if kinds == {pa.float64()}:
        table = pa.RecordBatch.from_arrays(columns, names=list(map(str, range(len(columns)))))
        numbers = table.to_tensor(null_to_nan=True).to_numpy()
        return numbers, np.abs(numbers) > _FLOAT32_MAX
    small = sum(column.nbytes for column in columns) <= _SMALL_BYTES
    if small and len(kinds) == 1 and all(map(is_text, kinds)):
        numbers, wrong = to_numbers(pa.concat_arrays(columns))
        shape = len(columns), len(columns[0])
        return numbers.reshape(shape).T, wrong.reshape(shape).T
    matrices = zip(*map(to_numbers, columns), strict=True)
    numbers, wrong = (np.stack(each, axis=1) for each in matrices)
    return numbers, wrong


def as_number(text: str) -> float:
    """The number in `text`, or NaN."""
    try:
        # Python reads 1_000 as a number; other programs do not.
        return np.nan if "_" in text else float(text)
    except ValueError:
        return np.nan


def to_categories(cells: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Codes of cells, and the text of each code; a missing cell is the empty text.

    A whole number has the same text whatever its type: 3 and 3.0 are one category, and so are a day
    and its midnight, in any unit. No text depends on other cells.
    """
    if not types.is_dictionary(cells.type):
        cells = cells.dictionary_encode()
    codes = pc.fill_null(pc.cast(cells.indices, pa.int64()), len(cells.dictionary))
    values = cells.dictionary
    if types.is_timestamp(values.type):
        values = pc.cast(values, pa.timestamp(values.type.unit))  # in UTC
    texts = pc.cast(values, pa.string())
    if types.is_temporal(values.type) or types.is_decimal(values.type):
        texts = pc.replace_substring_regex(texts, _SPARE_ZEROS, r"\1")
    if types.is_floating(values.type):
        texts = pc.if_else(pc.is_nan(values), "", _whole_texts(values, texts))
    texts = pc.fill_null(pc.utf8_trim_whitespace(texts), "")
    return codes.to_numpy(zero_copy_only=False), pa.concat_arrays([texts, pa.array([""])])


def _whole_texts(numbers: pa.Array, texts: pa.Array) -> pa.Array:
    """The texts of numbers as those of integers where they are whole."""
    floats = pc.fill_null(pc.cast(numbers, pa.float64()), np.nan)
    whole = pc.and_(pc.equal(pc.floor(floats), floats), pc.less(pc.abs(floats), 2.0**53))
    integers = pc.cast(pc.if_else(whole, floats, 0.0), pa.int64())
    return pc.if_else(whole, pc.cast(integers, pa.string()), texts)


def to_labels(codes: NDArray[np.int64], texts: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Labels of the cells of `to_categories`, and the cells that have one.

    They are (n_rows, 1) numbers, or (n_rows,) texts if one of them is no number.
    """
    numbers, wrong = to_numbers(texts)
    if not (wrong & np.isnan(numbers)).any():
        return numbers[codes, None], np.isfinite(numbers)[codes]
    has_label = pc.not_equal(texts, "").to_numpy(zero_copy_only=False)[codes]
    exact = np.abs(numbers) < 2.0**53  # as in other batches, where all labels are numbers
    named = [
        number_text(number) if is_exact else BOOLEANS.get(text, text)
        for text, number, is_exact in zip(texts.to_pylist(), numbers, exact, strict=True)
    ]
    return np.array(named, object)[codes], has_label


def to_texts(cells: pa.Array) -> list[str]:
    """Texts of cells, "" where one is missing; the items of a list are joined by spaces."""
    if is_list(cells.type):
        items = pc.fill_null(pc.cast(cells.flatten(), pa.string()), "").to_pylist()
        lengths = pc.fill_null(pc.list_value_length(cells), 0).to_pylist()
        ends = np.cumsum(lengths).tolist()
        return [" ".join(items[end - n : end]) for n, end in zip(lengths, ends, strict=True)]
    return list(pc.fill_null(pc.cast(cells, pa.string()), "").to_pylist())
