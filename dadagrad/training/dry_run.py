"""Estimate of a run without running it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dadagrad.config import TrainConfig, make_config
from dadagrad.data.ingest.ingest import arguments_of, as_dataset, split_options
from dadagrad.errors import name_options
from dadagrad.storage.memory import free_memory, resident
from dadagrad.training.engines.resources import Resources
from dadagrad.training.engines.warm_up import warm_up
from dadagrad.training.execution import Run
from dadagrad.training.holdout import split_setting
from dadagrad.training.memory.check import memory_shortage
from dadagrad.training.memory.workers import WorkerMemory, local_workers, workers_of
from dadagrad.training.schedule import resolve_config


@dataclass(frozen=True, slots=True)
class DryRun:
    """Estimate of a run; memory and traffic in bytes.

    Attributes
    ----------
    engine : {"threads", "cluster"}
    rows, features, outputs, partitions, passes, batch_size, streams : int
    steps : int
        Steps of all passes, if every row counts.
    coordinator : dict
        Memory of this process: ``process`` before the run (mostly libraries), and in addition
        ``state``, ``checkpoint`` (the copy that is written), ``rows`` (open partitions), ``step``,
        ``model``, ``trial`` (of step sizes) and ``libraries`` (of a cluster's client). They are not
        all there at the same time: ``total`` is the peak, if all features occur. A store that takes
        longer to write a checkpoint than the time between two adds a second copy.
    free : int
        Memory that this process can take in addition, or was allowed to take.
    worker : dict or None
        Memory of the worker with the lowest limit: ``libraries``, ``reading`` (one partition for
        each thread), ``step``, ``state`` (its share of that of streams), ``cache`` (decoded
        partitions), their ``total``, and ``limit`` (None if unlimited). None without a cluster.
    bytes_per_step : dict or None
        Mean bytes ``down`` to the workers (weights of the features that the rows touch) and ``up``
        from them (gradients, and positions of features). None without a cluster.
    problem : str or None
        The reason why the run cannot fit and what to change; None if it fits.
    """

    engine: str
    rows: int
    features: int
    outputs: int
    partitions: int
    passes: int
    batch_size: int
    streams: int
    steps: int
    coordinator: dict[str, int]
    free: int
    worker: dict[str, int | None] | None
    bytes_per_step: dict[str, int] | None
    problem: str | None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, with ``fits``."""
        return {**asdict(self), "fits": self.problem is None}


def dry_run(
    data: Any,
    config: TrainConfig | None = None,
    *,
    threads: int | None = None,
    workers: int | None = None,
    client: Any = None,
    memory: int | None = None,
    holdout: Any = None,
    checkpoints: str | None = None,
    save_to: str | None = None,
    **settings: Any,
) -> DryRun:
    """Estimate what `dadagrad.train` would take with the same arguments.

    Only metadata is read; the workers of a running cluster are asked for their memory limits. All
    figures are estimates, except the state and its copy: the metadata do not say how many features
    the rows of a batch touch.

    Raises
    ------
    InputError
        The configuration does not suit the data, or there is no scheduler at the address. A run
        that takes too much memory does not raise: `DryRun.problem` gives the reason.
    """
    options, settings = split_options(settings)
    holdout, settings = split_setting(holdout, settings)
    data = as_dataset(data, **options)
    resources = Resources(threads, workers, client, memory)
    on_cluster = resources.on_cluster
    config = make_config(config, settings, arguments_of(dry_run))
    config = resolve_config(data, config, on_cluster=on_cluster)
    run = Run(data, config, resources, holdout=holdout, save_to=save_to)
    limits = _worker_limits(resources)
    estimate = run.estimate(limits, checkpoints=checkpoints is not None)
    shortage = memory_shortage(estimate, run.problem, memory, limits)
    if shortage is None:
        # This loads the libraries, which are part of the memory of a run.
        warm_up(run.problem, run.messages)
    process, added = resident(), estimate.process
    return DryRun(
        engine="cluster" if on_cluster else "threads",
        rows=run.data.n_rows,
        features=run.problem.n_features,
        outputs=run.problem.n_outputs,
        partitions=len(run.data.partitions),
        passes=config.passes,
        batch_size=run.schedule.batch_size,
        streams=config.n_streams,
        steps=estimate.steps,
        coordinator={"process": process, **added, "total": process + added["total"]},
        free=free_memory() if memory is None else memory,
        worker=estimate.worker,
        bytes_per_step=estimate.bytes_per_step,
        problem=shortage and name_options(shortage),
    )


def _worker_limits(resources: Resources) -> list[WorkerMemory]:
    if resources.client is not None:
        from dadagrad.clusters import connected

        with connected(resources.client) as client:
            return workers_of(client)
    return [] if resources.workers is None else local_workers(resources.workers)
