"""Raw rows predicted and evaluated: the same as a dataset made of them, and answered at once."""

import csv
import json
import subprocess
import sys
import time

import anndata
import dask.dataframe as dd
import numpy as np
import pandas
import pyarrow.parquet as pq
import pytest
from helpers.array_files import make_people, write_frame

from dadagrad import InputError, evaluate, ingest, predict, train
from dadagrad.data import external_shuffle
from dadagrad.data.ingest import readers
from dadagrad.data.reading import files

SETTINGS = {"loss": "logistic", "step_size": 0.5, "threads": 1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """URL of a dataset of a table, and a model of it."""
    data = str(tmp_path_factory.mktemp("raw") / "data")
    ingest(make_people(), data, label="rich", id="who", shuffle=None)
    return data, train(data, **SETTINGS).model


def read_csv(path):
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_a_raw_file_has_the_predictions_of_the_dataset(trained, tmp_path, suffix):
    data, model = trained
    predict(model, data, str(tmp_path / "data.csv"))
    expected = read_csv(tmp_path / "data.csv")
    frame = make_people()[["rich", "job", "who", "age"]]  # another order
    raw = write_frame(frame, tmp_path / f"raw.{suffix}")
    for source in (raw, frame):
        result = predict(model, source, str(tmp_path / "out.csv"), overwrite=True)
        rows = read_csv(tmp_path / "out.csv")
        assert (result["rows"], result["unseen"]) == (300, 0)
        for mine, other in zip(rows, expected, strict=True):
            assert (mine["tag"], mine["label"]) == (other["tag"], other["label"])
            assert float(mine["score"]) == pytest.approx(float(other["score"]), abs=1e-5)
            assert mine["prediction"] == other["prediction"]
        assert [row["tag"] for row in rows] == frame["who"].tolist()
        assert [row["label"] for row in rows] == frame["rich"].tolist()
        unit, first = ("row", 0) if source is frame else ("line", 1 + (suffix in ("csv", "tsv")))
        assert [int(row[unit]) for row in rows] == list(range(first, first + 300))
    measures = [evaluate(model, source) for source in (raw, frame, data)]
    for measured in measures:
        assert measured["loss"] == pytest.approx(measures[-1]["loss"], abs=1e-6)
        assert measured["confusion"] == measures[-1]["confusion"]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "svm", "vw", "frame"])
def test_rows_of_a_dataset_keep_their_file_and_line(tmp_path, monkeypatch, suffix):
    """The shuffled rows of many blocks and runs have the places and scores that raw rows have."""
    for module in (files, readers):
        monkeypatch.setattr(module, "TASK_BYTES", 2_000)
    monkeypatch.setattr(external_shuffle, "RUN_BYTES", 5_000)
    frame, raw = make_people(), [tmp_path / f"raw{number}.{suffix}" for number in range(2)]
    frame["age"] = frame["age"].round(9)
    frame["job"] = np.where(frame["age"] > 50, "two\nlines", frame["job"])
    for path in raw:
        if suffix == "parquet":
            frame.to_parquet(path, row_group_size=70)
        elif suffix == "jsonl":
            text = frame.to_json(orient="records", lines=True, double_precision=15)
            path.write_text(text.replace("\n", "\n\n").rstrip("\n") if path is raw[0] else text)
        elif suffix in ("svm", "vw"):
            bar = "| " if suffix == "vw" else "3:0.5 "
            lines = [f"{1 - 2 * (n % 2)} {bar}{n % 7 + 4}:{n} {n % 31 + 11}:1" for n in range(300)]
            path.write_text("\n".join([*lines[:150], "wrong", *lines[150:]]))
        else:
            text = frame.to_csv(index=False, sep="," if suffix == "csv" else "\t")
            path.write_text(text.replace('"two\nlines"', "two") if suffix == "tsv" else text)
    options = {} if suffix in ("svm", "vw") else {"label": "rich", "id": "who"}
    source = frame if suffix == "frame" else [str(path) for path in raw]
    if suffix != "frame":
        options["on_error"] = "skip"
    ingest(source, str(tmp_path / "data"), partition_nnz=400, **options)
    model = train(str(tmp_path / "data"), **SETTINGS).model
    columns = [] if suffix == "frame" else ["file"]
    predicted = []
    for number, rows in enumerate((source, str(tmp_path / "data"))):
        predict(model, rows, str(tmp_path / f"{number}.parquet"), on_error="skip")
        table = pandas.read_parquet(tmp_path / f"{number}.parquet")
        if rows is frame:  # in memory rows count from 0
            table["line"] = table["row"] + 1
        table = table.sort_values([*columns, "line"])
        predicted.append(table[[*columns, "line", "score"]].reset_index(drop=True))
    assert len(predicted[0]) == (300 if suffix == "frame" else 600)
    # Sums of scaled columns differ in their last bits.
    pandas.testing.assert_frame_equal(*predicted, check_exact=suffix in ("svm", "vw"))


