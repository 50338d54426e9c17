"""Commands that lack memory or are told to stop: one line on stderr, and nothing half-written."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial

import click
import psutil
import pytest
from click.testing import CliRunner
from helpers.processes import run_python

from dadagrad.cli import failures
from dadagrad.cli.failures import Failure
from dadagrad.cli.main import Program

MEGABYTE = 1 << 20
BEGINNING = "dadagrad: error: "


def fail(program, megabytes=None):
    """The line with which a Python program ends, with exit code 2, in so many addresses."""

    def limit():
        if megabytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (megabytes * MEGABYTE, megabytes * MEGABYTE))

    done = run_python(*program, code=2, preexec_fn=limit)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1), done.stderr
    assert done.stderr.startswith(BEGINNING)
    return done.stderr.removeprefix(BEGINNING)


@pytest.mark.parametrize(
    ("megabytes", "command"),
    [
        (80, "train {train} --model {out}"),
        (300, "ingest {text} --out {out}"),
        (1300, "train {train} --model {out} --workers 1"),
        (400, "predict {model} {test} --out {out}"),
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
        (4, "predict {model} {test} --out {out} --quiet"),
        (1, "train {train} --model {out} --on-error skip --quiet"),
    ],
)
def test_memory_that_runs_out_is_one_error_and_no_damage(places, tmp_path, free, command):
    words = command.format(**vars(places), out=tmp_path / "out").split()
    assert "memory" in fail(["-c", DRIVER, str(free), *words])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


SUPERVISED = """
import os, resource, signal, sys, time
from dadagrad.cli.supervisor import supervised
def command():
    {death}
resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))
supervised(command)
"""


@pytest.mark.parametrize(
    ("death", "line"),
    [
        ("os.abort()", "the command was ended by SIGABRT, as it probably ran out of memory"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "the command was ended by SIGKILL, as it pr"),
        ("os.write(2, b'OpenBLAS: Memory allocation failed\\n'); os._exit(1)", "the command end"),
    ],
)
def test_a_library_that_ends_a_process_of_little_memory_is_one_error(death, line):
    assert fail(["-c", SUPERVISED.format(death=death)]).startswith(line)


def test_an_error_at_the_end_of_such_a_process_is_not_shown_after_its_own():
    death = "__import__('atexit').register(lambda: 1 / 0); sys.stderr.write('%s'); sys.exit(2)"
    line = f"{BEGINNING}first\\n"
    assert fail(["-c", SUPERVISED.format(death=death % line)]) == "first\n"


def test_a_thread_that_never_ends_does_not_hold_up_the_end_of_such_a_process():
    death = (
        "import threading, dadagrad.cli.supervisor as supervisor; "
        "supervisor._END_SECONDS = 0.1; sys.stderr.write('dadagrad: error: first\\n'); "
        "threading.Thread(target=threading.Event().wait).start(); sys.exit(2)"
    )
    assert fail(["-c", SUPERVISED.format(death=death)]) == "first\n"


@pytest.mark.parametrize(
    ("end", "code", "stderr"),
    [("sys.exit(3)", 3, ""), ("os.write(2, b'hint')", 0, "hint"), ("raise OSError", 1, "OSError")],
)
def test_another_end_of_such_a_process_is_its_own(end, code, stderr):
    done = run_python("-c", SUPERVISED.format(death=end), code=code)
    assert done.stderr.splitlines()[-1:] == stderr.splitlines()


def test_a_signal_reaches_such_a_process_once_and_a_kill_ends_both():
    death = "signal.signal(15, lambda *_: print(15, flush=True)); print(os.getpid(), flush=True)"
    program = SUPERVISED.format(death=f"{death}; time.sleep(60)")
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        parent.terminate()
        assert parent.stdout.readline() == b"15\n"
        parent.kill()
        child.wait(10)
        assert parent.stdout.read() == b""


def outcome(action):
    """Exit code of a command that takes an action, and what it writes to stderr."""
    group = Program("dadagrad")
    group.get_command = lambda ctx, name: click.command()(action)
    result = CliRunner().invoke(group, ["command"])
    return result.exit_code, result.stderr


NO_MEMORY = (
    f"{BEGINNING}there is not enough memory; free some, raise the limit (ulimit -v), or make "
    "smaller partitions (ingest with --partition-nnz)\n"
)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, f"{BEGINNING}interrupted\n"),
        (Failure("a\nb\n  c"), 2, f"{BEGINNING}a b c\n"),
        (OSError(13, "Permission denied", "x"), 2, f"{BEGINNING}x: Permission denied; check per"),
        (MemoryError(), 2, NO_MEMORY),
        (RuntimeError("can't start new thread"), 2, NO_MEMORY),
        (OSError(12, os.strerror(12)), 2, NO_MEMORY),
        (ZeroDivisionError(), 1, ""),  # an unforeseen error is not hidden
    ],
    ids=repr,
)
def test_an_error_ends_a_command_with_a_code_and_one_line(error, code, message):
    def fail():
        raise error

    def fail_later():
        try:
            fail()
        except BaseException as first:
            raise ValueError from first

    def wait_for_a_thread():
        """Wait in vain: the thread dies."""
        threading.Thread(target=fail).start()
        threading.Event().wait()

    later = [fail_later] if code == 130 else [fail_later, wait_for_a_thread]
    actions = [fail, *later] if code == 130 or message == NO_MEMORY else [fail]
    for action in actions:
        found_code, text = outcome(action)
        assert (found_code, text[: len(message)]) == (code, message)
        assert text.count("\n") == (code != 1)


def test_a_thread_that_cannot_begin_is_not_waited_for(monkeypatch):
    """It lacks the memory for its first call, and the one that starts it waits for a sign."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 44, before[1]))
    names = "_start_new_thread", "_start_joinable_thread"  # the latter from Python 3.13 on
    [start] = filter(partial(hasattr, threading), names)
    monkeypatch.setattr(threading, start, lambda *arguments, **settings: 0)
    monkeypatch.setattr(failures, "_address_space_was_full", lambda: True)
    monkeypatch.setattr(failures, "_LOOK_SECONDS", 0.05)
    try:
        assert outcome(threading.Thread(target=print).start) == (2, NO_MEMORY)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


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
    assert (answer.code, answer.stderr) == (143, f"{BEGINNING}interrupted\n")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_in_a_callback_of_a_library_is_not_lost():
    callback = ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGTERM))

    def call_and_wait():
        callback()
        time.sleep(5)

    assert outcome(call_and_wait) == (143, f"{BEGINNING}interrupted\n")


def test_a_signal_whose_error_is_caught_comes_again_but_not_while_the_command_ends():
    ends = []

    def import_and_wait():
        with suppress(BaseException):
            signal.raise_signal(signal.SIGHUP)
        try:
            time.sleep(5)
        finally:
            time.sleep(3 * failures._LOST_SECONDS)
            ends.append(True)

    assert outcome(import_and_wait) == (129, f"{BEGINNING}interrupted\n")
    assert ends


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


@pytest.mark.parametrize("starts", [True, False])
def test_a_cluster_that_is_about_to_start_is_closed_in_silence(places, tmp_path, starts):
    command = ["train", places.train, "--model", tmp_path / "m", "--workers", "1"]
    driver = INTERRUPTED if starts else INTERRUPTED.replace("start(nanny)", "None.start")
    done = run_python("-c", driver, *command, code=143)
    assert done.stderr == f"{BEGINNING}interrupted\n"


def test_a_command_that_was_killed_before_leaves_nothing(run, places, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.part").touch()
    assert run("train", places.train, "--model", model, "--step-size", "0.1").code == 0
    names = sorted(path.name.partition("-")[0] for path in model.iterdir())
    assert names == ["model.json", "parts"]
