"""A first model: the estimators on data that comes with scikit-learn. Runs in seconds.

AdaGrad gives every feature a step size of its own, so there is no schedule to tune:
``step_size="auto"``, the default, tries a few on the first rows and goes on with the best.
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
    """A pipeline, cross-validated like any other of scikit-learn."""
    X, y = load_breast_cancer(return_X_y=True)
    model = make_pipeline(StandardScaler(), AdaGradClassifier(loss="logistic"))
    accuracy = cross_val_score(model, X, y, cv=5)
    print(f"breast cancer, 5-fold accuracy: {accuracy.mean():.3f}")


def ten_classes() -> None:
    """More classes are more outputs of the same passes over the data."""
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)
    model = AdaGradClassifier().fit(X_train, y_train)
    report = model.report_
    print(f"digits, test accuracy: {model.score(X_test, y_test):.3f}")
    print(f"  step size chosen: {report['step_size']:g}")
    # Each row was predicted before it was learned from: an honest error without a test set.
    print(f"  progressive error over {model.n_iter_} passes: {report['progressive_error']:.3f}")


def few_of_many_features() -> None:
    """With an l1 penalty, features that tell little get a weight of exactly 0."""
    X, y = make_classification(5000, 500, n_informative=10, n_redundant=0, random_state=0)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    for l1 in (0.0, 0.01, 0.03):
        model = AdaGradClassifier(loss="logistic", l1=l1).fit(X_train, y_train)
        kept = np.count_nonzero(model.coef_)
        print(f"l1 = {l1:4}: {kept:3} of 500 weights, accuracy {model.score(X_test, y_test):.3f}")


def a_stream() -> None:
    """`partial_fit` goes on from where it was: rows may come in pieces, and bits do not change."""
    X, y = make_classification(10_000, 50, random_state=0)
    settings: dict[str, Any] = {"loss": "logistic", "step_size": 0.2, "shuffle": False}
    whole = AdaGradClassifier(passes=1, **settings).fit(X, y)
    pieces = AdaGradClassifier(**settings)
    for rows in np.array_split(np.arange(len(X)), 7):
        pieces.partial_fit(X[rows], y[rows], classes=[0, 1])
    print(f"in pieces the same bits as in one: {np.array_equal(whole.coef_, pieces.coef_)}")


if __name__ == "__main__":
    two_classes()
    ten_classes()
    few_of_many_features()
    a_stream()
