"""``dadagrad train``: settings, files of settings, the result, and what is checked before."""

import importlib
import json
import time
from dataclasses import fields
from functools import partial
from pathlib import Path

import dask.config
import pytest
from rich.console import Console

from dadagrad import Model, TrainConfig, evaluate, ingest, open_dataset, train
from dadagrad.cli import train as module


def config_of(model):
    return TrainConfig.from_json(Model.load(model).report["config"])


def test_json_describes_the_run_and_its_model(run, places, tmp_path):
    out = tmp_path / "model"
    options = ("--passes", 2, "--step-size", 0.3, "--holdout", places.test, "--json")
    result = run("train", places.train, "--model", out, *options).json
    assert set(result) == {"model", "digest", "holdout", *train(str(places.train)).report}
    model = Model.load(out)
    expected = train(str(places.train), passes=2, step_size=0.3)
    assert result["digest"] == model.digest == expected.model.digest
    assert result["nonzeros"] == int((model.weights != 0).sum())
    assert result["rows_per_second"] == pytest.approx(6000 / result["seconds"])
    for name in ("progressive_error", "progressive_loss", "rows", "steps", "passes", "step_size"):
        assert result[name] == expected.report[name]
    assert (result["model"], result["checkpoints"], result["complete"]) == (str(out), None, True)
    measured = evaluate(str(out), str(places.test))
    shown = result["holdout"]
    assert shown | {"seconds": 0} == shown | measured | {"seconds": 0}
    assert shown["data"] == str(places.test)
    assert model.report["holdout"] == shown


def test_a_run_that_goes_on_may_hold_out_no_rows(run, places, tmp_path):
    train = ("train", places.train, "--json", "--step-size", 0.3, "--model")
    assert run(*train, tmp_path / "m", "--holdout", 0.1).json["rows"] == 2700
    again = (*train, tmp_path / "n", "--initial-model", tmp_path / "m")
    assert run(*again).json["rows"] == 2700
    assert run(*again, "--overwrite", "--holdout", 0).json["rows"] == 3000


def test_people_get_a_summary_messages_and_a_table_of_progress(run, places, tmp_path):
    command = ("train", places.train, "--model", tmp_path / "model", "--holdout", places.test)
    answer = run(*command)
    report = train(str(places.train)).report
    assert len(answer.lines) == 6
    assert answer.lines[0].startswith("Trained on 3,000 rows (")
    assert f"error before learning {100 * report['progressive_error']:.1f} %" in answer.lines[1]
    assert answer.lines[-1].startswith(f"Model saved to {tmp_path / 'model'}. Next: dadagrad ")
    assert "step size 0" in answer.stderr
    header, *lines = answer.stderr[answer.stderr.index("  rows  ") :].splitlines()
    assert header.split() == ["rows", "error", "since", "last", "loss", "rows/s", "weights"]
    last = lines[-2].split()  # the holdout data are evaluated after it
    assert last[:2] == ["3,000", f"{100 * report['progressive_error']:.1f}"]
    assert last[-1] == f"{report['nonzeros']:,}"
    assert run(*command, "--quiet", "--overwrite").stderr == ""


def test_a_model_is_replaced_when_that_is_asked_for(run, places, tmp_path):
    command = ("train", places.train, "--model", tmp_path / "m", "--step-size", 0.3, "--json")
    first = run(*command).json["digest"]
    assert "--overwrite to replace it" in run(*command, "--passes", 2).error
    (tmp_path / "wrong.csv").write_text("1,2\n1,2,3\n")  # is not read before that is known
    command_of_raw = ("train", tmp_path / "wrong.csv", *command[2:])
    assert "--overwrite to replace it" in run(*command_of_raw).error
    assert Model.load(tmp_path / "m").digest == first
    second = run(*command, "--passes", 2, "--overwrite").json["digest"]
    assert Model.load(tmp_path / "m").digest == second != first
    assert len(list((tmp_path / "m").iterdir())) == 2


def test_a_model_is_a_folder(run, places, tmp_path):
    (tmp_path / "file").touch()
    for model in (tmp_path / "file", "-"):
        error = run("train", places.train, "--model", model).error
        assert error == f"{model} is not a folder; give --model a folder of its own"


