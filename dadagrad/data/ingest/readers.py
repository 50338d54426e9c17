"""Sources into blocks of rows: tasks of parsing, in threads, processes or on a Dask cluster."""

from __future__ import annotations

import itertools
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
from dadagrad.data.ingest import arrays, csv_table, delimited, svmlight, text, vw
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
OrderedMap = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[tuple[Any, Any]]]


@contextmanager
def ordered_map(workers: int, client: Any = None, *, threads: bool) -> Iterator[OrderedMap]:
    """Open workers, and yield a function that applies a function to items in parallel.

    The function yields each item and its result, in the order of the items. Memory holds a few
    items and results only.

    Parameters
    ----------
    workers
        Number of threads or processes; 1 means this thread.
    client
        A ``distributed.Client`` or the address of a Dask scheduler, whose workers are used
        instead. They must see the same files as this process.
    threads
        True if the function releases the GIL: threads start faster than processes, and their
        results need not be copied.
    """
    if client is not None:
        from dadagrad.clusters import connected

        with connected(client) as opened:
            n_threads = max(sum(opened.nthreads().values()), 1)
            yield partial(map_in_order, opened.get_executor(pure=False), 2 * n_threads)
    elif workers == 1:
        yield lambda function, items: ((item, function(item)) for item in items)
    else:
        pool = ThreadPoolExecutor(workers) if threads else _process_pool(workers)
        try:
            yield partial(map_in_order, pool, 2 * workers)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _process_pool(workers: int) -> Executor:
    import multiprocessing

    # Forking a process that has threads (numba's, zarr's) can deadlock the child.
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def map_in_order(
    executor: Executor,
    max_pending: int,
    function: Callable[[Item], Result],
    items: Iterable[Item],
) -> Iterator[tuple[Item, Result]]:
    """Apply `function` to `items`, at most `max_pending` at a time; yield results in order."""
    pending: deque[tuple[Item, Future[Result]]] = deque()
    try:
        for item in items:
            pending.append((item, executor.submit(function, item)))
            if len(pending) >= max_pending:
                yield _first_result(pending)
        while pending:
            yield _first_result(pending)
    finally:
        for _, future in pending:
            future.cancel()


def _first_result(pending: deque[tuple[Item, Future[Result]]]) -> tuple[Item, Result]:
    item, future = pending.popleft()
    try:
        return item, future.result()
    except BrokenProcessPool as error:
        raise DadagradError(
            "a worker process ended abruptly: killed, or out of memory; use fewer workers, and "
            'call ingest from a script under `if __name__ == "__main__":`'
        ) from error


@dataclass
class SourceSummary:
    """Facts about all sources, complete when the last block was added."""

    labels: LabelEncoder
    guesses_first_id: bool = False
    """True if the ids of svmlight start at 1 unless one of them is 0."""
    skipped: int = 0
    zero_weight: int = 0
    weighted: bool = False
    queried: bool | None = None
    smallest_id: int | None = None
    largest_id: int = -1
    n_features: int = 0
    names: dict[int, str] = field(default_factory=dict)
    table: csv_table.Table | None = None
    table_path: str = ""
    label_columns: tuple[LabelColumn, ...] | None = None
    spaces: list[dict[str, Any] | None] = field(default_factory=list)

    @classmethod
    def of(cls, options: Options) -> SourceSummary:
        """The summary of no blocks."""
        is_svmlight = options.format == "svmlight"
        return cls(
            LabelEncoder(several=is_svmlight),
            guesses_first_id=is_svmlight and options.zero_based == "auto",
        )

    @property
    def first_id(self) -> int:
        """Id that becomes 0 in the dataset."""
        return int(self.guesses_first_id and self.smallest_id != 0)

    def add(self, block: Block) -> Block:
        """Add a block; return it without rows of weight 0, with encoded labels."""
        block, dropped = drop_zero_weights(block)
        self.zero_weight += dropped
        self.skipped += block.skipped
        self.weighted |= block.weights is not None
        self.names.update(block.names)
        if block.nnz:
            smallest = int(block.ids.min())
            self.smallest_id = (
                smallest if self.smallest_id is None else min(smallest, self.smallest_id)
            )
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
        yield from _array_blocks(paths, options, summary)
        return
    for task, blocks in run(partial(run_task, options), _text_tasks(paths, options, summary)):
        for number, block in enumerate(blocks):
            yield block, task.n_bytes if number == len(blocks) - 1 else 0


