"""Sources into blocks of rows: tasks of parsing, in threads, processes or on a Dask cluster."""

from __future__ import annotations

import itertools
import multiprocessing
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dadagrad.data.arrays import drop_zero_weights
from dadagrad.data.blocks import Block, LeftOut, compact, transform_values
from dadagrad.data.dataset import LabelColumn
from dadagrad.data.ingest import arrays, svmlight, vw
from dadagrad.data.ingest.files import (
    TASK_BYTES,
    Meter,
    Range,
    plan_ranges,
    read_chunks,
    source_bytes,
)
from dadagrad.data.ingest.labels import LabelEncoder
from dadagrad.data.ingest.options import ARRAY_FORMATS, Options
from dadagrad.data.tables.delimited import cut_at_rows
from dadagrad.data.tables.encoder import TableEncoder
from dadagrad.data.tables.names import NameTable
from dadagrad.data.tables.sources import (
    TableParser,
    is_table,
    learn_encoder,
    open_text,
    parquet_batches,
    parquet_tasks,
)
from dadagrad.errors import DadagradError, InputError

MAX_NAMES = 1 << 20
"""Features from which names are kept only if they were asked for."""

_MIN_IN_ORDER = 1000  # rows below which an order of labels is not mentioned

NO_ROWS = Block(np.zeros(1, np.int64), np.zeros(0, np.int64), None, np.zeros((0, 1)))

Item = TypeVar("Item")
Result = TypeVar("Result")
Parser = Callable[..., Block]
Parsed = list[tuple[Block, int]]
OrderedMap = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]

LINE_PARSERS: dict[str, Parser] = {"svmlight": svmlight.parse, "vw": vw.parse}


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

            def submit(function: Any, item: Any) -> Any:
                if isinstance(item, BlockTask):
                    function, item = item.function, opened.compute(item.block)
                return opened.submit(_on_worker, function, item, pure=False)

            def map_on_workers(function: Any, items: Iterable[Any]) -> Iterator[Any]:
                return _map_in_order(submit, 2 * n_threads, function, items)

            yield map_on_workers
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
            yield partial(_map_in_order, pool.submit, 2 * workers)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class BlockTask:
    """A function of a block of a dask collection, which is computed where the task runs."""

    function: Callable[[Any], Any]
    block: Any

    def __call__(self) -> Any:
        return self.function(self.block.compute())


def _on_worker(function: Callable[[Item], Result], item: Item) -> Result:
    """Apply a function on a Dask worker, whose address goes into an error."""
    try:
        return function(item)
    except InputError as error:
        from distributed import get_worker

        message = f"{error} (on the Dask worker at {get_worker().address})"
        raise InputError(message) from None


