"""Streams on a Dask cluster: the workers hold the state in shards, and the client decides.

The client learns the metrics, the intercept and the t of each stream, and nothing that is as large
as the data or the state. A round is a task for each thread of the workers, which reads what it
learns from, and then a request to each worker to merge its shards. If a worker is lost, or anything
that it sent cannot be right, all holders go back to the begin of the round, and go on from there:
the bits are the same. Each shard has two holders where there are two workers; if a shard is lost
all the same, the run goes back to its last checkpoint, or to its start.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np

from dadagrad.data.skipping import skipped_partitions
from dadagrad.errors import InputError, StorageError, TrainingError
from dadagrad.model.stored_weights import StoredWeights
from dadagrad.model.writer import ModelWriter
from dadagrad.storage.arrays import ArrayRecord, shared_folder
from dadagrad.storage.backends import absolute
from dadagrad.storage.retries import patience_seconds
from dadagrad.training.checkpoints.shards import StoredShard, StoredState
from dadagrad.training.checkpoints.snapshot import Start
from dadagrad.training.engines.dask.driver import DaskDriver
from dadagrad.training.engines.dask.futures import RoundLost
from dadagrad.training.engines.dask.messages import Reply, wrong_metrics
from dadagrad.training.engines.dask.streams.holders import Holders
from dadagrad.training.engines.dask.streams.shard_store import ShardStore
from dadagrad.training.engines.dask.streams.shards import Base
from dadagrad.training.engines.dask.streams.tasks import StreamWork, forget_streams, learn_stretches
from dadagrad.training.memory.workers import stays_on_workers
from dadagrad.training.messages import (
    Compute,
    Computed,
    Event,
    Finish,
    Instruction,
    Merged,
    MergeRemotely,
    Open,
    Report,
    Save,
)
from dadagrad.training.progressive import best_setting
from dadagrad.training.state.compiled import State
from dadagrad.training.state.remote import RemoteWeights

logger = logging.getLogger(__name__)

MAX_FAILURES = 5
"""Attempts at a round, after which the run ends.

