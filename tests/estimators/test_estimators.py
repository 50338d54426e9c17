"""Estimators: quality of their models, kinds of input, and the bits of `partial_fit`."""

import os
import pickle
import signal

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from distributed import Client
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
from sklearn.linear_model import LogisticRegression, SGDClassifier, SGDRegressor
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dadagrad import (
    AdaGradClassifier,
    AdaGradClassifierCV,
    AdaGradRegressor,
    InputError,
    dataset_from_arrays,
    ingest,
)
from dadagrad.data.dataset import MemoryDataset

UPDATES = ["dual-averaging", "mirror-descent", "ftrl"]
N_ROWS = 120
IN_ORDER = {"shuffle": False, "step_size": 0.3}


def make_data(classes=2, rows=N_ROWS):
    return make_classification(
        rows, 12, n_informative=6, n_classes=classes, n_clusters_per_class=1, random_state=0
    )


def same_bits(first, second):
    return first.model_.digest == second.model_.digest


# Quality.


@pytest.mark.parametrize(
    ("name", "loss"),
    [("digits", "hinge"), ("breast cancer", "logistic"), ("two clusters", "hinge")],
)
def test_classifiers_are_as_good_as_those_of_scikit_learn(name, loss):
    peers = [SGDClassifier(random_state=0), LogisticRegression()]
    if name == "digits":
        (X, y), peers = load_digits(return_X_y=True), peers[:1]
    elif name == "breast cancer":
        X, y = load_breast_cancer(return_X_y=True)
    else:
        X, y = make_data(rows=2000)
    score, *peer_scores = (
        cross_val_score(make_pipeline(StandardScaler(), estimator), X, y, cv=3).mean()
        for estimator in (AdaGradClassifier(loss), *peers)
    )
    assert score > max(peer_scores) - 0.02


@pytest.mark.parametrize(
    "data", [load_diabetes(return_X_y=True), make_regression(1000, 20, bias=9, random_state=0)]
)
def test_regression_of_unscaled_targets_is_as_good_as_that_of_scikit_learn(data):
    score, peer_score = (
        cross_val_score(make_pipeline(StandardScaler(), estimator), *data, cv=5).mean()
        for estimator in (AdaGradRegressor(), SGDRegressor(random_state=0))
    )
    assert score > peer_score - 0.04


def test_random_state_decides_the_bits_and_numpys_generator_is_not_used():
    X, y = make_data()
    state = np.random.get_state()[1].copy()
    default = AdaGradClassifier().fit(X, y)
    assert_array_equal(np.random.get_state()[1], state)
    assert same_bits(default, AdaGradClassifier(random_state=0, threads=1).fit(X, y))
    assert not same_bits(default, AdaGradClassifier(random_state=3).fit(X, y))
    first, second = (
        AdaGradClassifier(random_state=np.random.RandomState(5)).fit(X, y) for _ in range(2)
    )
    assert same_bits(first, second)


def test_l1_makes_zeros_and_sparse_coefficients_predict_the_same():
    X, y = make_data(rows=500)
    model = AdaGradClassifier(l1=0.05, step_size=0.3).fit(X, y)
    dense, scores = model.coef_, model.decision_function(X)
    assert 0 < model.sparsify().coef_.nnz == np.count_nonzero(dense) < dense.size
    assert_allclose(model.decision_function(X), scores, rtol=1e-12)
    for rows in (scipy.sparse.csr_array(X), scipy.sparse.csr_array(X.astype(np.float32))):
        assert_allclose(model.decision_function(rows), scores, atol=1e-5)
    assert scipy.sparse.issparse(model.partial_fit(X, y).coef_)
    assert isinstance(model.densify().coef_, np.ndarray)


