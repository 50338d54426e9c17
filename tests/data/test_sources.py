"""Rows as people have them in Python: the functions take each kind, and read it the same way."""

import gzip
import json
import re
import shutil
from datetime import datetime

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from distributed import Client
from helpers.array_files import make_people, write_frame
from helpers.processes import local_cluster

import dadagrad
from dadagrad import InputError
from dadagrad.data.ingest.ingest import read_dataset

SETTINGS = {"loss": "logistic", "step_size": 0.5, "threads": 1}


FRAME = make_people().drop(columns="who").query("age > 25")  # an index with gaps
BLOCKS = dd.from_pandas(FRAME, npartitions=3)
FEATURES = ["age", "job"]
X = np.random.default_rng(0).normal(size=(300, 4))
Y = (X[:, 0] > 0).astype(int)


def write_csv(folder):
    return write_frame(FRAME, folder / "a.csv")


TABLES = {
    "pandas": lambda folder: FRAME,
    "polars": lambda folder: polars.from_pandas(FRAME),
    "pyarrow": lambda folder: pa.Table.from_pandas(FRAME, preserve_index=False),
    "dicts": lambda folder: FRAME.to_dict("records"),
    "file": write_csv,
    "files": lambda folder: [write_csv(folder)],
    "dask": lambda folder: BLOCKS,
}


@pytest.mark.parametrize("kind", TABLES)
def test_each_function_takes_a_table(kind, tmp_path):
    table, out = TABLES[kind](tmp_path), str(tmp_path / "data")
    model = dadagrad.train(table, label="rich", **SETTINGS).model
    report = dadagrad.ingest(table, out, label="rich")
    assert (report.rows, report.features) == (len(FRAME), model.n_features)
    assert dadagrad.train(out, **SETTINGS).model.digest == model.digest
    if kind != "dask":  # other random numbers shuffle its blocks
        assert model.digest == dadagrad.train(FRAME, label="rich", **SETTINGS).model.digest
    measured = dadagrad.evaluate(model, table)
    assert measured["auc"] == pytest.approx(dadagrad.evaluate(model, out)["auc"])
    assert dadagrad.predict(model, table, tmp_path / "p.csv")["rows"] == len(FRAME)
    predicted = pandas.read_csv(tmp_path / "p.csv")
    assert (predicted["prediction"] == predicted["label"]).mean() == measured["accuracy"]
    assert predicted["label"].tolist() == FRAME["rich"].tolist()


@pytest.mark.parametrize("data", [FRAME, BLOCKS, (X, Y)], ids=["frame", "dask", "matrix"])
def test_the_seed_decides_the_order_of_rows_and_which_are_held_out(data):
    settings = SETTINGS | ({} if isinstance(data, tuple) else {"label": "rich"})
    first, again, other = (
        dadagrad.train(data, **settings, seed=seed, holdout=0.2) for seed in (1, 1, 2)
    )
    assert first.model.digest == again.model.digest != other.model.digest
    assert first.report["holdout"]["loss"] != other.report["holdout"]["loss"]


@pytest.mark.parametrize(
    "pair",
    [
        (FRAME[FEATURES], FRAME["rich"]),
        (polars.from_pandas(FRAME[FEATURES]), FRAME["rich"].to_numpy()),
        (BLOCKS[FEATURES], BLOCKS["rich"]),
    ],
)
def test_a_table_and_its_labels_are_a_table(pair):
    model = dadagrad.train(pair, **SETTINGS).model
    whole = BLOCKS if isinstance(pair[0], dd.DataFrame) else FRAME
    assert model.digest == dadagrad.train(whole, label="rich", **SETTINGS).model.digest
    expected = dadagrad.evaluate(model, FRAME, label="rich")
    assert dadagrad.evaluate(model, pair)["loss"] == pytest.approx(expected["loss"])


