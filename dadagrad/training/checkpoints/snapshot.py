"""Content of a training run's checkpoints."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from dadagrad.config import TrainConfig
from dadagrad.data.dataset import Dataset, MemoryDataset
from dadagrad.data.skipping import SkippingDataset
from dadagrad.errors import CorruptionError
from dadagrad.problem import Problem
from dadagrad.training.checkpoints.writer import CheckpointWriter, Snapshot
from dadagrad.training.messages import Save
from dadagrad.training.schedule.base import Cursor
from dadagrad.training.state import restore_state
from dadagrad.training.state.base import TrainingState
from dadagrad.training.worker.progressive import ProgressiveMetrics

IN_MEMORY = "memory"
"""URL in the checkpoints of a run whose data are in memory."""


class CheckpointSaver(CheckpointWriter):
    """Writer of a training run's checkpoints, with the plain JSON `notes` of the user.

    `config` is replaced when the step size has been chosen.
    """

    def __init__(
        self,
        url: str,
        data: Dataset,
        config: TrainConfig,
        *,
        keep: int,
        notes: dict[str, Any],
        new: bool = False,
    ) -> None:
        super().__init__(url, keep=keep, new=new)
        self.config = config
        self._data = {"url": lasting_url(data), "digest": data.digest}
        self._notes = notes
        # Skipped partitions, now and later; None if damaged partitions are errors.
        self._skipped = data.skipped if isinstance(data, SkippingDataset) else None
        self._content = data.content

    def begin(self) -> None:
        """Save a first checkpoint without state: from then on the run can be resumed."""
        self.save(Snapshot(0, {}, self._meta()))

    def submit_state(self, save: Save, seconds: float) -> None:
        """Copy a state and save it in the background; `seconds` is the time of the run so far."""
        meta = self._meta() | {
            "cursor": asdict(save.cursor),
            "steps": save.steps,
            "passes": [metrics.to_json() for metrics in save.passes],
            "t": save.state.t,
            "seconds": seconds,
        }
        self.submit(Snapshot(save.steps, save.state.arrays, meta))

    def _meta(self) -> dict[str, Any]:
        meta = {"config": self.config.to_json(), "data": self._data, "notes": self._notes}
        if self._skipped is not None:
            meta["skipped"] = dict(self._skipped)
        return meta | ({"content": dict(self._content)} if self._content else {})


def lasting_url(data: Dataset) -> str:
    """Return the address of `data` for a process in any folder, or `IN_MEMORY`."""
    if isinstance(data, MemoryDataset):
        return IN_MEMORY
    local = "://" not in data.url and os.path.exists(data.url)
    return os.path.abspath(data.url) if local else data.url


@dataclass(frozen=True, slots=True)
class Start:
    """Place, state and metrics of each pass from which a run starts or resumes."""

    state: TrainingState
    cursor: Cursor
    steps: int = 0
    passes: tuple[ProgressiveMetrics, ...] = ()
    seconds: float = 0.0


def restore(snapshot: Snapshot, problem: Problem, place: str) -> Start:
    """Return the start of the run of `snapshot`; `CorruptionError` if it is not of `problem`."""
    meta = snapshot.meta
    try:
        return Start(
            restore_state(problem, snapshot.arrays, meta["t"]),
            Cursor(**meta["cursor"]),
            meta["steps"],
            tuple(ProgressiveMetrics.from_json(metrics) for metrics in meta["passes"]),
            meta["seconds"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(
            f"the checkpoint of step {snapshot.step} at {place} is not one of training: {error!r}"
        ) from None
