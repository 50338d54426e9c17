"""Driver of a coordinator on the client of a Dask cluster.

A step costs more than its work, and three measures reduce that (with 2 workers of 1 thread on 2
cores, from 25 ms a step to 5 to 10):

- Each task costs a message to the scheduler and its answer: the slices for one thread of a worker
  travel in one task.
- A task that depends on the result of another makes the scheduler report that result to the client
  again, which delays other reports: only tasks that open partitions depend on the job, others name
  the run.
- A released result makes the scheduler send a message to the worker, and within 5 ms no other:
  results are released many at a time.
"""

from __future__ import annotations

import itertools
import logging
import uuid
from dataclasses import replace
from typing import Any

import numpy as np
from distributed import Client, Future
from numpy.typing import NDArray

from dadagrad.data.dataset import Dataset
from dadagrad.data.skipping import SkippingDataset, skipped_partitions
from dadagrad.errors import InputError, TrainingError
from dadagrad.kernels.id_sets import look_up
from dadagrad.kernels.packed_ids import unpack
from dadagrad.problem import Problem
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines.dask.futures import PendingTasks
from dadagrad.training.engines.dask.messages import Reply, Touched, Work, n_bytes, validate
from dadagrad.training.engines.dask.placement import Placement, worthwhile_tasks
from dadagrad.training.engines.dask.tasks import (
    Job,
    compute_slices,
    forget,
    identity,
    open_partitions,
    prepare,
)
from dadagrad.training.engines.watcher import Watcher
from dadagrad.training.messages import (
    Close,
    Compute,
    Computed,
    Event,
    Finish,
    Instruction,
    Merge,
    Merged,
    Open,
    Opened,
    Report,
    Result,
    Save,
)
from dadagrad.training.schedule.base import Slice
from dadagrad.training.state.slices import Gradient, SentFeatures, SharedFeatures
from dadagrad.training.trace import Trace

logger = logging.getLogger(__name__)

PREPARE_SECONDS = 120.0
"""Time for workers to load their libraries, after which the run begins anyway."""

FORGET_SECONDS = 5.0
"""Time for workers to drop a run."""

MAX_SPENT_TASKS = 64
MAX_SPENT_BYTES = 16 << 20
"""Number and bytes of received results that are not released yet."""


