"""The estimators: what they learn, from what kinds of input, and that they go on exactly."""

from __future__ import annotations

import doctest
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    make_classification,
    make_multilabel_classification,
    make_regression,
)
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier, SGDRegressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dadagrad.estimators.classifier
import dadagrad.estimators.regressor
from dadagrad.data.arrays import dataset_from_arrays
from dadagrad.data.dataset import MemoryDataset
from dadagrad.data.ingest import ingest
from dadagrad.data.rows import Rows
from dadagrad.errors import InputError
from dadagrad.estimators import AdaGradClassifier, AdaGradRegressor
from dadagrad.model import Model

UPDATES = ["dual-averaging", "mirror-descent", "ftrl"]
N_ROWS = 120


def problem(classes: int = 2, rows: int = N_ROWS, seed: int = 0) -> tuple[Any, Any]:
    return make_classification(
        rows, 12, n_informative=6, n_classes=classes, n_clusters_per_class=1, random_state=seed
    )


def same_bits(one: Any, other: Any) -> bool:
    return one.model_.digest == other.model_.digest


# How well they learn.


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize("name", ["digits", "breast cancer", "two clusters"])
def test_as_good_as_scikit_learn(name: str, loss: str) -> None:
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        peers = [SGDClassifier(random_state=0)]
    else:
        X, y = (
            load_breast_cancer(return_X_y=True) if name == "breast cancer" else problem(rows=2000)
        )
        peers = [SGDClassifier(random_state=0), LogisticRegression()]
    mine, *theirs = (
        cross_val_score(make_pipeline(StandardScaler(), estimator), X, y, cv=3).mean()
        for estimator in (AdaGradClassifier(loss), *peers)
    )
    assert mine > max(theirs) - 0.02


@pytest.mark.parametrize(
    "data", [load_diabetes(return_X_y=True), make_regression(1000, 20, bias=9, random_state=0)]
)
def test_regression_as_good_as_scikit_learn(data: tuple[Any, Any]) -> None:
    """Targets in the hundreds, and no scaling of them: the chosen step size must fit."""
    X, y = data
    mine, sgd = (
        cross_val_score(make_pipeline(StandardScaler(), estimator), X, y, cv=5).mean()
        for estimator in (AdaGradRegressor(), SGDRegressor(random_state=0))
    )
    assert mine > sgd - 0.04


def test_rows_sorted_by_class_are_learned_from_in_random_order() -> None:
    X, y = problem(classes=3, rows=900)
    order = np.argsort(y, kind="stable")
    shuffled = AdaGradClassifier(passes=1, step_size=0.3).fit(X[order], y[order])
    unshuffled = clone(shuffled).set_params(shuffle=False).fit(X[order], y[order])
    assert shuffled.score(X, y) > 0.82 > unshuffled.score(X, y) + 0.05


def test_the_random_state_decides_and_the_global_generator_does_not() -> None:
    X, y = problem()
    np.random.seed(1)
    first = AdaGradClassifier().fit(X, y)
    np.random.seed(2)
    state = np.random.get_state()[1].copy()
    assert same_bits(first, AdaGradClassifier(random_state=0, threads=1).fit(X, y))
    assert_array_equal(np.random.get_state()[1], state)
    assert not same_bits(first, AdaGradClassifier(random_state=3).fit(X, y))
    from_state = AdaGradClassifier(random_state=np.random.RandomState(5)).fit(X, y)
    assert same_bits(from_state, AdaGradClassifier(random_state=np.random.RandomState(5)).fit(X, y))


def test_l1_makes_zeros_and_sparse_coefficients_predict_the_same() -> None:
    X, y = problem(rows=500)
    model = AdaGradClassifier(l1=0.05, step_size=0.3).fit(X, y)
    dense, decision = model.coef_, model.decision_function(X)
    assert 0 < np.count_nonzero(dense) < dense.size
    assert model.sparsify() is model
    assert scipy.sparse.issparse(model.coef_)
    assert model.coef_.nnz == np.count_nonzero(dense)
    assert_allclose(model.decision_function(X), decision, rtol=1e-12)
    model.partial_fit(X, y)
    assert scipy.sparse.issparse(model.coef_)
    assert isinstance(model.densify().coef_, np.ndarray)


