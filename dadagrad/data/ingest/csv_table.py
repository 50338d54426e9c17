"""CSV tables: columns of numbers as features, and, hashed, columns of categories."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc
import scipy.sparse
from numpy.typing import NDArray

from dadagrad.data.blocks import Block
from dadagrad.data.ingest.delimited import (
    Layout,
    end_of_rows,
    read_cells,
    read_labels,
    shown,
    to_numbers,
)
from dadagrad.data.ingest.options import OnError
from dadagrad.errors import InputError


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of a CSV file as features.

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
        """Positions of the columns that are features."""
        return [column for column in range(self.layout.width) if column != self.label]

    def feature_names(self) -> dict[int, str]:
        """Names of the features, if the file has names and features are not hashed."""
        if self.layout.header is None or self.hash_bits is not None:
            return {}
        header = self.layout.header
        return {number: header[column] for number, column in enumerate(self.features)}


def read_table(
    path: str, layout: Layout, head: bytes, label: int | None, hash_bits: int | None
) -> Table:
    """Find the columns of categories in the first rows, `head`, of a file.

    Raises `InputError` for one if features are not hashed.
    """
    if layout.width == 1 and label is not None:
        raise InputError(
            f"{path}: the first row has one column, {shown(layout.names()[0])}; needed are a label "
            "and at least one feature, with commas or tabs between (see --delimiter)"
        )
    if layout.delimiter == ",":
        head = head[: end_of_rows(head) or len(head)]
    cells = read_cells(head, layout, path=path, offset=0, on_error="skip")
    table = Table(layout, label, hash_bits=hash_bits)
    categorical = []
    for column in table.features:
        _, is_text = to_numbers(pc.utf8_trim_whitespace(cells.columns[column]))
        if not is_text.any():
            continue
        if hash_bits is None:
            row = int(is_text.argmax())
            raise cells.error(
                int(cells.positions[row]),
                f"column {shown(layout.names()[column])} holds "
                f"{shown(cells.columns[column][row].as_py())}, which is not a number; give "
                "--hash-bits to hash each category as a feature, or choose --format text if the "
                "column is text",
            )
        categorical.append(column)
    return replace(table, categorical=tuple(categorical))


def parse(
    chunk: bytes, *, path: str, offset: int, table: Table, on_error: OnError = "raise"
) -> Block:
    """Parse whole rows of a CSV file. Zeros and empty cells are not stored.

    A cell that is not a finite number in a column of numbers raises `InputError`, or its row is
    skipped.
    """
    cells = read_cells(chunk, table.layout, path=path, offset=offset, on_error=on_error)
    names = table.layout.names()
    shape = (len(cells.positions), len(table.features))
    values, ids = np.empty(shape, np.float32), np.empty(shape, np.int64)
    empty = np.empty(shape, bool)
    for number, column in enumerate(table.features):
        trimmed = pc.utf8_trim_whitespace(cells.columns[column])
        empty[:, number] = pc.equal(trimmed, "").to_numpy(zero_copy_only=False)
        if column in table.categorical:
            ids[:, number] = _category_ids(trimmed, names[column], table.hash_bits)
            values[:, number] = 1
        else:
            with np.errstate(over="ignore"):
                values[:, number] = to_numbers(trimmed)[0]
            ids[:, number] = (
                number if table.hash_bits is None else _hash([names[column]], table.hash_bits)[0]
            )
    wrong = ~np.isfinite(values) & ~empty

    def describe(row: int) -> str:
        column = table.features[int(wrong[row].argmax())]
        return (
            f"column {shown(names[column])} holds {shown(cells.columns[column][row].as_py())}; the "
            "first rows have numbers there, so every cell must be a finite number or empty"
        )

    is_wrong = np.asarray(wrong.any(axis=1))
    cells.refuse(is_wrong, describe)
    right = cells.keep(~is_wrong)
    labelled, labels = read_labels(right, table.label)
    rows = np.isin(cells.positions, labelled.positions)
    values, ids, empty = values[rows], ids[rows], empty[rows]
    present = ~empty & (values != 0)
    indptr = np.zeros(len(values) + 1, np.int64)
    np.cumsum(present.sum(axis=1), out=indptr[1:])
    shape = (len(values), 2**table.hash_bits if table.hash_bits else len(table.features))
    matrix = scipy.sparse.csr_array((values[present], ids[present], indptr), shape=shape)
    if table.hash_bits is not None:
        # Hashed ids come in any order, and two of a row may be the same: their values add up.
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    return Block(
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int64),
        matrix.data,
        labels,
        skipped=labelled.skipped,
        names=table.feature_names(),
    )


def _category_ids(cells: Any, name: str, hash_bits: int | None) -> NDArray[np.int64]:
    coded = cells.dictionary_encode()
    hashed = _hash([f"{name}={category}" for category in coded.dictionary.to_pylist()], hash_bits)
    ids: NDArray[np.int64] = hashed[coded.indices.to_numpy()]
    return ids


def _hash(texts: list[str], hash_bits: int | None) -> NDArray[np.int64]:
    from sklearn.feature_extraction import FeatureHasher

    if not texts:
        return np.zeros(0, np.int64)
    hasher = FeatureHasher(2 ** (hash_bits or 0), input_type="string", alternate_sign=False)
    hashed: NDArray[np.int64] = hasher.transform([[text] for text in texts]).indices
    return hashed.astype(np.int64)
