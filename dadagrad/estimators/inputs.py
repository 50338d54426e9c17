"""Kinds of input of the estimators, and checks of columns that belong to the rows."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from dadagrad.data import open_dataset
from dadagrad.data.dask_blocks import is_dask
from dadagrad.data.dataset import Dataset
from dadagrad.errors import InputError

FLOATS = (np.float64, np.float32)
"""Dtypes of X that are not converted."""


def is_stored(X: object) -> bool:
    """Return True if X is a dataset or the URL of one."""
    return isinstance(X, Dataset | str | os.PathLike)


def open_stored(X: Dataset | str | os.PathLike[str]) -> Dataset:
    """Return a dataset, which X is or is the URL of."""
    return X if isinstance(X, Dataset) else open_dataset(os.fspath(X))


def computed(column: Any) -> Any:
    """Compute `column` if it is a dask collection."""
    return column.compute() if is_dask(column) else column


def check_queries(query: Any, n_rows: int) -> NDArray[np.int64]:
    """Return queries as a checked (n_rows,) array of whole numbers."""
    queries = np.asarray(query)
    _check_shape(queries, n_rows, "query")
    if queries.dtype.kind not in "iu" or (queries > np.iinfo(np.int64).max).any():
        raise InputError(
            f"query has dtype {queries.dtype}; it must hold whole numbers that fit in int64"
        )
    return queries.astype(np.int64)


def check_weights(sample_weight: Any, n_rows: int) -> NDArray[np.float64]:
    """Return weights as a checked (n_rows,) array; a single number is the weight of every row."""
    sample_weight = np.asarray(sample_weight)
    if sample_weight.ndim == 0:
        sample_weight = np.full(n_rows, sample_weight)
    weights: NDArray[np.float64] = check_array(
        sample_weight,
        ensure_2d=False,
        dtype=np.float64,
        ensure_non_negative=True,
        input_name="sample_weight",
    )
    _check_shape(weights, n_rows, "sample_weight")
    return weights


def _check_shape(column: NDArray[Any], n_rows: int, name: str) -> None:
    if column.shape != (n_rows,):
        raise InputError(
            f"{name} has shape {column.shape}; it must have one number for each of the {n_rows} "
            "rows"
        )
