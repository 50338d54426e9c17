"""Linear regression with scikit-learn's interface."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags, check_array

from dadagrad.data.dataset import LabelColumn
from dadagrad.errors import InputError
from dadagrad.estimators.base import LinearEstimator
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
    coef_ : (n_features,) or (n_targets, n_features) float64
        One dimension if y has one. It is made when first used.
    intercept_ : (n_targets,) float64
    n_features_in_, feature_names_in_, n_iter_, t_, model_, report_
        As in `AdaGradClassifier`.

    Examples
    --------
    >>> from dadagrad.estimators import AdaGradRegressor
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [1.0, 3.0, 5.0, 7.0]
    >>> AdaGradRegressor(passes=500).fit(X, y).predict([[10.0]]).round(1).tolist()
    [21.0]
    """

    _tasks = ("regression",)
    _excluded_settings = ("class_weight", "seed")
    _names: tuple[str, ...]
    """Names of the label columns."""
    _flat: bool
    """True if y has one dimension."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @property
    def coef_(self) -> Any:
        """Weights, (n_features,) or (n_targets, n_features); a sparse matrix has two axes."""
        learned = self._fitted
        if self._flat and not learned.sparse:
            return learned.coefficients[0]
        return learned.coefficients

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Train from the start.

        Parameters
        ----------
        X, sample_weight
            As in `AdaGradClassifier.fit`.
        y : (n_rows,) or (n_rows, n_targets)
            Numbers; None for a dataset, which has its own.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from these rows in one pass, as `AdaGradClassifier.partial_fit`.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.

        Returns
        -------
        self
        """
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return predictions: (n_rows,), or (n_rows, n_targets) if y had two dimensions.

        X is any input of `fit`; the result is an array in memory.
        """
        scores = self._scores(X)
        values = self._fitted.model.predict_labels(scores).reshape(scores.shape)
        return values[:, 0] if self._flat else values

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the coefficient of determination R^2; a dataset needs no y."""
        return float(super().score(*self._score_arguments(X, y, sample_weight)))

    def _check_labels(self, y: Any) -> NDArray[Any]:
        checked: NDArray[Any] = check_array(
            y, ensure_2d=False, dtype=np.float64, input_name="y", estimator=self
        )
        # Training would see the rows in another order, and name the wrong row.
        check_targets(LOSSES.make(self.loss), checked.reshape(len(checked), -1), "y", 0)
        return checked

    def _encode_labels(
        self, y: NDArray[Any], *, new_labels: bool
    ) -> tuple[NDArray[np.float64], tuple[LabelColumn, ...]]:
        labels = y.reshape(len(y), -1)
        flat = y.ndim == 1
        count = labels.shape[1]
        names = ("label",) if flat else tuple(f"label_{k}" for k in range(count))
        if new_labels or not self.__sklearn_is_fitted__():
            self._names, self._flat = names, flat
        self._check_count(count, "y")
        return labels, self._columns()

    def _adopt_columns(
        self, columns: tuple[LabelColumn, ...], source: str, *, new_labels: bool
    ) -> tuple[LabelColumn, ...]:
        for column in columns:
            if column.names is not None:
                raise InputError(
                    f"{source}: the labels of column {column.name!r} are texts; a regression "
                    "needs numbers: use AdaGradClassifier"
                )
        if new_labels or not self.__sklearn_is_fitted__():
            self._names = tuple(column.name for column in columns)
            self._flat = len(columns) == 1
        self._check_count(len(columns), source)
        return self._columns()

    def _columns(self) -> tuple[LabelColumn, ...]:
        return tuple(LabelColumn(name) for name in self._names)

    def _check_count(self, count: int, source: str) -> None:
        if count != len(self._names):
            raise InputError(
                f"{source} has {count} columns of labels, before there were {len(self._names)}"
            )

    def _labels_of(self, labels: NDArray[np.float64]) -> NDArray[Any]:
        return labels[:, 0] if self._flat else labels
