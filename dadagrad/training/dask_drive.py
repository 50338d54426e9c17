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
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import Dataset
from dadagrad.data.skipping import SkippingDataset
from dadagrad.errors import DadagradError, InputError, TrainingError
from dadagrad.training.begin import AnyCoordinator
from dadagrad.training.dask_flight import InFlight
from dadagrad.training.dask_messages import Read, Touched, Work, Worked, n_bytes, unpacked
from dadagrad.training.dask_tasks import (
    Job,
    compute_pieces,
    forget,
    open_partitions,
    prepare,
    same,
)
from dadagrad.training.placement import Placement, worthwhile_tasks
from dadagrad.training.plan import Piece
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
    WalkedShare,
    WeightsInState,
)
from dadagrad.training.result_checks import problem_with
from dadagrad.training.shares import ShareInState
from dadagrad.training.touched import unpack
from dadagrad.training.watch import Watcher

logger = logging.getLogger(__name__)

PREPARE_SECONDS = 120.0
"""How long the workers may take to load what they need before the run begins without that."""

FORGET_SECONDS = 5.0
"""How long the workers may take to let go of a run."""

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

    Attributes
    ----------
    bytes_moved : int
        What the arrays took that were sent and received for the steps: weights, gradients, and
        which features they are of. Reading partitions is not counted.
    """

    def __init__(
        self, client: Any, data: Dataset, coordinator: AnyCoordinator, watcher: Watcher
    ) -> None:
        self._client = client
        self._data = data
        self._coordinator = coordinator
        self._watcher = watcher
        self._run = uuid.uuid4().hex
        self._flight = InFlight(client, self._run)
        self._spent: list[Any] = []
        self._spent_bytes = 0
        method = coordinator.method
        config = method.config
        assert isinstance(config.batch_size, int)
        entries = config.batch_size * data.nnz / data.n_rows
        if config.exchange == "local-steps":
            # Of a mean round of the first pass; a walk takes three times a gradient's time.
            entries = 3 * data.nnz / config.rounds
        tasks = worthwhile_tasks(entries * method.n_outputs)
        self._placement = Placement(client.nthreads(), tasks, coordinator.turns)
        # By open visit and first row, what the pieces touch that come next: only those weights are
        # sent.
        self._touched: dict[int, dict[int, NDArray[np.int32]]] = {}
        self.bytes_moved = 0
        self._fingerprint = data.fingerprint
        # Sent once. As the result of a task, it is made again should its worker be lost.
        job = Job(data, self._fingerprint, method)
        self._job = client.submit(same, job, key=f"dadagrad-job-{self._run}", pure=False)

    def run(self) -> bool:
        """Drive the coordinator until it finishes; True if the run is complete."""
        try:
            self._prepare()
            self._watcher.begin()
            complete = self._go_on_after(self._coordinator.start())
            while complete is None:
                complete = self._handle(self._next_events())
            return complete
        finally:
            self._clean_up()

    def _prepare(self) -> None:
        """Have the workers load and compile what they need, before the clock runs."""
        try:
            answers = self._client.run(
                prepare,
                self._coordinator.method,
                on_error="return",
                callback_timeout=PREPARE_SECONDS,
            )
        except (OSError, TimeoutError) as error:  # the run itself finds out what is wrong
            logger.warning("not all workers are known to be ready: %r", error)
            return
        errors = [answer for answer in answers.values() if isinstance(answer, Exception)]
        if any(isinstance(error, OSError) for error in errors):  # a worker that has gone meanwhile
            return
        if errors and len(errors) == len(answers):
            raise InputError(
                f"the workers of the cluster cannot load dadagrad ({errors[0]}); install the "
                "release there that runs here"
            ) from errors[0]

    def _handle(self, events: list[Event]) -> bool | None:
        for event in events:
            complete = self._go_on_after(self._coordinator.handle(event))
            if complete is not None:
                return complete
        return None

    def _go_on_after(self, instructions: list[Instruction]) -> bool | None:
        """Carry out `instructions` and all that need no event; as `_carry_out`."""
        while instructions:
            complete = self._carry_out(instructions)
            if complete is not None:
                return complete
            instructions = self._coordinator.go_on()
        return None

    def _next_events(self) -> list[Event]:
        request = self._watcher.request()
        if request is not None:
            return [request]
        threads = self._flight.new_look()
        if threads is not None:
            self._placement.update(threads)
        arrived = self._flight.take()
        if any(future.status != "finished" for future in self._spent):
            self._let_go()  # its worker has gone: others would do it again before anything else
        if arrived is None:
            return []
        future, as_events, result = arrived
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
        opens = {one.visit: one for one in instructions if isinstance(one, Open)}
        for one in opens.values():
            self._placement.open(one.visit, one.partition, one.moment)
        moments = {visit: one.moment for visit, one in opens.items()}
        for worker, visits in self._placement.readings(moments):
            self._open(worker, tuple(opens[visit] for visit in visits))
        for instruction in instructions:
            match instruction:
                case Close(visit):
                    # Workers keep what they read last; nothing there has to be let go.
                    del self._touched[visit]
                    self._placement.close(visit)
                case Report() | Save():
                    self._watcher.handle(instruction)
                case Finish(complete):
                    return complete
        if len(self._spent) > SPENT_TASKS or self._spent_bytes > SPENT_BYTES:
            self._let_go()
        return None

    def _let_go(self) -> None:
        """Let go of the results that have arrived."""
        self._spent.clear()
        self._spent_bytes = 0

    def _open(self, worker: str | None, opens: tuple[Open, ...]) -> None:
        """Have one worker read partitions."""

        def opened(read: Read) -> list[Event]:
            self._skip(read.skipped)
            events: list[Event] = []
            for one, packed, touched in zip(opens, read.vocabularies, read.touched, strict=True):
                self._placement.found(one.visit, one.partition, read.worker)
                self._touched[one.visit] = {}
                for piece, positions in zip(one.ahead, touched, strict=True):
                    self._note_touched(piece, positions)
                self._spent_bytes += packed.nbytes
                events.append(Opened(one.visit, unpack(packed, np.int64)))
            return events

        # What is computed goes first, also if it comes later.
        arguments = (self._job, self._run, opens)
        self._flight.submit(opened, worker, open_partitions, *arguments, priority=-1)

    def _send(self, worker: str | None, computes: list[Compute]) -> None:
        """Have one worker work on some of the pieces of a step."""
        work = Work(
            self._run,
            tuple(compute.piece for compute in computes),
            tuple(self._given(compute) for compute in computes),
            tuple(compute.ahead for compute in computes),
            self._data.skipped if isinstance(self._data, SkippingDataset) else {},
        )
        self.bytes_moved += sum(map(n_bytes, work.given))
        doubts: list[str] = []

        def computed(worked: Worked | None) -> list[Event]:
            if worked is None:  # it went to a worker that never opened a partition of this run
                self._flight.submit(computed, worker, compute_pieces, work, self._job)
                return []
            self._skip(worked.skipped)
            taken = sum(map(n_bytes, worked.results))
            self._spent_bytes += taken
            self.bytes_moved += taken
            results = [unpacked(result) for result in worked.results]
            doubt = self._doubt(computes, results, worked.worker)
            if doubt is not None:
                doubts.append(doubt)
                if len(doubts) > 1:
                    raise TrainingError(" and again: ".join(doubts))
                logger.warning("%s; it is computed again", doubt)
                other = self._placement.other(worked.worker)
                self._flight.submit(computed, other, compute_pieces, work, self._job)
                return []
            for compute, touched in zip(computes, worked.touched, strict=True):
                piece = compute.piece
                self._placement.found(piece.visit, piece.partition, worked.worker)
                if compute.ahead is not None:
                    self._note_touched(compute.ahead, touched)
            return [
                Computed(compute.task, result)
                for compute, result in zip(computes, results, strict=True)
            ]

        self._flight.submit(computed, worker, compute_pieces, work)

    def _skip(self, skipped: Mapping[str, str]) -> None:
        """Take note that a worker skips partitions: from now on all do."""
        if isinstance(self._data, SkippingDataset):
            self._data.skip(skipped)

    def _doubt(self, computes: list[Compute], results: list[Result], worker: str) -> str | None:
        """What cannot be right of what a worker sent; None if all can."""
        for compute, result in zip(computes, results, strict=True):
            if isinstance(result, Gradient | WalkedShare) and isinstance(
                compute.given, WeightsInState | ShareInState
            ):
                what = "gradient" if isinstance(result, Gradient) else "walk"
                piece, vocabulary = compute.piece, compute.given.vocabulary
                problem = problem_with(result, self._coordinator.method, piece, vocabulary)
                if problem is not None:
                    return (
                        f"{self._data.url}, partition {self._data.partitions[piece.partition].name}"
                        f", rows {piece.start} to {piece.stop - 1}: the {what} that worker "
                        f"{worker} sent cannot be right: {problem}"
                    )
        return None

    def _given(self, compute: Compute) -> Given:
        """What a piece is worked on with, as it is sent."""
        if not isinstance(compute.given, WeightsInState | ShareInState):
            return compute.given
        piece = compute.piece
        return compute.given.at(self._touched[piece.visit].pop(piece.start, None))

    def _note_touched(self, piece: Piece, touched: Touched) -> None:
        """Keep what a piece to come touches until its weights are sent."""
        if touched is not None:
            self._touched[piece.visit][piece.start] = unpack(touched, np.int32)
            self.bytes_moved += touched.nbytes

    def _clean_up(self) -> None:
        """Leave nothing on workers that outlive the run; a cluster that is gone has nothing."""
        self._spent.clear()
        self._flight.stop()
        if self._flight.is_lost:
            return
        try:
            self._client.cancel([self._job])
            self._client.run(
                forget,
                self._run,
                self._fingerprint,
                on_error="ignore",
                callback_timeout=FORGET_SECONDS,
            )
        except (OSError, TimeoutError, RuntimeError) as error:
            logger.debug("could not clean up the workers: %s", error)