def test_progress_on_a_terminal_is_a_bar(run, places, tmp_path, monkeypatch):
    terminal = partial(Console, force_terminal=True, width=120)
    monkeypatch.setattr("dadagrad.progress.display.Console", terminal)
    shown = run("train", places.train, "--passes", 10, "--model", tmp_path / "model").stderr
    for part in (
        "pass 10/10  ",
        "━━",
        "100 %  training error 1",
        "  loss 0.",
        " rows/s  0:00:00 left",
    ):
        assert part in shown


@pytest.mark.parametrize(
    "settings",
    [
        {
            "loss": "huber:width=0.7", "update": "mirror-descent",
            "preconditioner": "diagonal:delta=0.01", "l1": 1e-4, "l2": 1e-3,
            "low": -0.5, "high": 0.6, "step_size": 0.2, "batch_size": 50,
            "passes": 2, "partitions_per_batch": 3, "seed": 5, "accumulate": "row",
            "shuffle": False, "fit_intercept": False,
        },
        {"preconditioner": "sketch:rank=3,delta=0.1", "step_size": 0.3, "average": True},
        {"regularizer": "group:strength=1e-4,size=8", "step_size": 0.3, "batch_size": 50},
        {"streams": 4, "rounds": 7, "step_size": 0.1, "class_weight": "balanced"},
    ],
    ids=lambda settings: next(iter(settings)),
)  # fmt: skip
def test_every_setting_has_an_option_and_reaches_the_run(run, places, tmp_path, settings):
    options = []
    for name, value in settings.items():
        option = "intercept" if name == "fit_intercept" else name.replace("_", "-")
        if isinstance(value, bool):
            options.append(f"--{option}" if value else f"--no-{option}")
        else:
            options += [f"--{option}", value]
    result = run("train", places.train, "--model", tmp_path / "a", *options, "--json").json
    config = TrainConfig(**settings)
    assert result["digest"] == train(str(places.train), config).model.digest
    assert {name: config_of(tmp_path / "a").to_json()[name] for name in settings} == {
        name: config.to_json()[name] for name in settings
    }
    known = {option.name for option in module.train.params}
    assert {field.name for field in fields(TrainConfig)} <= known


def test_an_option_without_effect_is_refused(run, places, tmp_path):
    for options, remedy in (
        (["--update", "pa", "--step-size", 0.1], "choose another update"),
        (["--partitions-per-batch", 8], "give --batch-size above 1"),
        (["--accumulate", "row"], "give --batch-size above 1"),
        (["--importance-aware", "--batch-size", 10], "give --batch-size 1"),
        (["--importance-aware", "--loss", "softmax"], "compiled update and loss"),
        (["--early-stopping", "--holdout", 0.1], "give --passes above 1"),
        (["--early-stopping", "--passes", 2], "on rows that are held out"),
        (["--calibration", "isotonic", "--loss", "squared"], "which has no probabilities"),
        (["--keep", 5], "without --checkpoints URL"),
        (["--rounds", 5], "give a number of streams"),
    ):
        error = run("train", places.train, "--model", tmp_path / "m", *options).error
        assert remedy in error
        assert list(tmp_path.iterdir()) == []


def test_several_values_are_tried_in_one_pass(run, places, tmp_path):
    command = ("train", places.train, "--model", tmp_path / "m", "--step-size", "0.05,0.2,0.8")
    result = run(*command, "--l1", "0,1e-3", "--json").json
    expected = train(str(places.train), step_size=[0.05, 0.2, 0.8], l1=[0.0, 1e-3])
    assert result["settings"] == expected.report["settings"]
    assert (result["best"], result["digest"]) == (expected.report["best"], expected.model.digest)
    shown = run(*command, "--quiet", "--overwrite").stdout
    assert ": step_size 0.2, l1 0, l2 0: loss " in shown
    assert shown.count("(the model)") == 1


