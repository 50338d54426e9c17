"""Engines carry out the instructions of a coordinator: on threads of this process, or on Dask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines.trace import Trace
from dadagrad.training.engines.watcher import Watcher
from dadagrad.training.memory.workers import WorkerMemory
from dadagrad.training.worker.partition_reader import Loader


class Engine(ABC):
    """Executor of a coordinator's instructions.

    Attributes
    ----------
    bytes_moved : int or None
        Size of the weights and gradients that travelled to other processes and from them, in all
        calls of `run`; None without a cluster.
    client : distributed.Client or None
        Client of a cluster.
    loader : Loader or None
        Reader of partitions, if they are read in this process.
    threads : int
        Threads that compute, of all workers.
    trace : Trace
        Trace to which the tasks are added.
    """

    bytes_moved: int | None = None
    client: Any = None
    loader: Loader | None = None
    threads: int = 1
    trace: Trace

    @abstractmethod
    def run(self, coordinator: Coordinator, watcher: Watcher) -> bool:
        """Drive `coordinator` until it finishes; True if the run is complete."""

    def bytes_per_step(self, steps: int) -> float | None:
        """Mean of `bytes_moved` over so many steps; None without a cluster or without steps."""
        return None if self.bytes_moved is None or not steps else self.bytes_moved / steps

    def workers(self) -> list[WorkerMemory]:
        """Return the workers of the cluster; none without a cluster."""
        return []
