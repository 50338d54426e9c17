"""Holders of the shards of a state, as the client of a Dask cluster sees and chooses them."""

from __future__ import annotations

import logging
import time
from collections import ChainMap, Counter, defaultdict
from collections.abc import Callable, Mapping, Set
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.clusters import seconds
from dadagrad.errors import StorageError, TrainingError
from dadagrad.model.stored_weights import RANGE
from dadagrad.problem import Problem
from dadagrad.training.engines.dask.futures import PendingTasks, RoundLost
from dadagrad.training.engines.dask.streams.peers import Operation, Version
from dadagrad.training.engines.dask.streams.shard_store import ShardStore, on_store
from dadagrad.training.engines.dask.streams.shards import Base, Layout, Source
from dadagrad.training.engines.trace import Task
from dadagrad.training.memory.workers import n_holders, workers_of
from dadagrad.training.messages import MergeRemotely
from dadagrad.training.state import state_bytes

logger = logging.getLogger(__name__)

MIN_SHARDS, SHARDS_OF_WORKER = 8, 4
"""Shards at least, and for each worker: they are dealt to the workers that there are."""

ASK_SECONDS = 0.2
"""Time between two looks whether workers that have not answered are still there."""

BYTES_PER_SECOND = 20e6
"""Speed at least at which shards come from another worker."""

MAX_ATTEMPTS = 10
"""Attempts to share out the shards before the run ends; each retired worker adds one."""