class DaskDriver:
    """Driver of one run on one client.

    `bytes_moved` is the size of the arrays sent and received for steps: weights, gradients, and
    positions of their features; without the vocabularies of partitions.
    """

    def __init__(
        self,
        client: Client,
        data: Dataset,
        coordinator: Coordinator,
        watcher: Watcher,
        trace: Trace,
    ) -> None:
        self._client = client
        self._trace = trace
        self._data = data
        self._coordinator = coordinator
        self._watcher = watcher
        self._run = uuid.uuid4().hex
        self._pending = PendingTasks(client, self._run)
        self._spent: list[Future[Any]] = []
        self._spent_bytes = 0
        self._placement = Placement(client.nthreads(), _tasks_of_step(coordinator.problem, data))
        # Positions that the next slices touch, by reading and first row: only their weights are
        # sent.
        self._touched: dict[tuple[int, int], NDArray[np.int32]] = {}
        self._vocabularies: dict[int, NDArray[np.int64]] = {}
        self._events: list[Event] = []
        self.bytes_moved = 0
        # The result of a task is sent to workers once, and made again if its worker is lost.
        self._digest = data.digest
        job = Job(data, self._digest, coordinator.problem)
        self._job = client.submit(identity, job, key=f"dadagrad-job-{self._run}", pure=False)

    def run(self) -> bool:
        """Drive the coordinator until it finishes; True if the run is complete."""
        try:
            self._prepare_workers()
            self._watcher.begin()
            instructions = self._coordinator.start()
            while True:
                with self._trace.measured("coordinate"):
                    complete = self._carry_out(instructions)
                    if complete is not None:
                        return complete
                    instructions = self._coordinator.go_on()
                if instructions:
                    continue
                # Slices that can begin together make one task: all events of one task come first.
                # Only the last of them can change the state.
                events = self._next_events()
                with self._trace.measured("coordinate"):
                    following = (self._coordinator.handle(event) for event in events)
                    instructions = list(itertools.chain.from_iterable(following))
        finally:
            self._clean_up()

    def _prepare_workers(self) -> None:
        """Load and compile kernels on the workers before the clock starts."""
        try:
            answers = self._client.run(
                prepare,
                self._coordinator.problem,
                on_error="return",
                callback_timeout=PREPARE_SECONDS,
            )
        except (OSError, TimeoutError) as error:  # the run itself finds out what is wrong
            logger.warning("not all workers are known to be ready: %r", error)
            return
        errors = [answer for answer in answers.values() if isinstance(answer, Exception)]
        left = any(isinstance(error, OSError) for error in errors)  # a worker has left meanwhile
        if errors and len(errors) == len(answers) and not left:
            raise InputError(
                f"the workers of the cluster cannot load dadagrad ({errors[0]}); install the same "
                "release there as here"
            ) from errors[0]

    def _next_events(self) -> list[Event]:
        """Return the events of one task, or a request; none if none comes in a short time."""
        request = self._watcher.request()
        if request is not None:
            return [request]
        if self._events:
            events, self._events = self._events, []
            return events
        threads = self._pending.changed_workers()
        if threads is not None:
            self._placement.update(threads)
        arrived = self._pending.next_result()
        if any(future.status != "finished" for future in self._spent):
            self._release()  # its worker has left: others would compute it again first
        if arrived is None:
            return []
        future, to_events, result = arrived
        self._spent.append(future)
        return to_events(result)

    def _carry_out(self, instructions: list[Instruction]) -> bool | None:
        """Carry out instructions; True or False (complete or stopped) if the run is over."""
        # Tasks go first, so that workers are busy while the rest is done here.
        computes = [one for one in instructions if isinstance(one, Compute)]
        readings = [compute.slice_.reading for compute in computes]
        for worker, positions in self._placement.tasks_of(readings):
            self._send(worker, [computes[position] for position in positions])
        opens = {one.reading: one for one in instructions if isinstance(one, Open)}
        for reading, opening in opens.items():
            self._placement.open(reading, opening.partition)
        needed_at = {reading: opening.needed_at for reading, opening in opens.items()}
        for worker, readings in self._placement.reading_groups(needed_at):
            self._open(worker, tuple(opens[reading] for reading in readings))
        for instruction in instructions:
            match instruction:
                case Close(reading):  # workers drop the partitions that they used least recently
                    self._placement.close(reading)
                    del self._vocabularies[reading]
                case Merge(merge):
                    with self._trace.measured("merge"):
                        merge()
                    self._events.append(Merged())
                case Report() | Save():
                    self._watcher.handle(instruction)
                case Finish(complete):
                    return complete
        if len(self._spent) > MAX_SPENT_TASKS or self._spent_bytes > MAX_SPENT_BYTES:
            self._release()
        return None

    def _release(self) -> None:
        """Release the results that have been received."""
        self._spent.clear()
        self._spent_bytes = 0

    def _open(self, worker: str | None, opens: tuple[Open, ...]) -> None:
        """Submit the reading of partitions."""

        def to_events(reply: Reply) -> list[Event]:
            self._note(reply)
            events: list[Event] = []
            for instruction, ids, touched in zip(opens, reply.results, reply.touched, strict=True):
                reading = instruction.reading
                self._placement.read_by(reading, instruction.partition, reply.worker)
                for slice_, positions in zip(instruction.first_slices, touched, strict=True):
                    self._note_touched(slice_, positions)
                self._spent_bytes += ids.nbytes
                self._vocabularies[reading] = unpack(ids, np.int64)
                events.append(Opened(reading))
            return events

        # Computations go before reading, even if they are submitted later.
        arguments = (self._job, self._run, opens)
        self._pending.submit(to_events, worker, open_partitions, *arguments, priority=-1)

    def _send(self, worker: str | None, computes: list[Compute]) -> None:
        """Submit some slices of a step as one task."""
        work = Work(
            self._run,
            tuple(compute.slice_ for compute in computes),
            tuple(self._given(compute) for compute in computes),
            tuple(compute.following for compute in computes),
            skipped_partitions(self._data),
        )
        self.bytes_moved += sum(map(n_bytes, work.given))
        errors: list[str] = []

        def to_events(reply: Reply | None) -> list[Event]:
            if reply is None:  # the worker has not opened any partition of this run
                self._pending.submit(to_events, worker, compute_slices, work, self._job)
                return []
            self._note(reply)
            size = sum(map(n_bytes, reply.results))
            self._spent_bytes += size
            self.bytes_moved += size
            results = [_unpacked(result) for result in reply.results]
            error = self._validate(computes, results, reply.worker)
            if error is not None:
                errors.append(error)
                if len(errors) > 1:
                    raise TrainingError(" and again: ".join(errors))
                logger.warning("%s; it is computed again", error)
                another = self._placement.another(reply.worker)
                self._pending.submit(to_events, another, compute_slices, work, self._job)
                return []
            for compute, touched in zip(computes, reply.touched, strict=True):
                slice_ = compute.slice_
                self._placement.read_by(slice_.reading, slice_.partition, reply.worker)
                if compute.following is not None:
                    self._note_touched(compute.following, touched)
            return [
                Computed(compute.task, self._with_ids(compute.slice_, result))
                for compute, result in zip(computes, results, strict=True)
            ]

        self._pending.submit(to_events, worker, compute_slices, work)

    def _note(self, reply: Reply) -> None:
        """Skip the partitions that a worker skips, and compare the content that it has read."""
        self._trace.extend(reply.tasks)
        if isinstance(self._data, SkippingDataset):
            self._data.skip(reply.skipped)
        self._data.compare_content(reply.content)

    def _validate(self, computes: list[Compute], results: list[Result], worker: str) -> str | None:
        """Explain which result of a worker is wrong, and why; None if all can be right."""
        for compute, result in zip(computes, results, strict=True):
            slice_, change = compute.slice_, result.change
            vocabulary = self._vocabularies[slice_.reading]
            reason = validate(result, self._coordinator.problem, slice_, vocabulary)
            if reason is not None:
                name = self._data.partitions[slice_.partition].name
                is_gradient = change is not None and isinstance(change.content, Gradient)
                kind = "gradient" if is_gradient else "state"
                return (
                    f"{self._data.url}, partition {name}, rows {slice_.start} to "
                    f"{slice_.stop - 1}: the {kind} that worker {worker} sent cannot be right: "
                    f"{reason}"
                )
        return None

    def _with_ids(self, slice_: Slice, result: Result) -> Result:
        """The same result, with ids in place of positions in the vocabulary."""
        assert result.change is not None
        ids = look_up(self._vocabularies[slice_.reading], result.change.ids)
        return replace(result, change=replace(result.change, ids=ids))

    def _given(self, compute: Compute) -> SentFeatures:
        """Return the weights or the state that a slice needs, to be sent."""
        assert isinstance(compute.given, SharedFeatures)
        reading = compute.slice_.reading
        touched = self._touched.pop((reading, compute.slice_.start), None)
        return compute.given.send(self._vocabularies[reading], touched)

    def _note_touched(self, slice_: Slice, touched: Touched) -> None:
        """Store the positions that a later slice touches until its weights are sent."""
        if touched is not None:
            self._touched[slice_.reading, slice_.start] = unpack(touched, np.int32)
            self.bytes_moved += touched.nbytes

    def _clean_up(self) -> None:
        """Drop all that workers hold of the run."""
        self._spent.clear()
        self._pending.stop()
        if self._pending.monitor.is_lost:
            return
        try:
            self._client.cancel([self._job])
            self._client.run(
                forget,
                self._run,
                self._digest,
                on_error="ignore",
                callback_timeout=FORGET_SECONDS,
            )
        except (OSError, TimeoutError, RuntimeError) as error:
            logger.debug("could not clean up the workers: %s", error)


def _unpacked(result: Result) -> Result:
    assert result.change is not None
    positions = unpack(result.change.ids, np.int32)
    return replace(result, change=replace(result.change, ids=positions))


def _tasks_of_step(problem: Problem, data: Dataset) -> int:
    """Return the greatest useful number of tasks of a step."""
    config = problem.config
    assert isinstance(config.batch_size, int)
    entries = config.batch_size * data.nnz / data.n_rows
    if config.n_streams > 1:
        # Mean of the rounds of the first pass; a state takes three times a gradient's time.
        entries = 3 * data.nnz / config.rounds
    return worthwhile_tasks(entries * problem.n_outputs)
