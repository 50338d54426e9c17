"""Linear classifier with scikit-learn's interface."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dadagrad.data.dataset import Dataset
from dadagrad.data.views import with_label_columns
from dadagrad.errors import InputError
from dadagrad.estimators.arguments import is_stored, open_stored
from dadagrad.estimators.base import Columns, LinearEstimator
from dadagrad.estimators.labels import LabelEncoder, as_labels, is_indicator
from dadagrad.optim.calibration import CALIBRATIONS
from dadagrad.optim.losses import LOSSES


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
    0.99
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
            self._encoder = LabelEncoder.of_dataset(open_stored(X))
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
        if new_labels:
            self._encoder = LabelEncoder.of_dataset(data)
            return data
        return with_label_columns(data, self._encoder.columns, data.schema.n_features)

    def _decode_labels(self, labels: NDArray[np.float64]) -> NDArray[Any]:
        return self._encoder.decode(labels)
