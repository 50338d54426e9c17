"""Rows of one partition, stored sparsely over the partition's own vocabulary.

The vocabulary makes training fast: a partition with 2 million non-zeros out of 2 million
features touches perhaps 200,000 of them. Weights, gradients and kernels all work on compact
arrays aligned with it, and only its ids ever map to the global feature space.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Entries = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Feature ids of one row, which may repeat, and their values."""

FEW_ROWS = 64
"""Rows that show at little cost that values do not repeat within rows."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in compressed sparse row form.

    Attributes
    ----------
    vocabulary : (n_local,) int64
        The global feature ids that occur, strictly increasing.
    indptr : (n_rows + 1,) int64
        Row r owns the entries ``indptr[r]:indptr[r + 1]``.
    indices : (nnz,) int32
        Positions in `vocabulary`, strictly increasing within a row.
    values : (nnz,) float32 or None
        None means that every entry is 1.
    labels : (n_rows, n_label_columns) float64
        Class values, or targets of a regression.
    weights : (n_rows,) float32 or None
        None means that every row weighs 1.
    row_scale : (n_rows,) float32 or None
        Each entry of row r is ``values * row_scale[r]``: normalised binary rows need no values.
    queries : (n_rows,) int64 or None
        The query that a row belongs to, for rankings. Neighbours with the same number are one.
    """

    vocabulary: NDArray[np.int64]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32] | None
    labels: NDArray[np.float64]
    weights: NDArray[np.float32] | None = None
    row_scale: NDArray[np.float32] | None = None
    queries: NDArray[np.int64] | None = None

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def n_local(self) -> int:
        """Number of distinct features that occur."""
        return len(self.vocabulary)

    @property
    def nnz(self) -> int:
        return int(self.indptr[-1] - self.indptr[0])

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        arrays = (getattr(self, column.name) for column in fields(self))
        return sum(array.nbytes for array in arrays if array is not None)

    @classmethod
    def from_csr(
        cls,
        indptr: NDArray[np.int64],
        ids: NDArray[np.int64],
        values: NDArray[np.float32] | None,
        labels: NDArray[np.float64],
        weights: NDArray[np.float32] | None = None,
        row_scale: NDArray[np.float32] | None = None,
        queries: NDArray[np.int64] | None = None,
    ) -> Rows:
        """Build rows from global feature `ids` ((nnz,) int64), finding the vocabulary."""
        from dadagrad.kernels.id_sets import distinct_ids  # needs numba, which loads slowly

        vocabulary, indices = distinct_ids(ids)
        indptr = np.asarray(indptr, np.int64)
        return cls(vocabulary, indptr, indices, values, labels, weights, row_scale, queries)

    def to_csr(self, n_features: int) -> csr_array:
        """The values as a float32 matrix of SciPy, (n_rows, n_features), by global features."""
        from scipy.sparse import csr_array

        entries = self._scaled_values(), self.vocabulary[self.indices], self.indptr
        return csr_array(entries, shape=(self.n_rows, n_features))

    def _scaled_values(self) -> NDArray[np.float32]:
        """The value of each entry, (nnz,), with the scale of its row."""
        values = np.ones(self.nnz, np.float32) if self.values is None else self.values
        if self.row_scale is not None:
            values = values * np.repeat(self.row_scale, np.diff(self.indptr))
        return values

    def slice(self, start: int, stop: int) -> Rows:
        """Rows ``start:stop`` over the same vocabulary; only the row pointers are copied."""
        entries = slice(self.indptr[start], self.indptr[stop])
        optional: tuple[Any, ...] = self.weights, self.row_scale, self.queries
        return Rows(
            self.vocabulary,
            self.indptr[start : stop + 1] - self.indptr[start],
            self.indices[entries],
            None if self.values is None else self.values[entries],
            self.labels[start:stop],
            *(None if column is None else column[start:stop] for column in optional),
        )

    def factor_values(self) -> Rows:
        """The same entries without `values`, if each row repeats one, which becomes its scale.

        It is usually 1 over the length of a row that is a set of words.
        """
        if self.values is None or self.row_scale is not None or self.nnz < 2 * self.n_rows:
            return self  # scales of so short rows would take as much memory as their values
        starts, lengths = self.indptr[:-1] - self.indptr[0], np.diff(self.indptr)
        scale = np.ones(self.n_rows, np.float32)
        scale[lengths > 0] = self.values[starts[lengths > 0]]
        for n_rows in (min(FEW_ROWS, self.n_rows), self.n_rows):
            repeated = np.repeat(scale[:n_rows], lengths[:n_rows])
            if not np.array_equal(repeated, self.values[: len(repeated)]):
                return self
        return replace(self, values=None, row_scale=scale)

    def divide_columns(self, scales: NDArray[np.float32]) -> Rows:
        """Rows whose values are divided by the (n_features,) `scales` of their columns."""
        values = np.float32(1.0) if self.values is None else self.values
        return replace(self, values=values / scales[self.vocabulary][self.indices])

    def center_columns(self, columns: NDArray[np.int64], means: NDArray[np.float32]) -> Rows:
        """Rows from which the (n_columns,) `means` of the increasing `columns` are subtracted.

        A row without an entry of a column has the value 0 there, and minus the mean after.
        """
        from dadagrad.kernels.centering import subtract_means  # needs numba, which loads slowly

        vocabulary = np.union1d(self.vocabulary, columns)
        indices = self.indices
        if len(vocabulary) > self.n_local:
            indices = np.searchsorted(vocabulary, self.vocabulary).astype(np.int32)[indices]
        centered = np.searchsorted(vocabulary, columns).astype(np.int32)
        by_position = np.zeros(len(vocabulary), np.float32)
        by_position[centered] = means
        indptr, indices, values = subtract_means(
            self.indptr, indices, self._scaled_values(), centered, by_position
        )
        return replace(
            self, vocabulary=vocabulary, indptr=indptr, indices=indices, values=values,
            row_scale=None,
        )  # fmt: skip

    def check(self, place: str) -> None:
        """Raise `InputError` naming `place`, the row and the column of the first bad entry.

        Bad are: values, labels, weights or scales that are not finite, negative weights, and
        feature positions that are not strictly increasing within their row.
        """
        if self.nnz:
            step = np.diff(self.indices.astype(np.int64))
            inside = np.ones(self.nnz - 1, bool)
            starts = self.indptr[1:-1] - self.indptr[0]
            inside[starts[(starts > 0) & (starts < self.nnz)] - 1] = False
            wrong = np.flatnonzero(inside & (step <= 0))
            if wrong.size:
                entry = int(wrong[0]) + 1
                column = self.vocabulary[self.indices[entry]]
                kind = "twice" if step[entry - 1] == 0 else "out of order"
                raise InputError(
                    f"{place}: row {row_of(self.indptr, entry)} has feature {column} {kind}; the "
                    "features of a row must be sorted and distinct"
                )
            if self.vocabulary[0] < 0:
                raise InputError(
                    f"{place}: feature id {self.vocabulary[0]} is negative; ids start at 0"
                )
        if self.values is not None and not np.isfinite(self.values).all():
            entry = int(np.isfinite(self.values).argmin())
            row, column = row_of(self.indptr, entry), self.vocabulary[self.indices[entry]]
            raise InputError(
                f"{place}: row {row}, feature {column} is {self.values[entry]}; every value must "
                "be finite"
            )
        check_column(self.labels, "label", place)
        check_column(self.weights, "weight", place)
        check_column(self.row_scale, "row scale", place)