@pytest.mark.parametrize("suffix", ["svm", "vw"])
def test_raw_lines_keep_the_labels_that_they_have(tmp_path, suffix):
    raw, bar = tmp_path / f"a.{suffix}", "| " if suffix == "vw" else ""
    raw.write_text("".join(f"{1 - 2 * (n % 2)} {bar}1:{n} {n % 7 + 2}:1\n" for n in range(60)))
    model = train(str(raw), **SETTINGS).model
    raw.write_text(f"-1 {bar}1:3\n{bar}1:3\n1 {bar}1:3\n")
    predict(model, str(raw), str(tmp_path / "p.parquet"))
    predicted = pq.read_table(tmp_path / "p.parquet")
    assert predicted["label"].to_pylist() == [-1.0, None, 1.0]
    assert len(set(predicted["score"].to_pylist())) == 1


def test_raw_lines_with_sets_of_labels_are_predicted(tmp_path):
    features = [f"1:{n % 5} {n % 4 + 2}:1\n" for n in range(60)]
    sets = ["0,2", "", "2", "0"] * 15
    raw, plain = tmp_path / "raw.svm", tmp_path / "plain.svm"
    raw.write_text("".join(f"{each} {row}" for each, row in zip(sets, features, strict=True)))
    plain.write_text("".join(features))
    data = str(tmp_path / "data")
    ingest(str(raw), data, multilabel=True, shuffle=None)
    model = train(data, **SETTINGS).model
    ingest(str(plain), str(tmp_path / "plain"), like=model, no_labels=True)
    scores = []
    for number, source in enumerate((data, str(raw), str(plain), str(tmp_path / "plain"))):
        predict(model, source, str(tmp_path / f"{number}.parquet"))
        predicted = pq.read_table(tmp_path / f"{number}.parquet")
        scores.append([predicted[f"score_{label}"].to_pylist() for label in (0, 2)])
        if source in (str(raw), str(plain)):  # of others each label has a column
            assert predicted["label"].to_pylist() == (sets if source == str(raw) else [""] * 60)
    assert scores == [scores[0]] * 4


def test_later_rows_have_the_columns_of_the_first(trained, tmp_path, monkeypatch):
    """A key that rows of JSON lack, or that only later ones have, shifts no other column."""
    monkeypatch.setattr(readers, "TASK_BYTES", 30)
    raw = tmp_path / "a.jsonl"
    rows = [{"who": "p", "age": 40, "job": "cook"}, {"age": 30, "job": "cook", "rich": "yes"}]
    for order in (rows, rows[::-1]):
        raw.write_text("".join(f"{json.dumps(row)}\n" for row in order))
        predict(trained[1], str(raw), str(tmp_path / "p.csv"), overwrite=True)
        written = read_csv(tmp_path / "p.csv")
        alone = trained[1].decision_function(order)
        assert [float(row["score"]) for row in written] == pytest.approx(alone[:, 0].tolist())
        key, name = ("tag", "who") if order is rows else ("label", "rich")
        assert [row[key] for row in written] == [order[0][name], ""]


@pytest.mark.parametrize("kind", ["folder", "glob", "glob of folders", "urls"])
def test_a_folder_and_a_glob_are_read_as_their_files_are(tmp_path, kind):
    frame, data = make_people(), tmp_path / "days"
    data.mkdir()
    for number in range(2):
        frame[150 * number : 150 * (number + 1)].to_csv(data / f"{number}.csv", index=False)
    files = [str(data / "0.csv"), str(data / "1.csv")]
    source = str(data if kind == "folder" else data / "*.csv")
    source = str(tmp_path / "d*s") if kind == "glob of folders" else source
    source = [f"file://{file}" for file in files] if kind == "urls" else source
    model = train(source, label="rich", **SETTINGS).model
    assert model.digest == train(files, label="rich", **SETTINGS).model.digest
    predict(model, source, str(tmp_path / "p.csv"))
    assert [row["file"] for row in read_csv(tmp_path / "p.csv")][149:151] == files


