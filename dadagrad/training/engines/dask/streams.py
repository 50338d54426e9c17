"""Streams on a Dask cluster: the workers hold the state in shards, and the client decides.

The client learns the metrics, the intercept and the t of each stream, and nothing that is as large
as the data or the state. The first tasks of a round begin with the merge of the round before. If a
worker is lost, or anything that it sent cannot be right, all holders go back to the begin of the
last round whose merge may be unfinished, and go on from there: the bits are the same. Each shard
has two holders where there are two workers; if a shard is lost all the same, the run goes back to
its last checkpoint, or to its start.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from dadagrad.data.skipping import skipped_partitions
from dadagrad.errors import TrainingError
from dadagrad.storage.arrays import ArrayRecord
from dadagrad.training.checkpoints.shards import StoredShard, StoredState
from dadagrad.training.checkpoints.snapshot import Start
from dadagrad.training.engines.dask.driver import DaskDriver
from dadagrad.training.engines.dask.holders import Base, Holders, RoundLost, StateLost
from dadagrad.training.engines.dask.messages import Reply, Work, wrong_metrics
from dadagrad.training.engines.dask.shard_store import ShardStore
from dadagrad.training.engines.dask.shards import Merging
from dadagrad.training.engines.dask.tasks import compute_slices
from dadagrad.training.memory.estimate import stays_on_workers
from dadagrad.training.messages import (
    Compute,
    Computed,
    Event,
    Finish,
    Instruction,
    Merged,
    MergeRemotely,
    RemoteFeatures,
    Report,
    Save,
)
from dadagrad.training.progressive import best_setting
from dadagrad.training.state.compiled import RemoteWeights, State

logger = logging.getLogger(__name__)

MAX_FAILURES = 5
"""Attempts at a round and the merge before it, after which the run ends.

