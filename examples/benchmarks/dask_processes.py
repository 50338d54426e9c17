"""Dask schedulers and workers in processes of their own, started as the tests start theirs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dask.config

from dadagrad.training.engines.dask.engine import CLUSTER_SETTINGS

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from helpers.processes import START_SECONDS, dask_command, dask_scheduler, free_port, running

__all__ = [
    "ENVIRONMENT",
    "START_SECONDS",
    "dask_cluster",
    "dask_command",
    "dask_scheduler",
    "free_port",
    "running",
]

SETTINGS = Path(__file__).parents[2] / "cluster/dask.yaml"

ENVIRONMENT = os.environ | {"DASK_CONFIG": str(SETTINGS)}
"""Of the processes of a cluster, as README has it."""


@contextmanager
def dask_cluster(workers: int, *options: str, on_a_core: bool = False) -> Iterator[str]:
    """The address of a scheduler with so many workers of one thread, all of which are there.

    They and this process have the settings that README recommends. With `on_a_core` each worker
    runs on a core of its own (Linux's taskset), as one of a machine of a single core would.
    """
    from distributed import Client

    with ExitStack() as stack:
        stack.enter_context(dask.config.set(CLUSTER_SETTINGS))
        address = stack.enter_context(dask_scheduler(ENVIRONMENT))
        worker = ("worker", address, "--nthreads", "1", "--no-dashboard", *options)
        for core in range(workers):
            pinned = ["taskset", "-c", str(core)] if on_a_core else []
            command = [*pinned, *dask_command(*worker)]
            stack.enter_context(running(command, environment=ENVIRONMENT))
        with Client(address, set_as_default=False, timeout=START_SECONDS) as client:
            client.wait_for_workers(workers, timeout=START_SECONDS)
        yield address