@pytest.mark.parametrize("names", [["job", "rich", "age"], ["who", "age", "rich", "job"]])
def test_files_without_names_have_the_columns_of_the_first_file(tmp_path, names):
    frame = make_people()
    model = train(frame, label="rich", **SETTINGS).model
    order = frame.assign(who="a")[names]
    files = [str(tmp_path / f"{number}.csv") for number in range(2)]
    order[:150].to_csv(files[0], index=False)
    order[150:].to_csv(files[1], index=False, header=False)
    predict(model, files, str(tmp_path / "p.csv"))
    scores = [float(row["score"]) for row in read_csv(tmp_path / "p.csv")]
    assert scores == pytest.approx(model.decision_function(frame)[:, 0].tolist())
    # The rows are shuffled in another order, and the sum differs in its last bit.
    loss = evaluate(model, frame)["loss"]
    assert evaluate(model, files)["loss"] == pytest.approx(loss, rel=1e-12)


def test_wrong_raw_rows_are_left_out_by_each_function(tmp_path):
    file = tmp_path / "a.csv"
    make_people().to_csv(file, index=False)
    right = train(str(file), label="rich", **SETTINGS).model
    with file.open("a") as opened:
        opened.write("x,40,cook,\ny,old,cook,yes\n")
    frame = make_people().assign(rich=lambda table: table["rich"].mask(table["age"] > 50))
    with pytest.raises(InputError, match=r"line 303: .*on_error=skip"):
        train(str(file), label="rich", **SETTINGS)
    model = train(str(file), label="rich", on_error="skip", **SETTINGS).model
    assert model.digest == right.digest
    assert evaluate(model, str(file), on_error="skip")["rows"] == 300
    n_labelled = frame["rich"].notna().sum()
    assert train(frame, label="rich", on_error="skip", **SETTINGS).report["rows"] == n_labelled


def test_rows_of_parquet_have_one_number_in_messages_and_predictions(trained, tmp_path, caplog):
    frame = make_people().astype({"age": str})
    frame.loc[50, "age"] = "old"
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=40)
    predict(trained[1], str(tmp_path / "a.parquet"), str(tmp_path / "p.parquet"), on_error="skip")
    assert "a.parquet, row 51: column 'age' holds 'old'" in caplog.text
    lines = pq.read_table(tmp_path / "p.parquet")["line"].to_pylist()
    assert lines == [line for line in range(1, 301) if line != 51]


@pytest.fixture
def cells(tmp_path):
    """AnnData of cells and named genes, with a column of `obs` that is the label."""
    genes = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    kind = np.where(genes @ [1, -1, 2, 0, 1, -2] > 0, "T", "B")
    named = pandas.DataFrame(index=[f"gene{number}" for number in range(6)])
    obs = pandas.DataFrame({"cell": kind}, index=[f"c{number}" for number in range(200)])
    made = anndata.AnnData(genes, obs=obs, var=named)
    made.write_h5ad(tmp_path / "a.h5ad")
    return made


def test_a_model_of_an_array_file_reads_others(cells, tmp_path):
    file, data = str(tmp_path / "a.h5ad"), str(tmp_path / "data")
    result = train(file, label="cell", **SETTINGS)
    model = result.model
    ingest(file, data, like=model)
    assert evaluate(model, file)["loss"] == evaluate(model, data)["loss"]
    assert train(file, label="cell", initial_model=result, **SETTINGS).model.names == model.names
    np.savez(tmp_path / "x.npz", X=cells.X, labels=cells.obs["cell"].to_numpy(str))
    np.savez(tmp_path / "unlabelled.npz", X=cells.X)
    scores = model.decision_function(cells.X)[:, 0].tolist()
    for source in (file, str(tmp_path / "x.npz"), str(tmp_path / "unlabelled.npz")):
        predict(model, source, str(tmp_path / "p.parquet"), overwrite=True)
        predicted = pq.read_table(tmp_path / "p.parquet").to_pydict()
        assert predicted["score"] == pytest.approx(scores, abs=1e-6)
        assert predicted["line"] == list(range(1, 201))
        assert predicted.get("label", list(cells.obs["cell"])) == list(cells.obs["cell"])


