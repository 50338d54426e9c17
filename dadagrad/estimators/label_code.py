"""How the labels a user has become the numbers that training takes, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from dadagrad.data.dataset import LabelColumn
from dadagrad.errors import InputError

_NUMBERS = "biuf"


@dataclass(frozen=True)
class LabelCode:
    """The classes of one label column, or the columns of several labels.

    Attributes
    ----------
    classes : (n_classes,) or (n_labels,)
        The distinct labels, sorted; the numbers of the columns where there are several labels.
    values : (n_classes,) float64
        What each class becomes: itself if it is a number, else its place.
    columns : tuple of LabelColumn
        As training knows them.
    """

    classes: NDArray[Any]
    values: NDArray[np.float64]
    columns: tuple[LabelColumn, ...]

    @property
    def multilabel(self) -> bool:
        return len(self.columns) > 1

    @classmethod
    def of_classes(cls, classes: Any) -> LabelCode:
        """The code of one column with these `classes`.

        Raises `InputError` where there are not at least two.
        """
        classes = np.unique(np.asarray(classes))
        if len(classes) < 2:
            raise InputError(
                f"the labels have {len(classes)} class(es), {_listed(classes)}; a classifier "
                "needs rows (of weight above 0) of two classes or more"
            )
        numeric = classes.dtype.kind in _NUMBERS
        values = classes.astype(np.float64) if numeric else np.arange(len(classes), dtype=float)
        if len(np.unique(values)) < len(values):  # whole numbers beyond 2**53
            numeric, values = False, np.arange(len(classes), dtype=float)
        names = None if numeric else tuple(str(label) for label in classes)
        return cls(classes, values, (LabelColumn("label", tuple(values.tolist()), None, names),))

    @classmethod
    def of_indicators(cls, n_labels: int) -> LabelCode:
        """The code of an (n_rows, n_labels) matrix of zeros and ones."""
        columns = tuple(LabelColumn(f"label_{k}", (0.0, 1.0)) for k in range(n_labels))
        return cls(np.arange(n_labels), np.array([0.0, 1.0]), columns)

    @classmethod
    def of_labels(cls, y: Any) -> LabelCode:
        """The code of all the labels in `y`."""
        if type_of_target(y, input_name="y") == "multilabel-indicator":
            return cls.of_indicators(y.shape[1])
        return cls.of_classes(y)

    @classmethod
    def of_columns(cls, columns: tuple[LabelColumn, ...], source: str) -> LabelCode:
        """The code of the labels that the dataset `source` has."""
        if not columns:
            raise InputError(f"{source} has no label column; training needs at least one")
        if len(columns) > 1:
            return cls(np.arange(len(columns)), np.array([0.0, 1.0]), columns)
        (column,) = columns
        if column.values is None:
            raise InputError(
                f"{source}: label column {column.name!r} has too many distinct values to be "
                "classes; use AdaGradRegressor"
            )
        values = np.array(column.values)
        classes: NDArray[Any] = values
        if column.names is not None:
            classes = np.array(column.names)
        elif (values == np.round(values)).all():
            classes = values.astype(np.int64)
        return cls(classes, values, columns)

    def check_columns(self, columns: tuple[LabelColumn, ...], source: str) -> None:
        """Raise `InputError` unless the labels of the dataset `source` mean the same."""
        if len(columns) != len(self.columns):
            raise InputError(
                f"{source} has {len(columns)} label columns, those before {len(self.columns)}"
            )
        for mine, other in zip(self.columns, columns, strict=True):
            strange = sorted(set(other.values or ()) - set(mine.values or ()))
            if other.values is None or strange or mine.names != other.names:
                raise InputError(
                    f"{source}: label column {other.name!r} has the labels "
                    f"{_listed(other.names or other.values or ())}; the classes are "
                    f"{_listed(mine.names or mine.values or ())}"
                )

    def encode(self, y: NDArray[Any]) -> NDArray[np.float64]:
        """(n_rows, n_label_columns) numbers for labels as `as_labels` returns them.

        Raises `InputError` naming a label that is not one of the classes.
        """
        if self.multilabel:
            if y.ndim != 2 or y.shape[1] != len(self.columns):
                raise InputError(
                    f"y has shape {y.shape}; it must have {len(self.columns)} columns of 0 and 1, "
                    "as before"
                )
            return y.astype(np.float64)
        if y.ndim != 1:
            raise InputError(f"y has shape {y.shape}; it must be one column of classes, as before")
        if (y.dtype.kind in _NUMBERS) != (self.classes.dtype.kind in _NUMBERS):
            wrong = np.arange(len(y))
        else:
            place = np.minimum(np.searchsorted(self.classes, y), len(self.classes) - 1)
            wrong = np.flatnonzero(self.classes[place] != y)
        if wrong.size:
            raise InputError(
                f"row {wrong[0]} of y has label {y[wrong].tolist()[0]!r}, which is not one of the "
                f"classes {_listed(self.classes)}"
            )
        return self.values[place][:, None]

    def counted(self, labels: NDArray[np.float64]) -> tuple[LabelColumn, ...]:
        """The columns, with the number of rows of each class in encoded `labels`."""
        return tuple(
            LabelColumn(
                column.name,
                column.values,
                tuple(int((labels[:, k] == value).sum()) for value in column.values or ()),
                column.names,
            )
            for k, column in enumerate(self.columns)
        )

    def decode(self, margins: NDArray[np.float64]) -> NDArray[Any]:
        """The labels that (n_rows, n_outputs) `margins` predict."""
        if self.multilabel:
            indicators: NDArray[np.int64] = (margins > 0).astype(np.int64)
            return indicators
        if margins.shape[1] == 1:
            return _pick(self.classes, margins[:, 0] > 0)
        return _pick(self.classes, margins.argmax(axis=1))

    def labels_of(self, labels: NDArray[np.float64]) -> NDArray[Any]:
        """What (n_rows, n_label_columns) encoded `labels` stand for; the inverse of `encode`."""
        if self.multilabel:
            largest = np.array([(column.values or (1.0,))[-1] for column in self.columns])
            return np.asarray(labels == largest, np.int64)
        return _pick(self.classes, np.searchsorted(self.values, labels[:, 0]))

    def weights(self, given: Mapping[Any, float]) -> dict[float, float]:
        """Weights by class as weights by the number the class became."""
        coded = {}
        for label, weight in given.items():
            place = np.flatnonzero(self.classes == label)
            if not place.size:
                raise InputError(
                    f"class_weight names class {label!r}, which is not one of the classes "
                    f"{_listed(self.classes)}"
                )
            coded[float(self.values[place[0]])] = weight
        return coded


def is_indicator(y: Any) -> bool:
    """Whether y, which may be a dask collection, has a column for each of several labels."""
    if hasattr(y, "__dask_graph__"):
        return bool(y.ndim == 2 and y.shape[1] > 1)
    return bool(type_of_target(y) == "multilabel-indicator")


def _pick(classes: NDArray[Any], places: NDArray[Any]) -> NDArray[Any]:
    picked: NDArray[Any] = classes[places.astype(np.intp)]
    return picked


def as_labels(y: Any) -> NDArray[Any]:
    """Checked labels: (n_rows,) of any sortable type, or an (n_rows, n_labels) 0/1 matrix."""
    check_classification_targets(y)
    if type_of_target(y, input_name="y") == "multilabel-indicator":
        dense = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
        # A column of one value is not known to be 0 and 1; `type_of_target` lets -1 and 1 pass.
        if not np.isin(dense, (0, 1)).all():
            raise InputError("the matrix of labels y must hold nothing but 0 and 1")
        return dense
    return np.asarray(column_or_1d(y, warn=True))


def _listed(labels: Any) -> str:
    shown = [str(label) for label in labels[:10]]
    return ", ".join(shown) + (", ..." if len(labels) > 10 else "")