def test_options_replace_the_settings_of_a_file(run, places, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        'loss = "logistic"\nl1 = 1e-5\nstep_size = 0.1\nhigh = inf\nlow = -2.0\nshuffle = false\n'
        "[class_weight]\n-1 = 2\n1 = 0.5\n"
    )
    arguments = ["train", places.train, "--model", tmp_path / "m", "--config", file]
    run(*arguments, "--step-size", "0.2", "--class-weight", "-1=3", "--json")
    assert config_of(tmp_path / "m") == TrainConfig(
        loss="logistic", l1=1e-5, step_size=0.2, low=-2.0, shuffle=False, batch_size=1, streams=1,
        class_weight={-1: 3.0}, scale_columns=False, center=False,
    )  # fmt: skip
    file.write_text(f"holdout = 0.2\n{file.read_text()}")
    result = run(*arguments, "--shuffle", "--holdout", places.test, "--json", "--overwrite").json
    assert (result["rows"], result["holdout"]["rows"]) == (3000, 1000)
    url = json.dumps(str(places.test))
    file.write_text(f"holdout = {url}\nl1 = 1e-5", encoding="utf-8-sig")  # with a byte order mark
    assert run(*arguments, "--json", "--overwrite").json["holdout"]["rows"] == 1000
    file.write_text("holdout = 0.2\nshuffle = false\n[class_weight]\n-1 = 2\n1 = 0.5\n")
    run(*arguments, "--shuffle", "--holdout", places.test, "--json", "--overwrite")
    config = config_of(tmp_path / "m")
    assert config.shuffle
    assert config.class_weight == {"-1": 2, "1": 0.5}


def test_a_file_has_options_of_raw_rows_too(run, tmp_path):
    table, file = tmp_path / "rows.csv", tmp_path / "run.toml"
    table.write_text("id,x,note,y\n" + "".join(f"{n},{n % 7},a b,{n % 2}\n" for n in range(200)))
    file.write_text('label = "id"\ncolumns = ["x", "note"]\ntext_column = "note"\nl1 = 0.001\n')
    train = ("train", table, "--label", "y", "--overwrite", "--json", "--model", tmp_path / "m")
    options = ("--columns", "x,note", "--text-column", "note", "--l1", "0.001")
    assert run(*train, "--config", file).json["digest"] == run(*train, *options).json["digest"]


