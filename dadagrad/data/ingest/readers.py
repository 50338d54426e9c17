"""Sources into blocks of rows: tasks of parsing, in threads, processes or on a Dask cluster."""

from __future__ import annotations

import itertools
import multiprocessing
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from dadagrad.data.arrays import drop_zero_weights
from dadagrad.data.blocks import Block, compact, transform_values
from dadagrad.data.dataset import LabelColumn
from dadagrad.data.ingest import arrays, columns, delimited, svmlight, vw
from dadagrad.data.ingest.files import (
    TASK_BYTES,
    Meter,
    Range,
    plan_ranges,
    read_chunks,
    source_bytes,
)
from dadagrad.data.ingest.labels import LabelEncoder
from dadagrad.data.ingest.options import ARRAY_FORMATS, Delimiter, Options
from dadagrad.errors import DadagradError, InputError

_HEAD_BYTES = 1 << 20
_MAX_LIST = 500

Item = TypeVar("Item")
Result = TypeVar("Result")
Parser = Callable[..., Block]
Parsed = list[tuple[Block, int]]
OrderedMap = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]

_LINE_PARSERS: dict[str, Parser] = {"svmlight": svmlight.parse, "vw": vw.parse}


@contextmanager
def ordered_map(workers: int, client: Any = None, *, threads: bool) -> Iterator[OrderedMap]:
    """Open workers, and yield a function that applies a function to items in parallel.

    It yields the results in the order of the items. Memory holds a few items and results only.
    The workers are `threads` (if the function releases the GIL: they start faster, and results
    need not be copied), processes, this thread alone for 1, or those of a Dask `client`, which
    must see the same files as this process.
    """
    if client is not None:
        from dadagrad.clusters import connected

        with connected(client) as opened:
            n_threads = max(sum(opened.nthreads().values()), 1)
            yield partial(_map_in_order, opened.get_executor(pure=False), 2 * n_threads)
    elif workers == 1:
        yield map
    else:
        # Forking a process that has threads (numba's, zarr's) can deadlock the child.
        context = multiprocessing.get_context("spawn")
        pool: Executor = (
            ThreadPoolExecutor(workers)
            if threads
            else ProcessPoolExecutor(workers, mp_context=context)
        )
        try:
            yield partial(_map_in_order, pool, 2 * workers)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _map_in_order(
    executor: Executor,
    max_pending: int,
    function: Callable[[Item], Result],
    items: Iterable[Item],
) -> Iterator[Result]:
    """Apply `function` to `items`, at most `max_pending` at a time; yield results in order."""
    pending: deque[Future[Result]] = deque()
    try:
        for item in items:
            pending.append(executor.submit(function, item))
            if len(pending) >= max_pending:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise DadagradError(
            "a worker process ended abruptly: killed, or out of memory; use fewer workers, and "
            'call ingest from a script under `if __name__ == "__main__":`'
        ) from error
    finally:
        for future in pending:
            future.cancel()


@dataclass
class SourceSummary:
    """Facts about all sources, complete when the last block was added."""

    options: Options
    labels: LabelEncoder
    skipped: int = 0
    zero_weight: int = 0
    weighted: bool = False
    queried: bool | None = None
    has_id_zero: bool = False
    largest_id: int = -1
    n_features: int = 0
    names: dict[int, str] = field(default_factory=dict)
    table: columns.Table | None = None
    table_path: str = ""
    label_columns: tuple[LabelColumn, ...] | None = None
    spaces: list[dict[str, Any] | None] = field(default_factory=list)

    @property
    def first_id(self) -> int:
        """Id that becomes 0 in the dataset."""
        if self.options.format != "svmlight" or self.options.zero_based is True:
            return 0
        return int(not self.has_id_zero)

    def add(self, block: Block) -> Block:
        """Add a block; return it without rows of weight 0, with encoded labels."""
        block, dropped = drop_zero_weights(block)
        self.zero_weight += dropped
        self.skipped += block.skipped
        self.weighted |= block.weights is not None
        self.names.update(block.names)
        if block.nnz:
            self.has_id_zero |= bool(block.ids.min() == 0)
            self.largest_id = max(self.largest_id, int(block.ids.max()))
        if not block.n_rows:
            return block
        queried = block.queries is not None
        if self.queried not in (None, queried):
            raise InputError(
                "some rows have a query (qid:N) and others have none; give sources with queries, "
                "or sources without"
            )
        self.queried = queried
        return replace(block, labels=self.labels.encode(block.labels))


def read_blocks(
    paths: list[str], options: Options, run: OrderedMap, summary: SourceSummary
) -> Iterator[tuple[Block, int]]:
    """Read all blocks in order, each with the number of bytes of the sources that it completes.

    `run` is what `ordered_map` yields; the `summary` gets the facts that belong to whole files.
    """
    if options.format in ARRAY_FORMATS:
        for path in paths:
            yield from _array_blocks(path, options, summary)
    else:
        for blocks in run(operator.call, _text_tasks(paths, options, summary)):
            yield from blocks


