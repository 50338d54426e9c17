"""``dadagrad evaluate`` and ``dadagrad predict``."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from dadagrad.data import open_dataset
from dadagrad.data.ingest.ingest import ingest
from dadagrad.model.evaluate import evaluate
from dadagrad.model.model import Model


def test_evaluate(run, places):
    result = run("evaluate", places.model, places.test, "--json").json
    assert list(result) == ["rows", "loss", "error", "auc", "accuracy", "seconds"]
    expected = evaluate(str(places.model), str(places.test))
    assert result | {"seconds": 0} == expected | {"seconds": 0}
    assert result["rows"] == 1000
    assert 0.5 < result["auc"] <= 1
    answer = run("evaluate", places.model, places.test)
    assert f"error     {expected['error']:.5g}\n" in answer.stdout
    assert answer.stderr == ""


def test_predict(run, places, tmp_path):
    out = tmp_path / "p.parquet"
    result = run("predict", places.model, places.test, "--out", out, "--json").json
    assert result["rows"] == 1000
    assert result["out"] == str(out)
    assert result["bytes"] == out.stat().st_size
    table = pq.read_table(out)
    assert table.column_names == ["row", "score", "prediction", "probability"]
    model, data = Model.load(places.model), open_dataset(str(places.test))
    margins = np.concatenate(
        [model.scores(data.read(number)) for number in range(len(data.partitions))]
    )
    assert np.array_equal(table["score"], margins[:, 0])
    assert np.array_equal(table["prediction"], model.predict_labels(margins))
    assert np.array_equal(table["probability"], model.probabilities(margins)[:, 1])
    arguments = ["predict", places.model, places.test, "--out", out]
    assert "there is a file" in run(*arguments).error
    assert "rows     1,000\n" in run(*arguments, "--overwrite").stdout


@pytest.mark.parametrize("name", ["evaluate", "predict"])
def test_what_is_missing_or_does_not_fit(run, places, tmp_path, name):
    out = tmp_path / "p.parquet"
    command = ["evaluate"] if name == "evaluate" else ["predict", "--out", out]
    assert f"no model at {tmp_path}" in run(*command, tmp_path, places.test).error
    assert f"no model at {places.test}: it is a dataset" in run(
        *command, places.test, places.test
    ).error  # fmt: skip
    assert "no dataset at" in run(*command, places.model, tmp_path).error
    other = tmp_path / "other"
    ingest(places.text, str(other), norm="l2")
    assert "feature space" in run(*command, places.model, other).error
    assert not out.exists()


def test_a_damaged_model(run, places, tmp_path):
    model = Model.load(places.model)
    model.save(tmp_path / "m")
    part = next((tmp_path / "m").rglob("000-00000.zst"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    assert "sha256" in run("evaluate", tmp_path / "m", places.test).error


def test_rows_without_labels_are_predicted_and_nothing_else(run, places, tmp_path):
    lines = places.text.read_text().splitlines()[:50]
    (tmp_path / "new.svmlight").write_text("\n".join(line.partition(" ")[2] for line in lines))
    arguments = ["ingest", tmp_path / "new.svmlight", "--n-features", 400, "--out"]
    assert "--no-labels" in run(*arguments, tmp_path / "new").error
    assert run(*arguments, tmp_path / "new", "--no-labels", "--json").json["rows"] == 50
    assert run("inspect", tmp_path / "new", "--json").json["labels"] == []
    run("predict", places.model, tmp_path / "new", "--out", tmp_path / "new.csv")
    run("predict", places.model, places.train, "--out", tmp_path / "all.csv")
    expected = (tmp_path / "all.csv").read_text().splitlines()
    assert (tmp_path / "new.csv").read_text().splitlines() == expected[:51]
    error = run("evaluate", places.model, tmp_path / "new").error
    assert "has no labels to compare predictions with" in error
    assert "--no-labels" in error
    for more in ([], ["--workers", 1]):
        error = run("train", tmp_path / "new", "--model", tmp_path / "m", *more).error
        assert "no label column" in error
        assert "--no-labels" in error
    error = run(
        "train", places.train, "--model", tmp_path / "m", "--holdout", tmp_path / "new"
    ).error  # fmt: skip
    assert "has no labels" in error


def test_predictions_as_csv(run, places, tmp_path):
    out = tmp_path / "p.csv"
    result = run("predict", places.model, places.test, "--out", out, "--json").json
    lines = out.read_text().splitlines()
    assert lines[0] == '"row","score","prediction","probability"'
    assert len(lines) == 1 + result["rows"]
    error = run("predict", places.model, places.test, "--out", tmp_path / "p.json").error
    assert "suffix .json is not known" in error
    assert ".csv" in error
