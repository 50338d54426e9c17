"""Datasets: partitions of rows, their stored formats, and their making from source files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from dadagrad.data.dataset import Dataset

__all__ = ["as_dataset", "open_dataset"]


def as_dataset(data: Dataset | str | Sequence[Dataset | str]) -> Dataset:
    """Return a dataset, which `data` is or is the URL of, or several of them joined in order."""
    from dadagrad.data.views import join

    if isinstance(data, list | tuple):
        return join([as_dataset(each) for each in data])
    return open_dataset(data) if isinstance(data, str) else cast("Dataset", data)


def open_dataset(url: str) -> Dataset:
    """Open the dataset at `url`: a Zarr dataset, or a Parquet file or folder.

    Only metadata is read. Raises `InputError` where there is neither.
    """
    # These modules need libraries that load slowly.
    from dadagrad.data.parquet import ParquetDataset, find_files
    from dadagrad.data.zarr.dataset import ZarrDataset, looks_like_zarr
    from dadagrad.errors import InputError
    from dadagrad.storage.store import Storage

    storage = Storage(url)
    if looks_like_zarr(storage):
        return ZarrDataset(url)
    if find_files(storage):
        return ParquetDataset(url)
    found = "found neither the root metadata of a Zarr dataset nor a Parquet file"
    if storage.is_local and not os.path.exists(storage.local_path()):
        found = "nothing is there; is the path right?"
    raise InputError(
        f"no dataset at {url}: {found}; make one with `dadagrad ingest SOURCE --out URL`"
    )
