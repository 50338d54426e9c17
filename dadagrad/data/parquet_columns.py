"""Parquet columns as the arrays that `Rows` wants, with errors that name column and row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dadagrad.errors import InputError


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of the columns that are read."""

    indices: str
    values: str | None
    labels: tuple[str, ...]
    weight: str | None
    query: str | None = None

    @property
    def all(self) -> list[str]:
        optional = [name for name in (self.values, self.weight, self.query) if name is not None]
        return [self.indices, *self.labels, *optional]


def find_columns(schema: pa.Schema, where: str) -> Columns:
    """Which columns of the Arrow `schema` of a file are read.

    Raises `InputError` naming the column that is missing or is of a type that cannot be read.
    """
    names = list(schema.names)
    if "indices" not in names:
        raise InputError(
            f"{where}: there is no column 'indices' among {names}; needed is a list of feature ids"
        )
    # There may be none: rows to predict.
    labels = tuple(sorted(name for name in names if name.startswith("label")))
    columns = Columns(
        "indices",
        "values" if "values" in names else None,
        labels,
        "weight" if "weight" in names else None,
        "query" if "query" in names else None,
    )
    _check_type(schema, "indices", _is_integers(schema.field("indices").type), "list<int>", where)
    if columns.values:
        suits = _is_list(schema.field("values").type) and _is_number(_item(schema, "values"))
        _check_type(schema, "values", suits, "list<float>", where)
    if columns.weight:
        suits = _is_number(schema.field("weight").type)
        _check_type(schema, "weight", suits, "a number", where)
    if columns.query:
        suits = bool(pa.types.is_integer(schema.field("query").type))
        _check_type(schema, "query", suits, "a whole number", where)
    for name in labels:
        suits = _is_number(schema.field(name).type) or is_text(schema.field(name).type)
        _check_type(schema, name, suits, "a number, a boolean or a string", where)
    return columns


def is_text(kind: pa.DataType) -> bool:
    """Whether a label column of this type holds names of classes."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def lists_of(
    column: pa.ChunkedArray, where: str, name: str, dtype: type[np.number[Any]]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """A list column as row pointers, (n_rows + 1,) int64, and items of `dtype`.

    Raises `InputError` for a row or an item that is null, or an item too large for `dtype`.
    """
    array = _combined(column)
    _check_null(array, where, name)
    if pa.types.is_fixed_size_list(array.type):
        indptr = np.arange(len(array) + 1, dtype=np.int64) * array.type.list_size
    else:
        offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        indptr = offsets - offsets[0]
    items = array.flatten()
    if items.null_count:
        entry = int(np.flatnonzero(items.is_null().to_numpy(zero_copy_only=False))[0])
        row = int(np.searchsorted(indptr, entry, side="right")) - 1
        raise InputError(f"{where}: row {row} has a null in {name!r}; every item needs a value")
    return indptr, _cast(items, where, name, dtype)


def numbers_of(
    column: pa.ChunkedArray, where: str, name: str, dtype: type[np.number[Any]]
) -> NDArray[Any]:
    """A column of numbers as (n_rows,) of `dtype`; raises `InputError` for a null."""
    array = _combined(column)
    _check_null(array, where, name)
    return _cast(array, where, name, dtype)


def label_numbers(
    column: pa.ChunkedArray, where: str, name: str, codes: Mapping[str, float] | None
) -> NDArray[np.float64]:
    """A label column as (n_rows,) float64; text becomes the class codes given in `codes`."""
    if codes is None:
        return numbers_of(column, where, name, np.float64)
    array = _combined(column)
    _check_null(array, where, name)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    texts = array.dictionary.to_pylist()
    unknown = [text for text in texts if text not in codes]
    if unknown:
        raise InputError(
            f"{where}: {name!r} has {str(unknown[0])[:60]!r}, which it had not when the dataset "
            "was opened; leave the file as it is while it is used"
        )
    table = np.array([codes[text] for text in texts], np.float64)
    numbers: NDArray[np.float64] = table[array.indices.to_numpy(zero_copy_only=False)]
    return numbers


def _combined(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # depends on the version of pyarrow
        array = array.chunk(0) if array.num_chunks else pa.array([], column.type)
    return array


def _check_null(array: pa.Array, where: str, name: str) -> None:
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(f"{where}: row {row} has null in {name!r}; every row needs a value")


def _cast(array: pa.Array, where: str, name: str, dtype: type[np.number[Any]]) -> NDArray[Any]:
    numbers = array.to_numpy(zero_copy_only=False)
    if numbers.dtype == np.uint64 and len(numbers) and numbers.max() > np.iinfo(np.int64).max:
        raise InputError(f"{where}: {name!r} has {numbers.max()}, which int64 cannot hold")
    with np.errstate(over="ignore"):  # what overflows float32 is infinite, and refused as that
        cast: NDArray[Any] = numbers.astype(dtype, copy=not numbers.flags.writeable)
    return cast


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_integers(kind: pa.DataType) -> bool:
    return _is_list(kind) and bool(pa.types.is_integer(kind.value_type))


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _item(schema: pa.Schema, name: str) -> pa.DataType:
    return schema.field(name).type.value_type


def _check_type(schema: pa.Schema, name: str, suits: bool, needed: str, where: str) -> None:
    if not suits:
        raise InputError(
            f"{where}: column {name!r} is {schema.field(name).type}; needed is {needed}"
        )
