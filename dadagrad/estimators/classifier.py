"""Linear classifier with scikit-learn's interface."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d

from dadagrad.data.dask_blocks import is_dask
from dadagrad.data.dataset import Dataset, LabelColumn
from dadagrad.data.views import with_label_columns
from dadagrad.errors import InputError
from dadagrad.estimators.arguments import is_stored, open_stored
from dadagrad.estimators.base import Columns, LinearEstimator
from dadagrad.optim.calibration import CALIBRATIONS
from dadagrad.optim.losses import LOSSES
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
    def of_columns(cls, columns: tuple[LabelColumn, ...], source: str) -> LabelEncoder:
        """Encode the label columns of the dataset `source`."""
        if not columns:
            raise InputError(f"{source} has no label column; training needs at least one")
        if len(columns) > 1:
            return cls(np.arange(len(columns)), columns)
        (column,) = columns
        if column.values is None:
            raise InputError(
                f"{source}: label column {column.name!r} has too many distinct values to be "
                "classes; use AdaGradRegressor"
            )
        classes = np.array(column.names or column.values)
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
                f"classes {listed(self.classes.tolist())}"
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
        decoded: NDArray[Any] = self.classes[np.searchsorted(self.values, labels[:, 0])]
        return decoded


def is_indicator(y: Any) -> bool:
    """Return True if y has a column for each of several labels; y may be a dask collection."""
    if is_dask(y):
        return bool(y.ndim == 2 and y.shape[1] > 1)
    return bool(type_of_target(y, input_name="y") == "multilabel-indicator")


def as_labels(y: Any) -> NDArray[Any]:
    """Check labels: (n_rows,) of any sortable type, or an (n_rows, n_labels) 0/1 matrix."""
    try:
        check_classification_targets(y)
    except TypeError as error:  # they cannot be sorted
        raise InputError(
            f"the labels y are of several kinds ({error}); give texts alone or numbers alone, "
            "without None"
        ) from None
    if is_indicator(y):
        dense = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
        # `type_of_target` also accepts two other values, such as -1 and 1.
        if not np.isin(dense, (0, 1)).all():
            raise InputError("the matrix of labels y must hold nothing but 0 and 1")
        return dense
    return np.asarray(column_or_1d(y, warn=True))


def _has_probabilities(estimator: AdaGradClassifier) -> bool:
    calibrated = CALIBRATIONS.make(estimator.calibration).is_fitted
    if not calibrated and LOSSES.make(estimator.loss).link != "logit":
        raise AttributeError(
            "without a calibration, probabilities come with loss='logistic' or 'softmax', not with "
            f"loss={estimator.loss!r}; give calibration='platt'"
        )
    return True


class AdaGradClassifier(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
    """Linear classifier trained by AdaGrad.

    Two classes need one linear model; more classes, and the columns of a multi-label y, need one
    each, and all are trained in the same passes over the data. The losses "softmax" and
    "multiclass-hinge" compare all classes, and have one model each for two classes too.

    On a few hundred to a few thousand rows, fewer than the default number of passes lose accuracy
    and more hardly add to it; on millions of rows one pass is enough. Rows of a stored dataset keep
    their order inside partitions when they are shuffled, and rows of a dask collection stay in
    their block.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_ : (1, n_features), (n_classes, n_features) or (n_labels, n_features) float64
        One row for two classes, but two with the losses over all classes.
    n_features_in_ : int
    feature_names_in_ : (n_features,) of str
        Column names of X, if it was a data frame with texts as names.
    n_iter_ : int
        Number of passes of the last `fit` or `partial_fit`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dadagrad.estimators import AdaGradClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> classifier = AdaGradClassifier(loss="logistic").fit(scale(X), y)
    >>> round(classifier.score(scale(X), y), 2)
    0.98
    """

    _tasks = ("binary", "multiclass")
    _excluded_settings = ("seed",)
    _encoder: LabelEncoder
    calibration: Any
    class_weight: Any

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    @property
    def classes_(self) -> NDArray[Any]:
        """Distinct labels, sorted; the numbers of the columns of a multi-label y."""
        check_is_fitted(self)
        return self._encoder.classes

    def partial_fit(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from these rows in one pass, as `AdaGradRegressor.partial_fit`.

        `classes` are the (n_classes,) labels of all calls. They are required in the first call,
        unless y has several columns or X is a dataset.
        """
        if self.class_weight == "balanced":
            raise InputError(
                "class_weight='balanced' needs all rows, and partial_fit sees only some; give "
                "a dict of weights instead"
            )
        self._take_classes(X, y, classes)
        return self._partial_fit(X, y, sample_weight)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return scores: (n_rows,) for two classes, else (n_rows, n_classes or n_labels).

        If two classes have one model each, the score is the difference of second and first.
        """
        scores = self._scores(X)
        if scores.shape[1] == 1:
            return scores[:, 0]
        if self._fitted.model.task == "multiclass" and scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted labels: (n_rows,), or (n_rows, n_labels) of 0 and 1.

        X is any input of `fit`; the result is an array in memory.
        """
        labels = self.model_.predict_labels(self._scores(X))
        return self._encoder.decode(labels.reshape(len(labels), -1))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return (n_rows, n_classes) probabilities, or (n_rows, n_labels) of each label.

        They are calibrated on the progressive scores of the first pass, see `calibration`.
        """
        return self._fitted.model.probabilities(self._scores(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of rows with a correct prediction; a dataset needs no y."""
        return float(super().score(*self._score_arguments(X, y, sample_weight)))

    def _take_classes(self, X: Any, y: Any, classes: ArrayLike | None) -> None:
        """Read all labels from the arguments of a first `partial_fit`."""
        if self.__sklearn_is_fitted__():
            if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise InputError(
                    f"classes={classes!r} are not those of the first call, {self.classes_!r}"
                )
            return
        if is_stored(X) and classes is None:
            data = open_stored(X)
            self._encoder = LabelEncoder.of_columns(data.schema.label_columns, data.url)
        elif not is_stored(X) and is_indicator(y):
            self._encoder = LabelEncoder.of_indicators(y.shape[1])
        elif classes is None:
            raise InputError("classes must be passed on the first call to partial_fit")
        else:
            self._encoder = LabelEncoder.of_classes(classes)

    def _encode_labels(
        self, y: NDArray[Any], kept: NDArray[np.bool_], *, new_labels: bool
    ) -> tuple[NDArray[np.float64], Columns]:
        y = as_labels(y)[kept]
        if new_labels and y.ndim == 2:
            self._encoder = LabelEncoder.of_indicators(y.shape[1])
        elif new_labels:
            self._encoder = LabelEncoder.of_classes(y)
        labels = self._encoder.encode(y)
        return labels, self._encoder.counted(labels)

    def _adopt_labels(self, data: Dataset, *, new_labels: bool) -> Dataset:
        columns = data.schema.label_columns
        if new_labels:
            self._encoder = LabelEncoder.of_columns(columns, data.url)
            return data
        return with_label_columns(data, self._encoder.columns, data.schema.n_features)

    def _decode_labels(self, labels: NDArray[np.float64]) -> NDArray[Any]:
        return self._encoder.decode(labels)
