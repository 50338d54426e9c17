"""Resources of a run: threads of this process, a cluster started for it, or a running cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from dadagrad.data.dataset import Dataset
from dadagrad.errors import InputError
from dadagrad.training.engines import Engine
from dadagrad.training.engines.threads import LocalEngine
from dadagrad.training.memory.available import available_cores
from dadagrad.training.trace import Trace


@dataclass(frozen=True, slots=True)
class Resources:
    """Threads, workers, memory and trace of a run; no bit of the model depends on them.

    They are parameters of `dadagrad.training.run.train`.
    """

    threads: int | None = None
    workers: int | None = None
    client: Any = None
    memory: int | None = None
    trace: str | None = None

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
        return self.threads or available_cores()

    @contextmanager
    def engine(self, data: Dataset) -> Iterator[Engine]:
        """Open the engine that trains on `data`; `InputError` if the cluster does not answer."""
        opening: AbstractContextManager[Engine]
        if self.on_cluster:
            from dadagrad.training.engines.dask.engine import open_engine

            opening = open_engine(data, self.workers, self.client)
        else:
            opening = nullcontext(LocalEngine(data, self.local_threads))
        with opening as engine:
            engine.trace = Trace(self.trace)
            try:
                yield engine
            finally:
                engine.trace.save()
