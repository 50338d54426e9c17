"""`dadagrad.model.evaluate`: losses, errors and areas against plain computations, and
predictions."""

import csv
import io
import os
import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import sklearn.metrics as sk
from helpers.training_cases import label_columns
from hypothesis import given
from hypothesis import strategies as st

from dadagrad import InputError, Model, StorageError, evaluate, predict
from dadagrad.data.dataset import LabelColumn, MemoryDataset, Schema
from dadagrad.data.feature_space import FeatureSpace
from dadagrad.data.rows import Rows
from dadagrad.optim.calibration import Isotonic
from dadagrad.storage.store import Storage

N_FEATURES = 30


def make_data(labels, *, weights=None, names=None):
    """Sparse rows with the given (65, n_columns) labels, in two partitions."""
    X = scipy.sparse.random_array(
        (65, N_FEATURES), density=0.1, format="csr", rng=0
    ).sorted_indices()
    parts = [
        Rows.from_csr(
            X[part].indptr.astype(np.int64),
            X[part].indices.astype(np.int64),
            X[part].data.astype(np.float32) - 0.5,
            labels[part],
            None if weights is None else weights[part],
        )
        for part in (slice(0, 40), slice(40, 65))
    ]
    columns = label_columns(labels, "y")
    if names is not None:
        columns = tuple(replace(column, names=names) for column in columns)
    return MemoryDataset(parts, Schema(N_FEATURES, columns, weights is not None))


def make_model(task, columns, *, loss="hinge"):
    random = np.random.default_rng(1)
    n_outputs = len(columns[0].values) if task == "multiclass" else len(columns)
    ids = np.arange(0, N_FEATURES, 2)
    return Model(
        N_FEATURES, ids, random.normal(size=(len(ids), n_outputs)).astype(np.float32),
        random.normal(size=n_outputs), loss, task, tuple(columns),
    )  # fmt: skip


SIGNS = tuple(LabelColumn(f"y{number}", (0.0, 1.0)) for number in range(2))
IDENTITY = Model(
    1, np.zeros(1, np.int64), np.ones((1, 1), np.float32), np.zeros(1), "hinge", "binary", SIGNS[:1]
)
"""Model whose score is the value of the only feature."""


def one_feature(values, positive, weight, sizes):
    """Rows of one feature with labels 0 and 1, in partitions of the given sizes."""
    ends = np.cumsum(sizes)
    parts = [
        Rows.from_csr(
            np.arange(size + 1),
            np.zeros(size, np.int64),
            np.float32(values[end - size : end]),
            np.float64(positive[end - size : end])[:, None],
            np.float32(weight[end - size : end]),
        )
        for size, end in zip(sizes, ends, strict=True)
    ]
    return MemoryDataset(parts, Schema(1, SIGNS[:1], weighted=True))


def all_rows(data):
    return [data.read(number) for number in range(len(data.partitions))]


def scores_of(model, data):
    return np.concatenate([model.scores(rows) for rows in all_rows(data)])


def binary(seed=0):
    return np.random.default_rng(seed).choice([-1.0, 1.0], (65, 1))


def huber(scores, targets):
    distance = np.abs(scores - targets)
    return np.where(distance < 0.3, distance**2 / 2, 0.3 * (distance - 0.15))


