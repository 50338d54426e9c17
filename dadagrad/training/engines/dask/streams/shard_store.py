"""The shards that a worker holds in a run, and its part in merges; see `shards` beside this."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from distributed import Worker
from distributed.protocol.serialize import Serialize
from numpy.typing import NDArray
from tornado.ioloop import PeriodicCallback

from dadagrad.kernels.id_sets import mark, marked, pack, unpack
from dadagrad.model.stored_weights import StoredWeights
from dadagrad.optim.arrays import Arrays
from dadagrad.problem import Problem
from dadagrad.storage.arrays import ArrayRecord, shared_storage
from dadagrad.training.checkpoints.shards import StoredShard, write_shard
from dadagrad.training.coordinator.merge import Learned, merge_shard, shards
from dadagrad.training.engines.dask.futures import RoundLost
from dadagrad.training.engines.dask.messages import wrong_features
from dadagrad.training.engines.dask.streams.peers import Operation, Peer, Version, packed, unpacked
from dadagrad.training.engines.dask.streams.shards import Layout, Shard, Source
from dadagrad.training.engines.trace import Measured, Task
from dadagrad.training.messages import MergeRemotely
from dadagrad.training.state import count_nonzeros
from dadagrad.training.state.compiled import State
from dadagrad.training.state.slices import FeatureSlice

logger = logging.getLogger(__name__)


class ShardStore(Peer):
    """Shards that a worker holds in one run, and what streams changed in those it merges."""

    def __init__(self, worker: Worker, run: str, problem: Problem) -> None:
        super().__init__(worker, run)
        self.problem = problem
        self.measured = Measured(self.address)
        self._version = Version(0, 0)
        self._shards: dict[int, Shard] = {}
        self._changes: dict[str, Learned] = {}  # of streams in this round, to be merged here
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
                    (state,) = self.ask(layout.version, ShardStore.state, {source: number})
            self._shards[number] = Shard(start, state, layout.version.round)

    def call_each(
        self, version: Version, t: float, numbers: list[int], operation: Operation, *others: Any
    ) -> dict[int, Any]:
        """Call a method for each of some shards, one after the other, at the t of the run."""
        shards = {number: self._shard(number, version) for number in numbers}
        for shard in shards.values():
            shard.state.t = t
        return {number: operation(self, number, shard, *others) for number, shard in shards.items()}

    def state_of(self, number: int, shard: Shard) -> State:
        """The state of the features of a shard."""
        return shard.state

    def weights(self, number: int, shard: Shard) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The features of a shard whose weights are not all 0, and the weights."""
        ids, weights = shard.state.nonzero_weights(self.problem)
        return ids + shard.start, weights

    def count(self, number: int, shard: Shard) -> NDArray[np.int64]:
        """The number of weights other than 0 in a shard, for each setting."""
        return count_nonzeros(self.problem, shard.state)

    def write_weights(self, number: int, shard: Shard, url: str, folder: str) -> StoredWeights:
        """Write the weights of a shard into a `folder` of a model.

        Raises `StorageError` if the folder is not there, or no longer: a client that is stopped
        removes it.
        """
        ids, weights = self.weights(number, shard)
        weights = self.problem.units.raw_weights(ids, weights)
        storage = shared_storage(url, folder)
        return StoredWeights.write(storage, f"{folder}/{number:04d}", ids, weights)

    def write(self, number: int, shard: Shard, url: str, folder: str) -> tuple[ArrayRecord, ...]:
        """Write a shard into a checkpoint; see `write_shard`."""
        return write_shard(url, folder, number, shard.state.feature_arrays)

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
        for answer in self.ask(layout.version, ShardStore.features, requested):
            for number, arrays in answer.items():
                for name, array in state.feature_arrays.items():
                    if array.shape[1]:
                        array[:, parts[number]] = arrays[name]
        state.intercept, state.t = common.intercept.copy(), common.t
        return state

    def send(self, layout: Layout, changes: dict[str, Learned]) -> None:
        """Send what streams changed to the workers that merge it, each the shards of its own."""
        # Of several settings, some may have diverged.
        diverged = np.full(self.problem.n_settings, self.problem.n_settings > 1)
        for change in changes.values():
            wrong = wrong_features(change, self.problem.n_features, diverged)
            if wrong is not None:
                raise RoundLost(f"the changes of a stream cannot be right: {wrong}")
        sent = {}
        for worker, numbers in layout.by_first_holder().items():
            ranges = [layout.edges[number : number + 2] for number in numbers]
            sent[worker] = {key: _between(change, ranges) for key, change in changes.items()}
        self.ask(layout.version, ShardStore.receive, sent)

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
        with self._lock:
            if not self._changes.keys() >= set(merging.keys):
                raise RoundLost(f"worker {self.address} has not all that the streams changed")
            changes = [self._changes[key] for key in merging.keys]
        followers: dict[str, dict[int, Arrays]] = defaultdict(dict)
        for number in numbers:
            merged = self._merge_shard(layout, number, changes, merging.begun)
            for holder in layout.holders[number][1:]:
                followers[holder][number] = merged
        self.ask(layout.version, ShardStore.follow, followers)

    def _merge_shard(
        self, layout: Layout, number: int, changes: list[Learned], begun: float
    ) -> Arrays:
        """Merge a shard in place, and return the numbers that changed, as they are then."""
        shard = self._shard(number, layout.version)
        state = shard.state
        learned = []
        for change in changes:
            ends = np.searchsorted(change.ids, layout.edges[number : number + 2]).tolist()
            ids = change.ids[slice(*ends)] - shard.start
            learned.append(FeatureSlice(ids, change.content.part(*ends)))
        touched = np.concatenate([features.ids for features in learned])
        positions = marked(mark(touched, state.n_features))[0].astype(np.int64)
        with shard.lock:
            self._shard(number, layout.version)  # it was not taken back meanwhile
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

    def receive(self, version: Version, changes: dict[str, tuple[NDArray[Any], State]]) -> None:
        """Keep what streams changed of shards that are merged here; see `_between`."""
        received = {
            key: FeatureSlice(unpack(ids, np.int64), content)
            for key, (ids, content) in changes.items()
        }
        self.enter(version)
        with self._lock:
            if version == self._version:
                self._changes |= received

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


