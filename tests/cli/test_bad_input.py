"""Whatever is wrong with the input is one line that says what and where, and exit code 2."""

import gzip
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from helpers import array_files
from helpers.line_formats import COMPRESS
from helpers.processes import free_port, run_python
from helpers.servers import BUCKET, rclone_server


def npz(**changes):
    arrays = {"data": np.ones(3), "indices": [0, 2, 1], "indptr": [0, 2, 3], "shape": [2, 3]}
    return array_files.npz(**arrays | {"labels": [0.0, 1.0]} | changes)


def parquet(**changes):
    columns = {"indices": [[0, 2], [1]], "values": [[1.0, 2.0], [1.0]], "label": [0.0, 1.0]}
    return array_files.parquet(columns | changes)


TWICE = array_files.parquet(pa.Table.from_arrays([pa.array([0, 1])] * 3, ["label", "x", "x"]))
# One bad file for each reader; the tests of a reader have all its messages.
BAD_FILES = [
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
    ("a.csv", "label,x\n1,2\n".encode("utf-16"), ["UTF-16", "iconv -f utf-16 "]),
    ("a.csv", "label,x\n1,2\n".encode("utf-16-le"), ["UTF-16", "iconv -f utf-16le "]),
    ("a.vw", "1 | 1:1\n".encode("utf-16-be"), ["UTF-16", "iconv -f utf-16be "]),
    ("a.jsonl", '{"label": 1, "x": 2}\n'.encode("utf-16"), ["UTF-16", "iconv -f utf-16 "]),
    ("a.csv", "label,x\n1,2\n".encode("utf-32"), ["UTF-32", "iconv -f utf-32 "]),
    ("a.csv", "label,x\n1,2\n".encode("utf-32-le"), ["UTF-32", "iconv -f utf-32le "]),
    ("a.vw", "1 | 1:1\n".encode("utf-32-be"), ["UTF-32", "iconv -f utf-32be "]),
    ("a.json", '[{"label": 1, "x": 2}]', ["JSON array", "one object a line"]),
    ("a.jsonl", '{"label": 1, "x": 2, "x": 3}\n', ["line 1", "/x", "twice"]),
    ("a.jsonl", '{"label": 1, "x": 2} {"label": 1}\n', ["2 JSON objects in 1 lines"]),
    ("a.npz", npz(data=[1, 1, 1e39]), ["row 1", "feature 1", "1e+39"]),
    ("a.npz", npz(weights=["a", "b"]), ["a.npz", "a weight is not a number"]),
    ("a.parquet", parquet(values=[[1, float("nan")], [1]]), ["row group 0", "feature 2", "nan"]),
    ("a.parquet", TWICE, ["names the column 'x' twice"]),
    # no rows, or no file of that format
    ("a.csv.gz", gzip.compress(b""), ["no rows"]),
    ("a.npz", npz(data=[], indices=[], indptr=[0], shape=[0, 3], labels=[]), ["no rows"]),
    ("a.parquet", parquet(weight=[0.0, 0.0]), ["no rows", "2 have weight 0"]),
    ("a.npz", b"something else", ["not a zip file"]),
    ("a.parquet", b"", ["not a whole Parquet file"]),
    ("a.h5ad", b"", ["cannot read"]),
]


def test_a_bad_file_is_named_with_the_place_and_the_reason(run, tmp_path):
    for name, content, said in BAD_FILES:
        check_ingest(run, tmp_path, name, content, said)


def check_ingest(run, folder, name, content, said):
    source, out = folder / name, folder / "out"
    source.write_bytes(content.encode() if isinstance(content, str) else content)
    error = run("ingest", source, "--out", out).error
    assert all(words in error for words in [name, *said]), error
    assert not out.exists()


