"""Dask schedulers and workers in processes of their own, started as the tests start theirs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dask.config

from dadagrad.training.dask import KEPT_MEMORY

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from processes import START_SECONDS, dask_command, dask_scheduler, free_port, running

__all__ = [
    "START_SECONDS",
    "dask_cluster",
    "dask_command",
    "dask_scheduler",
    "free_port",
    "running",
]


@contextmanager
def dask_cluster(workers: int, *options: str) -> Iterator[str]:
    """The address of a scheduler with so many workers of one thread, all of which are there.

    Memory and messages are as README recommends for clusters.
    """
    from distributed import Client

    with ExitStack() as stack:
        address = stack.enter_context(dask_scheduler())
        stack.enter_context(dask.config.set({"distributed.client.direct-to-workers": True}))
        worker = ("worker", address, "--nthreads", "1", "--no-dashboard", *options)
        environment = os.environ | {name: str(size) for name, size in KEPT_MEMORY.items()}
        for _ in range(workers):
            stack.enter_context(running(dask_command(*worker), environment=environment))
        with Client(address, set_as_default=False, timeout=START_SECONDS) as client:
            client.wait_for_workers(workers, timeout=START_SECONDS)
        yield address
