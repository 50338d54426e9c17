"""Exported models predict as the model does, in the programs that they are for."""

import json
import os
import shlex
import sys

import numpy as np
import onnxruntime
import pyarrow.csv
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from helpers.objects import OwnHinge
from hypothesis import given, settings
from hypothesis import strategies as st

import dadagrad
from dadagrad import InputError, Model
from dadagrad.cli import dadagrad as cli
from dadagrad.data.dataset import LabelColumn
from dadagrad.model.raw import read_raw

REVIEWS = [
    "Good film, good plot", "a BAD film", "very very GOOD; don't miss it", "bad. Bad! plot", "",
    "ÉLAN naïve film", "x y z", "so good_good 10 times",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("export")


def text_model(folder, loss, n_classes=2, **options):
    source, data = folder / "reviews.tsv", folder / f"{loss}{n_classes}{options}.zarr"
    lines = [f"class{row % n_classes}\t{text}" for row, text in enumerate(REVIEWS * 4)]
    source.write_text("\n".join(lines) + "\n")
    dadagrad.ingest(source, data, format="text", hash_bits=8, **options)
    return dadagrad.train(str(data), loss=loss, step_size=0.3).model


def run(model, **inputs):
    made = dadagrad.export(model, format="onnx")
    used = {name for node in made.graph.node for name in node.input}
    assert {each.name for each in made.graph.initializer} <= used
    # Threads of onnxruntime add to one row of a ScatterND at a time, and lose sums now and then.
    assert "ScatterND" not in {node.op_type for node in made.graph.node}
    made = made.SerializeToString()
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def check(outputs, model, scores):
    """The outputs are the scores, predictions and probabilities of the model."""
    np.testing.assert_allclose(outputs[0], scores, rtol=1e-6, atol=1e-6)
    predicted, (column, *_) = model.predict_labels(scores), model.label_columns
    if column.names is not None:
        predicted = np.array(column.names)[np.searchsorted(column.values, predicted)]
        assert outputs[1].tolist() == predicted.tolist()
    else:
        np.testing.assert_allclose(outputs[1], predicted, rtol=1e-6)
    if model.has_probabilities:
        expected = model.probabilities(scores)
        np.testing.assert_allclose(outputs[2], expected, rtol=1e-6, atol=1e-6)


def test_onnx_predicts_from_raw_texts(folder):
    for loss, n_classes, options in (
        ("hinge", 2, {"ngrams": 2, "norm": "l2", "binary": True}),
        ("logistic", 3, {"ngrams": 3, "norm": "l2"}),
        ("softmax", 2, {"binary": True}),
        ("squared-hinge", 2, {}),
    ):
        model = text_model(folder, loss, n_classes, **options)
        scores = np.concatenate([model.scores(raw.rows) for raw in read_raw(model.schema, REVIEWS)])
        check(run(model, text=np.array(REVIEWS, object)), model, scores)


@pytest.fixture(scope="module")
def bigrams(folder):
    return text_model(folder, "hinge", ngrams=2, norm="l2")


@given(st.lists(st.text("aBcÉéñÜß _-,.;19\n\t", max_size=30), min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_onnx_reads_texts_as_the_model_does(bigrams, texts):
    scores = np.concatenate([bigrams.scores(raw.rows) for raw in read_raw(bigrams.schema, texts)])
    check(run(bigrams, text=np.array(texts, object)), bigrams, scores)


def numbers(loss, n_classes=2, calibration="platt"):
    """A model of eight columns of numbers, and rows."""
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 8)).astype(np.float32)
    y = X[:, :n_classes].argmax(axis=1).astype(float)
    data = dadagrad.dataset_from_arrays(X, y)
    settings = {} if loss in ("squared", "poisson") else {"calibration": calibration}
    return dadagrad.train(data, loss=loss, step_size=0.1, **settings).model, X


def scores_of(model, X):
    weights = np.zeros((model.n_features, model.n_outputs))
    weights[model.ids] = model.weights
    return X.astype(float) @ weights + model.intercept


def test_onnx_predicts_from_ids_and_values():
    for loss, n_classes, calibration in (
        ("hinge", 2, "none"), ("logistic", 2, "isotonic"), ("multiclass-hinge", 3, "isotonic"),
        ("softmax", 3, "none"), ("logistic", 3, "none"), ("squared", 2, ""), ("poisson", 2, ""),
    ):  # fmt: skip
        model, X = numbers(loss, n_classes, calibration)
        ids = np.tile(np.arange(8), (len(X), 1))
        check(run(model, ids=ids, values=X.astype(float)), model, scores_of(model, X))


def test_onnx_has_even_probabilities_where_all_of_a_row_underflow():
    model, _ = numbers("logistic", 3, "none")
    X = np.linalg.lstsq(model.weights.T.astype(float), np.full(3, -2000.0))[0][None]
    scores = scores_of(model, X)
    check(run(model, ids=np.arange(8)[None], values=X), model, scores)
    assert model.probabilities(scores).tolist() == [[1 / 3] * 3]


@pytest.mark.parametrize(
    ("loss", "n_classes"),
    [("hinge", 2), ("logistic", 3), ("softmax", 2), ("softmax", 3), ("squared", 2)],
)
def test_an_estimator_of_scikit_learn_predicts_alike(tmp_path, loss, n_classes):
    import skops.io  # which takes a second

    model, X = numbers(loss, n_classes)
    file = tmp_path / "estimator.skops"
    dadagrad.export(model, file)
    for estimator in (dadagrad.export(model, format="sklearn"), skops.io.load(file)):
        predicted = estimator.predict(X.astype(float))
        np.testing.assert_allclose(predicted, model.predict_labels(scores_of(model, X)), rtol=1e-9)


def test_tables_hold_every_weight_with_its_name(tmp_path):
    data = dadagrad.dataset_from_arrays(np.eye(3), [0.0, 1.0, 2.0])
    model = dadagrad.train(data, loss="hinge", step_size=1.0).model
    model.save(tmp_path / "model")
    dadagrad.export(model, tmp_path / "weights.csv")
    dadagrad.export(tmp_path / "model", tmp_path / "weights.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "weights.parquet")
    assert pyarrow.csv.read_csv(tmp_path / "weights.csv").column_names == table.column_names
    assert table.num_rows == model.n_outputs + np.count_nonzero(model.weights)
    for row in table.to_pylist():
        output = model.output_names.index(row["output"])
        if row["feature"] is None:
            assert row["weight"] == model.intercept[output]
        else:
            place = np.searchsorted(model.ids, row["feature"])
            assert row["weight"] == model.weights[place, output]
    dadagrad.export(model, tmp_path / "weights.npz")
    with np.load(tmp_path / "weights.npz") as arrays:
        assert tuple(arrays["output"]) == tuple(model.output_names)
        for name, expected in (("feature", model.ids), ("weight", model.weights)):
            np.testing.assert_array_equal(arrays[name], expected)
        np.testing.assert_array_equal(arrays["intercept"], model.intercept)


@pytest.mark.parametrize(("columns", "shared"), [([], 0), (["town", "text"], 2)])
def test_the_effect_of_a_word_is_that_of_its_class(tmp_path, columns, shared):
    """The values of half of the words are -1; towns are categories, whose values are 1."""
    source, random = tmp_path / "rows.csv", np.random.default_rng(0)
    lines = [
        f"{kind},{kind}ville,{' '.join(f'{kind}{n}' for n in random.integers(0, 12, 5))}\n"
        for kind in ("good", "poor") * 200
    ]
    source.write_text("class,town,text\n" + "".join(lines))
    options = {"label": "class", "text_column": "text", "columns": columns or None}
    dadagrad.ingest(source, tmp_path / "data", keep_names=True, **options)
    model = dadagrad.train(str(tmp_path / "data")).model
    shown = dadagrad.export(model, format="csv").slice(1).to_pylist()
    assert {row["effect"] / row["weight"] for row in shown} == {1.0, -1.0}
    effects = {row["name"].split("=")[-1]: row["effect"] for row in shown}
    assert len(effects) == 24 + shared
    assert all((effect < 0) == name.startswith("good") for name, effect in effects.items())


@pytest.mark.parametrize("first", [0, 1])
def test_features_of_svmlight_have_the_ids_of_the_file_as_names(tmp_path, first):
    file = tmp_path / "a.svmlight"
    file.write_text(f"1 {first}:1 {first + 8}:0.5\n-1 {first + 3}:1\n" * 20)
    model = dadagrad.train(str(file), step_size=0.5).model
    ids = {0: str(first), 3: str(first + 3), 8: str(first + 8)}
    named = {each: name if first else None for each, name in ids.items()}
    rows = dadagrad.export(model, format="csv").slice(1).to_pylist()
    assert {row["feature"]: row["name"] for row in rows} == named
    (output,) = json.loads(dadagrad.report(model, format="json"))["weights"]
    assert {each["feature"]: each["name"] for each in output["for"] + output["against"]} == named
    assert f"label for 1: {ids[0]} +" in dadagrad.export(model, format="card")


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "logistic", "l1": 0.01, "passes": 2, "class_weight": {-1.0: 2.0, "+1": 1.5}}
        | {"average": False, "fit_intercept": False, "shuffle": False},
        {},
        {"step_size": 1.0, "average": True},
        {"step_size": 0.5, "scale_columns": False, "importance_aware": False},
    ],
)
def test_the_command_of_a_card_and_of_a_report_makes_the_model_again(settings, tmp_path):
    data = tmp_path / "data.zarr"
    (tmp_path / "a.svmlight").write_text("1 3:0.5 9:2\n-1 1:1\n1 3:-1 4:0.25\n" * 5)
    dadagrad.ingest(tmp_path / "a.svmlight", data)
    model, url = dadagrad.train(str(data), **settings).model, str(tmp_path / "a model")
    model.save(url)
    (command,) = json.loads(dadagrad.report(url, format="json"))["again"]
    assert command.replace(shlex.quote(url), "model") in dadagrad.export(model, format="card")
    words = [f"{tmp_path}/m" if word == url else word for word in shlex.split(command)[1:]]
    assert CliRunner().invoke(cli, words).exit_code == 0
    assert Model.load(tmp_path / "m").digest == model.digest