# Labels.


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"]), np.array(["no", "yes"], object), np.array([False, True]),
        np.array([3, 40]), np.array([2**60, 2**60 + 1]), np.array(["ant", "bee", "cat", "dog"]),
    ],
)  # fmt: skip
def test_labels_of_any_type(labels):
    X, y = make_data(classes=len(labels), rows=400)
    model = AdaGradClassifier(loss="logistic").fit(X, labels[y])
    assert_array_equal(model.classes_, labels)
    assert model.classes_.dtype == labels.dtype
    assert model.score(X, labels[y]) > 0.75
    scores, probabilities = model.decision_function(X), model.predict_proba(X)
    assert_allclose(probabilities.sum(axis=1), 1.0)
    assert_array_equal(model.predict_log_proba(X), np.log(probabilities))
    assert_array_equal(model.predict(X), labels[probabilities.argmax(axis=1)])
    n_outputs = 1 if len(labels) == 2 else len(labels)
    assert scores.shape == ((400,) if n_outputs == 1 else (400, n_outputs))
    assert (model.coef_.shape, model.intercept_.shape) == ((n_outputs, 12), (n_outputs,))


def test_labels_of_a_matrix():
    X, y = make_multilabel_classification(300, 15, n_classes=4, random_state=0)
    model = AdaGradClassifier(loss="logistic").fit(X, y)
    for predictions in (model.predict(X), model.predict_proba(X), model.decision_function(X)):
        assert predictions.shape == y.shape
    assert (model.predict(X) == y).mean() > 0.8
    assert same_bits(model, clone(model).fit(X, scipy.sparse.csr_matrix(y)))
    pieces = AdaGradClassifier(step_size=0.2).partial_fit(X[:90], y[:90]).partial_fit(X, y)
    assert pieces.predict(X).shape == y.shape


def test_targets_of_a_matrix_are_learned_as_each_alone_and_in_pieces():
    X, y = make_regression(300, 10, n_targets=3, random_state=0)
    model = AdaGradRegressor(step_size=30.0, passes=1, shuffle=False).fit(X, y)
    alone = clone(model).fit(X, y[:, 1])
    assert (model.predict(X).shape, alone.predict(X).shape) == ((300, 3), (300,))
    assert_allclose(alone.coef_, model.coef_[1], rtol=1e-3, atol=1e-3)
    pieces = clone(model).partial_fit(X[:50], y[:50]).partial_fit(X[50:], y[50:])
    assert_array_equal(pieces.coef_, model.coef_)
    with pytest.raises(InputError, match="y has 1 columns of labels, before there were 3"):
        pieces.partial_fit(X, y[:, 1])


# Weights.


def test_weights_stand_for_repetitions():
    """Rows are in the same order, unlike in the checks of scikit-learn."""
    X, y = make_data(classes=3)
    weights = np.random.default_rng(0).integers(0, 4, N_ROWS)
    weighted = AdaGradClassifier(l1=1e-3, **IN_ORDER)
    repeated = clone(weighted).fit(X.repeat(weights, axis=0), y.repeat(weights))
    weighted.fit(X, y, sample_weight=weights)
    assert same_bits(weighted, repeated)
    assert weighted.t_ == repeated.t_ == 5 * weights.sum()


def test_rows_of_weight_0_change_nothing():
    X, y = make_data(classes=3)
    kept = y != 2
    weighted = AdaGradClassifier().fit(X, y, sample_weight=kept.astype(float))
    assert_array_equal(weighted.classes_, [0, 1])
    assert same_bits(weighted, AdaGradClassifier().fit(X[kept], y[kept]))
    before = weighted.model_.digest
    weighted.partial_fit(X[:5], y[:5] % 2, sample_weight=np.zeros(5))
    assert weighted.model_.digest == before


@pytest.mark.parametrize("batch_size", [1, 20])
def test_class_weights_are_weights_of_rows(batch_size):
    X, y = make_data()
    y, w = np.array(["a", "b"])[y], np.random.default_rng(0).integers(1, 4, N_ROWS)
    plain = AdaGradClassifier(batch_size=batch_size)
    by_class = clone(plain).set_params(class_weight={"b": 3.0}).fit(X, y, sample_weight=w)
    assert same_bits(by_class, clone(plain).fit(X, y, np.where(y == "b", 3.0, 1.0) * w))
    by_row = clone(plain).fit(X, y, sample_weight=np.where(y == "b", 3.0, 1.0))
    few = np.r_[np.flatnonzero(y == "a")[:10], np.flatnonzero(y == "b")]
    weights = {"a": len(few) / (2 * 10), "b": len(few) / (2 * (len(few) - 10))}
    balanced, explicit = (
        clone(plain).set_params(class_weight=value).fit(X[few], y[few])
        for value in ("balanced", weights)
    )
    assert same_bits(balanced, explicit)
    booleans = clone(plain).set_params(class_weight={False: 1.0, True: 3.0}).fit(X, y == "b")
    assert same_bits(booleans, by_row)


