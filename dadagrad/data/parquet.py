"""Reading Parquet as it is: list columns of feature ids and values, a label, perhaps a weight.

Row groups are the partitions. A partition's vocabulary is found each time it is read, and the
labels are scanned once when the dataset is opened, so that training from Parquet costs more than
from the project's own format: for many passes, ingest it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dadagrad.data.dataset import MAX_LISTED_VALUES, Dataset, LabelColumn, Partition, Schema
from dadagrad.data.parquet_columns import (
    Columns,
    find_columns,
    is_text,
    label_numbers,
    lists_of,
    numbers_of,
)
from dadagrad.data.parquet_footer import ColumnChunk, RowGroup, read_row_groups
from dadagrad.data.rows import Rows
from dadagrad.data.schema_json import MAX_FEATURES
from dadagrad.errors import CorruptionError, DadagradError, InputError, StorageError
from dadagrad.storage import Storage

N_FEATURES_KEY = b"dadagrad.n_features"
_LONGEST_REASON = 300
# What pyarrow makes of a damaged file: it has errors of its own, and Python's of many kinds.
_WHATEVER = (pa.ArrowException, OSError, ArithmeticError, LookupError, MemoryError, RuntimeError,
             TypeError, ValueError)  # fmt: skip
_SUFFIXES = (".parquet", ".pq")


def looks_like_parquet(storage: Storage) -> bool:
    """Whether there is a Parquet file, or a folder with one in it, at `storage`."""
    return bool(_find_files(storage))


def _find_files(storage: Storage) -> list[str]:
    """The keys of all Parquet files; the key of `storage` itself is ''."""
    if storage.url.lower().endswith(_SUFFIXES) and storage.exists(""):
        return [""]
    try:
        keys = storage.list()
    except StorageError:
        if storage.url.lower().startswith(("http://", "https://")):
            return []  # a web server that cannot list
        raise
    return [key for key in keys if key.lower().endswith(_SUFFIXES) and not _is_hidden(key)]


def _is_hidden(key: str) -> bool:
    """Other writers keep their notes under names that start with '_' or '.'."""
    return any(part.startswith(("_", ".")) for part in key.split("/"))


class ParquetDataset(Dataset):
    """A Parquet file, or a folder of them with the same columns.

    Parameters
    ----------
    url : str
        What `Storage` takes. Needed are the columns ``indices`` (list of integers: sorted,
        distinct, non-negative) and, unless the rows are to be predicted only, ``label`` or several
        whose names start with ``label``; ``values`` (list of floats, as long as the indices),
        ``weight`` and ``query`` (a whole number, for rankings: rows of one query must be
        neighbours in one row group) are optional.

    Raises
    ------
    InputError
        For missing or unsuitable columns, labels that are null or not finite, and no rows.

    Notes
    -----
    The number of features is that of the schema metadata ``dadagrad.n_features``, or one more than
    the largest index, from the column statistics or else from a scan. In `partitions`, ``n_local``
    is an upper bound, and a checksum covers what the file's footer says of the row group: a file
    that was written again with other values but the same sizes and statistics has the same.
    """

    def __init__(self, url: str) -> None:
        self._storage = Storage(url)
        self.url = self._storage.url
        self._files = _find_files(self._storage)
        if not self._files:
            raise InputError(f"no Parquet file at {self.url}; give one, or a folder of *.parquet")
        self._row_groups = [self._read_row_groups(key) for key in self._files]
        self._footers: list[pq.FileMetaData] = [self._footer(key) for key in self._files]
        self._schemas = [
            self._schema(key, footer)
            for key, footer in zip(self._files, self._footers, strict=True)
        ]
        self._columns = self._common_columns()
        self._groups = [
            (file, number)
            for file, groups in enumerate(self._row_groups)
            for number, group in enumerate(groups)
            if group.n_rows
        ]
        if not self._groups:
            raise InputError(f"{self.url} has no rows; give at least one")
        self._codes: dict[str, dict[str, float]] = {}
        labels = tuple(self._describe_label(name) for name in self._columns.labels)
        self.schema = Schema(
            self._count_features(),
            labels,
            self._columns.weight is not None,
            queried=self._columns.query is not None,
        )
        self.partitions = tuple(self._partition(number) for number in range(len(self._groups)))

    def read(self, partition: int) -> Rows:
        """Read and check partition number `partition`.

        Raises `InputError`, naming file, row group and row, for entries that are null, negative,
        unsorted, duplicate or not finite, and `CorruptionError` for a file that does not decode.
        """
        columns, where = self._columns, self._where(partition)
        table = self._table(partition, columns.all)
        if table.num_rows != self.partitions[partition].n_rows:
            raise CorruptionError(
                f"{where} has {table.num_rows} rows where the footer says "
                f"{self.partitions[partition].n_rows}; write or copy the file again"
            )
        indptr, ids = lists_of(table.column(columns.indices), where, "indices", np.int64)
        self._check_ids(indptr, ids, where)
        values = weights = queries = None
        if columns.values is not None:
            column = table.column(columns.values)
            value_indptr, values = lists_of(column, where, "values", np.float32)
            _check_lengths(indptr, value_indptr, where)
            if (values == 1).all():
                values = None
        labels = np.empty((table.num_rows, len(columns.labels)), np.float64)
        for number, name in enumerate(columns.labels):
            codes = self._codes.get(name)
            labels[:, number] = label_numbers(table.column(name), where, name, codes)
        if columns.weight is not None:
            weights = numbers_of(table.column(columns.weight), where, "weight", np.float32)
        if columns.query is not None:
            queries = numbers_of(table.column(columns.query), where, "query", np.int64)
        # Imported late: opening a dataset must not wait for numba.
        from dadagrad.data.vocabulary import find_vocabulary

        vocabulary, indices = find_vocabulary(ids)
        rows = Rows(vocabulary, indptr, indices, values, labels, weights, queries=queries)
        rows.check(where)
        return rows

    def __repr__(self) -> str:
        return f"ParquetDataset({self.url!r})"

    def _name(self, key: str) -> str:
        return f"{self.url}/{key}" if key else self.url

    def _where(self, partition: int) -> str:
        file, group = self._groups[partition]
        return f"{self._name(self._files[file])}, row group {group}"

    def _footer(self, key: str) -> pq.FileMetaData:
        with self._storage.open(key) as source:
            try:
                return pq.ParquetFile(source).metadata
            except DadagradError:
                raise
            except _WHATEVER as error:
                raise InputError(
                    f"{self._name(key)} is not a whole Parquet file ({_brief(error)}); write it "
                    "again"
                ) from None

    def _read_row_groups(self, key: str) -> list[RowGroup]:
        with self._storage.open(key) as source:
            return read_row_groups(source, self._name(key))

    def _schema(self, key: str, footer: pq.FileMetaData) -> pa.Schema:
        try:
            schema = footer.schema.to_arrow_schema()
            names = list(schema.names)
        except _WHATEVER as error:
            raise InputError(
                f"{self._name(key)} has a schema that cannot be read ({_brief(error)}); write it "
                "again"
            ) from None
        if footer.num_row_groups != len(self._row_groups[self._files.index(key)]):
            raise InputError(f"{self._name(key)} contradicts itself; write it again")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(f"{self._name(key)} has two columns {twice[0][:60]!r}; rename one")
        return schema

    def _table(self, partition: int, columns: list[str]) -> pa.Table:
        file, group = self._groups[partition]
        with self._storage.open(self._files[file]) as source:
            try:
                reader = pq.ParquetFile(
                    source, metadata=self._footers[file], page_checksum_verification=True
                )
                return reader.read_row_group(group, columns=columns, use_threads=False)
            except DadagradError:
                raise
            except _WHATEVER as error:
                raise CorruptionError(
                    f"{self._where(partition)} cannot be decoded ({_brief(error)}); write or copy "
                    "the file again"
                ) from None

    def _common_columns(self) -> Columns:
        first, *others = (
            find_columns(schema, self._name(key))
            for key, schema in zip(self._files, self._schemas, strict=True)
        )
        for number, other in enumerate(others, start=1):
            if other != first:
                raise InputError(
                    f"{self._name(self._files[number])} has the columns {other.all} where "
                    f"{self._name(self._files[0])} has {first.all}; all files need the same"
                )
        return first

    def _describe_label(self, name: str) -> LabelColumn:
        """The distinct values of a label column, from a scan of it."""
        kinds = {is_text(schema.field(name).type) for schema in self._schemas}
        if len(kinds) > 1:
            raise InputError(f"{self.url}: column {name!r} is text in some files, not in others")
        text = kinds.pop()
        counts: dict[Any, int] = {}
        for partition in range(len(self._groups)):
            column = self._table(partition, [name]).column(name)
            count_values = _count_text if text else _count_numbers
            for value, count in count_values(column, self._where(partition), name).items():
                counts[value] = counts.get(value, 0) + count
            if not text and len(counts) > MAX_LISTED_VALUES:
                return LabelColumn(name)
        values = sorted(counts)
        listed = tuple(counts[value] for value in values)
        if not text:
            return LabelColumn(name, tuple(values), listed)
        if len(values) > MAX_LISTED_VALUES:
            raise InputError(
                f"{self.url}: column {name!r} has {len(values)} distinct texts; at most "
                f"{MAX_LISTED_VALUES} classes are possible"
            )
        self._codes[name] = {value: float(code) for code, value in enumerate(values)}
        return LabelColumn(name, tuple(self._codes[name].values()), listed, tuple(values))

    def _count_features(self) -> int:
        declared = [footer.metadata or {} for footer in self._footers]
        if all(N_FEATURES_KEY in metadata for metadata in declared):
            return max(self._declared(metadata[N_FEATURES_KEY]) for metadata in declared)
        return 1 + max(self._largest_id(number) for number in range(len(self._groups)))

    def _declared(self, text: bytes) -> int:
        if not text.isdigit() or len(text) > 20 or not 0 < int(text) <= MAX_FEATURES:
            name = N_FEATURES_KEY.decode()
            raise InputError(
                f"{self.url}: the schema metadata {name} is {text[:40]!r}; needed is a positive "
                "integer"
            )
        return int(text)

    def _largest_id(self, partition: int) -> int:
        """The largest index of a row group, or -1 if it has none."""
        chunk = self._indices(partition)
        file, _ = self._groups[partition]
        signed = pa.types.is_signed_integer(self._schemas[file].field("indices").type.value_type)
        if chunk.largest is not None and len(chunk.largest) in (4, 8):
            largest = int.from_bytes(chunk.largest, "little", signed=signed)
        else:
            column = self._table(partition, ["indices"]).column("indices")
            found = pc.max(pc.list_flatten(column)).as_py()
            largest = -1 if found is None else int(found)
        if not -1 <= largest < MAX_FEATURES:
            raise InputError(
                f"{self._where(partition)}: the largest feature is {largest}; ids run from 0 to "
                f"{MAX_FEATURES - 1}"
            )
        return largest

    def _indices(self, partition: int) -> ColumnChunk:
        """What the footer says of the indices of a row group."""
        file, group = self._groups[partition]
        chunk = self._row_groups[file][group].columns.get("indices")
        if chunk is None:
            raise InputError(f"{self._where(partition)} has no column 'indices'; write it again")
        return chunk

    def _partition(self, number: int) -> Partition:
        file, group = self._groups[number]
        row_group, chunk = self._row_groups[file][group], self._indices(number)
        # An empty list counts as a value of the column, and as a null.
        nnz = chunk.n_values - (chunk.n_nulls or 0)
        content = [self._files[file], group, row_group.digest]
        checksum = hashlib.sha256(json.dumps(content).encode())
        name = f"{self._files[file] or 'file'}:{group}"
        n_local = min(nnz, self.schema.n_features)
        return Partition(name, row_group.n_rows, nnz, n_local, checksum.hexdigest())

    def _check_ids(self, indptr: NDArray[np.int64], ids: NDArray[np.int64], where: str) -> None:
        # Seen as unsigned, a negative id is too large as well.
        wrong = ids.view(np.uint64) >= self.schema.n_features
        if wrong.any():
            entry = int(np.flatnonzero(wrong)[0])
            row = int(np.searchsorted(indptr, entry, side="right")) - 1
            raise InputError(
                f"{where}: row {row} has feature {ids[entry]}; ids run from 0 to "
                f"{self.schema.n_features - 1}"
            )


def _check_lengths(indptr: NDArray[np.int64], values: NDArray[np.int64], where: str) -> None:
    if not np.array_equal(indptr, values):
        row = int(np.flatnonzero(indptr[1:] != values[1:])[0])
        raise InputError(
            f"{where}: row {row} has {indptr[row + 1] - indptr[row]} indices and "
            f"{values[row + 1] - values[row]} values; they must be as many"
        )


def _count_text(column: pa.ChunkedArray, where: str, name: str) -> dict[Any, int]:
    found = pc.value_counts(column)
    counts = {item["values"].as_py(): int(item["counts"].as_py()) for item in found}
    if None in counts:
        row = pc.index(column.is_null(), True).as_py()
        raise InputError(f"{where}: row {row} has null in {name!r}; every row needs a value")
    return counts


def _count_numbers(column: pa.ChunkedArray, where: str, name: str) -> dict[Any, int]:
    numbers = numbers_of(column, where, name, np.float64)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        raise InputError(
            f"{where}: row {wrong[0]} has {name} {numbers[wrong[0]]}; every label must be finite"
        )
    values, counts = np.unique(numbers, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _brief(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:_LONGEST_REASON] or type(error).__name__
