"""What a run would take, without running it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dadagrad.config import TrainConfig
from dadagrad.data.dataset import Dataset, open_dataset
from dadagrad.training.budget import Budget
from dadagrad.training.fitting_in import problem
from dadagrad.training.partition_cache import cache_bytes
from dadagrad.training.room import WorkerRoom, free_memory, own_workers, resident, workers_of
from dadagrad.training.run import Run, Where, prepared


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a run would take; all memory and traffic in bytes.

    Attributes
    ----------
    engine : {"threads", "cluster"}
    rows, features, outputs, partitions, passes : int
    batch_size : int
        What "auto" stands for is in its place.
    steps : int
        Of all passes, if every row counts.
    coordinator : dict
        Memory of this process: ``process`` is what it takes before, the libraries above all, and
        the others come besides: ``state``, ``checkpoint`` (the copy that is written), ``sums`` (of
        a batch), ``rows`` (partitions that are open), ``step``, ``model``, ``trial`` (of step
        sizes), ``libraries`` (of a cluster's client). Not all are there at the same time:
        ``total`` is what there is at the worst moment if all features occur. Where a store takes
        longer to write a checkpoint than there is time between two, there is a second copy.
    free : int
        What this process can take besides what it has, or what it was allowed to.
    worker : dict or None
        Memory of the worker that has least: ``libraries``, ``reading`` (a partition for each of
        its threads), ``step``, ``cache`` (partitions that stay decoded), their ``total``, and
        ``limit``, None where it has none. Without a cluster None.
    bytes_per_step : dict or None
        ``down`` to the workers (weights of the features that the rows touch) and ``up`` from them
        (gradients, and which features they are of), in the mean. Without a cluster None.
    problem : str or None
        Why it cannot fit, and what to change; None if it fits.
    """

    engine: str
    rows: int
    features: int
    outputs: int
    partitions: int
    passes: int
    batch_size: int
    delay: int
    steps: int
    coordinator: dict[str, int]
    free: int
    worker: dict[str, int | None] | None
    bytes_per_step: dict[str, int] | None
    problem: str | None

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON types, with ``fits``."""
        return {**asdict(self), "fits": self.problem is None}


def dry_run(
    data: Dataset | str,
    config: TrainConfig | None = None,
    *,
    where: Where | None = None,
    checkpoints: str | None = None,
) -> DryRun:
    """What `dadagrad.train` would take with the same arguments.

    Only metadata is read; with a scheduler, its workers are asked for their limits of memory.
    Figures are estimates, but for the state and its copy: how many features the rows of a batch
    touch is not in the metadata.

    Raises
    ------
    InputError
        The data and the configuration do not fit, or there is no scheduler at the address. A run
        that takes too much memory is no error here: `DryRun.problem` says so.
    """
    data = open_dataset(data) if isinstance(data, str) else data
    where = where or Where()
    run = Run(data, prepared(data, config or TrainConfig(), where), where)
    workers = _workers(where)
    threads = max((worker.threads for worker in workers), default=1)
    budget = run.budget(threads, checkpoints is not None)
    why = problem(budget, run.method, where.memory, workers)
    if why is None:
        # Loads the libraries, which are part of what a run takes.
        run.compile()
    process, parts = resident(), budget.coordinator
    batch_size = run.plan.batch_size
    return DryRun(
        engine="cluster" if where.on_dask else "threads",
        rows=data.n_rows,
        features=run.method.n_features,
        outputs=run.method.n_outputs,
        partitions=len(data.partitions),
        passes=run.config.passes,
        batch_size=batch_size,
        delay=run.method.delay,
        steps=budget.steps,
        coordinator={"process": process, **asdict(parts), "total": process + parts.total},
        free=free_memory() if where.memory is None else where.memory,
        worker=_worker(budget, workers),
        bytes_per_step=_per_step(budget) if where.on_dask else None,
        problem=why,
    )


def _workers(where: Where) -> list[WorkerRoom]:
    if where.scheduler is not None:
        from dadagrad.dask_client import connected

        with connected(where.scheduler) as client:
            return workers_of(client)
    return own_workers(where.workers) if where.workers is not None else []


def _worker(budget: Budget, workers: Sequence[WorkerRoom]) -> dict[str, int | None] | None:
    if budget.worker is None:
        return None
    limits = [worker.limit for worker in workers if worker.limit is not None]
    limit = min(limits) if limits else None
    worker = budget.worker
    return {
        "libraries": worker.libraries,
        "reading": worker.reading,
        "step": worker.step,
        "cache": (cache := min(worker.rows, cache_bytes(limit, worker.libraries))),
        "total": worker.least + cache,
        "limit": limit,
    }


def _per_step(budget: Budget) -> dict[str, int]:
    return {"down": round(budget.mean_down), "up": round(budget.mean_up)}
