"""The shards that a worker holds in a run, and its part in merges; see `shards` beside this."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from concurrent.futures import CancelledError, Future, InvalidStateError, wait
from contextlib import suppress
from itertools import pairwise
from typing import Any
from uuid import uuid4

import numpy as np
from distributed import Worker
from numpy.typing import NDArray

from dadagrad.clusters import seconds
from dadagrad.kernels.id_sets import mark, marked, pack, unpack
from dadagrad.problem import Problem
from dadagrad.storage.arrays import ArrayRecord
from dadagrad.training.checkpoints.shards import StoredShard, write_shard
from dadagrad.training.coordinator.merge import merge_shard, overlay, shards, unite
from dadagrad.training.engines.dask.peers import Operation, PeerLost, Peers, Request, Version
from dadagrad.training.engines.dask.shards import (
    Arrays,
    Layout,
    Merging,
    NotMerging,
    Shard,
    fault_in,
)
from dadagrad.training.messages import MergeRemotely, RemoteChange, RemoteFeatures
from dadagrad.training.state import count_nonzeros
from dadagrad.training.state.compiled import State
from dadagrad.training.state.slices import FeatureSlice, SharedFeatures

BEGIN_SECONDS = 0.1
"""Time for which a task waits for a merge that has not begun."""


class ShardStore:
    """Shards that a worker holds in one run, and what streams changed on it in the round."""

    def __init__(self, worker: Worker, run: str, problem: Problem) -> None:
        self.problem = problem
        self._worker = worker
        self._version = Version(0, 0)
        self._shards: dict[int, Shard] = {}
        self._changes: dict[Version, dict[str, FeatureSlice[State]]] = defaultdict(dict)
        # By round, whether the shards are at its begin, and those whose merge has not been begun.
        self._ready: dict[Version, Future[None]] = {}
        self._unmerged: dict[Version, deque[list[int]]] = {}
        self._unneeded: set[int] = set()
        self._lock = threading.RLock()
        operations: dict[str, Operation] = {
            "features": self._features,
            "shard": lambda version, number: self._shard(number, version).state.feature_arrays,
            "changes": self._changes_of,
            "follow": self._follow,
            "merge": self._merge_here,
        }
        self.peers = Peers(worker, run, operations, {"features": self._ready_at})

    # Requests of the client.

    def go_back(self, version: Version) -> list[int]:
        """Return to the begin of a round, and list the shards that are there."""
        with self._lock:
            self._version = version
            for outdated_part in (self._changes, self._unneeded, self._unmerged):
                outdated_part.clear()
            outdated, self._ready = self._ready, {}
        for future in outdated.values():
            _end(future, PeerLost(f"round {version} begins again"))
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
                (arrays,) = self.peers.ask(layout.version, [request])
                copies = {name: array.copy() for name, array in arrays.items()}  # to be changed
                state = State.zero(self.problem, 0).with_features(copies)
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

    # Work on slices.

    def features(self, layout: Layout, remote: RemoteFeatures) -> SharedFeatures:
        """The features that a slice can read."""
        self._enter(layout.version)

        def pull(ids: NDArray[np.int64]) -> State:
            state = self._pull(layout, ids, remote.common)
            if remote.before is not None:
                overlay(FeatureSlice(ids, state), self._change(layout.version, remote.before))
            return state

        return SharedFeatures(pull)

    def keep(
        self, layout: Layout, remote: RemoteFeatures, change: FeatureSlice[State]
    ) -> RemoteChange:
        """Keep what a slice changed, together with what earlier slices of the stretch did."""
        if remote.before is not None:
            change = unite(self._change(layout.version, remote.before), change)
        key = uuid4().hex
        with self._lock:
            if self._version == layout.version:
                self._changes[layout.version][key] = change
        return RemoteChange(self.peers.address, key, change.content.common())

    def _pull(self, layout: Layout, ids: NDArray[np.int64], common: State) -> State:
        """The state of some features, from their holders."""
        self.wait_until(layout.version)
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
            part = parts[number]
            _fill(state, part, self._features_of(layout.version, number, ids[part]))
        for answer in self.peers.ask(layout.version, requests):
            for number, arrays in answer.items():
                _fill(state, parts[int(number)], arrays)
        state.intercept, state.t = common.intercept.copy(), common.t
        return state

    # Merges.

    def merge(self, layout: Layout, merging: Merging) -> None:
        """Have workers merge their shards, before the round of `layout` begins.

        This worker merges its own, as many threads at the same time as call this.
        """
        others = [worker for worker in merging.workers if worker != self.peers.address]
        if self.peers.address in merging.workers:
            self._merge_here(layout.version, layout, merging.streams)
        arguments = {"layout": layout, "streams": merging.streams}
        self.peers.ask(layout.version, [Request(each, "merge", arguments) for each in others])

    def finish_merge(self, layout: Layout, merging: Merging) -> None:
        """Merge, and return when all shards here have been."""
        self.merge(layout, merging)
        self.wait_until(layout.version)

    def _merge_here(
        self, version: Version, layout: Layout, streams: MergeRemotely
    ) -> dict[str, Arrays]:
        """Merge shards of which this worker is first holder, unless another thread does."""
        self._enter(version)
        future = self._ready_at(version)
        with self._lock:
            if version not in self._unmerged:
                address = self.peers.address
                shards = [n for n, each in enumerate(layout.holders) if each[0] == address]
                n_parts = max(1, min(self._worker.state.nthreads, len(shards)))
                self._unmerged[version] = deque(shards[first::n_parts] for first in range(n_parts))
            unmerged = self._unmerged[version]
        try:
            with suppress(IndexError):  # of the empty queue
                while True:
                    self._merge_shards(layout, unmerged.popleft(), streams)
        except BaseException as error:
            _end(future, error)
            raise
        return {}

    def _ready_at(self, version: Version) -> Future[None]:
        """The future of the begin of a round, for which all shards here have been merged."""
        with self._lock:
            self._check_epoch(version)
            future = self._ready.setdefault(version, Future())
            shards = [each for n, each in list(self._shards.items()) if n not in self._unneeded]
            if all(shard.round >= version.round for shard in shards):
                _end(future)
            return future

    def wait_until(self, version: Version) -> None:
        """Wait until shards are at the begin of a round; `NotMerging` if no merge has begun."""
        ready = self._ready_at(version)
        if not wait([ready], BEGIN_SECONDS).done and version not in self._unmerged:
            raise NotMerging
        try:
            ready.result(seconds("worker-ttl"))
        except (TimeoutError, CancelledError) as error:
            raise PeerLost(f"the shards of round {version} were not merged in time") from error

    def _merge_shards(self, layout: Layout, numbers: list[int], merging: MergeRemotely) -> None:
        """Merge what the streams changed in the round before into some shards."""
        epoch, round_number = layout.version
        version, changes = Version(epoch, round_number - 1), merging.changes
        edges = {number: layout.edges[number : number + 2].tolist() for number in numbers}
        keys: dict[str, list[str]] = defaultdict(list)
        for change in changes:
            keys[change.worker].append(change.key)
        requests = [
            Request(worker, "changes", {"keys": keys_of_worker, "edges": edges})
            for worker, keys_of_worker in keys.items()
        ]
        answers = dict(zip(keys, self.peers.ask(version, requests), strict=True))
        followers: dict[str, dict[str, Any]] = defaultdict(dict)
        for number in numbers:
            learned = []
            for change in changes:
                arrays = answers[change.worker][f"{change.key} {number}"]
                ids = unpack(arrays["ids"], np.int64) - edges[number][0]
                learned.append(FeatureSlice(ids, change.common.with_features(arrays)))
                fault = fault_in(learned[-1], edges[number], self.problem.n_settings)
                if fault is not None:
                    sender = f"the state that worker {change.worker} sent"
                    raise PeerLost(f"{sender} cannot be right: {fault}")
            merged = self._merge_shard(version, number, learned, merging.begun)
            for holder in layout.holders[number][1:]:
                followers[holder][str(number)] = merged
        requests = [Request(each, "follow", {"shards": sent}) for each, sent in followers.items()]
        self.peers.ask(version, requests)
        self._ready_at(layout.version)

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

    def _features(self, version: Version, ids: dict[int, NDArray[Any]]) -> dict[str, Arrays]:
        return {
            str(number): self._features_of(version, number, unpack(packed, np.int64))
            for number, packed in ids.items()
        }

    def _features_of(self, version: Version, number: int, ids: NDArray[np.int64]) -> Arrays:
        shard = self._shard(number, version)
        return shard.state.pull(ids - shard.start, momentum=False).feature_arrays

    def _changes_of(
        self, version: Version, keys: list[str], edges: dict[int, list[int]]
    ) -> dict[str, Arrays]:
        changes = {}
        for key in keys:
            change = self._kept(version, key)
            arrays = change.content.feature_arrays
            for number, ends in edges.items():
                part = slice(*np.searchsorted(change.ids, ends).tolist())
                changes[f"{key} {number}"] = {
                    "ids": pack(change.ids[part]),
                    **{name: np.ascontiguousarray(arrays[name][:, part]) for name in arrays},
                }
        return changes

    def _follow(self, version: Version, shards: dict[str, Arrays]) -> dict[str, Arrays]:
        for number, arrays in shards.items():
            shard = self._shard(int(number), version, merged=True)
            with shard.lock:
                self._enter(Version(version.epoch, version.round + 1))
                if shard.round == version.round:
                    positions = unpack(arrays["ids"], np.int64)
                    shard.begin_merge(positions)
                    shard.state.push_features(positions, shard.state.with_features(arrays))
                    shard.round += 1
        self._ready_at(Version(version.epoch, version.round + 1))
        return {}

    def _enter(self, version: Version) -> None:
        """Forget what belongs to earlier rounds, and shards that others hold."""
        with self._lock:
            while self._unneeded:
                self._shards.pop(self._unneeded.pop(), None)
            if version.epoch > self._version.epoch:  # all shards have other holders
                for forgotten in (self._shards, self._changes, self._ready, self._unmerged):
                    forgotten.clear()
            if version > self._version:
                self._version = version
                for changes in (self._changes, self._ready, self._unmerged):
                    for each in [each for each in changes if each.round + 1 < version.round]:
                        del changes[each]
            if version != self._version:
                raise PeerLost(f"round {version} was asked for, and this is {self._version}")

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

    def _kept(self, version: Version, key: str) -> FeatureSlice[State]:
        change = self._changes.get(version, {}).get(key)
        if change is None:
            raise PeerLost("what a stream changed is not kept here")
        return change

    def _change(self, version: Version, change: RemoteChange) -> FeatureSlice[State]:
        """The change of a stream, from the worker that keeps it."""
        if change.worker == self.peers.address:
            return self._kept(version, change.key)
        everything = {0: [0, self.problem.n_features]}
        request = Request(change.worker, "changes", {"keys": [change.key], "edges": everything})
        (answer,) = self.peers.ask(version, [request])
        arrays = answer[f"{change.key} 0"]
        ids = unpack(arrays["ids"], np.int64)
        return FeatureSlice(ids, change.common.with_features(arrays))


def _end(future: Future[None], error: BaseException | None = None) -> None:
    """End a future, unless another thread does."""
    with suppress(InvalidStateError):
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def _fill(state: State, part: slice, arrays: Arrays) -> None:
    for name, array in state.feature_arrays.items():
        if array.shape[1]:
            array[:, part] = arrays[name]
