"""Softmax, multiclass hinge, Poisson and quantile in training: what is counted, and what comes."""

import numpy as np
import pytest
from helpers.training_cases import make_data
from sklearn.metrics import roc_auc_score

from dadagrad import (
    AdaGradClassifier,
    AdaGradRegressor,
    InputError,
    TrainConfig,
    TrainingError,
    train,
)
from dadagrad.training.engines import warm_up

COUPLED = ("softmax", "multiclass-hinge")
each_coupled = pytest.mark.parametrize("loss", COUPLED)


@each_coupled
def test_two_classes_are_two_outputs(loss):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(500, 4))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=500) > 0, "yes", "no")
    classifier = AdaGradClassifier(loss=loss, calibration="none").fit(X, y)
    assert classifier.coef_.shape == (2, 4)
    decision = classifier.decision_function(X)
    assert decision.shape == (500,)
    predicted = classifier.predict(X)
    np.testing.assert_array_equal(predicted, np.where(decision > 0, "yes", "no"))
    assert np.mean(predicted == y) > 0.8
    assert roc_auc_score(y == "yes", decision) > 0.9
    if loss == "softmax":
        probabilities = classifier.predict_proba(X)
        np.testing.assert_allclose(probabilities[:, 1], 1 / (1 + np.exp(-decision)), rtol=1e-9)
    else:
        assert not hasattr(classifier, "predict_proba")


def test_a_count_below_zero_is_named(monkeypatch):
    monkeypatch.setattr(warm_up, "_warm", set())  # as in the first run of a process
    data = make_data((30, 17), labels="real")
    first = int(np.flatnonzero(data.read(0).labels[:, 0] < 0)[0])
    message = rf"partition part-00000: row {first} has label -.*poisson loss needs labels from 0"
    with pytest.raises(InputError, match=message):
        train(data, TrainConfig(loss="poisson", shuffle=False))
    X, y = np.eye(4), np.array([1.0, 0.0, -2.0, 3.0])
    with pytest.raises(InputError, match="y: row 2 has label -2"):
        AdaGradRegressor(loss="poisson").fit(X, y)


@pytest.mark.parametrize("step_size", [1e25, [1e25, 1e30]])
@pytest.mark.parametrize("mode", [{}, {"streams": 2}])
def test_the_first_run_of_a_process_names_its_own_rows_where_it_diverges(
    step_size, mode, monkeypatch
):
    monkeypatch.setattr(warm_up, "_warm", set())
    with pytest.raises(TrainingError, match=r"memory.* diverged"):
        train(make_data(labels="real"), loss="squared", step_size=step_size, **mode)


def test_poisson_regression_finds_the_rates():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(4000, 5))
    truth = np.array([0.5, -0.3, 0.0, 0.2, 0.4])
    rate = np.exp(X @ truth + 0.7)
    y = rng.poisson(rate)
    regressor = AdaGradRegressor(loss="poisson").fit(X, y)
    np.testing.assert_allclose(regressor.coef_, truth, atol=0.1)
    predicted = regressor.predict(X)
    assert (predicted > 0).all()
    np.testing.assert_allclose(predicted.mean(), y.mean(), rtol=0.1)
    np.testing.assert_allclose(predicted, np.exp(X @ regressor.coef_ + regressor.intercept_))
    # A score that no exponential can take is answered with the largest mean there is.
    assert np.isfinite(regressor.predict(1e6 * X)).all()


@pytest.mark.parametrize("quantile", [0.1, 0.9])
def test_quantile_regression_leaves_a_share_below(quantile):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(3000, 3))
    y = X @ [1.0, -2.0, 0.5] + rng.exponential(size=3000)
    regressor = AdaGradRegressor(loss=f"quantile:q={quantile}").fit(X, y)
    assert np.mean(y < regressor.predict(X)) == pytest.approx(quantile, abs=0.03)


@pytest.mark.parametrize("loss", ["absolute", "quantile:q=0.8"])
def test_targets_in_a_large_unit_are_learned_as_in_a_small_one(loss):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(200, 4))
    y = X @ [3.0, 1.0, 0.1, 0.0]
    small, large = (AdaGradRegressor(loss=loss).fit(X, y * unit) for unit in (1.0, 1e-6))
    np.testing.assert_allclose(large.coef_ * 1e6, small.coef_, atol=1e-3)
