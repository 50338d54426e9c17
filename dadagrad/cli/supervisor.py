"""Parent process of a command whose memory is limited, which reports a sudden death in one line.

LLVM, OpenBLAS and the C++ library end a process that lacks memory, and so does the system in a
control group, before Python can say why.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from dadagrad.cli.failures import ADVICE, Failure
from dadagrad.errors import lacks_memory, signals_to_end
from dadagrad.storage.memory import free_addresses, has_limited_group

_DEATH_OF_PARENT = 1  # of prctl(2)
_END_SECONDS = 5.0
"""Time for a process that failed to end, after which SIGALRM ends it."""


def supervised(command: Callable[[], None]) -> None:
    """Run a command here, or in a child process if its memory is limited."""
    can_wait = hasattr(signal, "sigwaitinfo") and hasattr(os, "memfd_create")
    is_limited = free_addresses() is not None or has_limited_group()
    if not (can_wait and is_limited) or ("-" in sys.argv and sys.stdin.isatty()):
        command()
        return
    libraries = os.memfd_create("stderr")
    waited = {signal.SIGCHLD, signal.SIGTSTP, *signals_to_end()}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    parent = os.getpid()
    child = os.fork()
    if child:
        sys.exit(_wait(child, waited, libraries))
    ctypes.CDLL(None).prctl(_DEATH_OF_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it has been killed before
        os._exit(1)
    os.setpgid(0, 0)  # signals of a terminal come from the parent, and so once
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    os.dup2(libraries, 2)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        command()
    except SystemExit as end:
        if end.code:  # a thread that could not begin may hold up the end for ever
            signal.setitimer(signal.ITIMER_REAL, _END_SECONDS)
        raise
    finally:
        sys.stderr = sys.__stderr__  # what libraries have to say of the end of the process


def _wait(child: int, waited: set[signal.Signals], libraries: int) -> int:
    """Pass signals on to the command until it ends; return its exit code.

    `libraries` has what compiled libraries wrote to stderr.
    """
    status = None
    while status is None:
        number = signal.sigwaitinfo(waited).si_signo
        if number == signal.SIGCHLD:
            ended, code = os.waitpid(child, os.WNOHANG)
            status = code if ended else None
        else:
            stops = number == signal.SIGTSTP
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGSTOP if stops else number)
            if stops:
                os.kill(os.getpid(), signal.SIGSTOP)
                os.kill(child, signal.SIGCONT)
    said = os.pread(libraries, 1 << 16, 0).decode(errors="backslashreplace")
    exit_code = os.waitstatus_to_exitcode(status)
    if exit_code == -signal.SIGALRM:  # it has said why
        return Failure.exit_code
    if exit_code < 0 or (exit_code and lacks_memory(RuntimeError(said))):
        end = f"was ended by {signal.Signals(-exit_code).name}" if exit_code < 0 else "ended"
        Failure(f"the command {end}, as it probably ran out of memory; {ADVICE}").show()
        return Failure.exit_code
    if exit_code < Failure.exit_code:
        sys.stderr.write(said)
    return exit_code
