"""Columns of lists of numbers, such as embeddings, whose items are columns of their own."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from dadagrad.data.parquet.columns import is_list, is_text
from dadagrad.data.tables.cells import is_number, to_numbers

_Flags = NDArray[np.bool_]

_WRITTEN_LIST = r"^\s*\[([-+.,\deE\s]|nan|None|null)*\]\s*$"


def kind_of_lists(lists: pa.Array) -> Literal["number", "words"] | None:
    """Kind of a column of lists of texts or of numbers; None for lists of something else.

    Whole numbers in lists of several lengths are words, such as the films that a user has seen.
    """
    item = lists.type.value_type
    varied = types.is_integer(item) and len(pc.unique(_filled_lengths(lists))) > 1
    if varied or is_text(item) or types.is_null(item):
        return "words"
    return "number" if is_number(item) else None


def commonest_length(lists: pa.Array) -> int:
    """The number of items that most lists have; 0 if all are missing or empty."""
    modes = pc.mode(_filled_lengths(lists)).to_pylist()
    return int(modes[0]["mode"]) if modes else 0


def _filled_lengths(lists: pa.Array) -> pa.Array:
    lengths = pc.list_value_length(lists)
    return lengths.filter(pc.fill_null(pc.greater(lengths, 0), False))


def are_lists(texts: pa.Array) -> bool:
    """True if all `texts` are lists of numbers, as Dask and `DataFrame.to_csv` write them."""
    are_lists = pc.all(pc.match_substring_regex(texts, _WRITTEN_LIST))
    return bool(are_lists.as_py() and pc.any(pc.match_substring_regex(texts, r"\d")).as_py())


def holds_numbers(lists: pa.Array) -> bool:
    """True for lists of numbers, and for cells that are all missing."""
    if is_list(lists.type):
        item = lists.type.value_type
        return is_number(item) or bool(types.is_null(item))
    return bool(types.is_null(lists.type))


def to_items(lists: pa.Array, length: int) -> tuple[NDArray[np.float64], _Flags, _Flags]:
    """Numbers of the items and the wrong ones, (n_rows, length), and the lists of other lengths.

    All items of a list that is missing or empty are missing, and so NaN.
    """
    if types.is_null(lists.type):
        lists = lists.cast(pa.list_(pa.float64()))
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    is_whole = lengths == length
    numbers, wrong = np.full((len(lists), length), np.nan), np.zeros((len(lists), length), bool)
    items = to_numbers(lists.filter(pa.array(is_whole)).flatten())
    numbers[is_whole], wrong[is_whole] = (each.reshape(-1, length) for each in items)
    return numbers, wrong, (lengths > 0) & ~is_whole


def other_length(name: str, length: int, needed: int) -> str:
    """Reason to refuse a row."""
    return (
        f"column {name} holds a list of {length:,} numbers; the first rows have lists of "
        f"{needed:,} there, so every list must have {needed:,} (--on-error skip leaves the row "
        "out; to learn from lists of whole numbers as categories, ingest with --categories)"
    )