def test_the_box_holds() -> None:
    X, y = problem()
    model = AdaGradClassifier(low=0.0, high=0.1).fit(X, y)
    assert model.coef_.min() == 0.0
    assert model.coef_.max() == np.float32(0.1)


# Labels.


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"]),
        np.array(["no", "yes"], object),
        np.array([False, True]),
        np.array([-1, 1]),
        np.array([3, 40]),
        np.array([2**60, 2**60 + 1]),
    ],
)
def test_labels_of_any_type(labels: Any) -> None:
    X, y = problem()
    model = AdaGradClassifier(loss="logistic").fit(X, labels[y])
    assert_array_equal(model.classes_, labels)
    assert model.classes_.dtype == labels.dtype
    assert model.score(X, labels[y]) > 0.84
    assert model.decision_function(X).shape == (N_ROWS,)
    assert model.coef_.shape == (1, 12)
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert_array_equal(model.predict(X) == labels[1], model.predict_proba(X)[:, 1] > 0.5)
    assert_array_equal(model.predict_log_proba(X), np.log(model.predict_proba(X)))
    assert same_bits(model, AdaGradClassifier(loss="logistic").fit(X, y))


def test_several_classes() -> None:
    X, y = problem(classes=4, rows=400)
    names = np.array(["ant", "bee", "cat", "dog"])
    model = AdaGradClassifier(loss="logistic").fit(X, names[y])
    assert model.coef_.shape == (4, 12)
    assert model.intercept_.shape == (4,)
    assert_array_equal(model.predict(X), model.classes_[model.decision_function(X).argmax(axis=1)])
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert model.model_.label_columns[0].names == tuple(names)


def test_numbers_stay_labels_in_the_saved_model(tmp_path: Path) -> None:
    X, y = problem()
    model = AdaGradClassifier().fit(X, 2 * y - 1)
    model.model_.save(str(tmp_path / "model"))
    loaded = Model.load(str(tmp_path / "model"))
    assert loaded.label_columns[0].values == (-1.0, 1.0)
    rows = dataset_from_arrays(X, 2 * y - 1).read(0)
    assert_array_equal(loaded.predict_labels(loaded.margins(rows)), model.predict(X))


def test_many_labels_at_once() -> None:
    X, y = make_multilabel_classification(300, 15, n_classes=4, random_state=0)
    model = AdaGradClassifier(loss="logistic").fit(X, y)
    assert model.predict(X).shape == y.shape
    assert model.predict_proba(X).shape == y.shape
    assert model.decision_function(X).shape == y.shape
    assert (model.predict(X) == y).mean() > 0.8
    for k in range(4):
        alone = AdaGradClassifier(loss="logistic", step_size=model.report_["step_size"])
        alone.fit(X, y[:, k])
        assert_allclose(alone.coef_[0], model.coef_[k], rtol=1e-3, atol=1e-4)
    assert same_bits(model, clone(model).fit(X, scipy.sparse.csr_matrix(y)))
    pieces = AdaGradClassifier(step_size=0.2).partial_fit(X[:90], y[:90]).partial_fit(X, y)
    assert pieces.predict(X).shape == y.shape


def test_regression_of_several_targets() -> None:
    X, y = make_regression(300, 10, n_targets=3, random_state=0)
    model = AdaGradRegressor(step_size=30.0).fit(X, y)
    assert model.predict(X).shape == (300, 3)
    assert model.coef_.shape == (3, 10)
    alone = AdaGradRegressor(step_size=30.0).fit(X, y[:, 1])
    assert alone.predict(X).shape == (300,)
    assert_allclose(alone.coef_, model.coef_[1], rtol=1e-3, atol=1e-3)


def test_absolute_loss_withstands_outliers() -> None:
    X, y = make_regression(2000, 5, noise=1, random_state=0)
    y = y / y.std()
    spoiled = y.copy()
    spoiled[::10] += 100
    robust = AdaGradRegressor("absolute", step_size=0.3).fit(X, spoiled).score(X, y)
    assert robust > 0.95 > AdaGradRegressor("squared", step_size=0.3).fit(X, spoiled).score(X, y)


# Weights.


