"""Where a run runs: threads of this process, a cluster started for it, or a running one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from dadagrad.data.dataset import Dataset
from dadagrad.errors import InputError
from dadagrad.training.begin import AnyCoordinator
from dadagrad.training.loader import Loader
from dadagrad.training.room import WorkerRoom
from dadagrad.training.watch import Watcher


class Engine(Protocol):
    """Carries out a coordinator's instructions.

    `bytes_moved` is what weights and gradients took that went to other processes and came from
    them; None where there are none.
    """

    bytes_moved: int | None

    @property
    def loader(self) -> Loader | None:
        """What it reads with, if it reads in this process."""

    def run(self, coordinator: AnyCoordinator, watcher: Watcher) -> bool:
        """Drive `coordinator` until it finishes; True if the run is complete."""

    def workers(self) -> list[WorkerRoom]:
        """The workers there are, and the memory that each may take; none without a cluster."""


@dataclass(frozen=True, slots=True)
class Where:
    """Where a run runs; none of it changes a bit of the model.

    Attributes
    ----------
    threads : int or None
        Threads of the local engine; None takes 2, or 1 on a machine with one core.
    workers : int or None
        Processes of a Dask cluster started for the run.
    scheduler : str or None
        Address of a running Dask scheduler.
    memory : int or None
        Bytes that the run may take in this process beside what it has already; None stands for
        what is free. What is predicted to take more is refused.
    """

    threads: int | None = None
    workers: int | None = None
    scheduler: str | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        for name in ("threads", "workers", "memory"):
            given = getattr(self, name)
            if given is not None and (type(given) is not int or given < 1):
                raise InputError(f"{name} must be a whole number of at least 1, not {given!r}")
        if self.workers is not None and self.scheduler is not None:
            raise InputError(
                "workers starts a cluster and scheduler uses a running one; give one of them"
            )
        if self.threads is not None and self.on_dask:
            raise InputError(
                "threads is for training in this process; a cluster has threads of its own, so "
                "give threads or one of workers and scheduler"
            )

    @property
    def on_dask(self) -> bool:
        return self.workers is not None or self.scheduler is not None

    @property
    def local_threads(self) -> int:
        """Threads of this process, for what is done here whatever the engine."""
        return self.threads or min(2, os.cpu_count() or 1)

    @contextmanager
    def engine(self, data: Dataset) -> Iterator[Engine]:
        """The engine that trains on `data` there, at hand until the end of the block.

        A cluster is started, or connected to, at its beginning: `InputError` if it is not there.
        """
        if self.on_dask:
            from dadagrad.training.dask import DaskEngine

            with DaskEngine(data, workers=self.workers, scheduler=self.scheduler) as engine:
                yield engine
            return
        from dadagrad.training.local import LocalEngine

        yield LocalEngine(data, self.local_threads)
