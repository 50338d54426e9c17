"""Facts about the rows of all sources, which are complete after the last block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.arrays import drop_zero_weights
from dadagrad.data.blocks import Block, LeftOut
from dadagrad.data.dataset import LabelColumn, Schema
from dadagrad.data.feature_space import FeatureSpace
from dadagrad.data.labels import LabelCollector
from dadagrad.data.reading.options import MATRIX_FORMATS, Delimiter, Options
from dadagrad.data.tables.columns import PLURALS
from dadagrad.data.tables.encoder import Names, NameTable, TableEncoder
from dadagrad.data.tables.formats import TextOpener
from dadagrad.data.views import check_columns
from dadagrad.errors import InputError

_MAX_SHOWN = 6  # classes, or columns of a kind, in the description of a dataset
MAX_NAMES = 1 << 20
"""Features from which names are kept only if they were asked for."""


@dataclass
class SourceSummary:
    """Facts about all sources, complete when the last block was added.

    Ids, and columns of a matrix, are to be those of `like`, if it is given. The `encoder` of
    tables, which have the `columns`, was `learned` before, or from the first rows. The `delimiter`
    is that of the first file. If nobody gave the format, it `refuses_json` where it expects other
    lines. Lines are counted over all sources in their order.
    """

    options: Options
    like: Schema | None = None
    labels: LabelCollector = field(init=False)
    wrong_rows: LeftOut = field(default_factory=LeftOut)
    zero_weight: int = 0
    weighted: bool = False
    queried: bool | None = None
    has_id_zero: bool = False
    largest_id: int = -1
    n_features: int = 0
    names: NameTable = field(default_factory=NameTable)
    too_many_names: bool = False
    encoder: TableEncoder | None = None
    columns: list[str] = field(default_factory=list)
    delimiter: Delimiter | None = None
    learned: bool = False
    refuses_json: bool = False
    label_columns: tuple[LabelColumn, ...] | None = None
    spaces: list[FeatureSpace] = field(default_factory=list)
    n_lines: int = 0
    lines_of_files: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        options = self.options
        self.labels = LabelCollector(
            several=options.format == "svmlight",
            always=options.multilabel and not options.no_labels,
        )

    @property
    def current_options(self) -> Options:
        """The options, without names if there are too many of them."""
        return replace(self.options, keep_names=False) if self.too_many_names else self.options

    @property
    def opener(self) -> TextOpener:
        """The opener of the next file."""
        return TextOpener(self.current_options, self.encoder, self.columns, self.refuses_json)

    def feature_names(self) -> dict[int, str]:
        """Names by feature; of several names of one feature the first."""
        if self.encoder is None:
            return self.names.by_feature(lambda ids: ids)
        return self.names.by_feature(self.encoder.features_of) | self.encoder.names_of_numbers()

    @property
    def named_labels(self) -> tuple[LabelColumn, ...] | None:
        """Columns of labels that have names in the source."""
        if self.encoder is None or len(self.encoder.rows.labels) < 2:
            return self.label_columns
        return tuple(map(LabelColumn, self.encoder.rows.labels))

    @property
    def left_out(self) -> list[str]:
        """Columns of a table that nobody chose to ignore, and that are no features."""
        options, encoder = self.options, self.encoder
        if encoder is None or self.learned or options.columns is not None:
            return []
        read = {*encoder.column_names(), *map(str, options.ignore)}
        return [
            name
            for number, name in enumerate(self.columns)
            if name not in read and str(number) not in read
        ]

    @property
    def collisions(self) -> int | None:
        """Hashed names that share their feature with another; None if names were not kept."""
        if self.encoder is None or self.too_many_names or self.options.keep_names is False:
            return None
        return self.names.collisions(self.encoder.features_of)

    @property
    def first_id(self) -> int:
        """Id that becomes 0 in the dataset."""
        if self.options.format != "svmlight" or self.options.zero_based:
            return 0
        return int(not self.has_id_zero)

    def add(self, block: Block) -> Block:
        """Add a block; return it without rows of weight 0, with encoded labels and lines."""
        if block.lines is not None:
            block = replace(block, lines=block.lines + self.n_lines)
        self._count_lines(Counter({block.origin[0] if block.origin else 0: block.n_lines}))
        block, dropped = drop_zero_weights(block)
        self.zero_weight += dropped
        self.wrong_rows.add(block.skipped, block.notes)
        self.weighted |= block.weights is not None
        self._add_names([block.names])
        if block.nnz:
            self.has_id_zero |= bool(block.ids.min() == 0)
            self.largest_id = max(self.largest_id, int(block.ids.max()))
        if not block.n_rows:
            return block
        self._check_queried(block.queries is not None)
        return replace(block, labels=self.labels.encode(block.labels))

    def finish(self, block: Block) -> Block:
        """Return a block with its final values and ids."""
        if self.encoder is not None:
            block = self.encoder.finish(block)
        if self.first_id:
            block = replace(block, ids=block.ids - block.ids.dtype.type(self.first_id))
        return block

    @property
    def n_needed(self) -> int | None:
        """Number of features, if `like` has a fixed one."""
        like = self.like
        return None if like is None or like.feature_space.keeps_ids else like.n_features

    def add_matrix(self, place: str, n_features: int, space: FeatureSpace) -> None:
        """Add the columns of a matrix; raise `InputError` if others are needed."""
        self.n_features = max(self.n_features, n_features)
        self.spaces.append(space)
        if self.options.format in MATRIX_FORMATS:
            schema = Schema(n_features, (), feature_space=space)
            first = replace(schema, feature_space=self.spaces[0])
            check_columns(first, schema, place, "the first file")
            if self.like is not None:
                check_columns(self.like, schema, place, "the model or dataset")

    def _count_lines(self, lines_of_files: Counter[int]) -> None:
        self.lines_of_files.update(lines_of_files)
        self.n_lines += lines_of_files.total()

    def _add_names(self, pieces: Iterable[Names], *, too_many: bool = False) -> None:
        if self.too_many_names:
            return
        for names in pieces:
            self.names.add(names)
        if too_many or (len(self.names) > MAX_NAMES and self.options.keep_names is None):
            self.too_many_names, self.names = True, NameTable()

    def _check_queried(self, queried: bool) -> None:
        if self.queried not in (None, queried):
            raise InputError(
                "some rows have a query (qid:N, or the column --query) and others have none; give "
                "sources with queries, or sources without"
            )
        self.queried = queried

    def merge(self, later: SourceSummary) -> NDArray[np.int64] | None:
        """Add the facts about later rows; return the final numbers of their text labels."""
        self.wrong_rows.add(later.wrong_rows.n_rows, later.wrong_rows.notes)
        self.zero_weight += later.zero_weight
        self.weighted |= later.weighted
        self.has_id_zero |= later.has_id_zero
        self.largest_id = max(self.largest_id, later.largest_id)
        self._count_lines(later.lines_of_files)
        self._add_names(later.names.pieces(), too_many=later.too_many_names)
        if later.queried is not None:
            self._check_queried(later.queried)
        return self.labels.merge(later.labels)


def describe(schema: Schema, left_out: Sequence[str] = ()) -> str:
    """The columns that were read as label and as features, and those `left_out`."""
    space, parts = schema.feature_space, []
    encoder = TableEncoder.of_space(space) if space.of_table else None
    columns = space.reading.get("columns", [])

    def place(name: str) -> str:
        number = str(columns.index(name)) if name in columns else ""
        return " ".join(filter(None, ["column", number, repr(name) if name != number else ""]))

    labels = schema.label_columns
    if len(labels) > 1:
        shown = ", ".join(f"{each.name} ({_classes(each)})" for each in labels[:_MAX_SHOWN])
        parts.append(f"labels: {shown}{', ...' if len(labels) > _MAX_SHOWN else ''}")
    elif labels:
        classes = _classes(labels[0])
        if encoder and encoder.rows.labels:
            classes = f"{place(encoder.rows.labels[0])} ({classes})"
        parts.append(f"label: {classes}")
    if encoder and schema.weighted and encoder.rows.weight:
        parts.append(f"weight: {place(encoder.rows.weight)}")
    if encoder and schema.queried and encoder.rows.query:
        parts.append(f"query: {place(encoder.rows.query)}")
    kinds: dict[str, list[str]] = {}
    for described in encoder.columns if encoder else ():
        kinds.setdefault(described.kind, []).append(described.name)
    for kind, names in kinds.items():
        more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
        parts.append(f"{PLURALS[kind]}: {', '.join(map(place, names[:_MAX_SHOWN]))}{more}")
    if left_out:
        parts.append(f"left out: {', '.join(map(place, left_out[:_MAX_SHOWN]))}")
    return "; ".join(parts)


def _classes(column: LabelColumn) -> str:
    if column.values is None or column.counts is None:
        return "numbers"
    pairs = list(zip(column.texts, column.counts, strict=True))
    shown = ", ".join(f"{name} {count:,}" for name, count in pairs[:_MAX_SHOWN])
    return f"{shown}{', ...' if len(pairs) > _MAX_SHOWN else ''}"