@pytest.mark.parametrize("update", UPDATES)
def test_weights_stand_for_repetitions(update: str) -> None:
    """In the same order; the checks of scikit-learn compare different ones."""
    X, y = problem(classes=3)
    weights = np.random.default_rng(0).integers(0, 4, N_ROWS)
    settings: dict[str, Any] = {"update": update, "shuffle": False, "step_size": 0.3, "l1": 1e-3}
    weighted = AdaGradClassifier(**settings).fit(X, y, sample_weight=weights)
    repeated = AdaGradClassifier(**settings).fit(X.repeat(weights, axis=0), y.repeat(weights))
    assert same_bits(weighted, repeated)
    assert weighted.t_ == repeated.t_ == 5 * weights.sum()


def test_rows_of_weight_0_are_not_there() -> None:
    X, y = problem(classes=3)
    kept = y != 2
    weighted = AdaGradClassifier().fit(X, y, sample_weight=kept.astype(float))
    assert_array_equal(weighted.classes_, [0, 1])
    assert same_bits(weighted, AdaGradClassifier().fit(X[kept], y[kept]))
    before = weighted.model_.digest
    weighted.partial_fit(X[:5], y[:5] % 2, sample_weight=np.zeros(5))
    assert weighted.model_.digest == before
    with pytest.raises(InputError, match="every sample_weight is zero"):
        AdaGradClassifier().fit(X, y, sample_weight=np.zeros(N_ROWS))
    with pytest.raises(InputError, match="row 3 has weight -1"):
        AdaGradClassifier().fit(X, y, sample_weight=np.where(np.arange(N_ROWS) == 3, -1, 1))


def test_class_weights() -> None:
    X, y = problem()
    y = np.array(["a", "b"])[y]
    by_class = AdaGradClassifier(class_weight={"b": 3.0}).fit(X, y)
    by_row = AdaGradClassifier().fit(X, y, sample_weight=np.where(y == "b", 3.0, 1.0))
    assert same_bits(by_class, by_row)
    few = np.r_[np.flatnonzero(y == "a")[:10], np.flatnonzero(y == "b")]
    balanced = AdaGradClassifier(class_weight="balanced").fit(X[few], y[few])
    n_a, n_b = 10, len(few) - 10
    weights = {"a": len(few) / (2 * n_a), "b": len(few) / (2 * n_b)}
    assert same_bits(balanced, AdaGradClassifier(class_weight=weights).fit(X[few], y[few]))
    with pytest.raises(InputError, match="class_weight names class 'z'"):
        AdaGradClassifier(class_weight={"z": 1.0}).fit(X, y)
    with pytest.raises(InputError, match="partial_fit sees some"):
        AdaGradClassifier(class_weight="balanced").partial_fit(X, y, classes=["a", "b"])


# Going on.


@given(
    cuts=st.lists(st.integers(1, N_ROWS - 1), max_size=6, unique=True),
    update=st.sampled_from(UPDATES),
    classes=st.sampled_from([2, 3]),
    weighted=st.booleans(),
)
@settings(max_examples=25)
def test_pieces_give_the_bits_of_the_whole(
    cuts: list[int], update: str, classes: int, weighted: bool
) -> None:
    X, y = problem(classes)
    X = scipy.sparse.csr_array(np.where(np.abs(X) > 0.8, X, 0))  # features come and go
    weights = np.random.default_rng(0).uniform(0, 2.5, N_ROWS) if weighted else np.ones(N_ROWS)
    options: dict[str, Any] = {
        "update": update, "step_size": 0.3, "l1": 2e-3, "l2": 1e-3, "shuffle": False,
        "batch_size": 1,
    }  # fmt: skip
    whole = AdaGradClassifier(passes=1, **options).fit(X, y, sample_weight=weights)
    pieces = AdaGradClassifier(**options)
    for rows in np.split(np.arange(N_ROWS), sorted(cuts)):
        pieces.partial_fit(X[rows], y[rows], range(classes), weights[rows])
        assert np.isfinite(pieces.coef_).all()  # asking changes nothing
    assert same_bits(whole, pieces)
    assert whole.t_ == pieces.t_
    assert_array_equal(whole.intercept_, pieces.intercept_)
    assert_allclose(whole.report_["progressive_loss"], pieces.report_["progressive_loss"])


def test_pieces_of_a_regression_give_the_bits_of_the_whole() -> None:
    X, y = make_regression(N_ROWS, 6, random_state=0)
    whole = AdaGradRegressor(step_size=9.0, shuffle=False, passes=1).fit(X, y)
    pieces = AdaGradRegressor(step_size=9.0, shuffle=False)
    pieces.partial_fit(X[:50], y[:50]).partial_fit(X[50:], y[50:])
    assert_array_equal(whole.coef_, pieces.coef_)


