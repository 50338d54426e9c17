"""Datasets on disk, or in another store."""

from dataclasses import replace

import anndata
import numpy as np
import pytest

from dadagrad.data.rows import Rows
from dadagrad.data.zarr.writer import write_partition, write_root
from dadagrad.storage.store import Storage

N_FEATURES = 1000


def write_zarr(data, url, **extra):
    storage = Storage(str(url))
    partitions = [
        write_partition(
            storage, f"part-{number:05d}", data.read(number), data.schema.label_names, **extra
        )
        for number in range(len(data.partitions))
    ]
    write_root(storage, data.schema, partitions, {"sources": ["a"]})
    return str(url)


def files_of(folder):
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def some_rows(seed=0, *, n_labels=2, plain=False, n_rows=40):
    """Rows below `N_FEATURES`, with every optional number, or with none if `plain`."""
    random = np.random.default_rng(seed)
    counts = random.integers(0, 9, n_rows)
    ids = [np.sort(random.choice(N_FEATURES, count, replace=False)) for count in counts]
    indptr = np.concatenate([[0], np.cumsum(counts)])
    labels = random.choice([-1.0, 1.0], (n_rows, n_labels))
    rows = Rows.from_csr(indptr, np.concatenate(ids), None, labels)
    if plain:
        return rows
    values = random.normal(size=rows.nnz).astype(np.float32)
    weights, row_scale = random.random((2, n_rows)).astype(np.float32)
    return replace(rows, values=values, weights=weights, row_scale=row_scale)


def read_anndata(folder):
    """A partition as `anndata` reads it, which warns that it makes texts of the feature ids."""
    with pytest.warns(anndata.ImplicitModificationWarning, match="to str index"):
        return anndata.read_zarr(folder)
