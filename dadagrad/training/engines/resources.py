"""Resources of a run: threads of this process, a cluster started for it, or a running cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from dadagrad.data.dataset import Dataset
from dadagrad.errors import InputError
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines.watcher import Watcher
from dadagrad.training.memory.available import WorkerMemory
from dadagrad.training.worker.partition_reader import Loader


class Engine(Protocol):
    """Executor of a coordinator's instructions.

    Attributes
    ----------
    bytes_moved : int or None
        Size of the weights and gradients that travelled to other processes and from them; None
        without a cluster.
    loader : Loader or None
        Reader of partitions, if they are read in this process.
    """

    bytes_moved: int | None

    @property
    def loader(self) -> Loader | None: ...

    def run(self, coordinator: Coordinator, watcher: Watcher) -> bool:
        """Drive `coordinator` until it finishes; True if the run is complete."""

    def workers(self) -> list[WorkerMemory]:
        """Return the workers of the cluster; none without a cluster."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Threads, workers and memory of a run; no bit of the model depends on them.

    Attributes
    ----------
    threads : int or None
        Threads of this process; None takes 2, or 1 on a machine with one core.
    workers : int or None
        Processes of a Dask cluster that is started for the run.
    client : distributed.Client, str or None
        Client of a running Dask cluster, the address of its scheduler, or "current" for the active
        client.
    memory : int or None
        Bytes that the run may take in this process; None stands for the free memory. A run that is
        predicted to take more is refused.
    """

    threads: int | None = None
    workers: int | None = None
    client: Any = None
    memory: int | None = None

    def __post_init__(self) -> None:
        for name in ("threads", "workers", "memory"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise InputError(f"{name} must be a whole number of at least 1, not {value!r}")
        if self.workers is not None and self.client is not None:
            raise InputError(
                "workers starts a cluster and client uses a running one; give one of them"
            )
        if self.threads is not None and self.on_cluster:
            raise InputError(
                "threads is for training in this process, and a cluster has its own threads; give "
                "threads, workers or client"
            )

    @property
    def on_cluster(self) -> bool:
        """True if workers of a cluster compute."""
        return self.workers is not None or self.client is not None

    @property
    def local_threads(self) -> int:
        """Threads of this process, which are used by all engines."""
        return self.threads or min(2, os.cpu_count() or 1)

    @contextmanager
    def engine(self, data: Dataset) -> Iterator[Engine]:
        """Open the engine that trains on `data`; `InputError` if the cluster does not answer."""
        if self.on_cluster:
            from dadagrad.training.engines.dask.engine import DaskEngine

            with DaskEngine(data, workers=self.workers, client=self.client) as engine:
                yield engine
            return
        from dadagrad.training.engines.threads import LocalEngine

        yield LocalEngine(data, self.local_threads)