def test_partial_fit_goes_on_from_fit_and_after_pickling() -> None:
    X, y = problem()
    fitted = AdaGradClassifier(shuffle=False, passes=2, step_size=0.3).fit(X, y)
    restored = pickle.loads(pickle.dumps(fitted))
    for model in (fitted, restored):
        model.partial_fit(X, y)
        assert model.n_iter_ == 1
    whole = AdaGradClassifier(shuffle=False, passes=3, step_size=0.3).fit(X, y)
    assert same_bits(whole, fitted)
    assert same_bits(whole, restored)
    assert fitted.report_["examples"] == 3 * N_ROWS


@pytest.mark.parametrize("given", [{"update": "arow"}, {"step_size": 0.3}])
def test_partial_fit_reports_what_fit_does(given: dict[str, Any]) -> None:
    """Also of an algorithm that has no step size."""
    X, y = problem()
    whole = AdaGradClassifier(**given, passes=1).fit(X, y).report_
    piece = AdaGradClassifier(**given).partial_fit(X, y, classes=[0, 1]).report_
    for name in ("examples", "steps", "features", "step_size", "batch_size"):
        assert piece[name] == whole[name]
    assert piece["step_size"] == given.get("step_size")


def test_partial_fit_keeps_the_step_size_it_chose() -> None:
    X, y = problem()
    model = AdaGradClassifier().partial_fit(X, y, classes=[0, 1])
    chosen = model.report_["step_size"]
    model.partial_fit(X[:1], y[:1])
    assert model.report_["step_size"] == chosen
    again = AdaGradClassifier().partial_fit(X, y, classes=[0, 1]).partial_fit(X[:1], y[:1])
    assert same_bits(model, again)


def test_each_partial_fit_has_an_order_of_its_own() -> None:
    seeds = []

    class Recorder(AdaGradClassifier):
        def _config(self, seed: int) -> Any:
            seeds.append(seed)
            return super()._config(seed)

    X, y = problem()
    for _ in range(2):
        model = Recorder(step_size=0.3)
        for _ in range(3):
            model.partial_fit(X, y, classes=[0, 1])
    assert seeds[:3] == seeds[3:]
    assert len(set(seeds)) == 3


def test_partial_fit_refuses_what_does_not_fit() -> None:
    X, y = problem()
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        AdaGradClassifier().partial_fit(X, y)
    model = AdaGradClassifier(step_size=0.3).partial_fit(X, y, classes=[0, 1])
    with pytest.raises(InputError, match="row 4 of y has label 7"):
        model.partial_fit(X, np.where(np.arange(N_ROWS) == 4, 7, y))
    with pytest.raises(InputError, match="has label 'a'"):
        model.partial_fit(X, np.array(["a", "b"])[y])
    with pytest.raises(InputError, match="are not those of the first call"):
        model.partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="expecting 12 features"):
        model.partial_fit(X[:, :5], y)
    with pytest.raises(InputError, match="update was 'dual-averaging' and is 'ftrl' now"):
        model.set_params(update="ftrl").partial_fit(X, y)


# Inputs.


def test_formats_of_x_give_the_same_bits() -> None:
    X, y = problem()
    X = np.where(np.abs(X) > 0.5, X, 0).astype(np.float32)
    expected = AdaGradClassifier().fit(X, y)
    long = scipy.sparse.csr_array(X)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    twice = scipy.sparse.coo_array(X)
    twice = scipy.sparse.coo_array(
        (np.tile(twice.data / 2, 2), (np.tile(twice.row, 2), np.tile(twice.col, 2))), X.shape
    )
    inputs = [X.astype(np.float64), np.asfortranarray(X), X.tolist(), pd.DataFrame(X), long, twice]
    inputs += [getattr(scipy.sparse, f"{name}_matrix")(X) for name in ("csc", "lil", "dok", "bsr")]
    for given_x in inputs:
        model = AdaGradClassifier().fit(given_x, pd.Series(y))
        assert same_bits(expected, model)
        assert_allclose(model.decision_function(given_x), expected.decision_function(X), rtol=1e-6)


