"""Columns of a table that describe its rows: several labels, texts and queries."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from helpers.array_files import write_frame

from dadagrad import InputError, evaluate, ingest, open_dataset, predict, train

N_ROWS = 300


@pytest.fixture(scope="module")
def comments():
    random = np.random.default_rng(0)
    words = np.array(["a", "good", "bad", "ugly", "fine", "poor", "film", "actor"])
    frame = pd.DataFrame(
        {
            name: [" ".join(row) for row in random.choice(words, (N_ROWS, 6))]
            for name in ("title", "body")
        }
    )
    frame["toxic"] = frame["body"].str.contains("bad")
    frame["score"] = frame["title"].str.count("good").astype(float)
    return frame


@pytest.fixture(scope="module")
def searches():
    random = np.random.default_rng(1)
    frame = pd.DataFrame({"query": np.repeat(np.arange(60), 5), "x": random.normal(size=N_ROWS)})
    frame["grade"] = (frame["x"] > 0.5).astype(int)
    return frame.sample(frac=1, random_state=0)


# --- several labels


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "frame", "pair", "dask"])
def test_each_label_column_has_an_output(comments, tmp_path, suffix):
    labels, options = comments[["toxic", "score"]], {"label": "toxic,score"}
    pair = comments[["title", "body"]], labels
    data = {"frame": comments, "pair": pair, "dask": tuple(dd.from_pandas(x, 2) for x in pair)}
    if suffix in ("csv", "jsonl", "parquet"):
        source = write_frame(comments, tmp_path / f"comments.{suffix}")
    else:
        source = data[suffix]
    if suffix in ("pair", "dask"):
        options = {}
    ingest(source, str(tmp_path / "data"), shuffle=None, **options)
    data = open_dataset(str(tmp_path / "data"))
    assert data.schema.label_names == ["toxic", "score"]
    np.testing.assert_array_equal(data.read(0).labels, labels.to_numpy(float))
    assert data.schema.feature_space.plain["columns"] == [
        {"name": name, "kind": "text", "center": 0.0, "scale": 1.0} for name in ("title", "body")
    ]


def test_a_model_of_several_labels_predicts_and_is_measured_on_tables(comments, tmp_path):
    frame = comments.assign(kind=comments["score"] > 0)[["title", "body", "toxic", "kind"]]
    model = train(frame, label=["toxic", "kind"], passes=3).model
    assert evaluate(model, frame)["accuracy"] > 0.95
    predict(model, frame[["body", "title"]], tmp_path / "predictions.parquet")
    predictions = pd.read_parquet(tmp_path / "predictions.parquet")
    assert (predictions["prediction_toxic"] == frame["toxic"]).mean() > 0.95
    assert (predictions["prediction_kind"] == frame["kind"]).mean() > 0.95


def test_a_name_with_a_comma_is_one_column(comments):
    renamed = comments.rename(columns={"toxic": "a,b"})
    assert train(renamed, label="a,b", ignore="score").model.label_columns[0].name == "label"


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("toxic,title", "row 0: the label, column 'title', is .* needs a finite number or a bool"),
        ("toxic,toxin", "has no column 'toxin', which label= names; did you mean 'toxic'"),
        (["toxic", None], "label must be the name or the number of a column, or a list of them"),
        (["toxic", "toxic"], "must have distinct names"),
    ],
)
def test_labels_that_cannot_be_outputs_are_refused(comments, label, message):
    with pytest.raises(InputError, match=message):
        train(comments, label=label)


# --- several texts


def test_several_text_columns_are_the_features(comments, tmp_path):
    short = comments.assign(title=comments["title"].str.split().str[0], year=2000)
    model = train(short, label="toxic", text_column=["title", "body"]).model
    prefixes = {name.partition("=")[0] for name in model.names.values()}
    assert prefixes == {"title", "body"}


# --- queries


def test_text_columns_are_features_beside_those_of_columns(comments):
    wanted = train(comments, label="score", columns=["title", "toxic"], text_column="title")
    beside = train(comments, label="score", columns=["toxic"], text_column="title")
    assert {*beside.model.schema.names_of(beside.model.ids, beside.model.names)} == {
        *wanted.model.schema.names_of(wanted.model.ids, wanted.model.names)
    }
    assert wanted.model.names


def test_a_model_takes_labels_in_a_list_again(comments):
    options = {"label": ["toxic", "score"], "loss": "squared"}
    result = train(comments, **options)
    expected = evaluate(result.model, comments, label="toxic,score")
    assert evaluate(result.model, comments, label=["toxic", "score"])["loss"] == expected["loss"]
    assert train(comments, initial_model=result, **options).complete


@pytest.mark.parametrize("kind", [tuple, pd.Index, np.array])
def test_columns_may_be_named_by_any_collection(comments, kind):
    names = ["title", "body"]
    options = {"label": "toxic", "text_column": "title"}
    expected = train(comments, columns=names, **options)
    assert train(comments, columns=kind(names), **options).model.digest == expected.model.digest


@pytest.mark.parametrize("name", ["columns", "ignore", "categories", "cross"])
@pytest.mark.parametrize("value", [7, True, {"title": 1}], ids=str)
def test_an_option_of_columns_that_is_no_list_is_refused(comments, name, value):
    with pytest.raises(InputError, match=f"{name} must be .*, as a list, not"):
        train(comments, label="toxic", **{name: value})


def test_a_table_with_queries_is_ranked_as_arrays_are(searches, tmp_path):
    # In the order of the queries: arrays keep theirs, and a table that of its rows.
    ordered = searches.sort_values("query", kind="stable")
    named = ordered.assign(query=ordered["query"].map("query {}".format))
    settings = {"loss": "ranking", "shuffle": False, "step_size": 0.5, "passes": 2}
    models = [
        train(frame, label="grade", query="query", scale="none", **settings).model
        for frame in (ordered, named)
    ]
    assert models[0].digest == models[1].digest
    metrics = evaluate(models[0], searches)
    assert metrics["queries"] == 60
    assert metrics["accuracy"] == 1.0


def test_rows_of_a_query_come_together_from_anywhere(searches, tmp_path):
    searches[:100].to_csv(tmp_path / "1.csv", index=False)
    searches[100:].to_csv(tmp_path / "2.csv", index=False)
    out = str(tmp_path / "data")
    files = [str(tmp_path / "1.csv"), str(tmp_path / "2.csv")]
    report = ingest(files, out, label="grade", query="query", partition_nnz=50)
    assert "query: column 0 'query'" in report.columns
    data = open_dataset(out)
    parts = [data.read(number).queries for number in range(len(data.partitions))]
    assert len(parts) > 1
    queries = np.concatenate(parts)
    assert np.count_nonzero(np.diff(queries)) == 59
    assert sorted(set(queries)) == list(range(60))


def test_a_row_without_a_query_is_refused_or_skipped(searches, tmp_path):
    wrong = searches.assign(query=searches["query"].where(searches["x"] < 2).astype("Int64"))
    n_wrong = int(wrong["query"].isna().sum())
    out, options = str(tmp_path / "data"), {"label": "grade", "query": "query"}
    with pytest.raises(InputError, match="the query, column 'query', is missing"):
        ingest(wrong, out, **options)
    assert ingest(wrong, out, on_error="skip", **options).skipped == n_wrong > 0


@pytest.mark.parametrize("shape", [(N_ROWS, 2, 1), (N_ROWS - 1, 2), ()])
def test_labels_of_another_shape_than_the_rows_are_refused(comments, shape):
    for frame in (comments, dd.from_pandas(comments, 1)):
        with pytest.raises(InputError, match="y has shape "):
            train((frame[["title", "body"]], np.zeros(shape)))


# --- names and numbers of columns


def test_a_number_that_is_a_name_is_the_name_everywhere():
    frame = pd.DataFrame({3: ["no", "no", "yes"] * 20, 0: np.arange(60.0), 2: [0, 1] * 30})
    model = train(frame, label=3, ignore=[2]).model
    assert model.label_columns[0].texts == ("no", "yes")
    assert [each["name"] for each in model.feature_space.plain["columns"]] == ["0"]
    assert evaluate(model, frame, label=3) | {"seconds": 0} == evaluate(model, frame) | {
        "seconds": 0
    }
    by_place = train(frame[[0, 2, 3]].rename(columns=str), label=1).model  # no column is called 1
    assert by_place.label_columns[0].texts == ("0", "1")


def test_a_list_of_dicts_may_have_its_labels_beside_it():
    rows = [{"id": 2**63 + n % 3, "x": float(n)} for n in range(60)]
    labels = [n % 3 == 0 for n in range(60)]
    model = train((rows, labels), categories=["id"], step_size=0.1).model
    expected = train((pd.DataFrame(rows), labels), categories=["id"], step_size=0.1).model
    assert model.digest == expected.digest
    assert evaluate(model, (rows, labels))["unseen"] == 0
