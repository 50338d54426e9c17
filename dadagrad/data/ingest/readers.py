"""Sources into blocks of rows: tasks of parsing, in threads, processes or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

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
from dadagrad.data.ingest.options import Options
from dadagrad.data.tables.delimited import cut_at_rows
from dadagrad.data.tables.encoder import HashedNames, NameTable, TableEncoder
from dadagrad.data.tables.encoding import TableParser
from dadagrad.data.tables.sources import (
    TableGroup,
    learn_encoder,
    open_text,
    parquet_batches,
    parquet_groups,
)
from dadagrad.errors import InputError

MAX_NAMES = 1 << 20
"""Features from which names are kept only if they were asked for."""

_MIN_IN_ORDER = 1000  # rows below which an order of labels is not mentioned

NO_ROWS = Block(np.zeros(1, np.int64), np.zeros(0, np.int64), None, np.zeros((0, 1)))

Parser = Callable[..., Block]
Parsed = list[tuple[Block, int]]

LINE_PARSERS: dict[str, Parser] = {"svmlight": svmlight.parse, "vw": vw.parse}


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
    first_label: Any = None
    last_label: Any = None
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
        self._add_names(block.names, [block.hashed_names])
        if block.nnz:
            self.has_id_zero |= bool(block.ids.min() == 0)
            self.largest_id = max(self.largest_id, int(block.ids.max()))
        if not block.n_rows:
            return block
        self._check_queried(block.queries is not None)
        labels = block.labels.reshape(block.n_rows, -1)
        if labels.shape[1] == 1:
            changes = int(np.count_nonzero(labels[1:] != labels[:-1]))
            self._count_labels(changes, len(labels), labels[0, 0], labels[-1, 0])
        return replace(block, labels=self.labels.encode(block.labels))

    def _add_names(
        self, names: Mapping[str, int], hashed: Iterable[HashedNames], *, too_many: bool = False
    ) -> None:
        if self.too_many_names:
            return
        self.names.update(names)
        for each in hashed:
            self.hashed_names.add(each)
        n_names = len(self.names) + len(self.hashed_names)
        if too_many or (n_names > MAX_NAMES and self.options.keep_names is None):
            self.too_many_names, self.names, self.hashed_names = True, {}, NameTable()

    def _check_queried(self, queried: bool) -> None:
        if self.queried not in (None, queried):
            raise InputError(
                "some rows have a query (qid:N) and others have none; give sources with queries, "
                "or sources without"
            )
        self.queried = queried

    def _count_labels(self, n_changes: int, n_labels: int, first: Any, last: Any) -> None:
        """Count how often the label differs from that of the row before."""
        self.n_changes += n_changes + int(self.n_labels > 0 and first != self.last_label)
        self.first_label = self.first_label if self.n_labels else first
        self.last_label = last
        self.n_labels += n_labels

    def empty(self) -> SourceSummary:
        """A summary of no rows yet, for a part of the sources."""
        return SourceSummary(
            self.options,
            LabelEncoder(several=self.labels.several),
            LeftOut(notes=[]),
            encoder=self.encoder,
            columns=self.columns,
            learned=self.learned,
        )

    def merge(self, later: SourceSummary) -> NDArray[np.int64] | None:
        """Add the facts about later rows; return the final numbers of their text labels."""
        self.wrong_rows.merge(later.wrong_rows)
        self.zero_weight += later.zero_weight
        self.weighted |= later.weighted
        self.has_id_zero |= later.has_id_zero
        self.largest_id = max(self.largest_id, later.largest_id)
        self._add_names(later.names, later.hashed_names.pieces(), too_many=later.too_many_names)
        if later.queried is not None:
            self._check_queried(later.queried)
        if later.n_labels:
            labels = later.first_label, later.last_label
            self._count_labels(later.n_changes, later.n_labels, *labels)
        return self.labels.merge(later.labels)

    @property
    def in_order(self) -> bool:
        """True if the rows of each of several classes are neighbours."""
        return 0 < self.n_changes < 10 and self.n_labels >= _MIN_IN_ORDER


def file_tasks(
    paths: list[str], summary: SourceSummary, *, whole_streams: bool = False
) -> Iterator[Task]:
    """Tasks that read files of text and tables; each file is opened here for its first rows.

    A file that can only be read from its beginning is read here, or with `whole_streams` by one
    task.
    """
    for number, path in enumerate(paths):
        if summary.options.format == "parquet":
            yield from _parquet_tasks(path, number, summary)
        else:
            yield from _text_tasks(path, number, summary, whole_streams)


def array_blocks(source: arrays.ArraySource, summary: SourceSummary) -> Iterator[tuple[Block, int]]:
    """Read all blocks of arrays."""
    summary.n_features = max(summary.n_features, source.n_features)
    summary.label_columns = summary.label_columns or source.label_columns
    summary.spaces.append(source.feature_space)
    summary.names.update({name: feature for feature, name in source.names.items()})
    for block in source.blocks:
        yield _finish_block(block, summary.options), 0


def _parse_part(parse: Parser, options: Options, part: Range) -> Iterator[tuple[Block, int]]:
    """Blocks of a part of a file, and the bytes of the file that each completes."""
    meter, done = Meter(), None
    chunks = read_chunks(part, TASK_BYTES, meter)
    if isinstance(parse, TableParser) and parse.quoted:
        chunks = cut_at_rows(part.path, chunks)
    for chunk, offset in chunks:
        begin = offset if done is None else done
        yield _parse(parse, options, part.path, chunk, offset), meter.n_bytes - begin
        done = meter.n_bytes


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


@dataclass(frozen=True)
class Task:
    """A part of the sources, of which `parse` yields blocks; its origin is `file` and `number`."""

    file: int
    number: int
    parse: Callable[[], Iterable[tuple[Block, int]]]
    first_block: int = 0

    def __call__(self) -> Parsed:
        """Parse all blocks."""
        return list(self.blocks())

    def blocks(self) -> Iterator[tuple[Block, int]]:
        """Parse one block after the other."""
        for number, (block, n_bytes) in enumerate(self.parse(), self.first_block):
            yield replace(block, origin=(self.file, self.number, number)), n_bytes


def _text_tasks(
    path: str, file: int, summary: SourceSummary, whole_streams: bool
) -> Iterator[Task]:
    options = summary.options
    if "://" in path:
        raise InputError(
            f"{path}: {options.format} is read from files; copy it here, or pipe it to /dev/stdin"
        )
    ranges = plan_ranges(path, TASK_BYTES)
    if not ranges:
        return
    meter = Meter()
    chunks: Iterable[tuple[bytes, int]] = read_chunks(
        replace(ranges[0], stop=None), TASK_BYTES, meter
    )
    can_seek = ranges[0].stop is not None
    if options.format in LINE_PARSERS:
        parse: Parser = partial(LINE_PARSERS[options.format], options=options)
    else:
        encoder, columns = summary.encoder, summary.columns
        parse, columns, chunks = open_text(path, chunks, options, encoder, columns)
        summary.encoder, summary.columns = parse.encoder, summary.columns or columns
        can_seek &= not parse.quoted
    if can_seek:
        for number, part in enumerate(ranges):
            yield Task(file, number, partial(_parse_part, _current(parse, summary), options, part))
        return
    if whole_streams:
        yield Task(file, 0, partial(_parse_part, parse, options, Range(path, 0, None)))
        return
    done, number = 0, 0
    for number, (chunk, offset) in enumerate(chunks):
        parse, n_bytes = _current(parse, summary), meter.n_bytes - done
        parse_part = partial(_parse_chunk, parse, options, path, chunk, offset, n_bytes)
        yield Task(file, 0, parse_part, number)
        done = meter.n_bytes
    if (rest := source_bytes(path) - done) > 0:  # after the last line, such as a checksum
        parse_part = partial(_parse_chunk, parse, options, path, b"", done, rest)
        yield Task(file, 0, parse_part, number + 1)


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


def _parquet_tasks(path: str, file: int, summary: SourceSummary) -> Iterator[Task]:
    """Tasks that parse the row groups of a table in Parquet."""
    groups = list(parquet_groups(path))
    head = next(parquet_batches(path, groups[0])) if groups else None
    if head is None:
        return
    parse = learn_table(head.table, path, summary)
    size = source_bytes(path)
    for number, group in enumerate(groups):
        n_bytes = size * (number + 1) // len(groups) - size * number // len(groups)
        parse_now = _current(parse, summary)
        yield Task(file, number, partial(_parse_group, parse_now, path, group, n_bytes))


def _parse_group(parse: TableParser, path: str, group: TableGroup, n_bytes: int) -> Parsed:
    batches = parquet_batches(path, group, parse.encoder.column_names())
    blocks = [(compact(parse.encode(batch)), 0) for batch in batches]
    return [*blocks[:-1], (blocks[-1][0], n_bytes)]
