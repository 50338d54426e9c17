"""Reading Parquet as it is: list columns of feature ids and values, a label, perhaps a weight.

Row groups are the partitions. A partition's vocabulary is found each time it is read, and the
labels are scanned once when the dataset is opened: training from Parquet costs more than from the
project's own format. For many passes, ingest it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c

from dadagrad.data.dataset import (
    MAX_FEATURES,
    MAX_LISTED_VALUES,
    Dataset,
    LabelColumn,
    Partition,
    Schema,
)
from dadagrad.data.parquet.columns import ColumnReader, find_columns
from dadagrad.data.parquet.footer import RowGroup, read_row_groups
from dadagrad.data.rows import Rows, row_of
from dadagrad.errors import (
    CorruptionError,
    DadagradError,
    InputError,
    OutOfMemory,
    StorageError,
    lacks_memory,
)
from dadagrad.storage.backends import Version
from dadagrad.storage.store import Storage

N_FEATURES_KEY = b"dadagrad.n_features"
_MAX_REASON = 300
# pyarrow raises errors of its own for a damaged file, and many of Python's.
_ARROW_ERRORS = (pa.ArrowException, OSError, ArithmeticError, LookupError, MemoryError,
                 RuntimeError, TypeError, ValueError)  # fmt: skip
_SUFFIXES = (".parquet", ".pq")


def find_files(storage: Storage) -> list[str]:
    """The keys of all Parquet files; the key of `storage` itself is ''."""
    if storage.url.lower().endswith(_SUFFIXES) and storage.exists(""):
        return [""]
    # Other writers keep notes under names that start with '_' or '.'.
    return [
        key
        for key in storage.list_if_possible()
        if key.lower().endswith(_SUFFIXES)
        and not any(name.startswith(("_", ".")) for name in key.split("/"))
    ]


class ParquetDataset(Dataset):
    """A Parquet file, or a folder of them with the same columns.

    Needed are the columns ``indices`` (list of integers: sorted, distinct, non-negative) and,
    unless the rows are to be predicted only, ``label`` or several whose names start with
    ``label``; ``values`` (list of floats, as long as the indices), ``weight`` and ``query`` (a
    whole number, for rankings: rows of one query must be neighbours in one row group) are optional.

    The number of features is that of the schema metadata ``dadagrad.n_features``, or one more than
    the largest index, from the column statistics or else from a scan. In `partitions`, ``n_local``
    is an upper bound, and a checksum covers the row group's metadata in the footer: a file that was
    written again with other values but the same sizes and statistics has the same.

    Checksums of pages are compared where the file has them. The content of a row group must be that
    of its first reading, by any process of a run, also if the run is resumed.
    """

    def __init__(self, url: str) -> None:
        self._storage = Storage(url)
        self.url = self._storage.url
        self._files = find_files(self._storage)
        if not self._files:
            raise InputError(f"no Parquet file at {self.url}; give one, or a folder of *.parquet")
        self._versions: list[Version] = []
        self._footers: list[pq.FileMetaData] = []
        self._groups: list[tuple[int, RowGroup]] = []  # with the numbers of their files
        self._columns: dict[str, str] = {}
        for file in range(len(self._files)):
            self._open(file)
        if not self._groups:
            raise InputError(f"{self.url} has no rows; give at least one")
        self._label_names = [name for name in self._columns if name.startswith("label")]
        self._codes: dict[str, dict[str, float]] = {}
        self._content: dict[str, int] = {}
        self.schema = Schema(
            self._count_features(),
            tuple(self._describe_label(name) for name in self._label_names),
            "weight" in self._columns,
            queried="query" in self._columns,
        )
        self.partitions = tuple(self._partition(number) for number in range(len(self._groups)))

    def read(self, partition: int) -> Rows:
        """Read and check partition number `partition`.

        Raises `InputError`, naming file, row group and row, for entries that are null, negative,
        unsorted, duplicate or not finite, and `CorruptionError` for a file that does not decode.
        """
        place, n_rows = self._place(partition), self.partitions[partition].n_rows
        table = self._table(partition, list(self._columns))
        if table.num_rows != n_rows:
            raise CorruptionError(
                f"{place} has {table.num_rows} rows where the footer says {n_rows}; write or copy "
                "the file again"
            )
        columns = ColumnReader(table, place)
        indptr, ids = columns.lists("indices", np.int64)
        # As unsigned numbers, negative ids are too large.
        wrong = ids.view(np.uint64) >= self.schema.n_features
        if wrong.any():
            entry = int(wrong.argmax())
            raise InputError(
                f"{place}: row {row_of(indptr, entry)} has feature {ids[entry]}; ids run from 0 to "
                f"{self.schema.n_features - 1}"
            )
        values = weights = queries = None
        if "values" in self._columns:
            ends, values = columns.lists("values", np.float32)
            if not np.array_equal(indptr, ends):
                row = int(np.flatnonzero(indptr[1:] != ends[1:])[0])
                raise InputError(
                    f"{place}: row {row} has {indptr[row + 1] - indptr[row]} indices and "
                    f"{ends[row + 1] - ends[row]} values; they must be as many"
                )
            if (values == 1).all():
                values = None
        labels = np.empty((n_rows, len(self._label_names)), np.float64)
        for number, name in enumerate(self._label_names):
            labels[:, number] = columns.labels(name, self._codes.get(name))
        if "weight" in self._columns:
            weights = columns.numbers("weight", np.float32)
        if "query" in self._columns:
            queries = columns.numbers("query", np.int64)
        rows = Rows.from_csr(indptr, ids, values, labels, weights, queries=queries)
        rows.check(place)
        optional = (rows.values, rows.weights, rows.queries)
        checksum = 0
        for checked in (rows.vocabulary, rows.indptr, rows.indices, rows.labels, *optional):
            if checked is not None:
                checksum = crc32c(checked.data, checksum)
        self.compare_content({self.partitions[partition].name: checksum})
        return rows

    @property
    def content(self) -> dict[str, int]:
        return self._content

    def _name(self, file: int) -> str:
        key = self._files[file]
        return f"{self.url}/{key}" if key else self.url

    def _place(self, partition: int) -> str:
        file, group = self._groups[partition]
        return f"{self._name(file)}, row group {group.number}"

    def _open(self, file: int) -> None:
        """Read the footer of a file, and compare its columns with those of the first."""
        name, version = self._name(file), self._storage.version(self._files[file])
        with self._storage.open(self._files[file], version) as source:
            groups = read_row_groups(source, name)
            with _arrow_errors(InputError, f"{name} is not a whole Parquet file", "write it again"):
                footer = pq.ParquetFile(source).metadata
                schema = footer.schema.to_arrow_schema()
                names = Counter(schema.names)  # raises if a name is not UTF-8
        if len(names) < len(schema.names):
            column = min(column for column, count in names.items() if count > 1)
            raise InputError(f"{name} has two columns {column[:60]!r}; rename one")
        columns = find_columns(schema, name)
        self._columns = self._columns or columns
        if columns != self._columns:
            raise InputError(
                f"{name} has the columns {columns} where {self._name(0)} has {self._columns}; all "
                "files need the same"
            )
        self._versions.append(version)
        self._footers.append(footer)
        self._groups += [(file, group) for group in groups if group.n_rows]

    def _table(self, partition: int, columns: list[str]) -> pa.Table:
        (file, group), place = self._groups[partition], self._place(partition)
        with self._storage.open(self._files[file], self._versions[file]) as source:
            return read_row_group(source, group, place, columns, self._footers[file])

    def _describe_label(self, name: str) -> LabelColumn:
        """The distinct values of a label column, from a scan of it."""
        text = self._columns[name] == "text"
        counts: Counter[Any] = Counter()
        for partition in range(len(self._groups)):
            columns = ColumnReader(self._table(partition, [name]), self._place(partition))
            counts.update(columns.label_counts(name))
            if not text and len(counts) > MAX_LISTED_VALUES:
                return LabelColumn(name)
        if len(counts) > MAX_LISTED_VALUES:
            raise InputError(
                f"{self.url}: column {name!r} has {len(counts)} distinct texts; at most "
                f"{MAX_LISTED_VALUES} classes are possible"
            )
        column = LabelColumn.of_counts(name, counts)
        if text:
            self._codes[name] = dict(zip(column.texts, column.values or (), strict=True))
        return column

    def _count_features(self) -> int:
        declared: list[Any] = [
            (footer.metadata or {}).get(N_FEATURES_KEY) for footer in self._footers
        ]
        if None in declared:
            return 1 + max(self._largest_id(partition) for partition in range(len(self._groups)))
        for text in declared:
            if not text.isdigit() or len(text) > 20 or not 0 < int(text) <= MAX_FEATURES:
                raise InputError(
                    f"{self.url}: the schema metadata {N_FEATURES_KEY.decode()} is {text[:40]!r}; "
                    "needed is a positive integer"
                )
        return max(map(int, declared))

    def _largest_id(self, partition: int) -> int:
        """The largest index of a row group, or -1 if it has none."""
        largest = self._groups[partition][1].maximum
        if largest is None:
            column = self._table(partition, ["indices"]).column("indices")
            scanned = pc.max(pc.list_flatten(column)).as_py()
            largest = -1 if scanned is None else int(scanned)
        if not -1 <= largest < MAX_FEATURES:
            raise InputError(
                f"{self._place(partition)}: the largest feature is {largest}; ids run from 0 to "
                f"{MAX_FEATURES - 1}"
            )
        return largest

    def _partition(self, number: int) -> Partition:
        file, group = self._groups[number]
        key = self._files[file]
        content = json.dumps([key, group.number, group.digest])
        checksum = hashlib.sha256(content.encode()).hexdigest()
        n_local = min(group.nnz, self.schema.n_features)
        name = f"{key or 'file'}:{group.number}"
        return Partition(name, group.n_rows, group.nnz, n_local, checksum)


def read_row_group(
    file: BinaryIO | str,
    group: RowGroup,
    place: str,
    columns: list[str] | None,
    footer: pq.FileMetaData | None = None,
) -> pa.Table:
    """Read these columns of a row group, or all; `place` is its name in messages.

    Raises `OutOfMemory` before it is read, and `CorruptionError` if it cannot be decoded.
    """
    group.check_memory(place, columns)
    problem, advice = f"{place} cannot be decoded", "write or copy the file again"
    with _arrow_errors(CorruptionError, problem, advice):
        reader = pq.ParquetFile(
            file,
            metadata=footer,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit="us",  # nanoseconds end in 2262, and dates of Spark do not
        )
        return reader.read_row_group(group.number, columns=columns, use_threads=False)


@contextmanager
def _arrow_errors(kind: type[DadagradError], problem: str, advice: str) -> Iterator[None]:
    """Raise errors of pyarrow in one line: as `kind`, if the bytes are at fault."""
    try:
        yield
    except DadagradError:
        raise
    except _ARROW_ERRORS as error:
        reason = str(error).strip().partition("\n")[0][:_MAX_REASON] or type(error).__name__
        if lacks_memory(error):
            kind, advice = OutOfMemory, "free some memory, or write smaller row groups"
        elif isinstance(error, OSError) and error.errno is not None:
            kind, advice = StorageError, "check the disk or the store"
        raise kind(f"{problem} ({reason}); {advice}") from None
