"""Dask arrays and data frames as datasets: a block is a partition, computed when it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.arrays import as_labels, block_from_arrays, finish_rows
from dadagrad.data.blocks import take
from dadagrad.data.dataset import Dataset, LabelColumn, Partition, Schema
from dadagrad.data.labels import LabelCollector
from dadagrad.data.rows import Rows
from dadagrad.errors import InputError


def is_dask(data: object) -> bool:
    """Return True if `data` is a dask collection, without an import of dask."""
    return hasattr(data, "__dask_graph__")


class BlockedMatrix:
    """Blocks of rows of a dask array or data frame, whose numbers of rows may be unknown."""

    def __init__(self, X: Any) -> None:
        if not hasattr(X, "to_delayed") or getattr(X, "ndim", 0) != 2:
            raise InputError(
                f"X is a dask {type(X).__name__} of {getattr(X, 'ndim', 'no')} dimensions; it "
                "must be a dask array or data frame of two, rows and features"
            )
        self.n_features = int(X.shape[1])
        self.meta = X._meta if hasattr(X, "columns") else np.empty((0, self.n_features))
        self.blocks = _blocks(X)
        self._rows = _known_rows(X)

    def gather(self, column: Any, name: str) -> NDArray[Any]:
        """Compute `column`, which has an item for each row, as one array."""
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
        gathered: NDArray[Any] = np.asarray(column)
        if len(gathered) != sum(self.rows):
            raise InputError(
                f"{name} has {len(gathered)} items and X {sum(self.rows)} rows; there must be one "
                "for each"
            )
        return gathered

    def computed(self) -> Iterator[Any]:
        """Yield the blocks as arrays or sparse matrices, computed one at a time."""
        for number, block in enumerate(self.blocks):
            yield as_matrix(block.compute(), f"{DaskDataset.url}, block {number}")

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
    blocks: list[Any] = np.ravel(np.array(collection.to_delayed(), object)).tolist()
    return blocks


class DaskDataset(Dataset):
    """A dask collection whose blocks are computed one at a time, when they are read.

    `kept` is true for each row that is kept; `labels`, (n_kept, n_label_columns), and `weights` are
    theirs. `shuffle` is the seed of the order of rows inside each block; None keeps their order.
    """

    url = "the dask collection"
    is_temporary = True

    def __init__(
        self,
        matrix: BlockedMatrix,
        is_learned: NDArray[np.bool_],
        labels: NDArray[np.float64],
        weights: NDArray[Any] | None,
        columns: tuple[LabelColumn, ...],
        shuffle: int | None,
    ) -> None:
        self.schema = Schema(matrix.n_features, columns, weights is not None)
        self._blocks = matrix.blocks
        self._kept = np.split(is_learned, np.cumsum(matrix.rows)[:-1])
        bounds = np.cumsum([np.count_nonzero(part) for part in self._kept])[:-1]
        self._labels = np.split(labels, bounds)
        self._weights = None if weights is None else np.split(weights, bounds)
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
        X = as_matrix(self._blocks[partition].compute(), place)
        is_learned = self._kept[partition]
        if X.shape != (len(is_learned), self.schema.n_features):
            raise InputError(
                f"{place}: X has shape {X.shape}; with as many rows as y and the columns of the "
                f"whole it would be {(len(is_learned), self.schema.n_features)}"
            )
        # All rows are checked, so that an error counts rows as the user does.
        block = block_from_arrays(X, np.zeros(len(is_learned)), None, place)
        if not is_learned.all():
            block = take(block, np.flatnonzero(is_learned))
        weights = None if self._weights is None else self._weights[partition].astype(np.float32)
        block = replace(block, labels=self._labels[partition], weights=weights)
        if self._shuffle is not None:
            order = np.random.default_rng([self._shuffle, partition]).permutation(block.n_rows)
            block = take(block, order)
        return finish_rows(block, np.asarray(block.labels))


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


def dataset_from_dask(X: Any, y: Any, shuffle: int | None = None) -> DaskDataset:
    """Return a dask array or data frame X and its labels as a dataset.

    The labels are computed at once, as arrays in `dataset_from_arrays` are given; None is none.
    """
    matrix = BlockedMatrix(X)
    labels = np.zeros((sum(matrix.rows), 0)) if y is None else matrix.gather(y, "y")
    n_rows = len(labels)
    collector = LabelCollector()
    encoded = collector.encode(as_labels(labels, n_rows, DaskDataset.url))
    table = collector.settle()
    is_learned = np.ones(n_rows, np.bool_)
    return DaskDataset(matrix, is_learned, table.decode(encoded), None, table.columns, shuffle)
