"""`dadagrad.evaluation`: losses, errors and areas against plain computations, and predictions."""

from __future__ import annotations

import csv

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from dadagrad.data.dataset import LabelColumn, MemoryDataset, Schema, describe_labels
from dadagrad.data.rows import Rows
from dadagrad.errors import InputError, StorageError
from dadagrad.evaluation import _Curve, evaluate, predict
from dadagrad.labels import label_text
from dadagrad.model import Model
from dadagrad.storage import Storage

N_FEATURES = 30


def make_data(labels, *, weights=None, names=None, seed=0, n_features=N_FEATURES, sizes=(40, 25)):
    """Sparse rows with the given (n_rows, n_columns) labels, in two partitions."""
    random = np.random.default_rng(seed)
    parts, start = [], 0
    for size in sizes:
        counts = random.integers(0, 6, size)
        ids = np.concatenate([np.sort(random.permutation(n_features)[:count]) for count in counts])
        parts.append(
            Rows.from_csr(
                np.concatenate([[0], np.cumsum(counts)]),
                ids.astype(np.int64),
                random.normal(size=len(ids)).astype(np.float32),
                labels[start : start + size],
                None if weights is None else weights[start : start + size],
            )
        )
        start += size
    columns = describe_labels(labels, [f"y{number}" for number in range(labels.shape[1])])
    if names is not None:
        columns = tuple(
            LabelColumn(column.name, column.values, column.counts, names) for column in columns
        )
    return MemoryDataset(parts, Schema(n_features, columns, weights is not None))


def make_model(task, columns, *, loss="hinge", seed=1, n_features=N_FEATURES, **more):
    random = np.random.default_rng(seed)
    n_outputs = len(columns[0].values) if task == "multiclass" else len(columns)
    ids = np.arange(0, n_features, 2)
    return Model(
        n_features, ids, random.normal(size=(len(ids), n_outputs)).astype(np.float32),
        random.normal(size=n_outputs), loss, task, tuple(columns), **more,
    )  # fmt: skip


def all_rows(data):
    return [data.read(number) for number in range(len(data.partitions))]


def margins_of(model, data):
    return np.concatenate([model.margins(rows) for rows in all_rows(data)])


def labels_of(data):
    return np.concatenate([rows.labels for rows in all_rows(data)])


def binary(seed=0):
    return np.random.default_rng(seed).choice([-1.0, 1.0], (65, 1))


@pytest.mark.parametrize("weighted", [False, True])
def test_binary(weighted):
    weights = np.random.default_rng(2).integers(0, 4, 65).astype(np.float32) if weighted else None
    data = make_data(binary(), weights=weights)
    model = make_model("binary", data.schema.label_columns)
    result = evaluate(model, data)
    margin, label = margins_of(model, data)[:, 0], labels_of(data)[:, 0]
    weight = np.ones(65) if weights is None else weights
    assert result["examples"] == np.count_nonzero(weight)
    assert result["loss"] == pytest.approx(
        np.average(np.maximum(0, 1 - label * margin), weights=weight)
    )
    wrong = np.average(np.where(margin > 0, 1, -1) != label, weights=weight)
    assert result["error"] == pytest.approx(wrong)
    assert result["accuracy"] == pytest.approx(1 - wrong)
    assert result["auc"] == pytest.approx(roc_auc_score(label, margin, sample_weight=weight))
    assert result["seconds"] > 0


@given(
    st.lists(
        st.tuples(st.integers(-3, 3), st.booleans(), st.integers(0, 3)), min_size=1, max_size=40
    )
)
def test_area_is_the_chance_that_a_positive_row_ranks_above_a_negative_one(rows):
    margins = np.array([margin for margin, _, _ in rows], np.float64)
    targets = np.where([positive for _, positive, _ in rows], 1.0, -1.0)
    weight = np.array([weight for _, _, weight in rows], np.float64)
    curve = _Curve()
    half = len(rows) // 2
    curve.add(margins[:half], targets[:half], weight[:half])
    curve.add(margins[half:], targets[half:], weight[half:])
    pairs = np.outer(weight * (targets > 0), weight * (targets < 0))
    wins = np.sign(margins[:, None] - margins[None, :]) / 2 + 0.5
    if pairs.sum() == 0:
        assert curve.area() is None
    else:
        assert curve.area() == pytest.approx(float((pairs * wins).sum() / pairs.sum()), abs=1e-12)


