"""dadagrad in Dask's configuration and on Dask's command line."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import dask.config
import pytest
from click.testing import CliRunner

from dadagrad.dask_config import count, seconds
from dadagrad.errors import InputError


def test_the_defaults_are_there():
    assert seconds("connect-timeout") == 15.0
    assert seconds("workers-timeout") == 60.0
    assert seconds("worker-ttl") == 25.0
    assert count("retries", 0) == 2
    assert count("task-work", 1) == 150_000


def test_what_is_set_counts_from_then_on():
    with dask.config.set({"dadagrad.workers-timeout": "2h", "dadagrad.retries": 0}):
        assert seconds("workers-timeout") == 7200.0
        assert count("retries", 0) == 0
    assert seconds("workers-timeout") == 60.0


@pytest.mark.parametrize("given", ["soon", "-1s", None, [], "3 parsecs"])
def test_what_is_no_time(given):
    with (
        dask.config.set({"dadagrad.connect-timeout": given}),
        pytest.raises(InputError, match=r"it must be a time, such as 60s .*GRAD__CONNECT_TIMEOUT"),
    ):
        seconds("connect-timeout")


@pytest.mark.parametrize("given", ["many", 0, 1.5, True, None])
def test_what_is_no_count(given):
    with (
        dask.config.set({"dadagrad.task-work": given}),
        pytest.raises(InputError, match=r"dadagrad\.task-work is .* whole number of at least 1"),
    ):
        count("task-work", 1)


def test_a_variable_and_a_file_are_heard_before_the_defaults(tmp_path):
    (tmp_path / "mine.yaml").write_text("dadagrad:\n  workers-timeout: 3m\n  retries: 5\n")
    program = (
        "from dadagrad.dask_config import count, seconds;"
        "print(seconds('workers-timeout'), count('retries', 0), seconds('connect-timeout'))"
    )
    variables = {"DASK_CONFIG": str(tmp_path), "DASK_DADAGRAD__RETRIES": "7"}
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split() == ["180.0", "7", "15.0"]


def test_a_wrong_setting_is_one_line(tmp_path, monkeypatch):
    from dadagrad.cli import dadagrad
    from dadagrad.synthetic import Corpus

    Corpus(20, 30, 5.0, seed=1).write_text(tmp_path / "a.svmlight")
    given = ["ingest", str(tmp_path / "a.svmlight"), "--out", str(tmp_path / "out")]
    with dask.config.set({"dadagrad.connect-timeout": "soon"}):
        result = CliRunner().invoke(dadagrad, [*given, "--scheduler", "tcp://127.0.0.1:1"])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("dadagrad: error: dadagrad.connect-timeout is 'soon' in Dask's config")


def test_importing_dadagrad_leaves_dask_alone():
    program = "import sys, dadagrad, dadagrad.cli; print('dask' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert answer.stdout.split() == ["False"], answer.stderr


def test_dask_has_the_commands_too():
    """As Dask finds them: by the entry point that the project declares."""
    import click
    from dask.cli import _register_command_ep

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    ((name, value),) = project["entry-points"]["dask_cli"].items()

    @click.group()
    def interface() -> None:
        """As `dask`."""

    _register_command_ep(interface, EntryPoint(name, value, "dask_cli"))
    listed = CliRunner().invoke(interface, ["dadagrad", "--help"])
    assert listed.exit_code == 0
    assert all(f"\n  {command} " in listed.output for command in ("ingest", "train", "resume"))
    failed = CliRunner().invoke(interface, ["dadagrad", "inspect", "/nowhere"])
    assert failed.exit_code == 2
    (line,) = failed.stderr.splitlines()
    assert line.startswith("dadagrad: error: /nowhere")
