"""Raw rows, such as those of a CSV file or of standard input, with the features of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.arrays import dataset_from_arrays, finish_rows
from dadagrad.data.blocks import LeftOut
from dadagrad.data.dataset import Schema
from dadagrad.data.ingest.collect import plan_reading
from dadagrad.data.ingest.ingest import check_known
from dadagrad.data.ingest.pairs import are_texts, is_pair, split_pair
from dadagrad.data.ingest.sources import FileSource, Source, is_raw, make_source
from dadagrad.data.ingest.workers import WorkerPool
from dadagrad.data.rows import Rows


@dataclass(frozen=True, slots=True)
class RawRows:
    """Rows with features, and what identifies each: its number, its tag, its label.

    `numbers` are lines, counted from 1, of a file, and rows, counted from 0, of data in memory:
    `unit` says which. `labels`, (n_rows, n_columns), are numbers or texts; None where the source
    has none. `file` is that of the rows, if there are several.
    """

    rows: Rows
    numbers: NDArray[np.int64]
    unit: Literal["line", "row"]
    tags: NDArray[Any] | None
    labels: NDArray[Any] | None
    path: str
    file: str | None = None


def rows_to_predict(data: Any) -> Any:
    """`data` without weights, which no prediction needs; lists of numbers as a matrix."""
    if isinstance(data, list) and data and all(map(_is_row_of_numbers, data)):
        return dataset_from_arrays(data, np.zeros((len(data), 0)))
    return split_pair(data)[:2] if is_pair(data) else data


def _is_row_of_numbers(row: Any) -> bool:
    is_row = isinstance(row, list | tuple | np.ndarray) and len(row) > 0
    return is_row and isinstance(row[0], int | float | np.number)


def is_unprepared(trained: Schema, data: Any) -> bool:
    """True for rows that `read_raw` reads: those that are not a dataset or a matrix."""
    return is_raw(data) or (trained.feature_space.of_text and are_texts(data))


def read_raw(trained: Schema, data: Any, **options: Any) -> Iterator[RawRows]:
    """Read files, standard input (``-``), a data frame or texts, a chunk at a time.

    The recorded options make the features of the training data; `options` are those of `ingest`
    that may differ. Raises `InputError`, naming line and column, for rows that do not have its
    columns or their kinds.
    """
    check_known(options)
    if trained.feature_space.of_text and are_texts(data):
        data = data, None
    source = make_source(data)
    sources: list[Source] = [FileSource(path) for path in source.paths] or [source]
    left_out, columns = LeftOut(), list[str]()
    for each in sources:
        settings = {**options, "to_predict": True, "keep_lines": True}
        summary = plan_reading(each, settings, trained)
        summary.columns = columns or summary.columns
        first_line, is_file = 0, bool(each.paths)
        for block in each.blocks(summary, WorkerPool(None)):
            left_out.add(block.skipped, block.notes)
            n_rows, lines = block.n_rows, block.lines
            if n_rows:
                yield RawRows(
                    finish_rows(summary.finish(block), np.zeros((n_rows, 0))),
                    (np.arange(n_rows) if lines is None else lines) + first_line + int(is_file),
                    "line" if is_file else "row",
                    block.tags,
                    block.labels.reshape(n_rows, -1) if block.labels.size else None,
                    each.name,
                    each.name if len(sources) > 1 else None,
                )
            first_line += n_rows if lines is None else block.n_lines
        columns = columns or summary.columns
    left_out.log()
