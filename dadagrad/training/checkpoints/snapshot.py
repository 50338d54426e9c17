"""Content of a training run's checkpoints."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dadagrad.config import TrainConfig
from dadagrad.data.dataset import IN_MEMORY, Dataset
from dadagrad.data.skipping import SkippingDataset
from dadagrad.data.units import Units
from dadagrad.errors import CorruptionError, InputError
from dadagrad.model.model import decode_names, encode_names
from dadagrad.problem import Problem
from dadagrad.settings import Number
from dadagrad.storage.backends import absolute
from dadagrad.training.callbacks import LearningCurve
from dadagrad.training.checkpoints.manifest import Snapshot
from dadagrad.training.checkpoints.shards import join_shards, stored_state
from dadagrad.training.checkpoints.writer import CheckpointWriter
from dadagrad.training.holdout import Holdout
from dadagrad.training.messages import Place, Save
from dadagrad.training.progressive import ProgressiveMetrics
from dadagrad.training.schedule.base import Cursor
from dadagrad.training.state import zero_state
from dadagrad.training.state.base import TrainingState
from dadagrad.training.state.compiled import State

_BEST, _NAMES = "best.", "feature_names"
"""Prefix of the arrays of `HoldoutRecord.best`, and the array of the names of features."""


@dataclass(slots=True)
class HoldoutRecord:
    """Loss on the holdout after each pass, and a copy of the state after the best of them."""

    losses: list[float] = field(default_factory=list)
    best: TrainingState | None = None

    @property
    def n_passes(self) -> int | None:
        """Passes until the best state, the last of those; None if no loss was measured."""
        losses = self.losses
        return len(losses) - losses[::-1].index(min(losses)) if losses else None


class CheckpointSaver(CheckpointWriter):
    """Writer of a training run's checkpoints, with the plain JSON `notes` of the user.

    A checkpoint is due after `every` steps or, where that is None, so many `seconds`.
    `config` and `units` are replaced when they have been chosen on the first rows. `names` are
    those of features of the initial model.
    """

    def __init__(
        self,
        url: str,
        data: Dataset,
        config: TrainConfig,
        *,
        keep: int,
        notes: dict[str, Any],
        every: int | None = None,
        seconds: float | None = None,
        new: bool = False,
        holdout: Holdout | None = None,
    ) -> None:
        Number(whole=True, minimum=1, optional=True).convert("save_every", every)
        Number(above=0.0, optional=True).convert("save_seconds", seconds)
        super().__init__(url, keep=keep, new=new)
        self.every, self.seconds = every, None if every is not None else seconds
        self.config = config
        self.units = Units()
        self.names: Mapping[int, str] = {}
        self._source = data
        other = None
        if holdout is not None and holdout.data is not None:
            place = holdout.url or _lasting_url(holdout.data)
            other = {"url": place, "digest": holdout.data.digest}
        schema, digest = data.schema.to_json(), data.digest
        self._meta = {
            "data": {"url": _lasting_url(data), "digest": digest, "schema": schema},
            "holdout_data": other,
            "notes": notes,
        }
        self.record = HoldoutRecord()
        self.curve = LearningCurve()

    def begin(self, start: Start | None, units: Units) -> None:
        """Save a first checkpoint, to resume from: without a state, or with that of `start`.

        `units` are those of that state (`Problem.units`).
        """
        if start is None:
            self.save(Snapshot(0, {}, self._current_meta()))
        else:
            self.units, self.names = units, start.names
            self.submit_state(Save(start.place, start.state), 0.0)

    def submit_state(self, save: Save, seconds: float) -> None:
        """Copy a state and save it in the background; `seconds` is the time of the run so far."""
        meta = self._current_meta() | {
            "cursor": asdict(save.place.cursor),
            "steps": save.place.steps,
            "passes": [metrics.to_json() for metrics in save.place.passes],
            "earlier": None if save.place.earlier is None else save.place.earlier.to_json(),
            "t": save.state.t,
            "seconds": seconds,
            "holdout_losses": list(self.record.losses),
            "curve": self.curve.to_json(),
        }
        arrays, best = save.state.arrays, self.record.best
        if save.write_shards is not None:
            assert isinstance(save.state, State), "workers hold compiled states alone"
            arrays = save.state.common().arrays
        arrays |= self.units.arrays
        if self.names:
            arrays |= {_NAMES: encode_names(self.names)}
        if best is not None:
            arrays |= {_BEST + name: array for name, array in best.arrays.items()}
            meta["best_t"] = best.t
        self.submit(Snapshot(save.place.steps, arrays, meta, save.write_shards))

    def _current_meta(self) -> dict[str, Any]:
        meta = {"config": self.config.to_json(), **self._meta}
        if isinstance(self._source, SkippingDataset):  # else damaged partitions are errors
            meta["skipped"] = dict(self._source.skipped)
        if content := self._source.content:
            meta["content"] = dict(content)
        return meta


def check_settings(before: Mapping[str, Any], config: TrainConfig, place: str) -> None:
    """Raise `InputError` if the run at `place` has other settings, `before`, than `config`.

    "auto" stands for anything that the run has chosen.
    """
    differences = [
        f"{name} is {before.get(name)!r} there and {value!r} here"
        for name, value in config.to_json().items()
        if value not in ("auto", before.get(name))
    ]
    if differences:
        raise InputError(
            f"the run at {place} has other settings: {', '.join(differences)}; give the same "
            "settings to resume it, or another folder of checkpoints for a new run"
        )


def check_same_data(
    name: str, data: Dataset, described: Mapping[str, Any] | None, place: str
) -> None:
    """Raise `InputError` unless `data` are those that the checkpoints at `place` describe."""
    digest = "none" if described is None else described["digest"]
    if data.digest != digest:
        remedy = "restore the data, or start a new run"
        if data.is_temporary:  # how rows were read, and by whom, is not in checkpoints
            remedy = (
                "give the same rows with the options that read them, and as the run began: on "
                "threads, or on workers"
            )
        raise InputError(
            f"the {name} at {data.url} is not what the run at {place} was started with: its digest "
            f"is {data.digest[:12]}, the checkpoint has {digest[:12]}; {remedy}"
        )


def _lasting_url(data: Dataset) -> str | list[str]:
    """Return the addresses of `data` for a process in any folder, or `IN_MEMORY`."""
    if data.is_temporary:
        return IN_MEMORY
    urls = [absolute(source.url) for source in data.sources]
    return urls if len(urls) > 1 else urls[0]


@dataclass(frozen=True, slots=True)
class Start:
    """State, place, record of the holdout and curve from which a run starts or resumes."""

    state: TrainingState
    place: Place = field(default_factory=Place)
    seconds: float = 0.0
    record: HoldoutRecord = field(default_factory=HoldoutRecord)
    curve: LearningCurve = field(default_factory=LearningCurve)
    names: Mapping[int, str] = field(default_factory=dict)
    """Names of features of the initial model."""


def restore(snapshot: Snapshot, problem: Problem, place: str) -> tuple[Problem, Start]:
    """Return the problem in the units of the state, and the start of the run of `snapshot`.

    `CorruptionError` if the snapshot is not one of `problem`.
    """
    restored: TrainingState
    meta, arrays = snapshot.meta, dict(snapshot.arrays)
    try:
        units = Units.take(arrays, problem.n_features, len(problem.label_columns))
        names = decode_names(arrays.pop(_NAMES)) if _NAMES in arrays else {}
        state = {name: array for name, array in arrays.items() if not name.startswith(_BEST)}
        best_arrays = {
            name.removeprefix(_BEST): array for name, array in arrays.items() if name not in state
        }
        problem = problem.with_units(units)
        best = None
        if best_arrays:
            best = zero_state(problem).restored(best_arrays, meta["best_t"])
        if snapshot.unread:
            common = State.zero(problem, 0).restored(state, meta["t"])
            step = f"{place}: step {snapshot.step}"
            url = absolute(os.fspath(place))  # for workers in other folders
            restored = stored_state(problem, common, snapshot.unread, url, step)
        else:
            restored = zero_state(problem).restored(join_shards(state), meta["t"])
        passes = tuple(map(ProgressiveMetrics.from_json, meta["passes"]))
        earlier = meta["earlier"] and ProgressiveMetrics.from_json(meta["earlier"])
        return problem, Start(
            restored,
            Place(Cursor(**meta["cursor"]), meta["steps"], passes, earlier),
            meta["seconds"],
            HoldoutRecord(list(map(float, meta["holdout_losses"])), best),
            LearningCurve.from_json(meta["curve"]),
            names,
        )
    except (LookupError, TypeError, ValueError) as error:
        raise CorruptionError(
            f"the checkpoint of step {snapshot.step} at {place} is not one of training: {error!r}"
        ) from None
