"""Driving a coordinator on the client of a Dask cluster.

What a step costs beside the work, and what is done about it (measured with 2 workers of 1 thread
on 2 cores, from 25 ms a step to 5 to 10):

- a message to the scheduler and its answer for each task: the pieces that go to the same thread
  of a worker travel in one task;
- a task that takes another's result has the scheduler report that one to the client again, which
  holds up what it reports next: only tasks that open a partition take the job as a result, others
  name the run;
- letting go of results makes the scheduler send a message to the worker, and within 5 ms of it
  no other: results are let go of many at a time.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dadagrad.data.dataset import Dataset
from dadagrad.errors import DadagradError, InputError, TrainingError
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.dask_tasks import (
    Job,
    Read,
    Touched,
    Work,
    Worked,
    compute_pieces,
    forget,
    open_partition,
    prepare,
    same,
)
from dadagrad.training.placement import Placement, worthwhile_tasks
from dadagrad.training.protocol import (
    Close,
    Compute,
    Computed,
    Event,
    Finish,
    Given,
    Gradient,
    Instruction,
    Open,
    Opened,
    Report,
    Result,
    Save,
    WeightsInState,
)
from dadagrad.training.watch import Watcher

logger = logging.getLogger(__name__)

RETRIES = 2
WORKERS_SECONDS = 2.0
"""Between two looks at which workers there are."""

SPENT_TASKS = 64
SPENT_BYTES = 16 << 20
"""How many results that have arrived are left on the workers, at most, and of which size."""


class Drive:
    """One run on one client.

    Parameters
    ----------
    client : distributed.Client
    data : Dataset
    coordinator : Coordinator
    watcher : Watcher
    """

    def __init__(
        self, client: Any, data: Dataset, coordinator: Coordinator, watcher: Watcher
    ) -> None:
        from distributed import as_completed

        self._client = client
        self._coordinator = coordinator
        self._watcher = watcher
        self._run = uuid.uuid4().hex
        self._count = 0
        self._running: dict[str, Callable[[Any], list[Event]]] = {}
        self._completed = as_completed(with_results=True, raise_errors=False, loop=client.loop)
        self._spent: list[Any] = []
        self._spent_bytes = 0
        method = coordinator.method
        config = method.config
        assert isinstance(config.batch_size, int)
        entries = config.batch_size * data.nnz / data.n_rows
        self._placement = Placement(client.nthreads(), worthwhile_tasks(entries * method.n_outputs))
        self._looked = time.monotonic()
        # What the next rows of an open partition touch: only those weights are sent.
        self._touched: dict[int, Touched | None] = {}
        # A share of a batch, and one row more: shares differ by as much.
        self._rows_ahead = config.batch_size // config.lanes + 2
        self._fingerprint = data.fingerprint
        # Sent once. As the result of a task, it is made again should its worker be lost.
        job = Job(data, self._fingerprint, method)
        self._job = client.submit(same, job, key=f"dadagrad-job-{self._run}", pure=False)

    def run(self) -> bool:
        """Drive the coordinator until it finishes; True if the run is complete."""
        try:
            self._prepare()
            self._watcher.begin()
            complete = self._carry_out(self._coordinator.start())
            while complete is None:
                complete = self._handle(self._next_events())
            return complete
        finally:
            self._clean_up()

    def _prepare(self) -> None:
        """Have the workers load and compile what they need, before the clock runs."""
        answers = self._client.run(prepare, self._coordinator.method, on_error="return")
        errors = [answer for answer in answers.values() if isinstance(answer, Exception)]
        if errors and len(errors) == len(answers):
            raise InputError(
                f"the workers of the cluster cannot load dadagrad ({errors[0]}); install the "
                "release there that runs here"
            ) from errors[0]

    def _handle(self, events: list[Event]) -> bool | None:
        for event in events:
            complete = self._carry_out(self._coordinator.handle(event))
            if complete is not None:
                return complete
        return None

    def _next_events(self) -> list[Event]:
        from distributed import KilledWorker

        request = self._watcher.request()
        if request is not None:
            return [request]
        future, result = next(self._completed)
        as_events = self._running.pop(future.key)
        if future.status == "error":
            _, error, _ = result
            if isinstance(error, KilledWorker):
                raise TrainingError(
                    f"the workers of the cluster keep dying at the same task ({error}); they "
                    "probably run out of memory: give them more, or make smaller partitions"
                ) from error
            raise error
        if future.status != "finished":
            raise TrainingError(
                f"the cluster gave up a task ({future.status}); its scheduler was probably "
                "restarted. Go on from the last checkpoint with `dadagrad resume`"
            )
        if isinstance(result, DadagradError):
            raise result
        self._spent.append(future)
        return as_events(result)

    def _carry_out(self, instructions: list[Instruction]) -> bool | None:
        """Whether the run is complete, if it is over."""
        # First what others can be at while the rest is done here.
        computes = [one for one in instructions if isinstance(one, Compute)]
        groups = self._placement.groups([compute.piece.visit for compute in computes])
        for worker, positions in groups:
            self._send(worker, [computes[position] for position in positions])
        for instruction in instructions:
            match instruction:
                case Open(visit, partition):
                    self._open(visit, partition)
                case Close(visit):
                    # Workers keep what they read last; nothing there has to be let go.
                    del self._touched[visit]
                    self._placement.close(visit)
                case Report() | Save():
                    self._watcher.handle(instruction)
                case Finish(complete):
                    return complete
        if len(self._spent) > SPENT_TASKS or self._spent_bytes > SPENT_BYTES:
            self._spent.clear()
            self._spent_bytes = 0
        return None

    def _open(self, visit: int, partition: int) -> None:
        if time.monotonic() - self._looked > WORKERS_SECONDS:
            # A scheduler that has gone is noticed when it gives up the tasks.
            with suppress(OSError, TimeoutError):
                self._placement.update(self._client.nthreads())
            self._looked = time.monotonic()

        def opened(read: Read) -> list[Event]:
            self._placement.found(visit, partition, read.worker)
            self._touched[visit] = read.touched
            self._spent_bytes += read.vocabulary.nbytes
            return [Opened(visit, read.vocabulary)]

        worker = self._placement.open(visit, partition)
        arguments = (self._job, self._run, partition, self._rows_ahead)
        # What is computed goes first, also if it comes later.
        self._submit(opened, worker, open_partition, *arguments, priority=-1)

    def _send(self, worker: str | None, computes: list[Compute]) -> None:
        """Have one worker work on some of the pieces of a step."""
        pieces = tuple(compute.piece for compute in computes)
        given = tuple(self._given(compute) for compute in computes)
        work = Work(self._run, pieces, given, self._rows_ahead)

        def computed(worked: Worked | None) -> list[Event]:
            if worked is None:  # it went to a worker that never opened a partition of this run
                self._submit(computed, worker, compute_pieces, work, self._job)
                return []
            for piece, touched in zip(pieces, worked.touched, strict=True):
                self._placement.found(piece.visit, piece.partition, worked.worker)
                self._touched[piece.visit] = touched
            self._spent_bytes += sum(map(_n_bytes, worked.results))
            return [
                Computed(compute.task, result)
                for compute, result in zip(computes, worked.results, strict=True)
            ]

        self._submit(computed, worker, compute_pieces, work)

    def _given(self, compute: Compute) -> Given:
        """What a piece is worked on with, as it is sent."""
        if not isinstance(compute.given, WeightsInState):
            return compute.given
        touched = self._touched[compute.piece.visit]
        covered = touched is not None and touched.covers(compute.piece)
        return compute.given.at(touched.positions if touched and covered else None)

    def _submit(
        self,
        as_events: Callable[[Any], list[Event]],
        worker: str | None,
        function: Callable[..., Any],
        *arguments: Any,
        priority: int = 0,
    ) -> None:
        self._count += 1
        key = f"dadagrad-{function.__name__}-{self._run}-{self._count}"
        self._running[key] = as_events
        future = self._client.submit(
            function,
            *arguments,
            key=key,
            pure=False,
            retries=RETRIES,
            priority=priority,
            workers=None if worker is None else [worker],
            allow_other_workers=worker is not None,
        )
        self._completed.add(future)

    def _clean_up(self) -> None:
        """Leave nothing on workers that outlive the run; a cluster that is gone has nothing."""
        self._spent.clear()
        try:
            self._client.cancel([self._job])
            self._client.run(forget, self._run, self._fingerprint, on_error="ignore")
        except (OSError, TimeoutError, RuntimeError) as error:
            logger.debug("could not clean up the workers: %s", error)


def _n_bytes(result: Result) -> int:
    if not isinstance(result, Gradient):
        return 0
    return result.positions.nbytes + result.gradient.nbytes + result.squares.nbytes