def _array_blocks(
    paths: list[str], options: Options, summary: SourceSummary
) -> Iterator[tuple[Block, int]]:
    for path in paths:
        source = arrays.open_arrays(path, options)
        summary.n_features = max(summary.n_features, source.n_features)
        summary.label_columns = summary.label_columns or source.label_columns
        summary.spaces.append(source.feature_space)
        summary.names.update(source.names)
        last = Block(np.zeros(1, np.int64), np.zeros(0, np.int64), None, np.zeros((0, 1)))
        for block in source.blocks:
            yield finish_block(block, options), 0
        yield last, source_bytes(path)


@dataclass(frozen=True, slots=True)
class Task:
    """A part of a source to parse: a range that the worker reads, or the bytes themselves."""

    parse: Parser
    path: str
    range: Range | None = None
    chunk: bytes = b""
    offset: int = 0
    n_bytes: int = 0
    """Bytes of the file that the task completes."""


def run_task(options: Options, task: Task) -> list[Block]:
    """Parse a task; its blocks lack only the codes of labels and the shift of ids."""
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


def _text_tasks(paths: Iterable[str], options: Options, summary: SourceSummary) -> Iterator[Task]:
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
        if options.format in ("svmlight", "vw"):
            parser = svmlight.parse if options.format == "svmlight" else vw.parse
            parse: Parser = partial(parser, options=options)
        else:
            first = next(chunks)
            delimiter = options.delimiter or delimited.guess_delimiter(path, first[0])
            make = _text_parser if options.format == "text" else _csv_parser
            parse = make(path, _head(first[0]), delimiter, options, summary)
            chunks = itertools.chain([first], chunks)
            if delimiter == ",":
                chunks, can_seek = delimited.cut_at_rows(path, chunks), False
        if can_seek:
            for part in ranges:
                yield Task(parse, path, part, n_bytes=(part.stop or part.start) - part.start)
        else:
            yield from _streamed(parse, path, chunks, meter)


def _streamed(
    parse: Parser, path: str, chunks: Iterable[tuple[bytes, int]], meter: Meter
) -> Iterator[Task]:
    """Tasks that carry their bytes; `meter` tells how much of the file was read for them."""
    task: Task | None = None
    before = 0
    for chunk, offset in chunks:
        if task is not None:
            yield task
        task = Task(parse, path, chunk=chunk, offset=offset, n_bytes=meter.n_bytes - before)
        before = meter.n_bytes
    if task is not None:
        rest = max(source_bytes(path) - before, 0)  # after the last line, such as a checksum
        yield replace(task, n_bytes=task.n_bytes + rest)


def _text_parser(
    path: str,
    head: bytes,
    delimiter: Delimiter,
    options: Options,
    summary: SourceSummary,
) -> Parser:
    names = (options.label_column, options.text_column)
    header = bool(options.header) or any(map(delimited.is_name, names))
    layout = delimited.read_layout(path, head, delimiter, header)
    label = _label_column(options, layout, path)
    column = options.text_column
    if column is None:
        column = 0 if label is None else 1
    column = layout.column(column, "--text-column", path)
    if label == column:
        raise InputError(
            f"{path}: --label-column and --text-column are both column {label}, counted from 0; "
            "name two columns"
        )
    return partial(text.parse, options=options, layout=layout, label=label, text=column)


def _csv_parser(
    path: str,
    head: bytes,
    delimiter: Delimiter,
    options: Options,
    summary: SourceSummary,
) -> Parser:
    header = True if delimited.is_name(options.label_column) else None
    layout = delimited.read_layout(
        path, head, delimiter, header if options.header is None else options.header
    )
    label = _label_column(options, layout, path)
    if summary.table is None:
        summary.table = csv_table.read_table(path, layout, head, label, options.hash_bits)
        summary.table_path = path
    elif layout.names() != summary.table.layout.names():
        raise InputError(
            f"{path} has the columns {_listed(layout)}; {summary.table_path} has "
            f"{_listed(summary.table.layout)}: all files must have the same columns"
        )
    table = replace(summary.table, layout=layout)
    return partial(csv_table.parse, table=table, on_error=options.on_error)


def _listed(layout: delimited.Layout) -> str:
    """Names of columns for a message: on one line, not too many."""
    names = " ".join(", ".join(layout.names()).split())
    return names[:_MAX_LIST] + ("..." if len(names) > _MAX_LIST else "")


def _label_column(options: Options, layout: delimited.Layout, path: str) -> int | None:
    """Position of the label, by default the first; None if there are no labels."""
    if options.no_labels:
        return None
    column = 0 if options.label_column is None else options.label_column
    return layout.column(column, "--label-column", path)


def _head(chunk: bytes) -> bytes:
    """First lines of a chunk, which show its layout."""
    if len(chunk) <= _HEAD_BYTES:
        return chunk
    return chunk[: chunk.rfind(b"\n", 0, _HEAD_BYTES) + 1 or len(chunk)]
