"""Sources into blocks of rows: tasks of parsing, in threads or on a Dask cluster."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from dadagrad.data.blocks import Block, compact, transform_values
from dadagrad.data.ingest import arrays, svmlight, vw
from dadagrad.data.ingest.summary import SourceSummary
from dadagrad.data.parquet.footer import RowGroup, read_row_groups
from dadagrad.data.reading.files import (
    COMPRESSED_NAME,
    HEAD_BYTES,
    TASK_BYTES,
    Meter,
    Range,
    plan_ranges,
    read_chunks,
)
from dadagrad.data.reading.options import Options
from dadagrad.data.tables.delimited import check_distinct_columns, cut_at_rows
from dadagrad.data.tables.encoding import TableParser
from dadagrad.data.tables.formats import TextOpener, learn_encoder, names_of_columns, table_batches
from dadagrad.data.tables.parquet import names_of_parquet, parquet_table
from dadagrad.data.tables.row_columns import TableHead
from dadagrad.errors import InputError
from dadagrad.storage.files import SourceFile

NO_ROWS = Block(np.zeros(1, np.int64), np.zeros(0, np.int64), None, np.zeros((0, 1)))

MIN_HEAD_ROWS = 1_000
"""Rows of row groups or blocks from which kinds of columns are learned, if there are so many."""

Chunks = Iterator[tuple[bytes, int]]
"""Whole lines of a file, and their offsets."""

LINE_PARSERS: dict[str, Callable[..., Block]] = {"svmlight": svmlight.parse, "vw": vw.parse}


def file_tasks(
    files: list[SourceFile], summary: SourceSummary, *, whole_streams: bool = False
) -> Iterator[Task]:
    """Tasks that read files of text and tables.

    A small file is opened and read by one task, once the columns are known. A larger one is opened
    here for its first rows, and one that can only be read from its beginning is read here, or with
    `whole_streams` by one task. Kinds of columns are learned from the first large file: a small one
    may not show them.
    """
    options = summary.options
    is_parquet = options.format == "parquet"
    tasks = _parquet_tasks if is_parquet else partial(_text_tasks, whole_streams=whole_streams)
    if summary.encoder is None and options.format not in LINE_PARSERS:
        largest = max(files, key=lambda file: min(file.size, HEAD_BYTES))
        if largest != files[0]:
            summary.columns = names_of_columns(files[0], options)
            next(tasks(largest, 0, summary), None)
    for number, file in enumerate(files):
        limit = TASK_BYTES // 4 if COMPRESSED_NAME.search(file.path) else TASK_BYTES
        columns_known = options.format in LINE_PARSERS or (number > 0 and summary.columns)
        if columns_known and 0 < file.size <= limit:
            yield Task(number, 0, partial(_parse_file, file, summary.opener))
        else:
            yield from tasks(file, number, summary)


def array_blocks(source: arrays.ArraySource, summary: SourceSummary) -> Iterator[Block]:
    """Read all blocks of arrays."""
    summary.add_matrix(source.place, source.n_features, source.feature_space)
    summary.label_columns = summary.label_columns or source.label_columns
    summary.names.add(source.names)
    for block in source.blocks:
        yield compact(transform(block, summary.options))


def transform(block: Block, options: Options) -> Block:
    """Apply binary and norm, and leave out labels that are not wanted."""
    if options.no_labels:
        block = replace(block, labels=np.zeros((block.n_rows, 0)))
    return transform_values(block, binary=options.binary, norm=options.norm)


@dataclass(frozen=True, slots=True)
class LineParser:
    """Parser of lines with values that are final, unlike those of a table."""

    options: Options
    quoted, delimiter = False, None

    def __call__(self, chunk: bytes, *, path: str, offset: int) -> Block:
        parse = LINE_PARSERS[self.options.format]
        return transform(parse(chunk, path=path, offset=offset, options=self.options), self.options)


Parser = LineParser | TableParser


def _parse_part(parse: Parser, part: Range) -> Iterator[Block]:
    path, meter = part.file.path, Meter()
    for chunk, offset in _whole_rows(parse, path, read_chunks(part, TASK_BYTES, meter)):
        yield from _parse_chunk(parse, path, chunk, offset, meter.take())


def _whole_rows(parse: Parser, path: str, chunks: Chunks) -> Chunks:
    """Chunks of whole rows, of which each may have several lines."""
    return cut_at_rows(path, chunks, parse.delimiter or ",") if parse.quoted else chunks


def _parse_chunk(parse: Parser, path: str, chunk: bytes, offset: int, n_bytes: int) -> list[Block]:
    """The block of a chunk that was read at `offset`, and that took `n_bytes` of the file."""
    return [replace(parse(chunk, path=path, offset=offset), source_bytes=n_bytes)]


@dataclass(frozen=True)
class Task:
    """A part of the sources, of which `parse` yields blocks; its origin is `file` and `number`."""

    file: int
    number: int
    parse: Callable[..., Iterable[Block]]
    first_block: int = 0

    def __call__(self, *arguments: Any) -> Iterator[Block]:
        for number, block in enumerate(self.parse(*arguments), self.first_block):
            yield replace(compact(block), origin=(self.file, self.number, number))


def read_all(tasks: tuple[Task, ...]) -> Iterator[Block]:
    """Yield the blocks of tasks whose rows are collected together."""
    return chain.from_iterable(task() for task in tasks)


def _open_chunks(
    path: str, chunks: Chunks, opener: TextOpener
) -> tuple[Parser, Chunks, list[str]] | None:
    """Parser of a file by its first rows, its chunks of whole rows, and its columns.

    It is None for a file without rows, such as a compressed one of no bytes, or of blank lines.
    """
    if opener.options.format in LINE_PARSERS:
        return LineParser(opener.options), chunks, []
    first, offset = next(chunks, (b"", 0))
    if not first.strip() and not any(chunk.strip() for chunk, _ in chunks):
        return None
    parse, columns = opener.open(path, first)
    return parse, _whole_rows(parse, path, chain([(first, offset)], chunks)), columns


def _parse_file(file: SourceFile, opener: TextOpener) -> Iterator[Block]:
    """Yield the blocks of a small file, of which the first counts for all bytes."""
    read = _blocks_of_parquet if opener.options.format == "parquet" else _blocks_of_text
    for number, block in enumerate(read(file, opener)):
        yield replace(block, source_bytes=0 if number else file.size)


def _blocks_of_text(file: SourceFile, opener: TextOpener) -> Iterator[Block]:
    chunks = read_chunks(Range(file, 0, None), TASK_BYTES)
    if (opened := _open_chunks(file.path, chunks, opener)) is not None:
        parse, chunks, _ = opened
        for chunk, offset in chunks:
            yield parse(chunk, path=file.path, offset=offset)


def _blocks_of_parquet(file: SourceFile, opener: TextOpener) -> Iterator[Block]:
    """Yield the blocks of a file that is fetched in one request."""
    assert opener.encoder is not None
    parse = TableParser(opener.encoder, opener.options)
    with file.open(buffer_bytes=file.size) as opened:
        content = io.BytesIO(opened.read())
    for group in _filled_groups(content, file.path):
        yield from _parse_group(parse, content, file.path, group)


def _filled_groups(file: BinaryIO, path: str) -> list[RowGroup]:
    return [group for group in read_row_groups(file, path) if group.n_rows]


def _text_tasks(
    file: SourceFile, number: int, summary: SourceSummary, *, whole_streams: bool
) -> Iterator[Task]:
    path = file.path
    ranges, whole = plan_ranges(file, TASK_BYTES), Range(file, 0, None)
    if not ranges:
        return
    meter = Meter()
    chunks = read_chunks(whole, TASK_BYTES, meter, at_once=summary.options.to_predict)
    can_seek = ranges[0].stop is not None
    opened = _open_chunks(path, chunks, summary.opener)
    if opened is None:
        return
    parse, chunks, columns = opened
    if isinstance(parse, TableParser):
        summary.encoder = parse.encoder
        if number == 0 or not summary.columns:
            summary.columns = columns
        summary.delimiter = summary.delimiter or parse.delimiter
        can_seek &= not parse.quoted
    parts = ranges if can_seek else [whole] if whole_streams else []
    for index, part in enumerate(parts):
        parse = replace(parse, options=summary.current_options)
        yield Task(number, index, partial(_parse_part, parse, part))
    if parts:
        return
    block = 0
    for block, (chunk, offset) in enumerate(chunks):
        parse = replace(parse, options=summary.current_options)
        parse_part = partial(_parse_chunk, parse, path, chunk, offset, meter.take())
        yield Task(number, 0, parse_part, block)
    if (rest := file.size - meter.position) > 0:  # after the last line, as a checksum
        parse_part = partial(_parse_chunk, parse, path, b"", meter.position, rest)
        yield Task(number, 0, parse_part, block + 1)


def learn_table(heads: Iterable[pa.Table], place: str, summary: SourceSummary) -> TableParser:
    """Parser of a table; its encoder is learned, if need be, from the first parts with enough rows.

    No more of the `heads` of its parts are taken.
    """
    if summary.encoder is None:
        tables: list[pa.Table] = []
        for table in heads:
            check_distinct_columns(table.column_names, place)
            tables.append(table)
            if sum(map(len, tables)) >= MIN_HEAD_ROWS:
                break
        try:
            whole = pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"{place}: its parts have columns of different types ({reason}); give each column "
                "one type"
            ) from None
        head = next(table_batches(whole, place)).table
        summary.encoder = learn_encoder(TableHead(head, summary.options, place))
        summary.columns = list(head.schema.names)
    return TableParser(summary.encoder, summary.options)


def _parquet_tasks(file: SourceFile, number: int, summary: SourceSummary) -> Iterator[Task]:
    with file.open() as opened:
        groups = _filled_groups(opened, file.path)
        if not groups:
            return
        heads = (parquet_table(opened, file.path, group) for group in groups)
        parse = learn_table(heads, file.path, summary)
    for index, group in enumerate(groups):
        n_bytes = file.size * (index + 1) // len(groups) - file.size * index // len(groups)
        parse = replace(parse, options=summary.current_options)
        yield Task(number, index, partial(_open_group, parse, file, group, n_bytes))


def _open_group(parse: TableParser, file: SourceFile, group: RowGroup, n_bytes: int) -> list[Block]:
    with file.open() as opened:
        *others, last = _parse_group(parse, opened, file.path, group)
    return [*others, replace(last, source_bytes=n_bytes)]


def _parse_group(parse: TableParser, file: BinaryIO, path: str, group: RowGroup) -> Iterator[Block]:
    names = names_of_parquet(path, group)
    parse = parse.numbered(names)
    if group.number == 0:
        parse.check_columns(names, path)
    table = parquet_table(file, path, group, parse.encoder.column_names())
    return map(parse.encode, table_batches(table, path, group.first + 1))