@pytest.mark.parametrize(
    "data",
    [
        X,
        scipy.sparse.csr_matrix(X),
        da.from_array(X, chunks=(100, 4)),
        FRAME[FEATURES],
        FRAME[FEATURES].rename(columns={FEATURES[0]: "weight"}),
        polars.from_pandas(FRAME[FEATURES]),
        BLOCKS[FEATURES],
    ],
)
def test_weights_beside_labels_count_rows(data):
    rows = data.compute() if hasattr(data, "compute") else data
    y, counts = np.arange(rows.shape[0]) % 7 < 3, np.arange(rows.shape[0]) % 3
    repeated = np.repeat(np.arange(rows.shape[0]), counts)
    copies = (rows.iloc if hasattr(rows, "iloc") else rows)[repeated]
    model = dadagrad.train((data, y, counts), **SETTINGS).model
    for metric in ("loss", "error", "auc"):
        expected = dadagrad.evaluate(model, (copies, y[repeated]))[metric]
        assert dadagrad.evaluate(model, (data, y, counts))[metric] == pytest.approx(expected, 1e-6)
    with pytest.raises(InputError, match=r"weight.* shape \(20,\)"):
        dadagrad.train((data, y, counts[:20]), **SETTINGS)


def test_weights_beside_labels_are_those_of_a_column():
    counts = np.arange(len(FRAME)) % 3
    model = dadagrad.train((FRAME[FEATURES], FRAME["rich"], counts), **SETTINGS).model
    column = dadagrad.train(FRAME.assign(n=counts), label="rich", weight="n", **SETTINGS)
    assert model.digest == column.model.digest
    with pytest.raises(InputError, match="without labels"):
        dadagrad.train((FRAME, None, counts), **SETTINGS)
    with pytest.raises(InputError, match="weight exclude each other"):
        dadagrad.train((FRAME, FRAME["rich"], counts), weight="age", **SETTINGS)


@pytest.mark.parametrize(
    "kind",
    [lambda y: y.fillna(np.nan).to_numpy(), pandas.Categorical, pandas.array, pa.array],
)
def test_labels_in_memory_may_be_missing(kind):
    with pytest.raises(InputError, match=r"row 1: the label, column 'label', is missing"):
        dadagrad.train((FRAME[:3], kind(pandas.Series(["a", None, "b"]))), **SETTINGS)
    with pytest.raises(InputError, match=r"y: .*; give labels of one kind"):
        dadagrad.train((FRAME[:3], np.array(["a", 2.5, 3], object)), **SETTINGS)


@pytest.mark.parametrize("kind", [list, np.array, pandas.Series])
def test_texts_and_their_labels_are_a_table_of_texts(kind):
    texts, labels = ["a good film", "a bad one", "good", "bad"] * 20, ["yes", "no"] * 40
    pair, frame = (kind(texts), labels), pandas.DataFrame({"review": texts, "liked": labels})
    model = dadagrad.train(pair, **SETTINGS).model
    settings = SETTINGS | {"label": "liked", "text_column": "review"}
    same = dadagrad.train(frame, **settings).model
    np.testing.assert_array_equal(model.weights, same.weights)
    expected = dadagrad.evaluate(same, frame)["loss"]
    for measured in (
        dadagrad.evaluate(same, pair),
        dadagrad.evaluate(model, frame, label="liked", text_column="review"),
        dadagrad.evaluate(model, frame, label=1, text_column=0),
    ):
        assert measured["loss"] == pytest.approx(expected, rel=1e-12)
    assert dadagrad.predict(model, pair)["score"].to_pylist() == list(
        model.decision_function(kind(texts)).ravel()
    )


def test_predictions_need_no_weights():
    weights = np.arange(len(X)) % 2
    model = dadagrad.train((X, Y, weights), **SETTINGS).model
    scores = model.decision_function(X)
    np.testing.assert_array_equal(model.decision_function((X, Y, weights)), scores)
    predicted = dadagrad.predict(model, (X, Y, weights))
    np.testing.assert_array_equal(predicted["score"], scores.ravel())
    assert dadagrad.predict(model, X.tolist())["score"].to_pylist() == list(scores.ravel())