@pytest.mark.parametrize(
    ("weighted", "task", "values", "loss", "formula"),
    [
        (True, "binary", [-1.0, 1.0], "hinge", lambda s, t: np.maximum(0, 1 - t * s)),
        (
            False,
            "multiclass",
            [1.0, 4.0, 9.0],
            "squared-hinge",
            lambda s, t: np.maximum(0, 1 - t * s) ** 2 / 2,
        ),
        (True, "multilabel", [0.0, 1.0], "logistic", lambda s, t: np.log1p(np.exp(-t * s))),
        (False, "regression", [0.5, 1.5, 2.5], "huber:width=0.3", huber),
    ],
)
def test_loss_error_and_area(weighted, task, values, loss, formula):
    random = np.random.default_rng(2)
    weight = random.integers(0, 4, 65).astype(np.float32) if weighted else None
    labels = random.choice(values, (65, 3 if task == "multilabel" else 1))
    data = make_data(labels, weights=weight)
    model = make_model(task, data.schema.label_columns, loss=loss)
    told = []
    result = evaluate(model, data, progress=lambda *done: told.append(done))
    assert told == [(40, 65), (65, 65)]
    assert result["rows"] == (65 if weight is None else np.count_nonzero(weight))
    assert result["seconds"] > 0
    scores = scores_of(model, data)
    targets = labels
    if task != "regression":
        targets = np.where(labels == (values if task == "multiclass" else values[1]), 1.0, -1.0)
    losses = formula(scores, targets).mean(axis=1)
    assert result["loss"] == pytest.approx(np.average(losses, weights=weight))
    if task == "regression":
        assert result["error"] is result["auc"] is result["accuracy"] is None
        return
    predicted = np.where(scores > 0, values[1], values[0])
    if task == "multiclass":
        predicted = np.array(values)[scores.argmax(axis=1), None]
    wrong = np.average((predicted != labels).mean(axis=1), weights=weight)
    assert (result["error"], result["accuracy"]) == pytest.approx((wrong, 1 - wrong))
    ranked = task in ("binary", "multilabel")
    area = sk.roc_auc_score(labels, scores, sample_weight=weight) if ranked else None
    assert result["auc"] == pytest.approx(area)


def test_metrics_of_labels_are_those_of_scikit_learn():
    random = np.random.default_rng(2)
    weight = random.integers(1, 4, 65)
    labels = random.integers(0, 2, (65, 3)).astype(float)
    data = make_data(labels, weights=weight.astype(np.float32))
    model = make_model("multilabel", data.schema.label_columns, loss="hinge")
    result, scores = evaluate(model, data), scores_of(model, data)
    options = {"sample_weight": weight, "zero_division": 0}
    expected = sk.precision_recall_fscore_support(labels, scores > 0, **options)
    for row, name in enumerate(("precision", "recall", "f1", "weight")):
        mine = [facts[name] for facts in result["classes"].values()]
        np.testing.assert_allclose(mine, expected[row])
    assert result["f1"] == pytest.approx(np.mean(expected[2]))
    areas = sk.roc_auc_score(labels, scores, sample_weight=weight, average=None)
    assert result["auc"] == pytest.approx(areas.mean())
    assert [facts["auc"] for facts in result["classes"].values()] == pytest.approx(areas)
    assert "log_loss" not in result
    logistic = make_model("multilabel", data.schema.label_columns, loss="logistic")
    probabilities = logistic.probabilities(scores_of(logistic, data))
    losses = [
        sk.log_loss(labels[:, k], probabilities[:, k], sample_weight=weight) for k in range(3)
    ]
    assert evaluate(logistic, data)["log_loss"] == pytest.approx(np.mean(losses))
    without = make_data(labels * [1.0, 1.0, 0.0])  # a label that is not set has no area
    partly = evaluate(model, without)
    known = [facts["auc"] for facts in partly["classes"].values()]
    assert known[2] is None
    assert partly["auc"] == pytest.approx(np.mean(known[:2]))


@pytest.mark.parametrize(("task", "loss", "n"), [
    ("binary", "logistic", 2), ("multiclass", "softmax", 3), ("multiclass", "logistic", 2),
])  # fmt: skip
def test_metrics_of_classes_are_those_of_scikit_learn(task, loss, n):
    random = np.random.default_rng(n)
    column, weight = random.integers(0, n, (65, 1)).astype(float), random.integers(1, 4, 65)
    data = make_data(column, weights=weight.astype(np.float32))
    model = make_model(task, data.schema.label_columns, loss=loss)
    result, scores, labels = evaluate(model, data), scores_of(model, data), column[:, 0]
    predicted = model.predict_labels(scores)
    options = {"sample_weight": weight}
    probabilities = model.probabilities(scores)
    expected = sk.precision_recall_fscore_support(labels, predicted, zero_division=0, **options)
    for row, name in enumerate(("precision", "recall", "f1", "weight")):
        mine = [facts[name] for facts in result["classes"].values()]
        np.testing.assert_allclose(mine, expected[row])
    average = "binary" if n == 2 else "macro"
    assert result["f1"] == pytest.approx(sk.f1_score(labels, predicted, average=average, **options))
    assert result["log_loss"] == pytest.approx(sk.log_loss(labels, probabilities, **options))
    np.testing.assert_allclose(
        result["confusion"], sk.confusion_matrix(labels, predicted, **options)
    )
    ranked = scores[:, -1] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]
    if n == 2:  # of two outputs the difference ranks the rows
        assert result["auc"] == pytest.approx(sk.roc_auc_score(labels, ranked, **options))
        precision = sk.average_precision_score(labels, ranked, **options)
        assert result["pr_auc"] == pytest.approx(precision)
    confidence, right = probabilities.max(axis=1), predicted == labels
    bins = np.minimum((confidence * 10).astype(int), 9)
    gaps = [
        abs(weight[bins == k] @ (confidence - right)[bins == k]) / weight.sum() for k in range(10)
    ]
    assert result["calibration_error"] == pytest.approx(sum(gaps))


