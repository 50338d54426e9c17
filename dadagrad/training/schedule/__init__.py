"""Schedules: the rows of each round, fixed before the first is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from dadagrad.config import TrainConfig
from dadagrad.data.dataset import Dataset
from dadagrad.errors import InputError
from dadagrad.training.schedule.base import CHUNK_ROWS, Schedule, SequenceSchedule
from dadagrad.training.schedule.batches import BatchSchedule, OnlineSchedule
from dadagrad.training.schedule.streams import StreamSchedule

MIN_ROUNDS, MAX_ROUNDS, MANY_ROWS = 14, 40, 100_000
"""Rounds of the first pass at least, at most, and the rows from which on there are fewer."""

MIN_PREFETCH = 2
"""Partitions that are opened ahead of their use, at least."""


def resolve_config(data: Dataset, config: TrainConfig, *, on_cluster: bool) -> TrainConfig:
    """Return `config` with numbers for "auto"; `InputError` if `data` do not suit it."""
    if data.n_rows == 0:
        raise InputError(f"the data at {data.url} has no rows; training needs at least one")
    if data.schema.n_features == 0:
        raise InputError(f"the data at {data.url} has no columns of features; give at least one")
    if on_cluster and not config.update.takes_batches:
        raise InputError(
            f"update {config.update.name!r} learns row by row, which no cluster can share; train "
            "without workers"
        )
    streams, batch_size = config.streams, config.batch_size
    if streams == "auto":
        shared = on_cluster and batch_size == "auto" and config.is_compiled
        streams = auto_streams(data, config.passes) if shared else 1
    if batch_size == "auto":
        batch_size = auto_batch_size(data) if on_cluster and streams == 1 else 1
    return replace(config, streams=streams, batch_size=batch_size)


def n_prefetched(n_streams: int, threads: int) -> int:
    """Number of partitions to open ahead of their use.

    Each thread learns from one stream at a time, and all streams may come to the ends of their
    partitions at about the same time.
    """
    return max(MIN_PREFETCH, min(n_streams, threads))


def n_side_by_side(prefetch: int) -> int:
    """Number of streams to learn from side by side where `prefetch` partitions are opened ahead.

    Of two for each, one waits for its partition while a thread learns from the other. Four more
    leave no thread without work.
    """
    return 4 + 2 * prefetch


def make_schedule(
    config: TrainConfig,
    partition_rows: Sequence[int],
    *,
    chunk_rows: int = CHUNK_ROWS,
    source_partitions: Sequence[int] = (),
) -> Schedule:
    """The schedule of a run over partitions of so many rows.

    The batch size of `config` must be a number. Where each row is a step, a slice has at most
    `chunk_rows` rows. The partitions may be those of several datasets, of `source_partitions` each.
    """
    assert isinstance(config.batch_size, int)
    rows, batch_size = tuple(partition_rows), config.batch_size
    common = rows, config.passes, config.shuffle, config.seed, chunk_rows, batch_size
    if len(source_partitions) > 1:
        ends = list(accumulate(source_partitions, initial=0))
        parts = tuple(
            make_schedule(config, rows[start:stop], chunk_rows=chunk_rows)
            for start, stop in pairwise(ends)
        )
        return SequenceSchedule(*common, parts)
    if config.n_streams > 1:
        return StreamSchedule(*common, config.n_streams, n_rounds(config, sum(rows)))
    if batch_size == 1:
        return OnlineSchedule(*common)
    return BatchSchedule(*common, config.partitions_per_batch)


def auto_batch_size(data: Dataset) -> int:
    """The batch size that "auto" stands for on a cluster.

    A 256th of a pass learns about as well as the online pass (measured in
    `examples/benchmarks/quality.py`) with as few messages as that allows. It is at least 16 rows,
    and at most 20 million non-zeros, beyond which larger batches no longer make messages rarer than
    work.
    """
    rows_of_most_entries = int(20_000_000 * data.n_rows / max(data.nnz, 1))
    return max(16, min(data.n_rows // 256, rows_of_most_entries))


def auto_streams(data: Dataset, passes: int) -> int:
    """The number of streams that "auto" stands for on a cluster.

    The fewer streams, the better each pass learns, and the less time it takes. 16 keep as many
    threads busy, which learn from 10^10 non-zeros in some 5 seconds. It does not depend on the
    workers: the bits must not.
    """
    entries = data.nnz * passes
    return 16 if entries < 10**10 else 64 if entries < 10**11 else 256


def n_rounds(config: TrainConfig, n_rows: int) -> int:
    """Rounds of the first pass of streams over so many rows.

    Over many rows, twice as many rounds lower the error by less than 0.2 %, and take more time
    (measured in `examples/benchmarks/rounds.py`).
    """
    if config.rounds != "auto":
        return config.rounds
    fewer: float = MAX_ROUNDS * (MANY_ROWS / max(n_rows, 1)) ** 0.5
    return min(max(round(fewer), MIN_ROUNDS), MAX_ROUNDS)