def test_columns_of_labels_keep_their_names_beside_a_matrix():
    labels = pandas.DataFrame({"toxic": Y, "insult": 1 - Y})
    for rows in (X, FRAME[FEATURES]):
        pair = rows, labels[: len(rows)]
        assert dadagrad.train(pair, **SETTINGS).model.output_names == ("toxic", "insult")


CODES = pandas.DataFrame({"code": np.arange(600) % 20, "job": ["cook", "nurse"] * 300})
CODES["label"] = CODES["code"] % 7 < 3


def write_parts(folder, suffix, parts):
    return [write_frame(part, folder / f"{n}.{suffix}") for n, part in enumerate(parts)]


PARTS = [CODES[:3], CODES[3:]]
LITTLE_FIRST = {
    "csv": lambda folder: write_parts(folder, "csv", PARTS),
    "csv, a header first": lambda folder: write_parts(folder, "csv", [CODES[:0], *PARTS]),
    "jsonl": lambda folder: write_parts(folder, "jsonl", PARTS),
    "parquet": lambda folder: write_parts(folder, "parquet", PARTS),
    "row groups": lambda folder: write_parts(folder, "parquet", [CODES]),
    "dask": lambda folder: dd.concat([dd.from_pandas(part, npartitions=1) for part in PARTS]),
}


def test_names_of_folders_are_columns_of_parquet(tmp_path):
    rows = [(n % 3 > 0, n / 7, ("north", "a/b c", None)[n % 3], 2023 + n % 2) for n in range(60)]
    frame = pandas.DataFrame(rows, columns=["y", "x", "place", "year"])
    frame = frame.sort_values(["year", "place"], kind="stable")
    folder, table = tmp_path / "folder", tmp_path / "table.csv"
    frame.to_csv(table, index=False)
    frame.to_parquet(folder, index=False, partition_cols=["year", "place"])
    (folder / "_SUCCESS").touch()
    model = dadagrad.train(folder, label="y", ignore=["x"], step_size=0.5).model
    columns = {each["name"]: each["kind"] for each in model.schema.feature_space.plain["columns"]}
    assert columns == {"place": "category", "year": "number"}
    for data in (folder, table, sorted(folder.rglob("*.parquet"))):
        assert dadagrad.evaluate(model, data)["error"] == 0.0


@pytest.mark.parametrize("content", [b"", b"PAR1"], ids=["empty", "cut short"])
def test_a_damaged_file_among_tables_is_named(tmp_path, content):
    FRAME.to_parquet(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(content)
    with pytest.raises(InputError, match=r"b\.parquet is not a whole Parquet file"):
        dadagrad.train(tmp_path, label="rich")


@pytest.mark.parametrize("kind", LITTLE_FIRST)
def test_a_first_part_of_few_rows_does_not_decide_the_kinds_of_columns(kind, tmp_path):
    out = str(tmp_path / "data")
    dadagrad.ingest(LITTLE_FIRST[kind](tmp_path), out, label="label")
    data = dadagrad.open_dataset(out)
    kinds = {each["name"]: each["kind"] for each in data.schema.feature_space.plain["columns"]}
    assert kinds == {"code": "code", "job": "category"}
    assert data.n_rows == len(CODES)


def test_names_of_columns_in_the_first_file_are_those_of_larger_ones(tmp_path):
    first, second = write_parts(tmp_path, "csv", PARTS)
    CODES[3:].to_csv(second, index=False, header=False)
    out = str(tmp_path / "data")
    dadagrad.ingest([first, second], out, label="label", categories="job")
    data = dadagrad.open_dataset(out)
    assert data.n_rows == len(CODES)
    assert [each["name"] for each in data.schema.feature_space.plain["columns"]] == ["code", "job"]


READ = dd.concat([BLOCKS.get_partition(n).reset_index(drop=True) for n in range(3)])


@pytest.mark.parametrize(
    "y",
    [
        FRAME["rich"].reset_index(drop=True),
        FRAME["rich"].tolist(),
        polars.Series(FRAME["rich"].to_numpy().astype(str)),
        da.from_array(
            FRAME["rich"].to_numpy().astype(str), chunks=(tuple(READ.map_partitions(len)),)
        ),
    ],
)
def test_labels_belong_to_the_rows_of_a_dask_frame_by_position(y):
    pair = (READ[FEATURES], y)  # the index begins again in each block, as in files that dask reads
    model = dadagrad.train(pair, **SETTINGS).model
    assert model.digest == dadagrad.train(BLOCKS, label="rich", **SETTINGS).model.digest


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (FRAME["rich"][:20], r"y has shape \(20,\) and X \d+ rows"),
        (BLOCKS["rich"].partitions[:2], "y has 2 blocks and X 3; give both the same partitions"),
        (dd.from_pandas(FRAME["rich"][:250], 3), r"block 0: y has .* X \d+ rows"),
        (3, r"y has shape \(\) and X"),
    ],
)
def test_other_labels_of_a_dask_frame_are_refused(y, message):
    with pytest.raises(InputError, match=message):
        dadagrad.ingest((READ[FEATURES], y), "memory://refused-labels")


