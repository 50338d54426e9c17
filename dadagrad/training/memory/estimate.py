"""Estimates of the memory and the traffic of a run, from metadata alone.

The memory of a process is greatest at one of three moments: while step sizes are tried, while rows
are learned from, or while the model is made. The sizes of state arrays are exact; those of
partitions and messages follow from the metadata (`dadagrad.training.memory.partitions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import NamedTuple

import numpy as np

from dadagrad.config import TrainConfig
from dadagrad.data.dataset import Dataset, Partition
from dadagrad.kernels.id_sets import packed_bytes
from dadagrad.model.metrics import MAX_SCORES
from dadagrad.optim.arrays import Array
from dadagrad.problem import Problem
from dadagrad.training.memory.partitions import (
    centered_bytes,
    decoded_bytes,
    distinct_features,
    reading_bytes,
    touched_features,
)
from dadagrad.training.memory.workers import WorkerMemory, cache_bytes, n_holders, stays_on_workers
from dadagrad.training.schedule import n_prefetched, n_rounds, n_side_by_side
from dadagrad.training.schedule.base import Cursor, Schedule, Slice
from dadagrad.training.state import feature_bytes, state_bytes
from dadagrad.training.state.compiled import CHUNK_WEIGHTS
from dadagrad.training.step_size import GRID, first_rows
from dadagrad.training.worker.compute import gradient_dtype

MAX_BATCHES, MAX_SLICES = 1_000, 20_000
"""Number of batches, or of slices of streams, that are looked at."""

_SCORES, _COUPLED_SCORES = 3, 6
"""Arrays of (rows, outputs) in a slice's work; more if the loss couples outputs."""
_SORTED_SCORE = 112
"""Bytes of a score that is sorted with others for a ROC curve, with the weights of its classes."""
_PLAIN_VECTORS = 8
"""Arrays of (features, outputs) in a step of an algorithm that is not compiled."""
_MESSAGES = 3
"""Copies of what travels: the arrays, their message, and the scheduler's message."""
_FINISHED_TASKS = 16 << 20
"""Bytes of results that are not released yet."""
_MALLOC_KEPT = 24 << 20
"""Bytes that the C library keeps after the trial of step sizes."""
_CLIENT_LIBRARIES, _WORKER_LIBRARIES = 30 << 20, 230 << 20
"""Bytes that the client of a cluster adds to a process, and of a worker before its first task."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate of a run, in the words of `dadagrad.DryRun`.

    `process` is what the run adds to the process that holds the state.
    """

    process: dict[str, int]
    worker: dict[str, int | None] | None
    steps: int
    bytes_per_step: dict[str, int] | None


class Sizes(NamedTuple):
    """Sizes of a slice, or of several."""

    rows: float
    nnz: float
    touched: float  # features
    down: float  # bytes to the worker
    up: float  # bytes from it


