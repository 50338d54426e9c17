"""Batches on a Dask cluster: weights go to the workers, gradients of slices come back."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from distributed import get_worker
from numpy.typing import NDArray

from dadagrad.data.rows import Rows
from dadagrad.data.skipping import skipped_partitions
from dadagrad.errors import TrainingError
from dadagrad.kernels.id_sets import common, look_up, pack, unpack
from dadagrad.training.engines.dask.driver import DaskDriver
from dadagrad.training.engines.dask.messages import Reply, Touched, n_bytes, validate
from dadagrad.training.engines.dask.tasks import Job, Work, with_job
from dadagrad.training.engines.trace import Measured
from dadagrad.training.messages import Compute, Computed, Event, Open, Opened, Result
from dadagrad.training.schedule.base import Slice
from dadagrad.training.state.slices import SentFeatures, SharedFeatures
from dadagrad.training.worker.compute import compute, touched

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenWork(Work):
    """Partitions to be read by one task."""

    opens: tuple[Open, ...]


@dataclass(frozen=True, slots=True)
class SliceWork(Work):
    """Slices of one step, for one task, with the weights that they need."""

    computes: tuple[Compute, ...]


@with_job
def open_partitions(work: OpenWork, job: Job) -> Reply:
    """Read partitions; replies with their vocabularies, and what the first slices touch."""
    vocabularies, positions = [], []
    measured = Measured(get_worker().address)
    for instruction in work.opens:
        rows = job.rows(instruction.partition, measured)
        vocabularies.append(pack(rows.vocabulary))
        positions.append(tuple(_touched(rows, slice_) for slice_ in instruction.first_slices))
    partitions = [each.partition for each in work.opens]
    return job.reply(partitions, vocabularies, touched=tuple(positions), tasks=measured.tasks)


@with_job
def compute_slices(work: SliceWork, job: Job) -> Reply:
    """Compute the gradients of slices.

    Each slice keeps its own result: which workers computed what must not change the order of sums.
    """
    measured = Measured(get_worker().address)
    results, positions = [], []
    for each in work.computes:
        (slice_,), following = each.slices, each.following
        rows = job.rows(slice_.partition, measured)
        with measured("learn", reading=slice_.reading, rows=slice_.n_rows):
            place = job.data.place_of(slice_.partition)
            result = compute(job.problem, rows, slice_, each.input, place)
        places = common(rows.vocabulary, result.features.ids)[0]
        results.append(_with_ids(result, pack(places.astype(np.int32))))
        job.done_with(slice_)
        positions.append(None if following is None else _touched(rows, following))
    partitions = [each.slices[0].partition for each in work.computes]
    return job.reply(partitions, results, touched=tuple(positions), tasks=measured.tasks)


def _with_ids(result: Result, ids: NDArray[Any]) -> Result:
    """Return a gradient with other `ids`: features, positions in the vocabulary, or packed ones."""
    return replace(result, change=replace(result.features, ids=ids))


def _touched(rows: Rows, slice_: Slice) -> Touched:
    positions = touched(rows, slice_)
    return None if positions is None else pack(positions)


class BatchDriver(DaskDriver):
    """Driver of a run whose state is on the client."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Positions that the next slices touch, by reading and first row: only their weights are
        # sent.
        self._touched: dict[tuple[int, int], NDArray[np.int32]] = {}
        self._vocabularies: dict[int, NDArray[np.int64]] = {}

    def _send_all(self, computes: list[Compute], opens: list[Open]) -> None:
        for worker, task in self._placement.tasks_of(computes):
            self._send(worker, task)
        for opening in opens:
            self._placement.open(opening.reading, opening.partition)
        for worker, together in self._placement.reading_groups(opens):
            self._open(worker, tuple(together))

    def _open(self, worker: str | None, opens: tuple[Open, ...]) -> None:
        """Submit the reading of partitions."""

        def to_events(reply: Reply) -> list[Event]:
            for instruction, ids, firsts in zip(opens, reply.results, reply.touched, strict=True):
                reading = instruction.reading
                self._placement.read_by(reading, instruction.partition, reply.worker)
                for slice_, positions in zip(instruction.first_slices, firsts, strict=True):
                    self._note_touched(slice_, positions)
                self._spent_bytes += ids.nbytes
                self._vocabularies[reading] = unpack(ids, np.int64)
            return [Opened(instruction.reading) for instruction in opens]

        # Computations go before reading, even if they are submitted later.
        work = OpenWork(self._run, skipped_partitions(self._data), opens)
        self._pending.submit(to_events, open_partitions, work, worker, with_job=True, priority=-1)

    def _note_closed(self, reading: int) -> None:
        del self._vocabularies[reading]

    def _send(self, worker: str | None, computes: list[Compute]) -> None:
        """Submit some slices of a step as one task."""
        sent = tuple(map(self._with_weights, computes))
        work = SliceWork(self._run, skipped_partitions(self._data), sent)
        errors: list[str] = []

        def to_events(reply: Reply) -> list[Event]:
            size = sum(each.change.ids.nbytes + n_bytes(each.change) for each in reply.results)
            self._spent_bytes += size
            self.bytes_moved += size
            results = [_with_ids(each, unpack(each.change.ids, np.int32)) for each in reply.results]
            error = self._validate(computes, results, reply.worker)
            if error is not None:
                errors.append(error)
                if len(errors) > 1:
                    raise TrainingError(" and again: ".join(errors))
                logger.warning("%s; it is computed again", error)
                another = self._placement.another(reply.worker)
                self._pending.submit(to_events, compute_slices, work, another)
                return []
            events: list[Event] = []
            answers = zip(computes, results, reply.touched, strict=True)
            for instruction, result, positions in answers:
                (slice_,) = instruction.slices
                self._placement.read_by(slice_.reading, slice_.partition, reply.worker)
                if instruction.following is not None:
                    self._note_touched(instruction.following, positions)
                ids = look_up(self._vocabularies[slice_.reading], result.features.ids)
                events.append(Computed(instruction.task, (_with_ids(result, ids),)))
            return events

        self._pending.submit(to_events, compute_slices, work, worker)

    def _validate(self, computes: list[Compute], results: list[Result], worker: str) -> str | None:
        """Explain which result of a worker is wrong, and why; None if all can be right."""
        for instruction, result in zip(computes, results, strict=True):
            (slice_,) = instruction.slices
            vocabulary = self._vocabularies[slice_.reading]
            reason = validate(result, self._coordinator.problem, slice_, vocabulary)
            if reason is not None:
                return (
                    f"{self._data.place_of(slice_.partition)}, rows {slice_.start} to "
                    f"{slice_.stop - 1}: the gradient that worker {worker} sent cannot be right: "
                    f"{reason}"
                )
        return None

    def _with_weights(self, instruction: Compute) -> Compute:
        """Return an instruction with the weights that its slice needs, to be sent."""
        assert isinstance(instruction.input, SharedFeatures)
        (slice_,) = instruction.slices
        positions = self._touched.pop((slice_.reading, slice_.start), None)
        content = instruction.input.read(self._vocabularies[slice_.reading], positions).content
        weights = SentFeatures(content, positions is not None)
        self.bytes_moved += n_bytes(weights)
        return replace(instruction, input=weights)

    def _note_touched(self, slice_: Slice, positions: Touched) -> None:
        """Store the positions that a later slice touches until its weights are sent."""
        if positions is not None:
            self._touched[slice_.reading, slice_.start] = unpack(positions, np.int32)
            self.bytes_moved += positions.nbytes