def test_f1_is_the_mean_over_classes_that_occur_or_are_predicted():
    data = make_data(np.array([[0.0], [1.0], [2.0]] * 22)[:65])
    model = make_model("multiclass", data.schema.label_columns)
    some = make_data(np.array([[0.0], [1.0]] * 40)[:65])
    some.schema = data.schema
    model = replace(model, intercept=model.intercept - [0.0, 0.0, 99.0])
    predicted, labels = model.predict_labels(scores_of(model, some)), [0.0, 1.0] * 32 + [0.0]
    expected = sk.f1_score(labels, predicted, average="macro")
    assert evaluate(model, some)["f1"] == pytest.approx(expected)


def test_rows_of_even_probabilities_count_as_right_by_their_label():
    data = make_data(np.random.default_rng(0).integers(0, 2, (65, 1)).astype(float))
    model = make_model("binary", data.schema.label_columns)
    model = replace(model, calibration=Isotonic((-1.0, 1.0), (0.5, 0.5)))
    result = evaluate(model, data)
    assert result["calibration_error"] == pytest.approx(abs(result["accuracy"] - 0.5))


def test_metrics_of_numbers_far_from_zero():
    random = np.random.default_rng(1)
    column, weight = 1e6 + random.normal(size=(65, 1)), random.integers(1, 4, 65)
    data = make_data(column, weights=weight.astype(np.float32))
    model = make_model("regression", data.schema.label_columns, loss="squared")
    model = replace(model, intercept=np.array([1e6]))
    result, labels = evaluate(model, data), column[:, 0]
    predicted = model.predict_labels(scores_of(model, data))
    arguments = {"y_true": labels, "y_pred": predicted, "sample_weight": weight}
    assert result["rmse"] == pytest.approx(sk.root_mean_squared_error(**arguments))
    assert result["mae"] == pytest.approx(sk.mean_absolute_error(**arguments))
    assert result["r2"] == pytest.approx(sk.r2_score(**arguments))


weighted_rows = st.tuples(st.integers(-3, 3), st.booleans(), st.integers(0, 3))