# partial_fit.


@given(
    cuts=st.lists(st.integers(1, N_ROWS - 1), max_size=6, unique=True),
    update=st.sampled_from(UPDATES),
    classes=st.sampled_from([2, 3]),
    weighted=st.booleans(),
)
@settings(max_examples=25)
def test_pieces_give_the_bits_of_the_whole(cuts, update, classes, weighted):
    X, y = make_data(classes)
    X = scipy.sparse.csr_array(np.where(np.abs(X) > 0.8, X, 0))  # features come and go
    weights = np.random.default_rng(0).uniform(0, 2.5, N_ROWS) if weighted else np.ones(N_ROWS)
    pieces = AdaGradClassifier(update=update, l1=2e-3, l2=1e-3, batch_size=1, **IN_ORDER)
    whole = clone(pieces).set_params(passes=1).fit(X, y, sample_weight=weights)
    for rows in np.split(np.arange(N_ROWS), sorted(cuts)):
        pieces.partial_fit(X[rows], y[rows], range(classes), weights[rows])
        assert np.isfinite(pieces.coef_).all()  # coef_ between calls changes nothing
    assert same_bits(whole, pieces)
    assert whole.t_ == pieces.t_
    assert_array_equal(whole.intercept_, pieces.intercept_)
    assert_allclose(whole.report_["progressive_loss"], pieces.report_["progressive_loss"])


def test_partial_fit_continues_from_fit_and_after_pickling():
    X, y = make_data()
    fitted = AdaGradClassifier(passes=2, **IN_ORDER).fit(X, y)
    restored = pickle.loads(pickle.dumps(fitted))
    whole = AdaGradClassifier(passes=3, **IN_ORDER).fit(X, y)
    for model in (fitted, restored):
        assert same_bits(whole, model.partial_fit(X, y))
        assert (model.n_iter_, model.report_["rows"]) == (1, 3 * N_ROWS)


def test_partial_fit_takes_a_regularizer_that_has_changed_or_refuses_it():
    X, y = make_data()
    model = AdaGradClassifier(regularizer="l2-ball:radius=9", **IN_ORDER).fit(X, y)
    model.set_params(regularizer="l2-ball:radius=0.1").partial_fit(X, y)
    assert np.linalg.norm(model.coef_) == pytest.approx(0.1)
    with pytest.raises(InputError, match=r"regularizer was 'l2-ball:radius=0\.1' and is None now"):
        model.set_params(regularizer=None).partial_fit(X, y)


@pytest.mark.parametrize("options", [{"update": "arow"}, {}])
def test_partial_fit_reports_as_fit_does_and_keeps_its_step_size(options):
    X, y = make_data()
    whole = AdaGradClassifier(**options, passes=1, shuffle=False).fit(X, y).report_
    model = AdaGradClassifier(**options, shuffle=False).partial_fit(X, y, classes=[0, 1])
    for name in ("rows", "steps", "features", "step_size", "batch_size"):
        assert model.report_[name] == whole[name]
    assert model.partial_fit(X[:1], y[:1]).report_["step_size"] == whole["step_size"]


def test_each_call_of_partial_fit_has_its_own_reproducible_order():
    X, y = make_data()
    models = []
    for _ in range(2):
        model = AdaGradClassifier(step_size=0.3)
        for _ in range(2):
            model.partial_fit(X, y, classes=[0, 1])
        models.append(model)
    assert same_bits(*models)
    first = AdaGradClassifier(step_size=0.3).partial_fit(X, y, classes=[0, 1])
    first._calls = 0  # the second call takes the order of the first
    assert not same_bits(models[0], first.partial_fit(X, y))


