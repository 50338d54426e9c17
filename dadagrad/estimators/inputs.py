"""Conversion of arrays, data frames, dask collections and URLs into datasets."""

from __future__ import annotations

import os
from abc import ABCMeta, abstractmethod
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from dadagrad.data import open_dataset
from dadagrad.data.arrays import dataset_from_arrays
from dadagrad.data.dataset import Dataset, LabelColumn, Schema
from dadagrad.errors import InputError
from dadagrad.estimators.dask_inputs import BlockedMatrix, DaskDataset, is_dask
from dadagrad.model.model import Model

FLOATS = (np.float64, np.float32)
"""Dtypes of X that are not converted."""

DataAndSchema = tuple[Dataset, Schema]
"""Dataset, and its schema with all classes of all calls."""


class Arguments(NamedTuple):
    """Arguments of a call of `fit` or `partial_fit`, and what the call may change.

    Attributes
    ----------
    X, y, sample_weight, query
        As in `AdaGradClassifier.fit` and `AdaGradRanker.fit`.
    new_features : bool
        True if the call decides the features; else they must be those of the calls before.
    new_labels : bool
        True if the call decides the labels.
    """

    X: Any
    y: Any
    sample_weight: Any
    query: Any
    new_features: bool
    new_labels: bool


class InputMixin(BaseEstimator, metaclass=ABCMeta):  # type: ignore[misc]
    """Estimator that converts its input into a dataset."""

    shuffle: bool

    @property
    @abstractmethod
    def model_(self) -> Model:
        """The fitted model."""

    @abstractmethod
    def _check_labels(self, y: Any) -> NDArray[Any]:
        """Return `y` as a checked array."""

    @abstractmethod
    def _encode_labels(
        self, y: NDArray[Any], *, new_labels: bool
    ) -> tuple[NDArray[np.float64], tuple[LabelColumn, ...]]:
        """Return checked labels as (n_rows, n_label_columns) numbers, and their columns."""

    @abstractmethod
    def _adopt_columns(
        self, columns: tuple[LabelColumn, ...], source: str, *, new_labels: bool
    ) -> tuple[LabelColumn, ...]:
        """Return the label columns of the dataset `source` as training has them."""

    def _make_dataset(self, arguments: Arguments, seed: int) -> DataAndSchema | None:
        """Return the input as a dataset; None if no row has a weight above 0."""
        if is_stored(arguments.X):
            return self._open(arguments)
        make = self._from_dask if is_dask(arguments.X) else self._from_arrays
        return make(arguments, seed if self.shuffle else None)

    def _from_arrays(self, arguments: Arguments, order: int | None) -> DataAndSchema | None:
        X, y = validate_data(
            self,
            arguments.X,
            computed(arguments.y),
            reset=arguments.new_features,
            accept_sparse="csr",
            dtype=FLOATS,
            multi_output=True,
        )
        y = self._check_labels(y)
        query, weights = arguments.query, arguments.sample_weight
        query = None if query is None else check_queries(query, len(y))
        if weights is not None:
            weights = check_weights(computed(weights), len(y))
            kept = np.flatnonzero(weights)
            if not len(kept):
                return None
            if len(kept) < len(y):
                X, y, weights = X[kept], y[kept], weights[kept]
                query = None if query is None else query[kept]
        labels, columns = self._encode_labels(y, new_labels=arguments.new_labels)
        data = dataset_from_arrays(X, labels, sample_weight=weights, query=query, shuffle=order)
        data.schema = replace(data.schema, label_columns=columns)
        return data, data.schema

    def _from_dask(self, arguments: Arguments, order: int | None) -> DataAndSchema | None:
        matrix = BlockedMatrix(arguments.X)
        validate_data(
            self, matrix.meta, arguments.y, reset=arguments.new_features, skip_check_array=True
        )
        pieces = matrix.split(arguments.y, "y")
        bounds = np.cumsum([len(piece) for piece in pieces])[:-1]
        y = self._check_labels(np.concatenate(pieces))
        weights = None
        kept = np.ones(len(y), np.bool_)
        if arguments.sample_weight is not None:
            weights = np.concatenate(matrix.split(arguments.sample_weight, "sample_weight"))
            weights = check_weights(weights, len(y))
            kept = weights > 0
            weights = weights[kept]
        if not kept.any():
            return None
        labels, columns = self._encode_labels(y[kept], new_labels=arguments.new_labels)
        data = DaskDataset(matrix, bounds, kept, labels, weights, columns, order)
        return data, data.schema

    def _open(self, arguments: Arguments) -> DataAndSchema:
        for name in ("y", "sample_weight", "query"):
            if getattr(arguments, name) is not None:
                raise InputError(
                    f"X is a dataset, which has labels, weights and queries of its own; leave out "
                    f"{name}"
                )
        data = open_stored(arguments.X)
        if arguments.new_features:
            self.__dict__.pop("feature_names_in_", None)
            self.n_features_in_ = data.schema.n_features
        else:
            self.model_.check_compatible(data.schema)
        columns = self._adopt_columns(
            data.schema.label_columns, data.url, new_labels=arguments.new_labels
        )
        return data, replace(data.schema, label_columns=columns)


def is_stored(X: object) -> bool:
    """Return True if X is a dataset, or the URL of one."""
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
    """Return weights as a checked (n_rows,) array; a single number is the weight of every row."""
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
