"""Conversion of labels to the numbers that training uses, and back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from dadagrad.data.dask_blocks import is_dask
from dadagrad.data.dataset import Dataset, LabelColumn
from dadagrad.data.labels import class_labels
from dadagrad.errors import InputError
from dadagrad.summary import listed

_NUMBERS = "biuf"


@dataclass(frozen=True)
class LabelEncoder:
    """Classes of one label column, or columns of several labels, and their numbers.

    `classes` are the distinct labels, sorted, or the numbers of the columns if there are several.
    The number of a class is the class itself if that is a number, else its position.
    """

    classes: NDArray[Any]
    columns: tuple[LabelColumn, ...]

    @property
    def multilabel(self) -> bool:
        return len(self.columns) > 1

    @property
    def values(self) -> NDArray[np.float64]:
        """Number of each class."""
        return np.array(self.columns[0].values)

    @classmethod
    def of_classes(cls, classes: Any) -> LabelEncoder:
        """Encode one column with these `classes`; `InputError` if there are fewer than two."""
        classes = np.unique(np.asarray(classes))
        if len(classes) < 2:
            raise InputError(
                f"the labels have {len(classes)} class(es), {listed(classes.tolist())}; a "
                "classifier needs rows (of weight above 0) of two classes or more"
            )
        values, names = np.arange(len(classes), dtype=float), tuple(map(str, classes))
        if classes.dtype.kind in _NUMBERS:
            numbers = classes.astype(np.float64)
            if len(np.unique(numbers)) == len(classes):  # not beyond 2**53
                column = LabelColumn("label", tuple(numbers.tolist()))
                return cls(classes, (column,))
        return cls(classes, (LabelColumn("label", tuple(values.tolist()), None, names),))

    @classmethod
    def of_indicators(cls, n_labels: int) -> LabelEncoder:
        """Encode an (n_rows, n_labels) matrix of zeros and ones."""
        columns = tuple(LabelColumn(f"label_{k}", (0.0, 1.0)) for k in range(n_labels))
        return cls(np.arange(n_labels), columns)

    @classmethod
    def of_dataset(cls, data: Dataset) -> LabelEncoder:
        """Encode the label columns of a dataset."""
        columns = data.schema.label_columns
        if not columns:
            raise InputError(f"{data.url} has no label column; training needs at least one")
        if len(columns) > 1:
            return cls(np.arange(len(columns)), columns)
        (column,) = columns
        if column.values is None:
            raise InputError(
                f"{data.url}: label column {column.name!r} has too many distinct values to be "
                "classes; use AdaGradRegressor"
            )
        classes = class_labels(column)
        if column.names is None and (classes == np.round(classes)).all():
            classes = classes.astype(np.int64)
        return cls(classes, columns)

    def encode(self, y: NDArray[Any]) -> NDArray[np.float64]:
        """Return (n_rows, n_label_columns) numbers for labels that `as_labels` has checked."""
        if self.multilabel:
            if y.ndim != 2 or y.shape[1] != len(self.columns):
                raise InputError(
                    f"y has shape {y.shape}; it must have {len(self.columns)} columns of 0 and 1, "
                    "as before"
                )
            return y.astype(np.float64)
        if y.ndim != 1:
            raise InputError(f"y has shape {y.shape}; it must be one column of classes, as before")
        wrong = np.arange(len(y))
        if (y.dtype.kind in _NUMBERS) == (self.classes.dtype.kind in _NUMBERS):
            position = np.minimum(np.searchsorted(self.classes, y), len(self.classes) - 1)
            wrong = np.flatnonzero(self.classes[position] != y)
        if wrong.size:
            raise InputError(
                f"row {wrong[0]} of y has label {y[wrong].tolist()[0]!r}, which is not one of the "
                f"classes {listed(list(map(repr, self.classes.tolist())))}"
            )
        return self.values[position][:, None]

    def counted(self, labels: NDArray[np.float64]) -> tuple[LabelColumn, ...]:
        """Return the columns with the number of rows of each class in encoded `labels`."""
        columns = []
        for column, numbers in zip(self.columns, labels.T, strict=True):
            values = column.values or ()
            counts = np.bincount(np.searchsorted(values, numbers), minlength=len(values))
            columns.append(replace(column, counts=tuple(counts.tolist())))
        return tuple(columns)

    def decode(self, labels: NDArray[np.float64]) -> NDArray[Any]:
        """Return the labels of (n_rows, n_label_columns) numbers; the inverse of `encode`."""
        if self.multilabel:
            largest = np.array([(column.values or (1.0,))[-1] for column in self.columns])
            return np.asarray(labels == largest, np.int64)
        return self.classes[np.searchsorted(self.values, labels[:, 0])]


def is_indicator(y: Any) -> bool:
    """Return True if y has a column for each of several labels; y may be a dask collection."""
    if is_dask(y):
        return bool(y.ndim == 2 and y.shape[1] > 1)
    return bool(type_of_target(y, input_name="y") == "multilabel-indicator")


def as_labels(y: Any) -> NDArray[Any]:
    """Check labels: (n_rows,) of any sortable type, or an (n_rows, n_labels) 0/1 matrix."""
    try:
        check_classification_targets(y)
    except TypeError as error:  # they are bytes, or cannot be sorted
        raise InputError(
            f"the labels y must be texts alone or numbers alone, without None and bytes ({error})"
        ) from None
    if is_indicator(y):
        dense = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
        # `type_of_target` also accepts two other values, such as -1 and 1.
        if not np.isin(dense, (0, 1)).all():
            raise InputError("the matrix of labels y must hold nothing but 0 and 1")
        return dense
    return np.asarray(column_or_1d(y, warn=True))
