"""Whatever is wrong with the input is one line that says what and where, and exit code 2."""

import gzip
import io
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from helpers.line_formats import COMPRESS
from helpers.processes import free_port
from helpers.servers import BUCKET, rclone_server

from dadagrad.cli import dadagrad
from dadagrad.data.synthetic import Corpus

FEATURES = 200


def run(*arguments):
    """The result of ``dadagrad ARGUMENTS`` in this process; only expected failures are caught."""
    result = CliRunner().invoke(dadagrad, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def error_of(*arguments):
    """The one line that a command fails with."""
    result = run(*arguments)
    assert result.exit_code == 2, (result.stdout, result.stderr)
    assert result.stdout == ""
    *before, last = result.stderr.splitlines()
    assert last.startswith("dadagrad: error: ")
    assert not any("error:" in line or "Traceback" in line for line in before)
    return str(last)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the dataset ``data``, ``other`` data, a ``model`` and ``run``, its run."""
    folder = tmp_path_factory.mktemp("made")
    for name, part in (("data", 0), ("other", 1)):
        Corpus(600, FEATURES, 10.0, seed=1, part=part).write_text(folder / f"{name}.svmlight")
        ingest = ["ingest", folder / f"{name}.svmlight", "--out", folder / name]
        assert run(*ingest, "--n-features", FEATURES, "--partition-nnz", 3000).exit_code == 0
    train = ["train", folder / "data", "--model", folder / "model", "--step-size", 0.3]
    assert run(*train, "--checkpoints", folder / "run", "--checkpoint-every", 200).exit_code == 0
    return folder


def parquet(**changes):
    columns = {"indices": [[0, 2], [1]], "values": [[1.0, 2.0], [1.0]], "label": [0.0, 1.0]}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns | changes), sink)
    return sink.getvalue()


def parquet_twice():
    sink = io.BytesIO()
    columns = [pa.array([0, 1])] * 3
    pq.write_table(pa.Table.from_arrays(columns, names=["label", "x", "x"]), sink)
    return sink.getvalue()


def npz(**changes):
    arrays = {
        "data": np.ones(3), "indices": [0, 2, 1], "indptr": [0, 2, 3], "shape": [2, 3],
        "labels": [0.0, 1.0],
    }  # fmt: skip
    sink = io.BytesIO()
    np.savez(sink, **{name: np.asarray(array) for name, array in (arrays | changes).items()})
    return sink.getvalue()


# One bad file for each reader; the tests of a reader have all its messages.
BAD_FILES: list[tuple[str, str | bytes, list[str]]] = [
    ("a.svmlight", "1 1:1\n0 2:nan\n", ["line 2", "feature '2'", "'nan'", "finite"]),
    ("a.vw", "1 | 1:1\n0 | 2:1e39\n", ["line 2", "feature '2'", "'1e39'", "too large"]),
    ("a.tsv", "1\tgood day\nnan\tbad day\n", ["line 2", "nan", "column 0"]),
    ("a.csv", "label,x\n" + "1,2\n" * 20 + "0,red\n", ["line 22", "'x'", "'red'", "--categories"]),
    ("a.csv", "label/x\n1/2\n", ["one column", "'label/x'", "--delimiter"]),
    ("a.csv", "label;x\n" + "1;2,5\n" * 20, ["column 'x'", "'2,5'", "a point", "--categories"]),
    ("a.csv", "label;x\n" + "1;999\n0;1,200\n" * 20, ["column 'x'", "'1,200'", "a point"]),
    ("a.tsv", "label\tx\n" + "1\t$1,234.50\n0\t$7\n" * 20, ["column 'x'", "'$1,234.50'"]),
    ("a.csv", "label,x\n" + "1,4.5 %\n0,3 %\n" * 20, ["column 'x'", "'4.5 %'", "percent"]),
    (
        "a.csv",
        "label,x\n" + "1,2\n" * 20 + ",2\n",
        ["line 22", "label, column 'label', is missing"],
    ),
    ("a.csv", "label,x\n1,2\n".encode("utf-16"), ["UTF-16", "iconv"]),
    ("a.json", '[{"label": 1, "x": 2}]', ["JSON array", "one object a line"]),
    ("a.jsonl", '{"label": 1, "x": 2, "x": 3}\n', ["line 1", "/x", "twice"]),
    ("a.jsonl", '{"label": 1, "x": 2} {"label": 1}\n', ["2 JSON objects in 1 lines"]),
    ("a.npz", npz(data=[1, 1, 1e39]), ["row 1", "feature 1", "1e+39"]),
    ("a.npz", npz(weights=["a", "b"]), ["a.npz", "a weight is not a number"]),
    ("a.parquet", parquet(values=[[1, float("nan")], [1]]), ["row group 0", "feature 2", "nan"]),
    ("a.parquet", parquet_twice(), ["names the column 'x' twice"]),
    # no rows, or no file of that format
    ("a.csv.gz", gzip.compress(b""), ["no rows"]),
    ("a.npz", npz(data=[], indices=[], indptr=[0], shape=[0, 3], labels=[]), ["no rows"]),
    ("a.parquet", parquet(weight=[0.0, 0.0]), ["no rows", "2 have weight 0"]),
    ("a.npz", b"something else", ["not a zip file"]),
    ("a.parquet", b"", ["not a whole Parquet file"]),
    ("a.h5ad", b"", ["cannot read"]),
]


def test_a_bad_file_is_named_with_the_place_and_the_reason(tmp_path):
    for name, content, said in BAD_FILES:
        check_ingest(tmp_path, name, content, said)


def check_ingest(folder, name, content, said):
    source, out = folder / name, folder / "out"
    source.write_bytes(content.encode() if isinstance(content, str) else content)
    error = error_of("ingest", source, "--out", out)
    assert all(words in error for words in [name, *said]), error
    assert not out.exists()


@pytest.mark.parametrize("kind", COMPRESS)
def test_compressed_files_that_are_cut_or_damaged(tmp_path, kind):
    whole = COMPRESS[kind](b"1 1:1\n0 2:1\n" * 500) * 2  # two streams, one after the other
    name, half = f"a.svmlight.{kind}", len(whole) // 2
    damaged = bytearray(whole)
    damaged[half : half + 4] = b"oops"
    for content in (whole[: half // 2], whole[:-3], bytes(damaged), whole + b"garbage"):
        check_ingest(tmp_path, name, content, ["damaged or cut short", "whole copy"])
    (tmp_path / name).write_bytes(whole)
    result = run("ingest", tmp_path / name, "--out", tmp_path / "out", "--json")
    assert json.loads(result.stdout)["rows"] == 2000


def test_a_missing_bucket_and_an_endpoint_that_does_not_answer(made, tmp_path, monkeypatch):
    gone = "s3://no-such-bucket/it"
    with rclone_server(tmp_path) as server:
        server.set_environment(monkeypatch)
        for command in commands(made, gone):
            assert "there is no such bucket" in error_of(*command), command
            assert "s3://no-such-bucket" in error_of(*command)
        assert run("evaluate", made / "model", f"s3://{BUCKET}/none").exit_code == 2
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    assert "AWS_ENDPOINT_URL" in error_of("evaluate", made / "model", gone)


def commands(made, url):
    """One command for each way to use `url`."""
    train = ["train", made / "data", "--step-size", 0.3]
    return [
        ["ingest", made / "data.svmlight", "--out", url],
        [*train, "--model", url],
        [*train, "--model", made / "m", "--checkpoints", url],
        ["train", url, "--model", made / "m"],
        ["evaluate", made / "model", url],
        ["predict", made / "model", made / "data", "--out", url],
        ["resume", url],
    ]


def test_output_that_nobody_reads_or_that_has_no_place(made):
    command = [sys.executable, "-m", "dadagrad", "inspect", str(made / "model")]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert done.stderr == ""
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("dadagrad: error: No space left on device")


def test_paths_with_spaces_umlauts_tildes_and_slashes(made, tmp_path, monkeypatch):
    home = tmp_path / "my höme"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    shutil.copy(made / "data.svmlight", home / "zwölf rows.svmlight")
    for command in (
        ["ingest", "~/zwölf rows.svmlight", "--out", "~/the data/", "--n-features", FEATURES],
        ["train", "the data/", "--model", "./a model/", "--checkpoints", "~/ck ü", "--l1", 1e-6],
        ["resume", "ck ü/"],
        ["evaluate", "~/a model", "./the data"],
        ["predict", "a model", "the data", "--out", "~/né w.parquet"],
        ["inspect", "~/ck ü"],
    ):
        result = run(*command, "--json")
        assert result.exit_code == 0, result.stderr
        assert isinstance(json.loads(result.stdout), dict)
    assert (home / "né w.parquet").is_file()


def test_files_of_several_formats_are_named(tmp_path):
    (tmp_path / "a.csv").write_text("label,x\n0,1\n1,2\n")
    (tmp_path / "b.jsonl").write_text('{"label": 1, "x": 2}\n')
    for command in (["train", "--model", tmp_path / "m"], ["ingest", "--out", tmp_path / "d"]):
        error = error_of(*command, tmp_path / "a.csv", tmp_path / "b.jsonl")
        assert "a.csv is csv and" in error
        assert "b.jsonl is jsonl; files that are read together have one format" in error
