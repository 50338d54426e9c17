"""Execution of a coordinator's instructions by the workers of a Dask cluster.

The coordinator stays in this process. A task names data and holds at most the weights of a few
vocabularies; the workers hold nothing that cannot be made again. If a worker is lost, Dask runs its
tasks again elsewhere, and the bits are the same.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import resource_tracker
from typing import Any

import dask.config
from distributed import Client, LocalCluster

from dadagrad.clusters import connected, seconds
from dadagrad.data.dataset import Dataset
from dadagrad.errors import InputError, TrainingError, signals_to_end
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines import Engine
from dadagrad.training.engines.dask.batches import BatchDriver
from dadagrad.training.engines.dask.driver import DaskDriver, clean_up_workers
from dadagrad.training.engines.dask.streams.driver import StreamDriver
from dadagrad.training.engines.dask.tasks import forget_partitions
from dadagrad.training.engines.trace import Trace
from dadagrad.training.engines.watcher import Watcher
from dadagrad.training.memory.workers import WorkerMemory, threads_of_worker, workers_of

_CLIENT_SETTINGS = {
    # Dask keeps the messages sent last for its developers, with their weights and gradients.
    "distributed.admin.low-level-log-length": 10,
    # A task may hold the weights of a whole vocabulary. Dask advises to send large arguments as
    # data instead, but these change with every step.
    "distributed.admin.large-graph-warning-threshold": "1TiB",
}

CLUSTER_SETTINGS = {
    "distributed.admin.low-level-log-length": 10,
    "distributed.client.direct-to-workers": True,
    # Dask makes a worker return all free memory to the system. Each step takes the same again.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 128 << 20,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 32 << 20,
    # The profiler interrupts all threads of all processes a hundred times a second.
    "distributed.worker.profile.enabled": False,
}
"""Settings of the processes of a cluster; `cluster/dask.yaml` has them too."""


class DaskEngine(Engine):
    """Engine that trains on the workers of `client`, which can read `data`."""

    def __init__(self, client: Client, data: Dataset) -> None:
        self.client = client
        self.trace = Trace()
        self.threads = sum(worker.threads for worker in self.workers())
        self._data = data
        self._has_caches = False  # on workers that answer

    def close(self) -> None:
        """Drop the partitions that workers keep from one run of a coordinator to the next."""
        if self._has_caches:
            clean_up_workers(self.client, forget_partitions, self._data.digest)

    def workers(self) -> list[WorkerMemory]:
        return workers_of(self.client)

    def run(self, coordinator: Coordinator, watcher: Watcher) -> bool:
        """See `Engine.run`.

        Raises `InputError` if the workers cannot load dadagrad, `TrainingError` if the cluster
        cannot run a task or is lost.
        """
        kind = StreamDriver if coordinator.problem.online else BatchDriver
        driver: DaskDriver = kind(self.client, self._data, coordinator, watcher)
        try:
            return driver.run()
        finally:
            self.bytes_moved = (self.bytes_moved or 0) + driver.bytes_moved
            self._has_caches = not driver.is_lost


@contextmanager
def open_engine(data: Dataset, workers: int | None, client: Any) -> Iterator[DaskEngine]:
    """Open an engine on `client` (see `connected`), or on a new cluster of so many `workers`.

    Raises `InputError` if `data` is in memory, no scheduler answers, or it has no workers.
    """
    if data.in_memory or any(each.url.startswith("memory://") for each in data.sources):
        raise InputError(
            "data in memory cannot be read by the workers of a cluster; write a dataset with "
            "`dadagrad.ingest`, give a dask array, give `dadagrad.train` a data frame that has the "
            "labels in a column, or train without workers or client"
        )
    with (
        dask.config.set(_CLIENT_SETTINGS),
        start_cluster(workers) if client is None else connected(client) as opened,
    ):
        # A client collects messages for 10 ms. Here one message goes to each worker in each step,
        # and the step waits for it.
        stream: Any = opened.scheduler_comm
        interval, stream.interval = stream.interval, 0.0
        engine = DaskEngine(opened, data)
        try:
            yield engine
        finally:
            engine.close()
            stream.interval = interval


@contextmanager
def start_cluster(workers: int | None) -> Iterator[Client]:
    """Start a cluster of so many processes, which share the cores, and end it after the block.

    Raises `TrainingError` if they do not start.
    """
    start = partial(
        LocalCluster,
        n_workers=workers,
        threads_per_worker=threads_of_worker(workers or 1),
        # No dashboard, and any free port of this machine alone: Dask warns if 8787 is taken.
        dashboard_address=None,
        # A stopped worker holds up a step, by Dask's default for 5 minutes.
        scheduler_kwargs={
            "dashboard_address": "127.0.0.1:0",
            "worker_ttl": seconds("worker-ttl"),
        },
        silence_logs=logging.ERROR,
    )
    with dask.config.set(CLUSTER_SETTINGS):
        # On a thread: a cluster whose start is interrupted cannot be closed.
        with ThreadPoolExecutor(1, "dadagrad", initializer=_block_signals) as pool:
            starting = pool.submit(start)
            try:
                cluster = starting.result()
            except KeyboardInterrupt:
                with suppress(RuntimeError):  # it did not start
                    starting.result().close()
                raise
            except RuntimeError as error:
                raise _not_started(workers, error) from error
        with cluster, Client(cluster, set_as_default=False) as client:
            try:
                client.wait_for_workers(workers, timeout=seconds("workers-timeout"))
            except TimeoutError as error:
                raise _not_started(workers, error) from error
            yield client


def _block_signals() -> None:
    """Block the signals that stop a run in this thread, and in the threads and processes it starts.

    A terminal or a batch system sends them to all processes of a run. The coordinator needs the
    workers for a last checkpoint, and those that are about to begin would write tracebacks.
    """
    if hasattr(signal, "pthread_sigmask"):  # absent on Windows
        signal.pthread_sigmask(signal.SIG_BLOCK, signals_to_end())
        resource_tracker.ensure_running()  # unblocks SIGINT and SIGTERM
        signal.pthread_sigmask(signal.SIG_BLOCK, signals_to_end())


def _not_started(workers: int | None, error: Exception) -> TrainingError:
    cause = error.__cause__ or error
    return TrainingError(
        f"the {workers} worker processes did not start ({cause}); free memory, start fewer of "
        "them, or set dadagrad.workers-timeout in Dask's configuration"
    )
