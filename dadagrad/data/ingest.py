"""Turning sources into a dataset: parse in parallel, spool, then write partitions.

Reading order: `ingest`, then `collect` (parse and spool), then `_write`. The result has the same
bytes whatever the number of workers: tasks are cut by size, results are taken in order, and the
keys of a shuffle depend on the order of blocks alone. Memory holds a few tasks, one run of the
spool, and a few partitions, however large the sources are.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dadagrad.compiled import is_compiled
from dadagrad.data import text
from dadagrad.data.arrays import (
    DEFAULT_PARTITION_NNZ,
    finish_rows,
    keep_class_names,
)
from dadagrad.data.collect import Seen, collect
from dadagrad.data.dataset import Partition, Schema
from dadagrad.data.labels import LabelTable
from dadagrad.data.locate import expand, guess_format, source_bytes
from dadagrad.data.options import Options, feature_space
from dadagrad.data.output import prepare_output, removing_leftovers
from dadagrad.data.parallel import Crew, hire
from dadagrad.data.spool import Spool
from dadagrad.errors import InputError
from dadagrad.storage import Storage

logger = logging.getLogger(__name__)

Progress = Callable[[int, int, int], None]


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What `ingest` did.

    `source_bytes` is the size of the sources, compressed as they are, and 0 for pipes and URLs;
    `bytes` is the size of the dataset.
    """

    examples: int
    features: int
    nnz: int
    partitions: int
    source_bytes: int
    bytes: int
    seconds: float
    skipped: int


