"""Pairs (X, y): tables whose labels are beside them become tables with columns of labels."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dadagrad.data.arrays import check_complete
from dadagrad.data.dask_blocks import BlockedMatrix
from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import check_length
from dadagrad.data.tables.cells import column_of_labels
from dadagrad.data.tables.formats import to_table

_NAME = "the table"


def is_pair(data: Any) -> bool:
    """True for a pair (X, y) of rows and their labels."""
    is_tuple = isinstance(data, tuple) and len(data) == 2
    return is_tuple and not isinstance(data[0], str | os.PathLike | Dataset | tuple)


def labelled_table(X: Any, y: Any) -> tuple[pa.Table, tuple[str, ...]]:
    """A table in memory with the labels `y` as more columns, and their names."""
    check_complete(y, f"{_NAME}: y")
    table, labels = to_table(X, _NAME), np.asarray(y)
    names = _names_of_labels(y, labels, table.column_names)
    for name, column in _columns(labels, names, table.num_rows, _NAME).items():
        table = table.append_column(name, column_of_labels(column))
    return table, names


def labelled_blocks(X: Any, y: Any) -> tuple[list[Any], tuple[str, ...]]:
    """The blocks of a dask data frame with the labels `y` of its rows, and the names of these."""
    from dask.delayed import delayed

    frames = BlockedMatrix(X)
    labels = frames.gather(y, "y")
    names = _names_of_labels(y, labels, X.columns)
    add = delayed(_add_labels)
    blocks = enumerate(zip(frames.blocks, frames.split(labels), strict=True))
    return [add(*block, names, f"block {n}") for n, block in blocks], names


def _add_labels(frame: Any, labels: NDArray[Any], names: tuple[str, ...], block: str) -> Any:
    return frame.assign(**_columns(labels, names, len(frame), block))


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
    others = set(map(str, columns))
    return tuple(f"label of {name}" if name in others else name for name in map(str, names))