Each worker that is retired meanwhile adds one: a cluster that shrinks step by step ends no run.
"""


class StreamDriver(DaskDriver):
    """Driver of a run whose state is on the workers.

    The state of the coordinator has the features of the last checkpoint, or of the start.
    """

    _forget = staticmethod(forget_streams)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        state = self._coordinator.state
        assert isinstance(state, State)
        self._state: State = state
        self._stored = state.shards if isinstance(state, StoredState) else ()
        edges = state.edges if isinstance(state, StoredState) else None
        problem = self._coordinator.problem
        self._holders = Holders(problem, self._pending, edges)
        self._failures: list[str] = []
        self._failed_at = self._n_retired = 0
        self._base = self._base_here()
        self._merging: MergeRemotely | None = None  # what is to be merged before anything else
        self._stays = stays_on_workers(problem) or bool(self._stored)

    def _base_here(self) -> Start:
        """The place to which the run can go back, and the intercept and t there."""
        return Start(self._state.common(), self._coordinator.place)

    def _begin(self) -> list[Instruction]:
        return self._go_back_to_base()

    # Events and instructions.

    def _next_events(self) -> list[Event]:
        if self._merging is None:
            return super()._next_events()
        tasks, n_bytes = self._holders.merge(self._merging)
        self._trace.extend(tasks)
        self.bytes_moved += n_bytes
        self._merging = None
        if self._coordinator.place.steps >= self._failed_at:
            self._failures.clear()
            self._n_retired = self._pending.monitor.n_retired
        return [Merged()]

    def _follow_workers(self, threads: dict[str, int]) -> None:
        super()._follow_workers(threads)
        if gone := min(self._holders.addresses - threads.keys(), default=None):
            raise RoundLost(f"worker {gone} has left the cluster")

    def _carry_out(self, instructions: list[Instruction]) -> bool | None:
        kinds = set(map(type, instructions))
        if kinds & {Save, Finish} and not self._stays:
            self._gather()
        elif self._holders.is_unbalanced and Report in kinds and not self._holders.assign():
            raise RoundLost("no worker has some of the shards any more")
        for place, instruction in enumerate(instructions):
            if isinstance(instruction, MergeRemotely):
                self._merging = instruction
            elif isinstance(instruction, Save) and self._stays:
                instructions[place] = replace(instruction, write_shards=self._write_shards)
            elif isinstance(instruction, Report):
                instructions[place] = replace(instruction, count_nonzeros=self._count_nonzeros)
        complete = super()._carry_out(instructions)
        if complete is not None and self._stays:
            self._coordinator.state = self._end(complete)
        return complete

    def _send_all(self, computes: list[Compute], opens: list[Open]) -> None:
        for compute in computes:
            self._placement.keep_together(compute.slices)
        ahead: dict[str | None, list[int]] = defaultdict(list)
        for opening in opens:
            worker = self._placement.open(opening.reading, opening.partition)
            ahead[worker].append(opening.partition)
        for worker, task in self._placement.tasks_of(computes):
            self._send(worker, task, ahead.pop(worker, []))

    def _send(self, worker: str | None, computes: list[Compute], ahead: list[int]) -> None:
        """Submit some stretches as one task, which then reads partitions ahead."""
        stretches = tuple(compute.slices for compute in computes)
        common, skipped = computes[0].input, skipped_partitions(self._data)
        assert isinstance(common, State)
        layout = self._holders.layout
        work = StreamWork(self._run, skipped, stretches, layout, common, tuple(ahead))

        def to_events(reply: Reply) -> list[Event]:
            self.bytes_moved += reply.n_bytes
            for stretch, results in zip(stretches, reply.results, strict=True):
                for slice_, result in zip(stretch, results, strict=True):
                    wrong = wrong_metrics(result.metrics, self._coordinator.problem, slice_)
                    if wrong is not None:
                        result_of = f"the result of worker {reply.worker}"
                        raise RoundLost(f"{result_of} cannot be right: {wrong}")
                    self._placement.read_by(slice_.reading, slice_.partition, reply.worker)
            return [
                Computed(compute.task, results)
                for compute, results in zip(computes, reply.results, strict=True)
            ]

        self._pending.submit(to_events, learn_stretches, work, worker)

    # Recovery.

    def _begin_again(self, lost: RoundLost) -> list[Instruction]:
        logger.warning("%s; the round begins again", lost)
        self._failures.append(str(lost))
        n_failures = len(self._failures)
        if n_failures >= MAX_FAILURES + self._pending.monitor.n_retired - self._n_retired:
            raise TrainingError(
                f"a round failed {n_failures} times: {' and again: '.join(self._failures[-2:])}; "
                "the workers probably run out of memory: give them more, or make smaller partitions"
            )
        self._failed_at = max(self._failed_at, self._coordinator.place.steps)
        self._drop_tasks()
        if self._holders.assign():
            return self._go_back(self._base_here())
        return self._go_back_to_base()

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
        return self._coordinator.go_on()

    def _drop_tasks(self) -> None:
        self._merging = None
        self._pending.drop()
        self._placement.close_all()

    # The state on the client.

    def _base_shard(self, number: int) -> Base:
        if self._stored:
            return self._stored[number]
        if self._base.state.t == 0.0:
            return None
        return self._state.pull(self._holders.features(number))

    def _gather(self) -> None:
        """Get the whole state from its holders, at the begin of a round."""
        for number, part in enumerate(self._holders.call(ShardStore.state_of, self._state.t)):
            self._state.push_features(self._holders.features(number), part)
        self._base = self._base_here()

    def _write_shards(self, url: str, folder: str) -> list[ArrayRecord]:
        """Have the holders write the state, to which the run goes back from now on if need be."""
        arguments, patience = (self._state.t, url, folder), patience_seconds()
        shards = self._holders.call(ShardStore.write, *arguments, patience=patience)
        self._stored = tuple(StoredShard(url, f"{url}: {folder}", records) for records in shards)
        self._base = self._base_here()
        return [record for records in shards for record in records]

    def _end(self, complete: bool) -> State:
        """Return the end of a run whose state stays on the workers: its weights."""
        writer, end = self._watcher.writer, self._state.common()
        named: dict[str, Any] = {**end.arrays, "t": end.t}
        if writer is not None and not complete:
            return RemoteWeights(**named, nonzeros=self._count_nonzeros())
        if writer is not None and self._holders.hold_ranges:
            try:
                stored = self._write_weights(writer)
                return RemoteWeights(**named, stored=stored, nonzeros=stored.nonzeros)
            except (InputError, StorageError) as error:  # the run must not end for it
                logger.warning(
                    "the workers cannot write the model (%s); this process writes it", error
                )
                writer.new_folder()
        return RemoteWeights.gathered(end, self._holders.call(ShardStore.weights, end.t))

    def _write_weights(self, writer: ModelWriter) -> StoredWeights:
        """Have the holders of the state write the weights other than 0 to the model of `writer`."""
        arguments = self._state.t, absolute(writer.storage.url), writer.new_folder()
        patience = patience_seconds()
        with shared_folder(writer.storage, writer.folder):
            parts = self._holders.call(ShardStore.write_weights, *arguments, patience=patience)
        return StoredWeights.join(parts)

    def _count_nonzeros(self) -> int:
        """See `Report`."""
        best = best_setting(self._coordinator.place.passes)
        counts = self._holders.call(ShardStore.count, self._state.t)
        return sum(int(of_settings[best]) for of_settings in counts)
