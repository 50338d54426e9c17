"""``dadagrad evaluate`` and ``dadagrad predict``."""

import csv
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq
import pytest

from dadagrad import evaluate, predict


def test_evaluate(run, places):
    result = run("evaluate", places.model, places.test, "--json").json
    assert {"rows", "loss", "error", "auc", "accuracy", "f1", "seconds"} <= set(result)
    expected = evaluate(str(places.model), str(places.test))
    assert result | {"seconds": 0} == expected | {"seconds": 0}
    answer = run("evaluate", places.model, places.test)
    assert f"error {expected['error']:.5g}" in " ".join(answer.stdout.split())
    weight = expected["classes"]["1"]["weight"]
    assert f"class 1 (weight {weight:,.0f})" in answer.lines
    assert "predicted as" in answer.stdout
    assert answer.stderr == ""


def test_predict(run, places, tmp_path):
    out, expected = tmp_path / "p.parquet", tmp_path / "expected.parquet"
    result = run("predict", places.model, places.test, "--out", out, "--json").json
    assert result | {"seconds": 0} == {
        "rows": 1000, "bytes": out.stat().st_size, "seconds": 0, "out": str(out),
    }  # fmt: skip
    predict(str(places.model), str(places.test), expected)
    assert pq.read_table(out) == pq.read_table(expected)
    assert "there is a file" in run("predict", places.model, places.test, "--out", out).error
    again = run("predict", places.model, places.test, "--out", out, "--overwrite")
    assert "rows 1,000" in again.lines


def test_predictions_go_to_standard_output_and_pipes(run, places, tmp_path):
    command = ("predict", places.model, places.test, "--out")
    run(*command, tmp_path / "p.csv")
    expected = (tmp_path / "p.csv").read_text()
    answer = run(*command, "-")
    assert (answer.code, answer.stdout) == (0, expected)
    assert answer.stderr.startswith("1,000 predictions in ")
    assert "both write to standard output" in run(*command, "-", "--json").error
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_text)
        result = run(*command, pipe, "--overwrite", "--json").json
        assert read.result(10) == expected
    assert pipe.is_fifo()
    assert (result["rows"], result["bytes"]) == (1000, None)


@pytest.mark.parametrize(
    ("name", "options"), [("export", ("--format", "csv")), ("report", ("--format", "json"))]
)
def test_a_file_goes_to_standard_output_alone(run, places, tmp_path, name, options):
    command = (name, places.model, *options, "--out")
    run(*command, tmp_path / "file")
    answer = run(*command, "-")
    assert len(answer.stdout.splitlines()) == len((tmp_path / "file").read_text().splitlines())
    assert "both write to standard output" in run(*command, "-", "--json").error


def test_several_datasets_are_one_after_the_other(run, places):
    once = run("evaluate", places.model, places.test, "--json").json
    twice = run("evaluate", places.model, places.test, places.test, "--json").json
    assert twice["rows"] == 2 * once["rows"]
    assert twice["loss"] == pytest.approx(once["loss"])
    predict = ("predict", places.model, "--out", "-", places.test)
    one, two = (
        [row["score"] for row in csv.DictReader(run(*predict, *more).stdout.splitlines())]
        for more in ((), (places.test,))
    )
    assert two == 2 * one


def test_several_files_for_a_model_of_texts_are_no_texts(run, places, tmp_path):
    file, model = tmp_path / "a.tsv", tmp_path / "model"
    file.write_text("good\ta good film\nbad\ta dull plot\n" * 20)
    run("train", file, "--format", "text", "--model", model)
    table = run("predict", model, file, file, "--out", "-").stdout.splitlines()
    assert len(table) == 1 + 2 * 40
    assert "no-file.tsv" in run("predict", model, "no-file.tsv", file, "--out", "-").error
    assert "--format is csv, and" in run("evaluate", places.model, file, "--format", "csv").error


def test_a_link_stays_and_the_file_behind_it_is_replaced(run, places, tmp_path):
    (tmp_path / "file.csv").write_text("before")
    (tmp_path / "link.csv").symlink_to("file.csv")
    command = ("predict", places.model, places.test, "--out", tmp_path / "link.csv")
    assert "there is a file" in run(*command).error
    assert run(*command, "--overwrite").code == 0
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "file.csv").read_text().startswith('"row","line","label","score"')
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.csv", "link.csv"]


def test_rows_without_labels_are_predicted_and_nothing_else(run, places, tmp_path):
    lines = places.text.read_text().splitlines()[:50]
    new = tmp_path / "new"
    text = new.with_suffix(".svmlight")
    text.write_text("\n".join(line.partition(" ")[2] for line in lines))
    arguments = ["ingest", text, "--n-features", 400, "--out", new]
    assert "--no-labels" in run(*arguments).error
    assert run(*arguments, "--no-labels", "--json").json["rows"] == 50
    assert run("inspect", new, "--json").json["labels"] == []
    run("ingest", places.text, "--n-features", 400, "--no-shuffle", "--out", tmp_path / "train")
    for data in (new, tmp_path / "train"):
        run("predict", places.model, data, "--out", tmp_path / f"{data.name}.csv")
    expected, predicted = (
        [row.split(",") for row in (tmp_path / f"{name}.csv").read_text().splitlines()]
        for name in ("train", "new")
    )
    assert expected[0][2] == '"label"'
    assert predicted == [[*row[:2], *row[3:]] for row in expected[:51]]
    train = ("train", places.train, "--model", tmp_path / "m", "--holdout", new)
    for command in (("evaluate", places.model, new), train):
        assert "has no labels to compare predictions with" in run(*command).error
    for more in ([], ["--workers", 1]):
        error = run("train", new, "--model", tmp_path / "m", *more).error
        assert "no label column" in error
        assert "--no-labels" in error


def test_wrong_rows_of_a_raw_holdout_can_be_left_out(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "y,x\n" + "no,0\nyes,1\n" * 10
    (tmp_path / "a.csv").write_text(rows)
    (tmp_path / "new.csv").write_text(rows + ",1\n")
    train = ("train", "a.csv", "--model", "m", "--holdout", "new.csv", "--on-error", "skip")
    assert run(*train, "--json").json["holdout"]["rows"] == 20
    report = ("report", "m", "--out", "r.json", "--overwrite", "--holdout", "new.csv")
    assert "(--on-error skip leaves out" in run(*report).error
    assert run(*report, "--on-error", "skip").code == 0
    assert json.loads((tmp_path / "r.json").read_text())["holdout"]["rows"] == 20
    new = (tmp_path / "new.csv").read_text().replace("y", "kind", 1)
    (tmp_path / "new.csv").write_text(new)
    assert run(*report, "--on-error", "skip", "--label", "kind").code == 0
    assert json.loads((tmp_path / "r.json").read_text())["holdout"]["rows"] == 20
    assert run(*report[:4], "--overwrite", "--label", "kind").error.startswith("--label is for")
