"""The group of commands: help, versions, one-line errors, and a start that imports little."""

from __future__ import annotations

import logging
import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

import dadagrad as package
from dadagrad.cli import dadagrad
from dadagrad.cli.main import Failure, Interrupted, Program
from dadagrad.cli.options import make_resources
from dadagrad.config import SETTINGS

COMMANDS = ("ingest", "train", "resume", "evaluate", "predict", "inspect", "demo")


def test_help_lists_the_commands_in_80_columns(run):
    answer = run("--help")
    assert answer.stdout.endswith(
        """
Commands:
  ingest    Convert text, tables or arrays into a dataset.
  train     Train a linear model on a dataset.
  resume    Continue a run from its newest valid checkpoint.
  evaluate  Measure a model on a dataset.
  predict   Write the predictions of a model to a file.
  inspect   Show a model, a dataset or a folder of checkpoints.
  demo      Train, stop, resume and evaluate on a made-up corpus.
"""
    )
    assert run().stdout == answer.stdout


def test_help_of_train_shows_the_settings_in_groups(run):
    shown = run("train", "--help").stdout
    headings = [line for line in shown.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings == [
        "Common:", "Algorithm:", "Regularizers and constraints:", "Batches and streams:",
        "Checkpoints:", "Data:", "Parallel:", "Output:",
    ]  # fmt: skip
    for name, setting in SETTINGS.items():
        option = setting.option or name.replace("_", "-")
        assert re.search(rf"^  --{option} ", shown, re.MULTILINE)
    words = " ".join(shown.split())
    assert "--passes N Number of passes over the data. [default: 1]" in words


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(run, command):
    answer = run(command, "--help")
    assert answer.code == 0
    assert "--json" in answer.stdout


def test_version(run):
    assert package.__version__ in run("--version").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fly"], "No such command 'fly'"),
        (["--fly"], "No such option"),
        (["train", "data"], "Missing option '--model'"),
        (
            ["train", "data", "--model", "m", "--loss", "cubic"],
            "choose one of hinge",
        ),
        (["train", "data", "--model", "m", "--passes", "two"], "passes must be a whole number"),
        (["train", "d", "--model", "m", "--step-size", "big"], "step_size must be a finite number"),
        (["train", "d", "--model", "m", "--batch-size", "1.5"], "must be a whole number"),
        (["train", "d", "--model", "m", "--threads", "2", "--workers", "2"], "exclude each other"),
        (["train", "d", "--model", "m", "--checkpoint-every", "5"], "need --checkpoints"),
        (["train", "d", "--model", "m", "--checkpoints", "./m"], "the same folder"),
        (["ingest", "--out", "x"], "Missing argument 'SOURCE...'"),
        (["ingest", "s", "--out", "x", "--workers", "2", "--scheduler", "a"], "exclude each other"),
    ],
)
def test_usage_errors_are_one_line_that_names_the_help(run, arguments, said):
    error = run(*arguments).error
    assert said in error
    assert error.endswith("--help`")


def test_messages_of_several_lines_become_one():
    assert Failure("a\nb\n  c").message == "a b c"


def test_an_interrupt_ends_with_130():
    group = Program("dadagrad")

    @click.command()
    def nothing() -> None:
        raise KeyboardInterrupt

    group.get_command = lambda ctx, name: nothing  # type: ignore[method-assign]
    result = CliRunner().invoke(group, ["nothing"])
    assert result.exit_code == Interrupted.exit_code == 130
    assert result.stderr == "dadagrad: error: interrupted\n"


def test_an_error_that_nobody_foresaw_is_not_hidden():
    group = Program("dadagrad")

    @click.command()
    def nothing() -> None:
        raise ZeroDivisionError

    group.get_command = lambda ctx, name: nothing  # type: ignore[method-assign]
    assert isinstance(CliRunner().invoke(group, ["nothing"]).exception, ZeroDivisionError)


def test_below_another_group_errors_are_one_line_as_well():
    """As ``dask dadagrad``: another program's group calls ours."""
    outer = click.Group("dask")
    outer.add_command(dadagrad)
    result = CliRunner().invoke(outer, ["dadagrad", "evaluate", "no-model", "no-data"])
    assert result.exit_code == 2
    assert result.stderr.startswith("dadagrad: error: no model at no-model")
    assert len(result.stderr.splitlines()) == 1
    result = CliRunner().invoke(outer, ["dadagrad", "train"])
    assert result.exit_code == 2
    assert result.stderr.startswith("dadagrad: error: Missing argument 'DATA'")


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["train", "d", "--bad"]])
def test_help_and_usage_errors_import_nothing_heavy(arguments):
    code = (
        "import sys\n"
        "from dadagrad.cli import dadagrad\n"
        f"try: dadagrad({arguments!r})\n"
        "except SystemExit: pass\n"
        "heavy = {'numba', 'dask', 'distributed', 'pyarrow', 'zarr', 'sklearn', 'scipy'}\n"
        "sys.exit(f'imported {heavy & set(sys.modules)}' if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "dadagrad", "inspect", "/nowhere"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("dadagrad: error: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("value", "level"),
    [(None, "CRITICAL"), ("critical", "CRITICAL"), ("info", "INFO"), ("?", "CRITICAL")],
)
def test_a_variable_sets_the_level_of_the_messages_of_dask(monkeypatch, value, level):
    monkeypatch.delenv("DASK_LOGGING__DISTRIBUTED", raising=False)
    if value is not None:
        monkeypatch.setenv("DASK_LOGGING__DISTRIBUTED", value)
    names = ("distributed", "distributed.client", "tornado.application")
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    try:
        make_resources(None, 2, None)
        assert {logging.getLevelName(logger.level) for logger in loggers} == {level}
    finally:
        for logger, old_level in zip(loggers, before, strict=True):
            logger.setLevel(old_level)
