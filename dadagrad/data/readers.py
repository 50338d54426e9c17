"""From text files to tasks: which stretches to parse, and how."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dadagrad.data import csv_table, svmlight, text, vw
from dadagrad.data.blocks import Block
from dadagrad.data.combine import compact, transform_values
from dadagrad.data.delimited import (
    Delimiter,
    Layout,
    cut_at_rows,
    guess_delimiter,
    is_name,
    read_layout,
)
from dadagrad.data.locate import source_bytes
from dadagrad.data.options import Options
from dadagrad.data.sources import Meter, Range, plan_ranges, read_chunks
from dadagrad.errors import InputError

TASK_BYTES = 4 << 20
"""What one task parses. It decides which rows share a stream of shuffle keys: a constant."""

_HEAD_BYTES = 1 << 20
_LONGEST_LIST = 500


@dataclass(frozen=True, slots=True)
class Task:
    """One stretch of a source to parse: a range that the worker reads, or the bytes."""

    parse: Callable[..., Block]
    path: str
    range: Range | None = None
    chunk: bytes = b""
    offset: int = 0
    n_bytes: int = 0
    """How many bytes of the file are done with when the task is."""


def run_task(options: Options, task: Task) -> list[Block]:
    """Parse a task; the blocks are final but for label codes and the shift of ids."""
    chunks: Iterable[tuple[bytes, int]] = [(task.chunk, task.offset)]
    if task.range is not None:
        chunks = read_chunks(task.range, TASK_BYTES)
    blocks = (task.parse(chunk, path=task.path, offset=offset) for chunk, offset in chunks)
    return [finish_block(block, options) for block in blocks]


def finish_block(block: Block, options: Options) -> Block:
    """Apply binary and norm, leave out labels that are not wanted, and make the block small."""
    if options.no_labels:
        block = replace(block, labels=np.zeros((block.n_rows, 0)))
    return compact(transform_values(block, binary=options.binary, norm=options.norm))


class TextReader:
    """The tasks of text sources, and what is known of all of them after the tasks were made."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.table: csv_table.Table | None = None
        self._first_path = ""

    def tasks(self, paths: Iterable[str]) -> Iterator[Task]:
        """Tasks for all files, in order."""
        for path in paths:
            if "://" in path:
                raise InputError(
                    f"{path}: {self.options.format} is read from files; copy it here, or pipe it "
                    "to /dev/stdin"
                )
            ranges = plan_ranges(path, TASK_BYTES)
            if not ranges:
                continue
            if self.options.format in ("text", "csv"):
                yield from self._delimited(path, ranges)
            elif ranges[0].stop is None:
                meter = Meter()
                chunks = read_chunks(ranges[0], TASK_BYTES, meter)
                yield from _streamed(self._lines_parser(), path, chunks, meter)
            else:
                yield from _ranged(self._lines_parser(), path, ranges)

    def _lines_parser(self) -> Callable[..., Block]:
        options = self.options
        if options.format == "svmlight":
            return partial(
                svmlight.parse,
                zero_based=options.zero_based is not False,
                on_error=options.on_error,
                multilabel=options.multilabel,
                no_labels=options.no_labels,
            )
        return partial(
            vw.parse,
            hash_bits=options.hash_bits,
            on_error=options.on_error,
            keep_names=options.keep_names,
            allow_unlabelled=options.no_labels,
        )

    def _delimited(self, path: str, ranges: list[Range]) -> Iterator[Task]:
        meter = Meter()
        chunks = read_chunks(replace(ranges[0], stop=None), TASK_BYTES, meter)
        first = next(chunks)
        delimiter = self.options.delimiter or guess_delimiter(path, first[0])
        head = _whole_lines(first[0])
        make = self._text_parser if self.options.format == "text" else self._csv_parser
        try:
            parse = make(path, head, delimiter)
        except csv.Error as error:
            raise InputError(
                f"{path}: the first rows are no CSV ({error}); end rows with a newline, and quote "
                "fields that have one in them"
            ) from error
        if delimiter == "\t" and ranges[0].stop is not None:
            chunks.close()  # type: ignore[attr-defined]
            yield from _ranged(parse, path, ranges)
            return
        stream: Iterator[tuple[bytes, int]] = itertools.chain([first], chunks)
        if delimiter == ",":
            stream = cut_at_rows(path, stream)
        yield from _streamed(parse, path, stream, meter)

    def _text_parser(self, path: str, head: bytes, delimiter: Delimiter) -> Callable[..., Block]:
        options = self.options
        header = options.header or is_name(options.label_column) or is_name(options.text_column)
        layout = read_layout(path, head, delimiter, header)
        label, column = _columns(options, layout, path)
        return partial(
            text.parse,
            layout=layout,
            label=label,
            text=column,
            ngrams=options.ngrams,
            hash_bits=options.hash_bits or text.DEFAULT_HASH_BITS,
            binary=options.binary,
            alternate_sign=options.alternate_sign,
            on_error=options.on_error,
        )

    def _csv_parser(self, path: str, head: bytes, delimiter: Delimiter) -> Callable[..., Block]:
        options = self.options
        sample = head.decode("utf-8", "replace").removeprefix("\ufeff")
        layout = read_layout(path, head, delimiter, header=False)
        header = options.header
        if header is None:
            header = is_name(options.label_column) or csv_table.has_header(layout, sample)
        layout = read_layout(path, head, delimiter, header)
        label = _label_column(options, layout, path)
        if self.table is None:
            self.table = csv_table.read_table(path, layout, sample, label, options.hash_bits)
            self._first_path = path
        elif layout.names() != self.table.layout.names():
            raise InputError(
                f"{path} has the columns {_listed(layout)}; {self._first_path} has "
                f"{_listed(self.table.layout)}: all files must have the same columns"
            )
        table = replace(self.table, layout=layout)
        return partial(csv_table.parse, table=table, on_error=options.on_error)


