"""``dadagrad train --dry-run`` and ``--memory``."""

import os

import dadagrad


def test_people_get_three_lists_at_most(run, places):
    answer = run("train", places.train, "--dry-run")
    assert answer.stderr == ""
    assert answer.lines[:12] == [
        "", "run", "engine threads", "rows 3,000", "features 400", "outputs 1", "partitions 4",
        "passes 1", "rows of a step 1", "steps 3,000", "", "memory of the coordinator",
    ]  # fmt: skip
    assert "state 4.8 kB" in answer.lines  # the trial may choose the average
    assert "checkpoint" not in answer.stdout


def test_json_is_the_prediction_of_the_library_and_nothing_is_written(run, places, tmp_path):
    checkpoints = str(tmp_path / "run")
    options = ("--batch-size", 50, "--loss", "logistic", "--checkpoints", checkpoints)
    model = ("--model", tmp_path / "model")
    shown = run("train", places.train, "--dry-run", "--json", *options, *model).json
    config = dadagrad.TrainConfig(batch_size=50, loss="logistic")
    library = dadagrad.dry_run(str(places.train), config, checkpoints=checkpoints).to_json()
    for prediction in (shown, library):  # these change from moment to moment
        del prediction["free"], prediction["coordinator"]["process"]
        del prediction["coordinator"]["total"]
    assert shown == library
    assert (shown["engine"], shown["steps"], shown["fits"]) == ("threads", 60, True)
    assert shown["coordinator"]["checkpoint"] == shown["coordinator"]["state"]
    assert os.listdir(tmp_path) == []


def test_a_cluster_is_predicted_and_not_started(run, places):
    cluster = ("--dry-run", "--workers", 2, "--batch-size", 16)
    prediction = run("train", places.train, *cluster, "--json").json
    assert (prediction["engine"], prediction["batch_size"]) == ("cluster", 16)
    worker = prediction["worker"]
    parts = [worker[name] for name in ("libraries", "reading", "step", "cache")]
    assert sum(parts) == worker["total"] < worker["limit"]
    # At most a weight and its id for each of the words of 16 rows.
    assert 16 * 8 < prediction["bytes_per_step"]["down"] < 16 * 20 * 8 + 8
    assert prediction["bytes_per_step"]["up"] > prediction["bytes_per_step"]["down"]
    streams = run("train", places.train, "--dry-run", "--workers", 2).lines
    assert {"rows of a step 1", "streams 16"} <= set(streams)
    assert any(line.startswith("state ") for line in streams[streams.index("memory of a worker") :])
    shown = run("train", places.train, *cluster).stdout
    assert "\nmemory of a worker\n" in shown
    assert "to the workers, for a step" in shown


def test_a_run_that_cannot_fit_is_the_same_error_with_and_without_it(run, places, tmp_path):
    limit = ("--memory", "10kB")
    error = run("train", places.train, "--dry-run", *limit).error
    assert error.startswith("training takes up to ")
    assert "10.0 kB are allowed: " in error
    assert run("train", places.train, "--model", tmp_path / "m", *limit).error == error
    allowed = run("train", places.train, "--dry-run", "--memory", "50MB").lines
    assert allowed[-2].startswith("of it for the run ")
    assert allowed[-1] == "free for the run 50.0 MB"
    assert run("train", places.train, "--model", tmp_path / "m", "--memory", "0.5 GiB").code == 0


def test_memory_must_be_an_amount(run, places):
    for memory in ("much", "0", "-1GB", "1 XB", "1e400", ""):
        error = run("train", places.train, "--dry-run", "--memory", memory).error
        assert "is not an amount of memory" in error
