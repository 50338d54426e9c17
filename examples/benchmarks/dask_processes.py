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

from helpers.processes import START_SECONDS, free_port, running

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
        port, run = str(free_port()), [sys.executable, "-m", "dask"]
        listening = ["--host", "127.0.0.1", "--port", port, "--no-dashboard"]
        scheduler = [*run, "scheduler", *listening]
        stack.enter_context(running(scheduler, environment=ENVIRONMENT))
        address = f"tcp://127.0.0.1:{port}"
        worker = [*run, "worker", address, "--nthreads", "1", "--no-dashboard", *options]
        for core in range(workers):
            pinned = ["taskset", "-c", str(core)] if on_a_core else []
            stack.enter_context(running([*pinned, *worker], environment=ENVIRONMENT))
        with Client(address, set_as_default=False, timeout=START_SECONDS) as client:
            client.wait_for_workers(workers, timeout=START_SECONDS)
        yield address
