"""Ends of a command that fails: one line on stderr and an exit code, also for lack of memory."""

from __future__ import annotations

import importlib
import mmap
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, Any

import click

from dadagrad.errors import (
    DadagradError,
    OutOfMemory,
    lacks_memory,
    nearest,
    on_command_line,
    origins,
    signals_to_end,
)
from dadagrad.storage.backends import give_up_stores
from dadagrad.storage.memory import free_addresses, free_memory

ADVICE = (
    "free some, raise the limit (ulimit -v), or make smaller partitions (ingest with "
    "--partition-nnz)"
)
_NO_MEMORY = f"there is not enough memory; {ADVICE}"

MEGABYTES = {
    "numpy": (170, 30),
    "pyarrow": (200, 40),
    "zarr": (100, 20),
    "scipy.sparse": (60, 10),
    "pandas": (100, 40),  # pyarrow imports it where it is installed
    "scipy.special": (130, 20),
    "numba": (230, 100),
    "scipy.linalg": (30, 10),
    "distributed": (800, 60),
}
"""Address space and memory that a library and a little work with it take on two cores, in MB.

Loaded with less, some of them wait for ever or end the process.
"""
_MEGABYTES_OF_A_CORE = 20  # address space of the threads that some of them start
_NEARLY_NOTHING = _RESERVE = 16 << 20
_LOOK_SECONDS = 1.0
_LOST_SECONDS = 0.1
"""Time after a signal to end, after which it comes again if a library has lost its error."""
_START_OF_A_THREAD = threading.Thread.start.__code__
_DEATH_OF_A_THREAD = signal.SIGUSR2 if hasattr(signal, "SIGUSR2") else signal.SIGTERM


_COMMAND = re.compile("No such command '(.*)'")