def test_none_as_labels_is_no_labels():
    for data in (FRAME[FEATURES], BLOCKS[FEATURES], X):
        out = "memory://none-as-labels"
        report = dadagrad.ingest((data, None), out, no_labels=True, overwrite=True)
        assert report.rows == len(data)
        with pytest.raises(InputError, match="label"):
            dadagrad.ingest((data, None), out, overwrite=True)


@pytest.mark.parametrize(
    "pair",
    [
        (X, Y),
        (scipy.sparse.csr_matrix(X), Y),
        (da.from_array(X, chunks=(100, 4)), da.from_array(Y, chunks=100)),
    ],
)
def test_each_function_takes_a_matrix(pair, tmp_path):
    settings, data = SETTINGS | {"shuffle": False}, dadagrad.dataset_from_arrays(X, Y)
    model = dadagrad.train(pair, **settings).model
    assert model.digest == dadagrad.train(data, **settings).model.digest
    assert dadagrad.predict(model, pair[0], tmp_path / "p.csv")["rows"] == 300
    assert dadagrad.ingest(pair, str(tmp_path / "data"), shuffle=None).rows == 300
    copy = dadagrad.open_dataset(str(tmp_path / "data"))
    measured = dadagrad.evaluate(model, pair)
    for expected in (dadagrad.evaluate(model, data), dadagrad.evaluate(model, copy)):
        for name in ("loss", "log_loss", "error", "auc"):  # sums in another order
            assert type(measured[name]) is float
            assert measured[name] == pytest.approx(expected[name], rel=1e-12)
        assert measured["confusion"] == expected["confusion"]
    assert dadagrad.ingest(copy, str(tmp_path / "again")).nnz == copy.nnz


def test_arrays_with_masked_cells_and_lazy_frames_are_refused(tmp_path):
    masked, model = np.ma.masked_less(X, 0), dadagrad.train((X, Y), **SETTINGS).model
    lazy, estimator = polars.from_numpy(X).lazy(), dadagrad.AdaGradClassifier().fit(X, Y)
    weights = np.ma.masked_equal(np.arange(len(Y)), 3)
    for use in (
        lambda: dadagrad.train((masked, Y)),
        lambda: dadagrad.ingest((masked, Y), "memory://masked"),
        lambda: dadagrad.predict(model, masked, tmp_path / "p.csv"),
        lambda: dadagrad.evaluate(model, (da.from_array(masked, chunks=(100, 4)), Y)),
        lambda: model.predict(masked),
        lambda: estimator.fit(masked, Y),
        lambda: estimator.predict(masked),
        lambda: estimator.fit(X, np.ma.masked_equal(Y, Y[0])),
        lambda: dadagrad.train((X, np.ma.masked_equal(Y, Y[0]))),
        lambda: estimator.fit(lazy, Y),
        lambda: estimator.predict(lazy),
        lambda: dadagrad.train((lazy, Y)),
        lambda: dadagrad.train((pandas.DataFrame(X), np.ma.masked_equal(Y, Y[0]))),
        lambda: estimator.score(X, Y, sample_weight=weights),
        lambda: dadagrad.AdaGradClassifier().fit(X, Y, sample_weight=weights),
        lambda: dadagrad.dataset_from_arrays(X, Y, sample_weight=weights),
    ):
        wrong = r"(X|y|sample_weight) is a (masked array; fill|LazyFrame, )"
        with pytest.raises(InputError, match=wrong):
            use()