@pytest.mark.parametrize("genes", [slice(None, None, -1), slice(0, 4)])
def test_columns_of_other_names_are_refused(cells, tmp_path, genes):
    model = train(str(tmp_path / "a.h5ad"), label="cell", **SETTINGS).model
    other, data = str(tmp_path / "other.h5ad"), str(tmp_path / "data")
    cells[:, genes].copy().write_h5ad(other)
    ingest(other, data, label="cell")
    for function, rows, options in (
        (evaluate, other, {}),
        (evaluate, data, {}),
        (predict, other, {"out": str(tmp_path / "p.csv")}),
        (ingest, other, {"out": str(tmp_path / "q"), "like": model}),
        (train, [str(tmp_path / "a.h5ad"), other], {"label": "cell"}),
    ):
        takes_model = (model,) if function in (evaluate, predict) else ()
        with pytest.raises(InputError, match="has columns of other names or in another order than"):
            function(*takes_model, rows, **options)


def test_a_matrix_of_another_width_is_refused(tmp_path):
    X, y = np.eye(4).repeat(10, axis=0), np.tile([0, 1], 20)
    np.savez(tmp_path / "few.npz", X=X[:, :3], labels=y)
    few, padded = str(tmp_path / "few.npz"), str(tmp_path / "padded")
    model = train((X, y), **SETTINGS).model
    with pytest.raises(InputError, match=r"has 3 features and .* 4; .* n_features="):
        evaluate(model, few)
    ingest(few, padded, n_features=4)
    assert evaluate(model, padded)["rows"] == 40
    (tmp_path / "a.svm").write_text("1 1:2\n")
    with pytest.raises(InputError, match=r"give a matrix of the same columns .* not .*a\.svm"):
        predict(model, str(tmp_path / "a.svm"), str(tmp_path / "p.csv"))


def test_datasets_of_files_that_were_read_differently_go_together(tmp_path):
    first, second = (write_frame(make_people(), tmp_path / name) for name in ("a.csv", "b.tsv"))
    urls = [str(tmp_path / "a"), str(tmp_path / "b")]
    ingest(first, urls[0], label="rich", id="who")
    ingest(second, urls[1], like=urls[0])
    predict(train(urls, **SETTINGS).model, urls, str(tmp_path / "p.csv"))
    tags = [row["tag"] for row in read_csv(tmp_path / "p.csv")]
    assert sorted(tags) == sorted([*make_people()["who"]] * 2)


def test_options_of_raw_files_beside_datasets_are_refused(trained, tmp_path):
    make_people().to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(InputError, match=r"label says .* only some of the data are raw.*csv"):
        train([str(tmp_path / "a.csv"), trained[0]], label="rich", **SETTINGS)


def test_standard_input_that_is_closed_is_an_input_error(trained, tmp_path):
    trained[1].save(str(tmp_path / "model"))
    command = f"{sys.executable} -m dadagrad predict {tmp_path / 'model'} - --out - <&-"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("dadagrad: error: cannot read /dev/stdin: Bad file descriptor")


def test_texts_are_predicted(tmp_path):
    texts = ["so very good", "so bad", "good day", "bad bad day"] * 20
    frame = pandas.DataFrame({"label": ["+", "-"] * 40, "text": texts})
    ingest(frame, str(tmp_path / "data"), text_column="text", hash_bits=10)
    model = train(str(tmp_path / "data"), **SETTINGS).model
    predict(model, ["a good one", "bad"], str(tmp_path / "p.parquet"))
    assert pq.read_table(tmp_path / "p.parquet")["prediction"].to_pylist() == ["+", "-"]
    with pytest.raises(InputError, match="has no column 'text'"):
        predict(model, make_people(), str(tmp_path / "q.csv"))
    assert not (tmp_path / "q.csv").exists()


