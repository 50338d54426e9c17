"""Tasks of batches: reading partitions, and gradients of slices at weights that were sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from distributed import get_worker

from dadagrad.data.rows import Rows
from dadagrad.kernels.id_sets import common, pack
from dadagrad.training.engines.dask.messages import Reply, Touched
from dadagrad.training.engines.dask.tasks import Job, errors_returned, job_of
from dadagrad.training.messages import Open, Result
from dadagrad.training.schedule.base import Slice
from dadagrad.training.state.slices import FeatureSlice, SentFeatures
from dadagrad.training.trace import Measured
from dadagrad.training.worker.compute import compute, touched


@dataclass(frozen=True, slots=True)
class Work:
    """Slices of one step, for one task of `run`.

    The `inputs` of slices are weights. The worker reports the features that the slice `following`
    it in its partition touches. `skipped` has the partitions that the run skips, and the reasons.
    """

    run: str
    slices: tuple[Slice, ...]
    inputs: tuple[SentFeatures, ...]
    following: tuple[Slice | None, ...]
    skipped: Mapping[str, str]


@errors_returned
def open_partitions(job: Job, run: str, opens: tuple[Open, ...]) -> Reply:
    """Read partitions; replies with their vocabularies, and what the first slices touch."""
    job_of(run, job, {})
    vocabularies, positions = [], []
    measured = Measured(get_worker().address)
    for instruction in opens:
        rows = job.rows(instruction.partition, measured)
        vocabularies.append(pack(rows.vocabulary))
        positions.append(tuple(_touched(rows, slice_) for slice_ in instruction.first_slices))
    return Reply(
        measured.process,
        *job.skipped_and_content(each.partition for each in opens),
        tuple(vocabularies),
        tuple(positions),
        measured.tasks,
    )


@errors_returned
def compute_slices(work: Work, job: Job | None = None) -> Reply | None:
    """Compute the gradients of slices; None if this worker does not know the `job`.

    Each slice keeps its own result: which workers computed what must not change the order of sums.
    """
    job = job_of(work.run, job, work.skipped)
    if job is None:
        return None
    measured = Measured(get_worker().address)
    results, positions = [], []
    for slice_, weights, following in zip(work.slices, work.inputs, work.following, strict=True):
        rows = job.rows(slice_.partition, measured)
        with measured("learn", reading=slice_.reading, rows=slice_.n_rows):
            result = compute(job.problem, rows, slice_, weights, job.place_of(slice_))
        results.append(_packed(result, rows))
        job.done_with(slice_)
        positions.append(None if following is None else _touched(rows, following))
    return Reply(
        measured.process,
        *job.skipped_and_content(each.partition for each in work.slices),
        tuple(results),
        tuple(positions),
        measured.tasks,
    )


def _packed(result: Result, rows: Rows) -> Result:
    """Return a gradient with packed positions in the vocabulary in place of features."""
    assert isinstance(result.change, FeatureSlice)
    positions = common(rows.vocabulary, result.change.ids)[0]
    packed = FeatureSlice(pack(positions.astype(np.int32)), result.change.content)
    return replace(result, change=packed)


def _touched(rows: Rows, slice_: Slice) -> Touched:
    positions = touched(rows, slice_)
    return None if positions is None else pack(positions)
