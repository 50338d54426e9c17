"""Commands that lack memory or are told to stop: one line on stderr, and nothing half-written."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading

import click
import pytest
from click.testing import CliRunner

from dadagrad.cli.main import Program

MEGABYTE = 1 << 20
BEGINNING = "dadagrad: error: "


def fail(program: list[str], megabytes: int | None = None) -> str:
    """The line with which a Python program ends, with exit code 2, in so many addresses."""

    def limit() -> None:
        if megabytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (megabytes * MEGABYTE, megabytes * MEGABYTE))

    done = subprocess.run(
        [sys.executable, *program],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=limit,
    )
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, ""), line
    assert line.startswith(BEGINNING)
    return line.removeprefix(BEGINNING)


@pytest.mark.parametrize(
    ("megabytes", "command"),
    [
        (80, "train {train} --model {out}"),
        (300, "ingest {text} --out {out}"),
        (600, "train {train} --model {out}"),
        (600, "train {train} --model {out} --workers 1"),
        (400, "evaluate {model} {test}"),
        (400, "predict {model} {test} --out {out}"),
        (300, "inspect {model}"),
        (600, "demo --folder {out}"),
    ],
)
def test_too_little_memory_is_one_error_before_anything_is_made(
    places, tmp_path, megabytes, command
):
    words = command.format(**vars(places), out=tmp_path / "out").split()
    assert "memory" in fail(["-m", "dadagrad", *words], megabytes)
    assert list(tmp_path.iterdir()) == []


DRIVER = """
import sys, resource, psutil
import numba, scipy.linalg, scipy.sparse, pyarrow.parquet, zarr
from dadagrad.cli import dadagrad
free, *arguments = sys.argv[1:]
limit = psutil.Process().memory_info().vms + (int(free) << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
dadagrad(arguments)
"""


@pytest.mark.parametrize(
    ("free", "command"),
    [
        (4, "evaluate {model} {test} --quiet"),
        (4, "predict {model} {test} --out {out} --quiet"),
        (1, "train {train} --model {out} --on-error skip --quiet"),
    ],
)
def test_memory_that_runs_out_is_one_error_and_no_damage(places, tmp_path, free, command):
    words = command.format(**vars(places), out=tmp_path / "out").split()
    assert "memory" in fail(["-c", DRIVER, str(free), *words])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("can't start new thread"), OSError(12, os.strerror(12))],
    ids=repr,
)
@pytest.mark.parametrize("thread_dies", [False, True])
def test_errors_of_memory_end_a_command_wherever_they_come_from(error, thread_dies):
    """The main thread must not wait for a thread that has died."""

    @click.command()
    def command() -> None:
        if not thread_dies:
            raise ValueError from error
        threading.Thread(target=die).start()
        threading.Event().wait()

    def die() -> None:
        raise error

    group = Program("dadagrad")
    group.get_command = lambda ctx, name: command  # type: ignore[method-assign]
    result = CliRunner().invoke(group, ["command"])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{BEGINNING}there is not enough memory; ")


@pytest.mark.parametrize(
    "command",
    ["evaluate {model} {test}", "predict {model} {test} --out {out}", "ingest {text} --out {out}"],
)
def test_a_signal_to_end_stops_a_command_and_leaves_nothing(
    run, stop_after, places, tmp_path, command
):
    before = signal.getsignal(signal.SIGTERM)
    stop_after(1, signal.SIGTERM)
    answer = run(*command.format(**vars(places), out=tmp_path / "out").split())
    assert (answer.code, answer.stderr) == (130, f"{BEGINNING}interrupted\n")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert signal.getsignal(signal.SIGTERM) is before


INTERRUPTED = """
import os, signal, sys
from distributed import Nanny
from dadagrad.cli import dadagrad
start = Nanny.start_unsafe
def start_and_stop(nanny):
    os.kill(os.getpid(), signal.SIGTERM)
    return start(nanny)
Nanny.start_unsafe = start_and_stop
dadagrad(sys.argv[1:])
"""


def test_a_cluster_that_is_about_to_start_is_closed_in_silence(places, tmp_path):
    command = ["train", places.train, "--model", tmp_path / "m", "--workers", "1"]
    program = [sys.executable, "-c", INTERRUPTED, *map(str, command)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert done.stderr == f"{BEGINNING}interrupted\n"


def test_a_command_that_was_killed_before_leaves_no_probe(run, places, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "probe").touch()
    assert run("train", places.train, "--model", model, "--step-size", "0.1").code == 0
    assert sorted(path.name[:6] for path in model.iterdir()) == ["model.", "parts-"]