def test_multiclass():
    labels = np.random.default_rng(3).choice([1.0, 4.0, 9.0], (65, 1))
    data = make_data(labels)
    model = make_model("multiclass", data.schema.label_columns, loss="squared-hinge")
    result = evaluate(model, data)
    margins = margins_of(model, data)
    targets = np.where(labels == np.array([1.0, 4.0, 9.0]), 1.0, -1.0)
    assert result["loss"] == pytest.approx(np.mean(0.5 * np.maximum(0, 1 - targets * margins) ** 2))
    predicted = np.array([1.0, 4.0, 9.0])[margins.argmax(axis=1)]
    assert result["error"] == pytest.approx(np.mean(predicted != labels[:, 0]))
    assert result["auc"] is None


def test_multilabel():
    labels = np.random.default_rng(4).choice([0.0, 1.0], (65, 3))
    data = make_data(labels)
    model = make_model("multilabel", data.schema.label_columns, loss="logistic")
    result = evaluate(model, data)
    margins = margins_of(model, data)
    assert result["error"] == pytest.approx(np.mean((margins > 0) != (labels > 0)))
    signs = np.where(labels > 0, 1, -1)
    assert result["loss"] == pytest.approx(np.mean(np.log1p(np.exp(-signs * margins))))


def test_regression_with_the_width_it_was_trained_with():
    labels = np.random.default_rng(5).normal(size=(65, 1))
    data = make_data(labels)
    model = make_model(
        "regression", (LabelColumn("y0"),), loss="huber", report={"config": {"huber_width": 0.3}}
    )
    distance = np.abs(margins_of(model, data) - labels)
    expected = np.where(distance < 0.3, distance**2 / 2, 0.3 * (distance - 0.15)).mean()
    result = evaluate(model, data)
    assert result["loss"] == pytest.approx(expected)
    assert result["error"] is result["auc"] is result["accuracy"] is None


def test_labels_that_were_text_are_matched_by_name():
    """The same text has another number in each dataset that lacks a class."""
    ours = LabelColumn("y0", (0.0, 1.0, 2.0), (1, 1, 1), ("ant", "bee", "cat"))
    model = make_model("multiclass", [ours])
    labels = np.random.default_rng(6).choice([0.0, 1.0], (65, 1))
    data = make_data(labels, names=("bee", "cat"))
    predicted = margins_of(model, data).argmax(axis=1)
    assert evaluate(model, data)["error"] == pytest.approx(np.mean(predicted != labels[:, 0] + 1))


@pytest.mark.parametrize(
    ("column", "names", "said"),
    [
        (LabelColumn("y0", (0.0, 1.0), None, ("ant", "bee")), ("ant", "wasp"), "label 'wasp'"),
        (LabelColumn("y0", (0.0, 1.0), None, ("ant", "bee")), None, "model are text"),
        (LabelColumn("y0", (-1.0, 1.0)), ("ant", "bee"), "model are numbers"),
        (LabelColumn("y0", (0.0, 1.0)), None, "label -1, which the model was not trained on"),
    ],
)
def test_labels_that_the_model_does_not_know(column, names, said):
    labels = binary() if names is None else (binary() + 1) / 2
    with pytest.raises(InputError, match=said):
        evaluate(make_model("binary", [column]), make_data(labels, names=names))


def test_labels_beyond_those_of_the_schema_are_named_by_row():
    data = make_data(binary())
    broken = all_rows(data)
    broken[1].labels[3] = 5.0
    data = MemoryDataset(broken, data.schema)
    with pytest.raises(InputError, match=r"label 5 \(row 43\)"):
        evaluate(make_model("binary", data.schema.label_columns), data)


