"""Raw rows, such as those of a CSV file or of standard input, with the features of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dadagrad.data.arrays import finish_rows
from dadagrad.data.blocks import LeftOut
from dadagrad.data.dataset import Schema
from dadagrad.data.ingest.collect import plan_reading
from dadagrad.data.ingest.sources import FileSource, Source, is_raw, make_source
from dadagrad.data.ingest.workers import WorkerPool
from dadagrad.data.rows import Rows
from dadagrad.data.tables.cells import is_missing


@dataclass(frozen=True, slots=True)
class RawRows:
    """Rows with features, and what identifies each: its line, counted from 1, its tag, its label.

    `labels`, (n_rows, n_columns), are numbers or texts; None where the source has none. `file` is
    that of the rows, if there are several.
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
    """True for a list or column of texts, some maybe missing, if features were made of texts."""
    is_column = isinstance(data, list | tuple) or len(getattr(data, "shape", ())) == 1
    if not (trained.feature_space.of_text and is_column and len(data)):
        return False
    return all(isinstance(item, str) or is_missing(item) for item in data)


def read_raw(trained: Schema, data: Any, **options: Any) -> Iterator[RawRows]:
    """Read files, standard input (``-``), a data frame or texts, a chunk at a time.

    The recorded options make the features of the training data; `options` are those of `ingest`
    that may differ. Raises `InputError`, naming line
    and column, for rows that do not have its columns or their kinds.
    """
    if _are_texts(trained, data):
        text = trained.feature_space.reading["text"]
        data = pa.table({text: pa.array(list(data), pa.string(), from_pandas=True)})
    source = make_source(data)
    sources: list[Source] = [FileSource(path) for path in source.paths] or [source]
    left_out, columns = LeftOut(), list[str]()
    for each in sources:
        settings = {**options, "to_predict": True, "keep_lines": True}
        summary = plan_reading(each, settings, trained)
        summary.columns = columns or summary.columns
        first_line = 0
        for block in each.blocks(summary, WorkerPool(None)):
            left_out.add(block.skipped, block.notes)
            n_rows, lines = block.n_rows, block.lines
            if n_rows:
                yield RawRows(
                    finish_rows(summary.finish(block), np.zeros((n_rows, 0))),
                    (np.arange(n_rows) if lines is None else lines) + first_line + 1,
                    block.tags,
                    block.labels.reshape(n_rows, -1) if block.labels.size else None,
                    each.name,
                    each.name if len(sources) > 1 else None,
                )
            first_line += n_rows if lines is None else block.n_lines
        columns = columns or summary.columns
    left_out.log()