def test_there_is_no_command_where_settings_do_not_make_the_model_again(tmp_path):
    (tmp_path / "a.csv").write_text(
        "id,label,x\n" + "".join(f"{n},{n % 2},{n}\n" for n in range(40))
    )
    raw = dadagrad.train(str(tmp_path / "a.csv"), ignore="id", step_size=0.5)
    dadagrad.ingest(tmp_path / "a.csv", tmp_path / "data", ignore="id")
    first = dadagrad.train(str(tmp_path / "data"), step_size=0.5)
    later = dadagrad.train(str(tmp_path / "data"), initial_model=first)
    pair = np.eye(2)[np.arange(40) % 2], np.where(np.arange(40) % 2, "yes, sir", "no")
    commas = dadagrad.train(pair, step_size=0.5, class_weight={"yes, sir": 5.0, "no": 1.0})
    own_loss = dadagrad.train(pair, step_size=0.5, loss=OwnHinge())
    counts = [
        len(json.loads(dadagrad.report(each, format="json"))["again"])
        for each in (raw, first, later, commas, own_loss)
    ]
    assert counts == [0, 1, 0, 0, 0]


def test_the_command_and_the_card_name_all_datasets(tmp_path):
    (tmp_path / "a.svmlight").write_text("1 3:0.5 9:2\n-1 1:1\n1 3:-1 4:0.25\n" * 5)
    urls = [str(tmp_path / name) for name in ("a b", "c")]
    for url in urls:
        dadagrad.ingest(tmp_path / "a.svmlight", url)
    result = dadagrad.train(urls, step_size=0.5)
    (command,) = json.loads(dadagrad.report(result, format="json"))["again"]
    assert shlex.split(command)[2:4] == urls
    card = dadagrad.export(result.model, format="card").replace("\\", "")
    assert f"A linear model of {', '.join(urls)}." in card
    assert f"of {', '.join(urls)}" in result.model.facts()["trained on"]


