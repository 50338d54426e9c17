"""Tables: each kind of column as features, the same from every source, and applied again."""

import datetime
import json
from contextlib import suppress
from decimal import Decimal

import dask.dataframe as dd
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.array_files import write_frame
from helpers.blocks import dense_dataset
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction import FeatureHasher

from dadagrad import AdaGradClassifier, InputError, evaluate, export, open_dataset, train
from dadagrad.data.feature_space import FeatureSpace
from dadagrad.data.ingest.ingest import ingest, read_dataset
from dadagrad.data.tables.dates import find_order
from dadagrad.data.tables.encoder import TableEncoder
from dadagrad.model.raw import read_raw

FRAME = pandas.DataFrame(
    {
        "age": [20.0, 31.5, np.nan, 44.0, 25.0, 0.0],
        "job": ["cook", "nurse", "cook", "", "clerk", "cook"],
        "zip": [3, 44, 3, 3, 44, 44],
        "on": pandas.to_datetime(["2024-05-31", "2024-06-01"] * 3),
        "said": ["so very good and so long", "a bad day for all of us here", "x y z w"] * 2,
        "y": ["no", "yes", "no", "no", "yes", "no"],
    }
)
OPTIONS = {"label": "y", "categories": "zip", "cross": "job:zip", "hash_bits": 12}


def dense(sources, **options):
    return dense_dataset(read_dataset(sources, shuffle=None, **(OPTIONS | options)))[0]


@pytest.fixture
def files(tmp_path):
    names = ("csv", "tsv", "jsonl", "parquet")
    return {name: write_frame(FRAME, tmp_path / f"a.{name}") for name in names}


class OfArrow:
    """A table of a library that only gives an Arrow stream, as polars does."""

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.Table.from_pandas(FRAME).__arrow_c_stream__(requested_schema)


def test_a_table_has_the_same_features_from_every_source(files):
    expected = dense(FRAME)
    assert np.count_nonzero(expected[0]) > 10
    for source in (*files.values(), pa.Table.from_pandas(FRAME), OfArrow()):
        np.testing.assert_array_equal(dense(source), expected)


def test_the_header_of_an_arff_file_names_the_columns(tmp_path):
    header = "% made\n@RELATION r\n@attribute 'how old' numeric\n@attribute job {a, b}\n\n@DATA\n"
    rows = "".join(f"{20 + n},{'ab'[n % 2]}\n" for n in range(40))
    (tmp_path / "a.arff").write_text(header + rows)
    (tmp_path / "a.csv").write_text("how old,job\n" + rows)
    arff, table = (read_dataset(tmp_path / name, label="job") for name in ("a.arff", "a.csv"))
    assert arff.names(np.arange(1)) == {0: "how old"}
    np.testing.assert_array_equal(dense_dataset(arff)[0], dense_dataset(table)[0])
    (tmp_path / "a.arff").write_text(header + rows + "x,a\n")
    with pytest.raises(InputError, match=r"a\.arff, line 47: column 'how old' holds 'x'"):
        read_dataset(tmp_path / "a.arff", label="job")


def test_a_first_line_for_excel_names_the_delimiter(tmp_path):
    lines = ["label;a, b", *(f"{n % 2};{n}" for n in range(40))]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    (tmp_path / "b.csv").write_bytes("\r\n".join(["sep=;", *lines]).encode("utf-8-sig"))
    plain, named = (
        read_dataset(tmp_path / name, delimiter=mark)
        for name, mark in (("a.csv", ";"), ("b.csv", None))
    )
    np.testing.assert_array_equal(dense_dataset(named)[0], dense_dataset(plain)[0])
    (tmp_path / "b.csv").write_text("\n".join(["sep=;", *lines, "1;2;3"]))
    with pytest.raises(InputError, match=r"b\.csv, line 43: 3 semicolon-separated fields"):
        read_dataset(tmp_path / "b.csv")


def test_categories_are_hashed_as_feature_hasher_does():
    table = pa.table({"a": ["x", "y", ""], "b": ["1", "u", "v"], "label": [0, 1, 0]})
    names = [[f"{name}={row[name]}" for name in ("a", "b")] for row in table.to_pylist()]
    hasher = FeatureHasher(8, input_type="string", alternate_sign=False)  # some collide
    data = read_dataset(table, hash_bits=3)
    rows = {tuple(row) for row in hasher.transform(names).toarray()}
    assert {tuple(row) for row in dense_dataset(data)[0]} == rows


