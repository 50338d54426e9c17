"""The settings of dadagrad in Dask's configuration, and its commands on Dask's command line."""

import os
import sys
from functools import partial

import dask.cli
import dask.config
import pytest
from helpers.processes import run_python

from dadagrad import InputError
from dadagrad.clusters import count, seconds


def test_a_setting_counts_from_when_it_is_set():
    assert seconds("workers-timeout") == 60.0
    with dask.config.set({"dadagrad.workers-timeout": "2h", "dadagrad.retries": 0}):
        assert seconds("workers-timeout") == 7200.0
        assert count("retries", 0) == 0
    assert count("retries", 0) == 2


def test_a_setting_of_another_kind_is_refused():
    for read, name, values, message in (
        (seconds, "connect-timeout", ["soon", "-1s", None, [], "3 parsecs"], "a time, such as 60s"),
        (partial(count, minimum=1), "task-work", ["many", 0, 1.5, True, None], "a whole number of"),
    ):
        for value in values:
            with (
                dask.config.set({f"dadagrad.{name}": value}),
                pytest.raises(
                    InputError, match=rf"dadagrad\.{name} is .*; it must be {message}.*DASK_"
                ),
            ):
                read(name)


def test_variables_go_before_files_and_files_before_defaults(tmp_path):
    (tmp_path / "mine.yaml").write_text("dadagrad:\n  workers-timeout: 3m\n  retries: 5\n")
    program = (
        "from dadagrad.clusters import count, seconds;"
        "print(seconds('workers-timeout'), count('retries', 0), seconds('connect-timeout'))"
    )
    variables = {"DASK_CONFIG": str(tmp_path), "DASK_DADAGRAD__RETRIES": "7"}
    assert run_python("-c", program, env=os.environ | variables).stdout == "180.0 7 15.0\n"


def test_dask_has_the_commands_too(tmp_path, monkeypatch, capsys):
    """The command `dask` of the real package finds them by the entry point of the project."""

    def train(*words):
        with monkeypatch.context() as patch:
            patch.setattr(dask.cli.cli, "commands", {})
            patch.setattr(sys, "argv", ["dask", "dadagrad", "train", *words])
            with pytest.raises(SystemExit) as end:
                dask.cli.run_cli()
        return end.value.code, capsys.readouterr()

    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.svm").write_text("+1 1:1\n-1 2:1\n" * 20)
    code, said = train("rows.svm", "--model", "model")
    assert (code, "40 rows" in said.out) == (0, True)
    code, said = train()
    assert code == 2
    assert said.err.startswith("dadagrad: error: Missing argument 'DATA...'")