class Failure(click.ClickException):
    """Error that is shown as one line on stderr and ends the command with an exit code."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    def show(self, file: IO[Any] | None = None) -> None:
        with suppress(OSError):  # the disk of a log is full
            click.echo(f"dadagrad: error: {self.message}", file=file, err=file is None)


class _Signal(KeyboardInterrupt):
    """Signal to end; Python ends a module as by SIGINT if it meets `KeyboardInterrupt` itself."""


class Interrupted(Failure):
    """Stop of the command by a signal, such as that of Ctrl-C.

    The exit code is that of a shell: 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP.
    """

    def __init__(self, message: str, stopped_by: str = "SIGINT") -> None:
        super().__init__(message)
        self.exit_code = 128 + signal.Signals[stopped_by]  # type: ignore[misc]


@contextmanager
def failing_in_one_line() -> Iterator[None]:
    """Turn the errors that users meet into a `Failure`; others pass, as they are defects."""
    try:
        with (
            on_command_line(),
            mmap.mmap(-1, _RESERVE),
        ):  # address space that the handling of an error may need
            yield
    except (Failure, BrokenPipeError, SystemExit, click.exceptions.Exit):
        raise  # click ends quietly where the reader of the output has gone
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "dadagrad"
        question = _question(error)
        # The message in its form for people may have another question, by click's rules.
        message = (error.message if question else error.format_message()).rstrip(".")
        see = f"{question} See" if question else "see"
        raise Failure(f"{message}; {see} `{path} --help`") from error
    except click.ClickException as error:
        raise Failure(error.format_message()) from error
    except DadagradError as error:
        with on_command_line():
            message = str(error)
        raise Failure(message) from error
    except BaseException as error:
        # Python has other errors come from an interrupt where a class is made.
        for origin in origins(error):
            if _is_interrupt(origin):
                names = [signal.Signals(n).name for n in origin.args if isinstance(n, int)]
                raise Interrupted("interrupted", *names) from error
        if lacks_memory(error) or _address_space_was_full():
            raise Failure(_NO_MEMORY) from error
        if not isinstance(error, OSError) or error.strerror is None:
            raise
        place = f"{error.filename}: " if error.filename else ""
        raise Failure(f"{place}{error.strerror}; check permissions and free space") from error


def _question(error: click.UsageError) -> str:
    """The question whether another option or command was meant, if one is like that given."""
    if error.ctx is None:
        return ""
    command, names = error.ctx.command, list[str]()
    if isinstance(error, click.NoSuchOption):
        name, names = error.option_name, [each.opts[0] for each in command.params]
    elif isinstance(command, click.Group) and (unknown := _COMMAND.search(error.message)):
        name, names = unknown[1], command.list_commands(error.ctx)
    return nearest(name, names, "") if names else ""


def _address_space_was_full() -> bool:
    """Return True if the limit of addresses was nearly reached: any error may come from that."""
    free = free_addresses()
    if free is None:
        return False
    with suppress(OSError), open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
        size, peak = (int(fields[name].split()[0]) << 10 for name in ("VmSize", "VmPeak"))
        free -= peak - size
    return free < _NEARLY_NOTHING


def _is_interrupt(error: BaseException | None) -> bool:
    return isinstance(error, KeyboardInterrupt)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `KeyboardInterrupt` at a signal to end, and `OutOfMemory` if a thread dies of that.

    A thread that waits for the dead one would wait for ever. A thread that cannot even begin tells
    nobody: with limited addresses, a timer looks for a start of a thread that lasts. Libraries may
    lose the error of a signal, in callbacks and in imports that may fail: it is sent again then.
    There is no effect outside the main thread, where signals cannot be caught.
    """
    main = threading.main_thread()
    if threading.current_thread() is not main:
        yield
        return

    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        received[:] = [number]
        give_up_stores()  # threads that ask one again are waited for
        look_every(_LOST_SECONDS)
        raise _Signal(number)

    def run_out_of_memory(number: int, frame: FrameType | None) -> None:
        raise OutOfMemory(_NO_MEMORY)

    starting: FrameType | None = None

    def look(number: int, frame: FrameType | None) -> None:
        nonlocal starting
        if received and not any(map(_is_interrupt, origins(sys.exc_info()[1]))):
            signal.raise_signal(received.pop())
        while frame is not None and frame.f_code is not _START_OF_A_THREAD:
            frame = frame.f_back
        if frame is not None and frame is starting and _address_space_was_full():
            raise OutOfMemory(_NO_MEMORY)
        starting = frame

    def look_every(seconds: float) -> None:
        if hasattr(signal, "setitimer"):  # absent on Windows
            before.setdefault(signal.SIGALRM, signal.signal(signal.SIGALRM, look))
            signal.setitimer(signal.ITIMER_REAL, seconds, seconds)

    def on_death(death: threading.ExceptHookArgs) -> None:
        if lacks_memory(death.exc_value) and main.ident is not None:
            signal.pthread_kill(main.ident, _DEATH_OF_A_THREAD)
        else:
            hook(death)

    def on_lost_error(lost: sys.UnraisableHookArgs) -> None:
        if not _is_interrupt(lost.exc_value):
            unraisable_hook(lost)

    handlers = dict.fromkeys(signals_to_end(), interrupt)
    handlers[_DEATH_OF_A_THREAD] = run_out_of_memory
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    hook, threading.excepthook = threading.excepthook, on_death
    unraisable_hook, sys.unraisablehook = sys.unraisablehook, on_lost_error
    if free_addresses() is not None:
        look_every(_LOOK_SECONDS)
    try:
        yield
    finally:
        if before.keys() > handlers.keys():
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        threading.excepthook, sys.unraisablehook = hook, unraisable_hook
        for number, handler in before.items():
            signal.signal(number, handler)


def check_memory(*libraries: str) -> None:
    """Raise `OutOfMemory` if `libraries` do not fit, by default those of the command that runs.

    Where addresses are limited, load them: later there may be too little left.
    """
    if not libraries:
        unused = {"distributed"}
        if click.get_current_context().info_name in ("evaluate", "predict", "inspect"):
            unused |= {"numba", "scipy.linalg"}
        libraries = tuple(name for name in MEGABYTES if name not in unused)
    sizes = [MEGABYTES[name] for name in libraries if name not in sys.modules]
    if not sizes:
        return
    addresses, memory = (sum(column) for column in zip(*sizes, strict=True))
    addresses += _MEGABYTES_OF_A_CORE * max(0, (os.cpu_count() or 1) - 2)
    for kind, free, needed in (
        ("address space", free_addresses(), addresses),
        ("memory", free_memory(), memory),
    ):
        if free is not None and free < needed << 20:
            raise OutOfMemory(
                f"there is not enough memory: the libraries of this command need {needed} MB of "
                f"{kind}, and {free >> 20} MB are free; free some, or raise the limit (ulimit -v)"
            )
    if free_addresses() is not None:
        for name in libraries:
            with suppress(ModuleNotFoundError):  # not all are required
                importlib.import_module(name)
