"""``dadagrad train --dry-run`` and ``--memory``."""

from __future__ import annotations

import os

import pytest

import dadagrad


def test_people_get_three_lists_at_most(run, places):
    answer = run("train", places.train, "--dry-run")
    assert answer.stderr == ""
    run_list, memory = answer.stdout.split("\n\n")
    assert (
        run_list
        == """
run
  engine          threads
  rows            3,000
  features        400
  outputs         1
  partitions      4
  passes          1
  rows of a step  1
  steps           3,000"""
    )
    lines = [" ".join(line.split()) for line in memory.splitlines()]
    assert lines[0] == "memory of the coordinator"
    assert "state 3.2 kB" in lines
    assert not [line for line in lines if "checkpoint" in line]


def test_json_is_the_prediction_of_the_library(run, places, tmp_path):
    options = ("--batch-size", 50, "--loss", "logistic", "--checkpoints", tmp_path / "run")
    shown = run("train", places.train, "--dry-run", "--json", *options).json
    library = dadagrad.dry_run(
        str(places.train),
        dadagrad.TrainConfig(batch_size=50, loss="logistic"),
        checkpoints=str(tmp_path / "run"),
    ).to_json()
    for prediction in (shown, library):  # these change from moment to moment
        del prediction["free"], prediction["coordinator"]["process"]
        del prediction["coordinator"]["total"]
    assert shown == library
    assert (shown["engine"], shown["steps"], shown["fits"]) == ("threads", 60, True)
    assert shown["coordinator"]["checkpoint"] == shown["coordinator"]["state"]


def test_a_cluster_is_predicted_and_not_started(run, places):
    prediction = run("train", places.train, "--dry-run", "--json", "--workers", 2).json
    assert (prediction["engine"], prediction["batch_size"]) == ("cluster", 16)
    worker = prediction["worker"]
    parts = [worker[name] for name in ("libraries", "reading", "step", "cache")]
    assert sum(parts) == worker["total"] < worker["limit"]
    # At most a weight and its id for each of the words of 16 rows.
    assert 16 * 8 < prediction["bytes_per_step"]["down"] < 16 * 20 * 8 + 8
    assert prediction["bytes_per_step"]["up"] > prediction["bytes_per_step"]["down"]
    shown = run("train", places.train, "--dry-run", "--workers", 2).stdout
    assert "\nmemory of a worker\n" in shown
    assert "to the workers, for a step" in shown


def test_nothing_is_written(run, places, tmp_path):
    before = sorted(os.listdir(places.train.parent))
    options = ("--model", tmp_path / "model", "--checkpoints", tmp_path / "run", "--json")
    assert run("train", places.train, "--dry-run", *options).json["fits"]
    assert os.listdir(tmp_path) == []
    assert sorted(os.listdir(places.train.parent)) == before


def test_a_run_that_cannot_fit_is_the_same_error_with_and_without_it(run, places, tmp_path):
    limit = ("--memory", "10kB")
    error = run("train", places.train, "--dry-run", *limit).error
    assert error.startswith("training takes up to ")
    assert "memory=10.0 kB allows less: " in error
    assert run("train", places.train, "--model", tmp_path / "m", *limit).error == error
    assert run("train", places.train, "--model", tmp_path / "m", "--memory", "0.5 GiB").code == 0


@pytest.mark.parametrize("options", [("--dry-run",), ("--model", "unused")])
def test_too_many_features_are_one_error(run, tmp_path, options):
    (tmp_path / "rows.svmlight").write_text("1 5:1\n-1 7:1\n" * 20)
    data = tmp_path / "data"
    run("ingest", tmp_path / "rows.svmlight", "--out", data, "--n-features", 1 << 40)
    error = run("train", data, *options).error
    for part in ("1,099,511,627,776 features", "are free: ", "--hash-bits"):
        assert part in error


@pytest.mark.parametrize("memory", ["much", "0", "-1GB", "1 XB", ""])
def test_memory_must_be_an_amount(run, places, memory):
    error = run("train", places.train, "--dry-run", "--memory", memory).error
    assert "is not an amount of memory" in error


def test_resume_respects_the_limit_of_memory(run, places, tmp_path):
    options = ("--model", tmp_path / "model", "--checkpoints", tmp_path / "run")
    assert run("train", places.train, *options, "--step-size", 0.1).code == 0
    assert run("resume", tmp_path / "run", "--memory", "10kB").code == 0  # the run is complete