numbers = st.floats(-1e6, 1e6, width=32) | st.just(0.0) | st.none()


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30))
def test_numbers_are_scaled_by_their_quartiles(rows):
    array = np.array(rows, float)
    table = pa.table({"a": array[:, 0], "b": array[:, 1], "label": np.arange(len(rows))})
    data = read_dataset(table, label="label", shuffle=None)
    matrix, labels = dense_dataset(data)
    matrix = matrix[np.argsort(labels[:, 0])]
    missing = np.isnan(array)
    for column in range(2):
        known = array[~missing[:, column], column]
        if not len(known):
            assert (matrix[:, column] == 0).all()
            continue
        low, center, high = np.quantile(known, [0.25, 0.5, 0.75], method="nearest")
        scale = (high - low) / 1.349
        if scale == 0:
            others = abs(known[known != center] - center)
            scale = others.mean() if len(others) else 1.0
        z = np.nan_to_num((array[:, column] - center) / scale)
        far = np.sign(z) * 4 * (1 + np.log(np.maximum(abs(z), 4) / 4))
        expected = np.where(abs(z) > 4, far, z)
        np.testing.assert_allclose(matrix[:, column], expected, rtol=1e-3, atol=1e-3)
    if missing.any():
        np.testing.assert_array_equal(matrix[:, 2:], missing)


@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=30), st.sampled_from([1e8, -3e12]))
def test_numbers_far_from_0_have_the_features_of_those_near_it(rows, distance):
    near = np.array(rows) / 64
    clock = pa.array(np.array(rows) * 1_000_000 + 10**15, pa.timestamp("us"))
    columns = {"near": near, "far": near + distance, "clock": clock, "label": near}
    data = read_dataset(pa.table(columns), shuffle=None)
    features = dense_dataset(data)[0]
    np.testing.assert_array_equal(features[:, 1], features[:, 0])
    np.testing.assert_allclose(features[:, 2], features[:, 0], rtol=1e-4, atol=1e-6)


def test_names_and_collisions(tmp_path):
    report = ingest(FRAME, str(tmp_path / "a"), **(OPTIONS | {"hash_bits": 3}))
    data = open_dataset(str(tmp_path / "a"))
    names = data.names(np.arange(data.schema.n_features))
    assert (names[0], names[1], max(names)) == ("age", "on", 10)
    ingest(FRAME, str(tmp_path / "b"), **OPTIONS)
    wide = open_dataset(str(tmp_path / "b"))
    texts = set(wide.names(np.arange(wide.schema.n_features)).values())
    assert {"job=cook", "job=", "zip=44", "job=cook^zip=3", "on.month=5", "said=very"} <= texts
    assert report.collisions >= len(texts) - 8 - 4
    assert "label: column 5 'y' (no 4, yes 2)" in report.columns
    assert "text: column 4 'said'" in report.columns


def test_lists_of_words_and_nested_columns():
    items = [{"tags": ["a", "b", "a"], "in": {"side": 2}, "label": 1}, {"tags": [], "label": 0}]
    data = read_dataset(pa.Table.from_pylist(items), hash_bits=8, scale="none")
    by_name = {name: k for k, name in data.names(np.arange(data.schema.n_features)).items()}
    rows, labels = dense_dataset(data)
    row = rows[labels[:, 0].argmax()]
    assert row[by_name["tags=a"]] == 2
    assert row[by_name["tags=b"]] == 1
    assert row[by_name["in.side"]] == 2


def test_an_object_stands_for_its_fields():
    rows = [{"geo": {"lat": 0.1 * n, "city": "uv"[n % 2]}, "x": n, "y": n % 2} for n in range(60)]

    def names(**options):
        columns = read_dataset(rows, label="y", **options).schema.feature_space.plain["columns"]
        return [each["name"] for each in columns]

    assert names(ignore="geo") == ["x"]
    assert names(columns="geo") == ["geo.lat", "geo.city"]
    with pytest.raises(InputError, match="no column 'ge'"):
        names(ignore="ge")


def test_the_recorded_transformation_is_applied_again(tmp_path, files):
    ingest(files["csv"], str(tmp_path / "all"), **OPTIONS)
    data = open_dataset(str(tmp_path / "all"))
    space = json.loads(json.dumps(data.schema.to_json()["feature_space"]))
    assert TableEncoder.of_space(FeatureSpace(space)).to_json() == {
        key: value for key, value in space.items() if key != "reading"
    }
    expected = dense_dataset(data)[0]
    part = FRAME.iloc[:2].drop(columns="y")[["said", "zip", "age", "job", "on"]]
    part.to_csv(tmp_path / "part.csv", index=False)
    again = read_dataset(str(tmp_path / "part.csv"), like=data, no_labels=True)
    assert again.schema.n_features == data.schema.n_features
    for row in dense_dataset(again)[0]:
        assert (row == expected).all(axis=1).any()


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "frame"])
def test_a_column_of_weights_counts_rows_several_times(tmp_path, suffix):
    random = np.random.default_rng(0)
    frame = pandas.DataFrame({"x": random.normal(size=200), "w": np.arange(200) % 4})
    frame["label"] = (frame["x"] + random.normal(size=200) > 0).astype(int)
    table = frame if suffix == "frame" else write_frame(frame, tmp_path / f"a.{suffix}")
    settings = {"loss": "logistic", "step_size": 0.1, "scale": "none", "threads": 1}
    model = train(table, weight="w", **settings).model
    assert (model.n_features, model.report["rows"]) == (1, 150)
    repeated = frame.loc[frame.index.repeat(frame["w"])].drop(columns="w")
    measured = [evaluate(model, each)["loss"] for each in (table, repeated)]
    assert measured[0] == pytest.approx(measured[1], rel=1e-6)
    frame.loc[7, "w"] = -1
    with pytest.raises(InputError, match=r"row 7: the weight, column 'w', is '-1'; every row"):
        train(frame, weight="w", **settings)
    assert train(frame, weight="w", on_error="skip", **settings).report["rows"] == 149
    report = ingest(frame.drop(columns="w"), str(tmp_path / "out"), like=model)
    assert "label: column 2 'label'" in report.columns
    assert "weight" not in report.columns


