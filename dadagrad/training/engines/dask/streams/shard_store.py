"""The shards that a worker holds in a run, and its part in merges; see `shards` beside this."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import uuid4

import numpy as np
from distributed import Worker
from numpy.typing import NDArray

from dadagrad.kernels.id_sets import mark, marked, pack, unpack
from dadagrad.problem import Problem
from dadagrad.storage.arrays import ArrayRecord
from dadagrad.training.checkpoints.shards import StoredShard, write_shard
from dadagrad.training.coordinator.merge import Learned, merge_shard, shards
from dadagrad.training.engines.dask.streams.peers import (
    Operation,
    PeerLost,
    Peers,
    Request,
    Version,
)
from dadagrad.training.engines.dask.streams.shards import Arrays, Layout, Shard, fault_in
from dadagrad.training.messages import MergeRemotely, RemoteChange
from dadagrad.training.state import count_nonzeros
from dadagrad.training.state.compiled import State
from dadagrad.training.state.slices import FeatureSlice
from dadagrad.training.trace import Measured, Task


class ShardStore:
    """Shards that a worker holds in one run, and what streams changed on it in the round."""

    def __init__(self, worker: Worker, run: str, problem: Problem) -> None:
        self.problem = problem
        self._worker = worker
        self._version = Version(0, 0)
        self._shards: dict[int, Shard] = {}
        self._changes: dict[str, Learned] = {}  # of streams in this round
        self._unneeded: set[int] = set()
        self._lock = threading.RLock()
        operations: dict[str, Operation] = {
            "features": self._features,
            "shard": lambda version, number: self._shard(number, version).state,
            "changes": self._changes_of,
            "follow": self._follow,
        }
        self.peers = Peers(worker, run, operations)
        self.measured = Measured(self.peers.address)

    # Requests of the client.

    def go_back(self, version: Version) -> list[int]:
        """Return to the begin of a round, and list the shards that are there."""
        with self._lock:
            self._version = version
            self._changes.clear()
            self._unneeded.clear()
        self.peers.cancel(version.epoch)
        for number, shard in list(self._shards.items()):
            with shard.lock:
                if not shard.go_back(version.round):
                    del self._shards[number]
        return sorted(self._shards)

    def hold(self, layout: Layout, sources: dict[int, str | State | StoredShard | None]) -> None:
        """Get shards from other workers, from the client or a checkpoint, or, for None, zeros."""
        address = self.peers.address
        needed = {n for n, holders in enumerate(layout.holders) if address in holders}
        # Until the round begins, others may still get them from here.
        self._unneeded = self._shards.keys() - needed
        for number, source in sources.items():
            start, stop = layout.edges[number : number + 2].tolist()
            if source is None:
                state = State.zero(self.problem, stop - start)
            elif isinstance(source, str):
                request = Request(source, "shard", {"number": number})
                (state,) = self.peers.ask(layout.version, [request])
            elif isinstance(source, StoredShard):
                state = State.zero(self.problem, 0).with_features(source.read())
            else:
                state = source
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

        Raises `PeerLost` if this worker is in a later round.
        """
        with self._lock:
            if version < self._version:
                raise PeerLost(f"round {version} was asked for, and this is {self._version}")
            while self._unneeded:
                self._shards.pop(self._unneeded.pop(), None)
            if version.epoch > self._version.epoch:  # all shards have other holders
                self._shards.clear()
            if version > self._version:
                self._version = version
                self._changes.clear()

    def keep(self, version: Version, change: Learned) -> RemoteChange:
        """Keep what a stream changed until it is merged."""
        key = uuid4().hex
        with self._lock:
            if version == self._version:
                self._changes[key] = change
        return RemoteChange(self.peers.address, key, change.content.common())

    def pull(self, layout: Layout, ids: NDArray[np.int64], common: State) -> State:
        """The state of some features, from their holders."""
        cuts = np.searchsorted(ids, layout.edges).tolist()
        by_holder: dict[str, list[int]] = defaultdict(list)
        parts = [slice(*ends) for ends in pairwise(cuts)]
        for number, holders in enumerate(layout.holders):
            if cuts[number] < cuts[number + 1]:
                is_here = self.peers.address in holders and number in self._shards
                by_holder[self.peers.address if is_here else holders[0]].append(number)
        state = State.zero(self.problem, len(ids), momentum=False)
        local_shards = by_holder.pop(self.peers.address, [])
        requests = [
            Request(holder, "features", {"ids": {each: pack(ids[parts[each]]) for each in numbers}})
            for holder, numbers in by_holder.items()
        ]
        for number in local_shards:
            shard, part = self._shard(number, layout.version), parts[number]
            shard.state.pull_into(ids[part] - shard.start, state, part)
        for answer in self.peers.ask(layout.version, requests):
            for number, arrays in answer.items():
                _fill(state, parts[number], arrays)
        state.intercept, state.t = common.intercept.copy(), common.t
        return state

    # Merges.

    def merge(
        self, layout: Layout, streams: MergeRemotely, numbers: list[int]
    ) -> tuple[list[Task], int] | str:
        """Merge what streams changed into shards of which this worker is the first holder.

        As many threads do so as the worker has. The measured times of the work, and the bytes that
        came from other workers; or the reason why the round must begin again.
        """
        n_parts = min(self._worker.state.nthreads, len(numbers))
        parts = [numbers[first::n_parts] for first in range(n_parts)]
        try:
            self.enter(layout.version)
            with (
                self.measured("merge", shards=len(numbers)),
                ThreadPoolExecutor(n_parts, thread_name_prefix="dadagrad-merge") as pool,
            ):
                list(pool.map(partial(self._merge_shards, layout, streams), parts))
        except PeerLost as lost:
            return str(lost)
        return self.measured.take(), self.peers.take_bytes()

    def _merge_shards(self, layout: Layout, merging: MergeRemotely, numbers: list[int]) -> None:
        """Merge some shards, and send the numbers that they have then to the second holders."""
        version, changes = layout.version, merging.changes
        edges = {each: layout.edges[each : each + 2].tolist() for each in numbers}
        keys: dict[str, list[str]] = defaultdict(list)
        for change in changes:
            keys[change.worker].append(change.key)
        requests = [
            Request(worker, "changes", {"keys": keys_of_worker, "edges": edges})
            for worker, keys_of_worker in keys.items()
        ]
        answers = dict(zip(keys, self.peers.ask(version, requests), strict=True))
        followers: dict[str, dict[int, Arrays]] = defaultdict(dict)
        for number in numbers:
            learned = []
            for change in changes:
                arrays = answers[change.worker][change.key, number]
                first, stop = edges[number]
                ids = unpack(arrays["ids"], np.int64) - first
                learned.append(FeatureSlice(ids, change.common.with_features(arrays)))
                fault = fault_in(learned[-1], stop - first, self.problem.n_settings)
                if fault is not None:
                    sender = f"the state that worker {change.worker} sent"
                    raise PeerLost(f"{sender} cannot be right: {fault}")
            merged = self._merge_shard(version, number, learned, merging.begun)
            for holder in layout.holders[number][1:]:
                followers[holder][number] = merged
        requests = [Request(each, "follow", {"shards": sent}) for each, sent in followers.items()]
        self.peers.ask(version, requests)

    def _merge_shard(
        self,
        version: Version,
        number: int,
        learned: list[FeatureSlice[State]],
        begun: float,
    ) -> Arrays:
        """Merge a shard in place, unless that was done before; the numbers that it has then."""
        shard = self._shard(number, version, merged=True)
        with shard.lock:
            self._check_epoch(version)
            state, n_features = shard.state, shard.state.n_features
            if shard.round == version.round:
                touched = np.concatenate([features.ids for features in learned])
                positions = marked(mark(touched, n_features))[0].astype(np.int64)
                shard.begin_merge(positions)
                state.t = begun
                try:
                    for part in shards(learned):
                        merge_shard(self.problem, state, learned, part)
                except BaseException:
                    shard.undo_merge()
                    raise
                shard.round += 1
            assert shard.before is not None
            positions = shard.before.ids
            return {"ids": pack(positions), **state.pull(positions).feature_arrays}

    # Requests of other workers, on threads.

    def _features(self, version: Version, ids: dict[int, NDArray[np.int64]]) -> dict[int, Arrays]:
        answer = {}
        for number, packed in ids.items():
            shard = self._shard(number, version)
            positions = unpack(packed, np.int64) - shard.start
            answer[number] = shard.state.pull(positions, momentum=False).feature_arrays
        return answer

    def _changes_of(
        self, version: Version, keys: list[str], edges: dict[int, list[int]]
    ) -> dict[tuple[str, int], Arrays]:
        changes = {}
        for key in keys:
            with self._lock:
                change = self._changes.get(key)
            if change is None:
                raise PeerLost("what a stream changed is not kept here")
            arrays = change.content.feature_arrays
            for number, ends in edges.items():
                part = slice(*np.searchsorted(change.ids, ends).tolist())
                changes[key, number] = {
                    "ids": pack(change.ids[part]),
                    **{name: np.ascontiguousarray(arrays[name][:, part]) for name in arrays},
                }
        return changes

    def _follow(self, version: Version, shards: dict[int, Arrays]) -> bool:
        self.enter(version)
        for number, arrays in shards.items():
            shard = self._shard(number, version, merged=True)
            with shard.lock:
                self._check_epoch(version)
                if shard.round == version.round:
                    positions = unpack(arrays["ids"], np.int64)
                    shard.begin_merge(positions)
                    shard.state.push_features(positions, shard.state.with_features(arrays))
                    shard.round += 1
        return True

    def _check_epoch(self, version: Version) -> None:
        if version.epoch != self._version.epoch:
            raise PeerLost(f"round {version} was asked for, and this is {self._version}")

    def _shard(self, number: int, version: Version, *, merged: bool = False) -> Shard:
        """A shard at the begin of the round, or, where that will do, after its merge."""
        self._check_epoch(version)
        shard = self._shards.get(number)
        if shard is None:
            raise PeerLost(f"shard {number} is not held here")
        if shard.round != version.round and not (merged and shard.round == version.round + 1):
            raise PeerLost(f"shard {number} is at round {shard.round}, not {version.round}")
        return shard