@dataclass(frozen=True, slots=True)
class _Learning:
    """Facts of the slices that are learned from side by side.

    `rounds` has a line of `Sizes` for each batch or round of streams, `largest` the largest of
    each size in one slice, and `together` in one round. `work` is the memory of one slice, and
    `reading` the most that reading a partition takes in addition to its `decoded` rows.
    """

    rounds: Array
    largest: Sizes
    together: Sizes
    work: int
    n_open: int
    decoded: Sequence[int]
    reading: int

    @property
    def moved(self) -> int:
        """Bytes that travel in a round."""
        return int(self.together.down + self.together.up)

    def open_bytes(self, sizes: Sequence[int], n_workers: int = 1) -> int:
        """Bytes of the largest partitions that one of the workers has open at the same time."""
        repeats, remainder = divmod(-(-self.n_open // n_workers), len(sizes))
        return repeats * sum(sizes) + sum(sorted(sizes, reverse=True)[:remainder])


def estimate_run(
    data: Dataset,
    problem: Problem,
    schedule: Schedule,
    *,
    on_cluster: bool,
    threads: int = 1,
    workers: Sequence[WorkerMemory] = (),
    checkpoints: bool = False,
    workers_write: bool = False,
    held_out: Dataset | None = None,
) -> Estimate:
    """Estimate a run, on `threads` of this process or on `workers`, which may write the model."""
    trial = _trial_bytes(data, problem, schedule, threads)
    if problem.chooses_average:  # it may choose the larger state
        problem = problem.choose(1.0, average=True)
    streams_travel = on_cluster and problem.config.n_streams > 1
    n_threads = sum(worker.threads for worker in workers) if on_cluster else threads
    learning = _learning(data, problem, schedule, n_threads, workers if streams_travel else None)
    merging = _round_bytes(problem, schedule, learning.together)
    if streams_travel:  # the workers do all of it
        rows, step = 0, _FINISHED_TASKS
    elif on_cluster:
        rows = learning.open_bytes([8 * partition.n_local for partition in data.partitions])
        step = _MESSAGES * learning.moved + _FINISHED_TASKS + merging
    else:
        rows = learning.open_bytes(learning.decoded) + threads * learning.reading
        step = _slice_bytes(data, problem, learning, threads) + merging
    step += _plain_bytes(problem)
    # Early stopping keeps the best state so far.
    state = state_bytes(problem) * (2 if problem.config.early_stopping else 1)
    if streams_travel and stays_on_workers(problem):
        state = 0
    model = 0 if workers_write else _model_bytes(data, problem)
    at_end = model + (0 if held_out is None else _evaluation_bytes(held_out, problem, threads))
    libraries = _CLIENT_LIBRARIES if on_cluster else 0
    peak = (1 + checkpoints) * state + max(rows + step, at_end)
    process = {
        "state": state,
        "checkpoint": checkpoints * state,
        "rows": rows,
        "step": step,
        "model": model,
        "trial": trial,
        "libraries": libraries,
        "total": libraries + max(trial, peak + min(_MALLOC_KEPT, trial // 2)),
    }
    steps = schedule.passes * -(-sum(schedule.partition_rows) // schedule.batch_size)
    if not on_cluster:
        return Estimate(process, None, steps, None)
    worker = _worker_bytes(data, problem, schedule, learning, workers)
    n_steps = learning.rounds[:, 0].sum() if streams_travel else len(learning.rounds)
    mean = Sizes(*(learning.rounds.sum(axis=0) / n_steps).tolist())
    return Estimate(process, worker, steps, {"down": round(mean.down), "up": round(mean.up)})


def _learning(
    data: Dataset,
    problem: Problem,
    schedule: Schedule,
    n_threads: int,
    workers: Sequence[WorkerMemory] | None,
) -> _Learning:
    """Return the facts of slices; `workers` are those that send each other what streams change."""
    slices_of_rounds, n_open = _first_rounds(schedule, problem.config, n_threads, workers is None)
    slices = [
        np.array([_slice_sizes(problem, data.partitions[each.partition], each) for each in round_])
        for round_ in slices_of_rounds
    ]
    rounds = np.array([sizes.sum(axis=0) for sizes in slices])
    if workers is not None:
        rounds = _between_workers(problem, rounds, workers)
    largest = Sizes(*np.concatenate(slices).max(axis=0).tolist())
    together = Sizes(*rounds.max(axis=0).tolist())
    arrays = _COUPLED_SCORES if problem.loss.couples else _SCORES
    work = int(4 * largest.nnz) + int(arrays * 8 * problem.n_outputs * largest.rows)
    decoded, reading = [], 0
    for partition in data.partitions:  # whose rows are read, and then centered
        centered = centered_bytes(problem, partition)
        decoded.append(max(decoded_bytes(data, partition), centered))
        reading = max(reading, reading_bytes(data, partition), centered)
    return _Learning(rounds, largest, together, work, n_open, decoded, reading)


def _worker_bytes(
    data: Dataset,
    problem: Problem,
    schedule: Schedule,
    learning: _Learning,
    workers: Sequence[WorkerMemory],
) -> dict[str, int | None]:
    """Bytes of the parts of the largest worker, and its limit."""
    threads = max((worker.threads for worker in workers), default=1)
    limit = min((worker.limit for worker in workers if worker.limit is not None), default=None)
    n_workers, decoded = max(1, len(workers)), learning.decoded
    kept = sum(decoded) if schedule.passes > 1 else learning.open_bytes(decoded, n_workers)
    held, step = 0, threads * learning.work
    if problem.config.n_streams > 1:
        held = n_holders(problem, workers) * state_bytes(problem) // n_workers
        merging = _round_bytes(problem, schedule, learning.together)
        step = _slice_bytes(data, problem, learning, threads) + merging // n_workers
    parts = {
        "libraries": _WORKER_LIBRARIES,
        "reading": threads * (learning.reading + max(learning.decoded)),
        "step": step + 2 * learning.moved,
        "state": held,
        "cache": min(kept, cache_bytes(limit, _WORKER_LIBRARIES)),
    }
    return {**parts, "total": sum(parts.values()), "limit": limit}


def _between_workers(problem: Problem, sums: Array, workers: Sequence[WorkerMemory]) -> Array:
    """Return the sizes of rounds with what workers send each other, instead of to the client."""
    rows, nnz, touched, _, _ = sums.T
    each = feature_bytes(problem) + 2  # bytes of an id
    n_workers, holders = max(1, len(workers)), n_holders(problem, workers)
    down = touched * each * (1 - holders / n_workers)
    # To the first holders, and what they have merged to the others.
    merged = np.minimum(touched, problem.n_features) * (holders - 1)
    each_merged = each + 4 * problem.has_momentum * problem.n_outputs
    up = each * touched * (1 - 1 / n_workers) + each_merged * merged
    return np.stack([rows, nnz, touched, down, up], axis=1)


def _first_rounds(
    schedule: Schedule, config: TrainConfig, threads: int, is_local: bool
) -> tuple[list[list[Slice]], int]:
    """Return the slices of some rounds, of streams the last, and the number of open partitions."""
    n_ahead = n_prefetched(config.n_streams, threads)
    if config.n_streams == 1:
        n_readings = schedule.passes * sum(map(bool, schedule.partition_rows))
        batches = [r.slices for r in islice(schedule.rounds(Cursor()), MAX_BATCHES)]
        return batches, min(max(map(len, batches)) + n_ahead, n_readings)
    n_rows = sum(schedule.first.partition_rows)
    rounds = list(islice(schedule.rounds(Cursor()), n_rounds(config, n_rows)))
    n_used = max(len({stretch[0].reading for stretch in r.stretches}) for r in rounds)
    slices = [r.slices for r in rounds]
    readings = [{each.reading for each in round_} for round_ in slices]
    if is_local:  # some streams begin when others are at their end
        n_kept = max((len(a & b) for a, b in pairwise(readings)), default=0)
        n_used = min(n_used, n_kept + n_side_by_side(n_ahead) + 1)
    n_readings = schedule.passes * len(set(chain(*readings)))
    return slices[-max(1, MAX_SLICES // max(map(len, slices))) :], min(n_used + n_ahead, n_readings)


def _gradient_bytes(problem: Problem) -> int:
    return np.dtype(gradient_dtype(problem)).itemsize * problem.n_outputs


def _slice_sizes(problem: Problem, partition: Partition, slice_: Slice) -> Sizes:
    down = 4 * problem.n_outputs
    up = _gradient_bytes(problem) * (1 + (problem.config.accumulate == "row"))
    nnz = partition.nnz * slice_.n_rows / partition.n_rows
    touched = touched_features(nnz, partition)
    positions = packed_bytes(touched, partition.n_local)
    # The whole vocabulary is sent where the rows touch most of it.
    whole = nnz >= partition.n_local or problem.loss.ranks
    input_bytes = (partition.n_local if whole else touched) * down + 8 * problem.n_outputs
    result = (1 + (not whole)) * positions + touched * up + 16 * problem.n_outputs
    return Sizes(slice_.n_rows, nnz, touched, input_bytes, result)


def _slice_bytes(data: Dataset, problem: Problem, learning: _Learning, threads: int) -> int:
    """Bytes of the slices that threads work on, and of what they hold of the state."""
    work, touched = learning.work, int(learning.largest.touched)
    if problem.config.n_streams > 1:
        # Each stream has a slice of the state, and a copy to find what it has changed.
        return threads * (work + 2 * feature_bytes(problem) * touched)
    if problem.online:
        # Each thread learns in the slice of a partition and of one group of outputs, whose
        # accumulators are in memory that is an eighth larger.
        at_once = min(threads, problem.n_groups) if problem.compiled else 0
        lazy = problem.config.update.shrinks_lazily
        feature = (9 + 5 * problem.averages) * problem.group_width + 8 * lazy
        n_local = max(partition.n_local for partition in data.partitions)
        return work + at_once * feature * n_local
    return threads * (work + _gradient_bytes(problem) * touched)


def _round_bytes(problem: Problem, schedule: Schedule, together: Sizes) -> int:
    """Bytes of the sums of a batch, or of the changes of streams and their merge."""
    touched = int(together.touched)
    marks = problem.n_features // 5  # that find the distinct features of several slices
    if problem.config.n_streams > 1:
        feature = feature_bytes(problem)
        # Groups of outputs are merged one after the other, except those of mirror descent.
        lazy = problem.config.update.shrinks_lazily
        width = problem.n_outputs if lazy else problem.group_width
        union = min(touched, problem.n_features) * (8 + 2 * feature + 36 * width)
        return touched * (12 + feature) + union + marks
    if schedule.batch_size == 1:
        return 0
    # The gradients of the slices, their sums in float64, the mean, and the slice of the state.
    arrays = 4 + (problem.config.accumulate == "row")
    several = min(problem.config.partitions_per_batch, len(schedule.partition_rows)) > 1
    return touched * (32 + 8 * arrays * problem.n_outputs) + marks * several


def _plain_bytes(problem: Problem) -> int:
    """Bytes of a step over all features, for algorithms that are not compiled."""
    if problem.compiled or getattr(problem.algorithm, "local", False):
        return 0
    vector, state = 8 * problem.n_features * problem.n_outputs, state_bytes(problem)
    is_matrix = state >= problem.n_features * vector  # which takes memory to decompose
    return 3 * state if is_matrix else _PLAIN_VECTORS * vector


def _model_bytes(data: Dataset, problem: Problem) -> int:
    """Bytes of the non-zero weights of one setting, which are made in chunks."""
    problem = problem.settings[0]
    if not problem.compiled:
        return 22 * problem.n_features * problem.n_outputs
    chunk = min(CHUNK_WEIGHTS, problem.n_features * problem.n_outputs)
    copied = feature_bytes(problem) // problem.n_outputs if problem.n_groups > 1 else 0
    n_features = distinct_features(problem.n_features, data.partitions)
    return n_features * (8 + 4 * problem.n_outputs) + (9 + copied) * chunk


def _evaluation_bytes(data: Dataset, problem: Problem, threads: int) -> int:
    """Bytes of an evaluation on `data`: partitions, which are read whole, and scores to sort."""
    whole = [partition for source in data.sources for partition in source.partitions]
    decoded = max(decoded_bytes(data, each) for each in whole)
    scoring = max(
        reading_bytes(data, each)
        + 8 * (each.nnz + problem.n_outputs * (each.n_rows + each.n_local))
        for each in whole
    )
    # Beside those that are read and scored, one is measured.
    n_scored = min(threads + 1, len(data.partitions))
    rows = n_scored * scoring + (n_scored + 1) * decoded
    return rows + _SORTED_SCORE * min(data.n_rows, 2 * MAX_SCORES)


def _trial_bytes(data: Dataset, problem: Problem, schedule: Schedule, threads: int) -> int:
    """Bytes of the states of the trial of step sizes, and of the partitions that it holds."""
    if problem.config.step_size != "auto" or not problem.config.update.has_step_size:
        return 0
    problem = problem.settings[0]
    parts = first_rows(data, schedule, problem.compiled)
    chosen = [data.partitions[number] for number, _ in parts]
    rows = sum(decoded_bytes(data, partition) for partition in chosen)
    rows += min(threads, len(chosen)) * max(reading_bytes(data, each) for each in chosen)
    # The rows alone, and what is made of them.
    rows += sum(
        (16 * each.nnz + centered_bytes(problem, each)) * n // each.n_rows
        for each, (_, n) in zip(chosen, parts, strict=True)
    )
    if not problem.compiled:
        return rows + state_bytes(problem) + _plain_bytes(problem)
    n_features = distinct_features(problem.n_features, chosen)
    ids = 8 * n_features + 8 * sum(partition.n_local for partition in chosen)
    return rows + ids + len(GRID) * n_features * feature_bytes(problem.choose(1.0, average=True))