def test_columns_without_names_may_lack_the_label(tmp_path):
    (tmp_path / "a.tsv").write_text("1\t2\tx\n0\t5\ty\n1\t3\tx\n")
    ingest(tmp_path / "a.tsv", str(tmp_path / "a"), label=0, shuffle=None)
    data = open_dataset(str(tmp_path / "a"))
    (tmp_path / "b.tsv").write_text("2\tx\n5\ty\n3\tx\n")
    again = read_dataset(str(tmp_path / "b.tsv"), like=data, no_labels=True)
    np.testing.assert_array_equal(dense_dataset(again)[0], dense_dataset(data)[0])
    (tmp_path / "d.tsv").write_text("label\tage\tkind\n1\t2\tx\n0\t5\ty\n1\t3\tx\n")
    named = read_dataset(str(tmp_path / "d.tsv"), like=data, shuffle=None)
    np.testing.assert_array_equal(dense_dataset(named)[0], dense_dataset(data)[0])
    with pytest.raises(InputError, match=r"header=False says .* no names, and 'label' is one"):
        read_dataset(str(tmp_path / "d.tsv"), label="label", header=False)
    (tmp_path / "c.tsv").write_text("2\n5\n")
    with pytest.raises(InputError, match=r"c\.tsv has 1 columns without names"):
        read_dataset(str(tmp_path / "c.tsv"), like=data, no_labels=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "yy"}, r"no column 'yy', which label= names; did you mean 'y'\?"),
        ({"ignore": "jib"}, r"no column 'jib', which ignore= names; did you mean 'job'\?"),
        ({"cross": "job:age"}, r"cross= names the column 'age' of numbers; it takes categories"),
        ({"label": None}, r"no column 'label'; its columns are 'age'.*name the label with label="),
        (
            {"columns": "age", "cross": []},
            r"categories= names the column 'zip', which does not become features",
        ),
        ({"cross": "y:job"}, r"cross= names the column 'y', which does not become features"),
        ({"columns": "y,age"}, r"columns= has the label 'y'; leave it out"),
        (
            {"ignore": "job", "text_column": "job", "categories": (), "cross": ()},
            r"ignore= and text_column= both name the column 'job'; leave it out of one",
        ),
        (
            {"columns": "age,job", "categories": (), "cross": (), "ngrams": 2},
            r"ngrams= is 2, and no column looks like text; name one with text_column=",
        ),
    ],
)
def test_wrong_choices_are_explained(options, message):
    with pytest.raises(InputError, match=message):
        dense(FRAME, **options)


def test_a_cross_names_columns_by_number_too():
    assert np.array_equal(dense(FRAME, cross="1:2"), dense(FRAME, cross="job:zip"))


def test_a_table_may_have_thousands_of_columns(tmp_path):
    values = np.random.default_rng(0).integers(-9, 10, (12, 3000)) / 4
    frame = pandas.DataFrame(values, columns=[f"c{number}" for number in range(3000)])
    frame.assign(y=np.arange(12) % 2).to_csv(tmp_path / "a.csv", index=False)
    options = {"label": "y", "scale": "none", "shuffle": None}
    data = read_dataset(str(tmp_path / "a.csv"), **options)
    np.testing.assert_array_equal(dense_dataset(data)[0], values)
    (raw,) = read_raw(data.schema, str(tmp_path / "a.csv"))
    np.testing.assert_array_equal(raw.rows.values, values[values != 0])


@pytest.mark.parametrize("wrong", ["red,2024-01-01", "7,yesterday", "inf,2024-01-01"])
def test_cells_of_the_wrong_kind_are_named_or_skipped(tmp_path, caplog, wrong):
    path, out = tmp_path / "a.csv", str(tmp_path / "out")
    right = [f"{n % 2},{n},2024-01-{n + 1:02d}" for n in range(25)]
    path.write_text("\n".join(["y,n,day", *right]))
    ingest(path, out, label="y")
    path.write_text("\n".join(["y,n,day", *right, f"1,{wrong}", right[0]]))
    cell = next(cell for cell in wrong.split(",") if not cell[:1].isdigit())
    with pytest.raises(InputError, match=rf"a\.csv, line 27: column '.*' holds '{cell}'"):
        read_dataset(str(path), like=out)
    assert read_dataset(str(path), like=out, on_error="skip").n_rows == 26
    assert "(on_error=skip leaves the row out" in caplog.text


