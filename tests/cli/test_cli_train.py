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

from dadagrad import Model, TrainConfig, evaluate, ingest, open_dataset, train
from dadagrad.cli import train as module
from dadagrad.data.synthetic import Corpus
from dadagrad.training.messages import Report

RESULTS = (
    "model", "rows", "steps", "passes", "seconds", "rows_per_second", "nnz_per_second",
    "progressive_loss", "progressive_error", "nonzeros", "features", "step_size", "checkpoints",
    "digest", "batch_size", "bytes_per_step", "compile_seconds", "skipped",
    "skipped_partitions", "complete",
)  # fmt: skip


def test_json_describes_the_run_and_its_model(run, places, tmp_path):
    out = tmp_path / "model"
    result = run(
        "train", places.train, "--model", out, "--passes", 2, "--step-size", 0.3, "--json"
    ).json
    assert tuple(result) == RESULTS
    model = Model.load(out)
    expected = train(str(places.train), passes=2, step_size=0.3)
    assert result["digest"] == model.digest == expected.model.digest
    assert result["nonzeros"] == int((model.weights != 0).sum())
    assert result["rows_per_second"] == pytest.approx(6000 / result["seconds"])
    for name in ("progressive_error", "progressive_loss", "rows", "steps", "passes", "step_size"):
        assert result[name] == expected.report[name]
    assert (result["model"], result["checkpoints"], result["complete"]) == (str(out), None, True)


def test_people_get_a_summary_and_messages(run, places, tmp_path):
    answer = run("train", places.train, "--model", tmp_path / "model")
    assert "rows 3,000" in answer.lines
    assert "step size 0" in answer.stderr
    assert run("train", places.train, "--model", tmp_path / "model", "--quiet").stderr == ""


def test_progress_without_a_terminal_is_lines(run, places, tmp_path, monkeypatch):
    monkeypatch.setattr("dadagrad.cli.display.PLAIN_SECONDS", 0.0)
    stderr = run("train", places.train, "--model", tmp_path / "model", "--json").stderr
    last = [line for line in stderr.splitlines() if line.startswith("training: ")][-1]
    assert last.startswith("training: 3,000 of 3,000 rows, ")
    assert ", loss 0." in last
    assert ", error 0." in last


