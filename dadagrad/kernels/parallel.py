"""Jobs on threads, which compiled loops share, and the cores that there are for them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import Executor
from itertools import count
from pathlib import Path
from typing import TypeAlias

Spread: TypeAlias = Callable[[Callable[[int], None], int], None]
"""Calls a function with each number below another one, in any order; returns after the last."""


def available_cores() -> int:
    """Return the cores that this process may use, by its affinity and the quota of its container.

    Like `dask.system.CPU_COUNT`, whose import takes longer than a small run.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass  # no container, or "max": no quota
    return cores


def serial(job: Callable[[int], None], n_jobs: int) -> None:
    """Call all on the calling thread."""
    for number in range(n_jobs):
        job(number)


def threaded(pool: Executor, threads: int) -> Spread:
    """Spread jobs over the calling thread and up to ``threads - 1`` of `pool`.

    The calling thread takes jobs too, and waits only for threads that have begun: it may be one of
    the pool, whose threads may all be busy.
    """

    def spread(job: Callable[[int], None], n_jobs: int) -> None:
        if n_jobs == 1:
            return job(0)
        numbers = count()

        def work() -> None:
            while (number := next(numbers)) < n_jobs:
                job(number)

        helpers = [pool.submit(work) for _ in range(min(threads, n_jobs) - 1)]
        try:
            work()
        finally:
            begun = [helper for helper in helpers if not helper.cancel()]
            errors = [helper.exception() for helper in begun]
        for error in errors:
            if error is not None:
                raise error

    return spread
