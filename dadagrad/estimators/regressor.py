"""Linear regression with scikit-learn's interface."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags, check_array

from dadagrad.data.dataset import Dataset, LabelColumn
from dadagrad.errors import InputError
from dadagrad.estimators.base import Columns, LinearEstimator
from dadagrad.optim.losses import LOSSES, check_targets


class AdaGradRegressor(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """Linear regression trained by AdaGrad.

    Each column of y has one linear model, and all are trained in the same passes over the data.
    The loss "absolute" predicts medians and "quantile" any quantile; "poisson" is for counts and
    other y of at least 0, the logarithm of whose mean is linear.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    n_features_in_, feature_names_in_, n_iter_
        As in `AdaGradClassifier`.

    Examples
    --------
    >>> from dadagrad.estimators import AdaGradRegressor
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [1.0, 3.0, 5.0, 7.0]
    >>> AdaGradRegressor(passes=500).fit(X, y).predict([[10.0]]).round(1).tolist()
    [21.0]
    """

    _tasks = ("regression",)
    _excluded_settings = ("calibration", "class_weight", "seed")
    _columns: tuple[LabelColumn, ...]
    _flat: bool
    """True if y has one dimension."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @property
    def coef_(self) -> Any:
        """Weights, (n_features,) or (n_targets, n_features); a sparse matrix has two axes."""
        fitted = self._fitted
        return fitted.coefficients[0] if self._flat and not fitted.sparse else fitted.coefficients

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the coefficient of determination R^2; a dataset needs no y."""
        return float(super().score(*self._score_arguments(X, y, sample_weight)))

    def _encode_labels(
        self, y: NDArray[Any], kept: NDArray[np.bool_], *, new_labels: bool
    ) -> tuple[NDArray[np.float64], Columns]:
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y", estimator=self)
        labels = y.reshape(len(y), -1)
        # Training would see the rows in another order, and name the wrong row.
        check_targets(LOSSES.make(self.loss), labels, "y", 0)
        count = labels.shape[1]
        names = ["label"] if y.ndim == 1 else [f"label_{k}" for k in range(count)]
        columns = tuple(LabelColumn(name) for name in names)
        return labels[kept], self._keep_columns(columns, "y", y.ndim == 1, new_labels)

    def _adopt_labels(self, data: Dataset, *, new_labels: bool) -> Dataset:
        columns = tuple(LabelColumn(column.name) for column in data.schema.label_columns)
        self._keep_columns(columns, data.url, len(columns) == 1, new_labels)
        return data

    def _keep_columns(self, columns: Columns, source: str, flat: bool, new_labels: bool) -> Columns:
        """Return the columns of the first call, of which there must be as many."""
        if new_labels or not self.__sklearn_is_fitted__():
            self._columns, self._flat = columns, flat
        if len(columns) != len(self._columns):
            raise InputError(
                f"{source} has {len(columns)} columns of labels, before there were "
                f"{len(self._columns)}"
            )
        return self._columns

    def _decode_labels(self, labels: NDArray[np.float64]) -> NDArray[Any]:
        return labels[:, 0] if self._flat else labels
