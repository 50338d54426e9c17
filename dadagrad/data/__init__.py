"""Datasets: partitions of rows, their stored formats, and their making from source files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dadagrad.data.dataset import Dataset

__all__ = ["as_dataset", "open_dataset"]


def as_dataset(data: Any) -> Dataset:
    """Return a dataset.

    Parameters
    ----------
    data : Dataset, str, path, pair (X, y), or list of these
        A dataset or its URL; a matrix and its labels (arrays, sparse matrices, data frames of
        numbers, dask arrays or data frames); or several of these, which are joined in order.
    """
    from dadagrad.data.arrays import dataset_from_arrays
    from dadagrad.data.dask_blocks import dataset_from_dask, is_dask
    from dadagrad.data.dataset import Dataset
    from dadagrad.data.views import join
    from dadagrad.errors import InputError

    if isinstance(data, Dataset):
        return data
    if isinstance(data, str | os.PathLike):
        return open_dataset(os.fspath(data))
    if is_pair(data):
        return (dataset_from_dask if is_dask(data[0]) else dataset_from_arrays)(*data)
    if isinstance(data, list | tuple):
        return join([as_dataset(each) for each in data])
    raise InputError(
        f"the data are a {type(data).__name__}; give a dataset, its URL, or a pair (X, y) of a "
        "matrix and its labels, or write a table as a dataset with `dadagrad.ingest`"
    )


def is_pair(data: object) -> bool:
    """True for a pair (X, y) of a matrix and its labels."""
    return isinstance(data, tuple) and len(data) == 2 and len(getattr(data[0], "shape", ())) == 2


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