def ingest(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str,
    *,
    format: str | None = None,
    hash_bits: int | None = None,
    ngrams: int = 1,
    binary: bool = False,
    norm: str = "none",
    label_column: int | str | None = None,
    text_column: int | str | None = None,
    partition_nnz: int = DEFAULT_PARTITION_NNZ,
    shuffle: int | None = None,
    workers: int = 1,
    scheduler: Any = None,
    on_error: Literal["raise", "skip"] = "raise",
    zero_based: bool | Literal["auto"] = "auto",
    overwrite: bool = False,
    progress: Progress | None = None,
    n_features: int | None = None,
    alternate_sign: bool = True,
    multilabel: bool | None = None,
    no_labels: bool = False,
    keep_names: bool = False,
    delimiter: Literal["\t", ","] | None = None,
    header: bool | None = None,
    temporary: str | None = None,
) -> IngestReport:
    r"""Turn sources into a dataset of partitions.

    Parameters
    ----------
    sources
        Files, folders (all files in them, sorted by name) and globs; ``/dev/stdin`` for a pipe.
        Files may be compressed (gzip, bzip2, xz, zstd).
    out
        Path or URL of the dataset. It becomes visible when it is complete, not before.
    format
        ``"svmlight"``, ``"vw"``, ``"text"``, ``"csv"``, ``"parquet"`` (or any dataset of ours),
        ``"anndata"`` or ``"npz"``; None looks at names and first lines.
    hash_bits
        Features are hashed to ``2**hash_bits`` ids. Default for text: 20, HashingVectorizer's.
        Without it, features of vw must be integers, and the columns of csv numbers.
    ngrams
        For text: runs of 1 to `ngrams` words are features.
    binary
        Every value that is not zero becomes 1.
    norm
        ``"l2"`` scales every row to length 1, ``"none"`` does not.
    label_column, text_column
        A column's number, from 0, or its name, which makes the first row of text a header. The
        defaults are the first and the second column; of anndata, ``"label"`` of `obs`. The first
        row of csv is a header if no field of it is a number.
    partition_nnz
        Size of a partition: its non-zeros, and one more for each row. Rows of one query (svmlight
        ``qid``, for rankings) are never parted.
    shuffle
        Seed of a random order of all rows, the same for any number of workers. None keeps order.
        Where rows have queries, these are shuffled whole; equal numbers are one query.
    workers
        How many tasks are parsed at once: by threads for svmlight and vw, by processes for text
        and csv. With several processes, a script must call this under
        ``if __name__ == "__main__":``.
    scheduler
        Address of a Dask scheduler (or its Client) whose workers parse, instead of `workers`.
    on_error
        ``"skip"`` leaves out and counts rows that are wrong, ``"raise"`` stops at the first.
    zero_based
        For svmlight: whether ids start at 0; ``"auto"``: they do if any is 0 in any source.
    overwrite
        Whether a dataset at `out` may be replaced. It goes when all sources have been read.
    progress
        Called with the bytes done, the bytes of all sources, and the rows so far.
    n_features
        The number of features, if more than the sources show; an id beyond it is an error.
    alternate_sign
        For text: whether the hash also gives a count its sign, as in HashingVectorizer.
    multilabel
        For svmlight: True takes each label list as a set of labels, also an empty one; None does
        so if any row has several.
    no_labels
        For data to predict: rows need no labels, and those of svmlight and vw, or of an array
        file, are not kept. Of csv every column is a feature, and of text the first column is the
        text. Nothing can be learned from the dataset.
    keep_names
        For vw: keep the names of hashed features.
    delimiter, header
        For text and csv: overrule what the name and the first row of a file suggest.
    temporary
        Folder for temporary files, for data that does not fit in memory (128 MiB); default: the
        system's.

    Raises
    ------
    InputError
        For wrong options or data, naming file, line and what is needed.
    StorageError
        If `out` cannot be written, or the disk for temporary files is full.
    """
    started = time.perf_counter()
    _check(partition_nnz, shuffle, workers, n_features)
    paths = expand(sources)
    text_wanted = text_column is not None or ngrams > 1
    chosen: Any = format or guess_format(paths[0], prefer_text=text_wanted)
    options = Options(
        chosen,
        hash_bits,
        ngrams,
        binary,
        norm,
        label_column,
        text_column,
        alternate_sign,
        delimiter,
        header,
        multilabel,
        zero_based,
        keep_names,
        on_error,
        no_labels,
    )
    storage = Storage(out)
    prepare_output(storage, overwrite=overwrite, remove=False)
    total_bytes = sum(map(source_bytes, paths))
    # The parsers of these two are compiled; those of text and csv are Python.
    compiled = options.format in ("svmlight", "vw")
    if compiled:
        _announce_compilation(options.format)
    with (
        Spool(shuffle=shuffle, folder=temporary) as spool,
        hire(workers, scheduler, threads=compiled) as crew,
    ):
        seen = collect(paths, options, crew, spool, partial(_report, progress, total_bytes))
        _refuse_empty(seen, spool, paths)
        table = seen.labels.settle()
        shift = int(options.zero_based == "auto" and options.format == "svmlight")
        shift *= seen.smallest_id != 0
        schema = _schema(options, seen, table, shift, n_features)
        prepare_output(storage, overwrite=overwrite, remove=True)
        provenance = {
            "sources": paths,
            "options": asdict(options),
            "shuffle": shuffle,
            "skipped": seen.skipped,
            "zero_weight": seen.zero_weight,
        }
        with removing_leftovers(storage):
            partitions = _write(
                storage, spool, schema, table, shift, seen.names, partition_nnz, workers
            )
            _write_root(storage, schema, partitions, provenance)
    return IngestReport(
        examples=spool.n_rows,
        features=schema.n_features,
        nnz=spool.nnz,
        partitions=len(partitions),
        source_bytes=total_bytes,
        bytes=storage.n_bytes(),
        seconds=time.perf_counter() - started,
        skipped=seen.skipped,
    )


def _check(partition_nnz: int, shuffle: int | None, workers: int, n_features: int | None) -> None:
    smallest = {"partition_nnz": 1, "shuffle": 0, "workers": 1, "n_features": 1}
    given = {
        "partition_nnz": partition_nnz,
        "shuffle": shuffle,
        "workers": workers,
        "n_features": n_features,
    }
    for name, value in given.items():
        if value is not None and value < smallest[name]:
            raise InputError(f"{name} is {value}; it must be {smallest[name]} or more")


