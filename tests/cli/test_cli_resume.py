"""``dadagrad resume`` and ``dadagrad train --or-resume``, after a stop of any kind."""

import json
import os
import signal
import subprocess
import sys

import pytest

from dadagrad import Model, ingest, train

SETTINGS = {"batch_size": 100, "step_size": 0.2, "passes": 3}
OPTIONS = ("--batch-size", "100", "--step-size", "0.2", "--passes", "3")


@pytest.fixture(scope="module")
def whole_digest(places):
    return train(str(places.train), **SETTINGS).model.digest


@pytest.mark.parametrize(
    ("stop", "command"), [(signal.SIGINT, "resume"), (signal.SIGHUP, "train --or-resume")]
)
def test_a_stopped_run_resumes_to_the_same_bits(
    run, stop_after, places, tmp_path, stop, command, whole_digest
):
    model, folder = tmp_path / "m", tmp_path / "my run"
    begin = ("train", places.train, "--model", model, "--checkpoints", folder)
    stop_after(4000, stop)
    stopped = run(*begin, *OPTIONS, "--json")
    assert stopped.code == 128 + stop
    assert stopped.stderr.splitlines()[-1].endswith(f"go on with `dadagrad resume '{folder}'`")
    result = json.loads(stopped.stdout)
    assert (result["complete"], result["model"]) == (False, None)
    assert 4000 <= result["rows"] < 9000
    assert not (model / "model.json").exists()
    again = (*begin, *OPTIONS, "--or-resume")
    resumed = run(*(("resume", folder) if command == "resume" else again), "--threads", 1, "--json")
    assert f"resuming after {result['rows']:,} rows" in resumed.stderr
    shown = resumed.json
    assert (shown["complete"], shown["rows"], shown["model"]) == (True, 9000, str(model))
    assert shown["digest"] == whole_digest == Model.load(model).digest


def test_a_trace_replaces_a_file_if_asked_or_if_its_job_restarts(run, stop_after, places, tmp_path):
    folder, trace = tmp_path / "c", tmp_path / "trace.json"
    trace.write_text("mine")
    options = ("--checkpoints", folder, "--trace", trace, *OPTIONS)
    command = ("train", places.train, "--model", tmp_path / "m", *options)
    refusal = f"there is a file at {trace} already; give another name, or --overwrite"
    assert refusal in run(*command).error
    assert (trace.read_text(), folder.exists()) == ("mine", False)
    stop_after(4000, signal.SIGINT)
    assert run(*command, "--overwrite").code == 128 + signal.SIGINT
    first = trace.read_text()
    assert refusal in run("resume", folder, "--trace", trace).error
    assert trace.read_text() == first
    assert run(*command, "--or-resume").code == 0
    assert trace.read_text() != first


def test_a_run_that_stops_by_a_raw_file_goes_on_in_another_folder(
    run, stop_after, places, tmp_path, monkeypatch
):
    monkeypatch.chdir(places.text.parent)
    command = (
        "train", places.train, "--passes", 20, "--early-stopping", "--holdout", places.text.name,
        "--step-size", 5, "--model", tmp_path / "m",
    )  # fmt: skip
    expected = run(*command, "--json").json
    losses = expected["holdout"]["loss_of_pass"]
    assert 1 < len(losses) < 20
    stop_after(4000, signal.SIGINT)
    stopped = run(*command, "--overwrite", "--checkpoints", tmp_path / "c")
    assert stopped.code == 128 + signal.SIGINT
    monkeypatch.chdir(tmp_path)
    resumed = run("resume", "c", "--json").json
    assert resumed["holdout"]["loss_of_pass"] == losses
    assert resumed["digest"] == expected["digest"]


def test_a_job_that_restarts_with_other_settings_is_refused(run, places, tmp_path):
    command = ("train", places.train, "--model", tmp_path / "m", "--checkpoints", tmp_path / "c")
    settings = ("--passes", 2, "--step-size", 0.2, "--loss", "logistic")
    digest = run(*command, *settings, "--json").json["digest"]
    error = run(*command, *settings[2:], "--or-resume", "--l1", 0.5).error
    assert error.startswith(f"the run at {tmp_path / 'c'} has other settings: ")
    assert "l1 is 0.0 there and 0.5 here, passes is 2 there and 1 here; give the same" in error
    same = (*command, *settings, "--or-resume")
    for options, message in (
        (("--model", places.test), "holds a dataset; give --model a folder of its own"),
        (("--holdout", tmp_path / "none"), "no dataset at"),
    ):
        answer = run(*same, *options)
        assert message in answer.error  # alone: the run is not resumed before
    # The step size of the run was given, and "auto" stands for any.
    again = run(*command, "--passes", 2, "--loss", "logistic", "--or-resume", "--json")
    assert again.json["digest"] == digest == Model.load(tmp_path / "m").digest


