"""Rows of sources, collected: parsed in parallel, shuffled, with final labels and features.

The result is the same for any number of workers: tasks are cut by size, results are taken in order,
and the keys of a shuffle depend only on the order of blocks. Memory holds a few tasks, one run of
the external shuffle and a few partitions, however large the sources are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from dadagrad.data.arrays import DEFAULT_PARTITION_NNZ, finish_rows
from dadagrad.data.blocks import Block
from dadagrad.data.dataset import MAX_FEATURES, Dataset, MemoryDataset, Schema, describe_rows
from dadagrad.data.external_shuffle import ExternalShuffle, ShuffledRows
from dadagrad.data.feature_space import FeatureSpace
from dadagrad.data.ingest import vw
from dadagrad.data.ingest.sources import Source
from dadagrad.data.ingest.summary import SourceSummary
from dadagrad.data.ingest.workers import ClusterPool, WorkerPool, store_runs
from dadagrad.data.labels import LabelTable, keep_class_names
from dadagrad.data.reading.files import STDIN
from dadagrad.data.reading.names import names_format
from dadagrad.data.reading.options import (
    FREE,
    MATRIX_FORMATS,
    OPTIONS,
    TABLE_FORMATS,
    Format,
    Options,
    given_options,
)
from dadagrad.data.rows import Rows
from dadagrad.data.tables.columns import Column
from dadagrad.data.tables.encoder import TableEncoder
from dadagrad.data.tables.row_columns import split_columns
from dadagrad.data.tables.scaling import MAX_SAMPLE, MAX_SAMPLE_ROWS, learn_scale
from dadagrad.data.views import check_features
from dadagrad.errors import InputError
from dadagrad.kernels import is_compiled, parsing
from dadagrad.settings import Number

logger = logging.getLogger(__name__)

Progress = Callable[[int, int, int], None]
Shuffle = int | Literal["auto"] | None
_OF_DATASETS = {"format", "no_labels", "on_error", "keep_names"}
"""Options of datasets, whose features are made already."""
_OF_IDS = {"binary", "norm"}
"""Options of datasets of which it is not known how features were made, such as Parquet of ids."""
_KERNELS: dict[Any, tuple[Any, ...]] = {
    "svmlight": (parsing.svmlight_features,),
    "vw": (parsing.vw_features,),
    **dict.fromkeys(TABLE_FORMATS, (parsing.hash_texts, parsing.pack_rows)),
}
"""Kernels of formats; a table needs one of them at least."""


def plan_reading(
    source: Source, settings: dict[str, Any], like: Schema | None = None
) -> SourceSummary:
    """Summary of no rows yet, with options from `settings`, or of the features of `like`."""
    settings = {name: value for name, value in settings.items() if value is not None}
    for option, columns in source.row_options.items():
        if option in settings:
            raise InputError(f"a pair (X, y) and {option} exclude each other; give one of them")
        settings[option] = columns
    known: Format | None = settings.get("format")
    with suppress(InputError):  # about a pipe, whose format may not be needed
        known = known or source.guess_format()
    stored = source.dataset(known)
    if stored is not None:
        return _plan_stored(stored, settings, like)
    if not source.paths and known != source.guess_format():
        raise InputError(f"format is {known!r}, and the data are {source.name}; leave it out")
    if like is not None:
        return _plan_like(source, known, settings, like)
    settings["format"] = known or source.guess_format()
    options = Options(**settings)
    if options.format == "vw":
        first = next((file for file in source.files if file.size), source.files[0])
        options = vw.complete_options(options, first)
    return SourceSummary(options)


def _plan_stored(data: Dataset, settings: dict[str, Any], like: Schema | None) -> SourceSummary:
    """Summary of a dataset, whose features stay as they are."""
    space = data.schema.feature_space
    free = _OF_DATASETS if like or space else _OF_DATASETS | _OF_IDS
    if given := given_options(settings, free=free):
        raise InputError(
            f"{given[0]} says how rows become features, and {data.url} is a dataset already; leave "
            "it out"
        )
    wanted = like.feature_space if like else FeatureSpace()
    if not space and wanted.format in ("parquet", "npz"):  # made of ids, too
        settings |= {name: wanted.plain[name] for name in _OF_IDS}
    elif like is not None:
        check_features(like, data.schema, data.url, "the model or dataset")
    return SourceSummary(Options(**settings | {"format": "parquet"}), like=like)


def _plan_like(
    source: Source, known: Format | None, settings: dict[str, Any], like: Schema
) -> SourceSummary:
    """Summary of raw rows, whose format is `known` or that of the features of `like`."""
    space = like.feature_space
    kind: Any = space.format or (known if known in MATRIX_FORMATS else None)
    if kind is None:
        raise InputError(
            "the features of that model or dataset are the columns of a matrix; give a matrix of "
            f"the same columns (NumPy, SciPy, npz, AnnData), and not {source.name}, or the options "
            "of ingest"
        )
    free = FREE | {"text_column"} if space.of_text else FREE
    if given := given_options(settings, free=free):
        raise InputError(
            f"{given[0]} says how features are made, and they are made as those of the model or "
            f"dataset; leave {given[0]} out"
        )
    fixed = set(OPTIONS) - free
    changed = {name: value for name, value in settings.items() if name not in fixed}
    if space.of_table:
        return _plan_like_table(source, changed, space)
    if not source.paths:
        raise InputError(
            f"the features of that model or dataset were read from {kind}, not made of columns; "
            "give such a file, a matrix, or Model.predict a list of dicts of values by feature"
        )
    if changed.get("format", kind) != kind:
        raise InputError(
            f"--format is {changed['format']}, and the features of that model or dataset were read "
            f"from {kind}; leave it out, and give such a file"
        )
    options = {name: space.plain[name] for name in (fixed | {"zero_based"}) & set(space.plain)}
    options["multilabel"] = like.has_sets and not settings.get("no_labels")
    if kind == "anndata" and not settings.get("no_labels"):
        options["label"] = changed.pop("label", space.reading.get("label"))
    return SourceSummary(Options(**options | changed | {"format": kind}), like=like)


def _plan_like_table(
    source: Source, settings: dict[str, Any], space: FeatureSpace
) -> SourceSummary:
    """Summary of raw rows with the features of a table."""
    encoder, reading = TableEncoder.of_space(space), space.reading
    chosen, text = settings.pop("format", None), settings.pop("text_column", None)
    # A line of text may look like a row of several columns, so only a name says that it is one.
    as_recorded = source.paths == [STDIN] or (
        encoder.is_text and bool(source.paths) and not any(map(names_format, source.paths))
    )
    is_given = chosen is not None
    if chosen is None:
        chosen = reading["format"] if as_recorded else source.guess_format()
        if as_recorded and chosen == "parquet":
            chosen = "csv"
        if chosen not in TABLE_FORMATS:
            raise InputError(
                f"{source.name} is {chosen}, and the model or dataset was made of a table; give a "
                "table, or --format"
            )
    if chosen in ("text", "csv") and as_recorded:
        settings.setdefault("delimiter", reading.get("delimiter"))
    if text is not None:
        text = OPTIONS["text_column"].kind.convert("text_column", text)
        names = split_columns(reading.get("columns", ()), text)
        if len(names) != 1:
            raise InputError(
                f"--text-column names {len(names)} columns, and the model has one column of text; "
                "give one"
            )
        encoder = replace(encoder, columns=(Column(str(names[0]), "text"),))
    options = Options(chosen, **settings)
    rows = encoder.rows.replaced(options, reading.get("columns", ()))
    return SourceSummary(
        options,
        encoder=replace(encoder, rows=rows),
        columns=list(reading.get("columns", ())),
        learned=True,
        refuses_json=not is_given,
    )


class Collected:
    """Rows of sources with their final labels and features, in memory or in temporary files."""

    def __init__(
        self,
        rows: ShuffledRows,
        summary: SourceSummary,
        n_features: int | None,
        partition_nnz: int,
    ) -> None:
        self.summary = summary
        self.n_rows = rows.n_rows
        self._rows = rows
        self._labels = summary.labels.settle()
        if summary.encoder is not None and not summary.learned:
            summary.encoder = _learn_scales(summary.encoder, rows, summary)
        self.schema = _schema(summary, self._labels, n_features)
        self._bounds = rows.bounds(partition_nnz, len(self.schema.label_columns))
        self.n_partitions = self._bounds.shape[1] - 1

    @property
    def is_stored(self) -> bool:
        """True if workers of a cluster can read the rows."""
        return not isinstance(self._rows, ExternalShuffle)

    @cached_property
    def names(self) -> dict[int, str]:
        """Names of features."""
        return self.summary.feature_names()

    def read(self, number: int) -> tuple[Rows, Block]:
        """Read a partition, and its block, which has tags and lines if the rows have any."""
        block = self.summary.finish(self._rows.read(self._bounds, number))
        labels = self._labels.decode(np.asarray(block.labels, np.float64))
        return finish_rows(block, labels), block

    def to_dataset(self, url: str) -> Dataset:
        """The rows as a dataset that lasts as long as the process."""
        if self._rows.in_memory:
            parts = [self.read(number)[0] for number in range(self.n_partitions)]
            return MemoryDataset(parts, self.schema, url, self.names)
        return CollectedDataset(self, url)


class CollectedDataset(Dataset):
    """Collected rows as a dataset; each reading of a partition gathers them again."""

    in_memory = True  # temporary files are those of this process

    def __init__(self, collected: Collected, url: str) -> None:
        self.url = url
        self.schema = collected.schema
        self._collected = collected
        numbers = range(collected.n_partitions)
        self.partitions = tuple(describe_rows(number, self.read(number)) for number in numbers)

    def read(self, partition: int) -> Rows:
        return self._collected.read(partition)[0]

    @property
    def _names(self) -> dict[int, str]:  # type: ignore[override]
        return self._collected.names


def collect(
    source: Source,
    summary: SourceSummary,
    *,
    n_features: int | None = None,
    partition_nnz: int = DEFAULT_PARTITION_NNZ,
    shuffle: Shuffle = "auto",
    pool: WorkerPool | None = None,
    progress: Progress | None = None,
) -> Collected:
    """Read all sources, and complete their `summary`; see `dadagrad.ingest`.

    The workers of a cluster leave the rows in their folder; other workers return them, and this
    process has them in memory, or in temporary files.
    """
    options = summary.options
    seed = (None if options.no_labels else 0) if shuffle == "auto" else shuffle
    seed = None if seed is False else seed
    Number(whole=True, minimum=1).convert("partition_nnz", partition_nnz)
    Number(whole=True, minimum=0, optional=True).convert("shuffle", seed)
    Number(whole=True, minimum=1, optional=True).convert("n_features", n_features)
    if n_features is not None and n_features > MAX_FEATURES:
        raise InputError(f"n_features is {n_features}; it must be {MAX_FEATURES} or less")
    total_bytes, done_bytes = source.n_bytes, 0
    kernels = _KERNELS.get(options.format)
    if kernels is not None and not any(map(is_compiled, kernels)):
        logger.info("compiling the reader of rows (once on this machine, a few seconds)")

    def report(n_bytes: int, n_rows: int) -> None:
        nonlocal done_bytes
        done_bytes += n_bytes
        if progress is not None:
            progress(done_bytes, total_bytes, n_rows)

    pool = pool or WorkerPool(None)
    rows: ShuffledRows
    if isinstance(pool, ClusterPool) and (tasks := source.tasks(summary, pool)) is not None:
        rows = ShuffledRows(store_runs(tasks, summary, seed, pool, report), seed, pool)
    else:
        rows = local = ExternalShuffle(seed=seed)
        for block in source.blocks(summary, pool):
            local.append(summary.add(block))
            report(block.source_bytes, rows.n_rows)
        local.finish()
    summary.wrong_rows.log()
    if not rows.n_rows:
        skipped = summary.wrong_rows.n_rows
        reason = f" ({skipped} were wrong and skipped)" if skipped else ""
        reason += f" ({summary.zero_weight} have weight 0)" if summary.zero_weight else ""
        raise InputError(f"no rows in {source.name}{reason}; give sources with at least one")
    return Collected(rows, summary, n_features or summary.n_needed, partition_nnz)


def _learn_scales(
    encoder: TableEncoder, rows: ShuffledRows, summary: SourceSummary
) -> TableEncoder:
    """Learn the scales of numbers from a sample of rows."""
    columns, n_numbers = encoder.columns, len(encoder.numbers)
    if n_numbers and summary.options.scales_numbers:
        sample = rows.sample(min(MAX_SAMPLE_ROWS, MAX_SAMPLE // n_numbers))
        scales = learn_scale(sample, n_numbers, encoder.first_missing)
        scaled = {
            column.name: replace(column, center=center, scale=scale)
            for column, (center, scale) in zip(encoder.numbers, scales, strict=True)
        }
        columns = tuple(scaled.get(column.name, column) for column in columns)
    has_missing = summary.largest_id >= encoder.first_missing
    return replace(encoder, columns=columns, has_missing=has_missing)


def _schema(summary: SourceSummary, labels: LabelTable, n_features: int | None) -> Schema:
    minimum = max(summary.largest_id + 1 - summary.first_id, summary.n_features)
    if summary.encoder is not None:
        minimum = summary.encoder.n_features
    elif summary.options.hash_bits is not None:
        minimum = 2**summary.options.hash_bits
    if n_features is not None and n_features < minimum:
        raise InputError(
            f"n_features is {n_features}, but the sources have features up to id {minimum - 1}, "
            f"counted from 0; give {minimum} or more"
        )
    return Schema(
        n_features or max(minimum, 1),
        keep_class_names(labels.columns, summary.named_labels),
        summary.weighted,
        _feature_space(summary),
        queried=bool(summary.queried),
    )


def _feature_space(summary: SourceSummary) -> FeatureSpace:
    options = summary.options
    if summary.encoder is not None:
        reading: dict[str, Any] = {"format": options.format, "columns": summary.columns}
        if summary.delimiter is not None:
            reading["delimiter"] = summary.delimiter
        reading |= summary.encoder.reading()
        return FeatureSpace({**summary.encoder.to_json(), "reading": reading})
    space: dict[str, Any] = {"format": options.format}
    if options.format == "vw":
        space["hash_bits"] = options.hash_bits
        if options.cross:
            space["cross"] = [":".join(cross) for cross in options.cross]
        chosen = {"columns": options.columns, "ignore": options.ignore}
        space |= {name: list(names) for name, names in chosen.items() if names}
    elif options.format == "svmlight":
        space["zero_based"] = summary.first_id == 0
    elif not options.binary and options.norm == "none":
        first, *others = summary.spaces
        return first if all(other == first for other in others) else FeatureSpace()
    elif options.format == "anndata":
        space |= summary.spaces[0].plain
    return FeatureSpace({**space, "binary": options.binary, "norm": options.norm})
