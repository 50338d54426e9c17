"""Sharing out independent jobs among threads that may be busy with something else."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from itertools import count
from typing import TypeAlias

Spread: TypeAlias = Callable[[Callable[[int], None], int], None]
"""Calls a function with each number below another one, in whatever order; returns after the last.

Jobs must not depend on each other, so that the order changes nothing.
"""


def in_turn(job: Callable[[int], None], n_jobs: int) -> None:
    """All on the calling thread."""
    for number in range(n_jobs):
        job(number)


def over(pool: Executor, threads: int) -> Spread:
    """Spread jobs over the calling thread and up to ``threads - 1`` of `pool`.

    The calling thread works through them as well, and waits for nobody who has not begun: that it
    may be one of the pool, all of which are busy, is no deadlock.
    """

    def spread(job: Callable[[int], None], n_jobs: int) -> None:
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