_stores: dict[tuple[str, str], ShardStore] = {}
"""By the address of a worker of this process, and the run."""

_lock = threading.Lock()


def store_of(worker: Worker, run: str, problem: Problem | None = None) -> ShardStore:
    """The store of a run on a worker; the first call needs the `problem`, or raises `PeerLost`."""
    key = worker.address, run
    with _lock:
        if key not in _stores:
            if problem is None:
                raise PeerLost(f"worker {worker.address} does not know the run")
            _stores[key] = ShardStore(worker, run, problem)
        return _stores[key]


async def on_store(
    run: str,
    problem: Problem | None,
    operation: Callable[..., Any],
    *arguments: Any,
    dask_worker: Worker,
) -> Any:
    """Call a method of the store that a worker has for a run, on a thread; see `store_of`."""
    store = store_of(dask_worker, run, problem)
    return await store.peers.on_thread(operation, store, *arguments)


def forget_stores(run: str) -> None:
    """Drop the stores of a run, of all workers that this process has, or had."""
    with _lock:
        stores = [_stores.pop(key) for key in list(_stores) if key[1] == run]
    for store in stores:
        store.peers.close()


def _fill(state: State, part: slice, arrays: Arrays) -> None:
    for name, array in state.feature_arrays.items():
        if array.shape[1]:
            array[:, part] = arrays[name]
