"""What a run keeps in its checkpoints, and how it is read back."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

from dadagrad.config import TrainConfig
from dadagrad.data.dataset import Dataset, MemoryDataset
from dadagrad.errors import CorruptionError
from dadagrad.method import Method
from dadagrad.training.checkpoint import CheckpointWriter, Snapshot
from dadagrad.training.plan import Cursor
from dadagrad.training.protocol import Save
from dadagrad.training.states import TrainingState, restore_state
from dadagrad.training.tally import Tally

IN_MEMORY = "memory"
"""What stands for the URL of data that has none."""


class CheckpointSaver:
    """Turns what the coordinator wants kept into snapshots, written in the background.

    A context manager: at its end all that was saved is committed.

    Parameters
    ----------
    url : str
        The folder of the run.
    data : Dataset
    config : TrainConfig
        To be replaced when the step size has been chosen.
    keep : int
        Checkpoints that are kept.
    notes : dict
        Plain JSON that goes along.
    """

    def __init__(
        self, url: str, data: Dataset, config: TrainConfig, *, keep: int, notes: dict[str, Any]
    ) -> None:
        self.url = url
        self.config = config
        self._data = {"url": lasting_url(data), "fingerprint": data.fingerprint}
        self._notes = notes
        self._writer = CheckpointWriter(url, keep=keep)

    def __enter__(self) -> CheckpointSaver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.__exit__(kind, error, trace)

    def begin(self) -> None:
        """Leave a first checkpoint without state: from here on the run can be resumed."""
        self._writer.save(Snapshot(0, {}, self._meta()))

    def save(self, save: Save, seconds: float) -> None:
        """Have a state written; it is copied before this returns."""
        meta = self._meta() | {
            "cursor": asdict(save.cursor),
            "steps": save.steps,
            "tally": save.tally.to_json(),
            "t": save.state.t,
            "seconds": seconds,
        }
        self._writer.submit(Snapshot(save.steps, save.state.arrays, meta))

    def _meta(self) -> dict[str, Any]:
        return {"config": self.config.to_json(), "data": self._data, "notes": self._notes}


def lasting_url(data: Dataset) -> str:
    """The address of `data` for a process in another folder; `IN_MEMORY` if it has none."""
    if isinstance(data, MemoryDataset):
        return IN_MEMORY
    local = "://" not in data.url and os.path.exists(data.url)
    return os.path.abspath(data.url) if local else data.url


@dataclass(frozen=True, slots=True)
class Start:
    """Where a run starts, or starts again."""

    state: TrainingState
    cursor: Cursor
    steps: int = 0
    tally: Tally | None = None
    seconds: float = 0.0


def restore(snapshot: Snapshot, method: Method, where: str) -> Start:
    """Where the run of `snapshot` was; raises `CorruptionError` if it does not say so."""
    meta, arrays = snapshot.meta, snapshot.arrays
    try:
        state = restore_state(method, arrays, meta["t"])
        return Start(
            state,
            Cursor(**meta["cursor"]),
            meta["steps"],
            Tally.from_json(meta["tally"]),
            meta["seconds"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(
            f"the checkpoint of step {snapshot.step} at {where} is not one of training: {error!r}"
        ) from None