def test_lines_that_are_no_json_objects_are_skipped_alone(tmp_path):
    path = tmp_path / "a.jsonl"
    right = [f'{{"y": {n % 2}, "n": {n}}}' for n in range(25)]
    wrong = ['{"y": 1, "n": ', "[1, 2]", "word", '{"y": 1, "n": "word"}']
    path.write_text("\n".join([*right[:5], *wrong[:2], *right[5:20], *wrong[2:], *right[20:]]))
    data = read_dataset(str(path), label="y", on_error="skip", scale="none", shuffle=None)
    np.testing.assert_array_equal(data.read(0).labels[:, 0], np.arange(25) % 2)


LABELS = pandas.DataFrame({"y": [0, 1] * 3})
COLOURS = pandas.Series(["red", "blue"] * 3, dtype="category")


def test_categoricals_are_categories_and_other_types_are_refused_by_name():
    encoded = read_dataset(LABELS.assign(c=COLOURS), label="y").schema.feature_space.plain
    assert encoded["columns"][0]["kind"] == "category"
    for cells, message in (
        (pandas.Series([2**70] * 6), "the table: .*too large"),
        (pandas.arrays.SparseArray(range(6)), r"the table: .*column c.*\.sparse\.to_dense\(\)"),
        (pandas.to_timedelta(range(6), unit="s"), "column 'c' is duration"),
        ([[[1.0]]] * 6, "column 'c' is .*list"),
    ):
        with pytest.raises(InputError, match=message):
            read_dataset(LABELS.assign(c=cells), label="y")
    with pytest.raises(InputError, match=r"the table: .*uplicate"):
        read_dataset(pandas.concat([LABELS, LABELS], axis=1), label="y")
    with pytest.raises(InputError, match=r"the table: .*convert 'x'"):
        read_dataset([{"y": 1, "c": 2.0}, {"y": 1, "c": "x"}], label="y")


@pytest.mark.parametrize("names", [["x", ""], ["", "x"]])
def test_the_name_of_a_column_may_be_empty(names):
    """Categories without a name are not taken for numbers beside them."""
    columns = {"x": [0.5, 1.5, 2.5] * 2, "": COLOURS}
    frame = LABELS.assign(**{name: columns[name] for name in names})
    space = read_dataset(frame, label="y").schema.feature_space
    kinds = {column["name"]: column["kind"] for column in space.plain["columns"]}
    assert kinds == {"x": "number", "": "category"}


DAYS = [datetime.datetime(2024, 1, day, 5) for day in (1, 2, 3)] * 2
NUMBERS = [1.5, 2.5, -3.0, 4.0, 7.0, 8.5]
TYPES = {
    "number": [
        pa.array(NUMBERS).cast(kind)
        for kind in (pa.float16(), pa.decimal128(12, 3), pa.decimal256(40, 3))
    ]
    + [pa.array([2**63] * 6, pa.uint64()), pa.nulls(6), pa.array([None, 1, 2, 3, 4, 5])],
    "category": [
        pa.array([True, None] * 3),
        pa.array(["a", None] * 3).dictionary_encode(),
        pa.array([5, 6] * 3).dictionary_encode(),
        *(pa.array(["a", "b"] * 3, kind) for kind in (pa.large_string(), pa.string_view())),
    ],
    "words": [
        pa.array([["a", "b"], None] * 3, kind)
        for kind in (pa.list_(pa.string()), pa.large_list(pa.string()), pa.list_(pa.string(), 2))
    ],
    "day": [pa.array(DAYS, kind) for kind in (pa.date32(), pa.date64())],
    "time": [pa.array(DAYS, kind) for kind in (pa.timestamp("ns"), pa.timestamp("s", "+02:00"))],
}  # fmt: skip


def test_types_of_arrow_are_numbers_categories_words_or_dates(tmp_path):
    for kind, arrays in TYPES.items():
        for cells in arrays:
            table = pa.table({"c": cells, "y": [0, 1] * 3})
            data = read_dataset(table, label="y")
            encoded = data.schema.feature_space.plain["columns"]
            assert [(column["name"], column["kind"]) for column in encoded] == [("c", kind)]
            if pa.types.is_dictionary(cells.type):  # Parquet keeps those of texts alone
                continue
            with suppress(pa.ArrowNotImplementedError):  # of versions of Arrow
                pa.parquet.write_table(table, tmp_path / "a.parquet")
                assert read_dataset(tmp_path / "a.parquet", label="y").digest == data.digest