def _listed(layout: Layout) -> str:
    """The names of columns for a message: on one line, not too many."""
    text = " ".join(", ".join(layout.names()).split())
    return text[:_LONGEST_LIST] + ("..." if len(text) > _LONGEST_LIST else "")


def _label_column(options: Options, layout: Layout, path: str) -> int | None:
    """The position of the label: first unless said otherwise; None where there is none."""
    if options.no_labels:
        return None
    wanted = 0 if options.label_column is None else options.label_column
    return layout.column(wanted, "--label-column", path)


def _columns(options: Options, layout: Layout, path: str) -> tuple[int | None, int]:
    """The positions of label and text: first and second unless said otherwise."""
    label = _label_column(options, layout, path)
    default = 1 if label is not None else 0
    text_wanted = default if options.text_column is None else options.text_column
    column = layout.column(text_wanted, "--text-column", path)
    if label == column:
        raise InputError(
            f"{path}: --label-column and --text-column are both column {label}, counted from 0; "
            "name two columns"
        )
    return label, column


def _whole_lines(chunk: bytes) -> bytes:
    """The first lines of a chunk: what its layout is found from."""
    if len(chunk) <= _HEAD_BYTES:
        return chunk
    end = chunk.rfind(b"\n", 0, _HEAD_BYTES) + 1
    return chunk[: end or len(chunk)]


def _ranged(parse: Callable[..., Block], path: str, ranges: list[Range]) -> Iterator[Task]:
    for source in ranges:
        yield Task(parse, path, source, n_bytes=(source.stop or source.start) - source.start)


def _streamed(
    parse: Callable[..., Block], path: str, chunks: Iterator[tuple[bytes, int]], meter: Meter
) -> Iterator[Task]:
    """Tasks that carry their bytes; `meter` tells how much of the file was read for them."""
    waiting: Task | None = None
    before = 0
    for chunk, offset in chunks:
        if waiting is not None:
            yield waiting
        waiting = Task(parse, path, chunk=chunk, offset=offset, n_bytes=meter.n_bytes - before)
        before = meter.n_bytes
    if waiting is not None:
        left = max(source_bytes(path) - before, 0)  # what follows the last line, as a checksum
        yield replace(waiting, n_bytes=waiting.n_bytes + left)
