"""Sources of rows: files, tables in memory, matrices with labels, datasets, dask collections.

`make_source` says what a value is; a source then yields blocks of rows, whatever its kind.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse
from numpy.typing import NDArray

from dadagrad.data.arrays import block_from_arrays, dataset_from_arrays
from dadagrad.data.blocks import Block, compact
from dadagrad.data.dask_blocks import BlockedMatrix, as_matrix, is_dask, is_dask_frame
from dadagrad.data.dataset import Dataset
from dadagrad.data.feature_space import FeatureSpace
from dadagrad.data.ingest.arrays import matrix_source, open_arrays, open_datasets, stored_source
from dadagrad.data.ingest.pairs import (
    RowOptions,
    are_dicts,
    are_texts,
    is_pair,
    labelled_blocks,
    labelled_table,
    labelled_texts,
    split_pair,
)
from dadagrad.data.ingest.readers import (
    NO_ROWS,
    Task,
    array_blocks,
    file_tasks,
    learn_table,
    read_all,
    transform,
)
from dadagrad.data.ingest.summary import SourceSummary
from dadagrad.data.ingest.workers import BlockTask, WorkerPool
from dadagrad.data.reading.names import expand, guess_format, local_path, names_format
from dadagrad.data.reading.options import ARRAY_FORMATS, Format, Options
from dadagrad.data.tables.encoding import TableParser
from dadagrad.data.tables.formats import BATCH_ROWS, is_frame, table_batches, to_table
from dadagrad.data.tables.parquet import is_table
from dadagrad.errors import InputError
from dadagrad.storage.files import SourceFile, is_file, is_url, map_files
from dadagrad.summary import listed

BlocksTask = Callable[[], Iterable[Block]]
"""Reader of blocks."""

_GROUP_TASKS, _BLOCKS_AHEAD = 32, 8  # 128 and 32 MiB of text

ACCEPTED = (
    "give a path or URL (of a dataset, or of files of rows), a data frame (a lazy one by "
    "collect()), a list of dicts (a row by to_dict()), or a pair (X, y) of a matrix and its labels"
)


class Source:
    """Rows before they are a dataset.

    Attributes
    ----------
    name : str
        Name in messages.
    paths : list of str
        Files that are read; none for rows in memory.
    row_options : dict
        The options of `ingest` that name the columns of labels, weights and texts, if the
        source knows them.
    """

    name: str = "the table"
    paths: list[str] = []  # noqa: RUF012
    row_options: RowOptions = {}  # noqa: RUF012

    @cached_property
    def files(self) -> list[SourceFile]:
        """The files, in the versions in which they are read."""
        return map_files(SourceFile.look_up, self.paths)

    @property
    def n_bytes(self) -> int:
        """Size of the files in bytes, compressed if they are; pipes count as 0."""
        return sum(file.size for file in self.files)

    def guess_format(self) -> Format:
        """Format of the rows; tables in memory are read as those in Parquet are."""
        return "parquet"

    def dataset(self, known: Format | None) -> Dataset | None:
        """The dataset that the rows of a format are already; None if they are raw."""
        return None

    def tasks(self, summary: SourceSummary, run: WorkerPool) -> Iterator[BlocksTask] | None:
        """Tasks for the workers of a cluster; None if rows can only be read here."""
        return None

    def blocks(self, summary: SourceSummary, run: WorkerPool) -> Iterator[Block]:
        """Yield all blocks in order.

        `run` are workers; the `summary` gets facts about the whole source.
        """
        return chain.from_iterable(run(_parse, self.tasks(summary, run) or ()))


def _parse(task: BlocksTask) -> Iterable[Block]:
    """Blocks of a task; where a small file holds many, the later ones are parsed when needed."""
    blocks = iter(task())
    return chain(list(itertools.islice(blocks, _BLOCKS_AHEAD)), blocks)


class FileSource(Source):
    """Files, folders and globs; ``-`` is standard input."""

    def __init__(self, paths: Any) -> None:
        self.paths = expand(paths)
        self.name = listed(self.paths, 3)

    def guess_format(self) -> Format:
        first, *others = self.paths
        known = guess_format(first)
        for path in others:
            may_differ = os.path.isdir(path) or names_format(path) not in (None, known)
            if may_differ and (other := guess_format(path)) != known:
                kinds = f"{_described_file(first, known)} and {_described_file(path, other)}"
                raise InputError(
                    f"{kinds}; files that are read together have one format: make a dataset of "
                    "each with `dadagrad ingest` (of the second with --like FIRST), and give the "
                    "datasets"
                )
        return known

    def tasks(self, summary: SourceSummary, run: WorkerPool) -> Iterator[BlocksTask] | None:
        are_files = all(file.version for file in self.files)
        if self._has_arrays(summary.options.format) or not are_files:
            return None
        tasks = file_tasks(self.files, summary, whole_streams=True)
        groups = iter(lambda: tuple(itertools.islice(tasks, _GROUP_TASKS)), ())
        return (partial(read_all, group) for group in groups)

    def blocks(self, summary: SourceSummary, run: WorkerPool) -> Iterator[Block]:
        options = summary.options
        if not self._has_arrays(options.format):
            yield from chain.from_iterable(run(_parse, file_tasks(self.files, summary)))
            return
        if (stored := self.dataset(options.format)) is not None:
            yield from array_blocks(stored_source(stored, options), summary)
            yield replace(NO_ROWS, source_bytes=self.n_bytes)
            return
        for file in self.files:
            yield from array_blocks(open_arrays(file.path, options), summary)
            yield replace(NO_ROWS, source_bytes=file.size)

    def dataset(self, known: Format | None) -> Dataset | None:
        folder = next(filter(os.path.isdir, self.paths), None)
        if folder is not None and known not in (None, "parquet"):
            raise InputError(
                f"{folder} is a dataset, which has its features already, and the format is "
                f"{known}; leave --format out"
            )
        return self._stored if known == "parquet" and self._has_arrays(known) else None

    @cached_property
    def _stored(self) -> Dataset:
        return open_datasets(self.paths)

    def _has_arrays(self, known: Format) -> bool:
        return known in ARRAY_FORMATS and not self._are_tables

    @cached_property
    def _are_tables(self) -> bool:
        return any(map_files(is_table, self.files)) and not any(map(os.path.isdir, self.paths))


@dataclass
class FrameSource(Source):
    """A table in memory of pandas, polars, pyarrow, or any library whose tables Arrow can read."""

    frame: Any
    row_options: RowOptions = field(default_factory=dict)

    def blocks(self, summary: SourceSummary, run: WorkerPool) -> Iterator[Block]:
        table = to_table(self.frame, self.name)
        parse = learn_table([table], self.name, summary)
        yield from map(compact, _encode(parse, table, self.name))


@dataclass
class DatasetSource(Source):
    """A dataset, whose rows have their features already."""

    data: Dataset
    name = "the dataset"

    def dataset(self, known: Format | None) -> Dataset:
        return self.data

    def blocks(self, summary: SourceSummary, run: WorkerPool) -> Iterator[Block]:
        return array_blocks(stored_source(self.data, summary.options), summary)


@dataclass
class MatrixSource(Source):
    """A matrix of NumPy or SciPy, and the labels and weights of its rows."""

    X: Any
    y: Any = None
    weights: Any = None
    name = "the arrays"

    def guess_format(self) -> Format:
        return "npz"

    def blocks(self, summary: SourceSummary, run: WorkerPool) -> Iterator[Block]:
        if self.y is None and not summary.options.no_labels:
            raise _no_labels(_described(self.X))
        X: Any = self.X if hasattr(self.X, "shape") else np.asarray(self.X)
        X = X.tocsr() if scipy.sparse.issparse(X) else X  # others have no slices of rows
        y, weights = (None if each is None else np.asarray(each) for each in (self.y, self.weights))
        return array_blocks(matrix_source(self.name, X, y, weights), summary)

    def to_dataset(self, shuffle: int | None) -> Dataset:
        """Return a dataset in memory, with shuffled rows."""
        y = np.zeros((np.shape(self.X)[0], 0)) if self.y is None else self.y
        return dataset_from_arrays(self.X, y, sample_weight=self.weights, shuffle=shuffle)


@dataclass
class DaskMatrixSource(Source):
    """A dask array, or a data frame of numbers, and its labels and weights in memory.

    A block is computed where it is parsed.
    """

    matrix: BlockedMatrix
    y: NDArray[Any] | None = None
    weights: NDArray[Any] | None = None
    name = "the dask collection"

    def guess_format(self) -> Format:
        return "npz"

    def tasks(self, summary: SourceSummary, run: WorkerPool) -> Iterator[BlockTask]:
        width = self.matrix.n_features
        summary.add_matrix(self.name, width, FeatureSpace())
        if self.y is None and not summary.options.no_labels:
            raise _no_labels(self.name)
        labels, weights = map(self.matrix.split, (self.y, self.weights))
        for number, (block, *columns) in enumerate(
            zip(self.matrix.blocks, labels, weights, strict=True)
        ):
            place = f"{self.name}, block {number}"
            parse = partial(_parse_matrix, summary.options, width, place, *columns)
            yield BlockTask(Task(number, 0, parse), block)


@dataclass
class DaskFrameSource(Source):
    """Blocks of a dask data frame, each of which is computed where it is parsed."""

    frames: list[Any]
    row_options: RowOptions = field(default_factory=dict)
    name = "the dask data frame"

    def tasks(self, summary: SourceSummary, run: WorkerPool) -> Iterator[BlockTask]:
        first_rows = operator.methodcaller("head", BATCH_ROWS)
        heads = run(operator.call, (BlockTask(first_rows, block) for block in self.frames))
        parse = learn_table((to_table(head, self.name) for head in heads), self.name, summary)
        for number, block in enumerate(self.frames):
            parse_block = partial(_parse_partition, parse, f"{self.name}, block {number}")
            yield BlockTask(Task(number, 0, parse_block), block)


def _parse_matrix(
    options: Options, width: int, name: str, y: Any, weights: Any, block: Any
) -> list[Block]:
    X = as_matrix(block, name)
    n_rows = X.shape[0] if y is None else len(y)
    if X.shape != (n_rows, width):
        raise InputError(
            f"{name}: X has shape {X.shape}; with as many rows as y and the columns of the whole "
            f"it would be {(n_rows, width)}"
        )
    rows = block_from_arrays(X, np.zeros((n_rows, 0)) if y is None else y, weights, name)
    return [transform(rows, options)]


def _parse_partition(parse: TableParser, name: str, frame: Any) -> Iterator[Block]:
    if not len(frame):  # whose columns may have lost their kinds
        return iter(())
    return _encode(parse, to_table(frame, name), name)


def _encode(parse: TableParser, table: pa.Table, name: str) -> Iterator[Block]:
    """Blocks of a table in memory, of which options may give columns by number."""
    return map(parse.numbered(table.column_names).encode, table_batches(table, name))


def make_source(data: Any) -> Source:
    """The source that `data` are; raises `InputError` naming what is accepted."""
    if isinstance(data, Source):
        return data
    if isinstance(data, Dataset):
        return DatasetSource(data)
    X, y, weights = split_pair(data)
    if y is None and weights is not None:
        raise InputError("weights are given without labels; give (X, y, weights)")
    if is_dask_frame(X):
        blocks = (X.to_delayed(),) if y is None else labelled_blocks(X, y, weights)
        return DaskFrameSource(*blocks)
    if is_dask(X):
        matrix = BlockedMatrix(X)
        return DaskMatrixSource(matrix, matrix.gather(y, "y"), matrix.gather(weights, "weights"))
    if are_dicts(X):
        X = to_table(X, FrameSource.name)
    if is_pair(data) and are_texts(X):
        return FrameSource(*labelled_texts(X, y, weights))
    if is_frame(X):
        return FrameSource(*((X,) if y is None else labelled_table(X, y, weights)))
    if is_pair(data) or scipy.sparse.issparse(X) or len(getattr(X, "shape", ())) == 2:
        return MatrixSource(X, y, weights)
    paths = data if isinstance(data, list | tuple) else [data]
    if all(isinstance(path, str | os.PathLike) for path in paths):
        return FileSource(data)
    raise InputError(f"the data are {_described(data)}; {ACCEPTED}")


def is_raw(data: Any) -> bool:
    """True for rows that `ingest` reads and `open_dataset` does not: tables, raw files, pipes."""
    if isinstance(data, str | os.PathLike):
        return _is_raw_path(local_path(data))
    if is_pair(data):
        X = data[0]
        if are_texts(X) or are_dicts(X):
            return True
        data = X
    elif isinstance(data, list | tuple):
        return bool(data) and all(isinstance(row, dict) or is_raw(row) for row in data)
    return is_frame(data) or is_dask_frame(data)


def _is_raw_path(path: str) -> bool:
    """True for a raw file, and for a folder or a glob whose first file with a known name is one."""
    if path == "-":
        return True
    if is_url(path) or os.path.isdir(path) or not os.path.exists(path):
        files: list[str] = []
        with suppress(InputError):  # a dataset or its place may be empty
            files = expand(path)
        path = next(filter(names_format, files), path)
    is_known = names_format(path) or is_file(path) if is_url(path) else os.path.exists(path)
    if not is_known or os.path.isdir(path):
        return False
    return not path.endswith((".parquet", ".pq")) or is_table(SourceFile.look_up(path))


def _described_file(path: str, kind: Format) -> str:
    return f"{path} is {'a dataset' if os.path.isdir(path) else kind}"


def _no_labels(data: str) -> InputError:
    return InputError(
        f"the data are {data} without labels; give a pair (X, y), or no_labels=True for rows to be "
        "predicted"
    )


def _described(data: Any) -> str:
    if isinstance(data, int | float | np.number):
        return "numbers without rows (one row of two numbers is [[1.0, 2.0]])"
    kind = f"{type(data).__module__.partition('.')[0]} {type(data).__name__}"
    shape = f" of shape {data.shape}" if hasattr(data, "shape") else ""
    return f"a {kind.removeprefix('builtins ')}{shape}"