def _between(change: Learned, ranges: Sequence[NDArray[np.int64]]) -> tuple[NDArray[Any], State]:
    """The packed ids, and the state, of the changed features that lie in some ranges."""
    parts = [slice(*ends) for ends in np.searchsorted(change.ids, ranges).tolist()]
    arrays = {
        name: np.concatenate([array[:, part] for part in parts], axis=1)
        for name, array in change.content.feature_arrays.items()
    }
    ids = np.concatenate([change.ids[part] for part in parts])
    return pack(ids), change.content.common().with_features(arrays)


CLIENT_SECONDS = 10.0
"""Time between two looks whether the clients of runs are still there."""

_stores: dict[tuple[str, str], ShardStore] = {}
"""By the address of a worker of this process, and the run, whose name has that of its client."""

_lock = threading.Lock()


def store_of(worker: Worker, run: str, problem: Problem | None = None) -> ShardStore:
    """The store of a run on a worker; the first call needs the `problem`, or raises `RoundLost`."""
    key = worker.address, run
    with _lock:
        if key not in _stores:
            if problem is None:
                raise RoundLost(f"worker {worker.address} does not know the run")
            _stores[key] = ShardStore(worker, run, problem)
            if "dadagrad" not in worker.handlers:
                worker.handlers["dadagrad"] = _handler_of(worker)
                look = PeriodicCallback(partial(_look_for_clients, worker), 1e3 * CLIENT_SECONDS)
                worker.periodic_callbacks["dadagrad"] = look
                worker.loop.add_callback(look.start)
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


async def _look_for_clients(worker: Worker) -> None:
    """Drop the stores of runs whose clients have left the scheduler: they forget no run."""
    for run in [run for address, run in list(_stores) if address == worker.address]:
        try:
            events = await worker.scheduler.events(topic=run.partition("/")[2])
        except Exception as error:  # a broken connection raises many kinds of errors
            logger.debug("no answer from the scheduler: %r", error)
            return
        actions = [event.get("action") for _, event in events]
        known = [action for action in actions if action in ("add-client", "remove-client")]
        if known[-1:] == ["remove-client"]:
            logger.warning("the client of a run has gone: its state is dropped")
            forget_stores(run)


def forget_stores(run: str) -> None:
    """Drop the stores of a run, of all workers that this process has, or had."""
    with _lock:
        stores = [_stores.pop(key) for key in list(_stores) if key[1] == run]
    for store in stores:
        store.close()
