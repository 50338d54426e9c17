"""Seconds and memory of calls, and calls in processes of their own."""

from __future__ import annotations

import multiprocessing
import re
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


def seconds_of(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds that a call takes by a clock."""
    begun = clock()
    call()
    return clock() - begun


def peak_memory(process: int | str = "self") -> int:
    """Peak of the resident memory of a process in bytes, by its number; Linux alone.

    It is that of the program: getrusage would answer with the peak of the process that started it,
    if that is higher.
    """
    peak = re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{process}/status").read_text())
    assert peak is not None, "the process has ended"
    return 1024 * int(peak[1])


def call_apart(function: Callable[..., Result], *arguments: object) -> Result:
    """Result of a call in a new process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(function, *arguments).result()
