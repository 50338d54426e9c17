"""The group of commands: help, versions, one-line errors, and a start that imports little."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

import dadagrad as package
from dadagrad.cli import dadagrad
from dadagrad.cli.program import Failure, Interrupted, Program

COMMANDS = ("ingest", "train", "resume", "evaluate", "predict", "inspect", "demo")


def test_help_lists_every_command_in_order(run):
    answer = run("--help")
    assert answer.code == 0
    listed = [line.split()[0] for line in answer.stdout.partition("Commands:")[2].splitlines()[1:]]
    assert [word for word in listed if word in COMMANDS] == list(COMMANDS)
    assert run().stdout == answer.stdout


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
        (["train", "data", "--model", "m", "--loss", "cubic"], "'cubic' is not one of 'hinge'"),
        (["train", "data", "--model", "m", "--passes", "two"], "'two' is not a valid integer"),
        (["train", "d", "--model", "m", "--step-size", "big"], "neither a number nor 'auto'"),
        (["train", "d", "--model", "m", "--batch-size", "1.5"], "neither a whole number nor"),
        (["train", "d", "--model", "m", "--delay", "soon"], "neither a whole number nor"),
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
        "heavy = {'numba', 'dask', 'distributed', 'pyarrow', 'zarr', 'sklearn', 'scipy', 'numpy'}\n"
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