def _map_in_order(
    submit: Callable[..., Any],
    max_pending: int,
    function: Callable[[Item], Result],
    items: Iterable[Item],
) -> Iterator[Result]:
    """Apply `function` to `items`, at most `max_pending` at a time; yield results in order."""
    pending: deque[Any] = deque()
    try:
        for item in items:
            pending.append(submit(function, item))
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
    """Facts about all sources, complete when the last block was added.

    The `encoder` of tables, which have the `columns`, was `learned` before, or from the first rows.
    """

    options: Options
    labels: LabelEncoder
    wrong_rows: LeftOut = field(default_factory=LeftOut)
    zero_weight: int = 0
    weighted: bool = False
    queried: bool | None = None
    has_id_zero: bool = False
    largest_id: int = -1
    n_features: int = 0
    names: dict[str, int] = field(default_factory=dict)
    hashed_names: NameTable = field(default_factory=NameTable)
    too_many_names: bool = False
    encoder: TableEncoder | None = None
    columns: list[str] = field(default_factory=list)
    learned: bool = False
    n_changes: int = 0
    n_labels: int = 0
    last_label: int | None = None
    label_columns: tuple[LabelColumn, ...] | None = None
    spaces: list[dict[str, Any] | None] = field(default_factory=list)

    def feature_names(self) -> dict[int, str]:
        """Names by feature; of several names of one feature one, always the same."""
        if self.encoder is None:
            return {feature: name for name, feature in sorted(self.names.items(), reverse=True)}
        names = self.hashed_names.by_feature(self.encoder.features_of)
        numbers = self.encoder.names_of_numbers()
        return names | {feature: name for name, feature in numbers.items()}

    @property
    def left_out(self) -> list[str]:
        """Columns of a table that nobody chose to ignore, and that are no features."""
        options, encoder = self.options, self.encoder
        if encoder is None or self.learned or options.columns is not None or encoder.is_text:
            return []
        read = {*encoder.column_names(), *map(str, options.ignore)}
        return [
            name
            for number, name in enumerate(self.columns)
            if name not in read and str(number) not in read
        ]

    @property
    def skipped(self) -> int:
        return self.wrong_rows.n_rows

    @property
    def collisions(self) -> int | None:
        """Hashed names that share their feature with another; None if names were not kept."""
        if self.encoder is None or self.too_many_names or self.options.keep_names is False:
            return None
        return self.hashed_names.collisions(self.encoder.features_of)

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
        self.wrong_rows.add(block)
        self.weighted |= block.weights is not None
        if not self.too_many_names:
            self.names.update(block.names)
            self.hashed_names.add(block.hashed_names)
            n_names = len(self.names) + len(self.hashed_names)
            if n_names > MAX_NAMES and self.options.keep_names is None:
                self.too_many_names, self.names, self.hashed_names = True, {}, NameTable()
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
        labels = self.labels.encode(block.labels)
        self._count_changes(labels)
        return replace(block, labels=labels)

    def _count_changes(self, labels: NDArray[np.float64]) -> None:
        """Count how often the label differs from that of the row before."""
        if labels.shape[1] != 1:
            return
        bits = labels[:, 0].view(np.int64)
        self.n_changes += int(np.count_nonzero(np.diff(bits)))
        if self.last_label is not None and len(bits):
            self.n_changes += int(bits[0] != self.last_label)
        self.last_label = int(bits[-1])
        self.n_labels += len(bits)

    @property
    def in_order(self) -> bool:
        """True if the rows of each of several classes are neighbours."""
        return 0 < self.n_changes < 10 and self.n_labels >= _MIN_IN_ORDER


def read_blocks(
    paths: list[str], options: Options, run: OrderedMap, summary: SourceSummary
) -> Iterator[tuple[Block, int]]:
    """Read all blocks in order, each with the number of bytes of the sources that it completes.

    `run` is what `ordered_map` yields; the `summary` gets the facts that belong to whole files.
    """
    if options.format in ARRAY_FORMATS and not all(map(is_table, paths)):
        for path in paths:
            yield from array_blocks(arrays.open_arrays(path, options), summary)
            yield NO_ROWS, source_bytes(path)
        return
    tasks = _parquet_tasks if options.format == "parquet" else _text_tasks
    all_tasks = itertools.chain.from_iterable(tasks(path, summary) for path in paths)
    for blocks in run(operator.call, all_tasks):
        yield from blocks


def array_blocks(source: arrays.ArraySource, summary: SourceSummary) -> Iterator[tuple[Block, int]]:
    """Read all blocks of arrays."""
    summary.n_features = max(summary.n_features, source.n_features)
    summary.label_columns = summary.label_columns or source.label_columns
    summary.spaces.append(source.feature_space)
    summary.names.update({name: feature for feature, name in source.names.items()})
    for block in source.blocks:
        yield _finish_block(block, summary.options), 0


def _parse_range(parse: Parser, options: Options, part: Range) -> Parsed:
    """Blocks of a part of a file, and the bytes that each completes."""
    return [
        (_parse(parse, options, part.path, chunk, offset), len(chunk))
        for chunk, offset in read_chunks(part, TASK_BYTES)
    ]


def _parse_chunk(
    parse: Parser, options: Options, path: str, chunk: bytes, offset: int, n_bytes: int
) -> Parsed:
    """The block of a chunk that was read at `offset`, and the bytes of the file for it."""
    return [(_parse(parse, options, path, chunk, offset), n_bytes)]