def test_columns_that_are_missing_in_a_block_are_missing_cells():
    frame = pandas.DataFrame(
        {"a": ["x", "y", "x", None, None, None], "b": [1.0, 2, 3, np.nan, np.nan, np.nan]}
    )
    blocks = dd.from_pandas(frame.assign(label=[0, 1, 0, 1, 0, 1]), npartitions=2)
    data = dadagrad.ingest(blocks, "memory://missing-cells")
    names = dadagrad.open_dataset("memory://missing-cells").names(np.arange(data.features))
    assert "b is missing" in names.values()


@pytest.mark.parametrize("part", ["first", "last"])
def test_blocks_without_rows_have_no_objects(part):
    rows = pandas.DataFrame({"g": [{"a": float(n)} for n in range(80)], "y": [0, 1] * 40})
    with dask.config.set({"dataframe.convert-string": False}):
        blocks = dd.from_pandas(rows, npartitions=2)
        is_other = blocks["y"].map_partitions(lambda y: y.index >= 40, meta=(None, bool))
        kept = blocks[is_other if part == "first" else ~is_other]
        assert [len(each) for each in dask.compute(*kept.to_delayed())].count(0) == 1
        assert dadagrad.train(kept, label="y").report["rows"] == 40


def test_tasks_that_run_on_after_an_error_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    X = np.random.default_rng(0).normal(size=(20_000, 30)).astype(np.float32)
    y = X[:, 0] > 0
    X[700, 3] = np.nan
    blocks = da.from_array(X, chunks=(500, 30)), da.from_array(y, chunks=500)
    with local_cluster(2, threads_per_worker=1, processes=False) as cluster, Client(cluster) as c:
        for _ in range(4):
            with pytest.raises(InputError, match="block 1: row 200, feature 3 is nan"):
                dadagrad.train(blocks, client=c)
            assert not list(tmp_path.glob("dadagrad-*"))
    assert not list(tmp_path.glob("dadagrad-*"))


