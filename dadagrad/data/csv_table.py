"""CSV tables: columns of numbers as features, and, hashed, columns of categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.blocks import Block
from dadagrad.data.delimited import Layout, OnError, Problems, iter_rows, parse_rows, shown
from dadagrad.data.text import read_labels
from dadagrad.errors import InputError


@dataclass(frozen=True, slots=True)
class Table:
    """What the columns of a CSV file are.

    Without `hash_bits`, feature k is the k-th column that is not the label, and its name is that
    of the column. With it, a number's feature is the hashed name of its column, and a category's
    the hashed ``column=category`` with value 1, as scikit-learn's FeatureHasher does (with
    ``alternate_sign=False``).
    """

    layout: Layout
    label: int | None
    categorical: tuple[int, ...] = ()
    hash_bits: int | None = None

    @property
    def features(self) -> list[int]:
        """The positions of the columns that are features."""
        return [column for column in range(self.layout.width) if column != self.label]

    def feature_names(self) -> dict[int, str]:
        """The names of the features, where the file has names and features are not hashed."""
        if self.layout.header is None or self.hash_bits is not None:
            return {}
        header = self.layout.header
        return {number: header[column] for number, column in enumerate(self.features)}


def has_header(layout: Layout, head: str) -> bool:
    """Whether the first row of a table names its columns: none of its fields is a number."""
    first = next(fields for _, fields in iter_rows(head, layout.delimiter) if fields)
    return not any(_is_number(field) for field in first)


def read_table(
    path: str, layout: Layout, head: str, label: int | None, hash_bits: int | None
) -> Table:
    """Find the columns of categories in the first rows, `head`, of a file.

    Raises `InputError` naming the column if there is one and features are not hashed.
    """
    rows = [(line, fields) for line, fields in iter_rows(head, layout.delimiter) if fields]
    if layout.header is not None:
        rows = rows[1:]
    if layout.width == 1 and label is not None:
        raise InputError(
            f"{path}: the first row has one column, {shown(layout.names()[0])}; needed are a label "
            "and at least one feature, with commas or tabs between (see --delimiter)"
        )
    categorical = []
    for column, name in enumerate(layout.names()):
        cells = [(line, fields[column]) for line, fields in rows if len(fields) == layout.width]
        texts = ((line, cell) for line, cell in cells if cell.strip() and not _is_number(cell))
        line, text = next(texts, (0, None))
        if text is None or column == label:
            continue
        if hash_bits is None:
            raise InputError(
                f"{path}, line {line + 1}: column {shown(name)} holds {shown(text)}, which is not "
                "a number; give --hash-bits to hash each category as a feature, or choose --format "
                "text if the column is text"
            )
        categorical.append(column)
    return Table(layout, label, tuple(categorical), hash_bits)


def parse(
    chunk: bytes, *, path: str, offset: int, table: Table, on_error: OnError = "raise"
) -> Block:
    """Parse whole rows of a CSV file.

    Zeros and empty cells are no entries. Raises `InputError` naming line and column of a cell
    that is not a finite number in a column of numbers; with ``on_error="skip"`` such rows are left
    out and counted.
    """
    problems = Problems(chunk, path, offset, on_error)
    rows, lines, skipped = parse_rows(problems, table.layout)
    kept, _, unlabelled = read_labels(problems, rows, lines, table.label)
    rows, lines = [rows[row] for row in kept], [lines[row] for row in kept]
    cells = np.empty((len(rows), len(table.features)))
    ids = np.empty(cells.shape, np.int64)
    columns = list(zip(*rows, strict=True)) or [()] * table.layout.width
    names = table.layout.names()
    for number, column in enumerate(table.features):
        if column in table.categorical:
            cells[:, number], ids[:, number] = _categories(table, names[column], columns[column])
        else:
            cells[:, number] = _numbers(columns[column])
            ids[:, number] = _column_id(table, number, names[column])
    # An empty cell is NaN by now; every other value must be a finite float32.
    with np.errstate(over="ignore"):
        values: NDArray[np.float32] = cells.astype(np.float32)
    empty = np.array([[not fields[c].strip() for c in table.features] for fields in rows], bool)
    empty = empty.reshape(values.shape)
    wrong = ~np.isfinite(values) & ~empty
    if wrong.any():
        if on_error == "raise":
            row, number = (int(index) for index in np.argwhere(wrong)[0])
            column = table.features[number]
            raise problems.at(
                lines[row],
                f"column {shown(names[column])} holds {shown(rows[row][column])}; the first rows "
                "have numbers there, so every cell must be a finite number or empty",
            )
        good = ~wrong.any(axis=1)
        skipped += int((~good).sum())
        values, ids, empty = values[good], ids[good], empty[good]
        rows = [fields for fields, keep in zip(rows, good, strict=True) if keep]
        lines = [line for line, keep in zip(lines, good, strict=True) if keep]
    _, labels, _ = read_labels(problems, rows, lines, table.label)
    return _block(values, ids, ~empty & (values != 0), labels, skipped + unlabelled, table)


def _block(
    values: NDArray[np.float32],
    ids: NDArray[np.int64],
    present: NDArray[np.bool_],
    labels: NDArray[Any],
    skipped: int,
    table: Table,
) -> Block:
    indptr = np.zeros(len(values) + 1, np.int64)
    np.cumsum(present.sum(axis=1), out=indptr[1:])
    entry_ids, entries = ids[present], values[present]
    if table.hash_bits is not None:
        import scipy.sparse

        # Hashed ids come in any order, and two of a row may be the same: their values add up.
        shape = (len(values), 2**table.hash_bits)
        matrix = scipy.sparse.csr_array((entries, entry_ids, indptr), shape=shape)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        indptr, entry_ids = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
        entries = matrix.data
    return Block(indptr, entry_ids, entries, labels, skipped=skipped, names=table.feature_names())


def _column_id(table: Table, number: int, name: str) -> int:
    return number if table.hash_bits is None else int(_hash([name], table.hash_bits)[0])


def _categories(
    table: Table, name: str, cells: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Value and id of each cell of a column of categories; an empty cell has value NaN."""
    assert table.hash_bits is not None
    position: dict[str, int] = {}
    codes = np.fromiter(
        (position.setdefault(cell.strip(), len(position)) for cell in cells), np.int64, len(cells)
    )
    hashed = _hash([f"{name}={category}" for category in position], table.hash_bits)
    weight = np.array([1.0 if category else np.nan for category in position])
    return weight[codes], hashed[codes]


def _hash(texts: list[str], hash_bits: int) -> NDArray[np.int64]:
    from sklearn.feature_extraction import FeatureHasher

    if not texts:
        return np.zeros(0, np.int64)
    hasher = FeatureHasher(2**hash_bits, input_type="string", alternate_sign=False)
    hashed: NDArray[np.int64] = hasher.transform([[text] for text in texts]).indices
    return hashed.astype(np.int64)


def _numbers(cells: Sequence[str]) -> NDArray[np.float64]:
    """Cells as numbers, NaN for an empty cell and for one that is not a number."""
    try:
        return np.array(list(map(float, cells)), np.float64)
    except ValueError:
        return np.array([float(c) if _is_number(c) else np.nan for c in cells], np.float64)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell
