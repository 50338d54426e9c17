"""``dadagrad demo``: a real cluster, a real stop, a real resume."""

from dadagrad import Model, evaluate
from dadagrad.cli.demo import summary_text


def test_demo(run, tmp_path):
    folder = tmp_path / "demo"
    options = ("--rows", 2000, "--workers", 1, "--folder", folder)
    answer = run("demo", *options, "--json")
    result = answer.json
    assert (result["folder"], result["rows"], result["same_bits"]) == (str(folder), 2000, True)
    assert 1000 <= result["stopped_after"] < 2000
    assert f"stopped after {result['stopped_after']:,} rows" in answer.stderr
    assert result["digest"] == Model.load(folder / "model").digest
    again = evaluate(str(folder / "model"), str(folder / "test"))
    assert result["evaluate"]["error"] == again["error"] < 0.5
    steps = ["corpus", "ingest", "train", "resume", "check", "evaluate"]
    assert list(result["parts"]) == steps
    assert sum(result["parts"].values()) <= result["seconds"] < 60
    shown = summary_text(result)
    assert [line.split()[0] for line in shown.splitlines()[:7]] == [*steps, "in"]
    assert "has the same bits" in shown
    assert f"dadagrad inspect {folder}/model" in shown
    # The checkpoints can be resumed, and the folder is not used twice.
    assert run("resume", folder / "checkpoints", "--json").json["digest"] == result["digest"]
    assert "is not an empty folder" in run("demo", "--folder", folder).error
