"""The group of commands: help, versions, one-line errors, and a start that imports little."""

import logging
import re

import pytest
from helpers.processes import run_python

import dadagrad as package
from dadagrad.cli.options import load_dask
from dadagrad.config import SETTINGS

COMMANDS = (
    *("ingest", "train", "resume", "sweep", "evaluate", "predict", "inspect", "report"),
    *("export", "demo"),
)


def test_help_lists_the_commands_in_80_columns(run):
    answer = run("--help")
    commands = answer.stdout.partition("\nCommands:\n")[2].splitlines()
    assert tuple(line.split()[0] for line in commands) == COMMANDS
    assert max(map(len, answer.stdout.splitlines())) <= 80
    assert not any(line.endswith("...") for line in commands)
    assert run().stdout == answer.stdout
    assert all("--json" in run(command, "--help").stdout for command in COMMANDS)
    assert package.__version__ in run("--version").stdout


def test_help_of_train_shows_the_settings_in_groups(run):
    shown, brief = (run("train", option).stdout for option in ("--help-all", "--help"))
    headings = [line for line in shown.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings == [
        "Common:", "Raw files:", "Data:", "Regularizers and constraints:", "Algorithm:",
        "Parallel:", "Checkpoints:", "Output:",
    ]  # fmt: skip
    for name, setting in SETTINGS.items():
        option = setting.option or name.replace("_", "-")
        assert re.search(rf"^  --{option} ", shown, re.MULTILINE)
        assert (f"\n  --{option} " in brief) == (not setting.research)
    words = " ".join(shown.split())
    assert "--passes N Number of passes over the data. [default: 1]" in words


def test_usage_errors_are_one_line_that_names_the_help(run):
    for arguments, said in (
        (["fly"], "No such command 'fly'"),
        (["--fly"], "No such option"),
        (["trian"], "No such command 'trian'; did you mean 'train'?"),
        (["train", "data", "--epochs", "3"], "option '--epochs'; did you mean '--passes'?"),
        (["train", "data", "--hodlout", "3"], "'--hodlout'; did you mean '--holdout'"),
        (["train", "data"], "Missing option '--model'"),
        (["train", "data", "--model", "m", "--loss", "cubic"], "choose one of hinge"),
        (
            ["train", "data", "--model", "m", "--passes", "two"],
            "'--passes': must be a whole number",
        ),
        (
            ["train", "d", "--model", "m", "--step-size", "big"],
            "'--step-size': must be a finite number",
        ),
        (
            ["train", "d", "--model", "m", "--checkpoints", "c", "--checkpoint-seconds", "nan"],
            "must be a finite number above 0, not nan",
        ),
        (["train", "d", "--model", "m", "--batch-size", "1.5"], "must be a whole number"),
        (["train", "d", "--model", "m", "--threads", "2", "--workers", "2"], "exclude each other"),
        (
            ["train", "d", "--model", "m", "--checkpoint-every", "5"],
            "no effect without --checkpoints",
        ),
        (["train", "d", "--model", "m", "--checkpoints", "./m"], "the same folder"),
        (["ingest", "--out", "x"], "Missing argument 'SOURCE...'"),
        (["ingest", "s", "--out", "x", "--workers", "2", "--scheduler", "a"], "exclude each other"),
    ):
        error = run(*arguments).error
        assert said in error
        assert error.endswith("--help`")


def test_help_and_usage_errors_import_nothing_heavy():
    code = """
import sys
from dadagrad.cli import dadagrad
for arguments in (["--help"], ["train", "--help"], ["train", "d", "--bad"]):
    try:
        dadagrad(arguments)
    except SystemExit:
        pass
heavy = {"numba", "dask", "distributed", "pyarrow", "zarr", "sklearn", "scipy"}
sys.exit(f"imported {heavy & set(sys.modules)}" if heavy & set(sys.modules) else 0)
"""
    run_python("-c", code)


@pytest.mark.parametrize(
    ("value", "level"), [(None, "CRITICAL"), ("info", "INFO"), ("?", "CRITICAL")]
)
def test_a_variable_sets_the_level_of_the_messages_of_dask(monkeypatch, value, level):
    monkeypatch.delenv("DASK_LOGGING__DISTRIBUTED", raising=False)
    if value is not None:
        monkeypatch.setenv("DASK_LOGGING__DISTRIBUTED", value)
    names = ("distributed", "distributed.client", "tornado.application")
    for logger in map(logging.getLogger, names):
        monkeypatch.setattr(logger, "level", logger.level)
        monkeypatch.setattr(logger, "_cache", {})
    load_dask()
    assert {logging.getLevelName(logging.getLogger(name).level) for name in names} == {level}