class Holders:
    """Workers that hold the shards of a run.

    Attributes
    ----------
    layout : Layout
        The holders of each shard in the present round.
    """

    def __init__(
        self, problem: Problem, pending: PendingTasks, edges: NDArray[np.int64] | None
    ) -> None:
        self._problem = problem
        self._pending = pending
        self._asked: Set[str] = frozenset()  # workers, to hold the shards
        if edges is None:
            threads = pending.threads
            n_shards = max(MIN_SHARDS, SHARDS_OF_WORKER * len(threads), sum(threads.values()))
            edges = np.arange(n_shards + 1) * problem.n_features // n_shards
            if problem.n_features >= n_shards * RANGE:
                edges[1:-1] -= edges[1:-1] % RANGE
        self.layout = Layout(Version(0, 0), edges, ())
        self._state_bytes = state_bytes(problem)

    @property
    def is_unbalanced(self) -> bool:
        """True if workers have joined that hold no shard."""
        return bool(self._pending.threads.keys() - self._asked)

    @property
    def hold_ranges(self) -> bool:
        """True if each shard has whole ranges of features, of which a model has digests."""
        return not (self.layout.edges[1:-1] % RANGE).any()

    @property
    def addresses(self) -> set[str]:
        """The workers that hold shards."""
        return {each for holders in self.layout.holders for each in holders}

    def features(self, number: int) -> NDArray[np.int64]:
        """The ids of the features of a shard."""
        return np.arange(*self.layout.edges[number : number + 2])

    def merge(self, merging: MergeRemotely) -> tuple[list[Task], int]:
        """Have the round merged, which ends it; the measured times, and the bytes that moved.

        Raises `RoundLost` if a worker that takes part does not answer.
        """
        arguments = {
            worker: (self.layout, merging, numbers)
            for worker, numbers in self.layout.by_first_holder().items()
        }
        answers = self._ask_all(ShardStore.merge, arguments, self.addresses)
        epoch, number = self.layout.version
        self.layout = replace(self.layout, version=Version(epoch, number + 1))
        tasks, sizes = zip(*answers.values(), strict=True)
        return list(chain(*tasks)), sum(sizes)

    def call(
        self, operation: Operation, t: float, *others: Any, patience: float = 0.0
    ) -> list[Any]:
        """Call a method for each shard on its first holder; the results, in the order of shards.

        It may wait for a store with so much `patience`, in seconds. Raises `RoundLost` if one of
        the holders does not answer.
        """
        arguments = {
            worker: (self.layout.version, t, numbers, operation, *others)
            for worker, numbers in self.layout.by_first_holder().items()
        }
        answers = self._ask_all(ShardStore.call_each, arguments, arguments.keys(), patience)
        results = ChainMap(*answers.values())
        return [results[number] for number in sorted(results)]

    def assign(self, base: Callable[[int], Base] | None = None) -> bool:
        """Give each shard its holders among the workers that there are, at the begin of the round.

        With a `base`, shards begin with what it returns for a number; without, return False if
        nobody has some shard any more. Raises `TrainingError` if workers again and again do not
        take their shards.
        """
        epoch, number = self.layout.version
        # No worker has seen this number: what it has is not taken up again.
        number += 2 * (base is not None)
        n_attempts, monitor = 0, self._pending.monitor
        n_retired = monitor.n_retired
        while n_attempts < MAX_ATTEMPTS + monitor.n_retired - n_retired:
            monitor.check()
            self._pending.look_for_workers()
            self._asked = set(self._pending.threads)
            n_attempts += bool(self._asked)
            epoch += 1
            self.layout = replace(self.layout, version=Version(epoch, number))
            arguments = dict.fromkeys(self._asked, (self.layout.version,))
            shards_by_worker = self._ask(
                ShardStore.go_back, arguments, seconds("worker-ttl"), problem=self._problem
            )
            present_at: dict[int, list[str]] = defaultdict(list)
            for worker, numbers in sorted(shards_by_worker.items()):
                for shard in numbers:
                    present_at[shard].append(worker)
            if shards_by_worker:
                if base is None and len(present_at) < len(self.layout.edges) - 1:
                    return False
                try:
                    self._share_out(sorted(shards_by_worker), present_at, base)
                    return True
                except RoundLost as lost:
                    logger.debug("the shards are shared out again: %s", lost)
            time.sleep(0.1 * max(n_attempts, 1))
        raise TrainingError(
            f"the workers of the cluster did not take the state in {n_attempts} attempts; look "
            "into their logs for the reason, and go on from the last checkpoint with `dadagrad "
            "resume`"
        )

    def _share_out(
        self,
        workers: list[str],
        present_at: Mapping[int, list[str]],
        base: Callable[[int], Base] | None,
    ) -> None:
        """Have some workers hold all shards, which are `present_at` some, or begin with the `base`.

        Raises `RoundLost` if one of them does not.
        """
        threads = {worker: self._pending.threads.get(worker, 1) for worker in workers}
        n_each = min(n_holders(self._problem, workers_of(self._pending.client)), len(threads))
        holders = choose_holders(len(self.layout.edges) - 1, threads, present_at, n_each)
        sources: dict[str, dict[int, Source]] = {worker: {} for worker in workers}
        for number, chosen in enumerate(holders):
            present = present_at.get(number, [])
            for worker in set(chosen) - set(present):
                sources[worker][number] = base(number) if base else present[0]
        layout = replace(self.layout, holders=holders)
        arguments = {worker: (layout, sources[worker]) for worker in workers}
        self._ask_all(ShardStore.hold, arguments, arguments.keys())
        self.layout = layout

    def _ask_all(
        self,
        operation: Operation,
        arguments: Mapping[str, tuple[Any, ...]],
        needed: Set[str],
        patience: float = 0.0,
    ) -> dict[str, Any]:
        """See `_ask`; raises `RoundLost` if one of the workers does not answer."""
        limit = seconds("worker-ttl") + self._state_bytes / BYTES_PER_SECOND + patience
        answers = self._ask(operation, arguments, limit, needed)
        if silent := min(arguments.keys() - answers.keys(), default=None):
            raise RoundLost(f"worker {silent} does not answer")
        return answers

    def _ask(
        self,
        operation: Operation,
        arguments: Mapping[str, tuple[Any, ...]],
        limit: float,
        needed: Set[str] = frozenset(),
        problem: Problem | None = None,
    ) -> dict[str, Any]:
        """Call a method of the stores of workers at the same time; new stores need the `problem`.

        Return the answers of those that answer in time, and have not left meanwhile. Others are not
        waited for once one of the `needed` workers has left: they may ask it. Raises the error that
        an operation raises, and `TrainingError` if the cluster is lost.
        """

        def ask(worker: str) -> Any:
            answers = self._pending.client.run(
                on_store,
                self._pending.run,
                problem,
                operation,
                *arguments[worker],
                workers=[worker],
                on_error="return",
                callback_timeout=limit,
            )
            return answers.get(worker, TimeoutError())

        pool = ThreadPoolExecutor(max(1, len(arguments)), thread_name_prefix="dadagrad-ask")
        questions = {pool.submit(ask, worker): worker for worker in arguments}
        pool.shutdown(wait=False)
        answers = {}
        while questions:
            for future in wait(questions, ASK_SECONDS, FIRST_COMPLETED).done:
                worker = questions.pop(future)
                answer = future.exception() or future.result()
                is_lost = isinstance(answer, OSError | TimeoutError)
                if future.exception() or (is_lost and not isinstance(answer, StorageError)):
                    # A broken connection raises many kinds of errors.
                    logger.debug("worker %s does not answer: %r", worker, answer)
                elif isinstance(answer, Exception):
                    raise answer
                else:
                    answers[worker] = answer
            self._pending.monitor.check()
            self._pending.look_for_workers()
            threads = self._pending.threads
            if needed - threads.keys():
                break
            questions = {future: name for future, name in questions.items() if name in threads}
        return answers


def choose_holders(
    n_shards: int, threads: Mapping[str, int], present_at: Mapping[int, list[str]], n_each: int
) -> tuple[tuple[str, ...], ...]:
    """Choose `n_each` holders for each shard among workers with so many `threads`.

    Each worker gets shards in proportion to its threads, and first of all those that are
    `present_at` it.
    """
    total = sum(threads.values())
    most = {worker: -(-n_shards * n_each * n // total) for worker, n in threads.items()}
    loads: Counter[str] = Counter()
    chosen: list[list[str]] = [[] for _ in range(n_shards)]
    for number, workers in enumerate(chosen):
        for worker in present_at.get(number, [])[:n_each]:
            if worker in threads and loads[worker] < most[worker]:
                workers.append(worker)
                loads[worker] += 1
    merges: Counter[str] = Counter()
    for workers in chosen:
        while len(workers) < n_each:
            others = [worker for worker in threads if worker not in workers]
            worker = min(others, key=lambda name: (loads[name] + 1) / threads[name])
            workers.append(worker)
            loads[worker] += 1
        workers.sort(key=lambda name: (merges[name] + 1) / threads[name])
        merges[workers[0]] += 1
    return tuple(map(tuple, chosen))
