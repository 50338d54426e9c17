"""Tasks of streams: learning from whole stretches, from the state that the workers hold."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, pairwise
from uuid import uuid4

import numpy as np
from distributed import get_worker
from numpy.typing import NDArray

from dadagrad.training.coordinator.merge import Learned, features_after, unite
from dadagrad.training.engines.dask.messages import Reply
from dadagrad.training.engines.dask.streams.shard_store import ShardStore, forget_stores, store_of
from dadagrad.training.engines.dask.streams.shards import Layout
from dadagrad.training.engines.dask.tasks import Job, Work, forget, with_job
from dadagrad.training.messages import RemoteChange, Result
from dadagrad.training.progressive import ProgressiveMetrics
from dadagrad.training.schedule.base import Slice, Stretch
from dadagrad.training.state.compiled import State
from dadagrad.training.worker.compute import compute


@dataclass(frozen=True, slots=True)
class StreamWork(Work):
    """Stretches of one round, for one task.

    The streams read the state from its holders in the `layout`; `common` has its intercept and t.
    The worker reads the partitions `ahead` after those of the stretches.
    """

    stretches: tuple[Stretch, ...]
    layout: Layout
    common: State
    ahead: tuple[int, ...]


@with_job
def learn_stretches(work: StreamWork, job: Job) -> Reply:
    """Learn from stretches, one after the other.

    The next partition is read while the model learns from this one.
    """
    store = store_of(get_worker(), work.run, job.problem)
    partitions = list(dict.fromkeys(each.partition for each in chain(*work.stretches)))
    following = dict(pairwise([*partitions, *work.ahead]))
    store.enter(work.layout.version)
    results, changes = [], {}
    for stretch in work.stretches:
        metrics, change = _learn(job, store, work, stretch, following)
        remote = RemoteChange(uuid4().hex, change.content.common())
        changes[remote.key] = change
        results.append(tuple(Result(each, remote) for each in metrics))
    for partition in work.ahead:
        job.read_ahead(partition, store.measured)
    with store.measured("exchange"):
        store.send(work.layout, changes)
    return job.reply(partitions, results, tasks=store.measured.take(), n_bytes=store.take_bytes())


def forget_streams(run: str) -> None:
    """Drop the job and the shards of a run."""
    forget(run)
    forget_stores(run)


def _learn(
    job: Job, store: ShardStore, work: StreamWork, stretch: Stretch, following: dict[int, int]
) -> tuple[list[ProgressiveMetrics], Learned]:
    """Take the steps of a stretch; the metrics of its slices, and the change.

    `following` has the partitions to read while the model learns from others.
    """
    change: Learned | None = None
    metrics = []
    for slice_ in stretch:
        rows = job.rows(slice_.partition, store.measured)
        if slice_.partition in following:
            job.read_ahead(following.pop(slice_.partition), store.measured)
        with ExitStack() as learning:

            def pull(ids: NDArray[np.int64], slice_: Slice = slice_) -> State:
                with store.measured("exchange", reading=slice_.reading):
                    state = store.pull(work.layout, ids, work.common)
                details = {"reading": slice_.reading, "rows": slice_.n_rows}
                learning.enter_context(store.measured("learn", **details))
                return state

            features = features_after(change, pull)
            place = job.data.place_of(slice_.partition)
            result = compute(job.problem, rows, slice_, features, place)
        change = unite(change, result.features)
        metrics.append(result.metrics)
        job.done_with(slice_)
    assert change is not None, "a stretch without slices"
    return metrics, change
