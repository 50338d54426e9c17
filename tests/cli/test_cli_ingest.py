"""``dadagrad ingest``."""

from __future__ import annotations

import inspect

import pytest

from dadagrad.cli import ingest as module
from dadagrad.data import open_dataset
from dadagrad.data.ingest.ingest import ingest
from dadagrad.data.ingest.options import FORMATS


def test_json_says_what_was_done(run, places, tmp_path):
    out = tmp_path / "data"
    result = run("ingest", places.text, "--out", out, "--partition-nnz", 20_000, "--json").json
    data = open_dataset(str(out))
    assert list(result) == [
        "rows", "features", "nnz", "partitions", "source_bytes", "bytes", "seconds", "skipped",
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


def test_people_get_lines(run, places, tmp_path):
    answer = run("ingest", places.text, "--out", tmp_path / "data")
    assert answer.code == 0
    assert "rows          3,000\n" in answer.stdout
    assert answer.stderr == ""


def test_options_reach_ingest(run, tmp_path):
    source = tmp_path / "reviews.tsv"
    source.write_text("id\topinion\twords\n1\tgood\tso very good\n2\tbad\tso very bad\n")
    arguments = [
        "ingest", source, "--format", "text", "--hash-bits", 12, "--ngrams", 2, "--binary",
        "--norm", "l2", "--label-column", "opinion", "--text-column", 2,
    ]  # fmt: skip
    result = run(*arguments, "--out", tmp_path / "a", "--json").json
    assert (result["rows"], result["features"], result["nnz"]) == (2, 4096, 10)
    schema = open_dataset(str(tmp_path / "a")).schema
    assert schema.label_columns[0].names == ("bad", "good")
    assert schema.feature_space["norm"] == "l2"
    assert schema.feature_space["ngrams"] == 2
    assert "there is a dataset" in run(*arguments, "--out", tmp_path / "a").error
    assert run(*arguments, "--out", tmp_path / "a", "--overwrite").code == 0


def test_wrong_rows_are_an_error_or_counted(run, tmp_path):
    source = tmp_path / "data.svmlight"
    source.write_text("+1 1:1 2:1\n-1 1:x\n-1 2:1\n")
    arguments = ["ingest", source, "--out", tmp_path / "data", "--one-based"]
    error = run(*arguments).error
    assert "data.svmlight" in error
    assert "line 2" in error
    assert run(*arguments, "--on-error", "skip", "--json").json["skipped"] == 1


def test_missing_source(run, tmp_path):
    error = run("ingest", tmp_path / "none.svmlight", "--out", tmp_path / "data").error
    assert "none.svmlight" in error


def test_every_parameter_has_an_option():
    parameters = set(inspect.signature(ingest).parameters) - {"progress"}
    assert parameters == {option.name for option in module.ingest.params} - {"as_json", "quiet"}


def test_formats_are_those_of_the_readers():
    assert module.FORMATS == FORMATS


@pytest.mark.parametrize("given", [(["--delimiter", "comma"], ","), (["--delimiter", "tab"], "\t")])
def test_delimiters_by_name(run, tmp_path, given):
    arguments, delimiter = given
    source = tmp_path / "rows.txt"
    source.write_text(f"1{delimiter}0.5\n0{delimiter}0.25\n")
    result = run(
        "ingest", source, "--format", "csv", *arguments, "--no-header", "--out", tmp_path / "d",
        "--json",
    ).json  # fmt: skip
    assert (result["rows"], result["nnz"]) == (2, 2)
