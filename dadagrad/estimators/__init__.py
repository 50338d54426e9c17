"""Estimators by the conventions of scikit-learn.

`AdaGradClassifier` and `AdaGradRegressor` train on arrays, sparse matrices, data frames, dask
collections and datasets on disk, and fit wherever scikit-learn takes an estimator: pipelines, grid
searches, cross-validation. `AdaGradRanker` also takes the query of each row.
"""

from __future__ import annotations

from dadagrad.estimators.classifier import AdaGradClassifier
from dadagrad.estimators.cross_validation import AdaGradClassifierCV, AdaGradRegressorCV
from dadagrad.estimators.ranker import AdaGradRanker
from dadagrad.estimators.regressor import AdaGradRegressor

__all__ = [
    "AdaGradClassifier",
    "AdaGradClassifierCV",
    "AdaGradRanker",
    "AdaGradRegressor",
    "AdaGradRegressorCV",
]
