"""``dadagrad demo``: a real cluster, a real stop, a real resume."""

from __future__ import annotations

from dadagrad.model.evaluate import evaluate
from dadagrad.model.model import Model


def test_demo(run, tmp_path):
    folder = tmp_path / "demo"
    result = run("demo", "--rows", 4000, "--folder", folder, "--json").json
    assert result["folder"] == str(folder)
    assert result["rows"] == 4000
    assert 2000 <= result["stopped_after"] < 4000
    assert result["same_bits"] is True
    assert result["digest"] == Model.load(folder / "model").digest
    again = evaluate(str(folder / "model"), str(folder / "test"))
    assert result["evaluate"]["error"] == again["error"] < 0.5
    assert list(result["parts"]) == ["corpus", "ingest", "train", "resume", "check", "evaluate"]
    assert sum(result["parts"].values()) <= result["seconds"] < 60
    # What it made can be gone on with.
    resumed = run("resume", folder / "checkpoints", "--json").json
    assert resumed["digest"] == result["digest"]
    assert "is not an empty folder" in run("demo", "--folder", folder).error


def test_demo_for_people(run, tmp_path):
    answer = run("demo", "--rows", 1000, "--workers", 1, "--folder", tmp_path / "demo")
    assert answer.code == 0
    for word in ("corpus", "ingest", "train", "resume", "check", "evaluate", "in all"):
        assert f"\n{word} " in "\n" + answer.stdout
    assert "has the same bits" in answer.stdout
    assert f"dadagrad inspect {tmp_path / 'demo'}/model" in answer.stdout
    assert "stopped after" in answer.stderr
