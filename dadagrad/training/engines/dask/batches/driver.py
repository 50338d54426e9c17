"""Batches on a Dask cluster: weights go to the workers, gradients come back."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.skipping import skipped_partitions
from dadagrad.errors import TrainingError
from dadagrad.kernels.id_sets import look_up, unpack
from dadagrad.training.engines.dask.batches.tasks import Work, compute_slices, open_partitions
from dadagrad.training.engines.dask.driver import DaskDriver
from dadagrad.training.engines.dask.messages import Reply, Touched, n_bytes, validate
from dadagrad.training.messages import Compute, Computed, Event, Open, Opened, Result
from dadagrad.training.schedule.base import Slice
from dadagrad.training.state.slices import SentFeatures, SharedFeatures

logger = logging.getLogger(__name__)


class BatchDriver(DaskDriver):
    """Driver of a run whose state is on the client."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Positions that the next slices touch, by reading and first row: only their weights are
        # sent.
        self._touched: dict[tuple[int, int], NDArray[np.int32]] = {}
        self._vocabularies: dict[int, NDArray[np.int64]] = {}

    def _send_all(self, computes: list[Compute], opens: list[Open]) -> None:
        readings = [compute.slices[0].reading for compute in computes]
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
            for instruction, ids, touched in zip(opens, reply.results, reply.touched, strict=True):
                reading = instruction.reading
                self._placement.read_by(reading, instruction.partition, reply.worker)
                for slice_, positions in zip(instruction.first_slices, touched, strict=True):
                    self._note_touched(slice_, positions)
                self._spent_bytes += ids.nbytes
                self._vocabularies[reading] = unpack(ids, np.int64)
            return [Opened(instruction.reading) for instruction in opens]

        # Computations go before reading, even if they are submitted later.
        arguments = (self._job, self._run, opens)
        self._pending.submit(to_events, worker, open_partitions, *arguments, priority=-1)

    def _note_closed(self, reading: int) -> None:
        del self._vocabularies[reading]

    def _send(self, worker: str | None, computes: list[Compute]) -> None:
        """Submit some slices of a step as one task."""
        slices = tuple(compute.slices[0] for compute in computes)
        inputs = tuple(self._weights_to_send(compute) for compute in computes)
        work = Work(
            self._run,
            slices,
            inputs,
            tuple(compute.following for compute in computes),
            skipped_partitions(self._data),
        )
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
                self._submit_work(to_events, another, compute_slices, work)
                return []
            for compute, touched in zip(computes, reply.touched, strict=True):
                (slice_,) = compute.slices
                self._placement.read_by(slice_.reading, slice_.partition, reply.worker)
                if compute.following is not None:
                    self._note_touched(compute.following, touched)
            events: list[Event] = []
            for compute, result in zip(computes, results, strict=True):
                ids = look_up(self._vocabularies[compute.slices[0].reading], result.change.ids)
                result = replace(result, change=replace(result.change, ids=ids))
                events.append(Computed(compute.task, (result,)))
            return events

        self._submit_work(to_events, worker, compute_slices, work)

    def _validate(self, computes: list[Compute], results: list[Result], worker: str) -> str | None:
        """Explain which result of a worker is wrong, and why; None if all can be right."""
        for compute, result in zip(computes, results, strict=True):
            (slice_,) = compute.slices
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

    def _weights_to_send(self, compute: Compute) -> SentFeatures:
        """Return the weights that a slice needs, to be sent."""
        assert isinstance(compute.input, SharedFeatures)
        (slice_,) = compute.slices
        touched = self._touched.pop((slice_.reading, slice_.start), None)
        return compute.input.send(self._vocabularies[slice_.reading], touched)

    def _note_touched(self, slice_: Slice, touched: Touched) -> None:
        """Store the positions that a later slice touches until its weights are sent."""
        if touched is not None:
            self._touched[slice_.reading, slice_.start] = unpack(touched, np.int32)
            self.bytes_moved += touched.nbytes
