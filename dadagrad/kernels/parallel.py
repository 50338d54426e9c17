"""Jobs on threads, which compiled loops share."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from itertools import count
from typing import TypeAlias

Spread: TypeAlias = Callable[[Callable[[int], None], int], None]
"""Calls a function with each number below another one, in any order; returns after the last.
"""


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
