"""The refusal of a run that cannot fit into memory: what is needed, what is there, what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from dadagrad import amounts
from dadagrad.method import Method
from dadagrad.training.budget import Budget, Coordinator, Worker
from dadagrad.training.room import WorkerRoom, free_memory, usable_share

size = partial(amounts.size, form=".3g")

_SMALL = 16 << 20
"""A run that needs less is let through without a look at what is free."""

_WHAT = {
    "state": "the state",
    "checkpoint": "the copy of it for a checkpoint",
    "sums": "the sums of a batch",
    "rows": "partitions that are open",
    "step": "a step",
    "model": "the model",
    "trial": "trying step sizes",
}


def problem(
    budget: Budget, method: Method, memory: int | None, workers: Sequence[WorkerRoom]
) -> str | None:
    """Why the run cannot fit, in one line; None where it can.

    `memory` is what it may take here, None for what is free.
    """
    needed = budget.coordinator.total
    if memory is not None or needed > _SMALL:
        free = free_memory() if memory is None else memory
        if needed > free:
            return _too_large_here(budget.coordinator, method, free, given=memory is not None)
    limited = [worker for worker in workers if worker.limit is not None]
    if budget.worker is not None and limited:
        smallest = min(limited, key=lambda worker: worker.limit or 0)
        if budget.worker.least > usable_share() * (smallest.limit or 0):
            return _too_large_there(budget.worker, smallest)
    return None


def _too_large_here(parts: Coordinator, method: Method, free: int, *, given: bool) -> str:
    largest = sorted(_WHAT, key=lambda name: -getattr(parts, name))[:2]
    listed = " and ".join(f"{size(getattr(parts, name))} for {_WHAT[name]}" for name in largest)
    there = f"memory={size(free)} allows less" if given else f"{size(free)} are free"
    return (
        f"training takes up to {size(parts.total)} of memory here ({listed}; "
        f"{method.n_features:,} features, {method.n_outputs} output(s)), and {there}: "
        + ", or ".join(_advice(parts, method, free))
    )


def _advice(parts: Coordinator, method: Method, free: int) -> list[str]:
    """What to change, by what the memory is for."""
    advice, config = [], method.config
    lasting = parts.state + parts.checkpoint + parts.sums + parts.model
    if config.metric != "diagonal":
        advice.append("choose the diagonal metric")
    elif config.update == "arow-full":
        advice.append("choose update 'arow', which keeps the diagonal alone")
    elif 2 * lasting > parts.total or not method.compiled:
        bits = math.floor(math.log2(max(2.0, method.n_features * free / parts.total)))
        advice.append(f"hash to fewer features (ingest with --hash-bits {bits})")
    if method.n_targets > 1 and 2 * lasting > parts.total:
        advice.append("train fewer outputs at a time")
    if parts.checkpoint and 2 * lasting > parts.total:
        advice.append("do without checkpoints, which take a copy of the state")
    if parts.trial > lasting + max(parts.rows + parts.step, parts.model):
        advice.append("give a step size instead of 'auto'")
    if 2 * parts.rows > parts.total:
        advice.append("make smaller partitions (ingest with --partition-nnz)")
    if method.compiled and 2 * parts.step > parts.total:
        advice.append("give a smaller batch size" + (" or delay" if method.delay else ""))
    return [*(advice or ["use a machine with more"]), "say with memory what it may take"]


def _too_large_there(worker: Worker, room: WorkerRoom) -> str:
    return (
        f"a worker needs {size(worker.least)} of memory ({size(worker.libraries)} for libraries, "
        f"{size(worker.reading)} to read a partition with each of its {room.threads} thread(s), "
        f"{size(worker.step)} for a step), and of the limit of {room.address}, "
        f"{size(room.limit or 0)}, Dask lets it have {100 * usable_share():.0f} %: give workers "
        "more (dask worker --memory-limit), start them with fewer threads (--nthreads), or make "
        "smaller partitions (ingest with --partition-nnz)"
    )