def test_names_of_features() -> None:
    X, y = problem()
    frame = pd.DataFrame(X, columns=[f"column {k}" for k in range(12)])
    model = AdaGradClassifier().fit(frame, y)
    assert_array_equal(model.feature_names_in_, frame.columns)
    assert model.model_.names[3] == "column 3"
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"column 3": "column x"}))
    model.partial_fit(frame, y)
    assert model.model_.names[3] == "column 3"


@pytest.mark.parametrize("kind", ["array", "unknown", "columns", "frame", "sparse", "numpy y"])
def test_dask_collections(kind: str) -> None:
    X, y = problem(classes=3)
    weights = np.random.default_rng(0).integers(0, 3, N_ROWS).astype(float)
    options: dict[str, Any] = {"shuffle": False, "step_size": 0.3, "loss": "logistic"}
    expected = AdaGradClassifier(**options).fit(X, y, sample_weight=weights)
    chunks = (50, 40, 30)
    dask_x = da.from_array(X, chunks=(chunks, 12))
    dask_y, dask_w = da.from_array(y, chunks=(chunks,)), da.from_array(weights, chunks=(chunks,))
    if kind == "unknown":
        dask_x = dask_x[dask_x[:, 0] > -np.inf]
        assert np.isnan(dask_x.shape[0])
    elif kind == "columns":
        dask_x, dask_y = dask_x.rechunk((30, 5)), dask_y.rechunk(70)
    elif kind == "frame":
        names = [f"x{k}" for k in range(12)]
        frame = dd.from_pandas(pd.DataFrame(X, columns=names).assign(y=y, w=weights), npartitions=4)
        dask_x, dask_y, dask_w = frame[names], frame["y"], frame["w"]
        expected.fit(pd.DataFrame(X, columns=names), y, sample_weight=weights)
    elif kind == "sparse":
        dask_x = dask_x.map_blocks(scipy.sparse.csr_matrix)
    elif kind == "numpy y":
        dask_x = dask_x[dask_x[:, 0] > -np.inf]
        dask_y, dask_w = y, weights
    model = AdaGradClassifier(**options).fit(dask_x, dask_y, sample_weight=dask_w)
    assert same_bits(expected, model)
    assert_allclose(model.predict_proba(dask_x), expected.predict_proba(model_input(kind, X)))
    assert model.score(dask_x, dask_y) == expected.score(model_input(kind, X), y)
    if kind == "frame":
        assert_array_equal(model.feature_names_in_, names)
    pieces = AdaGradClassifier(**options)
    pieces.partial_fit(dask_x, dask_y, classes=range(3), sample_weight=dask_w)
    assert same_bits(pieces, clone(expected).set_params(passes=1).fit(dask_x, dask_y, dask_w))


def model_input(kind: str, X: Any) -> Any:
    return pd.DataFrame(X, columns=[f"x{k}" for k in range(12)]) if kind == "frame" else X


def test_dask_rows_are_shuffled_inside_their_blocks() -> None:
    X, y = problem(classes=3, rows=900)
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    blocks = da.from_array(X, chunks=(900, 12))
    model = AdaGradClassifier(passes=1, step_size=0.3).fit(blocks, y)
    assert same_bits(model, clone(model).fit(blocks, y))
    unshuffled = clone(model).set_params(shuffle=False).fit(blocks, y)
    assert model.score(X, y) > unshuffled.score(X, y) + 0.05


def test_dask_blocks_are_computed_one_at_a_time() -> None:
    X, y = problem()
    computed = []

    def scheduler(graph: Any, keys: Any, **options: Any) -> Any:
        computed.append(len(keys))
        return dask.get(graph, keys, **options)

    blocks = da.from_array(X, chunks=(30, 12))
    with dask.config.set(scheduler=scheduler):
        model = AdaGradClassifier(step_size=0.3, passes=2).fit(blocks, y)
        model.predict(blocks)
    assert computed == [1] * 4 * 3


def test_dask_mistakes_are_named() -> None:
    X, y = problem()
    dask_x = da.from_array(X, chunks=(40, 12))
    with pytest.raises(InputError, match="y has 119 items and X 120 rows"):
        AdaGradClassifier().fit(dask_x, y[:119])
    with pytest.raises(InputError, match="y has 2 blocks and X 3"):
        AdaGradClassifier().fit(dask_x, da.from_array(y[:119], chunks=60))
    unknown = dask_x[dask_x[:, 0] > 0]
    with pytest.raises(InputError, match=r"block \d: X has shape \(\d+, 12\)"):
        AdaGradClassifier().fit(unknown, da.from_array(y, chunks=40))
    X[57, 2] = np.nan
    with pytest.raises(InputError, match="block 1: row 17, feature 2 is nan"):
        AdaGradClassifier().fit(da.from_array(X, chunks=(40, 12)), y)
    with pytest.raises(InputError, match="must be a dask array or data frame of two"):
        AdaGradClassifier().fit(da.from_array(y, chunks=40), y)


