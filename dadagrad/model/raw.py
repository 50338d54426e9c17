"""Raw rows, such as those of a CSV file or of standard input, with the features of a model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dadagrad.data.arrays import finish_rows
from dadagrad.data.blocks import Block, LeftOut, transform_values
from dadagrad.data.dataset import Schema
from dadagrad.data.ingest.collect import Recipe, make_recipe
from dadagrad.data.ingest.readers import LINE_PARSERS
from dadagrad.data.ingest.sources import (
    DaskFrameSource,
    FileSource,
    FrameSource,
    is_raw,
    make_source,
)
from dadagrad.data.reading.files import TASK_BYTES, Range, read_chunks, readable_file
from dadagrad.data.rows import Rows
from dadagrad.data.tables.encoding import TableParser
from dadagrad.data.tables.formats import is_table, open_text, parquet_batches, parquet_groups
from dadagrad.errors import InputError

_STREAM_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RawRows:
    """Rows with features, and what identifies each: its line, counted from 1, its tag, its label.

    `labels` are numbers or texts; None where the source has none. `file` is that of the rows, if
    there are several.
    """

    rows: Rows
    lines: NDArray[np.int64]
    tags: NDArray[Any] | None
    labels: NDArray[Any] | None
    path: str
    file: str | None = None


def is_unprepared(trained: Schema, data: Any) -> bool:
    """True for rows that `read_raw` reads: those that are not a dataset or a matrix."""
    return is_raw(data) or _are_texts(trained, data)


def _are_texts(trained: Schema, data: Any) -> bool:
    """True for a list of texts, if features were made of texts; else it is one of paths."""
    is_text = (trained.feature_space or {}).get("format") == "text"
    is_list = isinstance(data, list | tuple) and len(data) > 0
    return is_text and is_list and all(isinstance(item, str) for item in data)


def read_raw(trained: Schema, data: Any, on_error: Any = "raise") -> Iterator[RawRows]:
    """Read files, standard input (``-``), a data frame or a list of texts, a chunk at a time.

    The recorded options make the features of the training data. Raises `InputError`, naming line
    and column, for rows that do not have its columns or their kinds.
    """
    if _are_texts(trained, data):
        text = (trained.feature_space or {})["reading"]["text"]
        data = pa.table({text: pa.array(data, pa.string())})
    source = make_source(data)
    left_out = LeftOut()
    settings = {"on_error": on_error}
    if isinstance(source, FrameSource | DaskFrameSource):
        recipe = make_recipe(source, settings, trained)
        assert recipe.encoder is not None
        parse = _optional(TableParser.from_options(recipe.encoder, recipe.options))
        first_line = 0
        for batch in source.batches():
            block = parse.encode(batch)
            left_out.add(block)
            yield _finish(block, recipe, trained, first_line, source.name)
            first_line += block.n_lines
        left_out.log_number()
        return
    for path in source.paths:
        recipe = make_recipe(FileSource(path), settings, trained)
        first_line = 0
        for block in _blocks(path, recipe):
            left_out.add(block)
            if block.n_rows:
                rows = _finish(block, recipe, trained, first_line, path)
                yield replace(rows, file=path if len(source.paths) > 1 else None)
            first_line += block.n_lines
    left_out.log_number()


def _optional(parse: TableParser) -> TableParser:
    return replace(parse, labelled=None, keep_lines=True, keep_names=False)


def _blocks(path: str, recipe: Recipe) -> Iterator[Block]:
    """Blocks of a file."""
    options = recipe.options
    if options.format == "parquet":
        if not is_table(path):
            raise InputError(f"{path} is not a table in Parquet; give one, or a dataset")
        assert recipe.encoder is not None
        parse = _optional(TableParser.from_options(recipe.encoder, options))
        for group in parquet_groups(path):
            yield from map(parse.encode, parquet_batches(path, group))
        return
    chunks: Iterable[tuple[bytes, int]] = (
        read_chunks(Range(path, 0, None), TASK_BYTES) if os.path.isfile(path) else _stream(path)
    )
    parser: Any
    if recipe.encoder is None:
        options = replace(options, no_labels=True, keep_lines=True)
        parser = partial(LINE_PARSERS[options.format], options=options)
    else:
        columns = list(recipe.columns)
        parser, _, chunks = open_text(path, chunks, options, recipe.encoder, columns)
        parser = _optional(parser)
    for chunk, offset in chunks:
        yield parser(chunk, path=path, offset=offset)


def _stream(path: str) -> Iterator[tuple[bytes, int]]:
    """Whole lines of a pipe as soon as they are there, with the position of each chunk."""
    rest, offset = b"", 0
    with readable_file(path):
        opened = 0 if path == "/dev/stdin" else os.open(path, os.O_RDONLY)
        while data := os.read(opened, _STREAM_BYTES):
            rest += data
            end = rest.rfind(b"\n") + 1
            if end:
                yield rest[:end], offset
                rest, offset = rest[end:], offset + end
    if rest:
        yield rest, offset


def _finish(block: Block, recipe: Recipe, trained: Schema, first_line: int, path: str) -> RawRows:
    labels, options = block.labels, recipe.options
    block = replace(block, labels=np.zeros((block.n_rows, 0)))
    if recipe.encoder is not None:
        block = recipe.encoder.finish(block)
    else:
        block = transform_values(block, binary=options.binary, norm=options.norm)
        if (trained.feature_space or {}).get("zero_based") is False:
            block = replace(block, ids=block.ids - block.ids.dtype.type(1))
    has_labels = labels.size > 0 and recipe.encoder is not None
    assert block.lines is not None
    return RawRows(
        finish_rows(block, np.zeros((block.n_rows, 0))),
        block.lines + first_line + 1,
        block.tags,
        labels.reshape(-1) if has_labels else None,
        path,
    )
