"""Columns of delimited text as features: numbers, categories, and the words of a text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc
import scipy.sparse
from numpy.typing import NDArray

from dadagrad.data.blocks import Block, row_pointers
from dadagrad.data.ingest.delimited import (
    Layout,
    end_of_rows,
    read_cells,
    read_labels,
    shown,
    to_numbers,
)
from dadagrad.data.ingest.options import OnError, Options
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


def parse_table(
    chunk: bytes, *, path: str, offset: int, table: Table, on_error: OnError = "raise"
) -> Block:
    """Parse whole rows of a table. Zeros and empty cells are not stored.

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
            continue
        with np.errstate(over="ignore"):
            values[:, number] = to_numbers(trimmed)[0]
        hashed = table.hash_bits is not None
        ids[:, number] = _hash([names[column]], table.hash_bits)[0] if hashed else number
    wrong = ~np.isfinite(values) & ~empty

    def describe(row: int) -> str:
        column = table.features[int(wrong[row].argmax())]
        return (
            f"column {shown(names[column])} holds {shown(cells.columns[column][row].as_py())}; the "
            "first rows have numbers there, so every cell must be a finite number or empty"
        )

    is_wrong = np.asarray(wrong.any(axis=1))
    cells.refuse(is_wrong, describe)
    labelled, labels = read_labels(cells.keep(~is_wrong), table.label)
    rows = np.isin(cells.positions, labelled.positions)
    values, ids, present = values[rows], ids[rows], (~empty & (values != 0))[rows]
    content = values[present], ids[present], row_pointers(present.sum(axis=1))
    shape = (len(values), 2**table.hash_bits if table.hash_bits else len(table.features))
    matrix = scipy.sparse.csr_array(content, shape=shape)
    # Hashed ids come in any order, and two of a row may be the same: their values add up.
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    feature_names = {}
    if table.layout.header is not None and table.hash_bits is None:
        feature_names = {n: names[column] for n, column in enumerate(table.features)}
    return _as_block(matrix, labels, labelled.skipped, feature_names)


def parse_text(
    chunk: bytes,
    *,
    path: str,
    offset: int,
    options: Options,
    layout: Layout,
    label: int | None,
    text: int,
) -> Block:
    """Parse whole rows of labels and texts, hashed exactly as HashingVectorizer does.

    Features are the runs of 1 to ``options.ngrams`` words of two letters or more, in lower case;
    the id of a feature is its hash modulo ``2**hash_bits``. `label` and `text` are positions of
    columns, from 0; a `label` of None means that there are no labels.
    """
    from sklearn.feature_extraction.text import HashingVectorizer  # loads slowly

    cells = read_cells(chunk, layout, path=path, offset=offset, on_error=options.on_error)
    cells, labels = read_labels(cells, label)
    vectorizer = HashingVectorizer(
        ngram_range=(1, options.ngrams),
        n_features=2 ** (options.hashed_bits or 0),
        binary=options.binary,
        alternate_sign=options.alternate_sign,
        norm=None,
        dtype=np.float32,
    )
    texts = cells.columns[text].to_pylist()
    matrix = (
        vectorizer.transform(texts) if texts else scipy.sparse.csr_array((0, 1), dtype=np.float32)
    )
    matrix.eliminate_zeros()
    return _as_block(matrix, labels, cells.skipped)


def _as_block(
    matrix: Any, labels: NDArray[Any], skipped: int, names: dict[int, str] | None = None
) -> Block:
    """A CSR matrix with labels as a block."""
    indptr, ids = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
    return Block(indptr, ids, matrix.data, labels, skipped=skipped, names=names or {})


def _category_ids(cells: Any, name: str, hash_bits: int | None) -> NDArray[np.int64]:
    coded = cells.dictionary_encode()
    hashed = _hash([f"{name}={category}" for category in coded.dictionary.to_pylist()], hash_bits)
    ids: NDArray[np.int64] = hashed[coded.indices.to_numpy()]
    return ids


def _hash(texts: list[str], hash_bits: int | None) -> NDArray[np.int64]:
    from sklearn.feature_extraction import FeatureHasher  # loads slowly

    if not texts:
        return np.zeros(0, np.int64)
    hasher = FeatureHasher(2 ** (hash_bits or 0), input_type="string", alternate_sign=False)
    hashed: NDArray[np.int64] = hasher.transform([[text] for text in texts]).indices
    return hashed.astype(np.int64)