def test_cells_are_the_same_categories_in_all_files(tmp_path):
    columns = {"b": [True, False] * 30, "zip": [3.0, 44.0, np.nan] * 20, "y": [0, 1, 1] * 20}
    frame = pandas.DataFrame(columns)
    file = write_frame(frame, tmp_path / "a.csv")  # with True and 3.0
    for source, other in ((frame, file), (file, frame)):
        model = train(source, label="y", categories="zip", step_size=0.1).model
        assert evaluate(model, other)["unseen"] == 0
        expected = model.decision_function(frame)[0]
        for row in ({"b": b, "zip": zip_} for b in (True, "TRUE") for zip_ in (3, 3.0, "3", "3.0")):
            assert model.decision_function(row)[0] == pytest.approx(expected)


def test_days_and_decimals_are_the_same_categories_in_all_types():
    days = pandas.to_datetime(["2024-05-31", "2024-06-01"] * 20)
    frame = pandas.DataFrame({"on": days, "size": [Decimal("3.00"), Decimal("2.50")] * 20})
    model = train((frame, [0, 1] * 20), categories=["on", "size"], step_size=0.1).model
    expected = model.decision_function(frame)[0]
    for on in (days[0], days[0].date(), "2024-05-31", np.datetime64("2024-05-31T00", "s")):
        for size in (3, 3.0, "3", Decimal("3"), Decimal("3.0")):
            row = {"on": on, "size": size}
            assert model.decision_function(row)[0] == pytest.approx(expected)
            assert model.decision_function([row] * 70)[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "cell"),
    [("age", pandas.Timestamp("2024-05-31")), ("on", 5), ("job", ["cook"]), ("y", ["no"])],
)
def test_a_column_of_another_type_than_that_of_the_features_is_named(name, cell):
    model = train(FRAME, label="y", step_size=0.1).model
    changed = FRAME.assign(**{name: pandas.Series([cell] * len(FRAME))})
    with pytest.raises(
        InputError, match=rf"column '{name}',? is .*(give a column|must be|several labels)"
    ):
        evaluate(model, changed)


@pytest.mark.parametrize("text", ["-nan", "NAN", "nan(0x1)", "NaN"])
def test_what_c_writes_for_no_number_is_a_missing_number(tmp_path, text):
    frame = pandas.DataFrame({"x": [*map(str, range(40)), text], "label": [0, 1] * 20 + [1]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    expected = dense(frame.assign(x=[*range(40), None]), label="label", categories=(), cross=())
    for source in (frame, tmp_path / "a.csv"):
        actual = dense(source, label="label", categories=(), cross=())
        np.testing.assert_array_equal(actual, expected)
    model = train(frame, label="label", step_size=0.5).model
    assert model.decision_function({"x": text}) == model.decision_function({"x": None})


def test_dates_have_parts():
    days = [datetime.datetime(2024, 1, 1, 5) + datetime.timedelta(days=n) for n in range(3)]
    data = read_dataset(pa.table({"t": days, "label": [0, 1, 0]}))
    names = set(data.names(np.arange(data.schema.n_features)).values())
    assert {"t", "t.month=1", "t.weekday=0", "t.weekday=2", "t.hour=5"} <= names


@pytest.mark.parametrize(
    "written",
    [
        "%m/%d/%Y",
        "%d/%m/%Y",
        "%d.%m.%Y",
        "%Y/%m/%d",
        "%-d.%-m.%Y",
        "%-m/%-d/%Y %-H:%M",
        "%d-%m-%Y %H:%M:%S",
        "%d %b %Y",
        "%B %-d, %Y %H:%M",
        "%a, %d %b %Y %H:%M:%S +0000",
        "%b %-d, %Y %-H:%M",
    ],
)
def test_dates_may_be_written_in_other_orders(tmp_path, written):
    random = np.random.default_rng(0)
    times = pandas.Timestamp("2023-01-01") + pandas.to_timedelta(random.integers(0, 9999, 200), "h")
    times = times if "%H" in written or "%-H" in written else times.normalize()
    frame = pandas.DataFrame({"on": times, "y": times.month > 6})
    texts = frame.assign(on=times.strftime(written))
    assert read_dataset(texts, label="y").read(0).nnz == read_dataset(frame, label="y").read(0).nnz
    model = train(texts, label="y", step_size=0.1).model
    assert model.feature_space.plain["columns"][0]["date_order"]
    scores = model.decision_function(texts)
    np.testing.assert_array_equal(scores, model.decision_function(frame))  # of any type
    np.testing.assert_allclose(model.decision_function(texts[:9].to_dict("records")), scores[:9])
    np.testing.assert_allclose(model.decision_function(dict(texts.iloc[0])), scores[:1])
    write_frame(texts, tmp_path / "a.csv")
    assert train(tmp_path / "a.csv", label="y", step_size=0.1).model.digest == model.digest
    with pytest.raises(InputError, match=r"'5\. 5\.'; the first rows have dates such as"):
        model.predict(texts[:3].assign(on="5. 5."))


def test_dates_without_a_year_of_four_digits_or_a_day_above_12_have_no_order():
    for cells in (
        ["05/04/24", "06/31/24"],
        ["05/04/2024"],
        ["13/13/2024"],
        ["31/05/2024", "05/31/2024"],
        ["31 Abc 2024", "May 2024"],
        ["Report May 1 2024", "Market 5 2024"],
        ["5 marraskuuta 2024", "1. Juli 2024 Uhr"],
    ):
        assert find_order(pa.array(cells * 40)) is None
    assert find_order(pa.array(["05.04.2024"] * 40)) == "dmy"


@pytest.mark.parametrize("odd", ["0000-00-00", "unknown", "-"])
def test_a_few_odd_cells_do_not_make_dates_categories(tmp_path, odd):
    days = [f"2024-05-{1 + row % 28:02}" for row in range(100)]
    days[7], days[20] = odd, "NaT"
    file = write_frame(pandas.DataFrame({"on": days, "y": [0, 1] * 50}), tmp_path / "a.csv")
    with pytest.raises(InputError, match=rf"line 9: column 'on' holds '{odd}'"):
        read_dataset(file, label="y")
    data = read_dataset(file, label="y", on_error="skip")
    assert [each["kind"] for each in data.schema.feature_space.plain["columns"]] == ["day"]
    assert data.n_rows == 99


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["05/04/2024", "06/01/2024"], "it has 100 dates such as '05/04/2024': write all of"),
        (["05/31/2024 1:00 PM", "06/30/2024 2:00 PM"], "it has 100 dates such as '05/31/2024"),
        (["2024-05-31"] * 9 + ["x"], "90 dates such as '2024-05-31', and 10 others such as 'x'"),
        (["1.5", "1.25", "x", "2.5"], "it has 75 numbers, and 25 others such as 'x': leave these"),
        ([f"{1 + n % 28}.{1 + n // 28}.24 a fine day of May" for n in range(100)], None),
        (["1.2.3", "10.0.1"], None),
        (["x", "y", "z", "2.5"], None),
    ],
)
def test_what_looks_like_dates_or_numbers_is_not_made_categories_in_silence(cells, message, caplog):
    table = {"c": (cells * 50)[:100], "y": [0, 1] * 50}
    read_dataset(pandas.DataFrame(table), label="y")
    assert message in caplog.text if message else not caplog.text
    caplog.clear()
    read_dataset(pandas.DataFrame(table), label="y", categories="c")
    assert not caplog.text


