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
from dadagrad.training.engines.dask.driver import DaskDriver
from dadagrad.training.engines.dask.messages import Reply, Touched, Work, n_bytes, validate
from dadagrad.training.engines.dask.tasks import compute_slices
from dadagrad.training.messages import Compute, Computed, Event, Open, Result
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

    def _note_opened(self, opens: tuple[Open, ...], reply: Reply) -> None:
        for instruction, ids, touched in zip(opens, reply.results, reply.touched, strict=True):
            for slice_, positions in zip(instruction.first_slices, touched, strict=True):
                self._note_touched(slice_, positions)
            self._spent_bytes += ids.nbytes
            self._vocabularies[instruction.reading] = unpack(ids, np.int64)

    def _note_closed(self, reading: int) -> None:
        del self._vocabularies[reading]

    def _send(self, worker: str | None, computes: list[Compute]) -> None:
        inputs = tuple(self._weights_to_send(compute) for compute in computes)
        work = Work(
            self._run,
            tuple(compute.slice_ for compute in computes),
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
                slice_ = compute.slice_
                self._placement.read_by(slice_.reading, slice_.partition, reply.worker)
                if compute.following is not None:
                    self._note_touched(compute.following, touched)
            events: list[Event] = []
            for compute, result in zip(computes, results, strict=True):
                ids = look_up(self._vocabularies[compute.slice_.reading], result.change.ids)
                result = replace(result, change=replace(result.change, ids=ids))
                events.append(Computed(compute.task, result))
            return events

        self._submit_work(to_events, worker, compute_slices, work)

    def _validate(self, computes: list[Compute], results: list[Result], worker: str) -> str | None:
        """Explain which result of a worker is wrong, and why; None if all can be right."""
        for compute, result in zip(computes, results, strict=True):
            slice_, vocabulary = compute.slice_, self._vocabularies[compute.slice_.reading]
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
        reading = compute.slice_.reading
        touched = self._touched.pop((reading, compute.slice_.start), None)
        return compute.input.send(self._vocabularies[reading], touched)

    def _note_touched(self, slice_: Slice, touched: Touched) -> None:
        """Store the positions that a later slice touches until its weights are sent."""
        if touched is not None:
            self._touched[slice_.reading, slice_.start] = unpack(touched, np.int32)
            self.bytes_moved += touched.nbytes
