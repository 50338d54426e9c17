"""The Dask engine: workers of a cluster carry out the coordinator's instructions.

The coordinator stays in this process. A task names data and holds at most the weights of a few
vocabularies; nothing that matters lives on a worker. When one is lost, Dask runs its tasks again
elsewhere, and the bits are the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from dadagrad.dask_client import connected
from dadagrad.dask_config import seconds
from dadagrad.data.dataset import Dataset, MemoryDataset
from dadagrad.errors import InputError
from dadagrad.training.begin import AnyCoordinator
from dadagrad.training.room import WorkerRoom, workers_of
from dadagrad.training.watch import Watcher

KEPT_MESSAGES = {"distributed.admin.low-level-log-length": 10}
"""Dask keeps those sent last for its developers: they hold weights and gradients."""

CLUSTER_SETTINGS = {
    **KEPT_MESSAGES,
    "distributed.client.direct-to-workers": True,
    # Dask has a worker give back all memory that is free. Each step takes the same again.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 128 << 20,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 32 << 20,
    # A hundred times a second it looks at each thread, in all processes.
    "distributed.worker.profile.enabled": False,
}
"""For the processes of a cluster; `cluster/dask.yaml` has them too."""


class DaskEngine:
    """Runs a coordinator to its end on a Dask cluster; a context manager.

    On entering it connects, so that a cluster that is not there is noticed before anything is
    done for a run.

    Parameters
    ----------
    data : Dataset
        Must be at a URL that the workers can read.
    workers : int or None
        Processes of a cluster that is started on entering and ends on leaving.
    scheduler : str or None
        Address of a running scheduler.

    Raises
    ------
    InputError
        `data` is in memory; on entering: no scheduler answers at the address, or it has no
        workers.
    """

    bytes_moved: int | None = None
    loader = None  # the workers read for themselves

    def __init__(self, data: Dataset, *, workers: int | None, scheduler: str | None) -> None:
        if isinstance(data, MemoryDataset) or data.url.startswith("memory://"):
            raise InputError(
                "data in memory cannot be read by the workers of a cluster; write it with "
                "`dadagrad ingest`, or train without workers"
            )
        self._data = data
        self._client: Any = None
        self._context = _client(workers, scheduler)

    def __enter__(self) -> DaskEngine:
        self._client = self._context.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client = None
        self._context.__exit__(kind, error, trace)

    def workers(self) -> list[WorkerRoom]:
        """The workers of the cluster, and the memory that each may take."""
        return workers_of(self._client)

    def run(self, coordinator: AnyCoordinator, watcher: Watcher) -> bool:
        """Drive `coordinator` until it finishes; True if the run is complete.

        Raises
        ------
        InputError
            The workers cannot load dadagrad.
        TrainingError
            The cluster cannot carry a task out.
        """
        from dadagrad.training.dask_drive import Drive

        drive = Drive(self._client, self._data, coordinator, watcher)
        try:
            return drive.run()
        finally:
            self.bytes_moved = drive.bytes_moved


@contextmanager
def _client(workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """A client of a cluster, with at least one worker there."""
    import dask.config
    import distributed  # noqa: F401 (first: it adds its defaults to the configuration)

    settings = {
        # A task may hold the weights of a whole vocabulary. Dask's advice against large graphs is
        # for those that should have been data: these change with every step.
        "distributed.admin.large-graph-warning-threshold": "1TiB",
        **KEPT_MESSAGES,
    }
    with (
        dask.config.set(settings),
        _own_cluster(workers) if scheduler is None else connected(scheduler) as client,
    ):
        # A client gathers messages for 10 ms. Here one message goes out for each worker and step,
        # and nothing happens before it arrives.
        if client.scheduler_comm is not None:
            client.scheduler_comm.interval = 0.0
        yield client


@contextmanager
def _own_cluster(workers: int | None) -> Iterator[Any]:
    import dask.config
    from distributed import Client, LocalCluster

    with (
        dask.config.set(CLUSTER_SETTINGS),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            # No dashboard, and any free port: 8787 may be taken, which Dask warns about.
            dashboard_address=None,
            # A worker that was stopped holds up a step: by default, Dask's 5 minutes.
            scheduler_kwargs={"dashboard_address": ":0", "worker_ttl": seconds("worker-ttl")},
            silence_logs=logging.ERROR,
            preload=["dadagrad.training.dask_tasks"],
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(workers, timeout=seconds("workers-timeout"))
        yield client