def test_intervals_and_periods_of_pandas_are_categories():
    numbers = np.random.default_rng(0).normal(size=100)
    months = pandas.period_range("2020-01", periods=4, freq="M").repeat(25)
    frame = pandas.DataFrame({"bin": pandas.cut(numbers, 4), "month": months, "y": numbers > 0})
    frame.loc[3, "bin"] = np.nan
    texts = frame.astype({"bin": "str", "month": "str"}).replace("nan", None)
    assert read_dataset(frame, label="y").digest == read_dataset(texts, label="y").digest


@pytest.mark.parametrize("unit", ["D", "m", "ns"])
def test_a_row_has_dates_of_numpy_in_any_unit(unit):
    frame = pandas.DataFrame({"on": pandas.date_range("2024-05-01", periods=40), "y": [0, 1] * 20})
    model = train(frame, label="y", step_size=0.1).model
    row = {"on": np.datetime64("2024-05-09", unit)}
    assert model.decision_function(row) == pytest.approx(model.decision_function(frame)[8:9])


def test_dates_in_texts_may_have_nanoseconds():
    times = pandas.date_range("2024-05-31", periods=6, freq="7777777777777ns")
    frames = [
        FRAME[["y"]].assign(on=on) for on in (times, times.strftime("%Y-%m-%dT%H:%M:%S.%f789"))
    ]
    expected, texts = (dense(frame, categories=(), cross=()) for frame in frames)
    np.testing.assert_array_equal(texts, expected)


def test_strings_that_all_differ_are_left_out_and_said_so(tmp_path, caplog):
    table = pa.table(
        {
            "id": [f"k{number}" for number in range(200)],
            "job": ["cook", "nurse"] * 100,
            "label": [0, 1] * 100,
        }
    )
    report = ingest(table, str(tmp_path / "a"))
    assert "categories: column 1 'job'; left out: column 0 'id'" in report.columns
    assert "column 'id' is left out" in caplog.text
    assert set(open_dataset(str(tmp_path / "a")).names(np.arange(2**20)).values()) == {
        "job=cook",
        "job=nurse",
    }
    for number, chosen in enumerate(({"categories": "id"}, {"columns": "id,job"})):
        kept = ingest(table, str(tmp_path / f"kept{number}"), **chosen)
        assert "'id', column 1 'job'" in kept.columns
    assert "left out" not in ingest(table, str(tmp_path / "tags"), id="id").columns
    only = ingest(table.select(["id", "label"]), str(tmp_path / "only"))
    assert "categories: column 0 'id'" in only.columns  # there is nothing else to learn from


