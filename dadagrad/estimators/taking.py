"""Taking in what a user hands over: arrays, data frames, dask collections and datasets."""

from __future__ import annotations

import os
from abc import ABCMeta, abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from dadagrad.data.arrays import dataset_from_arrays
from dadagrad.data.dataset import Dataset, LabelColumn, Schema, open_dataset
from dadagrad.errors import InputError
from dadagrad.estimators.dask_blocks import BlockedMatrix, DaskDataset, is_dask
from dadagrad.model import Model

FLOATS = (np.float64, np.float32)
"""What dtypes of X are left as they are."""

Taken = tuple[Dataset, Schema]
"""A dataset, and its schema with all the classes that there will be."""


class DataTaker(BaseEstimator, metaclass=ABCMeta):  # type: ignore[misc]
    """An estimator that makes a dataset of whatever it is given.

    Of the two questions that a first call answers and later ones must not change, `reset` asks
    what features there are, and `new` what labels.
    """

    shuffle: bool

    @property
    @abstractmethod
    def model_(self) -> Model:
        """The model."""

    @abstractmethod
    def _take_labels(
        self, y: NDArray[Any], *, new: bool
    ) -> tuple[NDArray[np.float64], tuple[LabelColumn, ...]]:
        """(n_rows, n_label_columns) numbers for checked labels, and their columns."""

    @abstractmethod
    def _take_columns(
        self, columns: tuple[LabelColumn, ...], source: str, *, new: bool
    ) -> tuple[LabelColumn, ...]:
        """The same for the label columns of the dataset `source`."""

    @abstractmethod
    def _check_labels(self, y: Any) -> NDArray[Any]:
        """`y` as a checked array."""

    def _take(
        self, X: Any, y: Any, sample_weight: Any, seed: int, query: Any, *, reset: bool, new: bool
    ) -> Taken | None:
        """The data as a dataset; None where no row has a weight above 0."""
        order = seed if self.shuffle else None
        if is_stored(X):
            return self._take_stored(X, y, sample_weight, query, reset=reset, new=new)
        if is_dask(X):
            return self._take_blocks(X, y, sample_weight, order, reset=reset, new=new)
        return self._take_arrays(X, y, sample_weight, order, query, reset=reset, new=new)

    def _take_arrays(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        order: int | None,
        query: Any,
        *,
        reset: bool,
        new: bool,
    ) -> Taken | None:
        X, y = validate_data(
            self, X, computed(y), reset=reset, accept_sparse="csr", dtype=FLOATS, multi_output=True
        )
        y = self._check_labels(y)
        query = None if query is None else check_queries(query, len(y))
        if sample_weight is not None:
            sample_weight = check_weights(computed(sample_weight), len(y))
            kept = np.flatnonzero(sample_weight)
            if not len(kept):
                return None
            if len(kept) < len(y):
                X, y, sample_weight = X[kept], y[kept], sample_weight[kept]
                query = None if query is None else query[kept]
        labels, columns = self._take_labels(y, new=new)
        data = dataset_from_arrays(
            X, labels, sample_weight=sample_weight, query=query, shuffle=order
        )
        data.schema = replace(data.schema, label_columns=columns)
        return data, data.schema

    def _take_blocks(
        self, X: Any, y: Any, sample_weight: Any, order: int | None, *, reset: bool, new: bool
    ) -> Taken | None:
        matrix = BlockedMatrix(X)
        validate_data(self, matrix.meta, y, reset=reset, skip_check_array=True)
        pieces = matrix.split(y, "y")
        bounds = np.cumsum([len(piece) for piece in pieces])[:-1]
        y = self._check_labels(np.concatenate(pieces))
        weights = None
        kept = np.ones(len(y), np.bool_)
        if sample_weight is not None:
            given = np.concatenate(matrix.split(sample_weight, "sample_weight"))
            weights = check_weights(given, len(y))
            kept = weights > 0
            weights = weights[kept]
        if not kept.any():
            return None
        labels, columns = self._take_labels(y[kept], new=new)
        data = DaskDataset(matrix, bounds, kept, labels, weights, columns, order)
        return data, data.schema

    def _take_stored(
        self, X: Any, y: Any, sample_weight: Any, query: Any, *, reset: bool, new: bool
    ) -> Taken:
        for name, given in (("y", y), ("sample_weight", sample_weight), ("query", query)):
            if given is not None:
                raise InputError(
                    f"X is a dataset, which has labels, weights and queries of its own; leave out "
                    f"{name}"
                )
        data = open_stored(X)
        self._check_features(data, reset=reset)
        columns = self._take_columns(data.schema.label_columns, data.url, new=new)
        return data, replace(data.schema, label_columns=columns)

    def _check_features(self, data: Dataset, *, reset: bool) -> None:
        """Note the features of a dataset, or check that they are those of the model."""
        if reset:
            self.__dict__.pop("feature_names_in_", None)
            self.n_features_in_ = data.schema.n_features
        else:
            self.model_.check_compatible(data.schema)


def is_stored(X: object) -> bool:
    """Whether X is a dataset, or the URL of one."""
    return isinstance(X, Dataset | str | os.PathLike)


def open_stored(X: Dataset | str | os.PathLike[str]) -> Dataset:
    """The dataset that X is, or is the URL of."""
    return X if isinstance(X, Dataset) else open_dataset(os.fspath(X))


def computed(column: Any) -> Any:
    """`column`, computed if it is a dask collection."""
    return column.compute() if is_dask(column) else column


def check_queries(query: Any, n_rows: int) -> NDArray[np.int64]:
    """Queries as a checked (n_rows,) array of whole numbers."""
    queries = np.asarray(query)
    if queries.shape != (n_rows,):
        raise InputError(
            f"query has shape {queries.shape}; it must have one query for each of the {n_rows} rows"
        )
    if queries.dtype.kind not in "iu" or (queries > np.iinfo(np.int64).max).any():
        raise InputError(
            f"query has dtype {queries.dtype}; it must hold whole numbers that fit in int64"
        )
    return queries.astype(np.int64)


def check_weights(sample_weight: Any, n_rows: int) -> NDArray[np.float64]:
    """Weights as a checked (n_rows,) array; one number stands for the weight of every row."""
    sample_weight = np.asarray(sample_weight)
    if sample_weight.ndim == 0:
        sample_weight = np.full(n_rows, sample_weight)
    weights: NDArray[np.float64] = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weights.shape != (n_rows,):
        raise InputError(
            f"sample_weight has shape {weights.shape}; it must have one weight for each of the "
            f"{n_rows} rows"
        )
    if (weights < 0).any():
        raise InputError(
            f"row {int(np.argmax(weights < 0))} has weight {weights[weights < 0][0]}; every "
            "weight must be at least 0"
        )
    return weights
