"""Dask arrays and data frames as datasets: a block is a partition, computed when it is read."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.arrays import block_from_arrays, finish_rows
from dadagrad.data.blocks import take
from dadagrad.data.dataset import Dataset, LabelColumn, Partition, Schema
from dadagrad.data.rows import Rows
from dadagrad.errors import InputError


def is_dask(data: object) -> bool:
    """Return True if `data` is a dask collection, without an import of dask."""
    return hasattr(data, "__dask_graph__")


class BlockedMatrix:
    """Blocks of rows of a dask array or data frame.

    Parameters
    ----------
    X : (n_rows, n_features) dask array or data frame
        The number of rows of its blocks may be unknown.

    Raises
    ------
    InputError
        If X is neither, or does not have two dimensions.
    """

    def __init__(self, X: Any) -> None:
        if not hasattr(X, "to_delayed") or getattr(X, "ndim", 0) != 2:
            raise InputError(
                f"X is a dask {type(X).__name__} of {getattr(X, 'ndim', 'no')} dimensions; it "
                "must be a dask array or data frame of two, rows and features"
            )
        self.n_features = int(X.shape[1])
        self.is_frame = hasattr(X, "columns")
        if not self.is_frame and X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
        self.meta = X._meta if self.is_frame else np.empty((0, self.n_features))
        self.blocks: list[Any] = np.ravel(np.array(X.to_delayed(), object)).tolist()
        self._chunks = None if self.is_frame else X.chunks[0]

    @property
    def known_rows(self) -> tuple[int, ...] | None:
        """Rows of each block; None if they are not known without computing the blocks."""
        if self._chunks is None or np.isnan(self._chunks).any():
            return None
        return tuple(self._chunks)

    def split(self, column: Any, name: str) -> list[NDArray[Any]]:
        """Split `column`, which has an item for each row, into the blocks.

        A dask column is computed as a whole.
        """
        if is_dask(column):
            return self._compute(column, name)
        rows = self.known_rows
        if rows is None:
            from dask.delayed import delayed

            rows = _compute_all([delayed(_n_rows)(block) for block in self.blocks])
        column = np.asarray(column)
        if len(column) != sum(rows):
            raise InputError(
                f"{name} has {len(column)} items and X {sum(rows)} rows; there must be one for each"
            )
        return np.split(column, np.cumsum(rows)[:-1])

    def _compute(self, column: Any, name: str) -> list[NDArray[Any]]:
        chunks = getattr(column, "chunks", None)
        if chunks is not None:
            if column.ndim == 2 and column.numblocks[1] > 1:
                column = column.rechunk({1: -1})
            rows = self.known_rows
            if rows is not None and not np.isnan(chunks[0]).any() and sum(rows) == sum(chunks[0]):
                column = column.rechunk({0: rows})
        blocks = np.ravel(np.array(column.to_delayed(), object)).tolist()
        if len(blocks) != len(self.blocks):
            raise InputError(
                f"{name} has {len(blocks)} blocks and X {len(self.blocks)}; give both the same "
                "partitions"
            )
        return [np.asarray(block) for block in _compute_all(blocks)]


class DaskDataset(Dataset):
    """A dask collection whose blocks are computed one at a time, when they are read.

    Parameters
    ----------
    matrix : BlockedMatrix
    bounds : (n_blocks - 1,)
        The first row of each block but the first.
    kept : (n_rows,) bool
        True for each row that is kept.
    labels : (n_kept, n_label_columns) float64
    weights : (n_kept,), or None
    columns : tuple of LabelColumn
    shuffle : int or None
        Seed of the order of rows inside each block; None keeps theirs.
    """

    url = "the dask collection"

    def __init__(
        self,
        matrix: BlockedMatrix,
        bounds: NDArray[np.int64],
        kept: NDArray[np.bool_],
        labels: NDArray[np.float64],
        weights: NDArray[Any] | None,
        columns: tuple[LabelColumn, ...],
        shuffle: int | None,
    ) -> None:
        self.schema = Schema(matrix.n_features, columns, weights is not None)
        self._blocks = matrix.blocks
        self._kept = np.split(kept, bounds)
        kept_bounds = np.cumsum([np.count_nonzero(part) for part in self._kept])[:-1]
        self._labels = np.split(labels, kept_bounds)
        self._weights = None if weights is None else np.split(weights, kept_bounds)
        self._shuffle = shuffle
        # The content of a block is not known before it is computed: its key stands for it.
        self.partitions = tuple(
            Partition(f"block {number}", len(part), 0, 0, self._checksum(number))
            for number, part in enumerate(self._labels)
        )

    def _checksum(self, number: int) -> str:
        digest = hashlib.sha256(f"{self._blocks[number].key}, {self._shuffle}".encode())
        digest.update(self._labels[number].tobytes())
        if self._weights is not None:
            digest.update(self._weights[number].tobytes())
        return digest.hexdigest()

    def read(self, partition: int) -> Rows:
        place = f"{self.url}, block {partition}"
        X = as_matrix(self._blocks[partition].compute())
        kept = self._kept[partition]
        if X.shape != (len(kept), self.schema.n_features):
            raise InputError(
                f"{place}: X has shape {X.shape}; with as many rows as y and the columns of the "
                f"whole it would be {(len(kept), self.schema.n_features)}"
            )
        # All rows are checked, so that an error counts rows as the user does.
        block = block_from_arrays(X, np.zeros(len(kept)), None, place)
        weights = None if self._weights is None else self._weights[partition].astype(np.float32)
        labels = self._labels[partition]
        if not kept.all():
            block = take(block, np.flatnonzero(kept))
        block = replace(block, labels=labels, weights=weights)
        if self._shuffle is not None:
            order = np.random.default_rng([self._shuffle, partition]).permutation(block.n_rows)
            block = take(block, order)
        return finish_rows(block, np.asarray(block.labels))


def as_matrix(block: Any) -> Any:
    """Return a computed block as an array or sparse matrix."""
    return block.to_numpy() if hasattr(block, "to_numpy") else block


def _compute_all(blocks: list[Any]) -> tuple[Any, ...]:
    """Compute blocks together, so that shared tasks are computed once."""
    from dask.base import compute

    return tuple(compute(*blocks))


def _n_rows(block: Any) -> int:
    return int(block.shape[0])
