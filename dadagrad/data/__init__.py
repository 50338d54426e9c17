"""Datasets: partitions of rows, their stored formats, and their making from source files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dadagrad.data.dataset import Dataset

__all__ = ["open_dataset"]


def open_dataset(url: str) -> Dataset:
    """Open the dataset at `url`: a Zarr dataset, or a Parquet file or folder.

    Only metadata is read. Raises `InputError` where there is neither.
    """
    # These modules need libraries that load slowly.
    from dadagrad.data.parquet.dataset import ParquetDataset, find_files
    from dadagrad.data.zarr.dataset import ZarrDataset, looks_like_zarr
    from dadagrad.errors import InputError
    from dadagrad.storage.documents import content_at
    from dadagrad.storage.store import Storage

    storage = Storage(url)
    if looks_like_zarr(storage):
        return ZarrDataset(url)
    if find_files(storage):
        return ParquetDataset(url)
    reason = "found neither the root metadata of a Zarr dataset nor a Parquet file"
    if storage.is_local and not os.path.exists(storage.local_path()):
        reason = "nothing is there; check the path"
    elif content := content_at(storage):
        reason = f"it is {content}"
    raise InputError(
        f"no dataset at {url}: {reason}; make one with `dadagrad ingest SOURCE --out URL`"
    )
