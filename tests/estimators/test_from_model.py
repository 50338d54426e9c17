"""Estimators that are made of models: they predict, show the settings and learn on."""

import dask.array as da
import numpy as np
import pandas
import pytest
from helpers.objects import OwnHinge
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import dadagrad
from dadagrad import AdaGradClassifier, AdaGradRegressor, InputError

X = np.random.default_rng(0).normal(size=(240, 5))
Y = np.where(X[:, 0] + X[:, 1] > 0, "yes", "no")
SETTINGS = {
    "loss": "logistic", "step_size": 0.2, "l1": 1e-4, "batch_size": 1, "passes": 1,
    "shuffle": False,
}  # fmt: skip


def test_an_estimator_of_a_saved_model_goes_on_from_its_state(tmp_path):
    result = dadagrad.train((X[:200], Y[:200]), **SETTINGS)
    result.save(str(tmp_path / "model"))
    estimator = AdaGradClassifier.from_model(tmp_path / "model")
    assert estimator.get_params().items() >= SETTINGS.items()
    assert clone(estimator).get_params() == estimator.get_params()
    assert estimator.classes_.tolist() == ["no", "yes"]
    assert_array_equal(estimator.predict(X), result.model.predict(X))
    assert_allclose(estimator.predict_proba(X), result.model.predict_proba(X), rtol=1e-6)
    estimator.partial_fit(X[200:], Y[200:])
    whole = AdaGradClassifier(**SETTINGS).fit(X, Y)
    assert_array_equal(estimator.coef_, whole.coef_)


def test_a_model_without_its_state_only_predicts():
    model = dadagrad.train((X, X[:, 0]), loss="squared").model
    estimator = AdaGradRegressor.from_model(model)
    assert_allclose(estimator.predict(X), model.predict(X), rtol=1e-5)
    with pytest.raises(InputError, match="saved without it; save it by TrainResult"):
        estimator.partial_fit(X, X[:, 0])
    with pytest.raises(InputError, match="a regression with squared loss; AdaGradClassifier"):
        AdaGradClassifier.from_model(model)
    assert estimator.fit(X, X[:, 0]).score(X, X[:, 0]) > 0.9


def test_an_estimator_of_a_model_of_a_table_predicts_tables():
    frame = pandas.DataFrame(
        {"age": X[:, 0], "job": np.where(X[:, 1] > 0, "cook", "nurse"), "y": Y}
    )
    weights = {"class_weight": {"no": 1.0, "yes": 2.0}}
    result = dadagrad.train(frame, label="y", **SETTINGS | weights)
    estimator = AdaGradClassifier.from_model(result)
    assert estimator.class_weight == {"no": 1.0, "yes": 2.0}
    assert_array_equal(estimator.predict(frame), result.model.predict(frame))
    for wrong, problem in (
        (frame[["age", "job"]], "column 'job' does not hold numbers"),
        (frame[["age"]].where(frame["age"] > 0), "column 'age' has missing values"),
    ):
        remedy = r"train\(\(X, y\)\), .* AdaGradClassifier\.from_model"
        with pytest.raises(InputError, match=f"{problem}.*{remedy}"):
            AdaGradClassifier().fit(wrong, Y)
    numbers = pandas.DataFrame(X, columns=list("abcde")).assign(y=Y)
    of_numbers = AdaGradClassifier.from_model(dadagrad.train(numbers, label="y", **SETTINGS))
    for rows in (numbers.drop(columns="y"), X):
        with pytest.raises(InputError, match="made of the columns of a table"):
            of_numbers.partial_fit(rows, Y)
    for matrix in (X, X.tolist(), da.from_array(X)):
        with pytest.raises(InputError, match=r"the rows are a matrix, and .* a table"):
            of_numbers.predict(matrix)


def test_an_estimator_of_a_model_of_a_frame_knows_its_columns(tmp_path):
    frame = pandas.DataFrame(X, columns=list("abcde"))
    AdaGradClassifier().fit(frame, Y).model_.save(tmp_path / "model")
    loaded = AdaGradClassifier.from_model(tmp_path / "model")
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(frame[frame.columns[::-1]])


def test_an_estimator_of_a_model_with_an_own_loss_is_given_it(tmp_path):
    fitted = AdaGradClassifier(loss=OwnHinge(), step_size=0.2).fit(X, Y)
    fitted.model_.save(tmp_path / "model")
    with pytest.raises(InputError, match="own-hinge"):
        AdaGradClassifier.from_model(tmp_path / "model")
    loaded = AdaGradClassifier.from_model(tmp_path / "model", loss=OwnHinge())
    assert_array_equal(loaded.predict(X), fitted.predict(X))
    assert clone(loaded).fit(X, Y).model_.digest == fitted.model_.digest
