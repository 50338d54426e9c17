"""The shards that a worker holds in a run, and its part in merges; see `shards` beside this."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import uuid4

import numpy as np
from distributed import Worker
from distributed.protocol.serialize import Serialize
from numpy.typing import NDArray

from dadagrad.kernels.id_sets import mark, marked, pack, unpack
from dadagrad.problem import Problem
from dadagrad.storage.arrays import ArrayRecord
from dadagrad.training.checkpoints.shards import StoredShard, write_shard
from dadagrad.training.coordinator.merge import Learned, merge_shard, shards
from dadagrad.training.engines.dask.futures import RoundLost
from dadagrad.training.engines.dask.messages import wrong_features
from dadagrad.training.engines.dask.streams.peers import (
    Operation,
    Peer,
    Request,
    Version,
    packed,
    unpacked,
)
from dadagrad.training.engines.dask.streams.shards import Arrays, Layout, Shard, Source
from dadagrad.training.messages import MergeRemotely, RemoteChange
from dadagrad.training.state import count_nonzeros
from dadagrad.training.state.compiled import State
from dadagrad.training.state.slices import FeatureSlice
from dadagrad.training.trace import Measured, Task


class ShardStore(Peer):
    """Shards that a worker holds in one run, and what streams changed on it in the round."""

    def __init__(self, worker: Worker, run: str, problem: Problem) -> None:
        super().__init__(worker, run)
        self.problem = problem
        self.measured = Measured(self.address)
        self._version = Version(0, 0)
        self._shards: dict[int, Shard] = {}
        self._changes: dict[str, Learned] = {}  # of streams in this round
        self._lock = threading.Lock()

    # Requests of the client.

    def go_back(self, version: Version) -> list[int]:
        """Return to the begin of a round, and list the shards that are there."""
        with self._lock:
            self._version = version
            self._changes.clear()
        self.cancel(version.epoch)
        for number, shard in list(self._shards.items()):
            with shard.lock:
                if not shard.go_back(version.round):
                    del self._shards[number]
        return sorted(self._shards)

    def hold(self, layout: Layout, sources: dict[int, Source]) -> None:
        """Get shards from other workers, from the client or a checkpoint, or, for None, zeros."""
        for number, source in sources.items():
            start, stop = layout.edges[number : number + 2].tolist()
            match source:
                case None:
                    state = State.zero(self.problem, stop - start)
                case State():
                    state = source
                case StoredShard():
                    state = State.zero(self.problem, 0).with_features(source.read())
                case str():
                    request = Request(source, ShardStore.state, (layout.version, number))
                    (state,) = self.ask(layout.version, [request])
            self._shards[number] = Shard(start, state, layout.version.round)

    def states(self, version: Version, t: float, numbers: list[int]) -> list[State]:
        """The states of the features of some shards, at the t of the run."""
        states = [self._shard(number, version).state for number in numbers]
        for state in states:
            state.t = t
        return states

    def weights(
        self, version: Version, t: float, numbers: list[int]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """The features of some shards whose weights at `t` are not all 0, and the weights."""
        states = zip(numbers, self.states(version, t, numbers), strict=True)
        parts = [(number, *state.nonzero_weights(self.problem)) for number, state in states]
        return [(ids + self._shards[number].start, weights) for number, ids, weights in parts]

    def counts(self, version: Version, t: float, numbers: list[int]) -> list[NDArray[np.int64]]:
        """The number of weights other than 0 at `t` in each of some shards, for each setting."""
        return [count_nonzeros(self.problem, state) for state in self.states(version, t, numbers)]

    def write(
        self, version: Version, t: float, numbers: list[int], url: str, folder: str
    ) -> list[tuple[ArrayRecord, ...]]:
        """Write some shards into a checkpoint; see `write_shard`."""
        states = zip(numbers, self.states(version, t, numbers), strict=True)
        return [write_shard(url, folder, number, state.feature_arrays) for number, state in states]

    # Learning from stretches.

    def enter(self, version: Version) -> None:
        """Begin a round: forget what belongs to earlier ones, and shards that others hold.

        Raises `RoundLost` if this worker is in a later round.
        """
        with self._lock:
            if version < self._version:
                raise RoundLost(f"round {version} was asked for, and this is {self._version}")
            if version > self._version:
                self._version = version
                self._changes.clear()
                for number, shard in list(self._shards.items()):
                    if shard.round < version.round:  # others merged it: it moved to them
                        del self._shards[number]

    def keep(self, version: Version, change: Learned) -> RemoteChange:
        """Keep what a stream changed until it is merged."""
        key = uuid4().hex
        with self._lock:
            if version == self._version:
                self._changes[key] = change
        return RemoteChange(self.address, key, change.content.common())

    def pull(self, layout: Layout, ids: NDArray[np.int64], common: State) -> State:
        """The state of some features, from their holders."""
        cuts = np.searchsorted(ids, layout.edges).tolist()
        parts = [slice(*ends) for ends in pairwise(cuts)]
        state = State.zero(self.problem, len(ids)).without_momentum()
        requested: dict[str, dict[int, NDArray[Any]]] = defaultdict(dict)
        for number, (part, holders) in enumerate(zip(parts, layout.holders, strict=True)):
            if part.start == part.stop:
                continue
            if self.address in holders:
                shard = self._shard(number, layout.version)
                shard.state.pull_into(ids[part] - shard.start, state, part)
            else:
                requested[holders[0]][number] = pack(ids[part])
        requests = [
            Request(holder, ShardStore.features, (layout.version, ids_of_shards))
            for holder, ids_of_shards in requested.items()
        ]
        for answer in self.ask(layout.version, requests):
            for number, arrays in answer.items():
                for name, array in state.feature_arrays.items():
                    if array.shape[1]:
                        array[:, parts[number]] = arrays[name]
        state.intercept, state.t = common.intercept.copy(), common.t
        return state

    # Merges.

    def merge(
        self, layout: Layout, merging: MergeRemotely, numbers: list[int]
    ) -> tuple[list[Task], int]:
        """Merge what streams changed into shards of which this worker is the first holder.

        As many threads do so as the worker has. Return the measured times of the work, and the
        bytes that came from other workers.
        """
        n_parts = min(self._worker.state.nthreads, len(numbers))
        parts = [numbers[first::n_parts] for first in range(n_parts)]
        self.enter(layout.version)
        with (
            self.measured("merge", shards=len(numbers)),
            ThreadPoolExecutor(n_parts, thread_name_prefix="dadagrad-merge") as pool,
        ):
            list(pool.map(partial(self._merge_shards, layout, merging), parts))
        return self.measured.take(), self.take_bytes()

    def _merge_shards(self, layout: Layout, merging: MergeRemotely, numbers: list[int]) -> None:
        """Merge some shards, and send the numbers that they have then to the second holders."""
        version = layout.version
        edges = {each: layout.edges[each : each + 2].tolist() for each in numbers}
        keys: dict[str, list[str]] = defaultdict(list)
        for change in merging.changes:
            keys[change.worker].append(change.key)
        requests = [
            Request(worker, ShardStore.changes, (keys_of_worker, edges))
            for worker, keys_of_worker in keys.items()
        ]
        answers = dict(zip(keys, self.ask(version, requests), strict=True))
        followers: dict[str, dict[int, Arrays]] = defaultdict(dict)
        for number in numbers:
            learned = []
            for change in merging.changes:
                arrays = answers[change.worker][change.key, number]
                first, stop = edges[number]
                ids = unpack(arrays["ids"], np.int64) - first
                learned.append(FeatureSlice(ids, change.common.with_features(arrays)))
                # Of several settings, some may have diverged.
                diverged = np.full(self.problem.n_settings, self.problem.n_settings > 1)
                wrong = wrong_features(learned[-1], stop - first, diverged)
                if wrong is not None:
                    sender = f"the state that worker {change.worker} sent"
                    raise RoundLost(f"{sender} cannot be right: {wrong}")
            merged = self._merge_shard(version, number, learned, merging.begun)
            for holder in layout.holders[number][1:]:
                followers[holder][number] = merged
        requests = [
            Request(worker, ShardStore.follow, (version, sent))
            for worker, sent in followers.items()
        ]
        self.ask(version, requests)

    def _merge_shard(
        self,
        version: Version,
        number: int,
        learned: list[FeatureSlice[State]],
        begun: float,
    ) -> Arrays:
        """Merge a shard in place, and return the numbers that changed, as they are then."""
        shard = self._shard(number, version)
        state = shard.state
        touched = np.concatenate([features.ids for features in learned])
        positions = marked(mark(touched, state.n_features))[0].astype(np.int64)
        with shard.lock:
            self._shard(number, version)  # it was not taken back meanwhile
            with shard.merging(positions):
                state.t = begun
                for part in shards(learned):
                    merge_shard(self.problem, state, learned, part)
            return {"ids": pack(positions), **state.pull(positions).feature_arrays}

    # Requests of other workers.

    def state(self, version: Version, number: int) -> State:
        """The state of the features of a shard."""
        return self._shard(number, version).state

    def features(self, version: Version, ids: dict[int, NDArray[np.int64]]) -> dict[int, Arrays]:
        """The numbers of some features of each of some shards."""
        answer = {}
        for number, packed_ids in ids.items():
            shard = self._shard(number, version)
            positions = unpack(packed_ids, np.int64) - shard.start
            answer[number] = shard.state.without_momentum().pull(positions).feature_arrays
        return answer

    def changes(
        self, keys: list[str], edges: dict[int, list[int]]
    ) -> dict[tuple[str, int], Arrays]:
        """The changes of streams, under their `keys`, between the `edges` of some shards."""
        changes = {}
        for key in keys:
            with self._lock:
                change = self._changes.get(key)
            if change is None:
                raise RoundLost("what a stream changed is not kept any more")
            arrays = change.content.feature_arrays
            for number, ends in edges.items():
                part = slice(*np.searchsorted(change.ids, ends).tolist())
                changes[key, number] = {
                    "ids": pack(change.ids[part]),
                    **{name: np.ascontiguousarray(arrays[name][:, part]) for name in arrays},
                }
        return changes

    def follow(self, version: Version, merged: dict[int, Arrays]) -> None:
        """Take over the numbers of shards that their first holder has merged."""
        self.enter(version)
        for number, arrays in merged.items():
            shard = self._shard(number, version)
            positions = unpack(arrays["ids"], np.int64)
            with shard.lock:
                self._shard(number, version)  # it was not taken back meanwhile
                with shard.merging(positions):
                    shard.state.push_features(positions, shard.state.with_features(arrays))

    def _shard(self, number: int, version: Version) -> Shard:
        """A shard at the begin of the round."""
        shard = self._shards.get(number)
        if version.epoch != self._version.epoch:
            raise RoundLost(f"round {version} was asked for, and this is {self._version}")
        if shard is None:
            raise RoundLost(f"shard {number} is not held here")
        if shard.round != version.round:
            raise RoundLost(f"shard {number} is at round {shard.round}, not {version.round}")
        return shard


_stores: dict[tuple[str, str], ShardStore] = {}
"""By the address of a worker of this process, and the run."""

_lock = threading.Lock()


def store_of(worker: Worker, run: str, problem: Problem | None = None) -> ShardStore:
    """The store of a run on a worker; the first call needs the `problem`, or raises `RoundLost`."""
    key = worker.address, run
    with _lock:
        if key not in _stores:
            if problem is None:
                raise RoundLost(f"worker {worker.address} does not know the run")
            _stores[key] = ShardStore(worker, run, problem)
            worker.handlers["dadagrad"] = _handler_of(worker)
        return _stores[key]


async def on_store(
    run: str,
    problem: Problem | None,
    operation: Operation,
    *arguments: Any,
    dask_worker: Worker,
) -> Any:
    """Call a method of the store that a worker has for a run, on a thread; see `store_of`.

    A `RoundLost` is returned, as by `Peer.answer`.
    """
    try:
        store = store_of(dask_worker, run, problem)
    except RoundLost as lost:
        return lost
    return await store.answer(operation, *arguments)


def _handler_of(worker: Worker) -> Callable[[str, Any], Awaitable[Serialize]]:
    """Return what answers the requests of other workers (Dask wants the name of a function)."""

    async def answer(run: str, request: Any) -> Serialize:
        operation, arguments = unpacked(request)
        return packed(await on_store(run, None, operation, *arguments, dask_worker=worker))

    return answer


def forget_stores(run: str) -> None:
    """Drop the stores of a run, of all workers that this process has, or had."""
    with _lock:
        stores = [_stores.pop(key) for key in list(_stores) if key[1] == run]
    for store in stores:
        store.close()