def test_raw_rows_of_another_layout_are_refused(trained, tmp_path):
    _, model = trained
    new = tmp_path / "new.csv"
    for content, message in (
        ("who,agee,job\np,3,cook\n", r"new\.csv has no column 'age'.*did you mean 'agee'\?"),
        ("who,age,job\np,3,cook\np,old,cook\n", r"new\.csv, line 3: column 'age' holds 'old'"),
        ("1,2\n3,4\n", r"new\.csv has 2 columns without names"),
        ("Who,Age,Job\np,3,cook\n", r"new\.csv has no column 'age'.*did you mean 'Age'\?"),
        ("", r"no rows"),
        ("who,age,job\np,3\n", r"new\.csv, line 2: 2 comma-separated fields"),
        ('who,age,job\np,3,"co', r"new\.csv, line 2: a quote opens"),
    ):
        new.write_text(content)
        with pytest.raises(InputError, match=message):
            predict(model, str(new), str(tmp_path / "out.csv"))
        assert not (tmp_path / "out.csv").exists()
    new.write_text("who,age,job,rich\nx,40,astronaut,yes\n")
    assert predict(model, str(new), str(tmp_path / "out.csv"))["unseen"] == 1 / 2
    assert evaluate(model, str(new))["unseen"] == 1 / 2


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "frame"])
def test_options_name_the_columns_that_describe_rows(tmp_path, suffix):
    frame = make_people()
    model = train(frame, label="rich", ignore=["who"], **SETTINGS).model
    other = frame.rename(columns={"rich": "target"}).assign(n=np.arange(len(frame)) % 3)
    new = other if suffix == "frame" else write_frame(other, tmp_path / f"new.{suffix}")
    repeated = frame.loc[np.repeat(frame.index, other["n"])]
    expected = evaluate(model, repeated)["loss"]
    assert evaluate(model, new, label="target", weight="n")["loss"] == pytest.approx(expected, 1e-6)
    if suffix != "jsonl":  # its columns have no numbers
        numbers = {"label": [*other].index("target"), "weight": str([*other].index("n"))}
        for data in (new, dd.from_pandas(other, 2)):
            assert evaluate(model, data, **numbers)["loss"] == pytest.approx(expected, 1e-6)
    table = predict(model, new, id="who", label="target").to_pandas()
    assert table["tag"].tolist() == frame["who"].tolist()
    assert table["label"].tolist() == frame["rich"].tolist()
    for options, message in (
        ({}, r"no column 'rich', which .* \(see label=\)"),
        ({"label": "tarot"}, r"no column 'tarot', which label= names; did you mean 'target'"),
        ({"label": "target", "weight": "m"}, r"no column 'm', which weight= names"),
    ):
        with pytest.raises(InputError, match=message):
            evaluate(model, new, **options)
    with pytest.raises(InputError, match=r"no column 'whom', which id= names"):
        predict(model, new, id="whom")
    with pytest.raises(InputError, match=r"'labels' does not say how .* did you mean 'label'"):
        predict(model, new, labels="target")


def test_weights_are_missed_where_they_count(tmp_path, caplog):
    frame, new = make_people().assign(n=2), tmp_path / "new.csv"
    model = train(frame, label="rich", id="who", weight="n", **SETTINGS).model
    frame.drop(columns="n").to_csv(new, index=False)
    without = predict(model, str(new))
    assert not caplog.text
    evaluate(model, str(new))
    assert "has no column 'n', which has the weights" in caplog.text
    frame.assign(n=None).to_csv(new, index=False)  # no prediction needs a weight
    assert predict(model, str(new))["score"].to_pylist() == without["score"].to_pylist()
    with pytest.raises(InputError, match="the weight, column 'n', is ''"):
        evaluate(model, str(new))


@pytest.mark.process
def test_each_line_from_standard_input_is_answered_at_once(trained, tmp_path):
    trained[1].save(str(tmp_path / "model"))
    command = [sys.executable, "-m", "dadagrad", "predict", str(tmp_path / "model"), "-"]
    program = subprocess.Popen(
        [*command, "--out", "-", "--quiet"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    program.stdin.write("job,age,who\ncook,30,a\n")
    assert program.stdout.readline().startswith('"line","tag","score"')
    assert program.stdout.readline().startswith('2,"a",')
    seconds = []
    for number in range(20):
        begun = time.perf_counter()
        program.stdin.write(f"nurse,{number},b{number}\n")
        assert program.stdout.readline().startswith(f'{number + 3},"b{number}",')
        seconds.append(time.perf_counter() - begun)
    program.stdin.close()
    program.stdout.close()
    assert program.wait(30) == 0
    # On a machine that does nothing else it is 1 ms: examples/benchmarks/latency.py measures it.
    assert np.median(seconds) < 0.25


def test_lines_of_text_are_not_cut_at_commas(tmp_path):
    texts = ["a dull, poor film", "a fine film; so good, so short", "poor"]
    (tmp_path / "train").write_text("+\tso fine\n-\tpoor\n" * 40)
    model = train(str(tmp_path / "train"), format="text", **SETTINGS).model
    (tmp_path / "new").write_text("\n".join(texts))
    predict(model, str(tmp_path / "new"), str(tmp_path / "new.csv"))
    rows = read_csv(tmp_path / "new.csv")
    assert [row["prediction"] for row in rows] == list(model.predict(texts)) == ["-", "+", "-"]
    assert "label" not in rows[0]
