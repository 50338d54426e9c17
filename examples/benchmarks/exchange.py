"""Messages of rounds of streams on a Dask cluster, with nothing computed: three ways to send them.

The features are cut into as many shards as there are workers, and each worker has one group of
streams. In a round each group reads all shards (two float32 for each feature), sends its changes to
the shard that they belong to (an id and three float32 for each feature it touched), and each shard
adds them up. The three ways:

* tasks: a task for each group, each piece of its changes and each shard; all rounds are one
  graph, and Dask moves what the tasks need.
* p2p: changes are dense arrays, cut by group; a peer-to-peer rechunk cuts them by shard.
* actors: each worker has an actor that holds a shard. Groups are tasks that fetch shards and push
  changes; the scheduler sees one task for each group.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import reporting
from dask_processes import dask_cluster
from numpy.typing import NDArray

Changes = tuple[NDArray[np.int32], NDArray[np.float32]]


@dataclass(frozen=True)
class Load:
    """Sizes of the messages: features of the model, and those that a group touches in a round."""

    features: int
    touched: int

    def shard(self, number: int, n_shards: int) -> slice:
        """The features of a shard."""
        ends = [self.features * edge // n_shards for edge in (number, number + 1)]
        return slice(*ends)

    def bytes_per_round(self, workers: int) -> int:
        """Bytes that leave a process in a round: shards to the other groups, changes to shards."""
        shards = (workers - 1) * self.features * 8
        changes = workers * self.touched * 16 * (workers - 1) // workers
        return shards + changes


LOADS = (Load(2_000_000, 400_000), Load(16_000_000, 2_000_000))


def main() -> None:
    parser = reporting.parser(__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--rounds", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--repeats", type=int, default=3, help="default: %(default)s")
    options = parser.parse_args()
    lines = []
    for workers in options.workers:
        with dask_cluster(workers) as address:
            for load in LOADS:
                for way in options.ways:
                    lines.append(measure(address, workers, load, way, options))
                    print(" | ".join(lines[-1]), flush=True)
    header = ["", "workers", "M features", "ms a round", "MB/s", "scheduler ms", "client ms"]
    text = reporting.table(header, lines) + (
        "\n\nScheduler and client: processor time of a round. All processes share this machine."
    )
    reporting.publish("exchange", text, options.markdown)


def measure(
    address: str, workers: int, load: Load, way: str, options: argparse.Namespace
) -> list[str]:
    """A line of the table: the median of repeated passes of so many rounds."""
    from distributed import Client

    seconds, scheduler, client_time = [], [], []
    with Client(address, set_as_default=False, direct_to_workers=True) as client:
        client.scheduler_comm.interval = 0.0
        names = list(client.scheduler_info(n_workers=-1)["workers"])
        process = psutil.Process(client.run_on_scheduler(_process_id))
        for _ in range(options.repeats + 1):
            spent, own = _processor_seconds(process), time.process_time()
            begun = time.perf_counter()
            WAYS[way](client, names, load, options.rounds)
            seconds.append((time.perf_counter() - begun) / options.rounds)
            scheduler.append((_processor_seconds(process) - spent) / options.rounds)
            client_time.append((time.process_time() - own) / options.rounds)
    median = statistics.median(seconds[1:])
    return [
        way,
        str(workers),
        f"{load.features / 1e6:g}",
        f"{1e3 * median:.0f}",
        f"{load.bytes_per_round(workers) / median / 1e6:.0f}",
        f"{1e3 * statistics.median(scheduler[1:]):.1f}",
        f"{1e3 * statistics.median(client_time[1:]):.1f}",
    ]


def _process_id() -> int:
    import os

    return os.getpid()


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


# What is sent


def new_shard(load: Load, number: int, n_shards: int) -> NDArray[np.float32]:
    """A shard at the start, (features of the shard, 2)."""
    features = load.shard(number, n_shards)
    return np.zeros((features.stop - features.start, 2), np.float32)


def changes_of(load: Load, group: int, n_shards: int) -> list[Changes]:
    """Changes of a group, cut by shard; the features of each count from its first."""
    n_touched = load.touched // n_shards
    pieces = []
    for number in range(n_shards):
        features = load.shard(number, n_shards)
        ids = np.linspace(0, features.stop - features.start - 1, n_touched).astype(np.int32)
        pieces.append((ids, np.full((n_touched, 3), group, np.float32)))
    return pieces


def added(shard: NDArray[np.float32], *pieces: Changes) -> NDArray[np.float32]:
    """A shard with the changes of all groups."""
    shard = shard.copy()
    for ids, changes in pieces:
        shard[ids] += changes[:, :2]
    return shard


# Three ways


def by_tasks(client: Any, workers: list[str], load: Load, rounds: int) -> None:
    """Submit all rounds as one graph."""
    import dask
    from dask import delayed

    n = len(workers)

    def work(group: int, *shards: NDArray[np.float32]) -> list[Changes]:
        assert sum(map(len, shards)) == load.features
        return changes_of(load, group, n)

    def pinned(worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        with dask.annotate(workers=[worker], allow_other_workers=False):
            return delayed(function, pure=False, traverse=False)(*arguments)

    def piece(changes: list[Changes], number: int) -> Changes:
        return changes[number]

    shards = [pinned(workers[s], new_shard, load, s, n) for s in range(n)]
    for _ in range(rounds):
        groups = [pinned(workers[g], work, g, *shards) for g in range(n)]
        pieces = [[pinned(workers[g], piece, groups[g], s) for g in range(n)] for s in range(n)]
        shards = [pinned(workers[s], added, shards[s], *pieces[s]) for s in range(n)]
    totals = [pinned(workers[s], np.sum, shards[s]) for s in range(n)]
    client.gather(client.compute(totals, optimize_graph=False))


def by_p2p(client: Any, workers: list[str], load: Load, rounds: int) -> None:
    """Rechunk the dense changes of each round from groups to shards."""
    import dask
    import dask.array as da

    n = len(workers)
    edges = [load.shard(s, n).stop - load.shard(s, n).start for s in range(n)]

    def work(block: NDArray[np.float32], shards: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.ones((1, load.features, 3), np.float32)

    settings = {"distributed.p2p.storage.disk": False, "array.rechunk.method": "p2p"}
    with dask.config.set(settings):
        shards = da.zeros((load.features, 2), chunks=(tuple(edges), 2), dtype=np.float32)
        groups = da.zeros((n, 1, 1), chunks=1, dtype=np.float32)
        for _ in range(rounds):
            whole = shards.rechunk((load.features, 2), method="tasks")
            changes = da.blockwise(
                work,
                "gif",
                groups,
                "gxy",
                whole,
                "iz",
                new_axes={"i": load.features, "f": 3},
                concatenate=True,
                dtype=np.float32,
            )
            cut = changes.rechunk((n, tuple(edges), 3))
            shards = (shards + cut.sum(axis=0)[:, :2]).persist(
                scheduler=client, optimize_graph=False
            )
        client.gather(client.compute(shards.sum()))


class Shard:
    """An actor: a shard, and the changes that have come for a round."""

    def __init__(self, load: Load, number: int, n_shards: int) -> None:
        self.weights = new_shard(load, number, n_shards)
        self._n_groups = n_shards
        self._arrived: list[Changes] = []

    def fetch(self) -> NDArray[np.float32]:
        """The shard as the last round left it."""
        return self.weights

    def push(self, changes: Changes) -> None:
        """Add the changes of the round once those of all groups are there."""
        self._arrived.append(changes)
        if len(self._arrived) == self._n_groups:
            self.weights = added(self.weights, *self._arrived)
            self._arrived.clear()


def by_actors(client: Any, workers: list[str], load: Load, rounds: int) -> None:
    """One task for each group and round; the client waits for a round before the next."""
    n = len(workers)
    actors = [
        client.submit(Shard, load, s, n, actor=True, workers=[workers[s]], pure=False)
        for s in range(n)
    ]
    held = [future.result() for future in actors]

    def fetch(held: list[Any]) -> int:
        shards = [future.result() for future in [actor.fetch() for actor in held]]
        return sum(map(len, shards))

    def push(group: int, held: list[Any], fetched: int) -> None:
        assert fetched == load.features
        pieces = changes_of(load, group, n)
        futures = [actor.push(piece) for actor, piece in zip(held, pieces, strict=True)]
        for future in futures:
            future.result()

    for _ in range(rounds):
        sizes = [client.submit(fetch, held, workers=[workers[g]], pure=False) for g in range(n)]
        client.gather(sizes)  # nobody pushes before all have fetched
        pushes = [
            client.submit(push, g, held, sizes[g], workers=[workers[g]], pure=False)
            for g in range(n)
        ]
        client.gather(pushes)


WAYS = {"tasks": by_tasks, "p2p": by_p2p, "actors": by_actors}

if __name__ == "__main__":
    main()
