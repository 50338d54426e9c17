"""``dadagrad train --dry-run`` and ``--memory``."""

from __future__ import annotations

import os

import pytest

import dadagrad


def test_people_get_tables(run, places):
    answer = run("train", places.train, "--dry-run")
    assert answer.code == 0, answer.stderr
    assert answer.stderr == ""
    lines = [" ".join(line.split()) for line in answer.stdout.splitlines()]
    for line in (
        "engine threads", "rows 3,000", "features 400", "outputs 1", "rows of a step 1",
        "steps 3,000",
    ):  # fmt: skip
        assert line in lines
    assert any(line.startswith("state 3.2 kB") for line in lines)
    assert any(line.startswith("at the worst moment ") for line in lines)
    assert any(line.startswith("free now ") for line in lines)
    assert "worker" not in answer.stdout
    assert "checkpoint" not in answer.stdout


def test_programs_get_one_object(run, places):
    found = run("train", places.train, "--dry-run", "--json", "--passes", "3").json
    assert found["fits"] is True
    assert found["problem"] is None
    assert (found["engine"], found["batch_size"], found["steps"]) == ("threads", 1, 9000)
    assert (found["rows"], found["features"], found["outputs"]) == (3000, 400, 1)
    assert (found["worker"], found["bytes_per_step"]) == (None, None)
    parts = found["coordinator"]
    assert parts["state"] == 2 * 4 * 400 + 2 * 8
    assert parts["checkpoint"] == 0
    assert parts["process"] < parts["total"] < found["free"] + parts["process"]


def test_it_is_what_the_library_says(run, places, tmp_path):
    from dadagrad import TrainConfig

    given = ("--batch-size", 50, "--loss", "logistic", "--checkpoints", tmp_path / "run")
    printed = run("train", places.train, "--dry-run", "--json", *given).json
    config = TrainConfig(batch_size=50, loss="logistic")
    known = dadagrad.dry_run(str(places.train), config, checkpoints=str(tmp_path / "run"))
    expected = known.to_json()
    # These are of the moment.
    for found in (printed, expected):
        del found["free"], found["coordinator"]["process"], found["coordinator"]["total"]
    assert printed == expected
    assert printed["coordinator"]["checkpoint"] == printed["coordinator"]["state"]


def test_a_cluster_is_not_started_for_it(run, places):
    found = run("train", places.train, "--dry-run", "--json", "--workers", 2).json
    assert found["engine"] == "cluster"
    assert found["batch_size"] == 16
    worker = found["worker"]
    assert worker["total"] == sum(
        worker[part] for part in ("libraries", "reading", "step", "cache")
    )
    assert worker["limit"] > worker["total"]
    # At most a weight, and where it belongs, for each of 16 rows' words.
    assert 16 * 8 < found["bytes_per_step"]["down"] < 16 * 20 * 8 + 8
    assert found["bytes_per_step"]["up"] > found["bytes_per_step"]["down"]
    shown = run("train", places.train, "--dry-run", "--workers", 2)
    assert "memory of a worker" in shown.stdout
    assert "to the workers, for a step" in shown.stdout


def test_nothing_is_done(run, places, tmp_path):
    before = sorted(os.listdir(places.train.parent))
    model, checkpoints = tmp_path / "model", tmp_path / "run"
    answer = run(
        "train", places.train, "--dry-run", "--model", model, "--checkpoints", checkpoints, "--json"
    )
    assert answer.json["fits"]
    assert os.listdir(tmp_path) == []
    assert sorted(os.listdir(places.train.parent)) == before


def test_what_cannot_fit_is_an_error_of_one_line(run, places, tmp_path):
    dry = run("train", places.train, "--dry-run", "--memory", "10kB").error
    assert dry.startswith("training takes up to ")
    assert "memory=10 kB allows less: " in dry
    wet = run("train", places.train, "--model", tmp_path / "model", "--memory", "10kB").error
    assert wet == dry
    answer = run("train", places.train, "--model", tmp_path / "model", "--memory", "0.5 GiB")
    assert answer.code == 0


def test_too_many_features_are_an_error_of_one_line(run, tmp_path):
    source = tmp_path / "rows.svmlight"
    source.write_text("1 5:1\n-1 7:1\n" * 20)
    data = tmp_path / "data"
    assert run("ingest", source, "--out", data, "--n-features", 1 << 40).code == 0
    for given in (("--dry-run",), ("--model", tmp_path / "model")):
        error = run("train", data, *given).error
        assert "1,099,511,627,776 features" in error
        assert "are free: " in error
        assert "--hash-bits" in error


@pytest.mark.parametrize("memory", ["much", "0", "-1GB", "1 XB", ""])
def test_an_amount_of_memory_that_is_none(run, places, memory):
    assert (
        "is no amount of memory"
        in run("train", places.train, "--dry-run", "--memory", memory).error
    )


def test_without_it_a_model_is_needed(run, places):
    assert "Missing option '--model'" in run("train", places.train).error


def test_resume_takes_no_more_than_it_may(run, places, tmp_path):
    folder = tmp_path / "run"
    given = ("--model", tmp_path / "model", "--checkpoints", folder, "--step-size", 0.1)
    assert run("train", places.train, *given, "--passes", 1).code == 0
    # A complete run takes nothing more.
    assert run("resume", folder, "--memory", "10kB").code == 0