def write_svmlight(path: Path, X: Any, labels: Any) -> None:
    rows = (
        " ".join([str(label), *(f"{k}:{value!r}" for k, value in enumerate(row.tolist()))])
        for label, row in zip(labels, X, strict=True)
    )
    path.write_text("\n".join(rows))


def test_datasets_and_their_urls(tmp_path: Path) -> None:
    X, y = problem(classes=3)
    write_svmlight(tmp_path / "data.svm", X, y)
    url = str(tmp_path / "data")
    ingest(str(tmp_path / "data.svm"), url, partition_nnz=500)
    options: dict[str, Any] = {"shuffle": False, "step_size": 0.3}
    model = AdaGradClassifier(**options).fit(url)
    assert same_bits(model, AdaGradClassifier(**options).fit(X, y))
    assert_array_equal(model.classes_, [0, 1, 2])
    assert model.classes_.dtype == np.int64
    assert_array_equal(model.predict(url), model.predict(X))
    assert model.score(url) == model.score(X, y)
    assert same_bits(pickle.loads(pickle.dumps(model)), model)
    twice = AdaGradClassifier(**options).partial_fit(url).partial_fit(url)
    assert same_bits(twice, clone(model).set_params(passes=2).fit(url))
    for wrong in ({"y": y}, {"sample_weight": np.ones(N_ROWS)}):
        with pytest.raises(InputError, match=f"leave out {next(iter(wrong))}"):
            AdaGradClassifier().fit(url, **wrong)
    on_arrays = AdaGradClassifier(**options).fit(X, y)
    with pytest.raises(InputError, match="feature space"):
        on_arrays.predict(url)


def test_a_dataset_of_texts_as_labels() -> None:
    X, y = problem()
    names = np.array(["ham", "spam"])
    data = dataset_from_arrays(X, names[y])
    model = AdaGradClassifier().fit(data)
    assert_array_equal(model.classes_, names)
    assert model.score(data) == np.mean(model.predict(X) == names[y])
    with pytest.raises(InputError, match="has the labels eggs, spam; the classes are ham, spam"):
        model.partial_fit(dataset_from_arrays(X, np.array(["eggs", "spam"])[y]))
    with pytest.raises(InputError, match="are texts; a regression needs numbers"):
        AdaGradRegressor().fit(data)


def test_a_regression_on_a_dataset() -> None:
    X, y = make_regression(200, 8, n_targets=2, random_state=0)
    data = dataset_from_arrays(X, y)
    model = AdaGradRegressor(step_size=30.0, shuffle=False).fit(data)
    assert_array_equal(model.coef_, clone(model).fit(X, y).coef_)
    assert model.score(data) == pytest.approx(model.score(X, y), rel=1e-5)
    with pytest.raises(InputError, match="too many distinct values"):
        AdaGradClassifier().fit(dataset_from_arrays(*make_regression(1200, 3, random_state=0)))


# Checkpoints.


class Interrupted(MemoryDataset):
    """Sends this process an interrupt at the third reading."""

    reads = 0

    def read(self, partition: int) -> Rows:
        self.reads += 1
        if self.reads == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return super().read(partition)


def test_an_interrupted_fit_goes_on_from_its_checkpoints(tmp_path: Path) -> None:
    X, y = problem(rows=600)
    data = dataset_from_arrays(X, y, partition_nnz=1000)
    parts = [data.read(i) for i in range(len(data.partitions))]
    folder = str(tmp_path / "run")
    model = AdaGradClassifier(step_size=0.3, checkpoints=folder)
    with pytest.raises(KeyboardInterrupt, match="fit again to go on"):
        model.fit(Interrupted(parts, data.schema, data.url))
    with pytest.raises(NotFittedError):
        _ = model.coef_
    whole = AdaGradClassifier(step_size=0.3).fit(data)
    assert same_bits(model.fit(data), whole)
    assert model.report_["examples"] == whole.report_["examples"] == 3000
    assert same_bits(model.fit(data), whole)  # of a run that is complete
    with pytest.raises(InputError, match=r"a run with l1=0.0; this one has l1=0.1"):
        clone(model).set_params(l1=0.1).fit(data)
    with pytest.raises(InputError, match="not what the run"):
        model.fit(X, y)