def _array_blocks(
    path: str, options: Options, summary: SourceSummary
) -> Iterator[tuple[Block, int]]:
    source = arrays.open_arrays(path, options)
    summary.n_features = max(summary.n_features, source.n_features)
    summary.label_columns = summary.label_columns or source.label_columns
    summary.spaces.append(source.feature_space)
    summary.names.update(source.names)
    for block in source.blocks:
        yield _finish_block(block, options), 0
    none = Block(np.zeros(1, np.int64), np.zeros(0, np.int64), None, np.zeros((0, 1)))
    yield none, source_bytes(path)


def _parse_range(parse: Parser, options: Options, part: Range) -> Parsed:
    """Blocks of a part of a file, and the bytes that each completes."""
    return [
        (_finish_block(parse(chunk, path=part.path, offset=offset), options), len(chunk))
        for chunk, offset in read_chunks(part, TASK_BYTES)
    ]


def _parse_chunk(
    parse: Parser, options: Options, path: str, chunk: bytes, offset: int, n_bytes: int
) -> Parsed:
    """The block of a chunk that was read at `offset`, and the bytes of the file for it."""
    return [(_finish_block(parse(chunk, path=path, offset=offset), options), n_bytes)]


def _finish_block(block: Block, options: Options) -> Block:
    """Apply binary and norm, leave out labels that are not wanted, and make the block small."""
    if options.no_labels:
        block = replace(block, labels=np.zeros((block.n_rows, 0)))
    return compact(transform_values(block, binary=options.binary, norm=options.norm))


def _text_tasks(
    paths: Iterable[str], options: Options, summary: SourceSummary
) -> Iterator[Callable[[], Parsed]]:
    for path in paths:
        if "://" in path:
            raise InputError(
                f"{path}: {options.format} is read from files; copy it here, or pipe it to "
                "/dev/stdin"
            )
        ranges = plan_ranges(path, TASK_BYTES)
        if not ranges:
            continue
        meter = Meter()
        chunks = read_chunks(replace(ranges[0], stop=None), TASK_BYTES, meter)
        can_seek = ranges[0].stop is not None
        if options.format in _LINE_PARSERS:
            parse: Parser = partial(_LINE_PARSERS[options.format], options=options)
        else:
            first = next(chunks, (b"", 0))
            delimiter = options.delimiter or delimited.guess_delimiter(path, first[0])
            parse = _delimited_parser(path, first[0], delimiter, options, summary)
            chunks = itertools.chain([first], chunks)
            if delimiter == ",":
                chunks, can_seek = delimited.cut_at_rows(path, chunks), False
        if can_seek:
            for part in ranges:
                yield partial(_parse_range, parse, options, part)
            continue
        done = 0
        for chunk, offset in chunks:
            yield partial(_parse_chunk, parse, options, path, chunk, offset, meter.n_bytes - done)
            done = meter.n_bytes
        if (rest := source_bytes(path) - done) > 0:  # after the last line, such as a checksum
            yield partial(_parse_chunk, parse, options, path, b"", done, rest)


def _delimited_parser(
    path: str,
    chunk: bytes,
    delimiter: Delimiter,
    options: Options,
    summary: SourceSummary,
) -> Parser:
    """Parser of a file of text or CSV that begins with `chunk`."""
    head = chunk
    if len(chunk) > _HEAD_BYTES:
        head = chunk[: chunk.rfind(b"\n", 0, _HEAD_BYTES) + 1 or len(chunk)]
    is_text = options.format == "text"
    header = options.header
    if any(map(delimited.is_name, (options.label_column, options.text_column))):
        header = True
    elif header is None and is_text:
        header = False
    layout = delimited.read_layout(path, head, delimiter, header)
    label = None
    if not options.no_labels:
        label = layout.column(options.label_column or 0, "--label-column", path)
    if is_text:
        default = 0 if label is None else 1
        column = default if options.text_column is None else options.text_column
        column = layout.column(column, "--text-column", path)
        if label == column:
            raise InputError(
                f"{path}: --label-column and --text-column are both column {label}, counted from "
                "0; name two columns"
            )
        return partial(columns.parse_text, options=options, layout=layout, label=label, text=column)
    if summary.table is None:
        summary.table = columns.read_table(path, layout, head, label, options.hash_bits)
        summary.table_path = path
    elif layout.names() != summary.table.layout.names():
        raise InputError(
            f"{path} has the columns {_listed(layout)}; {summary.table_path} has "
            f"{_listed(summary.table.layout)}: all files must have the same columns"
        )
    table = replace(summary.table, layout=layout)
    return partial(columns.parse_table, table=table, on_error=options.on_error)


def _listed(layout: delimited.Layout) -> str:
    """Names of columns for a message: on one line, not too many."""
    names = " ".join(", ".join(layout.names()).split())
    return names[:_MAX_LIST] + ("..." if len(names) > _MAX_LIST else "")
