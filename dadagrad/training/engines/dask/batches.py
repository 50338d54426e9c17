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
from dadagrad.training.messages import Compute, Computed, Event, Open, Opened, Result
from dadagrad.training.schedule.base import Slice
from dadagrad.training.state.slices import FeatureSlice, SentFeatures, SharedFeatures
from dadagrad.training.trace import Measured
from dadagrad.training.worker.compute import compute, touched

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenWork(Work):
    """Partitions to be read by one task."""

    opens: tuple[Open, ...]


@dataclass(frozen=True, slots=True)
class SliceWork(Work):
    """Slices of one step, for one task.

    The `inputs` of slices are weights. The worker reports the features that the slice `following`
    it in its partition touches.
    """

    slices: tuple[Slice, ...]
    inputs: tuple[SentFeatures, ...]
    following: tuple[Slice | None, ...]


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
    for slice_, weights, following in zip(work.slices, work.inputs, work.following, strict=True):
        rows = job.rows(slice_.partition, measured)
        with measured("learn", reading=slice_.reading, rows=slice_.n_rows):
            result = compute(job.problem, rows, slice_, weights, job.place_of(slice_))
        results.append(_packed(result, rows))
        job.done_with(slice_)
        positions.append(None if following is None else _touched(rows, following))
    partitions = [each.partition for each in work.slices]
    return job.reply(partitions, results, touched=tuple(positions), tasks=measured.tasks)


def _packed(result: Result, rows: Rows) -> Result:
    """Return a gradient with packed positions in the vocabulary in place of features."""
    assert isinstance(result.change, FeatureSlice)
    positions = common(rows.vocabulary, result.change.ids)[0]
    packed = FeatureSlice(pack(positions.astype(np.int32)), result.change.content)
    return replace(result, change=packed)


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
        readings = [each.slices[0].reading for each in computes]
        for worker, places in self._placement.tasks_of(readings):
            self._send(worker, [computes[place] for place in places])
        by_reading = {each.reading: each for each in opens}
        for reading, opening in by_reading.items():
            self._placement.open(reading, opening.partition)
        needed_at = {reading: opening.needed_at for reading, opening in by_reading.items()}
        for worker, readings in self._placement.reading_groups(needed_at):
            self._open(worker, tuple(by_reading[reading] for reading in readings))

    def _open(self, worker: str | None, opens: tuple[Open, ...]) -> None:
        """Submit the reading of partitions."""

        def to_events(reply: Reply) -> list[Event]:
            self._note(reply)
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
        slices = tuple(each.slices[0] for each in computes)
        inputs = tuple(self._weights_to_send(each) for each in computes)
        following = tuple(each.following for each in computes)
        skipped = skipped_partitions(self._data)
        work = SliceWork(self._run, skipped, slices, inputs, following)
        self.bytes_moved += sum(map(n_bytes, inputs))
        errors: list[str] = []

        def to_events(reply: Reply) -> list[Event]:
            self._note(reply)
            size = sum(map(n_bytes, reply.results))
            self._spent_bytes += size
            self.bytes_moved += size
            results = []
            for result in reply.results:
                ids = unpack(result.change.ids, np.int32)
                results.append(replace(result, change=replace(result.change, ids=ids)))
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
                ids = look_up(self._vocabularies[slice_.reading], result.change.ids)
                result = replace(result, change=replace(result.change, ids=ids))
                events.append(Computed(instruction.task, (result,)))
            return events

        self._pending.submit(to_events, compute_slices, work, worker)

    def _validate(self, computes: list[Compute], results: list[Result], worker: str) -> str | None:
        """Explain which result of a worker is wrong, and why; None if all can be right."""
        for instruction, result in zip(computes, results, strict=True):
            (slice_,) = instruction.slices
            vocabulary = self._vocabularies[slice_.reading]
            reason = validate(result, self._coordinator.problem, slice_, vocabulary)
            if reason is not None:
                name = self._data.partitions[slice_.partition].name
                return (
                    f"{self._data.url}, partition {name}, rows {slice_.start} to "
                    f"{slice_.stop - 1}: the gradient that worker {worker} sent cannot be right: "
                    f"{reason}"
                )
        return None

    def _weights_to_send(self, instruction: Compute) -> SentFeatures:
        """Return the weights that a slice needs, to be sent."""
        assert isinstance(instruction.input, SharedFeatures)
        (slice_,) = instruction.slices
        positions = self._touched.pop((slice_.reading, slice_.start), None)
        return instruction.input.send(self._vocabularies[slice_.reading], positions)

    def _note_touched(self, slice_: Slice, positions: Touched) -> None:
        """Store the positions that a later slice touches until its weights are sent."""
        if positions is not None:
            self._touched[slice_.reading, slice_.start] = unpack(positions, np.int32)
            self.bytes_moved += positions.nbytes