def test_a_cluster_trains_on_tables_as_one_machine_does(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    settings = SETTINGS | {"label": "rich", "streams": 2, "threads": None}
    checkpoints = str(tmp_path / "run")
    with local_cluster(2, threads_per_worker=1, processes=False) as cluster, Client(cluster):
        for table in (BLOCKS, FRAME, write_csv(tmp_path)):
            alone = dadagrad.train(table, **settings)
            together = dadagrad.train(table, **settings, client="current", checkpoints=checkpoints)
            assert together.model.digest == alone.model.digest
            with pytest.raises(
                InputError, match="data that was no dataset at a URL; give the same data again"
            ):
                dadagrad.resume(checkpoints)
            shutil.rmtree(checkpoints)
        with pytest.raises(InputError, match="did you mean 'rich'"):
            dadagrad.train(BLOCKS, **settings | {"label": "rihc"}, client="current")
    assert not list((tmp_path / "temporary").glob("dadagrad-*"))


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (5, {}, "the data are numbers without rows"),
        ([1.0, 2.0], {}, "the data are numbers without rows"),
        (FRAME["rich"], {}, r"a pandas Series of shape \(\d+,\); give a path"),
        (polars.LazyFrame({"a": [1]}), {}, r"a polars LazyFrame; .*a lazy one by collect\(\)"),
        (FRAME.loc[0], {}, r"a row by to_dict\(\)"),
        (X, {}, r"given with its labels, as a pair \(X, y\)"),
        (FRAME, {}, "has no column 'label'"),
        (FRAME, {"label": "rihc"}, "did you mean 'rich'"),
        ((X, Y), {"label": "rich"}, "the data are a dataset or a matrix already"),
        ((FRAME, FRAME["rich"]), {"label": "rich"}, "exclude each other"),
        (FRAME, {"format": "vw"}, "format is 'vw', and the data are the table; leave it out"),
        ((FRAME["age"], Y), {}, r"X has shape \(\d+,\); it must have two dimensions"),
        ((FRAME, Y[:3]), {}, r"y has shape \(3,\) and X \d+ rows"),
        (pandas.DataFrame({"a": [1, "x"], "label": [0, 1]}), {}, "values of one kind"),
        (pa.table([[1], [2]], ["label", "label"]), {}, "names the column 'label' twice; rename"),
        (FRAME, {"lable": "rich"}, "'lable' is not known"),
        ((X, Y), {"weight": np.ones(300)}, r"weight must be .*\(X, y, weights\)"),
        ((X, Y, pandas.date_range("2020", periods=300)), {}, "weight has dtype datetime64"),
        ((FRAME[FEATURES], FRAME["rich"], FRAME["age"] * 1j), {}, "weights has dtype complex"),
        ((X, [["a", "b"], ["a"], ["a"]] * 100), {}, "lists of different lengths.*matrix of 0 and"),
        (dask.delayed(FRAME), {"label": "rich"}, "dask Delayed.*from_delayed"),
        (
            dd.from_delayed(
                [dask.delayed(FRAME), dask.delayed(FRAME.assign(age="old"))],
                meta=FRAME.iloc[:0],
                verify_meta=False,
            ),
            {"label": "rich"},
            "columns of different types .*age",
        ),
    ],
)
def test_other_data_are_refused_with_what_is_possible(data, options, message):
    with pytest.raises(InputError, match=message):
        dadagrad.train(data, **SETTINGS, **options)


def test_labels_in_the_place_of_the_configuration_are_refused():
    with pytest.raises(InputError, match=re.escape("as a pair (X, y)")):
        dadagrad.train(X, Y)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".jsonl.gz", ".parquet"])
def test_a_part_without_rows_says_nothing_of_the_columns(suffix, tmp_path):
    table = pa.table({"label": ["a", "b"] * 20, "job": [f"t{n % 3}" for n in range(40)]})
    full, empty = tmp_path / f"full{suffix}", tmp_path / f"a{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, full)
        pq.write_table(table.slice(0, 0), empty)
    else:
        frame = table.to_pandas()
        lines = frame.to_json(orient="records", lines=True)
        text = (lines if "json" in suffix else frame.to_csv(index=False)).encode()
        compress = gzip.compress if suffix.endswith("gz") else bytes
        full.write_bytes(compress(text))
        empty.write_bytes(compress(b"\n\n"))
    ways = [empty, full], full
    digests = [dadagrad.train(paths, **SETTINGS, shuffle=False).model.digest for paths in ways]
    assert digests[0] == digests[1]


def test_times_of_spark_go_beyond_those_of_nanoseconds(tmp_path):
    """Parquet of Spark has times of 96 bits, and "until ever" is the year 9999."""
    days = [datetime(9999, 12, 31), datetime(2024, 5, 1)] * 50
    table = pa.table({"ends": pa.array(days, pa.timestamp("us")), "y": [0, 1] * 50})
    rows = []
    for name, old in (("new", False), ("old", True)):
        file = tmp_path / f"{name}.parquet"
        pq.write_table(table, file, use_deprecated_int96_timestamps=old)
        rows.append(read_dataset(file, label="y", shuffle=None).read(0))
    assert np.array_equal(rows[0].values, rows[1].values)
    assert np.array_equal(rows[0].vocabulary, rows[1].vocabulary)