def _parse(parse: Parser, options: Options, path: str, chunk: bytes, offset: int) -> Block:
    block = parse(chunk, path=path, offset=offset)
    # The values of a table are final when its numbers are scaled.
    return compact(block) if isinstance(parse, TableParser) else _finish_block(block, options)


def _finish_block(block: Block, options: Options) -> Block:
    """Apply binary and norm, leave out labels that are not wanted, and make the block small."""
    if options.no_labels:
        block = replace(block, labels=np.zeros((block.n_rows, 0)))
    return compact(transform_values(block, binary=options.binary, norm=options.norm))


def _text_tasks(path: str, summary: SourceSummary) -> Iterator[Callable[[], Parsed]]:
    options = summary.options
    if "://" in path:
        raise InputError(
            f"{path}: {options.format} is read from files; copy it here, or pipe it to /dev/stdin"
        )
    ranges = plan_ranges(path, TASK_BYTES)
    if not ranges:
        return
    meter = Meter()
    chunks = read_chunks(replace(ranges[0], stop=None), TASK_BYTES, meter)
    can_seek = ranges[0].stop is not None
    if options.format in LINE_PARSERS:
        parse: Parser = partial(LINE_PARSERS[options.format], options=options)
    else:
        first = next(chunks, (b"", 0))
        parse = open_table(path, first[0], summary)
        chunks = itertools.chain([first], chunks)
        if parse.quoted:
            chunks, can_seek = cut_at_rows(path, chunks), False
    if can_seek:
        for part in ranges:
            yield partial(_parse_range, _current(parse, summary), options, part)
        return
    done = 0
    for chunk, offset in chunks:
        parse = _current(parse, summary)
        yield partial(_parse_chunk, parse, options, path, chunk, offset, meter.n_bytes - done)
        done = meter.n_bytes
    if (rest := source_bytes(path) - done) > 0:  # after the last line, such as a checksum
        yield partial(_parse_chunk, parse, options, path, b"", done, rest)


def open_table(path: str, chunk: bytes, summary: SourceSummary) -> TableParser:
    """Parser of a file of delimited text or JSON lines that begins with `chunk`."""
    parse, columns = open_text(path, chunk, summary.options, summary.encoder, summary.columns)
    summary.encoder, summary.columns = parse.encoder, summary.columns or columns
    return parse


def _current(parse: Any, summary: SourceSummary) -> Any:
    """`parse` without names if there are too many of them, and without notes after the first."""
    changes: dict[str, Any] = {}
    if summary.wrong_rows.noted_enough:
        changes["note_skipped"] = False
    if not isinstance(parse, TableParser):
        return partial(parse.func, options=replace(summary.options, **changes))
    return replace(parse, **changes, keep_names=parse.keep_names and not summary.too_many_names)


def learn_table(head: pa.RecordBatch, path: str, summary: SourceSummary) -> TableParser:
    """Parser of a table that begins with the rows `head`, from which its encoder is learned."""
    options = summary.options
    if summary.encoder is None:
        summary.encoder = learn_encoder(head, options, path, by_number=False)
        summary.columns = list(head.schema.names)
    return TableParser.of(summary.encoder, options)


def _parquet_tasks(path: str, summary: SourceSummary) -> Iterator[Callable[[], Parsed]]:
    """Tasks that parse the row groups of a table in Parquet."""
    groups = list(parquet_tasks(path))
    head = next(parquet_batches(path, *groups[0])) if groups else None
    if head is None:
        return
    parse = learn_table(head.table, path, summary)
    size = source_bytes(path)
    for group, first in groups:
        n_bytes = size * (group + 1) // len(groups) - size * group // len(groups)
        parse_now = _current(parse, summary)
        yield partial(_parse_group, parse_now, path, group, first, n_bytes)


def _parse_group(parse: TableParser, path: str, group: int, first: int, n_bytes: int) -> Parsed:
    columns = parse.encoder.column_names()
    batches = list(parquet_batches(path, group, first, columns))
    blocks = [(compact(parse.encode(batch)), 0) for batch in batches]
    return [*blocks[:-1], (blocks[-1][0], n_bytes)]