# In the company of scikit-learn.


def test_text_in_a_pipeline() -> None:
    texts = ["good fine nice", "bad awful poor", "nice good", "poor bad bad", "fine", "awful"] * 20
    y = ["up", "down"] * 60
    model = make_pipeline(HashingVectorizer(n_features=2**18), AdaGradClassifier(loss="logistic"))
    model.fit(texts, y)
    assert model.predict(["good", "awful bad"]).tolist() == ["up", "down"]
    assert 0 < np.count_nonzero(model[-1].coef_) <= 6


def test_grid_search_in_two_processes() -> None:
    X, y = problem(rows=300)
    grid = {"step_size": np.logspace(-3, 0, 3), "passes": np.arange(1, 3)}
    search = GridSearchCV(AdaGradClassifier(), grid, n_jobs=2, cv=2, error_score="raise")
    search.fit(X, y)
    assert search.best_score_ > 0.85
    assert same_bits(search.best_estimator_, AdaGradClassifier(**search.best_params_).fit(X, y))


@pytest.mark.parametrize("estimator", [AdaGradClassifier("logistic"), AdaGradRegressor()])
def test_pickles_have_the_same_bits(estimator: Any) -> None:
    X, y = problem(rows=300)
    estimator = clone(estimator).fit(X, y)
    predictions = estimator.predict(X)
    restored = pickle.loads(pickle.dumps(estimator))
    assert same_bits(estimator, restored)
    assert_array_equal(restored.predict(X), predictions)
    assert_array_equal(restored.coef_, estimator.coef_)
    assert restored.get_params() == estimator.get_params()
    assert restored.report_ == estimator.report_


def test_no_rows_are_kept_by_what_was_learned() -> None:
    X, y = problem(rows=20_000)
    assert len(pickle.dumps(AdaGradClassifier(passes=1).fit(X, y))) < 20_000


def test_probabilities_are_those_of_logistic_loss_only() -> None:
    assert hasattr(AdaGradClassifier("logistic"), "predict_proba")
    with pytest.raises(AttributeError) as caught:
        _ = AdaGradClassifier().predict_proba
    assert "probabilities come with loss='logistic'" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "squared"}, "loss 'squared' is not one that AdaGradClassifier takes"),
        ({"step_size": 0}, "step_size must be a finite number above 0 or 'auto'"),
        ({"batch_size": 1.5}, "batch_size must be a whole number"),
        ({"passes": True}, "passes must be a whole number"),
        ({"random_state": "x"}, "random_state must be"),
        ({"threads": 0}, "threads must be .* at least 1"),
        ({"low": 1.0}, "does not contain 0"),
        ({"class_weight": "even"}, "class_weight must be None, 'balanced' or a mapping"),
    ],
)
def test_wrong_settings_are_named_by_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        AdaGradClassifier(**options).fit(*problem())


def test_wrong_data_is_named() -> None:
    X, y = problem()
    with pytest.raises(InputError, match=r"1 class\(es\), 0; a classifier needs"):
        AdaGradClassifier().fit(X, np.zeros(N_ROWS, int))
    with pytest.raises(ValueError, match="Input X contains NaN"):
        AdaGradClassifier().fit(np.where(X > 2, np.nan, X), y)
    with pytest.raises(ValueError, match="Unknown label type"):
        AdaGradClassifier().fit(X, X[:, 0])
    with pytest.raises(InputError, match="fits in 32 bits"):
        AdaGradClassifier().fit(np.where(X > 2, 1e300, X), y)
    with pytest.raises(InputError, match=r"sample_weight has shape \(3,\)"):
        AdaGradClassifier().fit(X, y, sample_weight=[1, 2, 3])
    with pytest.raises(NotFittedError):
        AdaGradClassifier().predict(X)


@pytest.mark.parametrize("module", [dadagrad.estimators.classifier, dadagrad.estimators.regressor])
def test_examples_in_docstrings(module: Any) -> None:
    assert doctest.testmod(module).failed == 0
