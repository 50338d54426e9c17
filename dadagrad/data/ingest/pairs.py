"""Pairs (X, y): tables whose labels are beside them become tables with columns of labels."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

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
    table = to_table(X, _NAME)
    names = _names_of_labels(y, table.column_names)
    for name, column in zip(names, np.atleast_2d(np.asarray(y).T), strict=True):
        check_length(column, table.num_rows, "y", _NAME)
        table = table.append_column(name, column_of_labels(column))
    return table, names


def labelled_blocks(X: Any, y: Any) -> tuple[list[Any], tuple[str, ...]]:
    """The blocks of a dask data frame with the labels `y` of its rows, and the names of these."""
    from dask.delayed import delayed

    frames, names = BlockedMatrix(X), _names_of_labels(y, X.columns)
    labels = frames.split(frames.gather(y, "y"))
    add = delayed(_add_labels)
    blocks = enumerate(zip(frames.blocks, labels, strict=True))
    return [add(*block, names, f"block {n}") for n, block in blocks], names


def _add_labels(frame: Any, labels: NDArray[Any], names: tuple[str, ...], block: str) -> Any:
    check_length(labels, len(frame), "y", block, flat=False)
    return frame.assign(**dict(zip(names, np.atleast_2d(labels.T), strict=True)))


def _names_of_labels(y: Any, columns: Any) -> tuple[str, ...]:
    """Names for the columns of the labels `y` beside other `columns`."""
    names = [getattr(y, "name", None) or "label"]
    if len(np.shape(y)) == 2:
        names = list(getattr(y, "columns", [f"label_{n}" for n in range(np.shape(y)[1])]))
    others = set(map(str, columns))
    return tuple(f"label of {name}" if name in others else name for name in map(str, names))
