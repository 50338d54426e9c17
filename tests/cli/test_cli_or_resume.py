"""``dadagrad train --or-resume``: the same command starts and restarts a job."""

from __future__ import annotations

import signal

from dadagrad import train
from dadagrad.training.messages import Report

SETTINGS = {"batch_size": 100, "step_size": 0.2, "passes": 2}
OPTIONS = ("--batch-size", 100, "--step-size", 0.2, "--passes", 2)


def test_a_new_run_starts_and_a_complete_run_is_left_alone(run, places, tmp_path):
    folder = tmp_path / "c"
    command = ("train", places.train, "--model", tmp_path / "m", "--checkpoints", folder, *OPTIONS)
    first = run(*command, "--or-resume", "--json").json
    assert (first["complete"], first["rows"]) == (True, 6000)
    manifests = sorted(folder.glob("manifest-*"))
    assert manifests
    assert run(*command, "--or-resume", "--json").json["digest"] == first["digest"]
    assert sorted(folder.glob("manifest-*")) == manifests
    assert "already holds the checkpoints of a run" in run(*command).error


def test_a_stopped_run_resumes_with_its_own_settings(run, places, tmp_path):
    seen: list[Report] = []

    def stop(report: Report) -> None:
        seen.append(report)
        if len(seen) == 20:
            signal.raise_signal(signal.SIGTERM)

    folder = str(tmp_path / "c")
    assert not train(str(places.train), checkpoints=folder, progress=stop, **SETTINGS).complete
    # Settings are those of the stopped run; threads and the URL of the model are those of now.
    answer = run(
        "train", places.train, "--model", tmp_path / "m", "--checkpoints", folder, "--or-resume",
        "--passes", 7, "--l1", 0.5, "--threads", 1, "--json",
    ).json  # fmt: skip
    assert answer["digest"] == train(str(places.train), **SETTINGS).model.digest
    assert (tmp_path / "m/model.json").exists()


def test_it_needs_checkpoints(run, places, tmp_path):
    error = run("train", places.train, "--model", tmp_path / "m", "--or-resume").error
    assert error.startswith("--or-resume needs --checkpoints URL")
