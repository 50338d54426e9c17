"""``dadagrad ingest``."""

import inspect
import os
import re
from threading import Thread

from dadagrad import ingest, open_dataset
from dadagrad.cli import ingest as module
from dadagrad.data.reading.options import OPTIONS


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
    assert schema.feature_space.plain["norm"] == "l2"
    assert schema.feature_space.plain["ngrams"] == 2
    assert "there is a dataset" in run(*arguments, "--out", tmp_path / "a").error
    assert run(*arguments, "--out", tmp_path / "a", "--overwrite").code == 0


def test_every_parameter_has_an_option():
    parameters = set(inspect.signature(ingest).parameters) - {"progress", "options"}
    parameters |= OPTIONS.keys()
    assert parameters == {option.name for option in module.ingest.params} - {
        "as_json", "quiet", "no_shuffle", "help_all",
    }  # fmt: skip


TABLE = "age,job,y\n" + "".join(f"{age},{job},{age % 2}\n" for age in range(30) for job in "ab")


def test_rows_that_are_left_out_are_named_and_counted(run, tmp_path):
    rows = TABLE.splitlines(keepends=True)
    bad = "".join([*rows[:4], "1,2\n", *rows[4:], "x,a,1\n", "7,a,\n", "y,a,0\n"])
    svmlight = "1 1:1\n1 2:x\nfoo\n0 2:1\n"
    for name, text, lines, skipped in (
        ("a.csv", bad, (5, 63, 65), 4),
        ("b.svm", svmlight, (2,), 2),
        ("c.jsonl", '{"y":1,"a":1}\n{\n{"y":0,"a":2}\n', (2,), 1),
    ):
        source = tmp_path / name
        source.write_text(text)
        options = ("--on-error", "skip", "--label", "y")[: 2 if "svm" in name else 4]
        result = run("ingest", source, "--out", tmp_path / f"{name}.out", *options)
        said = re.findall(r"warning: left out .*, line (\d+): ", result.stderr)
        assert sorted(map(int, said)) == list(lines)
        counted = f"left out {skipped} wrong rows in all" in result.stderr
        assert counted == (skipped > len(lines))


def test_errors_name_options_and_not_parameters(run, tmp_path):
    source = tmp_path / "table.csv"
    source.write_text(TABLE)
    command = ("ingest", source, "--out", tmp_path / "out")
    assert run(*command, "--hash-bits", 99).error.startswith("--hash-bits is 99")
    assert run(*command, "--n-features", 0).error.startswith("--n-features must be a whole number")
    assert run(*command, "--multilabel").error.startswith("--multilabel is True")


def test_a_raw_table_is_trained_on_in_one_command(run, tmp_path):
    source, other = tmp_path / "raw.data", tmp_path / "more.data"  # the suffix says nothing
    source.write_text(TABLE)
    other.write_text(TABLE.partition("\n")[2])
    command = ("train", source, "--step-size", 0.5)
    result = run(*command, "--label", "y", "--model", tmp_path / "m", "--holdout", other)
    assert "label: column 2 'y' (0 30, 1 30); " in result.stderr
    assert "holdout more.data" in result.stdout
    more = ("train", other, "--initial-model", tmp_path / "m", "--model", tmp_path / "n", "--json")
    assert run(*more).json["rows"] == 60
    assert "no column 'z'" in run(*command, "--label", "z", "--model", tmp_path / "o").error
    kept = run(*command, "--model", "o", "--checkpoints", "c")
    assert "--checkpoints needs a dataset" in kept.error
    run("ingest", source, "--label", "y", "--out", tmp_path / "d")
    error = run("train", tmp_path / "d", "--label", 2, "--model", "o").error
    assert "--label says how rows become features" in error


def test_a_raw_table_is_trained_on_by_workers_with_the_same_bits(run, tmp_path, monkeypatch):
    """Rows are written for them to a temporary dataset, of which nothing is left."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "raw.csv").write_text(TABLE)
    command = ("train", tmp_path / "raw.csv", "--label", "y", "--step-size", 0.5, "--json")
    here, alone, there = (
        run(*command, "--model", tmp_path / f"{number}", *options).json["digest"]
        for number, options in enumerate(
            (("--streams", 2), ("--streams", 1), ("--streams", 2, "--workers", 1))
        )
    )
    assert there == here != alone
    assert not list(tmp_path.glob("dadagrad-*"))


def test_people_read_only_what_applies(run, tmp_path):
    (tmp_path / "a.vw").write_text("1 | a\n-1 | b\n" * 20)
    (tmp_path / "b.csv").write_text("label,x\n" + "1,2\n0,3\n" * 20 + "0,red\n")
    answers = [
        run("ingest", tmp_path / name, "--out", tmp_path / "out", "--overwrite", *more).stdout
        for name, more in (("a.vw", ()), ("b.csv", ("--on-error", "skip")))
    ]
    assert "columns     label: -1 20, 1 20\n" in answers[0]
    assert "collisions" not in answers[0]
    assert "left out    1 row\n" in answers[1]
    assert "collisions  0\n" in answers[1]
    assert "read        260 bytes in " in answers[0]
    os.mkfifo(tmp_path / "pipe")
    Thread(target=(tmp_path / "pipe").write_text, args=("1 | a\n-1 | b\n",)).start()
    answer = run("ingest", tmp_path / "pipe", "--format", "vw", "--out", tmp_path / "piped")
    assert "read        in " in answer.stdout