def test_other_numbers_of_label_columns():
    model = make_model("binary", [LabelColumn("y0", (-1.0, 1.0))])
    data = make_data(np.hstack([binary(), binary(1)]))
    with pytest.raises(InputError, match="1 label columns and the data at memory has 2"):
        evaluate(model, data)


def test_another_feature_space(tmp_path):
    data = make_data(binary())
    model = make_model("binary", data.schema.label_columns, feature_space={"hash_bits": 5})
    with pytest.raises(InputError, match="feature space"):
        evaluate(model, data)
    with pytest.raises(InputError, match="feature space"):
        predict(model, data, tmp_path / "p.parquet")
    assert list(tmp_path.iterdir()) == []


def test_one_class_has_no_area():
    data = make_data(np.ones((65, 1)))
    result = evaluate(make_model("binary", [LabelColumn("y0", (-1.0, 1.0))]), data)
    assert result["auc"] is None
    assert 0 <= result["error"] <= 1


def test_nothing_that_counts():
    data = make_data(binary(), weights=np.zeros(65, np.float32))
    with pytest.raises(InputError, match="weight 0"):
        evaluate(make_model("binary", data.schema.label_columns), data)


def test_progress_ends_with_all_rows():
    data = make_data(binary())
    told = []
    evaluate(
        make_model("binary", data.schema.label_columns), data, progress=lambda *at: told.append(at)
    )
    assert told == [(40, 65), (65, 65)]


def test_predictions_of_a_binary_model(tmp_path):
    data = make_data(binary())
    model = make_model("binary", data.schema.label_columns, loss="logistic")
    out = tmp_path / "folder" / "p.parquet"
    result = predict(model, data, out)
    assert result["examples"] == 65
    assert result["bytes"] == out.stat().st_size
    table = pq.read_table(out)
    assert table.column_names == ["row", "margin", "prediction", "probability"]
    margins = margins_of(model, data)
    assert table["row"].to_pylist() == list(range(65))
    assert np.array_equal(table["margin"], margins[:, 0])
    assert np.array_equal(table["prediction"], model.predict_labels(margins))
    assert np.array_equal(table["probability"], model.probabilities(margins)[:, 1])
    assert pq.ParquetFile(out).num_row_groups == 2
    assert [path.name for path in out.parent.iterdir()] == ["p.parquet"]