Each worker that is retired meanwhile adds one: a cluster that shrinks step by step ends no run.
"""


class StreamDriver(DaskDriver):
    """Driver of a run whose state is on the workers.

    The state of the coordinator has the features of the last checkpoint, or of the start.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        state = self._coordinator.state
        assert isinstance(state, State)
        self._state: State = state
        self._stored = state.shards if isinstance(state, StoredState) else ()
        edges = state.edges if isinstance(state, StoredState) else None
        problem = self._coordinator.problem
        self._holders = Holders(self._client, self._run, problem, self._pending, edges)
        self._failures: list[str] = []
        self._failed_at = self._n_retired = 0
        # The merge of the round before, until all holders are known to have done it; and the begin
        # of that round.
        self._merging: MergeRemotely | None = None
        self._before = self._base = self._base_here()
        self._is_asked = False  # by tasks of this round to merge
        self._is_merged = False  # for the coordinator
        self._is_zero = state.t == 0.0
        self._stays = stays_on_workers(problem) or bool(self._stored)

    def _base_here(self) -> Start:
        """The place to which the run can go back, and the intercept and t there."""
        return Start(self._state.common(), self._coordinator.place)

    def _begin(self) -> list[Instruction]:
        return self._go_back_to_base()

    # Events and instructions.

    def _next_events(self) -> list[Event]:
        if self._is_merged:
            self._is_merged = False
            return [Merged()]
        return super()._next_events()

    def _next_instructions(self) -> list[Instruction]:
        try:
            return super()._next_instructions()
        except RoundLost as lost:
            return self._begin_again(str(lost))

    def _workers_changed(self, threads: dict[str, int]) -> None:
        super()._workers_changed(threads)
        gone = self._holders.workers_changed(threads)
        if gone is not None:
            raise RoundLost(f"worker {gone} has left the cluster")

    def _carry_out(self, instructions: list[Instruction]) -> bool | None:
        kinds = set(map(type, instructions))
        try:
            if kinds & {Save, Finish}:
                self._finish_merge()
                if not self._stays:
                    self._gather()
            elif self._holders.is_unbalanced and Report in kinds:
                self._finish_merge()
                self._holders.assign()
            for place, instruction in enumerate(instructions):
                if isinstance(instruction, MergeRemotely):
                    self._merge(instruction)
                elif isinstance(instruction, Save) and self._stays:
                    instructions[place] = replace(instruction, write_shards=self._write_shards)
                elif isinstance(instruction, Report):
                    instructions[place] = replace(instruction, count_nonzeros=self._count_nonzeros)
            complete = super()._carry_out(instructions)
            if complete is not None and self._stays:
                self._coordinator.state = self._gather_weights()
            return complete
        except RoundLost as lost:
            return self._carry_out(self._begin_again(str(lost)))
        except StateLost:
            return self._carry_out(self._go_back_to_base())

    def _send_all(self, tasks: list[tuple[str | None, list[Compute]]]) -> None:
        """Submit slices; the first tasks of a round begin with the merge of the round before."""
        holders = self._holders.by_worker().keys()
        idle = tuple(holders - {worker for worker, _ in tasks})
        for worker, computes in tasks:
            merging = None
            if self._merging is not None and not self._is_asked:
                first = () if worker is None or worker not in holders else (worker,)
                merging, idle = Merging(first + idle, self._merging), ()
            self._send(worker, computes, merging)
        self._is_asked |= bool(tasks)

    def _send(
        self, worker: str | None, computes: list[Compute], merging: Merging | None = None
    ) -> None:
        inputs = [each.input for each in computes if isinstance(each.input, RemoteFeatures)]
        work = Work(
            self._run,
            tuple(compute.slice_ for compute in computes),
            tuple(inputs),
            (None,) * len(computes),
            skipped_partitions(self._data),
            self._holders.layout,
            merging,
        )

        def to_events(reply: Reply) -> list[Event]:
            self._note(reply)
            self.bytes_moved += reply.n_bytes
            if reply.lost is not None:
                raise RoundLost(reply.lost)
            for compute, result in zip(computes, reply.results, strict=True):
                slice_ = compute.slice_
                wrong = wrong_metrics(result.metrics, self._coordinator.problem, slice_)
                if wrong is not None:
                    raise RoundLost(f"the result of worker {reply.worker} cannot be right: {wrong}")
                self._placement.read_by(slice_.reading, slice_.partition, reply.worker)
            return [
                Computed(compute.task, result)
                for compute, result in zip(computes, reply.results, strict=True)
            ]

        self._submit_work(to_events, worker, compute_slices, work)

    def _merge(self, streams: MergeRemotely) -> None:
        """Leave the merge to the first tasks of the next round.

        All tasks of this round have been done, and with them the merge before.
        """
        if self._coordinator.place.steps >= self._failed_at:
            self._failures.clear()
            self._n_retired = self._pending.monitor.n_retired
        self._merging, self._before = streams, self._base_here()
        self._is_asked, self._is_merged = False, True
        self._holders.begin_round()

    def _finish_merge(self) -> None:
        """Have the round before merged now."""
        if self._merging is not None:
            self._holders.merge(self._merging)
            self._merging = None

    # Recovery.

    def _begin_again(self, reason: str) -> list[Instruction]:
        """Go back to the begin of the round, and return its instructions."""
        logger.warning("%s; the round begins again", reason)
        self._failures.append(reason)
        n_failures = len(self._failures)
        if n_failures >= MAX_FAILURES + self._pending.monitor.n_retired - self._n_retired:
            raise TrainingError(
                f"a round failed {n_failures} times: {' and again: '.join(self._failures[-2:])}; "
                "the workers probably run out of memory: give them more, or make smaller partitions"
            )
        self._failed_at = max(self._failed_at, self._coordinator.place.steps)
        if self._merging is None:
            self._before = self._base_here()
        else:
            self._holders.begin_round(-1)
        self._drop_tasks()
        try:
            self._holders.assign()
        except StateLost:
            return self._go_back_to_base()
        return self._go_back(self._before)

    def _go_back_to_base(self) -> list[Instruction]:
        """Give the workers the state that the client has, and return the first instructions."""
        self._drop_tasks()
        self._holders.assign(self._base_shard)
        return self._go_back(self._base)

    def _go_back(self, base: Start) -> list[Instruction]:
        """Return the first instructions from a place on, where the workers are already."""
        assert isinstance(base.state, State)
        self._state.push(np.empty(0, np.int64), base.state)
        self._coordinator.go_back(base.place)
        return self._coordinator.start()

    def _drop_tasks(self) -> None:
        self._merging, self._is_merged = None, False
        self._pending.drop()
        self._placement.close_all()

    # The state on the client.

    def _base_shard(self, number: int) -> Base:
        if self._stored:
            return self._stored[number]
        return None if self._is_zero else self._state.pull(self._holders.features(number))

    def _gather(self) -> None:
        """Get the whole state from its holders, at the begin of a round."""
        for number, part in enumerate(self._holders.call(ShardStore.states, self._state.t)):
            self._state.push_features(self._holders.features(number), part)
        self._base, self._is_zero = self._base_here(), False

    def _write_shards(self, url: str, folder: str) -> list[ArrayRecord]:
        """Have the holders write the state, to which the run goes back from now on if need be."""
        shards = self._holders.call(ShardStore.write, self._state.t, url, folder)
        self._stored = tuple(StoredShard(url, f"{url}: {folder}", records) for records in shards)
        self._base = self._base_here()
        return [record for records in shards for record in records]

    def _gather_weights(self) -> State:
        """Get the weights other than 0 from the holders of the state."""
        ids, values = zip(*self._holders.call(ShardStore.weights, self._state.t), strict=True)
        end = self._state.common()
        return RemoteWeights(
            *(end.accumulators, end.last_update, end.averages, end.momentum, end.intercept, end.t),
            ids=np.concatenate(ids),
            values=np.concatenate(values),
        )

    def _count_nonzeros(self) -> int:
        """See `Report`."""
        self._finish_merge()
        best = best_setting(self._coordinator.place.passes)
        counts = self._holders.call(ShardStore.counts, self._state.t)
        return sum(int(of_settings[best]) for of_settings in counts)
