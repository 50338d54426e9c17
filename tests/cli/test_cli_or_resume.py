"""`dadagrad train --or-resume`: one command for a job that may be started again at any time."""

from __future__ import annotations

import signal

from dadagrad.config import TrainConfig
from dadagrad.training.protocol import Report
from dadagrad.training.run import train

LEARN = ("--batch-size", 100, "--step-size", 0.2, "--passes", 2)


def test_a_run_that_is_not_there_is_begun_and_one_that_is_complete_is_left(run, places, tmp_path):
    given = ("train", places.train, "--model", tmp_path / "m", "--checkpoints", tmp_path / "c")
    first = run(*given, *LEARN, "--or-resume", "--json").json
    assert (first["complete"], first["examples"]) == (True, 6000)
    manifests = sorted((tmp_path / "c").glob("manifest-*"))
    assert manifests
    again = run(*given, *LEARN, "--or-resume", "--json").json
    assert again["digest"] == first["digest"]
    assert sorted((tmp_path / "c").glob("manifest-*")) == manifests
    assert "already holds the checkpoints of a run" in run(*given, *LEARN).error


def test_a_run_that_stopped_goes_on_as_it_was(run, places, tmp_path):
    config = TrainConfig(batch_size=100, step_size=0.2, passes=2)
    seen: list[Report] = []

    def stop(report: Report) -> None:
        seen.append(report)
        if len(seen) == 20:
            signal.raise_signal(signal.SIGTERM)

    folder = str(tmp_path / "c")
    assert not train(str(places.train), config, checkpoints=folder, progress=stop).complete
    # What decides the model is as it was; where it runs and where the model goes is as given.
    answer = run(
        "train", places.train, "--model", tmp_path / "m", "--checkpoints", folder, "--or-resume",
        "--passes", 7, "--l1", 0.5, "--threads", 1, "--json",
    ).json  # fmt: skip
    assert answer["digest"] == train(str(places.train), config).model.digest
    assert (tmp_path / "m/model.json").exists()


def test_it_needs_checkpoints(run, places, tmp_path):
    said = run("train", places.train, "--model", tmp_path / "m", "--or-resume").error
    assert said.startswith("--or-resume needs --checkpoints URL")
