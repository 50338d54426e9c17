"""Rows of a table as entries of features, before their numbers are scaled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse
from numpy.typing import NDArray

from dadagrad.data.blocks import MAX_NOTES, Block, take
from dadagrad.data.feature_space import hash_of_cross
from dadagrad.data.reading.files import count_lines
from dadagrad.data.reading.options import Delimiter, Options
from dadagrad.data.tables.batch_reader import BatchReader
from dadagrad.data.tables.cells import (
    BOOLEANS,
    WHOLE_NUMBER,
    Batch,
    suits,
    to_categories,
    to_matrix,
    to_numbers,
    to_texts,
)
from dadagrad.data.tables.columns import PLURALS, Column
from dadagrad.data.tables.dates import EXAMPLES, to_days, to_times
from dadagrad.data.tables.encoder import TableEncoder
from dadagrad.data.tables.lists import holds_numbers, other_length, to_items
from dadagrad.data.tables.row_columns import RECORDED, name_at, no_column, shown
from dadagrad.data.tables.words import hash_texts, runs_of_words
from dadagrad.errors import InputError, name_options
from dadagrad.kernels import parsing

logger = logging.getLogger(__name__)

_NO_CELL = -1


@dataclass(frozen=True, slots=True)
class TableParser:
    """Parser of rows of a table, for which the `encoder` makes features.

    In files of text, `read` makes rows of chunks, in delimited ones with this `delimiter`.
    """

    encoder: TableEncoder
    options: Options
    read: Callable[..., Batch] | None = None
    delimiter: Delimiter | None = None

    @property
    def quoted(self) -> bool:
        """True if a row can have several lines."""
        return self.delimiter not in (None, "\t")

    def numbered(self, names: Sequence[str]) -> TableParser:
        """The parser of a table with these columns, of which options may give some by number."""
        encoder = self.encoder
        rows, columns = encoder.rows.numbered(self.options, names), encoder.columns
        if encoder.is_text:
            columns = (Column(name_at(names, columns[0].name), "text"),)
        if (rows, columns) == (encoder.rows, encoder.columns):
            return self
        return replace(self, encoder=replace(encoder, rows=rows, columns=columns))

    def check_columns(self, names: Sequence[str], path: str) -> None:
        """Raise `InputError` if the columns of a file, or of its structs, lack one needed.

        Warn if they lack the weights that other rows have.
        """
        required = dict.fromkeys(self.encoder.lengths, RECORDED)
        required |= self.encoder.rows.required(self.options)
        known = set(names)
        for name, needed_by in required.items():
            if known.isdisjoint((name, name.partition(".")[0])):
                raise no_column(names, name, needed_by, path)
        weight = self.encoder.rows.weight
        if weight is not None and weight not in known and not self.options.to_predict:
            logger.warning(
                f"{path} has no column {shown(weight)}, which has the weights of other rows or of "
                f"the training data: its rows count alike ({name_options('see --weight')})"
            )

    def __call__(self, chunk: bytes, *, path: str, offset: int) -> Block:
        assert self.read is not None
        block = self.encode(self.read(chunk, path=path, offset=offset))
        return replace(block, n_lines=count_lines(chunk)) if self.options.keep_lines else block

    def encode(self, batch: Batch) -> Block:
        """Features and labels of rows; numbers are not yet scaled (see `TableEncoder.finish`).

        Raises `InputError`, naming row and column, for a wrong row, a cell of the wrong kind or a
        missing label, or leaves such rows out and counts them if `on_error` is "skip".
        """
        return _Encoding(self.encoder, self.options, batch).block()


class _Encoding:
    """The encoding of one batch: entries of cells, in columns, and texts as matrices."""

    def __init__(self, encoder: TableEncoder, options: Options, batch: Batch) -> None:
        self.encoder, self.options, self.batch = encoder, options, batch
        self.reader = BatchReader(batch, encoder.rows, options)
        self.shape = self.reader.n_rows, encoder.first_missing + len(encoder.numbers)
        self.keep_names = options.keep_names is not False and not options.to_predict
        self.ids: list[NDArray[np.int64]] = []
        self.values: list[NDArray[np.float32]] = []
        self.texts: list[Any] = []
        self.names: list[tuple[pa.Array, NDArray[np.int64]]] = []
        self.coded: dict[str, tuple[NDArray[np.int64], NDArray[np.int64], pa.Array]] = {}

    def block(self) -> Block:
        encoder, reader, n_rows = self.encoder, self.reader, self.reader.n_rows
        for columns in encoder.groups:
            if columns[0].item is not None:
                self._add_lists(columns)
            elif columns[0].kind == "number":
                cells = self._cells(columns)
                self._add_numbers(columns, cells, *to_matrix(cells))
            else:
                self._add_column(columns[0], *self._cells(columns))
        for cross in encoder.crosses:
            self._add_cross(cross)
        labels, weights, queries = reader.labels(), reader.weights(), reader.queries()
        lines = self.batch.lines or partial(np.arange, n_rows)
        indptr, ids = np.zeros(n_rows + 1, np.int64), np.zeros(0, np.int64)
        values = np.zeros(0, np.float32)
        if self.ids:
            indptr, ids, values = parsing.pack_rows(
                np.concatenate(self.ids, axis=1), np.concatenate(self.values, axis=1)
            )
        if self.texts:
            matrix = sum(self.texts, scipy.sparse.csr_array((values, ids, indptr), self.shape))
            matrix.sum_duplicates()
            indptr, ids, values = matrix.indptr, matrix.indices, matrix.data
        block = Block(
            indptr.astype(np.int64),
            ids,
            values,
            labels,
            weights,
            queries=queries,
            tags=reader.tags(),
            names=tuple(self.names),
            skipped=self.batch.skipped,
            notes=tuple(reader.notes[:MAX_NOTES]),
            lines=lines() if self.options.keep_lines else None,
            n_lines=n_rows,
        )
        if reader.kept.all():
            return block
        skipped = block.skipped + int((~reader.kept).sum())
        return replace(take(block, np.flatnonzero(reader.kept)), skipped=skipped)

    def _cells(self, columns: Sequence[Column]) -> list[pa.Array]:
        """The cells of columns; raises `InputError` if one is missing or of another kind."""
        right: set[tuple[pa.DataType, str]] = set()
        chosen = []
        for column in columns:
            cells = self.reader.column(column.name)
            kind = cells.type, column.kind
            if kind not in right and not suits(cells, column.kind):
                raise self._unsuitable(column.name, cells, PLURALS[column.kind])
            right.add(kind)
            chosen.append(cells)
        return chosen

    def _unsuitable(self, name: str, cells: pa.Array, needed: str) -> InputError:
        return InputError(
            f"{self.reader.source()}: column {shown(name)} is {cells.type}; the features are those "
            f"of {needed}, so give a column of them"
        )

    def _add(self, ids: NDArray[np.int64]) -> None:
        """Add a feature to each row, but for `_NO_CELL`."""
        self.ids.append(ids[:, None])
        self.values.append(np.ones((len(ids), 1), np.float32))

    def _add_column(self, column: Column, cells: pa.Array) -> None:
        """Add a column that is not of plain numbers."""
        prefix = f"{column.name}="
        if column.kind == "category":
            self.coded[column.name] = self._add_category(prefix, cells, missing=True)
        elif column.kind == "words":
            self._add_words(prefix, cells)
        elif column.kind == "text":
            self._add_text("" if self.encoder.is_text else prefix, to_texts(cells))
        elif column.kind == "code":
            numbers, wrong = to_numbers(cells)
            codes = pa.array(numbers, from_pandas=True)
            self.coded[column.name] = self._add_category(prefix, codes, missing=False)
            self._add_numbers([column], [cells], numbers[:, None], wrong[:, None])
        else:
            times, wrong = to_times(cells, column.date_order)
            self._add_parts_of_dates(column, times)
            self._add_numbers([column], [cells], to_days(times)[:, None], wrong[:, None])

    def _add_lists(self, columns: Sequence[Column]) -> None:
        """Add the columns of the items of a column of lists of numbers."""
        name, length = columns[0].source, len(columns)
        cells = self.reader.column(name)
        if not holds_numbers(cells):
            raise self._unsuitable(name, cells, f"lists of {length:,} numbers")
        numbers, wrong, others = to_items(cells, length)
        self.reader.refuse_rows(
            others, lambda row: other_length(shown(name), len(cells[row]), length)
        )
        self._add_numbers(columns, [cells] * length, numbers, wrong)

    def _add_numbers(
        self,
        columns: Sequence[Column],
        cells: Sequence[pa.Array],
        numbers: NDArray[np.float64],
        wrong: NDArray[np.bool_],
    ) -> None:
        """Add the (n_rows, n_columns) `numbers` of cells, or that they are missing.

        Zeros are not stored. Rows with `wrong` cells are refused.
        """
        for place in np.flatnonzero(wrong.any(axis=0)).tolist():
            self._refuse_cells(columns[place], cells[place], wrong[:, place])
        features = np.array([self.encoder.number_of[column.name] for column in columns])
        missing = np.isnan(numbers)
        numbers = numbers - np.array([column.offset for column in columns])
        ids = np.where(numbers != 0, features, _NO_CELL)
        self.ids.append(np.where(missing, self.encoder.first_missing + features, ids))
        with np.errstate(over="ignore"):
            self.values.append(np.where(missing, 1, numbers).astype(np.float32))

    def _refuse_cells(self, column: Column, cells: pa.Array, wrong: NDArray[np.bool_]) -> None:
        needed = "finite numbers"
        if column.is_date:
            needed = f"dates such as {EXAMPLES[column.date_order]}"

        def problem(row: int) -> str:
            return (
                f"column {shown(column.name)} holds {shown(str(cells[row].as_py()))}; the first "
                f"rows have {needed} there, so every cell must be one or empty (--on-error "
                "skip leaves the row out; to learn from categories, ingest with --categories)"
            )

        self.reader.refuse_rows(wrong, problem)

    def _note(self, prefix: str, texts: pa.Array, hashed: NDArray[np.int64]) -> None:
        if self.keep_names and len(texts):
            names = pc.binary_join_element_wise(prefix, texts, "")
            self.names.append((names, np.abs(hashed)))

    def _add_category(
        self, prefix: str, cells: pa.Array, *, missing: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], pa.Array]:
        """Add the feature ``prefix + category``; return codes of cells, hashes and texts.

        A missing cell is a category of its own if `missing` ones have a feature. The texts of
        booleans, which differ in files of other programs, are those of Arrow.
        """
        codes, texts = to_categories(cells)
        texts = pc.replace_substring_regex(texts, WHOLE_NUMBER, r"\1")
        hashed = hash_texts(prefix, texts)
        for written, text in BOOLEANS.items():
            same, other = hash_texts(prefix, pa.array([text, written]))
            hashed[hashed == other] = same
        features = self.encoder.features_of(hashed)
        occurs = np.bincount(codes, minlength=len(texts)) > 0
        if not missing:
            features[-1], occurs[-1] = _NO_CELL, False
        self._add(features[codes])
        self._note(prefix, texts.filter(pa.array(occurs)), hashed[occurs])
        return codes, hashed, texts

    def _add_parts_of_dates(self, column: Column, times: pa.Array) -> None:
        """Add month, day of the week and hour as categories; they repeat, unlike the time."""
        parts = {"month": pc.month(times), "weekday": pc.day_of_week(times)}
        if column.kind == "time":
            parts["hour"] = pc.hour(times)
        for part, numbers in parts.items():
            self._add_category(f"{column.name}.{part}=", numbers, missing=False)

    def _add_words(self, prefix: str, cells: pa.Array) -> None:
        """Add the feature ``prefix + word`` of each item of a list."""
        if pa.types.is_null(cells.type):
            cells = pa.nulls(len(cells), pa.list_(pa.string()))
        lengths = pc.fill_null(pc.list_value_length(cells), 0).to_numpy(zero_copy_only=False)
        codes, texts = to_categories(cells.flatten())
        hashed = hash_texts(prefix, texts)
        features = self.encoder.features_of(hashed)
        self._note(prefix, texts.slice(0, len(texts) - 1), hashed[:-1])
        rows, values = np.repeat(np.arange(len(lengths)), lengths), np.ones(len(codes), np.float32)
        self._add_matrix(features[codes], values, rows)

    def _add_matrix(
        self, ids: NDArray[np.int64], values: NDArray[np.float32], rows: NDArray[np.int64]
    ) -> None:
        """Add entries of the `rows`; those of one row and feature are summed."""
        self.texts.append(scipy.sparse.coo_array((values, (rows, ids)), self.shape).tocsr())

    def _add_text(self, prefix: str, texts: list[str]) -> None:
        """Add the runs of 1 to n words of two letters or more, in lower case."""
        encoder = self.encoder
        ids: list[NDArray[np.int64]] = []
        values: list[NDArray[np.float32]] = []
        rows: list[NDArray[np.int64]] = []
        for runs, codes, numbers in runs_of_words(texts, encoder.ngrams):
            hashed = hash_texts(prefix, runs)
            self._note(prefix, runs, hashed)
            ids.append(encoder.features_of(hashed)[codes])
            values.append(np.where(hashed < 0, -1, 1).astype(np.float32)[codes])
            rows.append(numbers)
        self._add_matrix(np.concatenate(ids), np.concatenate(values), np.concatenate(rows))
        if encoder.binary:
            self.texts[-1].data.fill(1)
        else:
            self.texts[-1].eliminate_zeros()

    def _add_cross(self, cross: tuple[str, ...]) -> None:
        coded = (self.coded[name][:2] for name in cross)
        hashed = hash_of_cross(np.abs(each).astype(np.uint64)[codes] for codes, each in coded)
        hashed = hashed.astype(np.int64)
        self._add(self.encoder.features_of(hashed))
        if self.keep_names:
            distinct, rows = np.unique(hashed, return_index=True)
            parts = [
                [f"{name}={text}" for text in texts.take(pa.array(codes[rows])).to_pylist()]
                for name, (codes, _, texts) in ((name, self.coded[name]) for name in cross)
            ]
            names = ["^".join(combined) for combined in zip(*parts, strict=True)]
            self._note("", pa.array(names, pa.string()), distinct)