def test_partial_fit_refuses_other_labels_features_and_settings():
    X, y = make_data()
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        AdaGradClassifier().partial_fit(X, y)
    model = AdaGradClassifier(step_size=0.3).partial_fit(X, y, classes=[0, 1])
    for message, arguments in (
        ("row 4 of y has label 7", (X, np.where(np.arange(N_ROWS) == 4, 7, y))),
        ("has label 'a'", (X, np.array(["a", "b"])[y])),
        ("are not those of the first call", (X, y, [0, 1, 2])),
        ("expecting 12 features", (X[:, :5], y)),
    ):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(*arguments)
    with pytest.raises(InputError, match="which is not one of the classes '0', '1'"):
        AdaGradClassifier().partial_fit(X, y, classes=["0", "1"])
    with pytest.raises(InputError, match="update was 'dual-averaging' and is 'ftrl' now"):
        model.set_params(update="ftrl").partial_fit(X, y)
    with pytest.raises(InputError, match="partial_fit sees only some"):
        AdaGradClassifier(class_weight="balanced").partial_fit(X, y, classes=[0, 1])


# Inputs.


def test_formats_of_x_give_the_same_bits():
    X, y = make_data()
    X = np.where(np.abs(X) > 0.5, X, 0).astype(np.float32)
    expected = AdaGradClassifier().fit(X, y)
    long = scipy.sparse.csr_array(X)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    half = scipy.sparse.coo_array(X / 2)
    entries = np.tile(half.data, 2), (np.tile(half.row, 2), np.tile(half.col, 2))
    inputs = [X.astype(float), np.asfortranarray(X), X.tolist(), pd.DataFrame(X), long]
    inputs.append(scipy.sparse.coo_array(entries, X.shape))  # with duplicates
    inputs += [getattr(scipy.sparse, f"{name}_matrix")(X) for name in ("csc", "lil", "dok", "bsr")]
    for data in inputs:
        model = AdaGradClassifier().fit(data, pd.Series(y))
        assert same_bits(expected, model)
        assert_allclose(model.decision_function(data), expected.decision_function(X), rtol=1e-6)


def test_names_of_columns_are_names_of_features():
    X, y = make_data()
    frame = pd.DataFrame(X, columns=[f"column {k}" for k in range(12)])
    model = AdaGradClassifier().fit(frame, y)
    assert_array_equal(model.feature_names_in_, frame.columns)
    assert model.model_.names[3] == model.partial_fit(frame, y).model_.names[3] == "column 3"
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"column 3": "column x"}))


