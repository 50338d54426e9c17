"""Sources into a dataset: parse in parallel, collect and shuffle, then write partitions.

The result has the same bytes for any number of workers: tasks are cut by size, results are taken in
order, and the keys of a shuffle depend only on the order of blocks. Memory holds a few tasks, one
run of the external shuffle and a few partitions, however large the sources are.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from dadagrad.data.arrays import DEFAULT_PARTITION_NNZ, finish_rows
from dadagrad.data.blocks import Block
from dadagrad.data.dataset import Partition, Schema
from dadagrad.data.ingest import parsing
from dadagrad.data.ingest.external_shuffle import ExternalShuffle
from dadagrad.data.ingest.files import expand, source_bytes
from dadagrad.data.ingest.labels import LabelEncoder, LabelTable, keep_class_names
from dadagrad.data.ingest.options import Options, guess_format
from dadagrad.data.ingest.output import check_output, claimed, listed
from dadagrad.data.ingest.readers import SourceSummary, ordered_map, read_blocks
from dadagrad.data.zarr.dataset import write_partition, write_root
from dadagrad.errors import InputError
from dadagrad.kernels.cache import is_compiled
from dadagrad.storage.store import Storage

logger = logging.getLogger(__name__)

Progress = Callable[[int, int, int], None]


@dataclass(frozen=True, slots=True)
class IngestReport:
    """Facts about a finished ingest.

    `source_bytes` is the size of the sources, compressed if they are, and 0 for pipes and URLs;
    `bytes` is the size of the dataset.
    """

    rows: int
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
    client: Any = None,
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
        Path or URL of the dataset, which becomes visible when it is complete.
    format
        ``"svmlight"``, ``"vw"``, ``"text"``, ``"csv"``, ``"parquet"`` (or any dataset),
        ``"anndata"`` or ``"npz"``; None guesses it from names and first lines.
    hash_bits
        Hash features to ``2**hash_bits`` ids. Default for text: 20, as HashingVectorizer.
        Without it, features of vw must be integers, and columns of csv must hold numbers.
    ngrams
        For text: runs of 1 to `ngrams` words are features.
    binary
        True if every value that is not zero becomes 1.
    norm
        ``"l2"`` scales every row to length 1, ``"none"`` does not.
    label_column, text_column
        A column's number, from 0, or its name, which makes the first row of text a header. The
        defaults are the first and the second column; for anndata, ``"label"`` of `obs`. The first
        row of csv is a header if none of its fields is a number.
    partition_nnz
        Size of a partition: its non-zeros, and one more for each row. Rows of one query (svmlight
        ``qid``, for rankings) stay in one partition.
    shuffle
        Seed of a random order of all rows, the same for any number of workers. None keeps order.
        Queries are shuffled whole; equal numbers are one query.
    workers
        Number of threads (for svmlight and vw) or processes (for text and csv) that parse. With
        several processes, a script must call this under ``if __name__ == "__main__":``.
    client
        A ``distributed.Client``, or the address of a Dask scheduler, whose workers parse.
    on_error
        ``"skip"`` leaves wrong rows out and counts them, ``"raise"`` stops at the first.
    zero_based
        For svmlight: True if ids start at 0; ``"auto"`` if any id of any source is 0.
    overwrite
        True to replace a dataset at `out`, after all sources have been read.
    progress
        Called with the bytes done, the bytes of all sources, and the rows so far.
    n_features
        The number of features, if more than the sources show; an id beyond it is an error.
    alternate_sign
        For text: True if the hash also gives the sign of a count, as in HashingVectorizer.
    multilabel
        For svmlight: True reads each list of labels as a set, also an empty one; None does so if
        any row has several labels.
    no_labels
        For data to predict: rows need no labels, and labels of svmlight, vw and array files are
        not kept. Every column of csv is a feature, and the first column of text is the text. The
        dataset cannot be used for training.
    keep_names
        For vw: True to keep the names of hashed features.
    delimiter, header
        For text and csv: the delimiter, and True if the first row has names; None guesses them
        from the name and the first row of a file.
    temporary
        Folder for temporary files, used if the data exceeds 128 MiB; default: the system's.

    Raises
    ------
    InputError
        For wrong options or data, naming file, line and what is needed.
    StorageError
        If `out` cannot be written, or the disk for temporary files is full.
    """
    started = time.perf_counter()
    minimum = {"partition_nnz": 1, "shuffle": 0, "workers": 1, "n_features": 1}
    for name, value in zip(minimum, (partition_nnz, shuffle, workers, n_features), strict=True):
        if value is not None and value < minimum[name]:
            raise InputError(f"{name} is {value}; it must be {minimum[name]} or more")
    paths = expand(sources)
    prefer_text = text_column is not None or ngrams > 1
    source_format: Any = format or guess_format(paths[0], prefer_text=prefer_text)
    options = Options(
        source_format,
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
    check_output(storage, overwrite=overwrite)
    total_bytes = sum(map(source_bytes, paths))
    done_bytes = 0
    kernels = {"svmlight": parsing.svmlight_features, "vw": parsing.vw_features}
    kernel = kernels.get(options.format)
    if kernel is not None and not is_compiled(kernel):
        logger.info("compiling the parser (once on this machine, a few seconds)")
    summary = SourceSummary(options, LabelEncoder(several=options.format == "svmlight"))
    collected = ExternalShuffle(seed=shuffle, folder=temporary)
    with ordered_map(workers, client, threads=kernel is not None) as run:
        for block, n_bytes in read_blocks(paths, options, run, summary):
            if (block := summary.add(block)).n_rows:
                collected.append(block)
            done_bytes += n_bytes
            if progress is not None:
                progress(done_bytes, total_bytes, collected.n_rows)
    collected.finish()
    if not collected.n_rows:
        reason = f" ({summary.skipped} were wrong and skipped)" if summary.skipped else ""
        reason += f" ({summary.zero_weight} have weight 0)" if summary.zero_weight else ""
        raise InputError(f"no rows in {listed(paths)}{reason}; give sources with at least one")
    labels = summary.labels.settle()
    schema = _schema(summary, labels, n_features)
    provenance = {
        "sources": paths,
        "options": asdict(options),
        "shuffle": shuffle,
        "skipped": summary.skipped,
        "zero_weight": summary.zero_weight,
    }
    bounds = collected.bounds(partition_nnz, len(schema.label_columns))
    with (
        claimed(storage, overwrite=overwrite) as claim,
        ordered_map(min(workers, os.cpu_count() or 1), threads=True) as run,
    ):

        def write(number: int) -> Partition:
            claim.check()
            block = collected.read(bounds, number)
            return _write(storage, number, block, schema, labels, summary)

        # Several at a time: compression releases the GIL.
        partitions = tuple(run(write, range(bounds.shape[1] - 1)))
        claim.check()
        write_root(storage, schema, partitions, provenance)
    return IngestReport(
        rows=collected.n_rows,
        features=schema.n_features,
        nnz=collected.nnz,
        partitions=len(partitions),
        source_bytes=total_bytes,
        bytes=storage.n_bytes(),
        seconds=time.perf_counter() - started,
        skipped=summary.skipped,
    )


def _schema(summary: SourceSummary, labels: LabelTable, n_features: int | None) -> Schema:
    hash_bits, table = summary.options.hashed_bits, summary.table
    minimum = max(summary.largest_id + 1 - summary.first_id, summary.n_features)
    if hash_bits is not None:
        minimum = 2**hash_bits
    elif table is not None:
        minimum = len(table.features)
    if n_features is not None and n_features < minimum:
        raise InputError(
            f"n_features is {n_features}, but the sources have features up to id {minimum - 1}, "
            f"counted from 0; give {minimum} or more"
        )
    return Schema(
        n_features or max(minimum, 1),
        keep_class_names(labels.columns, summary.label_columns),
        summary.weighted,
        _feature_space(summary),
        queried=bool(summary.queried),
    )


def _feature_space(summary: SourceSummary) -> dict[str, Any] | None:
    """Describe, as plain JSON, how the sources became features; None if that is not known.

    Two datasets of the same space can share a model.
    """
    options = summary.options
    space: dict[str, Any] = {"format": options.format}
    if options.format == "text":
        space["hash_bits"] = options.hashed_bits
        space["ngrams"] = options.ngrams
        # The sign of a hash changes no value if values are all 1.
        space["alternate_sign"] = options.alternate_sign and not options.binary
    elif options.format == "vw":
        space["hash_bits"] = options.hashed_bits
    elif options.format == "svmlight":
        space["zero_based"] = summary.first_id == 0
    elif summary.table is not None:
        names = summary.table.layout.names()
        space["hash_bits"] = options.hashed_bits
        space["columns"] = [names[column] for column in summary.table.features]
        space["categorical"] = [names[column] for column in summary.table.categorical]
    elif not options.binary and options.norm == "none":
        first, *others = summary.spaces
        return first if all(other == first for other in others) else None
    return {**space, "binary": options.binary, "norm": options.norm}


def _write(
    storage: Storage,
    number: int,
    block: Block,
    schema: Schema,
    labels: LabelTable,
    summary: SourceSummary,
) -> Partition:
    """Write one partition."""
    if summary.first_id:
        block = replace(block, ids=block.ids - block.ids.dtype.type(summary.first_id))
    return write_partition(
        storage,
        f"part-{number:05d}",
        finish_rows(block, labels.decode(np.asarray(block.labels, np.float64))),
        schema.label_names,
        tags=None if block.tags is None else block.tags.tolist(),
        names=summary.names,
    )
