"""What a run keeps in its checkpoints, and how it is read back."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from itertools import islice
from types import TracebackType
from typing import Any

from dadagrad.config import TrainConfig
from dadagrad.data.dataset import Dataset, MemoryDataset
from dadagrad.data.skipping import SkippingDataset
from dadagrad.errors import CorruptionError
from dadagrad.method import Method
from dadagrad.training.begin import AnyPlan
from dadagrad.training.checkpoint import CheckpointWriter, Snapshot
from dadagrad.training.gradient_sums import RoundSum
from dadagrad.training.pending import (
    pending_arrays,
    pending_facts,
    restore_pending,
    split_arrays,
)
from dadagrad.training.plan import Cursor
from dadagrad.training.protocol import Save
from dadagrad.training.states import TrainingState, restore_state
from dadagrad.training.streams import StreamPlan
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
    new : bool
        For a run that begins, and not one that goes on: nobody else may begin one there.
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
        self.url = url
        self.config = config
        self._data = {"url": lasting_url(data), "fingerprint": data.fingerprint}
        self._notes = notes
        # Partitions that are skipped, now and later; None where they are not.
        self._skipped = data.skipped if isinstance(data, SkippingDataset) else None
        self._writer = CheckpointWriter(url, keep=keep, new=new)

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

    def check(self) -> None:
        """Raise what went wrong with a write in the background: no need to go on then."""
        self._writer.check()

    def save(self, save: Save, seconds: float) -> None:
        """Have a state written; it is copied before this returns."""
        meta = self._meta() | {
            "cursor": asdict(save.cursor),
            "steps": save.steps,
            "tally": save.tally.to_json(),
            "t": save.state.t,
            "seconds": seconds,
            "pending": pending_facts(save.pending),
        }
        arrays = save.state.arrays | pending_arrays(save.pending)
        self._writer.submit(Snapshot(save.steps, arrays, meta))

    def _meta(self) -> dict[str, Any]:
        meta = {"config": self.config.to_json(), "data": self._data, "notes": self._notes}
        return meta | ({} if self._skipped is None else {"skipped": dict(self._skipped)})


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
    pending: tuple[RoundSum, ...] = ()


def restore(snapshot: Snapshot, method: Method, plan: AnyPlan, where: str) -> Start:
    """Where the run of `snapshot` was; raises `CorruptionError` if it does not say so."""
    meta = snapshot.meta
    arrays, of_pending = split_arrays(snapshot.arrays)
    try:
        state = restore_state(method, arrays, meta["t"])
        cursor = Cursor(**meta["cursor"])
        pending = restore_pending(method, of_pending, meta.get("pending", []))
        if pending and isinstance(plan, StreamPlan):
            raise ValueError("local steps leave no rounds under way")
        under_way = sum(not done.stepped for done in pending)
        if len(list(islice(plan.rounds(cursor), under_way))) < under_way:
            raise ValueError(f"{under_way} rounds were under way, which is more than are left")
        return Start(
            state, cursor, meta["steps"], Tally.from_json(meta["tally"]), meta["seconds"], pending
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(
            f"the checkpoint of step {snapshot.step} at {where} is not one of training: {error!r}"
        ) from None