def test_progress_on_a_terminal_is_a_bar(places, tmp_path):
    pty = pytest.importorskip("pty")
    reader, terminal = pty.openpty()
    command = [sys.executable, "-m", "dadagrad", "train", str(places.train), "--passes", "100"]
    process = subprocess.Popen(
        [*command, "--model", str(tmp_path / "model")],
        stderr=terminal,
        stdout=subprocess.PIPE,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            shown += os.read(reader, 4096)
        except OSError:  # the terminal is closed
            break
    os.close(reader)
    output, _ = process.communicate()
    assert b" 300,000\n" in output
    for part in ("training", "━", " of 300,000 rows, "):
        assert part.encode() in shown


def test_every_setting_has_an_option_and_reaches_the_run(run, places, tmp_path):
    given = {
        "loss": ("--loss", "huber:width=0.7"),
        "update": ("--update", "mirror-descent"), "l1": ("--l1", 1e-4), "l2": ("--l2", 1e-3),
        "low": ("--low", -0.5), "high": ("--high", 0.6), "step_size": ("--step-size", 0.2),
        "delta": ("--delta", 0.01), "batch_size": ("--batch-size", 50), "passes": ("--passes", 2),
        "partitions_per_batch": ("--partitions-per-batch", 3), "seed": ("--seed", 5),
        "accumulate": ("--accumulate", "row"),
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
    assert {field.name for field in fields(TrainConfig)} <= {
        option.name for option in module.train.params
    }


@pytest.mark.parametrize(
    "settings",
    [
        {"preconditioner": "sketch:rank=3", "delta": 0.1, "step_size": 0.3, "average": True},
        {"preconditioner": "block:size=100+200+300", "step_size": 0.3},
        {"regularizer": "group:strength=1e-4,size=6", "step_size": 0.3},
        {"regularizer": "l1-ball:radius=9", "step_size": 0.3},
        {"update": "pa", "loss": "absolute"},
        {"update": "arow:r=2"},
        {"update": "strongly-convex:sigma=0.01"},
        {"update": "coin-betting"},
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
            options += [option, str(value)]
    result = run("train", data, "--model", tmp_path / "model", *options, "--json").json
    assert result["digest"] == train(data, TrainConfig(**settings)).model.digest


def test_options_replace_the_settings_of_a_file(run, places, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        'loss = "logistic"\nl1 = 1e-5\nstep_size = 0.1\nhigh = inf\nlow = -2.0\nshuffle = false\n'
        "[class_weight]\n-1 = 2\n1 = 0.5\n"
    )
    arguments = ["train", places.train, "--model", tmp_path / "m", "--config", file]
    run(*arguments, "--step-size", "0.2", "--class-weight", "-1=3", "--json")
    config = TrainConfig.from_json(Model.load(tmp_path / "m").report["config"])
    in_file = TrainConfig(
        loss="logistic", l1=1e-5, step_size=0.2, low=-2.0, shuffle=False, batch_size=1,
        class_weight={-1.0: 3.0},
    )  # fmt: skip
    assert config == in_file
    run(*arguments, "--shuffle", "--json")
    config = TrainConfig.from_json(Model.load(tmp_path / "m").report["config"])
    assert config.shuffle
    assert config.class_weight == {-1.0: 2, 1.0: 0.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rate = 1", "setting 'learning_rate' is not known; the settings are loss,"),
        ("l1 = ", "is not TOML"),
        ("l1 = 'much'", "l1 must be a finite number"),
        ("shuffle = 'no'", "shuffle must be True or False"),
        ("loss = ['hinge']", "loss must be a name or an object"),
        ("class_weight = 3", "class_weight must be None, 'balanced' or a mapping"),
        (None, "cannot read run.toml: No such file"),
    ],
)
def test_a_wrong_file_is_one_error(run, places, tmp_path, text, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("run.toml").write_text(text)
    error = run("train", places.train, "--model", "m", "--config", "run.toml").error
    assert message in error
    assert "run.toml" in error or text == "class_weight = 3"


def test_class_weights_are_given_by_the_names_of_labels(run, places, tmp_path):
    source = tmp_path / "text.tsv"
    source.write_text("spam\tbuy this\nham\tgood day\n" * 20)
    ingest(source, str(tmp_path / "data"), format="text", hash_bits=10)
    options = ["--model", tmp_path / "m", "--json", "--class-weight"]
    run("train", tmp_path / "data", *options, "spam=2.5,ham=1")
    report = Model.load(tmp_path / "m").report
    assert report["config"]["class_weight"] == [[1.0, 2.5], [0.0, 1.0]]
    assert run("train", tmp_path / "data", *options, "balanced").code == 0
    for data, weights, message in (
        ("data", "egg=1", "labels are ham, spam"),
        ("data", "spam", "class weight 'spam' is not understood"),
        ("data", "=2", "class weight '=2' is not understood"),
        ("data", "ham=big", "class_weight[ham] must be a finite number of at least 0, not 'big'"),
        (places.train, "spam=2", "labels of the data are numbers"),
        (places.train, "7=2", "names label 7"),
    ):
        assert message in run("train", tmp_path / data, *options, weights).error


def test_the_model_is_evaluated_on_holdout_data(run, places, tmp_path):
    arguments = ("train", places.train, "--model", tmp_path / "m", "--holdout", places.test)
    result = run(*arguments, "--json").json
    expected = evaluate(str(tmp_path / "m"), str(places.test))
    assert result["holdout"] | {"seconds": 0} == expected | {"seconds": 0}
    assert f"holdout_rows {expected['rows']:,}" in run(*arguments).lines


def _no_model(folder: Path) -> bool:
    return not (folder / "model.json").exists()


def test_errors_that_are_found_before_training(run, places, tmp_path):
    binary, one_class = tmp_path / "binary", tmp_path / "one"
    ingest(places.text, str(binary), binary=True)
    (tmp_path / "one.svmlight").write_text("+1 1:1\n" * 5)
    ingest(tmp_path / "one.svmlight", str(one_class))
    (tmp_path / "file").write_text("")
    for message, data, model, *options in (
        ("feature space", places.train, "m", "--holdout", binary),
        (f"no dataset at {tmp_path}/none", tmp_path / "none", "m"),
        ("holds a dataset", places.train, places.test),
        ("cannot write", places.train, "file/m"),
        ("only one class", one_class, "m", "--checkpoints", tmp_path / "c"),
        ("batch_size", places.train, "m", "--batch-size", 1, "--workers", 2),
    ):
        assert message in run("train", data, "--model", tmp_path / model, *options).error
    assert open_dataset(str(places.test)).n_rows == 1000
    assert _no_model(tmp_path / "m")
    assert not (tmp_path / "c").exists()


def test_a_new_run_does_not_replace_the_checkpoints_of_another(run, places, tmp_path):
    arguments = ["train", places.train, "--model", tmp_path / "m", "--checkpoints", tmp_path / "c"]
    result = run(*arguments, "--checkpoint-every", 1000, "--keep", 2, "--json").json
    assert result["checkpoints"] == str(tmp_path / "c")
    assert len(list((tmp_path / "c").glob("manifest-*.json"))) == 2
    assert "already holds the checkpoints of a run" in run(*arguments).error


def test_a_complete_run_resumes_to_the_same_model(run, places, tmp_path):
    first = run(
        "train", places.train, "--model", tmp_path / "m", "--checkpoints", tmp_path / "c",
        "--holdout", places.test, "--json",
    ).json  # fmt: skip
    (tmp_path / "m" / "model.json").unlink()
    kept = sorted(path.name for path in (tmp_path / "c").rglob("*"))
    answer = run("resume", tmp_path / "c", "--json")
    assert f"the run at {tmp_path / 'c'} is complete" in answer.stderr
    assert sorted(path.name for path in (tmp_path / "c").rglob("*")) == kept
    assert answer.json["digest"] == first["digest"] == Model.load(tmp_path / "m").digest
    assert answer.json["model"] == str(tmp_path / "m")
    assert answer.json["holdout"]["error"] == first["holdout"]["error"]
    run("resume", tmp_path / "c", "--model", tmp_path / "n", "--json")
    assert Model.load(tmp_path / "n").digest == first["digest"]


def test_resume_needs_the_data_of_the_run(run, places, tmp_path):
    data, folder = tmp_path / "data", tmp_path / "c"
    ingest(places.text, str(data))
    options = ("--model", tmp_path / "m", "--checkpoints", folder, "--json")
    first = run("train", data, *options).json
    data.rename(tmp_path / "moved")
    assert "no dataset at" in run("resume", folder).error
    moved = run("resume", folder, "--data", tmp_path / "moved", "--json").json
    assert moved["digest"] == first["digest"]
    assert "digest" in run("resume", folder, "--data", places.train).error.lower()


def test_resume_without_checkpoints_is_an_error(run, places, tmp_path):
    assert "no checkpoint at" in run("resume", tmp_path / "none").error
    assert "it is a dataset" in run("resume", places.train).error


def test_resume_of_a_run_of_the_library_needs_a_model(run, places, tmp_path):
    result = train(str(places.train), checkpoints=str(tmp_path / "c"))
    assert "give --model" in run("resume", tmp_path / "c").error
    resumed = run("resume", tmp_path / "c", "--model", tmp_path / "m", "--json").json
    assert resumed["digest"] == result.model.digest


# Some seconds of training without a stop.
LONG = ("--batch-size", "10", "--step-size", "0.2", "--passes", "30", "--checkpoint-every", "100")


@pytest.fixture(scope="module")
def whole_digest(places):
    return train(str(places.train), batch_size=10, step_size=0.2, passes=30).model.digest


def _start_and_stop(data: Path, folder: Path, stop: int, *options: str) -> tuple[int, str, str]:
    """Start a long run in its own process group, and send `stop` to it after two checkpoints."""
    command = [sys.executable, "-m", "dadagrad", "train", str(data), "--model", "m"]
    process = subprocess.Popen(
        [*command, "--checkpoints", "c", *LONG, *options, "--json"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    committed = 0
    while committed < 2:
        line = process.stderr.readline()
        assert line, "the run ended before it could be stopped"
        committed += line.startswith("committed ")
    os.killpg(process.pid, stop)
    output, messages = process.communicate(timeout=60)
    return process.returncode, output, messages


@pytest.mark.parametrize(
    ("stop", "options"),
    [
        (signal.SIGINT, ()),
        (signal.SIGTERM, ()),
        (signal.SIGKILL, ()),
        (signal.SIGINT, ("--workers", "2", "--checkpoint-every", "20")),
    ],
    ids=str,
)
def test_a_run_that_is_stopped_resumes_to_the_same_bits(
    run, places, tmp_path, stop, options, whole_digest
):
    """A terminal signals the workers too, which have to finish the round."""
    code, output, messages = _start_and_stop(places.train, tmp_path, stop, *options)
    assert _no_model(tmp_path / "m")
    if stop == signal.SIGKILL:
        assert code == -stop
    else:
        assert code == 130
        assert "Traceback" not in messages
        assert messages.splitlines()[-1].endswith("go on with `dadagrad resume c`")
        stopped = json.loads(output)
        assert (stopped["complete"], stopped["model"]) == (False, None)
        assert 0 < stopped["rows"] < 30 * 3000
    # The run resumes from another folder, with another number of threads.
    resumed = run("resume", tmp_path / "c", "--threads", 1, "--json").json
    assert (resumed["complete"], resumed["rows"]) == (True, 30 * 3000)
    assert resumed["model"] == str(tmp_path / "m")
    assert resumed["digest"] == whole_digest


def test_a_run_that_is_stopped_without_checkpoints_says_so(run, places, tmp_path, monkeypatch):
    show = module.RunProgress.progress

    def interrupt(progress: module.RunProgress, report: Report) -> None:
        show(progress, report)
        if report.metrics.rows == 6000:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(module.RunProgress, "progress", interrupt)
    model = tmp_path / "m"
    answer = run("train", places.train, "--model", model, "--passes", 9, "--step-size", 1)
    assert (answer.code, answer.stdout) == (130, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith("dadagrad: error: stopped after ")
    assert "give --checkpoints URL" in line
    assert _no_model(model)


def test_a_cluster_gives_the_same_bits(run, places, tmp_path):
    arguments = ["train", places.train, "--step-size", 0.2, "--batch-size", 200, "--json"]
    cluster = run(*arguments, "--model", tmp_path / "a", "--workers", 2)
    threads = run(*arguments, "--model", tmp_path / "b")
    assert cluster.json["digest"] == threads.json["digest"]


@pytest.mark.parametrize("command", ["train", "resume", "ingest"])
def test_an_unreachable_scheduler_is_one_error_at_once(run, places, tmp_path, command, monkeypatch):
    import dask.config

    from dadagrad import clusters  # noqa: F401 (adds its defaults to the configuration)

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

        options = {"step_size": 0.3, "batch_size": 100, "progress": stop}
        train(str(places.train), checkpoints=str(tmp_path / "c"), **options)
    begun = time.monotonic()
    # One line on stderr: not even the step size was chosen before.
    error = run(*arguments, "--scheduler", "tcp://127.0.0.1:1").error
    assert "no Dask scheduler answers at tcp://127.0.0.1:1 (" in error
    assert time.monotonic() - begun < 10
    assert _no_model(tmp_path / "m")