def row_of(indptr: NDArray[np.int64], entry: int) -> int:
    """The row to which an entry belongs."""
    return int(np.searchsorted(indptr - indptr[0], entry, side="right")) - 1


def check_length(
    column: NDArray[Any], n_rows: int, name: str, place: str, *, flat: bool = True
) -> None:
    """Raise `InputError` unless a column has one item for each row, a scalar if `flat`."""
    if (column.shape if flat else column.shape[:1]) != (n_rows,):
        raise InputError(
            f"{place}: {name} has shape {column.shape} and X {n_rows} rows; {name} must have one "
            "item for each"
        )


def check_column(column: NDArray[Any] | None, name: str, place: str) -> None:
    """Raise `InputError` naming the first row whose number is not finite, or a negative weight."""
    if column is None:
        return
    valid, needed = np.isfinite(column), "finite"
    if name == "weight":
        valid, needed = valid & (column >= 0), "finite and not negative"
    if not valid.all():
        row = int(np.argwhere(~valid)[0][0])
        raise InputError(
            f"{place}: row {row} has {name} {column[~valid][0]}; every {name} must be {needed}"
        )


def query_begins(queries: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first row of each query, increasing; a query is a run of equal neighbours."""
    changes = np.flatnonzero(queries[1:] != queries[:-1]) + 1
    return np.concatenate([np.zeros(min(len(queries), 1), np.int64), changes])


def split_mix(start: NDArray[Any], counters: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Random numbers of 64 bits, one for each counter (SplitMix64, Steele et al. 2014)."""
    mixed = start + counters * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    numbers: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return numbers


def finish_entries(ids: list[int], values: list[float], *, binary: bool, norm: str) -> Entries:
    """Apply the options `binary` and `norm` to one row, in which ids may repeat."""
    if binary or norm == "l2":
        sums: dict[int, float] = {}
        for feature, value in zip(ids, values, strict=True):
            sums[feature] = sums.get(feature, 0.0) + value
        ids, values = list(sums), list(sums.values())
        if binary:
            values = [float(value != 0) for value in values]
        if norm == "l2":
            length = math.sqrt(sum(value * value for value in values)) or 1.0
            values = [value / length for value in values]
    return np.array(ids, np.int64), np.array(values, np.float32)
