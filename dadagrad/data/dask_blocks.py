"""Dask arrays and data frames as matrices: a block of rows is computed when it is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.rows import check_length
from dadagrad.errors import InputError


def is_dask(data: object) -> bool:
    """Return True if `data` is a dask collection, without an import of dask."""
    return hasattr(data, "__dask_graph__")


def is_dask_frame(data: object) -> bool:
    """Return True for a dask data frame; of a Delayed, any attribute is another one."""
    n_dimensions = getattr(data, "ndim", None)
    is_table = isinstance(n_dimensions, int) and n_dimensions == 2
    return is_dask(data) and hasattr(data, "columns") and is_table


class BlockedMatrix:
    """Blocks of rows of a dask array or data frame, whose numbers of rows may be unknown."""

    def __init__(self, X: Any) -> None:
        n_dimensions = getattr(X, "ndim", None)  # of a Delayed, any attribute is another one
        if not hasattr(X, "to_delayed") or not isinstance(n_dimensions, int) or n_dimensions != 2:
            raise InputError(
                f"X is a dask {type(X).__name__}; it must be a dask array or data frame of two "
                "dimensions, rows and features (dask.dataframe.from_delayed makes one of parts)"
            )
        self.n_features = int(X.shape[1])
        self.meta = X._meta if hasattr(X, "columns") else np.empty((0, self.n_features))
        self.blocks = _blocks(X)
        self._rows = _known_rows(X)

    def gather(self, column: Any, name: str) -> Any:
        """Compute `column`, which has an item for each row, as one array; None stays."""
        if column is None:
            return None
        if is_dask(column):
            from dask.base import compute

            rows = _known_rows(column)
            if self._rows is not None and rows is not None and sum(rows) == sum(self._rows):
                column = column.rechunk({0: self._rows})
            blocks = _blocks(column)
            if len(blocks) != len(self.blocks):
                raise InputError(
                    f"{name} has {len(blocks)} blocks and X {len(self.blocks)}; give both the "
                    "same partitions"
                )
            pieces = compute(*blocks)  # together, so that shared tasks are computed once
            self._rows = self._rows or tuple(len(piece) for piece in pieces)
            column = np.concatenate(pieces)
        gathered = np.asarray(column)
        check_length(gathered, sum(self.rows), name, "the dask collection", flat=False)
        return gathered

    def split(self, column: NDArray[Any] | None) -> list[Any]:
        """Cut a gathered column at the ends of the blocks; without one, give None for each."""
        if column is None:
            return [None] * len(self.blocks)
        return np.split(column, np.cumsum(self.rows)[:-1])

    def computed(self) -> Iterator[Any]:
        """Yield the blocks as arrays or sparse matrices, computed one at a time."""
        for number, block in enumerate(self.blocks):
            yield as_matrix(block.compute(), f"the dask collection, block {number}")

    @property
    def rows(self) -> tuple[int, ...]:
        """Number of rows of each block; computed if no column has shown it."""
        if self._rows is None:
            from dask.base import compute
            from dask.delayed import delayed

            self._rows = tuple(compute(*(delayed(len)(block) for block in self.blocks)))
        return self._rows


def _known_rows(collection: Any) -> tuple[int, ...] | None:
    """Return the number of rows of each block, if it is known without computing them."""
    chunks = getattr(collection, "chunks", None)
    return None if chunks is None or np.isnan(chunks[0]).any() else tuple(chunks[0])


def _blocks(collection: Any) -> list[Any]:
    """Return the blocks of rows, each of all columns."""
    if hasattr(collection, "chunks") and collection.ndim == 2:
        collection = collection.rechunk({1: -1})
    return np.ravel(np.array(collection.to_delayed(), object)).tolist()


def as_matrix(block: Any, place: str) -> Any:
    """Return a computed block as an array or sparse matrix."""
    if not hasattr(block, "to_numpy"):
        return block
    matrix = block.to_numpy()
    if matrix.dtype != object:
        return matrix
    try:  # booleans or nullable integers beside other numbers
        return matrix.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{place}: X has a column of other things than numbers ({error}); give numbers, or "
            "train on the data frame with dadagrad.train((X, y))"
        ) from None