@pytest.mark.parametrize("least", [2**60, 2**63])
def test_long_whole_numbers_of_json_lines_stay_apart(tmp_path, least):
    numbers = [2**63, 2**63 + 1, least + 3, least + 2]
    rows = [{"k": k, "in": {"x": 0.5 * n}, "y": n % 2} for n, k in enumerate(numbers * 25)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = read_dataset(tmp_path / "a.jsonl", label="y", categories="k")
    names = set(data.names(data.read(0).vocabulary).values())
    assert names >= {f"k={number}" for number in numbers}


@pytest.mark.parametrize("odd", ["12345678901234567", "1e20", "18446744073709551617", "-1"])
def test_numbers_that_no_type_has_exactly_are_rounded(tmp_path, odd):
    numbers = [*("0.5" if odd.startswith("123") else f"{2**63}" for _ in range(59)), odd]
    lines = (f'{{"x": {number}, "y": {n % 2}}}' for n, number in enumerate(numbers))
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert read_dataset(tmp_path / "a.jsonl", label="y").n_rows == 60


def test_cells_of_anndata_without_a_label_can_be_predicted_but_not_learned(tmp_path):
    anndata = pytest.importorskip("anndata")
    x = np.random.default_rng(0).poisson(1.0, (60, 5)).astype(np.float32)
    index = [f"cell{number}" for number in range(60)]
    kinds = pandas.Categorical(["a", "b", None] * 20)
    for name, column in (("known", ["a", "b", "b"] * 20), ("some", kinds)):
        obs = pandas.DataFrame({"kind": column}, index=index)
        anndata.AnnData(x, obs).write_h5ad(tmp_path / f"{name}.h5ad")
    url, some = str(tmp_path / "model"), str(tmp_path / "some.h5ad")
    model = dadagrad.train(tmp_path / "known.h5ad", label="kind", save_to=url).model
    report = dadagrad.predict(model, some, str(tmp_path / "p.csv"))
    assert report["rows"] == 60
    ingested = dadagrad.ingest(some, str(tmp_path / "data"), like=model, no_labels=True)
    assert ingested.rows == 60
    with pytest.raises(InputError, match="cell 'cell2': the label, column 'kind' of obs, is miss"):
        dadagrad.train(some, label="kind")


def test_rows_of_which_some_have_a_label_are_read_without(tmp_path):
    (tmp_path / "all.csv").write_text("x,y\n" + "1,a\n2,b\n" * 30)
    (tmp_path / "some.csv").write_text("x,y\n1,a\n2,\n")
    model = dadagrad.train(tmp_path / "all.csv", label="y").model
    out = str(tmp_path / "data")
    report = dadagrad.ingest(tmp_path / "some.csv", out, like=model, no_labels=True)
    assert report.rows == 2
    assert dadagrad.open_dataset(out).schema.label_columns == ()


def test_json_objects_in_a_file_that_is_read_as_texts_are_refused(tmp_path):
    (tmp_path / "texts.tsv").write_text("pos\tfine film\nneg\tdull film\n" * 30)
    (tmp_path / "n.txt").write_text('{"text": "fine film"}\n')
    model = dadagrad.train(tmp_path / "texts.tsv", format="text").model
    out = str(tmp_path / "p.csv")
    with pytest.raises(InputError, match=r"begins with a JSON object, .* were text; give format="):
        dadagrad.predict(model, tmp_path / "n.txt", out)
    assert dadagrad.predict(model, tmp_path / "n.txt", out, format="text")["rows"] == 1


def test_a_column_called_label_in_capitals_is_the_label(tmp_path):
    (tmp_path / "a.csv").write_text("Text,Label\n" + "fine film,yes\ndull film,no\n" * 30)
    (column,) = read_dataset(tmp_path / "a.csv").schema.label_columns
    assert column.texts == ("no", "yes")


def test_labels_that_are_flags_here_and_numbers_there_are_refused(tmp_path):
    for name, labels in (("a", ["0", "1"]), ("b", ["false", "true"])):
        rows = "".join(f"{n},{labels[n % 2]}\n" for n in range(60))
        (tmp_path / f"{name}.csv").write_text("x,y\n" + rows)
    with pytest.raises(InputError, match="some labels are 0 and others 'false'; write 0 and 1"):
        dadagrad.train(str(tmp_path / "*.csv"), label="y")
