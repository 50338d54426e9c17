"""Rows in memory, predicted by a model: one at a time as in batches, and in microseconds."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pandas
import polars
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import dadagrad
from dadagrad import InputError

SETTINGS = {"loss": "logistic", "step_size": 0.5, "threads": 1}


VW_LINES = "a.vw\n" + "1 |f a c\n-1 |f b c:2\n" * 20
SVMLIGHT_LINES = "a.svm\n" + "1 1:1 3:2\n-1 2:1 3:1\n" * 20


def make_frame(n_rows=200):
    random = np.random.default_rng(0)
    age, words = (
        random.lognormal(3, 2, n_rows),
        np.array(["good", "bad", "day", "night", "it", "is"]),
    )
    return pandas.DataFrame(
        {
            "age": np.where(random.random(n_rows) < 0.1, np.nan, age),
            "job": random.choice(np.array(["cook ", "nurse", "", np.nan], object), n_rows),
            "zip": random.integers(0, 5, n_rows),
            "size": random.choice(np.array([1.0, 2.5, 1e-5, np.nan]), n_rows),
            "rooms": random.choice(np.array([1.0, 2.0, 3.0, np.nan]), n_rows),
            "open": random.random(n_rows) < 0.5,
            "said": [" ".join(random.choice(words, 7)) for _ in range(n_rows)],
            "tags": [list(random.choice(words, 2)) for _ in range(n_rows)],
            "on": pandas.Timestamp("2024-05-31") + pandas.to_timedelta(np.arange(n_rows), "D"),
            "until": pandas.Timestamp("2024-05-31") + pandas.to_timedelta(np.arange(n_rows), "s"),
            "clock": 1.7e9 + random.random(n_rows) * 100,
            "at": pandas.Timestamp("2024-05-31") + pandas.to_timedelta(6 * np.arange(n_rows), "h"),
            "y": np.where(age > 20, "old", "young"),
        }
    )


FRAME = make_frame()
CHOSEN = {"categories": ["zip", "size"], "cross": ["job:zip", "rooms:job"], "hash_bits": 10}
TABLE = {"label": "y"} | CHOSEN
TEXT = {"label": "y", "text_column": "said", "hash_bits": 10}


@pytest.mark.parametrize(
    "options",
    [
        TABLE,
        TABLE | {"norm": "l2", "ngrams": 2},
        TABLE | {"ignore": ["on", "at", "until"], "scale": "none"},
        TEXT,
        TEXT | {"ngrams": 2, "binary": True, "norm": "l2"},
    ],
)
def test_a_row_has_the_score_that_it_has_among_others(options):
    model = dadagrad.train(FRAME, **options, **SETTINGS).model
    rows = FRAME.drop(columns="y").to_dict("records")
    expected = model.decision_function(FRAME)
    alone = np.concatenate([model.decision_function(row) for row in rows])
    np.testing.assert_allclose(alone, expected, atol=1e-5)
    frames = np.concatenate([model.decision_function(FRAME[n : n + 1]) for n in range(40)])
    np.testing.assert_allclose(frames, expected[:40], atol=1e-5)
    np.testing.assert_allclose(model.decision_function(rows), expected, atol=1e-5)
    assert model.predict(rows[0]).tolist() == model.predict(FRAME)[:1].tolist()
    assert set(model.predict(FRAME)) <= {"old", "young"}
    assert model.predict_proba(rows[0]).shape == (1, 2)
    if "text_column" in options:
        texts = FRAME["said"].tolist()
        for each in (texts, FRAME["said"], polars.Series(texts), np.array(texts)):
            np.testing.assert_allclose(model.decision_function(each), expected, atol=1e-5)
        np.testing.assert_allclose(model.decision_function(texts[:1]), expected[:1], atol=1e-5)


zones = st.none() | st.sampled_from([UTC, timezone(timedelta(hours=-7, minutes=-30))])
times = st.datetimes(datetime(1950, 1, 1), datetime(2100, 1, 1), timezones=zones)
cells = times | times.map(str) | times.map(datetime.isoformat) | st.dates() | st.just("x")
others = st.sampled_from(["", None, " 2024-05-31 ", "2024-02-30", "2024-05-31 10", "20240531"])


@pytest.fixture(scope="module")
def model_of_times():
    table = {"at": FRAME["at"].astype(str), "on": FRAME["on"].dt.date, "y": FRAME["y"]}
    return dadagrad.train(pandas.DataFrame(table), label="y", **SETTINGS).model


def outcome(model, rows):
    try:
        return model.decision_function(rows)[0]
    except InputError as error:
        return str(error).partition("; ")[0]


@given(cell=cells | others, column=st.sampled_from(["at", "on"]))
def test_a_date_alone_counts_as_it_does_among_others(model_of_times, cell, column):
    row = {"at": "2024-06-01 12:00:00", "on": "2024-06-01", column: cell}
    alone, among = outcome(model_of_times, row), outcome(model_of_times, [row] * 60)
    assert alone == among or np.allclose(alone, among, atol=1e-6)


def test_rows_of_a_matrix_are_matrices_and_dicts():
    X = scipy.sparse.random_array(
        (100, 30), density=0.2, rng=np.random.default_rng(0), format="csr"
    )
    y = np.arange(100) % 3
    model = dadagrad.train((X, y), **SETTINGS).model
    expected = model.decision_function(X)
    assert expected.shape == (100, 3)
    row = X[[7]]
    as_dict = dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))
    for alone in (row, row.toarray(), row.toarray().tolist(), as_dict, [as_dict]):
        np.testing.assert_allclose(model.decision_function(alone), expected[7:8], atol=1e-6)
    np.testing.assert_allclose(model.decision_function(X.toarray()), expected, atol=1e-6)
    assert model.predict(X).tolist() == [float(each) for each in expected.argmax(axis=1)]


def test_keys_of_a_dict_are_the_ids_of_the_file(tmp_path):
    file = tmp_path / "a.svmlight"
    file.write_text("1 1:1 4:0.5\n-1 2:1\n" * 20)
    model = dadagrad.train(str(file), **SETTINGS).model
    expected = model.decision_function(str(file))[:1]
    assert expected > 0.5
    for row in ({1: 1.0, 4: 0.5}, {"1": 1.0, "4": 0.5}, {1: 1.0, "4": 0.5, 77: 3.0}):
        assert model.decision_function(row) == pytest.approx(expected)
    for wrong in (0, "0", -1):
        with pytest.raises(InputError, match=f"has the feature {wrong}; give ids .*, 1 to"):
            model.predict({wrong: 1.0})
    matrix = dadagrad.train((np.eye(4), [0, 1, 0, 1]), **SETTINGS).model
    with pytest.raises(InputError, match=r"has the feature 4; give ids .*, 0 to 3"):
        matrix.predict([{"4": 1.0}])


def test_a_row_of_another_kind_is_refused():
    model = dadagrad.train(FRAME, **TABLE, **SETTINGS).model
    [row] = FRAME.drop(columns="y").to_dict("records")[:1]
    [without] = FRAME.drop(columns=["y", "age"]).to_dict("records")[:1]
    for wrong, message in (
        ({**row, "age": "old"}, "column 'age' holds 'old'"),
        ({**row, "age": 10**400}, "too large|holds '1000|not finite"),
        ({**without, "agee": 3}, r"the row has no column 'age'.*did you mean 'agee'\?"),
    ):
        with pytest.raises(InputError, match=message):
            model.predict(wrong)
    rows = [{"of": {"age": age, "size": age % 7}, "y": age % 2} for age in range(40)]
    nested = dadagrad.train(rows, label="y", **SETTINGS).model
    with pytest.raises(InputError, match=r"no column 'of.size'.* 'of.age'.* .give None where the"):
        nested.predict({"of": {"age": 3}})
    with pytest.raises(InputError, match="the rows have 5 features"):
        model.predict(np.zeros((1, 5)))
    matrix = dadagrad.train((np.eye(4), [0, 1, 0, 1]), **SETTINGS).model
    for wrong in (np.array([[np.nan, 1, 1, 1]]), np.ones((1, 4), complex), [[1.0], [1.0, 2.0]]):
        with pytest.raises(InputError, match=r"feature 0 is nan|must hold real numbers|as a matr"):
            matrix.predict(wrong)


@pytest.mark.parametrize("value", [None, "x", [1]])
def test_a_value_of_a_feature_is_a_number(tmp_path, value):
    (tmp_path / "a.svmlight").write_text("1 1:1 2:0.5\n-1 1:2\n" * 10)
    model = dadagrad.train(str(tmp_path / "a.svmlight"), norm="l2", **SETTINGS).model
    with pytest.raises(InputError, match="the row has a value that is not a number"):
        model.predict({1: 1.0, 2: value})


@pytest.mark.parametrize(
    ("name", "cell"),
    [("tags", "good day"), ("tags", [1.5]), ("tags", 5), ("said", b"day"), ("job", ["cook"])],
)
def test_a_cell_of_a_row_has_the_kind_of_its_column(name, cell):
    model = dadagrad.train(FRAME, **TABLE, **SETTINGS).model
    row = FRAME.to_dict("records")[0] | {name: cell}
    for rows in (row, [row] * 100):
        with pytest.raises(InputError, match=f"column '{name}' is .*; the features are those of"):
            model.predict(rows)


def test_a_matrix_is_not_a_table_of_numbers(tmp_path):
    frame = pandas.DataFrame({"a": np.arange(80) * 1000.0, "y": np.arange(80) > 30})
    model = dadagrad.train(frame, label="y", **SETTINGS).model
    for matrix in (frame[["a"]].to_numpy(), scipy.sparse.csr_array(frame[["a"]])[:1], [[3000.0]]):
        with pytest.raises(InputError, match=r"the rows are a matrix, and .* a table"):
            model.predict(matrix)
    dadagrad.ingest(frame[:40], str(tmp_path / "other.zarr"), label="y")
    with pytest.raises(InputError, match="in another feature space"):
        model.predict(str(tmp_path / "other.zarr"))


@pytest.mark.parametrize("lines", [VW_LINES, SVMLIGHT_LINES], ids=["vw", "svmlight"])
def test_a_row_without_columns_has_the_same_score_among_many(lines, tmp_path):
    path = tmp_path / lines.partition("\n")[0]
    path.write_text(lines.partition("\n")[2])
    model = dadagrad.train(path, step_size=0.5, loss="logistic", shuffle=False).model
    keys = ("f^a", "f^c") if path.suffix == ".vw" else (1, 3)
    rows = [{keys[0]: 2.0}, {keys[0]: 1.0, keys[1]: 1.0}] * 50
    expected = [model.decision_function(row)[0, 0] for row in rows]
    assert len(set(expected)) == 2
    assert model.decision_function(rows)[:, 0].tolist() == expected
    with pytest.raises(InputError, match="not made of columns; give such a file"):
        model.decision_function(pandas.DataFrame(rows))


def test_a_narrower_matrix_lacks_the_last_features(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text(SVMLIGHT_LINES.partition("\n")[2])
    model = dadagrad.train(path, step_size=0.5).model
    few, many = np.ones((2, 2)), np.ones((100, 2))
    assert model.decision_function(few).tolist() == model.decision_function(many)[:2].tolist()


def test_dicts_may_leave_out_keys_and_hold_others():
    rows = [{"y": 1, "in": {"age": 20.5}}] + [
        {"y": n % 2, "in": {"age": n / 2, "tags": ["a"][: n % 2]}, "size": n / 3} for n in range(80)
    ]
    model = dadagrad.train(rows, label="y", **SETTINGS).model
    names = [column["name"] for column in model.feature_space.plain["columns"]]
    assert names == ["in.age", "in.tags", "size"]
    scores = model.decision_function(rows)
    np.testing.assert_allclose(model.decision_function(rows[:2]), scores[:2], atol=1e-12)
    np.testing.assert_allclose(model.decision_function(rows[1]), scores[1:2], atol=1e-12)
    flat = {"in.age": 0.0, "in.tags": [], "size": 0.0}
    np.testing.assert_allclose(model.decision_function(flat), scores[1:2], atol=1e-12)
    without = model.decision_function([rows[1], {"in": None, "size": 1.0}])
    alone = model.decision_function({"in": None, "size": 1.0})
    np.testing.assert_allclose(alone, without[1:], atol=1e-12)
    with pytest.raises(InputError, match=r"no column 'in\.age'"):
        model.predict({"in": 5, "size": 1.0})


def test_a_cell_of_a_text_may_be_a_number_or_a_list_of_words():
    model = dadagrad.train(FRAME, **TEXT, **SETTINGS).model
    cells = [1234, ["good", "day"], None, 0.5, True, "good day"]
    together = model.decision_function(pandas.DataFrame({"said": list(map(str, cells[:1]))}))
    alone = [model.decision_function({"said": cell})[0] for cell in cells]
    assert alone[0] == pytest.approx(together[0])
    assert alone[1] == pytest.approx(alone[-1])
    for missing in (["", "good"], [None, "good"], [np.nan, "good"]):
        assert alone[2] == pytest.approx(model.decision_function(missing)[0])


def test_no_rows_have_no_predictions():
    model = dadagrad.train(FRAME, **TABLE, **SETTINGS).model
    assert model.predict([]).shape == (0,)
    assert model.predict_proba([]).shape == model.predict_proba(FRAME[:0]).shape
    ids = dadagrad.train((np.eye(2), [0, 1]), step_size=0.5).model
    for layout in ("csr", "csc", "coo", "dok"):
        rows = scipy.sparse.random_array((0, 2), format=layout)
        assert ids.predict(rows).shape == (0,)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("n_rows", [1, 3])
def test_a_sparse_matrix_of_any_layout_is_rows(layout, n_rows):
    X = np.array([[0.0, 1.0], [2.0, 0.0]] * 10)
    model = dadagrad.train((X, [0, 1] * 10), step_size=0.5).model
    rows = scipy.sparse.csr_array(X[:n_rows]).asformat(layout)
    assert model.decision_function(rows) == pytest.approx(model.decision_function(X[:n_rows]))
