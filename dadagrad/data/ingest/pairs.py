"""Pairs (X, y): tables whose labels are beside them become tables with columns of labels.

A pair may have the weights of its rows as well: (X, y, weights).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dadagrad.data.arrays import as_column
from dadagrad.data.dask_blocks import BlockedMatrix, is_dask
from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import check_length
from dadagrad.data.tables.cells import column_of_labels, is_missing
from dadagrad.data.tables.formats import to_table

_NAME = "the table"

RowOptions = dict[str, str | tuple[str, ...]]
"""Options of `ingest` that name the columns of labels, weights and texts."""


def is_pair(data: Any) -> bool:
    """True for a pair (X, y) of rows and their labels, and for (X, y, weights)."""
    is_tuple = isinstance(data, tuple) and len(data) in (2, 3)
    return is_tuple and not isinstance(data[0], str | os.PathLike | Dataset | tuple)


def split_pair(data: Any) -> tuple[Any, Any, Any]:
    """X, y and the weights of a pair, None where it has none; other `data` are X."""
    return (*data, None)[:3] if is_pair(data) else (data, None, None)


def are_texts(X: Any) -> bool:
    """True for a list or column of texts, some maybe missing."""
    is_column = isinstance(X, list | tuple) or len(getattr(X, "shape", ())) == 1
    if not is_column or not len(X) or is_dask(X):
        return False
    return all(isinstance(item, str) or is_missing(item) for item in X)


def are_dicts(X: Any) -> bool:
    """True for a list of rows, which are dicts of cells by column."""
    return isinstance(X, list) and len(X) > 0 and all(isinstance(row, dict) for row in X)


def labelled_texts(X: Any, y: Any, weights: Any) -> tuple[pa.Table, RowOptions]:
    """A table of one column of texts, with their labels, and weights if any; the names of these."""
    texts = pa.table({"text": pa.array(list(X), pa.string(), from_pandas=True)})
    table, options = (texts, {}) if y is None else labelled_table(texts, y, weights)
    return table, options | {"text_column": ("text",)}


def labelled_table(X: Any, y: Any, weights: Any) -> tuple[pa.Table, RowOptions]:
    """A table in memory with labels, and weights if any, as more columns; their names."""
    table, labels = to_table(X, _NAME), as_column(y, "y", _NAME)
    names = _names_of_labels(y, labels, table.column_names)
    for name, column in _columns(labels, names, table.num_rows, _NAME).items():
        table = table.append_column(name, column_of_labels(column))
    if weights is None:
        return table, {"label": names}
    weights = as_column(weights, "weights", _NAME)
    name = _new_name("weight", table.column_names, "weight")
    check_length(weights, table.num_rows, "weights", _NAME)
    return table.append_column(name, pa.array(weights)), {"label": names, "weight": name}


def labelled_blocks(X: Any, y: Any, weights: Any) -> tuple[list[Any], RowOptions]:
    """The blocks of a dask data frame with labels, and weights if any; the names of these."""
    from dask.delayed import delayed

    frames = BlockedMatrix(X)
    labels, weights = frames.gather(y, "y"), frames.gather(weights, "weights")
    options: RowOptions = {"label": _names_of_labels(y, labels, X.columns)}
    if weights is not None:
        options["weight"] = _new_name("weight", [*X.columns, *options["label"]], "weight")
    add = delayed(_add_columns)
    blocks = zip(frames.blocks, frames.split(labels), frames.split(weights), strict=True)
    return [add(*block, options, f"block {n}") for n, block in enumerate(blocks)], options


def _add_columns(frame: Any, labels: Any, weights: Any, options: Any, block: str) -> Any:
    columns = _columns(labels, options["label"], len(frame), block)
    return frame.assign(**columns | ({} if weights is None else {options["weight"]: weights}))


def _columns(
    labels: NDArray[Any], names: tuple[str, ...], n_rows: int, place: str
) -> dict[str, NDArray[Any]]:
    """The columns of `labels`, (n_rows,) or (n_rows, n_names), by name."""
    check_length(labels, n_rows, "y", place, flat=labels.ndim != 2)
    return dict(zip(names, np.atleast_2d(labels.T), strict=True))


def _names_of_labels(y: Any, labels: NDArray[Any], columns: Any) -> tuple[str, ...]:
    """Names for the columns of `labels`, which are those of `y`, beside other `columns`."""
    names = [getattr(y, "name", None) or "label"]
    if labels.ndim == 2:
        names = list(getattr(y, "columns", [f"label_{n}" for n in range(labels.shape[1])]))
    return tuple(_new_name(name, columns, "label") for name in map(str, names))


def _new_name(name: str, columns: Iterable[Any], kind: str) -> str:
    """`name`, or if one of the other `columns` has it, "label of" or "weight of" it."""
    return f"{kind} of {name}" if name in map(str, columns) else name
