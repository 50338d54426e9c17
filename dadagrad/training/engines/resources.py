"""Resources of a run: threads of this process, a cluster started for it, or a running cluster."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from dadagrad.data.dask_blocks import is_dask
from dadagrad.data.dataset import Dataset
from dadagrad.data.ingest.collect import Shuffle
from dadagrad.data.ingest.ingest import as_dataset, ingest, read_dataset
from dadagrad.data.ingest.pairs import split_pair
from dadagrad.data.ingest.sources import Source, is_raw, make_source
from dadagrad.data.zarr.dataset import ZarrDataset
from dadagrad.errors import InputError, OnError, StorageError
from dadagrad.kernels.parallel import available_cores
from dadagrad.settings import Number
from dadagrad.training.engines import Engine
from dadagrad.training.engines.threads import LocalEngine
from dadagrad.training.engines.trace import Trace

logger = logging.getLogger(__name__)

_POSITIVE = Number(whole=True, minimum=1, optional=True)


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
            _POSITIVE.convert(name, getattr(self, name))
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

    def dataset(
        self, data: Any, on_error: OnError = "raise", *, shuffle: int | None, **options: Any
    ) -> Dataset:
        """Make a dataset of `data`, as `as_dataset` does; a cluster can read that of raw rows.

        `on_error` says what happens to raw rows that are wrong.
        """
        raw = is_raw(data)
        if raw:
            options["on_error"] = on_error
        if self.on_cluster and (raw or is_dask(split_pair(data)[0])):
            return _write_for_workers(make_source(data), self.client, shuffle, **options)
        return as_dataset(data, shuffle=shuffle, **options)

    @contextmanager
    def engine(self, data: Dataset) -> Iterator[Engine]:
        """Open the engine that trains on `data`; `InputError` if the cluster does not answer.

        A temporary dataset is removed at the end.
        """
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
                try:
                    engine.trace.save()
                except StorageError as error:
                    logger.warning("the trace of the run is missing: %s", error)
                for source in data.sources:
                    if isinstance(source, TemporaryDataset):
                        source.remove()


class TemporaryDataset(ZarrDataset):
    """A dataset in a `folder` of this machine, which `remove` removes.

    If nobody calls it, the folder is removed when the dataset is no longer needed.
    """

    is_temporary = True

    def __init__(self, folder: str, url: str) -> None:
        super().__init__(url)
        self.remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)


def read_source(source: Source, client: Any, shuffle: Shuffle) -> Dataset:
    """Read rows into memory or temporary files, or write them for the workers of a `client`."""
    if client is None:
        return read_dataset(source, shuffle=shuffle)
    return _write_for_workers(source, client, shuffle)


def _write_for_workers(source: Source, client: Any, shuffle: Shuffle, **options: Any) -> Dataset:
    """Write rows to a temporary dataset, with the workers of the `client` if there is one."""
    folder = tempfile.mkdtemp(prefix="dadagrad-")
    try:
        if client is not None:
            from dadagrad.clusters import connected

            with connected(client) as opened:
                sees_folder = opened.run(os.path.isdir, folder)
            if not all(sees_folder.values()):
                raise InputError(
                    f"the rows of {source.name} would be written for the workers to {folder}, "
                    "which they do not see; name a folder that all of them see in the environment "
                    "variable TMPDIR, or write a dataset with `dadagrad.ingest`, which takes a "
                    "client too"
                )
        url = f"{folder}/data"
        ingest(source, url, shuffle=shuffle, client=client, **options)
        return TemporaryDataset(folder, url)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
