"""``dadagrad ingest``."""

from __future__ import annotations

import inspect

import pytest

from dadagrad import ingest, open_dataset
from dadagrad.cli import ingest as module
from dadagrad.data.ingest.options import FORMATS


def test_the_report_is_json_or_lines(run, places, tmp_path):
    out = tmp_path / "data"
    command = ("ingest", places.text, "--out", out, "--partition-nnz", 20_000)
    result = run(*command, "--json").json
    data = open_dataset(str(out))
    assert list(result) == [
        "rows", "features", "nnz", "partitions", "source_bytes", "bytes", "seconds", "skipped",
        "columns", "collisions",
    ]  # fmt: skip
    assert result["rows"] == data.n_rows == 3000
    assert result["features"] == data.schema.n_features
    assert result["nnz"] == data.nnz
    assert result["partitions"] == len(data.partitions) > 2
    assert result["source_bytes"] == places.text.stat().st_size
    stored = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    assert result["bytes"] == stored == run("inspect", out, "--json").json["bytes"]
    assert result["skipped"] == 0
    assert result["seconds"] > 0
    answer = run(*command, "--overwrite")
    assert "rows 3,000" in answer.lines
    assert answer.stderr == ""


def test_options_reach_ingest(run, tmp_path):
    source = tmp_path / "reviews.tsv"
    source.write_text("id\topinion\twords\n1\tgood\tso very good\n2\tbad\tso very bad\n")
    arguments = [
        "ingest", source, "--format", "text", "--hash-bits", 12, "--ngrams", 2, "--binary",
        "--norm", "l2", "--label", "opinion", "--text-column", 2, "--delimiter", "tab",
    ]  # fmt: skip
    result = run(*arguments, "--out", tmp_path / "a", "--json").json
    assert (result["rows"], result["features"], result["nnz"]) == (2, 4096, 10)
    schema = open_dataset(str(tmp_path / "a")).schema
    assert schema.label_columns[0].names == ("bad", "good")
    assert schema.feature_space["norm"] == "l2"
    assert schema.feature_space["ngrams"] == 2
    assert "there is a dataset" in run(*arguments, "--out", tmp_path / "a").error
    assert run(*arguments, "--out", tmp_path / "a", "--overwrite").code == 0


def test_wrong_rows_and_sources_are_an_error_or_counted(run, tmp_path):
    source = tmp_path / "data.svmlight"
    source.write_text("+1 1:1 2:1\n-1 1:x\n-1 2:1\n")
    options = ["--out", tmp_path / "data", "--one-based"]
    error = run("ingest", source, *options).error
    assert "data.svmlight" in error
    assert "line 2" in error
    assert run("ingest", source, *options, "--on-error", "skip", "--json").json["skipped"] == 1
    assert "none.svmlight" in run("ingest", tmp_path / "none.svmlight", *options).error


@pytest.mark.parametrize("header", ["--header", "--no-header"])
def test_delimiters_and_headers(run, tmp_path, header):
    source = tmp_path / "rows.txt"
    source.write_text("1,0.5\n0,0.25\n")
    options = ("--format", "csv", "--delimiter", "comma", header, "--json")
    result = run("ingest", source, *options, "--out", tmp_path / "d").json
    assert result["rows"] == (1 if header == "--header" else 2)


def test_every_parameter_and_format_has_an_option():
    parameters = set(inspect.signature(ingest).parameters) - {"progress"}
    assert parameters == {option.name for option in module.ingest.params} - {
        "as_json", "quiet", "no_shuffle",
    }  # fmt: skip
    assert module.FORMATS == FORMATS
