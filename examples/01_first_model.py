"""A first model: the estimators on the data sets of scikit-learn, in seconds.

AdaGrad adapts the step size of every feature, so no schedule needs tuning: ``step_size="auto"``,
the default, tries several step sizes on the first rows and continues with the best.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dadagrad.estimators import AdaGradClassifier


def two_classes() -> None:
    """Cross-validate a pipeline."""
    X, y = load_breast_cancer(return_X_y=True)
    model = make_pipeline(StandardScaler(), AdaGradClassifier(loss="logistic"))
    accuracy = cross_val_score(model, X, y, cv=5)
    print(f"breast cancer, 5-fold accuracy: {accuracy.mean():.3f}")


def ten_classes() -> None:
    """Train one output for each class, in the same passes over the data."""
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)
    model = AdaGradClassifier().fit(X_train, y_train)
    report = model.report_
    print(f"digits, test accuracy: {model.score(X_test, y_test):.3f}")
    print(f"  step size chosen: {report['step_size']:g}")
    # Each row is predicted before the model learns from it: no test set is needed.
    print(f"  progressive error of the first pass: {report['progressive_error']:.3f}")


def few_of_many_features() -> None:
    """Select features: an l1 penalty sets the weights of uninformative features to 0."""
    X, y = make_classification(5000, 500, n_informative=10, n_redundant=0, random_state=0)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    for l1 in (0.0, 0.01, 0.03):
        model = AdaGradClassifier(loss="logistic", l1=l1).fit(X_train, y_train)
        n_nonzero = np.count_nonzero(model.coef_)
        print(
            f"l1 = {l1:4}: {n_nonzero:3} of 500 weights, accuracy {model.score(X_test, y_test):.3f}"
        )


def a_stream() -> None:
    """Train on pieces with `partial_fit`: the model has the same bits as after one fit."""
    X, y = make_classification(10_000, 50, random_state=0)
    settings: dict[str, Any] = {"loss": "logistic", "step_size": 0.2, "shuffle": False}
    whole = AdaGradClassifier(passes=1, **settings).fit(X, y)
    pieces = AdaGradClassifier(**settings)
    for rows in np.array_split(np.arange(len(X)), 7):
        pieces.partial_fit(X[rows], y[rows], classes=[0, 1])
    print(f"same bits after pieces as after one fit: {np.array_equal(whole.coef_, pieces.coef_)}")


if __name__ == "__main__":
    two_classes()
    ten_classes()
    few_of_many_features()
    a_stream()