def test_a_card_and_a_page_escape_the_bytes_of_a_name(tmp_path):
    """Linux takes names that are not UTF-8."""
    path = os.fsdecode(os.fsencode(tmp_path) + b"/na\xffme.svmlight")
    with open(path, "w") as file:
        file.write("1 3:0.5 9:2\n-1 1:1\n1 3:-1 4:0.25\n" * 5)
    model = dadagrad.train(path, step_size=0.5).model
    for out, write in (("card.md", dadagrad.export), ("page.html", dadagrad.report)):
        write(model, tmp_path / out)
        assert r"na\udcffme" in (tmp_path / out).read_text().replace(r"\\", "\\")


def test_a_card_shows_names_as_they_are():
    names = {0: "__init__", 1: "~~old~~", 2: "*x*", 3: "[a](b)"}
    made = Model(
        4, np.arange(4), np.ones((4, 1), np.float32), np.zeros(1), "hinge", "binary",
        (LabelColumn("label", (-1.0, 1.0)),), names=names,
    )  # fmt: skip
    card = dadagrad.export(made, format="card")
    for escaped in (r"\_\_init\_\_", r"\~\~old\~\~", r"\*x\*", r"\[a\](b)"):
        assert escaped in card


def test_a_card_counts_held_out_rows_in_full_and_names_no_data_in_memory():
    X, y = np.eye(2)[np.arange(24_690) % 2], np.arange(24_690) % 2
    model = dadagrad.train((X, y), step_size=0.5, holdout=0.5).model
    card = dadagrad.export(model, format="card")
    assert "| rows |  |  | 12,345 |" in card
    assert "A linear model of data in memory." in card


@pytest.mark.parametrize("package", ["onnx", "skops"])
def test_a_missing_package_is_named(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=f"needs the package {package}.*pip install {package}"):
        dadagrad.export(numbers("hinge")[0], tmp_path / f"model.{package}")
    assert not list(tmp_path.iterdir())


def test_impossible_exports_are_refused(tmp_path):
    model, _ = numbers("hinge")
    with pytest.raises(InputError, match=r"poisson.*export the model as onnx"):
        dadagrad.export(numbers("poisson")[0], format="sklearn")
    with pytest.raises(InputError, match=r"sklearn.*\.onnx"):
        dadagrad.export(model, tmp_path / "model.xyz")
    (tmp_path / "a.csv").touch()
    with pytest.raises(InputError, match="already"):
        dadagrad.export(model, tmp_path / "a.csv")
