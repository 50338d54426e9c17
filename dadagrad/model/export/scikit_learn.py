"""Export to fitted estimators of scikit-learn."""

from __future__ import annotations

from typing import Any, BinaryIO, ClassVar

import numpy as np

from dadagrad.data.labels import class_labels
from dadagrad.errors import InputError
from dadagrad.model.base import LinearModel
from dadagrad.model.export.base import FORMATS, Format, import_package
from dadagrad.optim.registry import register

_CLASSIFIERS = {"logistic": "log_loss", "squared-hinge": "squared_hinge"}
_REGRESSORS = {
    "squared": "squared_error",
    "huber": "huber",
    "absolute": "epsilon_insensitive",
    "quantile": "epsilon_insensitive",
}


@register(FORMATS, "sklearn")
class ScikitLearn(Format):
    """A fitted estimator with the same scores and predictions; a file is one of skops.

    Its `predict_proba`, if it has one, is that of the loss, without the calibration.
    """

    suffix: ClassVar[str] = ".skops"

    def make(self, model: LinearModel) -> Any:
        several = model.task == "regression" and model.n_outputs > 1
        if several or model.task in ("multilabel", "ranking") or model.link == "log":
            raise InputError(
                f"scikit-learn has no estimator for a {model.task} task with {model.loss} loss and "
                f"{model.n_outputs} outputs; export the model as onnx, csv or parquet"
            )
        coefficients = np.zeros((model.n_outputs, model.n_features))
        coefficients[:, model.ids] = model.weights.T
        intercept = model.intercept
        estimator = _estimator(model)
        estimator.n_features_in_ = model.n_features
        if model.task == "regression":
            estimator.coef_, estimator.intercept_ = coefficients[0], intercept
            return estimator
        (column,) = model.label_columns
        estimator.classes_ = class_labels(column)
        if model.task == "multiclass" and model.n_outputs == 2:
            # Two classes have one row there, the difference of ours.
            coefficients, intercept = np.diff(coefficients, axis=0), np.diff(intercept)
        estimator.coef_, estimator.intercept_ = coefficients, intercept
        return estimator

    def write(self, model: LinearModel, file: BinaryIO) -> None:
        file.write(import_package("skops.io", "a file of scikit-learn").dumps(self.make(model)))


def _estimator(model: LinearModel) -> Any:
    """An estimator of the class whose scores and predictions are those of the model."""
    from sklearn.linear_model import LogisticRegression, SGDClassifier, SGDRegressor

    loss = model.loss.partition(":")[0]
    if model.task == "regression":
        return SGDRegressor(loss=_REGRESSORS.get(loss, "squared_error"))
    if loss == "softmax":
        return LogisticRegression()
    return SGDClassifier(loss=_CLASSIFIERS.get(loss, "hinge"))