@pytest.mark.parametrize("kind", COMPRESS)
def test_compressed_files_that_are_cut_or_damaged(run, tmp_path, kind):
    whole = COMPRESS[kind](b"1 1:1\n0 2:1\n" * 500) * 2  # two streams, one after the other
    name, half = f"a.svmlight.{kind}", len(whole) // 2
    damaged = bytearray(whole)
    damaged[half : half + 4] = b"oops"
    for content in (whole[: half // 2], whole[:-3], bytes(damaged), whole + b"garbage"):
        check_ingest(run, tmp_path, name, content, ["damaged or cut short", "whole copy"])
    (tmp_path / name).write_bytes(whole)
    assert run("ingest", tmp_path / name, "--out", tmp_path / "out", "--json").json["rows"] == 2000


def test_a_missing_bucket_and_an_endpoint_that_does_not_answer(run, places, tmp_path, monkeypatch):
    gone = "s3://no-such-bucket/it"
    monkeypatch.setattr("dadagrad.storage.retries.FIRST_SECONDS", 0.2)
    with rclone_server(tmp_path) as server:
        server.set_environment(monkeypatch)
        for command in commands(places, tmp_path, gone):
            error = run(*command).error
            assert re.search(r"s3://no-such-bucket\S*: there is no such bucket", error), command
        assert run("evaluate", places.model, f"s3://{BUCKET}/none").code == 2
        assert not (tmp_path / "swept").exists()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    said = run("evaluate", places.model, gone).stderr
    assert "AWS_ENDPOINT_URL" in said.splitlines()[-1]


def test_memory_that_ends_with_the_command_is_refused(run, places, tmp_path):
    for command in commands(places, tmp_path, "memory://it"):
        assert re.search(r"memory://it\S*: it would end with this command", run(*command).error)
    assert list(tmp_path.iterdir()) == []


def commands(places, folder, url):
    """One command for each way to use `url`."""
    train = ["train", places.train, "--step-size", 0.3]
    return [
        ["ingest", places.text, "--out", url],
        [*train, "--model", url],
        [*train, "--model", folder / "m", "--checkpoints", url],
        ["train", url, "--model", folder / "m"],
        ["evaluate", places.model, url],
        ["predict", places.model, places.train, "--out", url],
        ["resume", url],
        ["sweep", *train[1:], "--model", folder / "swept", "--path", f"{url}.csv"],
    ]


def test_output_that_nobody_reads_or_that_has_no_place(places):
    command = ("-m", "dadagrad", "inspect", places.model)
    read, write = os.pipe()
    os.close(read)
    assert run_python(*command, stdout=write, code=1).stderr == ""
    os.close(write)
    with open("/dev/full", "w") as full:
        done = run_python(*command, stdout=full, code=2)
    assert done.stderr.startswith("dadagrad: error: No space left on device")
    shell = ["sh", "-c", '"$0" "$@" >&-', sys.executable, *map(str, command)]
    assert subprocess.run(shell, stderr=subprocess.PIPE).stderr == b""


def test_a_path_may_have_the_name_of_an_option(run, places, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(places.model, "model")
    error = run("train", places.train, "--model", "m", "--checkpoints", "model").error
    assert error == "model holds a model; give --checkpoints a folder of its own"
    error = run("train", places.train, "--model", "file://model").error
    assert error == "file://model names a host; write file:///PATH"
    Path("weight").write_text("good 1:1\n")
    error = run("ingest", "weight", "--format", "svmlight", "--out", "d").error
    assert error.startswith("weight, line 1: label is 'good'")


def test_paths_with_spaces_umlauts_tildes_and_slashes(run, places, tmp_path, monkeypatch):
    home = tmp_path / "my höme"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    shutil.copy(places.text, home / "zwölf rows.svmlight")
    for command in (
        ["ingest", "~/zwölf rows.svmlight", "--out", "~/the data/", "--n-features", 400],
        ["train", "the data/", "--model", "./a model/", "--checkpoints", "~/ck ü", "--l1", 1e-6],
        ["resume", "ck ü/"],
        ["evaluate", "~/a model", "./the data"],
        ["predict", "a model", "the data", "--out", "~/né w.parquet"],
        ["inspect", "~/ck ü"],
    ):
        assert isinstance(run(*command, "--json").json, dict)
    assert (home / "né w.parquet").is_file()
