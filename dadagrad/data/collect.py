"""Parsing all sources into the spool, and what is learned of them on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from dadagrad.data import array_files, csv_table
from dadagrad.data.arrays import drop_zero_weights
from dadagrad.data.blocks import Block
from dadagrad.data.dataset import LabelColumn
from dadagrad.data.labels import LabelEncoder
from dadagrad.data.locate import source_bytes
from dadagrad.data.options import ARRAY_FORMATS, Options
from dadagrad.data.parallel import Crew
from dadagrad.data.readers import TextReader, finish_block, run_task
from dadagrad.data.spool import Spool
from dadagrad.errors import InputError


@dataclass
class Seen:
    """What is known of the sources when all were read."""

    labels: LabelEncoder
    skipped: int = 0
    zero_weight: int = 0
    weighted: bool = False
    queried: bool | None = None
    smallest_id: int | None = None
    largest_id: int = -1
    n_features: int = 0
    names: dict[int, str] = field(default_factory=dict)
    table: csv_table.Table | None = None
    label_columns: tuple[LabelColumn, ...] | None = None
    spaces: list[dict[str, Any] | None] = field(default_factory=list)

    def add(self, block: Block) -> Block:
        """Take note of a block; returns it as it goes to the spool."""
        block, dropped = drop_zero_weights(block)
        self.zero_weight += dropped
        self.skipped += block.skipped
        self.weighted |= block.weights is not None
        self.names.update(block.names)
        if block.nnz:
            smallest = int(block.ids.min())
            known = self.smallest_id
            self.smallest_id = smallest if known is None else min(known, smallest)
            self.largest_id = max(self.largest_id, int(block.ids.max()))
        if not block.n_rows:
            return block
        queried = block.queries is not None
        if self.queried not in (None, queried):
            raise InputError(
                "some of the sources say which query a row belongs to (qid:N) and others do not; "
                "give only the ones or the others"
            )
        self.queried = queried
        return replace(block, labels=self.labels.encode(block.labels))


def collect(
    paths: list[str],
    options: Options,
    crew: Crew,
    spool: Spool,
    report: Callable[[int, int], None],
) -> Seen:
    """Parse all sources into the spool."""
    seen = Seen(LabelEncoder(several=options.format == "svmlight"))
    done = 0
    for block, n_bytes in _blocks(paths, options, crew, seen):
        block = seen.add(block)
        if block.n_rows:
            spool.append(block)
        done += n_bytes
        report(done, spool.n_rows)
    spool.finish()
    return seen


def _blocks(
    paths: list[str], options: Options, crew: Crew, seen: Seen
) -> Iterator[tuple[Block, int]]:
    """All blocks, in order, and how many more bytes of the sources are done with each."""
    if options.format not in ARRAY_FORMATS:
        reader = TextReader(options)
        for task, blocks in crew.run(partial(run_task, options), reader.tasks(paths)):
            for number, block in enumerate(blocks):
                yield block, task.n_bytes if number == len(blocks) - 1 else 0
        seen.table = reader.table
        return
    for path in paths:
        source = _open_arrays(path, options)
        seen.n_features = max(seen.n_features, source.n_features)
        seen.label_columns = seen.label_columns or source.label_columns
        seen.spaces.append(source.feature_space)
        seen.names.update(source.names)
        for block in source.blocks:
            yield finish_block(block, options), 0
        yield (
            Block(np.zeros(1, np.int64), np.zeros(0, np.int64), None, np.zeros((0, 1))),
            (source_bytes(path)),
        )


def _open_arrays(path: str, options: Options) -> array_files.ArraySource:
    if options.format == "npz":
        return array_files.open_npz(path, no_labels=options.no_labels)
    if options.format == "anndata":
        column = "label" if options.label_column is None else str(options.label_column)
        return array_files.open_anndata(path, None if options.no_labels else column)
    return array_files.open_stored(path, no_labels=options.no_labels)
