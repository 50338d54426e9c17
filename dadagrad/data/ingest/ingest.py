"""Sources into a dataset: rows are parsed and collected, and then written as partitions."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from inspect import signature
from itertools import repeat
from typing import Any

from dadagrad.data import open_dataset
from dadagrad.data.arrays import DEFAULT_PARTITION_NNZ
from dadagrad.data.dataset import Dataset, Partition, Schema
from dadagrad.data.ingest.collect import Collected, Progress, Shuffle, collect, plan_reading
from dadagrad.data.ingest.output import Claim, check_output, claimed
from dadagrad.data.ingest.pairs import is_pair
from dadagrad.data.ingest.sources import (
    DaskMatrixSource,
    DatasetSource,
    MatrixSource,
    Source,
    is_raw,
    make_source,
)
from dadagrad.data.ingest.summary import SourceSummary, describe
from dadagrad.data.ingest.workers import ClusterPool, WorkerPool, worker_pool
from dadagrad.data.reading.options import OPTIONS, given_options
from dadagrad.data.views import join
from dadagrad.data.zarr.writer import write_partition, write_root
from dadagrad.errors import InputError, nearest
from dadagrad.settings import show_settings
from dadagrad.storage.backends import absolute
from dadagrad.storage.documents import from_plain, read_sealed
from dadagrad.storage.store import Storage

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IngestReport:
    """Facts about a finished ingest.

    `source_bytes` is the size of the sources, compressed if they are, and 0 for pipes;
    `bytes` is the size of the dataset. `columns` says what was read as the label and as features,
    and `collisions` counts hashed features that share their id with another; None if not known.
    """

    rows: int
    features: int
    nnz: int
    partitions: int
    source_bytes: int
    bytes: int
    seconds: float
    skipped: int
    columns: str = ""
    collisions: int | None = None


def ingest(
    sources: Any,
    out: str,
    *,
    partition_nnz: int = DEFAULT_PARTITION_NNZ,
    shuffle: Shuffle = "auto",
    workers: int = 1,
    client: Any = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    n_features: int | None = None,
    like: Any = None,
    **options: Any,
) -> IngestReport:
    r"""Turn sources into a dataset of partitions.

    Parameters
    ----------
    sources
        Files, folders (all files in them, sorted by name) and globs; ``-`` or ``/dev/stdin`` for a
        pipe. Files may be compressed (gzip, bzip2, xz, zstd). Or a data frame of pandas, polars,
        pyarrow or dask, or a list of dicts; a pair (X, y) of a matrix (NumPy, SciPy, dask) or a
        data frame and its labels, or a triple (X, y, weights); or a dataset.
    out
        Path or URL of the dataset, which becomes visible when it is complete. Rows that exceed
        128 MiB lie in temporary files meanwhile: in the system's folder (TMPDIR), or with a
        `client` beside `out`.
    partition_nnz
        Size of a partition: its non-zeros, and one more for each row. Rows of one query (svmlight
        ``qid``, for rankings) stay in one partition.
    shuffle
        Seed of a random order of all rows, the same for any number of workers. None or False
        keeps the order; the default is 0, and None with `no_labels`. Queries are shuffled whole;
        equal numbers are one query.
    workers
        Number of threads that parse and write.
    client
        A ``distributed.Client``, the address of a Dask scheduler, or "current" for the active
        client. The workers parse, shuffle and write the dataset, which has the same bits. They must
        see the sources and `out`, which is a path in a shared file system, or a URL.
    overwrite
        True to replace a dataset at `out`, after all sources have been read.
    progress
        Called with the bytes done, the bytes of all sources, and the rows so far.
    n_features
        The number of features, if more than the sources show; an id beyond it is an error.
    like
        A model or a dataset, or the URL of one, whose features the rows get: the same columns,
        hashing, scales and format. Options that change features cannot be given with it.
    {options}

    Raises
    ------
    InputError
        For wrong options or data, naming file, line and what is needed.
    StorageError
        If `out` cannot be written, or the disk for temporary files is full.
    """
    started = time.perf_counter()
    check_known(options)
    source = make_source(sources)
    given = source.paths
    if client is not None:  # workers have folders of their own
        source.paths = list(map(absolute, source.paths))
    summary = plan_reading(source, options | {"keep_lines": True}, schema_of(like))
    storage = Storage(out)
    for url in (*source.paths, storage.url):
        if client is not None and url.startswith("memory://"):
            raise InputError(
                f"{url} is in the memory of this process, which the workers of a cluster do not "
                "see; give a path that all of them see or the URL of a store, or leave out client"
            )
    check_output(storage, overwrite=overwrite)
    with ExitStack() as stack:
        pool = stack.enter_context(worker_pool(workers, client, storage))
        collected = collect(
            source,
            summary,
            n_features=n_features,
            partition_nnz=partition_nnz,
            shuffle=shuffle,
            pool=pool,
            progress=progress,
        )
        stack.enter_context(storage.without_empty_folders())
        claim = stack.enter_context(claimed(storage, overwrite=overwrite))
        partitions = _write_partitions(collected, storage, claim, pool)
        provenance = _provenance(source, given, summary, shuffle)
        write_root(storage, collected.schema, partitions, provenance)
    return IngestReport(
        rows=collected.n_rows,
        features=collected.schema.n_features,
        nnz=sum(partition.nnz for partition in partitions),
        partitions=len(partitions),
        source_bytes=source.n_bytes,
        bytes=storage.n_bytes(),
        seconds=time.perf_counter() - started,
        skipped=summary.wrong_rows.n_rows,
        columns=describe(collected.schema, summary.left_out),
        collisions=summary.collisions,
    )


show_settings(ingest, OPTIONS)


def check_known(options: Mapping[str, Any]) -> None:
    """Refuse options that say nothing about how rows are read."""
    if unknown := set(options) - set(OPTIONS):
        name = min(unknown)
        others = [other for other in arguments_of(ingest) if other != name]
        remedy = nearest(name, others, f"the options are {', '.join(OPTIONS)}")
        raise InputError(f"{name!r} does not say how rows are read; {remedy}")


def _provenance(
    source: Source, given: Sequence[str], summary: SourceSummary, shuffle: Shuffle
) -> dict[str, Any]:
    """The origin of a dataset, as plain JSON: its sources, whose paths are as they were `given`."""
    stored = source.dataset(summary.options.format)
    sizes = [] if stored is None else list(stored.lines_of_files.items())
    sizes = sizes or [(path, summary.lines_of_files[n]) for n, path in enumerate(given)]
    return {
        "sources": [path for path, _ in sizes],
        "options": asdict(summary.options),
        "lines": [n_lines for _, n_lines in sizes],
        "shuffle": shuffle,
        "skipped": summary.wrong_rows.n_rows,
        "zero_weight": summary.zero_weight,
    }


def _write_partitions(
    collected: Collected, storage: Storage, claim: Claim, pool: WorkerPool
) -> tuple[Partition, ...]:
    """Write all partitions, by the workers of a cluster only if they can reach the rows."""
    shared: Any = collected
    if isinstance(pool, ClusterPool) and collected.is_stored:
        _ = collected.names  # found once, before they are sent
        shared = pool.share(collected)
    elif isinstance(pool, ClusterPool):
        pool = WorkerPool(None)
    numbers = _while_claimed(claim, collected.n_partitions)
    partitions = tuple(pool(_write_partition, repeat(shared), repeat(storage), numbers))
    claim.check()
    return partitions


def _while_claimed(claim: Claim, n_partitions: int) -> Iterator[int]:
    """Yield the numbers of partitions, as long as no other ingest has taken over."""
    for number in range(n_partitions):
        claim.check()
        yield number


def _write_partition(collected: Collected, storage: Storage, number: int) -> Partition:
    rows, block = collected.read(number)
    labels, part = collected.schema.label_names, f"part-{number:05d}"
    return write_partition(
        storage, part, rows, labels, tags=block.tags, lines=block.lines, names=collected.names
    )


def as_dataset(
    data: Any,
    *,
    like: Any = None,
    shuffle: Shuffle = "auto",
    progress: Progress | None = None,
    **options: Any,
) -> Dataset:
    """Make a dataset of whatever holds rows.

    Parameters
    ----------
    data
        A dataset or its URL, as it is. A matrix, with its labels as a pair (X, y), keeps its
        numbers. Anything else that `ingest` reads is read into memory, or into temporary
        files if it exceeds 128 MiB. A list of datasets is joined, in order.
    like, progress
        As in `ingest`.
    shuffle
        As in `ingest`, of rows that are not a dataset; by default a matrix keeps its order.
    **options
        Options of `ingest` for rows that are not a dataset yet, such as ``label``.
    """
    if is_raw(data):
        return read_dataset(data, like=like, shuffle=shuffle, progress=progress, **options)
    check_known(options)
    given = given_options(options)
    if isinstance(data, list | tuple) and not is_pair(data):
        raw = [make_source(each).name for each in data if is_raw(each)] if given else []
        if raw:
            raise InputError(
                f"{given[0]} says how rows become features, and only some of the data are raw, "
                f"like {raw[0]}; make datasets of them with `dadagrad ingest` and --like of the "
                "others, and give the datasets"
            )
        return join([as_dataset(each, like=like, shuffle=shuffle, **options) for each in data])
    is_url = isinstance(data, str | os.PathLike)
    source = make_source(open_dataset(os.fspath(data)) if is_url else data)
    if given:
        raise InputError(
            f"{given[0]} says how rows become features, and the data are a dataset or a matrix "
            "already; leave it out"
        )
    if isinstance(source, DatasetSource):
        return source.data
    seed = None if shuffle == "auto" else shuffle
    if isinstance(source, MatrixSource):
        return source.to_dataset(seed)
    assert isinstance(source, DaskMatrixSource)
    return read_dataset(source, shuffle=seed, no_labels=source.y is None)


def split_options(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split keyword arguments into options of `ingest` and all others."""
    options = {name: value for name, value in settings.items() if name in OPTIONS}
    return options, {name: value for name, value in settings.items() if name not in OPTIONS}


def arguments_of(function: Callable[..., Any]) -> list[str]:
    """Names of the arguments of a function that takes the options of `ingest` too."""
    return list(dict.fromkeys([*signature(function).parameters, *OPTIONS]))


def read_dataset(
    sources: Any,
    *,
    like: Any = None,
    shuffle: Shuffle = "auto",
    progress: Progress | None = None,
    **options: Any,
) -> Dataset:
    """Read sources into a dataset that lasts as long as the process; see `ingest`.

    Rows are in memory, or in temporary files if they exceed 128 MiB.
    """
    check_known(options)
    source = make_source(sources)
    summary = plan_reading(source, options, schema_of(like))
    return collect(source, summary, shuffle=shuffle, progress=progress).to_dataset(source.name)


def schema_of(like: Any) -> Schema | None:
    """Schema of a model or dataset, or of the one at a URL."""
    if like is None:
        return None
    if isinstance(like, str | os.PathLike):
        storage = Storage(like)
        if not storage.exists("model.json"):
            like = open_dataset(os.fspath(like))
        else:
            document = read_sealed(storage, "model.json", f"{storage.url}: model.json")
            return Schema.from_json(from_plain(document.get("schema")))
    schema: Schema = like.schema
    return schema
