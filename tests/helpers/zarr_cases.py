"""Datasets on disk, or in another store."""

from __future__ import annotations

from dadagrad.data.dataset import Dataset
from dadagrad.data.zarr.dataset import write_partition, write_root
from dadagrad.storage.store import Storage


def write_zarr(data: Dataset, url: object) -> str:
    """`data` as a Zarr dataset; its URL."""
    storage = Storage(str(url))
    names = [column.name for column in data.schema.label_columns]
    partitions = [
        write_partition(storage, f"part-{number:05d}", data.read(number), names)
        for number in range(len(data.partitions))
    ]
    write_root(storage, data.schema, partitions, {})
    return str(url)