INDEXES = {"csv": "0", "parquet": "__index_level_0__", "dask": "__null_dask_index__"}


@pytest.mark.parametrize("kind", INDEXES)
def test_the_index_of_a_data_frame_is_left_out(tmp_path, caplog, kind):
    frame = pandas.DataFrame({"size": [2.5, 1.5, 0.5], "y": ["a", "b", "b"]}, index=[2, 0, 1])
    path = str(tmp_path / f"rows.{kind}")
    if kind == "csv":
        frame.to_csv(path)
    elif kind == "parquet":
        frame.to_parquet(path)
    else:
        dd.from_pandas(frame, npartitions=1).to_parquet(path)
    report = ingest(path, str(tmp_path / "rows"), label="y")
    assert "'size'; left out: column " in report.columns
    assert "it is the index of a data frame" in caplog.text
    assert open_dataset(str(tmp_path / "rows")).schema.n_features == 1
    kept = ingest(path, str(tmp_path / "kept"), label="y", columns=f"{INDEXES[kind]},size")
    assert "left out" not in kept.columns


def test_columns_beside_a_text_are_said_to_be_left_out(tmp_path):
    (tmp_path / "rows.tsv").write_text("pos\tgood film\t7\nneg\tbad film\t3\n")
    report = ingest(tmp_path / "rows.tsv", str(tmp_path / "rows"), format="text")
    assert report.columns.endswith("text: column 1; left out: column 2")


def test_few_whole_numbers_are_categories_too():
    codes = np.arange(600) % 20
    table = pa.table({"code": codes, "size": np.arange(600), "label": codes % 7 < 3})
    data = read_dataset(table, hash_bits=12)
    assert [column["kind"] for column in data.schema.feature_space.plain["columns"]] == [
        "code",
        "number",
    ]
    names = set(data.names(np.arange(data.schema.n_features)).values())
    assert {"code", "size"} | {f"code={code}" for code in range(20)} == names
    new = pa.table({"code": [2.5, None, 3.0, 77.0], "size": [1.0, 2.0, 3.0, 4.0]})
    model = train(data, loss="logistic", passes=20).model
    assert evaluate(model, data)["error"] < 0.01  # no line through the codes can do that
    scores = model.scores(next(read_raw(model.schema, new)).rows)[:, 0]
    assert scores[2] == model.scores(next(read_raw(model.schema, new.slice(2, 1))).rows)[0, 0]


