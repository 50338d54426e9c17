"""Parquet columns as the arrays of `Rows`, with errors that name column and row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from dadagrad.data.rows import check_column, row_of
from dadagrad.errors import InputError


def find_columns(schema: pa.Schema, place: str) -> dict[str, str]:
    """Names of the columns to read, and "text" or "numbers"; there may be no label.

    Raises `InputError` naming the column that is missing or of an unsuitable type.
    """
    if "indices" not in schema.names:
        raise InputError(
            f"{place}: there is no column 'indices' among {schema.names}; needed is a list of "
            "feature ids"
        )
    labels = sorted(name for name in schema.names if name.startswith("label"))
    optional = [name for name in ("values", "weight", "query") if name in schema.names]
    columns = {}
    for name in ("indices", *labels, *optional):
        kind = schema.field(name).type
        item = kind.value_type if is_list(kind) else None
        suits, needed = {
            "indices": (item is not None and types.is_integer(item), "list<int>"),
            "values": (item is not None and _is_number(item), "list<float>"),
            "weight": (_is_number(kind), "a number"),
            "query": (types.is_integer(kind), "a whole number"),
        }.get(name, (_is_number(kind) or is_text(kind), "a number, a boolean or a string"))
        if not suits:
            raise InputError(f"{place}: column {name!r} is {kind}; needed is {needed}")
        columns[name] = "text" if is_text(kind) else "numbers"
    return columns


def is_text(kind: pa.DataType) -> bool:
    """True for a column of strings."""
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_list(kind: pa.DataType) -> bool:
    """True for a column of lists."""
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


class ColumnReader:
    """Reader of the columns of a `table` as arrays; `place` is the table in messages.

    Raises `InputError` for a row or an item that is null, or too large for its type.
    """

    def __init__(self, table: pa.Table, place: str) -> None:
        self._table, self._place = table, place

    def lists(
        self, name: str, dtype: type[np.number[Any]]
    ) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """A list column as row pointers, (n_rows + 1,) int64, and items of `dtype`."""
        array = self._column(name)
        if types.is_fixed_size_list(array.type):
            indptr = np.arange(len(array) + 1, dtype=np.int64) * array.type.list_size
        else:
            offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
            indptr = offsets - offsets[0]
        items = array.flatten()
        if items.null_count:
            row = row_of(indptr, pc.index(items.is_null(), True).as_py())
            raise InputError(
                f"{self._place}: row {row} has a null in {name!r}; every item needs a value"
            )
        return indptr, self._cast(items, name, dtype)

    def numbers(self, name: str, dtype: type[np.number[Any]]) -> NDArray[Any]:
        """A column of numbers as (n_rows,) of `dtype`."""
        return self._cast(self._column(name), name, dtype)

    def labels(self, name: str, codes: Mapping[str, float] | None) -> NDArray[np.float64]:
        """A label column as (n_rows,) float64; texts become their class codes in `codes`."""
        if codes is None:
            return self.numbers(name, np.float64)
        array = self._column(name)
        if not types.is_dictionary(array.type):
            array = array.dictionary_encode()
        texts = array.dictionary.to_pylist()
        unknown = [text for text in texts if text not in codes]
        if unknown:
            raise InputError(
                f"{self._place}: {name!r} has {str(unknown[0])[:60]!r}, which it had not when the "
                "dataset was opened; leave the file as it is while it is used"
            )
        table = np.array([codes[text] for text in texts], np.float64)
        numbers: NDArray[np.float64] = table[array.indices.to_numpy(zero_copy_only=False)]
        return numbers

    def label_counts(self, name: str) -> dict[Any, int]:
        """Distinct values of a label column and their counts."""
        if is_text(self._table.column(name).type):
            pairs = pc.value_counts(self._column(name))
            return {pair["values"].as_py(): int(pair["counts"].as_py()) for pair in pairs}
        numbers = self.numbers(name, np.float64)
        check_column(numbers, name, self._place)
        values, counts = np.unique(numbers, return_counts=True)
        return dict(zip(values.tolist(), counts.tolist(), strict=True))

    def _column(self, name: str) -> pa.Array:
        """The column as one array, without nulls."""
        column = self._table.column(name)
        if column.null_count:
            row = pc.index(column.is_null(), True).as_py()
            raise InputError(
                f"{self._place}: row {row} has null in {name!r}; every row needs a value"
            )
        return column.combine_chunks()

    def _cast(self, array: pa.Array, name: str, dtype: type[np.number[Any]]) -> NDArray[Any]:
        numbers = array.to_numpy(zero_copy_only=False)
        if numbers.dtype == np.uint64 and numbers.max(initial=0) > np.iinfo(np.int64).max:
            raise InputError(
                f"{self._place}: {name!r} has {numbers.max()}, which int64 cannot hold"
            )
        with np.errstate(over="ignore"):  # infinite numbers are refused later
            cast: NDArray[Any] = numbers.astype(dtype, copy=not numbers.flags.writeable)
        return cast
