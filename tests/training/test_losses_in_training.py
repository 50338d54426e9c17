"""Softmax, multiclass hinge, Poisson and quantile in training: what is counted, and what comes."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.training_cases import make_data
from sklearn.metrics import roc_auc_score

from dadagrad import AdaGradClassifier, AdaGradRegressor
from dadagrad.config import TrainConfig
from dadagrad.data.dataset import MemoryDataset, Schema, describe_labels
from dadagrad.data.rows import Rows
from dadagrad.errors import InputError
from dadagrad.model.evaluate import evaluate
from dadagrad.model.predict import predict
from dadagrad.problem import make_problem
from dadagrad.training import warm_up
from dadagrad.training.run import train

COUPLED = ("softmax", "multiclass-hinge")
each_coupled = pytest.mark.parametrize("loss", COUPLED)


def newsgroups(n_rows=4000, n_classes=6, seed=0):
    """Binary, normalised documents; each class prefers some of the words, and many are common."""
    rng = np.random.default_rng(seed)
    n_features, length = 800, 25
    classes = rng.integers(0, n_classes, n_rows)
    common = 1.0 / np.arange(10, n_features + 10)
    leaning = np.exp(1.2 * np.random.default_rng(99).normal(size=(n_classes, n_features)))
    words = common * leaning
    words /= words.sum(axis=1, keepdims=True)
    ids = [np.unique(rng.choice(n_features, length, p=words[of])) for of in classes]
    parts = []
    for rows in np.array_split(np.arange(n_rows), 3):
        lengths = [len(ids[row]) for row in rows]
        parts.append(
            Rows.from_csr(
                np.concatenate([[0], np.cumsum(lengths)]),
                np.concatenate([ids[row] for row in rows]),
                None,
                classes[rows, None].astype(float),
                None,
                (1 / np.sqrt(lengths)).astype(np.float32),
            )
        )
    columns = describe_labels(classes[:, None].astype(float), ["group"])
    return MemoryDataset(parts, Schema(n_features, columns))


@pytest.mark.parametrize(
    ("loss", "settings", "at_zero"),
    [
        ("softmax", {"batch_size": 32, "step_size": 0.3}, np.log(6.0)),
        ("multiclass-hinge", {}, 1.0),
    ],
)
def test_one_pass_learns_classes(loss, settings, at_zero):
    result = train(newsgroups(3000), TrainConfig(loss=loss, **settings))
    assert result.report["progressive_error"] < 0.45  # chance: 0.83
    assert result.report["progressive_loss"] < 0.85 * at_zero
    held_out = evaluate(result.model, newsgroups(1000, seed=1))
    assert held_out["error"] < 0.35
    assert held_out["loss"] < 0.75 * at_zero
    assert held_out["auc"] is None


@each_coupled
def test_compiled_and_plain_training_agree(loss):
    """Averaging is left to the plain forms; a box as wide as any weight changes nothing."""
    data = make_data((60,), labels="multiclass")
    settings = {"loss": loss, "step_size": 0.3, "batch_size": 1, "shuffle": False}
    compiled = train(data, TrainConfig(**settings)).model
    plain = train(data, TrainConfig(**settings, regularizer="l2-ball:radius=1e6")).model
    np.testing.assert_array_equal(plain.ids, compiled.ids)
    np.testing.assert_allclose(plain.weights, compiled.weights, atol=1e-4)


def test_probabilities_of_softmax_are_written(tmp_path):
    data = newsgroups(600)
    model = train(data, TrainConfig(loss="softmax", step_size=0.5, calibration="none")).model
    out = str(tmp_path / "predictions.parquet")
    predict(model, data, out)
    table = pq.read_table(out)
    margins = np.stack([table[f"score_{label}"].to_numpy() for label in range(6)], axis=1)
    found = np.stack([table[f"probability_{label}"].to_numpy() for label in range(6)], axis=1)
    expected = np.exp(margins) / np.exp(margins).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    labels = np.concatenate([data.read(i).labels[:, 0] for i in range(3)]).astype(int)
    likelihood = -np.log(found[np.arange(600), labels]).mean()
    assert evaluate(model, data)["loss"] == pytest.approx(likelihood)
    with np.errstate(over="raise", invalid="raise"):
        far = model.probabilities(np.array([[1e4, -1e4, 0.0, 1e4, 0.0, 0.0]]))
    np.testing.assert_array_equal(far, [[0.5, 0.0, 0.0, 0.5, 0.0, 0.0]])


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


def test_the_auc_of_two_outputs_is_that_of_their_difference():
    data = make_data((200,), labels="binary", seed=4)
    model = train(data, TrainConfig(loss="softmax", step_size=0.3)).model
    rows = data.read(0)
    margins = model.scores(rows)
    expected = roc_auc_score(rows.labels[:, 0] > 0, margins[:, 1] - margins[:, 0])
    assert evaluate(model, data)["auc"] == pytest.approx(expected)


@pytest.mark.parametrize("loss", [*COUPLED, "ranking"])
def test_losses_for_one_label_column_refuse_several(loss):
    schema = replace(make_data(labels="multilabel").schema, queried=True)
    with pytest.raises(InputError, match=f"the {loss} loss is for one label column.* has 3"):
        make_problem(TrainConfig(loss=loss), schema, 1)


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
    # A margin that no exponential can take is answered with the largest mean there is.
    assert np.isfinite(regressor.predict(1e6 * X)).all()


@pytest.mark.parametrize("quantile", [0.1, 0.9])
def test_quantile_regression_leaves_a_share_below(quantile):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(3000, 3))
    y = X @ [1.0, -2.0, 0.5] + rng.exponential(size=3000)
    regressor = AdaGradRegressor(loss=f"quantile:q={quantile}").fit(X, y)
    assert np.mean(y < regressor.predict(X)) == pytest.approx(quantile, abs=0.03)


def test_settings_of_the_quantile_are_checked():
    with pytest.raises(InputError, match="q of quantile must be below 1"):
        TrainConfig(loss="quantile:q=1")
    with pytest.raises(InputError, match="q of quantile must be a finite number above 0"):
        TrainConfig(loss="quantile:q=0")
