"""Tables in Parquet files, and in folders of them whose names are values of a column."""

from __future__ import annotations

import os
from typing import BinaryIO
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from dadagrad.data.parquet.dataset import read_row_group
from dadagrad.data.parquet.footer import RowGroup
from dadagrad.errors import StorageError
from dadagrad.storage.files import SourceFile

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The name of a missing value in the name of a folder, after Hive."""


def is_table(file: SourceFile) -> bool:
    """True for a Parquet file of ordinary columns, which is not a dataset."""
    if file.version is None:
        return False
    try:
        with file.open() as opened:
            return "indices" not in pq.ParquetFile(opened).schema_arrow.names
    except StorageError:
        raise
    except (pa.ArrowException, OSError, ValueError):
        return False  # the reader of datasets describes the damage


def parquet_table(
    file: BinaryIO, path: str, group: RowGroup, columns: list[str] | None = None
) -> pa.Table:
    """A row group of the open `file` at `path`; only `columns` are read, if given.

    Folders named ``column=value`` are columns of texts, as Hive, Spark, Dask and Arrow write them.
    Raises `CorruptionError` for bytes that cannot be decoded.
    """
    keys = _folder_columns(path)
    stored = None if columns is None else [name for name in columns if name not in keys]
    table = read_row_group(file, group, f"{path}, row group {group.number}", stored)
    for name, value in keys.items():
        if columns is None or name in columns:
            others = [other for other in table.column_names if other != name]
            texts = pa.repeat(pa.scalar(value, pa.string()), table.num_rows)
            table = table.select(others).append_column(name, texts)
    return table


def names_of_parquet(path: str, group: RowGroup) -> list[str]:
    """Names of the columns of a row group of the file at `path`, and of those of its folders."""
    return list(dict.fromkeys([*group.sizes, *_folder_columns(path)]))


def _folder_columns(path: str) -> dict[str, str | None]:
    """The values of the columns that the folders of a file name.

    All are texts, so that the files of a table agree: ``zip=0815`` may lie beside ``zip=none``. As
    in delimited text, the first rows say which texts are numbers.
    """
    keys = (name.partition("=") for name in os.path.dirname(path).split("/") if "=" in name)
    return {unquote(name): None if value == NO_VALUE else unquote(value) for name, _, value in keys}