def test_a_header_is_told_by_a_column_called_label(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("label,0,1\n" + "".join(f"{n % 3},{n}.5,{n * 7 % 9}\n" for n in range(30)))
    (label,) = read_dataset(file).schema.label_columns
    assert label.texts == ("0", "1", "2")
    file.write_text("label,color,color\n" + "s,red,square\nh,blue,circle\n" * 5)
    with pytest.raises(InputError, match="names the column 'color' twice"):
        read_dataset(file)
    file.write_text("x,label\n" + "1,label\n2,other\n" * 5)
    assert read_dataset(file).n_rows == 10
    file.write_text("spam,label\nham,this is a text\nspam,other words here\n")
    assert read_dataset(file).n_rows == 3


def test_boolean_labels_are_the_same_classes_in_all_files(tmp_path):
    rows = [(n % 3 == 0, float(n % 3)) for n in range(60)]
    sources = {"b.jsonl": "".join(json.dumps({"label": y, "a": a}) + "\n" for y, a in rows)}
    for name, spelling in (("a.csv", str), ("c.csv", lambda y: str(y).upper())):
        sources[name] = "label,a\n" + "".join(f"{spelling(y)},{a}\n" for y, a in rows)
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    model = train(str(tmp_path / "a.csv"), step_size=1.0, passes=3).model
    assert model.label_columns[0].names == ("false", "true")
    frame = pandas.DataFrame(rows, columns=["label", "a"])
    for source in (*(str(tmp_path / name) for name in sources), frame):
        assert evaluate(model, source)["error"] == 0.0


def test_labels_that_are_booleans_are_predicted_as_booleans():
    frame = pandas.DataFrame({"a": [1.0, -1.0, 2.0] * 20, "label": [True, False, True] * 20})
    model = train(frame, step_size=1.0, passes=3).model
    assert (model.predict(frame) == frame.label).all()
    assert model.predict({"a": -1.0}).tolist() == [False]
    assert export(model, format="sklearn").classes_.dtype == bool
    assert AdaGradClassifier.from_model(model).score(frame, frame.label) == 1.0


def test_a_label_that_is_a_number_is_one_class_beside_any_others(tmp_path):
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path, others in zip(paths, (["01"], ["x", "1.0", "9007199254740993"]), strict=True):
        labels = ["1", "01", "1.50", *others] * 10
        path.write_text("v,label\n" + "".join(f"{n},{each}\n" for n, each in enumerate(labels)))
    (column,) = read_dataset(paths, label="label").schema.label_columns
    assert column.names == ("1", "1.5", "9007199254740993", "x")
    assert column.counts == (60, 20, 10, 10)


def test_labels_that_are_all_numbers_are_those_of_a_model_of_texts():
    frame = pandas.DataFrame({"label": ["0", "1", "other"] * 30, "a": [0.0, 1.0, 2.0] * 30})
    model = train(frame, categories="a", step_size=1.0, passes=3).model
    numbers = frame[frame.label != "other"].astype({"label": int})
    assert evaluate(model, numbers)["error"] == 0.0
    with pytest.raises(InputError, match="has numbers, and the labels of the model are texts"):
        evaluate(model, numbers.assign(label=2))
    regression = train(numbers.assign(label=numbers.a), loss="squared", step_size=1.0).model
    with pytest.raises(InputError, match="has texts, and the labels of the model are numbers"):
        evaluate(regression, frame)
    with pytest.raises(InputError, match="has the label 'other', which the model was not"):
        evaluate(train(numbers, step_size=1.0).model, frame)


def test_lines_of_json_without_the_columns_of_a_model_are_refused(tmp_path, caplog):
    frame = pandas.DataFrame({"label": [0, 1] * 20, "age": range(40), "job": ["a", "b"] * 20})
    model = train(frame, step_size=1.0).model
    file = tmp_path / "a.jsonl"
    renamed = {"age": "Age", "job": "Job"}
    frame.rename(columns=renamed).to_json(file, orient="records", lines=True)
    with pytest.raises(InputError, match=r"no column 'age'.*did you mean 'Age'"):
        evaluate(model, str(file))
    frame[["label"]].to_json(file, orient="records", lines=True)
    with pytest.raises(InputError, match="no column 'age'"):
        evaluate(model, str(file))
    frame[["label", "age"]].to_json(file, orient="records", lines=True)
    evaluate(model, str(file))
    assert "the first rows have no key 'job'; it counts as missing" in caplog.text


def test_a_nested_key_and_a_dotted_one_are_one_column_twice(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"label":"a","x.p":1,"x":{"p":4}}\n' * 2)
    with pytest.raises(InputError, match=r"names the column 'x\.p' twice"):
        read_dataset(tmp_path / "a.jsonl")


def test_texts_of_json_that_look_like_times_stay_as_they_are(tmp_path):
    rows = [{"label": d, "at": d, "c": d, "in": [d]} for d in ("2024-05-31", "2024-06-01") * 40]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = {"id": "at", "columns": ["c", "in"], "categories": ["c"], "hash_bits": 8}
    ingest(str(tmp_path / "a.jsonl"), str(tmp_path / "a"), **columns)
    data = open_dataset(str(tmp_path / "a"))
    assert data.schema.label_columns[0].names == ("2024-05-31", "2024-06-01")
    assert set(data.tags(0)) == {"2024-05-31", "2024-06-01"}
    names = set(data.names(np.arange(data.schema.n_features)).values())
    assert names == {f"{name}={row['c']}" for row in rows[:2] for name in ("c", "in")}


def test_the_text_is_the_column_that_is_left(tmp_path):
    (tmp_path / "a.csv").write_text("good film,1\nbad film,0\n")
    data = read_dataset(str(tmp_path / "a.csv"), format="text", label=1)
    first = read_dataset(
        [{"t": "good film", "label": 1}, {"t": "bad film", "label": 0}], text_column="t"
    )
    np.testing.assert_array_equal(dense_dataset(data)[0], dense_dataset(first)[0])


def test_a_column_that_is_named_twice_is_one(tmp_path):
    (tmp_path / "a.csv").write_text("label,a\n1,2\n0,3\n1,5\n")
    once = read_dataset(str(tmp_path / "a.csv"), columns="a")
    twice = read_dataset(str(tmp_path / "a.csv"), columns="a,a")
    np.testing.assert_array_equal(dense_dataset(twice)[0], dense_dataset(once)[0])


def test_a_column_of_the_largest_file_that_the_first_lacks_is_of_another_file(tmp_path):
    (tmp_path / "a.csv").write_text("label,a\n1,2\n0,3\n")
    (tmp_path / "b.csv").write_text("label,a,b\n1,2,4\n0,3,5\n")
    with pytest.raises(InputError, match=r"a\.csv has no column 'b', which another file or"):
        read_dataset([tmp_path / "a.csv", tmp_path / "b.csv"])