@pytest.mark.parametrize(
    "stop", [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)]
)
def test_a_signal_to_all_processes_lets_workers_finish_the_round(
    run, places, tmp_path, stop, whole_digest
):
    """A terminal and a batch system signal all processes of the group: workers too."""
    command = [sys.executable, "-m", "dadagrad", "train", str(places.train), "--model", "m"]
    process = subprocess.Popen(
        [*command, *OPTIONS, "--checkpoints", "c", "--checkpoint-every", "2", "--workers", "1"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    saved = 0
    while saved < 2:  # the first is the beginning of the run
        line = process.stderr.readline()
        assert line, "the run ended before it could be stopped"
        saved += line.startswith("saved the checkpoint of step ")
    os.killpg(process.pid, stop)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 128 + stop
    assert not {"Traceback", "warning:"} & set(messages.split())
    assert messages.splitlines()[-1].endswith("go on with `dadagrad resume c`")
    assert run("resume", tmp_path / "c", "--json").json["digest"] == whole_digest


def test_a_run_that_is_stopped_without_checkpoints_says_so(run, stop_after, places, tmp_path):
    stop_after(6000, signal.SIGINT)
    answer = run("train", places.train, "--model", tmp_path / "m", *OPTIONS)
    assert (answer.code, answer.stdout) == (130, "")
    line = answer.stderr.splitlines()[-1]
    assert line.startswith("dadagrad: error: stopped after ")
    assert "give --checkpoints URL" in line
    assert not (tmp_path / "m/model.json").exists()


def test_a_complete_run_is_left_alone_and_makes_the_same_model_again(run, places, tmp_path):
    model, folder = tmp_path / "m", tmp_path / "c"
    command = ("train", places.train, "--model", model, "--checkpoints", folder, *OPTIONS)
    first = run(*command, "--checkpoint-every", 20, "--keep", 2, "--holdout", places.test, "--json")
    digest = first.json["digest"]
    assert first.json["checkpoints"] == str(folder)
    kept = sorted(folder.rglob("*"))
    assert len(list(folder.glob("manifest-*.json"))) == 2
    (model / "model.json").unlink()
    again = run("resume", folder, "--json")
    assert f"the run at {folder} is complete" in again.stderr
    assert again.json["digest"] == digest == Model.load(model).digest
    assert again.json["holdout"]["error"] == first.json["holdout"]["error"]
    assert run(*command, "--or-resume", "--json").json["digest"] == digest
    assert run("resume", folder, "--model", tmp_path / "n", "--memory", "10kB").code == 0
    assert Model.load(tmp_path / "n").digest == digest
    assert "already holds the checkpoints of a run" in run(*command, "--overwrite").error
    assert sorted(folder.rglob("*")) == kept


def test_resume_needs_checkpoints_the_data_of_the_run_and_a_model(run, places, tmp_path):
    data, folder, model = tmp_path / "data", tmp_path / "c", tmp_path / "m"
    ingest(places.text, str(data))
    digest = train(str(data), checkpoints=str(folder), **SETTINGS).model.digest
    assert "give --model" in run("resume", folder).error
    data.rename(tmp_path / "moved")
    error = run("resume", folder, "--model", model).error
    assert "no dataset at" in error
    assert error.endswith("; if the dataset of the run was moved, give --data URL")
    options = ("--model", model, "--json", "--data")
    assert run("resume", folder, *options, tmp_path / "moved").json["digest"] == digest
    assert "--overwrite" in run("resume", folder, *options, tmp_path / "moved").error
    options = ("--overwrite", *options)
    assert "its digest is" in run("resume", folder, *options, places.train).error
    assert "no checkpoint at" in run("resume", tmp_path / "none").error
    assert "it is a dataset" in run("resume", places.train).error
    error = run("train", places.train, "--model", model, "--or-resume").error
    assert error.startswith("--or-resume needs --checkpoints URL")