def _report(progress: Progress | None, total: int, done: int, rows: int) -> None:
    if progress is not None:
        progress(done, total, rows)


def _announce_compilation(format: str) -> None:
    from dadagrad.data import parsing

    if not is_compiled(parsing.svmlight_rows if format == "svmlight" else parsing.vw_rows):
        logger.info("compiling the parser (once on this machine, a few seconds)")


def _refuse_empty(seen: Seen, spool: Spool, paths: list[str]) -> None:
    if spool.n_rows:
        return
    left_out = f" ({seen.skipped} were wrong and skipped)" if seen.skipped else ""
    left_out += f" ({seen.zero_weight} have weight 0)" if seen.zero_weight else ""
    raise InputError(
        f"no examples in {', '.join(paths[:3])}{' ...' if len(paths) > 3 else ''}{left_out}; "
        "give sources with at least one"
    )


def _schema(
    options: Options, seen: Seen, table: LabelTable, shift: int, n_features: int | None
) -> Schema:
    """The schema of the dataset; `shift` is subtracted from all ids."""
    found = max(seen.largest_id + 1 - shift, seen.n_features)
    if options.format == "text":
        found = 2 ** (options.hash_bits or text.DEFAULT_HASH_BITS)
    elif options.hash_bits is not None:
        found = 2**options.hash_bits
    elif seen.table is not None:
        found = len(seen.table.features)
    if n_features is not None and n_features < found:
        raise InputError(
            f"n_features is {n_features}, but the sources have features up to id {found - 1}, "
            f"counted from 0; give {found} or more"
        )
    space = feature_space(options, seen.table, zero_based=not (shift or not options.zero_based))
    if space is None and seen.spaces and all(one == seen.spaces[0] for one in seen.spaces):
        space = seen.spaces[0]
    columns = keep_class_names(table.columns, seen.label_columns)
    size = n_features or max(found, 1)
    return Schema(size, columns, seen.weighted, space, queried=bool(seen.queried))


def _write(
    storage: Storage,
    spool: Spool,
    schema: Schema,
    table: LabelTable,
    shift: int,
    names: dict[int, str],
    partition_nnz: int,
    workers: int,
) -> list[Partition]:
    """Write all partitions, several at a time; compression lets threads run side by side."""
    bounds = spool.bounds(partition_nnz, len(schema.label_columns))
    write = partial(_write_partition, storage, spool, schema, table, shift, names, bounds)
    numbers = range(bounds.shape[1] - 1)
    threads = min(workers, os.cpu_count() or 1)
    if threads == 1:
        return [write(number) for number in numbers]
    with ThreadPoolExecutor(threads) as pool:
        return [partition for _, partition in Crew(pool, threads + 1).run(write, numbers)]


def _write_partition(
    storage: Storage,
    spool: Spool,
    schema: Schema,
    table: LabelTable,
    shift: int,
    names: dict[int, str],
    bounds: NDArray[np.int64],
    number: int,
) -> Partition:
    from dadagrad.data.zarr import write_partition

    block = spool.read(bounds, number)
    if shift:
        block = replace(block, ids=block.ids - block.ids.dtype.type(shift))
    rows = finish_rows(block, table.decode(np.asarray(block.labels, np.float64)))
    return write_partition(
        storage,
        f"part-{number:05d}",
        rows,
        [column.name for column in schema.label_columns],
        tags=None if block.tags is None else block.tags.tolist(),
        names=names,
    )


def _write_root(
    storage: Storage, schema: Schema, partitions: list[Partition], provenance: dict[str, Any]
) -> None:
    from dadagrad.data.zarr import write_root

    write_root(storage, schema, tuple(partitions), provenance)