@pytest.mark.parametrize("kind", ["array", "unknown", "columns", "frame", "sparse", "numpy y"])
def test_dask_collections_give_the_bits_of_arrays(kind):
    X, y = make_data(classes=3)
    weights = np.random.default_rng(0).integers(0, 3, N_ROWS).astype(float)
    chunks = (50, 40, 30)
    dask_x = da.from_array(X, chunks=(chunks, 12))
    dask_y, dask_w = da.from_array(y, chunks=(chunks,)), da.from_array(weights, chunks=(chunks,))
    if kind in ("unknown", "numpy y"):
        dask_x = dask_x[dask_x[:, 0] > -np.inf]  # the number of rows is unknown
    if kind == "columns":
        dask_x, dask_y = dask_x.rechunk((30, 5)), dask_y.rechunk(70)
    elif kind == "frame":
        X = pd.DataFrame(X, columns=[f"x{k}" for k in range(12)])
        X = X.assign(x0=X["x0"] > 0.0, x1=pd.array([1, 2] * (N_ROWS // 2), "Int64"))
        frame = dd.from_pandas(X.assign(y=y, w=weights), npartitions=4)
        dask_x, dask_y, dask_w = frame[list(X.columns)], frame["y"], frame["w"]
    elif kind == "sparse":
        dask_x = dask_x.map_blocks(scipy.sparse.csr_matrix)
    elif kind == "numpy y":
        dask_y, dask_w = y, weights
    expected = AdaGradClassifier(loss="logistic", **IN_ORDER).fit(X, y, sample_weight=weights)
    model = clone(expected).fit(dask_x, dask_y, sample_weight=dask_w)
    assert same_bits(expected, model)
    assert_allclose(model.predict_proba(dask_x), expected.predict_proba(X))
    assert model.score(dask_x, dask_y) == expected.score(X, y)
    if kind == "frame":
        assert_array_equal(model.feature_names_in_, X.columns)
    piece = clone(expected).partial_fit(dask_x, dask_y, classes=range(3), sample_weight=dask_w)
    assert same_bits(piece, clone(expected).set_params(passes=1).fit(X, y, weights))


def test_dask_blocks_are_computed_one_at_a_time():
    X, y = make_data()
    computed = []

    def scheduler(graph, keys, **options):
        computed.append(len(keys))
        return dask.get(graph, keys, **options)

    blocks = da.from_array(X, chunks=(30, 12))
    with dask.config.set(scheduler=scheduler):
        AdaGradClassifier(step_size=0.3, passes=2).fit(blocks, y).predict(blocks)
    assert computed == [1] * 4 * 2  # once for all passes, and once for the predictions


def test_errors_of_dask_collections_name_the_block_and_row():
    X, y = make_data()
    blocks = da.from_array(X, chunks=(40, 12))
    spoiled = X.copy()
    spoiled[57, 2] = np.nan
    dates = pd.DataFrame({"x": range(120), "day": pd.date_range("2020-01-01", periods=120)})
    for message, data, labels in (
        ("block 0: X has a column of other", dd.from_pandas(dates, npartitions=2), y),
        ("texts alone or numbers alone", blocks, np.array(["a", "b", "a", None] * 30, object)),
        (r"y has shape \(119,\) and X 120 rows", blocks, y[:119]),
        ("y has 2 blocks and X 3", blocks, da.from_array(y[:119], chunks=60)),
        (r"block \d: X has shape", blocks[blocks[:, 0] > 0], da.from_array(y, chunks=40)),
        ("block 1: row 17, feature 2 is nan", da.from_array(spoiled, chunks=(40, 12)), y),
        ("must be a dask array or data frame of two", da.from_array(y, chunks=40), y),
    ):
        with pytest.raises(InputError, match=message):
            AdaGradClassifier().fit(data, labels)


def write_dataset(folder, X, y):
    lines = (
        " ".join([str(label), *(f"{k}:{value!r}" for k, value in enumerate(row))])
        for label, row in zip(y, X.tolist(), strict=True)
    )
    (folder / "data.svm").write_text("\n".join(lines))
    ingest(str(folder / "data.svm"), str(folder / "data"), partition_nnz=500, shuffle=None)
    return str(folder / "data")


def test_datasets_and_their_urls(tmp_path):
    X, y = make_data(classes=3)
    url = write_dataset(tmp_path, X, y)
    model = AdaGradClassifier(**IN_ORDER).fit(url)
    on_arrays = clone(model).fit(X, y)
    assert same_bits(model, on_arrays)
    assert_array_equal(model.classes_, [0, 1, 2])
    assert_array_equal(model.predict(url), model.predict(X))
    assert model.score(url) == model.score(X, y)
    twice = clone(model).partial_fit(url).partial_fit(url)
    assert same_bits(twice, clone(model).set_params(passes=2).fit(url))
    for name, value in {"y": y, "sample_weight": np.ones(N_ROWS)}.items():
        with pytest.raises(InputError, match=f"leave out {name}"):
            AdaGradClassifier().fit(url, **{name: value})
    with pytest.raises(InputError, match="feature space"):
        on_arrays.predict(url)


def test_the_current_client_trains_with_the_same_bits(tmp_path):
    X, y = make_data()
    url = write_dataset(tmp_path, X, y)
    local = AdaGradClassifier(batch_size=20, **IN_ORDER)
    remote = clone(local).set_params(client="current")
    blocks = da.from_array(X, chunks=(40, 12)), da.from_array(y, chunks=40)
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0"):
        on_dataset = clone(remote).fit(url)
        on_blocks = clone(remote).fit(*blocks)
        on_kept_blocks = clone(remote).fit(blocks[0].persist(), blocks[1])
        streams = {"streams": 2, "batch_size": "auto"}
        by_streams = clone(remote).set_params(**streams).fit(*blocks)
        for data in (blocks, (url,)):
            with pytest.warns(UserWarning, match="client='current' trains on its workers"):
                clone(local).fit(*data)
            clone(local).set_params(threads=1).fit(*data)
        clone(local).fit(X, y)  # arrays in memory are not for a cluster
    assert same_bits(on_dataset, clone(local).fit(url))
    assert same_bits(by_streams, clone(local).set_params(**streams).fit(*blocks))
    for model in (on_blocks, on_kept_blocks):
        assert same_bits(model, clone(local).fit(*blocks))


def test_datasets_in_memory():
    X, y = make_data()
    names = np.array(["ham", "spam"])
    data = dataset_from_arrays(X, names[y])
    model = AdaGradClassifier().fit(data)
    assert_array_equal(model.classes_, names)
    assert model.score(data) == np.mean(model.predict(X) == names[y])
    model.set_params(shuffle=False)
    spam, others = X[y == 1], names[y[y == 1]]
    stored = clone(model).fit(data).partial_fit(dataset_from_arrays(spam, others))
    assert_array_equal(stored.coef_, clone(model).fit(X, names[y]).partial_fit(spam, others).coef_)
    rows, targets = make_regression(1200, 8, n_targets=2, random_state=0)
    few = rows[:900], targets[:900]  # few enough for a list of the distinct targets
    numbers = dataset_from_arrays(*few)
    regression = AdaGradRegressor(step_size=30.0, shuffle=False).fit(numbers)
    assert regression.model_.label_columns == numbers.schema.label_columns
    assert_array_equal(regression.coef_, clone(regression).fit(*few).coef_)
    assert regression.score(numbers) == pytest.approx(regression.score(*few), rel=1e-5)
    others = dataset_from_arrays(X, np.array(["eggs", "spam"])[y])
    many = dataset_from_arrays(rows, targets[:, 0])
    for message, fit, wrong in (
        ("label 'eggs', which .* it knows ham, spam", model.partial_fit, others),
        (
            "the classes ham, spam, and the squared .*AdaGradClassifier",
            AdaGradRegressor().fit,
            data,
        ),
        ("too many distinct values", AdaGradClassifier().fit, many),
    ):
        with pytest.raises(InputError, match=message):
            fit(wrong)


class InterruptedDataset(MemoryDataset):
    """Dataset that sends this process an interrupt when it is read again, in the second pass."""

    reads = 0

    def read(self, partition):
        self.reads += 1
        if self.reads == len(self.partitions) + 1:
            os.kill(os.getpid(), signal.SIGINT)
        return super().read(partition)


def test_an_interrupted_fit_resumes_from_its_checkpoints(tmp_path):
    X, y = make_data(rows=600)
    data = dataset_from_arrays(X, y, partition_nnz=1000)
    partitions = [data.read(i) for i in range(len(data.partitions))]
    model = AdaGradClassifier(step_size=0.3, checkpoints=str(tmp_path / "run"))
    with pytest.raises(KeyboardInterrupt, match="fit again to go on"):
        model.fit(InterruptedDataset(partitions, data.schema, data.url))
    with pytest.raises(NotFittedError):
        _ = model.coef_
    whole = AdaGradClassifier(step_size=0.3).fit(data)
    assert same_bits(model.fit(data), whole)
    assert model.report_["rows"] == whole.report_["rows"] == 3000
    assert same_bits(model.fit(data), whole)  # the run is complete
    with pytest.raises(InputError, match=r"l1 is 0\.0 there and 0\.1 here"):
        clone(model).set_params(l1=0.1).fit(data)
    with pytest.raises(InputError, match="not what the run"):
        model.fit(X, y)


def test_a_fit_that_fails_leaves_the_estimator_as_it_was():
    X, y = make_data()
    for model in (AdaGradClassifier(), AdaGradClassifierCV(l1=[0.0, 0.1], cv=2)):
        predicted = model.fit(X, y).predict(X)
        with pytest.raises(InputError, match="fits in 32 bits"):
            model.fit(np.full((4, 3), 1e300), list("abab"))
        assert_array_equal(model.predict(X), predicted)
        assert (model.classes_.tolist(), model.n_features_in_) == ([0, 1], 12)


def test_passes_of_a_fit_that_stops_early_are_those_that_were_made():
    X, y = make_data()
    model = AdaGradClassifier("logistic", holdout=0.2, early_stopping=True, passes=50).fit(X, y)
    assert 1 < model.n_iter_ == model.report_["passes"] < 50
    assert AdaGradClassifier.from_model(model.model_).n_iter_ == model.n_iter_


# Together with scikit-learn.


@pytest.mark.parametrize(
    "estimator",
    [AdaGradClassifier("logistic"), AdaGradRegressor(), AdaGradClassifier(update="arow")],
)
def test_a_pickle_is_small_and_has_the_same_bits(estimator):
    X, y = make_data(rows=2000)
    estimator = clone(estimator).set_params(passes=1, step_size=0.3).fit(X, y)
    pickled = pickle.dumps(estimator)
    assert len(pickled) < 20_000
    restored = pickle.loads(pickled)
    assert_array_equal(restored.predict(X), estimator.predict(X))
    for name in ("report_", "t_", "n_iter_"):
        assert getattr(restored, name) == getattr(estimator, name)
    assert restored.get_params() == estimator.get_params()


def test_probabilities_need_a_calibration_or_the_logistic_loss():
    assert hasattr(AdaGradClassifier(), "predict_proba")
    assert hasattr(AdaGradClassifier("logistic", calibration="none"), "predict_proba")
    with pytest.raises(AttributeError) as caught:
        _ = AdaGradClassifier(calibration="none").predict_proba
    assert "probabilities come with loss='logistic'" in str(caught.value.__cause__)


# Errors.


def test_fit_names_a_wrong_setting():
    for options, message in (
        ({"loss": "squared"}, "AdaGradClassifier does not support the loss 'squared'"),
        ({"step_size": 0}, "step_size must be a finite number above 0 or 'auto'"),
        ({"random_state": "x"}, "random_state must be"),
        ({"class_weight": {"z": 1.0}}, "class_weight names label 'z', which .* labels are 0, 1"),
    ):
        with pytest.raises(InputError, match=message):
            AdaGradClassifier(**options).fit(*make_data())


def test_class_weights_may_have_a_class_that_a_part_of_the_data_lacks():
    X, y = make_data()
    part, whole = ({0: 1.0, 1: 5.0} | more for more in ({}, {"rare": 9.0}))
    part, whole = (AdaGradClassifier(class_weight=weights).fit(X, y) for weights in (part, whole))
    assert np.array_equal(part.coef_, whole.coef_)


def test_fit_names_what_is_wrong_in_the_data():
    for message, arguments in (
        (r"1 class\(es\), 0; a classifier needs", lambda X, y: (X, 0 * y)),
        ("Input X contains NaN", lambda X, y: (np.where(X > 2, np.nan, X), y)),
        ("Unknown label type", lambda X, y: (X, X[:, 0])),
        ("without None and bytes .* bytes is not", lambda X, y: (X, np.array([b"a", b"b"])[y])),
        ("fits in 32 bits", lambda X, y: (np.where(X > 2, 1e300, X), y)),
        (r"sample_weight has shape \(3,\)", lambda X, y: (X, y, [1, 2, 3])),
        ("every sample_weight is zero", lambda X, y: (X, y, 0 * y)),
        ("Negative values in data passed to sample_weight", lambda X, y: (X, y, 0 * y - 1)),
    ):
        with pytest.raises(ValueError, match=message):
            AdaGradClassifier().fit(*arguments(*make_data()))


def test_verbose_shows_the_run_and_its_result(capsys):
    X, y = make_data()
    settings = {"passes": 2, "step_size": 0.3}
    shown = AdaGradClassifier(verbose=1, **settings).fit(X, y)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].split() == ["rows", "error", "since", "last", "loss", "rows/s", "weights"]
    assert lines[2].startswith("later passes: training errors")
    error = f"{100 * shown.report_['progressive_error']:.1f} %"
    assert any(line.startswith(f"  error before learning     {error}") for line in lines)
    shown.partial_fit(X, y)
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert same_bits(shown, AdaGradClassifier(**settings).fit(X, y).partial_fit(X, y))
    assert capsys.readouterr().err == ""
