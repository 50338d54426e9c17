"""Refusal of runs that cannot fit into memory: what is needed, what is there, what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.filesize import decimal

from dadagrad.problem import Problem
from dadagrad.storage.memory import free_memory
from dadagrad.training.memory.estimate import Estimate
from dadagrad.training.memory.workers import WorkerMemory, usable_share

_UNCHECKED_BYTES = 16 << 20
"""A run that needs less starts without a look at the free memory, which takes time."""

PARTS = {
    "process": "this process before the run",
    "libraries": "libraries of the cluster",
    "state": "state",
    "checkpoint": "copy of the state for a checkpoint",
    "rows": "open partitions",
    "reading": "reading of partitions",
    "step": "computation of a step and messages",
    "model": "model at the end",
    "trial": "trial of step sizes before the run",
    "cache": "decoded partitions that are kept",
    "total": "largest total",
}
"""Parts of the memory of a process in words, by their names in an `Estimate`."""


def memory_shortage(
    estimate: Estimate, problem: Problem, memory: int | None, workers: Sequence[WorkerMemory]
) -> str | None:
    """Explain in one line why a run cannot fit; None if it can.

    `memory` is what the run may take in this process; None stands for the free memory.
    """
    shortage = _local_shortage(estimate.process, problem, memory)
    return shortage or _worker_shortage(estimate.worker, workers)


def _local_shortage(needed: dict[str, int], problem: Problem, memory: int | None) -> str | None:
    total = needed["total"]
    if total <= (memory or _UNCHECKED_BYTES):
        return None
    limit = memory or free_memory()
    if total <= limit:
        return None
    largest = sorted(needed.keys() - {"total"}, key=lambda name: (-needed[name], name))[:2]
    sizes = ", ".join(f"{PARTS[name]} {decimal(needed[name])}" for name in largest)
    return (
        f"training takes up to {decimal(total)} of memory here ({sizes}; "
        f"{problem.n_features:,} features, {problem.n_outputs} output(s)), and "
        f"{decimal(limit)} are {'allowed' if memory else 'free'}: "
        + ", or ".join(_advice(needed, problem, limit))
    )


def _advice(needed: dict[str, int], problem: Problem, limit: int) -> list[str]:
    """List the settings that reduce the largest parts."""
    advice, config = [], problem.config
    learning = needed["state"] + needed["checkpoint"] + needed["model"]
    state_is_large = 2 * learning > needed["total"]
    if config.preconditioner.name != "diagonal":
        advice.append("choose the diagonal preconditioner")
    elif config.update.name == "arow-full":
        advice.append("choose update 'arow', which keeps only the diagonal")
    elif state_is_large or not problem.compiled:
        bits = math.floor(math.log2(max(2.0, problem.n_features * limit / needed["total"])))
        advice.append(
            f"make fewer features (of tables and texts, ingest with --hash-bits {bits}; of ids, "
            "number them without gaps)"
        )
    if problem.n_targets > 1 and state_is_large:
        advice.append("train fewer outputs at a time")
    if needed["checkpoint"] and state_is_large:
        advice.append("train without checkpoints, which take a copy of the state")
    if needed["trial"] > learning + max(needed["rows"] + needed["step"], needed["model"]):
        advice.append("give a step size instead of 'auto'")
    if 2 * needed["rows"] > needed["total"]:
        advice.append("make smaller partitions (ingest with --partition-nnz)")
    if problem.compiled and 2 * needed["step"] > needed["total"]:
        advice.append("give a smaller batch size")
    return [*(advice or ["use a machine with more memory"]), "allow more memory"]


def _worker_shortage(
    needed: dict[str, int | None] | None, workers: Sequence[WorkerMemory]
) -> str | None:
    if needed is None or needed["limit"] is None:
        return None
    minimum = (needed["total"] or 0) - (needed["cache"] or 0)
    if minimum <= usable_share() * needed["limit"]:
        return None
    parts = {name: decimal(n_bytes or 0) for name, n_bytes in needed.items()}
    worker = next(worker for worker in workers if worker.limit == needed["limit"])
    state = f"{parts['state']} for its share of the state, " if needed["state"] else ""
    return (
        f"a worker needs {decimal(minimum)} of memory ({parts['libraries']} for libraries, {state}"
        f"{parts['reading']} to read a partition with each of its {worker.threads} thread(s), "
        f"{parts['step']} for a step), and of the limit of {worker.address}, {parts['limit']}, "
        f"Dask lets it use {100 * usable_share():.0f} %: give workers more (dask worker "
        f"--memory-limit), {'start more, ' if state else ''}start them with fewer threads "
        "(--nthreads), or make smaller partitions (ingest with --partition-nnz)"
    )
