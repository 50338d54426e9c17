"""``dadagrad train`` and ``dadagrad resume``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

from dadagrad.algorithm import UPDATE_NAMES
from dadagrad.cli import algorithm_options
from dadagrad.cli import train as module
from dadagrad.config import TrainConfig
from dadagrad.data.dataset import open_dataset
from dadagrad.data.ingest import ingest
from dadagrad.evaluation import evaluate
from dadagrad.losses import LOSSES
from dadagrad.metrics import METRICS
from dadagrad.model import Model
from dadagrad.regularizers import DOMAINS, REGULARIZERS
from dadagrad.synthetic import Corpus
from dadagrad.training.protocol import Report
from dadagrad.training.run import train

RESULTS = (
    "model", "examples", "steps", "passes", "seconds", "examples_per_second", "nnz_per_second",
    "progressive_loss", "progressive_error", "nonzeros", "features", "step_size", "checkpoints",
    "digest", "batch_size", "delay", "bytes_per_step", "compile_seconds", "skipped",
    "skipped_partitions", "complete",
)  # fmt: skip


def test_json_says_what_the_model_is(run, places, tmp_path):
    out = tmp_path / "model"
    result = run(
        "train", places.train, "--model", out, "--passes", 2, "--step-size", 0.3, "--json"
    ).json
    assert tuple(result) == RESULTS
    model = Model.load(out)
    expected = train(str(places.train), TrainConfig(passes=2, step_size=0.3))
    assert result["digest"] == model.digest == expected.model.digest
    assert result["model"] == str(out)
    assert result["examples"] == result["steps"] == 6000
    assert result["passes"] == 2
    assert result["nonzeros"] == int((model.weights != 0).sum())
    assert result["progressive_error"] == expected.report["progressive_error"] < 0.5
    assert result["progressive_loss"] == expected.report["progressive_loss"]
    assert result["examples_per_second"] == pytest.approx(6000 / result["seconds"])
    assert result["step_size"] == 0.3
    assert result["checkpoints"] is None
    assert result["complete"] is True


def test_batches_may_be_under_way_together(run, places, tmp_path):
    options = ("--batch-size", 50, "--delay", 1, "--step-size", 0.3, "--json")
    result = run("train", places.train, "--model", tmp_path / "model", *options).json
    assert (result["batch_size"], result["delay"]) == (50, 1)
    config = TrainConfig(batch_size=50, delay=1, step_size=0.3)
    assert result["digest"] == train(str(places.train), config).model.digest
    error = run("train", places.train, "--model", tmp_path / "model", "--delay", 1).error
    assert "delay=1 needs a batch_size above 1, and 'auto' is 1 on this machine" in error


def test_people_get_a_summary_and_messages(run, places, tmp_path):
    answer = run("train", places.train, "--model", tmp_path / "model")
    assert answer.code == 0
    assert "examples             3,000\n" in answer.stdout
    assert "step size 0" in answer.stderr
    assert run("train", places.train, "--model", tmp_path / "model", "--quiet").stderr == ""


def test_plain_progress_where_there_is_no_terminal(run, places, tmp_path, monkeypatch):
    monkeypatch.setattr("dadagrad.cli.display.PLAIN_SECONDS", 0.0)
    stderr = run("train", places.train, "--model", tmp_path / "model", "--json").stderr
    last = [line for line in stderr.splitlines() if line.startswith("training: ")][-1]
    assert last.startswith("training: 3,000 of 3,000 rows, ")
    assert ", loss 0." in last
    assert ", error 0." in last


def test_a_bar_on_a_terminal(places, tmp_path):
    pty = pytest.importorskip("pty")
    import os

    mine, its = pty.openpty()
    command = [sys.executable, "-m", "dadagrad", "train", str(places.train), "--passes", "100"]
    done = subprocess.Popen([*command, "--model", str(tmp_path / "model")], stderr=its,
                            stdout=subprocess.PIPE, env=os.environ | {"TERM": "xterm"})  # fmt: skip
    os.close(its)
    shown = b""
    while True:
        try:
            shown += os.read(mine, 4096)
        except OSError:  # the terminal is closed
            break
    os.close(mine)
    output, _ = done.communicate()
    assert done.returncode == 0
    assert b"examples             300,000\n" in output
    assert b"training" in shown
    assert b"\xe2\x94\x81" in shown  # the bar
    assert b" of 300,000 rows, " in shown


def test_every_setting_has_an_option_and_reaches_the_run(run, places, tmp_path):
    given = {
        "loss": ("--loss", "huber"), "huber_width": ("--huber-width", 0.7),
        "quantile": ("--quantile", 0.3),
        "update": ("--update", "mirror-descent"), "l1": ("--l1", 1e-4), "l2": ("--l2", 1e-3),
        "low": ("--low", -0.5), "high": ("--high", 0.6), "step_size": ("--step-size", 0.2),
        "delta": ("--delta", 0.01), "batch_size": ("--batch-size", 50), "passes": ("--passes", 2),
        "lanes": ("--lanes", 3), "squares": ("--squares", "example"), "seed": ("--seed", 5),
    }  # fmt: skip
    options = [part for pair in given.values() for part in pair]
    result = run(
        "train", places.train, "--model", tmp_path / "a", *options, "--no-shuffle",
        "--no-intercept", "--json",
    ).json  # fmt: skip
    settings = {name: value for name, (_, value) in given.items()}
    config = TrainConfig(**settings, shuffle=False, fit_intercept=False)
    assert result["digest"] == train(str(places.train), config).model.digest
    assert Model.load(tmp_path / "a").report["config"] == config.to_json()
    options_of = {option.name for option in module.train.params}
    assert {field.name for field in fields(TrainConfig)} <= options_of
    assert tuple(LOSSES) == module.LOSSES
    assert algorithm_options.UPDATES == UPDATE_NAMES
    assert tuple(METRICS) == algorithm_options.METRICS
    assert algorithm_options.REGULARIZERS == REGULARIZERS
    assert algorithm_options.DOMAINS == DOMAINS


@pytest.mark.parametrize(
    "settings",
    [
        {"metric": "sketch", "rank": 3, "delta": 0.1, "step_size": 0.3, "average": True},
        {"metric": "block", "blocks": (100, 200, 300), "step_size": 0.3},
        {"regularizer": "group", "strength": 1e-4, "blocks": 6, "step_size": 0.3},
        {"domain": "l1-ball", "radius": 9.0, "step_size": 0.3},
        {"domain": "floor-simplex", "floor": 1e-4, "step_size": 0.3},
        {"update": "pa-1", "aggressiveness": 0.5},
        {"update": "pa", "loss": "absolute", "insensitivity": 0.2},
        {"update": "arow", "confidence": 2.0},
        {"update": "strongly-convex", "strong_convexity": 0.01},
        {"step_size": "free"},
    ],
    ids=str,
)
def test_every_algorithm_can_be_asked_for(run, tmp_path, settings):
    corpus = Corpus(40, 600, 8.0, seed=2)
    corpus.write_text(tmp_path / "rows.svmlight")
    data = str(tmp_path / "data")
    ingest(tmp_path / "rows.svmlight", data, n_features=600)
    options: list[object] = []
    for name, value in settings.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            options.append(option)
        else:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            options += [option, text]
    result = run("train", data, "--model", tmp_path / "model", *options, "--json").json
    assert result["digest"] == train(data, TrainConfig(**settings)).model.digest


def test_settings_from_a_file_and_the_command_line_wins(run, places, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        'loss = "logistic"\nl1 = 1e-5\nstep_size = 0.1\nhigh = inf\nlow = -2.0\nshuffle = false\n'
        "[class_weight]\n-1 = 2\n1 = 0.5\n"
    )
    arguments = ["train", places.train, "--model", tmp_path / "m", "--config", file]
    run(*arguments, "--step-size", "0.2", "--class-weight", "-1=3", "--json")
    config = Model.load(tmp_path / "m").report["config"]
    assert config["loss"] == "logistic"
    assert config["l1"] == 1e-5
    assert config["step_size"] == 0.2
    assert config["low"] == "-2.0"
    assert config["shuffle"] is False
    assert config["class_weight"] == [[-1.0, 3.0]]
    run(*arguments, "--shuffle", "--json")
    config = Model.load(tmp_path / "m").report["config"]
    assert config["class_weight"] == [[-1.0, 2], [1.0, 0.5]]
    assert config["shuffle"] is True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("learning_rate = 1", "setting 'learning_rate' is not known; the settings are loss,"),
        ("l1 = ", "is not TOML"),
        ("l1 = 'much'", "l1 must be a finite number"),
        ("shuffle = 'no'", "shuffle must be true or false"),
        ("low = 'deep'", "low must be a number"),
        ("loss = 'cubic'", "loss 'cubic' is not known"),
        ("loss = ['hinge']", "loss must be text"),
        ("class_weight = 3", "class_weight must be None, 'balanced' or a mapping"),
    ],
)
def test_wrong_files(run, places, tmp_path, text, said):
    file = tmp_path / "run.toml"
    file.write_text(text)
    error = run("train", places.train, "--model", tmp_path / "m", "--config", file).error
    assert said in error


def test_missing_file(run, places, tmp_path):
    error = run("train", places.train, "--model", tmp_path / "m", "--config", "no.toml").error
    assert "cannot read no.toml: No such file" in error


def test_class_weights_by_the_names_of_labels(run, tmp_path):
    source = tmp_path / "text.tsv"
    source.write_text("spam\tbuy this\nham\tgood day\n" * 20)
    data = tmp_path / "data"
    ingest(source, str(data), format="text", hash_bits=10)
    arguments = ["train", data, "--model", tmp_path / "m", "--json", "--class-weight"]
    run(*arguments, "spam=2.5,ham=1")
    report = Model.load(tmp_path / "m").report
    assert report["config"]["class_weight"] == [[1.0, 2.5], [0.0, 1.0]]
    assert run(*arguments, "balanced").code == 0
    assert "labels are ham, spam" in run(*arguments, "egg=1").error
    assert "class weight 'spam' is not understood" in run(*arguments, "spam").error
    assert "class weight '=2' is not understood" in run(*arguments, "=2").error
    assert "class weight 'ham=big' is not understood" in run(*arguments, "ham=big").error


def test_class_weights_of_labels_that_are_numbers(run, places, tmp_path):
    arguments = ["train", places.train, "--model", tmp_path / "m", "--class-weight"]
    assert "labels of the data are numbers" in run(*arguments, "spam=2").error
    assert "names label 7" in run(*arguments, "7=2").error


def test_holdout_is_evaluated(run, places, tmp_path):
    result = run(
        "train", places.train, "--model", tmp_path / "m", "--holdout", places.test, "--json"
    ).json
    expected = evaluate(str(tmp_path / "m"), str(places.test))
    assert result["holdout"] | {"seconds": 0} == expected | {"seconds": 0}
    text = run("train", places.train, "--model", tmp_path / "m", "--holdout", places.test).stdout
    assert f"holdout_examples     {expected['examples']:,}\n" in text


def _no_model(folder: Path) -> bool:
    return not (folder / "model.json").exists()


def test_a_holdout_of_another_space_is_refused_before_training(run, places, tmp_path):
    other = tmp_path / "other"
    ingest(places.text, str(other), binary=True)
    model = tmp_path / "m"
    error = run("train", places.train, "--model", model, "--holdout", other).error
    assert "feature space" in error
    assert not model.exists()


def test_missing_data(run, tmp_path):
    error = run("train", tmp_path / "none", "--model", tmp_path / "m").error
    assert f"no dataset at {tmp_path}/none" in error


def test_a_model_does_not_replace_data(run, places, tmp_path):
    error = run("train", places.train, "--model", places.test).error
    assert "holds a dataset" in error
    assert open_dataset(str(places.test)).n_rows == 1000


def test_a_place_that_cannot_be_written_is_found_before_training(run, places, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot write" in run("train", places.train, "--model", tmp_path / "file" / "m").error


def test_one_class_is_one_line(run, tmp_path):
    source = tmp_path / "one.svmlight"
    source.write_text("+1 1:1\n" * 5)
    ingest(source, str(tmp_path / "one"))
    error = run(
        "train", tmp_path / "one", "--model", tmp_path / "m", "--checkpoints", tmp_path / "c"
    ).error
    assert "only one class" in error
    assert not (tmp_path / "c").exists()


def test_checkpoints_of_another_run_are_not_taken(run, places, tmp_path):
    arguments = ["train", places.train, "--model", tmp_path / "m", "--checkpoints", tmp_path / "c"]
    result = run(*arguments, "--checkpoint-every", 1000, "--keep", 2, "--json").json
    assert result["checkpoints"] == str(tmp_path / "c")
    assert len(list((tmp_path / "c").glob("manifest-*.json"))) == 2
    assert "already holds the checkpoints of a run" in run(*arguments).error


def test_resuming_a_finished_run_makes_the_same_model(run, places, tmp_path):
    first = run(
        "train", places.train, "--model", tmp_path / "m", "--checkpoints", tmp_path / "c",
        "--holdout", places.test, "--json",
    ).json  # fmt: skip
    (tmp_path / "m" / "model.json").unlink()
    kept = sorted(path.name for path in (tmp_path / "c").rglob("*"))
    answer = run("resume", tmp_path / "c", "--json")
    again = answer.json
    assert f"the run at {tmp_path / 'c'} is complete" in answer.stderr
    assert sorted(path.name for path in (tmp_path / "c").rglob("*")) == kept
    assert again["digest"] == first["digest"] == Model.load(tmp_path / "m").digest
    assert again["model"] == str(tmp_path / "m")
    assert again["holdout"]["error"] == first["holdout"]["error"]
    assert run("resume", tmp_path / "c", "--model", tmp_path / "n", "--json").code == 0
    assert Model.load(tmp_path / "n").digest == first["digest"]


def test_resume_finds_data_that_was_moved(run, places, tmp_path):
    data = tmp_path / "data"
    ingest(places.text, str(data))
    first = run(
        "train", data, "--model", tmp_path / "m", "--checkpoints", tmp_path / "c", "--json"
    ).json
    data.rename(tmp_path / "moved")
    assert "no dataset at" in run("resume", tmp_path / "c").error
    again = run("resume", tmp_path / "c", "--data", tmp_path / "moved", "--json").json
    assert again["digest"] == first["digest"]
    assert "fingerprint" in run("resume", tmp_path / "c", "--data", places.train).error.lower()


def test_resume_where_there_is_nothing_to_resume(run, places, tmp_path):
    assert "no checkpoint at" in run("resume", tmp_path / "none").error
    assert "it is a dataset" in run("resume", places.train).error


def test_a_run_of_the_library_resumes_with_a_model_named(run, places, tmp_path):
    result = train(str(places.train), TrainConfig(), checkpoints=str(tmp_path / "c"))
    assert "give --model" in run("resume", tmp_path / "c").error
    again = run("resume", tmp_path / "c", "--model", tmp_path / "m", "--json").json
    assert again["digest"] == result.model.digest


# Some seconds of training, if nothing stopped it.
LONG = ("--batch-size", "10", "--step-size", "0.2", "--passes", "30", "--checkpoint-every", "100")


@pytest.fixture(scope="module")
def never_stopped(places):
    config = TrainConfig(batch_size=10, step_size=0.2, passes=30)
    return train(str(places.train), config).model.digest


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_and_resumed_is_as_never_stopped(run, places, tmp_path, stop, never_stopped):
    folder = tmp_path / "work"
    folder.mkdir()
    command = [sys.executable, "-m", "dadagrad", "train", str(places.train), "--model", "m"]
    command += ["--checkpoints", "c", *LONG, "--json"]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    committed = 0
    while committed < 2:
        line = process.stderr.readline()
        assert line, "it ended before it could be stopped"
        committed += line.startswith("committed ")
    process.send_signal(stop)
    output, messages = process.communicate(timeout=60)
    assert _no_model(folder / "m")
    if stop == signal.SIGKILL:
        assert process.returncode == -stop
    else:
        assert process.returncode == 130
        assert "Traceback" not in messages
        assert messages.splitlines()[-1].endswith("go on with `dadagrad resume c`")
        stopped = json.loads(output)
        assert stopped["complete"] is False
        assert stopped["model"] is None
        assert 0 < stopped["examples"] < 30 * 3000
    # From elsewhere, and on another number of threads.
    again = run("resume", folder / "c", "--threads", 1, "--json").json
    assert again["complete"] is True
    assert again["examples"] == 30 * 3000
    assert again["model"] == str(folder / "m")
    assert again["digest"] == never_stopped


def test_an_interrupt_at_a_terminal_reaches_the_workers_too(run, places, tmp_path, never_stopped):
    """A terminal signals all processes of the command; the workers have to finish the round."""
    command = [sys.executable, "-m", "dadagrad", "train", str(places.train), "--model", "m"]
    command += ["--checkpoints", "c", *LONG, "--checkpoint-every", "20", "--workers", "2"]
    command.append("--json")
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    committed = 0
    while committed < 2:
        line = process.stderr.readline()
        assert line, "it ended before it could be stopped"
        committed += line.startswith("committed ")
    os.killpg(process.pid, signal.SIGINT)
    output, messages = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in messages
    assert 0 < json.loads(output)["examples"] < 30 * 3000
    assert run("resume", tmp_path / "c", "--json").json["digest"] == never_stopped


def test_stopped_without_checkpoints(run, places, tmp_path, monkeypatch):
    told = module.Watching.progress

    def interrupt(watching: module.Watching, report: Report) -> None:
        told(watching, report)
        if report.tally.examples == 6000:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(module.Watching, "progress", interrupt)
    model = tmp_path / "m"
    answer = run("train", places.train, "--model", model, "--passes", 9, "--step-size", 1)
    assert answer.code == 130
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert line.startswith("dadagrad: error: stopped after ")
    assert "give --checkpoints URL" in line
    assert _no_model(model)


def test_on_a_cluster_the_bits_are_the_same(run, places, tmp_path):
    arguments = ["train", places.train, "--step-size", 0.2, "--batch-size", 200, "--json"]
    cluster = run(*arguments, "--model", tmp_path / "a", "--workers", 2)
    here = run(*arguments, "--model", tmp_path / "b")
    assert cluster.json["digest"] == here.json["digest"]


@pytest.mark.parametrize("command", ["train", "resume", "ingest"])
def test_a_scheduler_that_is_not_there_is_one_line_at_once(
    run, places, tmp_path, command, monkeypatch
):
    import dask.config

    from dadagrad import dask_config  # noqa: F401 (adds its defaults to the configuration)

    monkeypatch.setitem(dask.config.config["dadagrad"], "connect-timeout", 1)
    arguments = {
        "train": ["train", places.train, "--model", tmp_path / "m"],
        "resume": ["resume", tmp_path / "c", "--model", tmp_path / "m"],
        "ingest": ["ingest", places.text, "--out", tmp_path / "m"],
    }[command]
    if command == "resume":

        def stop(report: Report) -> None:
            if report.steps == 1:
                signal.raise_signal(signal.SIGINT)

        config = TrainConfig(step_size=0.3, batch_size=100)
        train(str(places.train), config, checkpoints=str(tmp_path / "c"), progress=stop)
    begun = time.monotonic()
    # One line on stderr: not even the step size was chosen before.
    error = run(*arguments, "--scheduler", "tcp://127.0.0.1:1").error
    assert "no Dask scheduler answers at tcp://127.0.0.1:1 (" in error
    assert time.monotonic() - begun < 10
    assert _no_model(tmp_path / "m")


def test_a_cluster_cannot_share_single_rows(run, places, tmp_path):
    error = run(
        "train", places.train, "--model", tmp_path / "m", "--batch-size", 1, "--workers", 2
    ).error
    assert "batch_size" in error
