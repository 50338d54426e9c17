"""Tables of all formats but Parquet: files of text with their first rows, and data frames."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from dadagrad.data.dask_blocks import is_dask
from dadagrad.data.reading.files import HEAD_BYTES, read_head
from dadagrad.data.reading.options import DEFAULT_HASH_BITS, Options
from dadagrad.data.tables.cells import Batch, columns_of_rows, flatten
from dadagrad.data.tables.columns import PLURALS, Column, learn_columns
from dadagrad.data.tables.delimited import (
    Layout,
    check_distinct_columns,
    end_of_rows,
    guess_delimiter,
    read_batch,
    read_layout,
    refuse_wide_text,
)
from dadagrad.data.tables.encoder import TableEncoder
from dadagrad.data.tables.encoding import TableParser
from dadagrad.data.tables.json_lines import is_object, read_json
from dadagrad.data.tables.row_columns import RECORDED, TableHead, no_column, shown, split_columns
from dadagrad.errors import InputError
from dadagrad.storage.files import SourceFile
from dadagrad.summary import listed

logger = logging.getLogger(__name__)

BATCH_ROWS = 1 << 14
"""Rows of a table of columns that are encoded together."""
_VECTOR = {"type", "size", "indices", "values"}  # fields of a vector of Spark ML


@dataclass(frozen=True, slots=True)
class TextOpener:
    """Opener of files of delimited text and JSON lines.

    The `encoder` and the `columns` are those of earlier files, if there are any. An encoder is
    learned from the first rows otherwise, and a file that does not name its columns has `columns`.
    Where nobody gave the format, it `refuses_json` in the place of other lines.
    """

    options: Options
    encoder: TableEncoder | None = None
    columns: Sequence[str] = ()
    refuses_json: bool = False

    def open(self, path: str, first: bytes) -> tuple[TableParser, list[str]]:
        """Parser of a file with this `first` chunk, and the columns of the file."""
        if not first.strip():
            raise InputError(f"no rows in {path}; give at least one")
        head = first
        if len(first) > HEAD_BYTES:
            head = first[: first.rfind(b"\n", 0, HEAD_BYTES) + 1 or len(first)]
        is_json = self.options.format == "jsonl"
        return self._open_json(path, head) if is_json else self._open_delimited(path, head)

    def _open_json(self, path: str, head: bytes) -> tuple[TableParser, list[str]]:
        refuse_wide_text(path, head)
        if head.lstrip().startswith(b"["):
            raise InputError(
                f"{path} holds a JSON array; needed is one object a line, as `jq -c '.[]' FILE` "
                "writes them"
            )
        table = read_json(head, path=path, offset=0, on_error="skip").table
        encoder, columns = self.encoder, list(self.columns)
        if encoder is None:
            if not table.num_columns:
                read_json(head, path=path, offset=0, on_error="raise")
            encoder = learn_encoder(TableHead(table, self.options, path))
            columns = list(table.schema.names)
        else:
            _check_keys(encoder, columns, table, path)
        required = list(encoder.lengths)
        read = partial(read_json, on_error=self.options.on_error, required=required)
        return TableParser(encoder, self.options, read), columns

    def _open_delimited(self, path: str, head: bytes) -> tuple[TableParser, list[str]]:
        if self.refuses_json and is_object(head.partition(b"\n")[0]):
            raise InputError(
                f"{path} begins with a JSON object, and the rows of the model or dataset were "
                f"{self.options.format}; give --format, jsonl or {self.options.format}"
            )
        layout, encoder = self.layout(path, head), self.encoder
        if encoder is None:
            if layout.delimiter != "\t":
                head = head[: end_of_rows(head, layout.delimiter) or len(head)]
            table = read_batch(head, layout, path=path, offset=0).table
            encoder = learn_encoder(TableHead(table, self.options, path, by_number=True))
        parse = TableParser(encoder, self.options, None, layout.delimiter).numbered(layout.names)
        parse.check_columns(layout.names, path)
        numbers = (each.name for each in encoder.columns if each.kind in ("number", "code"))
        included = frozenset(layout.names).intersection(parse.encoder.column_names())
        layout = replace(layout, numbers=frozenset(numbers), included=included)
        parse = replace(parse, read=partial(read_batch, layout=layout))
        return parse, list(layout.names if layout.header or not self.columns else self.columns)

    def layout(self, path: str, head: bytes) -> Layout:
        """Layout of a file; one without names of columns has those of the first file."""
        options, encoder, columns = self.options, self.encoder, self.columns
        delimiter = options.delimiter or guess_delimiter(path, head)
        header = options.header
        known = columns if encoder is None else encoder.column_names()
        if not known:
            several = (options.label, options.text_column)
            chosen = [options.id, options.weight, options.query, *(options.columns or ())]
            chosen += chain.from_iterable(split_columns((), each) for each in several)
            named = [name for name in chosen if isinstance(name, str) and not name.isdecimal()]
            if named and header is False:
                raise InputError(
                    f"{path}: --no-header says that columns have no names, and {shown(named[0])} "
                    "is one; give the number of the column, from 0, or leave out --no-header"
                )
            return read_layout(path, head, delimiter, True if named else header)
        layout = read_layout(path, head, delimiter, header=False)
        if header is None:
            first = read_batch(head, layout, path=path, offset=0).table.slice(0, 1)
            fields = {str(cells[0].as_py()).strip() for cells in first.columns if len(cells)}
            words = {name for name in known if not name.isdecimal()}
            spelt_otherwise = set(map(_letters, words)) & set(map(_letters, fields))
            header = bool(words & fields) or 2 * len(spelt_otherwise) >= max(len(words), 1)
            if not header and (not words or len(layout.names) == len(columns)):
                looks_like_names = read_layout(path, head, delimiter, None).header
                if not words and "label" in fields and len(layout.names) == len(columns):
                    layout = replace(layout, header=looks_like_names)
                elif words and looks_like_names:
                    logger.warning(
                        f"{path}: the first row, {', '.join(map(shown, sorted(fields)[:30]))}, "
                        "looks like names of columns, and is read as data, because it has none of "
                        "the training data; columns are known by their places"
                    )
        if header:
            layout = read_layout(path, head, delimiter, header=True)
        if layout.header:
            return layout
        labels = () if encoder is None else encoder.rows.labels
        without_labels = [name for name in columns if name not in labels]
        for names in (columns, without_labels):
            if len(layout.names) == len(names):
                return replace(layout, names=tuple(names))
        raise InputError(
            f"{path} has {len(layout.names)} columns without names in its first row; needed are "
            f"the {len(columns)} of the training data, with or without the label: "
            f"{', '.join(map(shown, columns[:30]))}"
        )


def names_of_columns(file: SourceFile, options: Options) -> list[str]:
    """Names or numbers of the columns of a file of delimited text; none of another source."""
    if options.format not in ("csv", "text") or file.version is None:
        return []
    head = read_head(file)
    return list(TextOpener(options).layout(file.path, head).names) if head.strip() else []


def learn_encoder(head: TableHead) -> TableEncoder:
    """The transformation of a table that begins with these rows."""
    options, place = head.options, head.place
    columns, rows = learn_columns(head)
    with_items = f"{place}, with a column for each item of its lists,"
    check_distinct_columns([column.name for column in columns], with_items)
    crosses = _crosses(columns, head)
    if options.ngrams > 1 and all(column.kind != "text" for column in columns):
        raise InputError(
            f"{place}: --ngrams is {options.ngrams}, and no column looks like text; name one with "
            "--text-column, or leave --ngrams out"
        )
    hashed = any(column.kind != "number" for column in columns)
    return TableEncoder(
        columns,
        (options.hash_bits or DEFAULT_HASH_BITS) if hashed else None,
        crosses,
        options.ngrams,
        options.binary,
        options.norm,
        rows=rows,
    )


def _crosses(columns: Iterable[Column], head: TableHead) -> tuple[tuple[str, ...], ...]:
    """Crosses of categories by the names of their columns; refuse other columns."""
    of_source = {column.source: column for column in columns}
    crosses = [tuple(head.find("--cross", name) for name in each) for each in head.options.cross]
    for name in chain.from_iterable(crosses):
        if name not in of_source:
            raise InputError(
                f"{head.place}: --cross names the column {shown(name)}, which does not become "
                "features (see --label, --id, --weight, --query, --columns, --ignore, "
                "--text-column); leave it out of one of them"
            )
        column = of_source[name]
        if column.kind not in ("category", "code"):
            kind = PLURALS[column.kind] if column.item is None else "lists of numbers"
            raise InputError(
                f"{head.place}: --cross names the column {shown(name)} of {kind}; it takes "
                "categories (--categories reads a column of numbers as categories)"
            )
    return tuple(crosses)


def _refuse_vectors(schema: pa.Schema, place: str) -> None:
    """Refuse vectors of Spark ML, of which the fields are no columns of features."""
    for field in schema:
        if pa.types.is_struct(field.type) and {each.name for each in field.type} == _VECTOR:
            raise InputError(
                f"{place}: column {shown(field.name)} holds vectors of Spark ML; write them as "
                "svmlight, with df.write.format('libsvm'), or as lists of numbers, with "
                "vector_to_array"
            )


def _check_keys(
    encoder: TableEncoder, columns: Iterable[str], head: pa.RecordBatch, path: str
) -> None:
    """Refuse the first rows of a file whose keys are others than the columns of `encoder`.

    A key may be left out of rows where its value is missing: of all of them only with a warning. A
    key that is spelt otherwise, and that was not among the `columns` of the first file, is refused.
    """
    if not head.num_rows:
        return
    names, needed = set(head.schema.names), list(encoder.lengths)
    absent = [name for name in needed if name not in names]
    new = {_letters(name) for name in names.difference(columns)}
    for name in absent:
        if len(absent) == len(needed) or _letters(name) in new:
            raise no_column(sorted(names), name, RECORDED, path)
    if absent:
        logger.warning(
            f"{path}: the first rows have no key {listed(list(map(shown, absent)))}; it counts as "
            "missing"
        )


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def is_frame(data: object) -> bool:
    """True for a table in memory: of pandas, polars, pyarrow, or any that Arrow can read."""
    if is_dask(data):
        return False
    is_column = len(getattr(data, "shape", (0, 0))) == 1
    return hasattr(data, "__arrow_c_stream__") and not is_column


def to_table(frame: Any, name: str) -> pa.Table:
    """A table in memory, or a list of dicts, as one of Arrow; an index of pandas is no column."""
    try:
        if isinstance(frame, list):
            frame = columns_of_rows(frame)
        if hasattr(frame, "iloc"):
            return pa.Table.from_pandas(_without_intervals(frame), preserve_index=False)
        return pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = " ".join("; ".join(map(str, error.args)).split()).rstrip(".")
        needed = "a column must have a name of its own, and values of one kind"
        if "Sparse" in reason:
            needed = "make it dense with .sparse.to_dense(), or give a matrix of SciPy"
        raise InputError(f"{name}: {reason}; {needed}") from None


def _without_intervals(frame: Any) -> Any:
    """A frame of pandas with texts in the place of intervals and periods, which Arrow lacks."""
    changed = frame
    for place, kind in enumerate(frame.dtypes):
        values = getattr(kind, "categories", None)
        if getattr(values, "dtype", kind).name.startswith(("interval", "period")):
            changed = frame.copy(deep=False) if changed is frame else changed
            column = frame.iloc[:, place].astype("category").cat
            texts = list(map(str, column.categories))
            changed.isetitem(place, column.rename_categories(texts))
    return changed


def table_batches(table: pa.Table, name: str, first: int = 0) -> Iterator[Batch]:
    """Rows of a table; messages count from `first`, in memory from 0 as pandas does."""
    _refuse_vectors(table.schema, name)
    table = flatten(table)
    table = table.rename_columns([str(column) for column in table.column_names])
    check_distinct_columns(table.column_names, name)
    for start in range(0, max(table.num_rows, 1), BATCH_ROWS):
        columns = [column.combine_chunks() for column in table.slice(start, BATCH_ROWS).columns]
        batch = pa.RecordBatch.from_arrays(columns, names=table.column_names)
        begin = first + start

        def place_of(row: int, begin: int = begin) -> str:
            return f"{name}, row {begin + row}"

        yield Batch(batch, place_of)