def test_a_wrong_file_is_one_error(run, places, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train = ("train", places.train, "--model", "m", "--config", "run.toml")
    assert "cannot read run.toml: No such file" in run(*train).error
    for text, message in (
        (
            "learning_rate = 1",
            "run.toml: setting 'learning_rate' is not known; did you mean 'step_size'?",
        ),
        ("lable = 'y'", "run.toml: setting 'lable' is not known; did you mean 'label'"),
        ("ngrams = 0", "run.toml: ngrams must be a whole number of at least 1"),
        ("no_labels = true", "run.toml: setting 'no_labels' is not known; did you mean"),
        ("l1 = ", "run.toml is not TOML"),
        ("l1 = 'much'", "run.toml: l1 must be a finite number"),
        ("shuffle = 'no'", "run.toml: shuffle must be True or False"),
        ("class_weight = 3", "class_weight must be None, 'balanced' or a mapping"),
    ):
        Path("run.toml").write_text(text)
        assert message in run(*train).error


@pytest.mark.parametrize("label", ["TRUE", "True", "true", "1"])
def test_class_weights_name_booleans_as_files_do(run, tmp_path, label):
    table = tmp_path / "a.csv"
    table.write_text("x,label\n1,TRUE\n2,FALSE\n3,TRUE\n4,FALSE\n")
    train = ("train", table, "--model", tmp_path / "m", "--class-weight")
    assert run(*train, f"{label}=5").code == 0
    assert "names label '2'" in run(*train, "2=5", "--overwrite").stderr


def test_class_weights_are_given_by_the_names_of_labels(run, places, tmp_path):
    source = tmp_path / "text.tsv"
    source.write_text("spam\tbuy this\nham\tgood day\n" * 20)
    ingest(source, str(tmp_path / "data"), format="text", hash_bits=10)
    options = ["--model", tmp_path / "m", "--overwrite", "--json", "--class-weight"]
    run("train", tmp_path / "data", *options, "spam=2.5,ham=1")
    assert config_of(tmp_path / "m").class_weight == {"spam": 2.5, "ham": 1.0}
    for data, weights, message in (
        ("data", "egg=1", "labels are ham, spam"),
        ("data", "spam", "class weight 'spam' is not understood"),
        ("data", "=2", "class weight '=2' is not understood"),
        ("data", "ham=big", "class_weight[ham] must be a finite number of at least 0, not 'big'"),
        (places.train, "spam=2", "names label 'spam', which the data does not have; its labels"),
    ):
        assert message in run("train", tmp_path / data, *options, weights).error


def test_errors_that_are_found_before_training(run, places, tmp_path):
    binary, one_class = tmp_path / "binary", tmp_path / "one"
    ingest(places.text, str(binary), binary=True)
    raw = tmp_path / "one class.svmlight"
    raw.write_text("+1 1:1\n" * 5)
    ingest(raw, str(one_class))
    (tmp_path / "file").write_text("")
    for message, data, model, *options in (
        ("feature space", places.train, "m", "--holdout", binary),
        (f"no dataset at {tmp_path}/none", tmp_path / "none", "m"),
        (f"no dataset at {tmp_path}/none", tmp_path / "none", "m", "--label", "y"),
        ("holds a dataset", places.train, places.test),
        ("holds a dataset", places.train, "n", "--checkpoints", places.test),
        ("holds a model", places.train, "n", "--checkpoints", places.model),
        ("cannot write model.part in", places.train, "file/m"),
        (f"`dadagrad ingest '{raw}' --out URL`", raw, "m", "--checkpoints", tmp_path / "c"),
        ("x has one slash", places.train, "m", "--holdout", "s3:/name:word@bucket/x"),
        (
            "cannot write the log to s3://bucket/x?...; give a local file",
            places.train,
            "m",
            "--log",
            "s3://bucket/x?sig=key",
        ),
        ("cannot write the log to -; give a local file", places.train, "m", "--log", "-"),
        ("put --dashboard at the end", places.train, "m", "--dashboard", places.test),
        ("only one class", one_class, "m", "--checkpoints", tmp_path / "c"),
        ("--batch-size 1 takes", places.train, "m", "--batch-size", 1, "--workers", 2),
    ):
        assert message in run("train", data, "--model", tmp_path / model, *options).error
    assert open_dataset(str(places.test)).n_rows == 1000
    assert not (tmp_path / "m").exists() or not any((tmp_path / "m").iterdir())
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("command", ["train", "resume", "ingest"])
def test_an_unreachable_scheduler_is_one_error_at_once(run, places, tmp_path, command, monkeypatch):
    importlib.import_module("dadagrad.clusters")  # adds its defaults to the configuration
    monkeypatch.setitem(dask.config.config["dadagrad"], "connect-timeout", 0.2)
    model = tmp_path / "m"
    arguments = {
        "train": [places.train, "--model", model],
        "resume": [tmp_path / "c", "--model", model],
        "ingest": [places.text, "--out", model],
    }[command]
    if command == "resume":
        options = {"step_size": 0.3, "batch_size": 100, "save_every": 10}
        train(str(places.train), checkpoints=str(tmp_path / "c"), **options)
        sorted((tmp_path / "c").glob("manifest-*"))[-1].unlink()  # the run is not complete
    begun = time.monotonic()
    # One line on stderr: not even the step size was chosen before.
    error = run(command, *arguments, "--scheduler", "tcp://127.0.0.1:1").error
    assert "no Dask scheduler answers at tcp://127.0.0.1:1 (" in error
    assert time.monotonic() - begun < 10
    assert not (model / "model.json").exists()


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ("0123456789", ["--holdout", "none.csv"], "no rows in"),
        ("0123456789", ["--holdout", "0.001"], "--holdout 0.001 of the 10 rows"),
        (["1.5", "2", "2.5"], [], "the label has numbers such as 1.5"),
        ("a", [], "the label has only one class, a"),
    ],
)
def test_rows_that_cannot_be_learned_from_leave_nothing(
    run, tmp_path, monkeypatch, labels, options, message
):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{label},{number}\n" for number, label in enumerate(labels))
    Path("rows.csv").write_text("y,x\n" + rows)
    Path("none.csv").write_text("y,x\n")
    result = run("train", "rows.csv", "--label", "y", *options, "--model", "model")
    assert result.code == 2
    assert message in result.stderr.splitlines()[-1]
    assert not Path("model").exists()
