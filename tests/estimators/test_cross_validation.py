"""Estimators that choose step size and penalties by cross-validation."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score

from dadagrad import (
    AdaGradClassifier,
    AdaGradClassifierCV,
    AdaGradRegressor,
    AdaGradRegressorCV,
    InputError,
)

GRID = {"step_size": [0.05, 0.5], "l1": [1e-4, 1e-1]}


def make_rows(n_rows=240):
    random = np.random.default_rng(0)
    X = random.normal(size=(n_rows, 8))
    return X, X[:, 0] + 0.5 * X[:, 1] + 0.3 * random.normal(size=n_rows)


@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss"])
def test_scores_are_those_of_a_grid_search(scoring):
    X, y = make_rows()
    labels, folds = np.where(y > 0, "yes", "no"), KFold(4)
    ours = AdaGradClassifierCV(cv=folds, scoring=scoring, passes=2, **GRID).fit(X, labels)
    # A grid search goes over the names of parameters in alphabetical order.
    theirs = GridSearchCV(AdaGradClassifier(passes=2, l1=0.0), GRID, cv=folds, scoring=scoring)
    theirs.fit(X, labels)
    expected = {
        (params["step_size"], params["l1"]): score
        for params, score in zip(
            theirs.cv_results_["params"], theirs.cv_results_["mean_test_score"], strict=True
        )
    }
    found = ours.cv_results_
    for params, score in zip(found["params"], found["mean_test_score"], strict=True):
        assert score == pytest.approx(expected[params["step_size"], params["l1"]])
    assert ours.best_score_ == pytest.approx(theirs.best_score_)
    alone = AdaGradClassifier(passes=2, **ours.best_params_).fit(X, labels)
    assert ours.model_.digest == alone.model_.digest
    assert len(found["split3_test_score"]) == len(found["rank_test_score"]) == 4


def test_a_setting_without_penalties_is_compared_as_it_is_fitted():
    """Its weights may be averaged, unlike those of settings with penalties."""
    X, y = make_rows()
    found = AdaGradRegressorCV(l1=[0.0, 1e-3], cv=3, passes=2).fit(X, y).cv_results_
    alone = cross_val_score(AdaGradRegressor(passes=2), X, y, cv=3)
    assert found["mean_test_score"][0] == pytest.approx(alone.mean(), abs=1e-12)


def test_early_stopping_is_refused_as_in_a_sweep():
    with pytest.raises(InputError, match="leave out early_stopping"):
        AdaGradRegressorCV(holdout=0.2, early_stopping=True).fit(*make_rows())


def test_groups_are_those_of_the_folds():
    X, y = make_rows()
    labels, groups = y > 0, np.arange(len(y)) // 30
    folds = list(GroupKFold(4).split(X, labels, groups))
    expected = AdaGradClassifierCV(cv=folds, **GRID).fit(X, labels).cv_results_
    estimator = AdaGradClassifierCV(cv=GroupKFold(4), **GRID).fit(X, labels, groups=groups)
    for name in ("mean_test_score", "split0_test_score"):
        np.testing.assert_array_equal(estimator.cv_results_[name], expected[name])


def test_a_regressor_takes_weights_and_ignores_a_fit_before():
    X, y = make_rows()
    weights = np.linspace(0.1, 2.0, len(y))
    estimator = AdaGradRegressorCV(l1=[1e-5, 10.0], step_size=0.5, cv=3)
    estimator.fit(X, y, sample_weight=weights)
    assert estimator.best_params_["l1"] == 1e-5
    first = estimator.model_.digest
    assert estimator.fit(X, y, sample_weight=weights).model_.digest == first
    assert estimator.score(X, y) > 0.8


@pytest.mark.parametrize("scoring", [None, "accuracy", lambda model, X, y: model.score(X, y)])
def test_rows_of_weight_0_do_not_choose(scoring):
    X, y = make_rows()
    labels, weights = y > 0, np.tile([0.0, 1.0, 1.0], len(y) // 3)
    labels[::3] = ~labels[::3]
    estimator = AdaGradClassifierCV(cv=KFold(2), scoring=scoring, passes=2, **GRID)
    estimator.fit(X, labels, sample_weight=weights)
    kept = weights > 0
    alone = clone(estimator).fit(X[kept], labels[kept])
    assert estimator.best_score_ == alone.best_score_ > 0.8
    assert estimator.best_params_ == alone.best_params_


def test_scores_have_the_weights_of_the_rows():
    X, y = make_rows()
    weights, whole = np.linspace(0.1, 2.0, len(y)), np.arange(len(y))
    estimator = AdaGradRegressorCV(l1=[1e-5, 10.0], step_size=0.5, cv=[(whole, whole)])
    estimator.fit(X, y, sample_weight=weights)
    assert estimator.best_score_ == pytest.approx(estimator.score(X, y, weights))
    assert estimator.best_score_ != pytest.approx(estimator.score(X, y))


def test_the_defaults_compare_no_penalty_with_penalties():
    X, y = make_rows()
    found = AdaGradClassifierCV(cv=2).fit(X, y > 0)
    assert [params["l1"] for params in found.cv_results_["params"]] == [0.0, 1e-6, 1e-5, 1e-4, 1e-3]
    assert found.score(X, y > 0) > 0.85


def test_checkpoints_are_those_of_the_fit_to_all_rows(tmp_path):
    X, y = make_rows()
    saved = AdaGradRegressorCV(l1=[1e-4, 1e-2], cv=2, checkpoints=str(tmp_path / "run"))
    plain = clone(saved).set_params(checkpoints=None).fit(X, y)
    for _ in range(2):
        assert saved.fit(X, y).model_.digest == plain.model_.digest


def test_a_dataset_and_a_cluster_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"for datasets there is `dadagrad.sweep`"):
        AdaGradClassifierCV().fit(str(tmp_path))
    X, y = make_rows()
    with pytest.raises(InputError, match=r"leave out client, or use `dadagrad.sweep`"):
        AdaGradRegressorCV(client="tcp://127.0.0.1:1").fit(X, y)