def test_predictions_of_many_classes_with_names(tmp_path):
    column = LabelColumn("y0", (0.0, 1.0, 2.0), None, ("ant", "bee", "cat"))
    model = make_model("multiclass", [column], loss="logistic")
    data = make_data(np.zeros((65, 1)), names=("anything",))
    predict(model, data, tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.column_names == [
        "row", "margin_ant", "margin_bee", "margin_cat", "prediction",
        "probability_ant", "probability_bee", "probability_cat",
    ]  # fmt: skip
    margins = margins_of(model, data)
    assert np.array_equal(table["margin_bee"], margins[:, 1])
    names = np.array(["ant", "bee", "cat"])
    assert table["prediction"].to_pylist() == names[margins.argmax(axis=1)].tolist()


def test_predictions_of_several_labels(tmp_path):
    labels = np.random.default_rng(4).choice([0.0, 1.0], (65, 2))
    data = make_data(labels)
    model = make_model("multilabel", data.schema.label_columns)
    predict(model, data, tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.column_names == [
        "row", "margin_y0", "margin_y1", "prediction_y0", "prediction_y1",
    ]  # fmt: skip
    margins = margins_of(model, data)
    assert np.array_equal(table["prediction_y1"], (margins[:, 1] > 0).astype(float))


def test_predictions_of_a_regression(tmp_path):
    data = make_data(np.zeros((65, 1)))
    model = make_model("regression", (LabelColumn("y0"),), loss="squared")
    predict(model, data, tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.column_names == ["row", "margin", "prediction"]
    assert np.array_equal(table["prediction"], margins_of(model, data)[:, 0])


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def test_a_suffix_of_csv_makes_csv(tmp_path):
    names = ("ant, or bee", 'a "wasp"', "cat")
    model = make_model(
        "multiclass", [LabelColumn("y0", (0.0, 1.0, 2.0), None, names)], loss="logistic"
    )
    data = make_data(np.zeros((65, 1)))
    for name in ("p.parquet", "none", "p.PQ", "p.csv"):
        result = predict(model, data, tmp_path / name)
        assert result["bytes"] == (tmp_path / name).stat().st_size
    assert len(list(tmp_path.iterdir())) == 4
    table = pq.read_table(tmp_path / "p.parquet")
    for name in ("none", "p.PQ"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "p.parquet").read_bytes()
    header, *rows = read_csv(tmp_path / "p.csv")
    assert header == table.column_names
    # Every number reads back to the same bits.
    for name, *texts in zip(header, *rows, strict=True):
        values = texts if name == "prediction" else [float(text) for text in texts]
        assert values == table[name].to_pylist()


def test_the_csv_of_a_binary_model_is_plain(tmp_path):
    data = make_data(binary())
    predict(make_model("binary", data.schema.label_columns), data, tmp_path / "p.csv")
    first, second, *_ = (tmp_path / "p.csv").read_text().splitlines()
    assert first == "row,margin,prediction"
    assert second.startswith("0,")


def test_a_suffix_that_is_not_known(tmp_path):
    data = make_data(binary())
    model = make_model("binary", data.schema.label_columns)
    for out in (f"{tmp_path}/p.json", f"{tmp_path}/p.csv.gz", "memory://bucket/p.txt"):
        with pytest.raises(InputError, match=r"the suffix \.\w+ is not known; give \.parquet"):
            predict(model, data, out)
    assert list(tmp_path.iterdir()) == []


def test_predictions_go_to_stores(tmp_path):
    data = make_data(binary())
    model = make_model("binary", data.schema.label_columns)
    predict(model, data, "memory://predictions/deep/p.parquet")
    predict(model, data, tmp_path / "p.parquet")
    stored = Storage("memory://predictions/deep").get("p.parquet")
    assert stored == (tmp_path / "p.parquet").read_bytes()
    with pytest.raises(InputError, match="there is a file at memory:"):
        predict(model, data, "memory://predictions/deep/p.parquet")


def test_a_file_is_replaced_only_on_request(tmp_path):
    data = make_data(binary())
    model = make_model("binary", data.schema.label_columns)
    out = tmp_path / "p.parquet"
    out.write_text("precious")
    with pytest.raises(InputError, match="--overwrite"):
        predict(model, data, out)
    assert out.read_text() == "precious"
    predict(model, data, out, overwrite=True)
    assert pq.read_table(out).num_rows == 65
    with pytest.raises(InputError, match="is a folder"):
        predict(model, data, tmp_path)


def test_nothing_half_written_is_left(tmp_path):
    data = make_data(binary())
    broken = all_rows(data)
    broken[1].values[:] = np.float32(3e38)
    data = MemoryDataset(broken, data.schema)
    model = make_model("binary", data.schema.label_columns)
    object.__setattr__(model, "weights", np.full_like(model.weights, 3e38))
    model.intercept[:] = np.inf
    with pytest.raises(InputError, match="partition part-00000: the margin of row 0 is not finite"):
        predict(model, data, tmp_path / "p.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    data = make_data(binary())
    model = make_model("binary", data.schema.label_columns)
    with pytest.raises(StorageError, match="cannot write"):
        predict(model, data, tmp_path / "file" / "p.parquet")


def test_label_text():
    column = LabelColumn("y", (-1.0, 0.5, 1e6 + 1))
    assert [label_text(column, value) for value in column.values] == ["-1", "0.5", "1000001"]
