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
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from distributed import Client, Future

from dadagrad.clusters import count
from dadagrad.data.dataset import Dataset
from dadagrad.data.skipping import SkippingDataset
from dadagrad.errors import InputError
from dadagrad.problem import Problem
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines.dask.futures import PendingTasks, RoundLost
from dadagrad.training.engines.dask.messages import Reply
from dadagrad.training.engines.dask.placement import Placement
from dadagrad.training.engines.dask.tasks import Job, forget, prepare
from dadagrad.training.engines.watcher import Watcher
from dadagrad.training.messages import (
    Close,
    Compute,
    Event,
    Finish,
    Instruction,
    Open,
    Report,
    Save,
)
from dadagrad.training.schedule import n_rounds

logger = logging.getLogger(__name__)

PREPARE_SECONDS = 120.0
"""Time for workers to load their libraries, after which the run begins anyway."""

FORGET_SECONDS = 5.0
"""Time for workers to drop a run."""

MAX_SPENT_TASKS = 64
MAX_SPENT_BYTES = 16 << 20
"""Number and bytes of received results that are not released yet."""


class DaskDriver(ABC):
    """Driver of one run on one client.

    `bytes_moved` is the size of the arrays that travelled for steps; without the vocabularies of
    partitions.
    """

    _forget = staticmethod(forget)

    def __init__(
        self, client: Client, data: Dataset, coordinator: Coordinator, watcher: Watcher
    ) -> None:
        self._client = client
        self._trace = watcher.trace
        self._data = data
        self._coordinator = coordinator
        self._watcher = watcher
        self._run = f"{uuid.uuid4().hex}/{client.id}"  # by which workers see if the client is there
        job = Job.of(data, coordinator.problem)
        self._pending = PendingTasks(client, self._run, job)
        self._spent: list[Future[Any]] = []
        self._spent_bytes = 0
        n_tasks = _tasks_of_step(coordinator.problem, data)
        self._placement = Placement(self._pending.threads, n_tasks)
        watcher.n_workers = len(self._pending.threads)
        self.bytes_moved = 0

    def run(self) -> bool:
        """Drive the coordinator until it finishes; True if the run is complete."""
        try:
            self._prepare_workers()
            self._watcher.begin()
            instructions = self._begin()
            while True:
                try:
                    with self._trace.measured("coordinate"):
                        complete = self._carry_out(instructions)
                        if complete is not None:
                            return complete
                        instructions = self._coordinator.go_on()
                    if not instructions:
                        instructions = self._next_instructions()
                except RoundLost as lost:
                    instructions = self._begin_again(lost)
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
        worker_has_left = any(isinstance(error, OSError) for error in errors)
        if errors and len(errors) == len(answers) and not worker_has_left:
            raise InputError(
                f"the workers of the cluster cannot load dadagrad and the classes of the run "
                f"({errors[0]}); install the same release there as here, and the modules of your "
                "own classes"
            ) from errors[0]

    def _begin(self) -> list[Instruction]:
        """Return the first instructions."""
        return self._coordinator.go_on()

    def _begin_again(self, lost: RoundLost) -> list[Instruction]:
        """Return the first instructions of the round that was lost."""
        raise lost

    def _next_instructions(self) -> list[Instruction]:
        """Wait a short time for events, and return the instructions that follow from them."""
        # Slices that can begin together make one task: all events of one task come first.
        # Only the last of them can change the state.
        events = self._next_events()
        with self._trace.measured("coordinate"):
            following = (self._coordinator.handle(event) for event in events)
            return list(itertools.chain.from_iterable(following))

    def _next_events(self) -> list[Event]:
        """Return the events of one task, or a request; none if none comes in a short time."""
        request = self._watcher.request()
        if request is not None:
            return [request]
        self._pending.look_for_workers()
        self._follow_workers(self._pending.threads)
        arrived = self._pending.next_result()
        if any(future.status != "finished" for future in self._spent):
            self._release()  # its worker has left: others would compute it again first
        if arrived is None:
            return []
        future, to_events, reply = arrived
        self._spent.append(future)
        self._note(reply)
        return to_events(reply)

    def _follow_workers(self, threads: dict[str, int]) -> None:
        """Take note of the running workers, and their threads."""
        self._placement.update(threads)
        self._watcher.n_workers = len(threads)

    def _carry_out(self, instructions: list[Instruction]) -> bool | None:
        """Carry out instructions; True or False (complete or stopped) if the run is over."""
        # Tasks go first, so that workers are busy while the rest is done here.
        computes = [each for each in instructions if isinstance(each, Compute)]
        opens = [each for each in instructions if isinstance(each, Open)]
        self._send_all(computes, opens)
        for instruction in instructions:
            match instruction:
                case Close(reading):  # workers drop the partitions that they used least recently
                    self._placement.close(reading)
                    self._note_closed(reading)
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

    @abstractmethod
    def _send_all(self, computes: list[Compute], opens: list[Open]) -> None:
        """Have slices worked on that can begin together, and partitions read."""

    def _note_closed(self, reading: int) -> None:  # noqa: B027
        """Drop what was stored about a partition."""

    def _note(self, reply: Reply) -> None:
        """Skip the partitions that a worker skips, and compare the content that it has read."""
        self._trace.extend(reply.tasks)
        if isinstance(self._data, SkippingDataset):
            self._data.skip(reply.skipped)
        self._data.compare_content(reply.content)

    def _clean_up(self) -> None:
        """Drop all that workers hold of the run, except the partitions in their caches."""
        self._spent.clear()
        self._pending.stop()
        if not self.is_lost:
            clean_up_workers(self._client, self._forget, self._run)

    @property
    def is_lost(self) -> bool:
        """True if the cluster does not answer any more."""
        return self._pending.monitor.is_lost


def clean_up_workers(client: Client, function: Callable[[str], None], name: str) -> None:
    """Call a function on all workers that answer in a short time."""
    try:
        client.run(function, name, on_error="ignore", callback_timeout=FORGET_SECONDS)
    except (OSError, TimeoutError, RuntimeError) as error:
        logger.debug("could not clean up the workers: %s", error)


def _tasks_of_step(problem: Problem, data: Dataset) -> int:
    """Return the greatest useful number of tasks of a step.

    A task costs 2 to 3 ms of the machines' time, in which a worker does the work of
    ``dadagrad.task-work``: so many non-zeros, times outputs.
    """
    config = problem.config
    assert isinstance(config.batch_size, int)
    entries = config.batch_size * data.nnz / data.n_rows
    if config.n_streams > 1:
        # Mean of the rounds of the first pass; a state takes three times a gradient's time.
        entries = 3 * data.nnz / n_rounds(config, data.n_rows)
    return max(1, round(entries * problem.n_outputs / count("task-work", 1)))