@given(rows=st.lists(weighted_rows, min_size=1, max_size=40))
def test_area_is_the_chance_that_a_positive_row_ranks_above_a_negative_one(rows):
    score, positive, weight = (np.array(each, np.float64) for each in zip(*rows, strict=True))
    data = one_feature(score, positive, weight, [len(rows) // 2, len(rows) - len(rows) // 2])
    pairs = np.outer(weight * positive, weight * (1.0 - positive))
    wins = np.sign(score[:, None] - score[None, :]) / 2 + 0.5
    if pairs.sum():
        expected = float((pairs * wins).sum() / pairs.sum())
        assert evaluate(IDENTITY, data)["auc"] == pytest.approx(expected, abs=1e-12)
    elif weight.any():
        assert evaluate(IDENTITY, data)["auc"] is None


@given(
    seed=st.integers(0, 99),
    share=st.sampled_from([0.003, 0.5, 0.999]),
    order=st.sampled_from(["random", "rising", "classes apart"]),
)
def test_area_of_more_scores_than_are_kept_is_nearly_that_of_all(seed, share, order):
    random = np.random.default_rng(seed)
    positive = random.random(6000) < share
    positive[:2] = True, False
    score = random.normal(size=6000) + positive
    score[random.random(6000) < 0.2] = 0.5  # a score of great weight
    sorting = {"random": np.arange(6000), "rising": score, "classes apart": positive}[order]
    rows = np.argsort(sorting, kind="stable")
    weight = random.integers(1, 4, 6000)
    data = one_feature(score[rows], positive[rows], weight[rows], [500] * 12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dadagrad.model.metrics.MAX_SCORES", 1024)
        area = evaluate(IDENTITY, data)["auc"]
    expected = sk.roc_auc_score(positive, np.float32(score), sample_weight=weight)
    assert abs(area - expected) < 5 / 1024


def test_memory_does_not_grow_with_the_data(monkeypatch):
    random = np.random.default_rng(0)
    part = one_feature(random.normal(size=4000), random.random(4000) < 0.5, np.ones(4000), [4000])

    class Repeated(MemoryDataset):
        """One partition many times, with other scores each time."""

        def read(self, partition):
            rows = part.read(0)
            return replace(rows, values=rows.values + np.float32(partition))

    def peak(n_partitions):
        data = Repeated([part.read(0)] * n_partitions, part.schema)
        tracemalloc.start()
        assert 0.4 < evaluate(IDENTITY, data)["auc"] < 0.6
        return tracemalloc.get_traced_memory()[1]

    monkeypatch.setattr("dadagrad.model.metrics.MAX_SCORES", 10_000)
    try:
        few = peak(20)
        assert peak(100) < 1.2 * few
    finally:
        tracemalloc.stop()


def test_labels_that_were_text_are_matched_by_name():
    """The same text has another number in each dataset that lacks a class."""
    ours = LabelColumn("y0", (0.0, 1.0, 2.0), (1, 1, 1), ("ant", "bee", "cat"))
    model = make_model("multiclass", [ours])
    labels = np.random.default_rng(6).choice([0.0, 1.0], (65, 1))
    data = make_data(labels, names=("bee", "cat"))
    predicted = scores_of(model, data).argmax(axis=1)
    assert evaluate(model, data)["error"] == pytest.approx(np.mean(predicted != labels[:, 0] + 1))
    wrong = with_second(data, lambda rows: rows.labels.__setitem__(3, 5.0))
    with pytest.raises(InputError, match="row 3 has label 5 in column 'y0'"):
        evaluate(model, wrong)


@pytest.fixture
def pair():
    data = make_data(binary())
    return data, make_model("binary", data.schema.label_columns, loss="logistic")


def with_second(data, change):
    """The data, after `change` of the rows of the second partition."""
    parts = all_rows(data)
    change(parts[1])
    return MemoryDataset(parts, data.schema)


def test_labels_beyond_those_of_the_schema_are_named_by_row(pair):
    data = with_second(pair[0], lambda rows: rows.labels.__setitem__(3, 5.0))
    with pytest.raises(InputError, match="row 43 has label 5 in column 'y0'"):
        evaluate(pair[1], data)


def test_data_that_does_not_fit_the_model(pair, tmp_path):
    data, model = pair
    spaced = replace(model, feature_space=FeatureSpace({"hash_bits": 5}))
    for use in (evaluate, lambda *both: predict(*both, tmp_path / "p.parquet")):
        with pytest.raises(InputError, match="feature space"):
            use(spaced, data)
    with pytest.raises(InputError, match="the label columns y0, y1, and the model has y0"):
        evaluate(model, make_data(np.hstack([binary(), binary(1)])))
    with pytest.raises(InputError, match="weight 0"):
        evaluate(model, make_data(binary(), weights=np.zeros(65, np.float32)))
    assert list(tmp_path.iterdir()) == []


ANIMALS = LabelColumn("y0", (0.0, 1.0, 2.0), None, ("ant, or bee", 'a "wasp"', "cat"))


@pytest.mark.parametrize(
    ("task", "columns", "loss", "outputs", "labels"),
    [
        ("binary", SIGNS[:1], "logistic", [""], [""]),
        ("multiclass", (ANIMALS,), "logistic", [f"_{name}" for name in ANIMALS.names], [""]),
        ("multilabel", SIGNS, "hinge", ["_y0", "_y1"], ["_y0", "_y1"]),
        ("regression", (LabelColumn("y0"),), "squared", [""], [""]),
    ],
)
def test_predictions(task, columns, loss, outputs, labels, tmp_path):
    data, model = make_data(np.zeros((65, 1))), make_model(task, columns, loss=loss)
    out = tmp_path / "folder" / "p.parquet"
    result = predict(model, data, out)
    assert (result["rows"], result["bytes"]) == (65, out.stat().st_size)
    assert [path.name for path in out.parent.iterdir()] == ["p.parquet"]
    assert pq.ParquetFile(out).num_row_groups == 2
    table, scores = pq.read_table(out), scores_of(model, data)
    expected = {"row": range(65), "label": np.zeros(65)}
    expected |= {f"score{name}": column for name, column in zip(outputs, scores.T, strict=True)}
    predicted = model.predict_labels(scores).reshape(65, -1)
    for name, column in zip(labels, predicted.T, strict=True):
        known = columns[0].names
        expected[f"prediction{name}"] = [known[int(one)] if known else one for one in column]
    if loss == "logistic":
        probabilities = model.probabilities(scores)[:, -len(outputs) :].T
        for name, column in zip(outputs, probabilities, strict=True):
            expected[f"probability{name}"] = column
    assert table.to_pydict() == {name: list(column) for name, column in expected.items()}


def test_the_suffix_is_the_format(pair, tmp_path):
    model, data = make_model("multiclass", [ANIMALS], loss="logistic"), pair[0]
    for name in ("p.parquet", "none", "p.PQ", "p.csv"):
        predict(model, data, tmp_path / name)
    for name in ("none", "p.PQ"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "p.parquet").read_bytes()
    table = pq.read_table(tmp_path / "p.parquet")
    with open(tmp_path / "p.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == table.column_names
    # Every number reads back to the same bits.
    for name, *texts in zip(header, *rows, strict=True):
        values = texts if name == "prediction" else [float(text) for text in texts]
        assert values == table[name].to_pylist()
    for out in (f"{tmp_path}/q.json", f"{tmp_path}/q.csv.gz", "s3://bucket/p.txt?key=SECRET"):
        with pytest.raises(InputError, match=r"the suffix \.\w+ is not known") as refused:
            predict(model, data, out)
        assert "SECRET" not in str(refused.value)
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("store", ["files", "memory"])
def test_a_file_is_replaced_only_on_request(pair, store, tmp_path):
    data, model = pair
    folder = str(tmp_path) if store == "files" else "memory://predictions"
    Storage(folder).put("p.parquet", b"precious")
    with pytest.raises(InputError, match=r"there is a file at .* overwrite=True"):
        predict(model, data, f"{folder}/p.parquet")
    assert Storage(folder).get("p.parquet") == b"precious"
    predict(model, data, f"{folder}/p.parquet", overwrite=True)
    assert pq.read_table(io.BytesIO(Storage(folder).get("p.parquet"))).num_rows == 65


@pytest.mark.parametrize("store", ["files", "memory"])
def test_a_file_that_another_process_writes_meanwhile_is_not_replaced(pair, store, tmp_path):
    data, model = pair
    folder = str(tmp_path) if store == "files" else "memory://meanwhile"

    def write(*progress):
        Storage(folder).put("p.parquet", b"precious")

    with pytest.raises(InputError, match="there is a file at"):
        predict(model, data, f"{folder}/p.parquet", progress=write)
    assert Storage(folder).get("p.parquet") == b"precious"


def test_predictions_that_fail_leave_nothing(pair, tmp_path, monkeypatch):
    """They have no name before they are complete: a process that is killed leaves nothing."""

    def look(*progress):
        assert list(tmp_path.iterdir()) == []

    def interrupt(*arguments):
        raise KeyboardInterrupt

    data, model = pair
    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        predict(model, data, tmp_path / "p.csv", progress=look)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    spoiled = with_second(data, lambda rows: rows.values.fill(np.inf))
    (tmp_path / "file").write_text("")
    for rows, out, error, message in (
        (spoiled, "p.parquet", InputError, r"part-00001, row \d is not finite"),
        (data, "file/p.parquet", StorageError, "cannot write"),
        (data, "", InputError, "is a folder"),
        (data, "new/", InputError, "is a folder"),
    ):
        with pytest.raises(error, match=message):
            predict(model, rows, f"{tmp_path}/{out}")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
