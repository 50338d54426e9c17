"""Events of a run, and callbacks that receive them.

Progress on the terminal, the log, the dashboard and a user's own callbacks are the same thing:
objects that are told when a run begins, when a round or a checkpoint is done, and when it ends.
They are called in the thread of the run, between two rounds. They see no state, so that they cannot
change a bit of the model; an error that they raise ends the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from dadagrad.config import TrainConfig
from dadagrad.errors import InputError
from dadagrad.training.progressive import ProgressiveMetrics, best_setting

if TYPE_CHECKING:  # commands load this module before they need a model
    from dadagrad.training.result import TrainResult
    from dadagrad.training.schedule.base import Cursor


@dataclass(frozen=True, slots=True)
class BeginEvent:
    """Begin of a run, or of the rest of it after a resume: all is ready for the first row.

    Attributes
    ----------
    config : TrainConfig
        The settings, in which numbers have taken the place of "auto".
    data : str
        URL of the data.
    task : str
        "binary", "multiclass", "multilabel", "regression" or "ranking".
    rows : int
        Rows of a pass, without those held out.
    rows_done : int
        Rows that were learned from before a resume.
    features, outputs : int
    step_sizes : tuple of float or None
        Step size of each setting that is trained; None for updates without one.
    checkpoints : str or None
        URL of the folder of checkpoints.
    curve : dict
        Learning curve before a resume, as the report of a run has it.
    client : distributed.Client or None
        Client of the cluster on which the run trains. A copy of the event has none.
    """

    config: TrainConfig
    data: str
    task: str
    rows: int
    rows_done: int
    features: int
    outputs: int
    step_sizes: tuple[float | None, ...]
    checkpoints: str | None
    curve: dict[str, Any] = field(default_factory=dict)
    client: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes a copy, which is without the client."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return BeginEvent, tuple((values | {"client": None}).values())

    @property
    def has_errors(self) -> bool:
        """True if rows can be predicted wrong; a regression has losses alone."""
        return self.task != "regression"

    def to_json(self) -> dict[str, Any]:
        """Return the event as plain JSON."""
        names = ("data", "task", "rows", "rows_done", "features", "outputs", "checkpoints")
        return {name: getattr(self, name) for name in names} | {"config": self.config.to_json()}


@dataclass(frozen=True, slots=True)
class RoundEvent:
    """End of a round: a step of a batch, a partition of the online pass, or a merge of streams.

    Each row is predicted before it is learned from. Loss and error of the first pass are therefore
    those of new rows (`first_loss`, `first_error`: the headline of a run); those of later passes
    (`loss`, `error`: of the present pass) are training losses and errors. Of several settings, they
    are those of the setting with the least loss in the first pass.

    Attributes
    ----------
    run : BeginEvent
    steps : int
    cursor : Cursor
        Passes that are complete, and rounds of the next pass.
    passes : tuple of ProgressiveMetrics
        Sums over the rows of each pass so far.
    seconds : float
        Time of the run so far, with the time before a resume.
    rows_per_second : float
        Rate since the run began or was resumed.
    holdout_loss : float or None
        Loss on the rows held out after the last pass in which it was measured.
    count_nonzeros : callable
        Returns the number of weights other than 0, which takes time; until the callback returns.
    seconds_by_part : dict of str to float
        Time of threads and workers for each part of the work since the begin or the resume:
        "read", "learn", "exchange" (of features between workers), "merge", "save", "coordinate".
    workers : int or None
        Workers of the cluster at this time; None without a cluster.
    """

    run: BeginEvent
    steps: int
    cursor: Cursor
    passes: tuple[ProgressiveMetrics, ...]
    seconds: float
    rows_per_second: float
    holdout_loss: float | None
    count_nonzeros: Callable[[], int]
    seconds_by_part: dict[str, float] = field(default_factory=dict)
    workers: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes a copy, which cannot count any more."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return RoundEvent, tuple((values | {"count_nonzeros": _cannot_count}).values())

    @property
    def rows(self) -> int:
        """Rows learned from, in all passes."""
        return sum(metrics.rows for metrics in self.passes)

    @property
    def pass_number(self) -> int:
        """Number of the present pass, from 1."""
        return len(self.passes)

    @property
    def ends_pass(self) -> bool:
        """True if the round was the last of its pass."""
        return self.cursor.round == 0

    @property
    def setting(self) -> int:
        """Number of the setting with the least loss; 0 without several settings."""
        return best_setting(self.passes)

    @property
    def loss(self) -> float:
        """Mean loss of the rows of this pass; NaN if none of them counts."""
        return self.mean_loss(self.passes[-1])

    @property
    def error(self) -> float | None:
        """Share of the rows of this pass that were predicted wrong; None for a regression."""
        return self.mean_error(self.passes[-1])

    @property
    def first_loss(self) -> float:
        """Mean loss of the rows of the first pass, none of which had been seen."""
        return self.mean_loss(self.passes[0])

    @property
    def first_error(self) -> float | None:
        """Share of the rows of the first pass that were predicted wrong."""
        return self.mean_error(self.passes[0])

    @property
    def step_size(self) -> float | None:
        """Step size of the setting; None for updates without one."""
        return self.run.step_sizes[self.setting]

    def mean_loss(self, metrics: ProgressiveMetrics) -> float:
        """Mean loss of some rows; NaN if none of them counts."""
        return float(metrics.mean_loss()[self.setting])

    def mean_error(self, metrics: ProgressiveMetrics) -> float | None:
        """Error of some rows; None for a regression."""
        return float(metrics.mean_error()[self.setting]) if self.run.has_errors else None

    def to_json(self) -> dict[str, Any]:
        """Return the event as plain JSON, without the number of weights."""
        names = (
            "rows", "steps", "pass_number", "loss", "error", "first_loss", "first_error",
            "step_size", "seconds", "rows_per_second", "holdout_loss", "seconds_by_part", "workers",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}


def _cannot_count() -> int:
    raise InputError("count_nonzeros works until the callback returns; call it there")


@dataclass(frozen=True, slots=True)
class CheckpointEvent:
    """A checkpoint is in the store, so that the run can be resumed from it.

    Attributes
    ----------
    run : BeginEvent
    steps, rows : int
        Steps and rows of the run at the checkpoint.
    key : str
        Name of its manifest in the folder of checkpoints.
    bytes : int
        Size in the store.
    """

    run: BeginEvent
    steps: int
    rows: int
    key: str
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the event as plain JSON."""
        return {name: getattr(self, name) for name in ("steps", "rows", "key", "bytes")}


@dataclass(frozen=True, slots=True)
class EndEvent:
    """End of a run, which is complete, was stopped on request, or failed.

    Attributes
    ----------
    run : BeginEvent
    result : TrainResult or None
        The model and the report; None if the run failed.
    error : BaseException or None
        The error that ended the run.
    """

    run: BeginEvent
    result: TrainResult | None = None
    error: BaseException | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the event as plain JSON."""
        result, error = self.result, self.error
        return {
            "report": None if result is None else result.report,
            "digest": None if result is None else result.digest,
            "error": None if error is None else repr(error),
        }


class Callback:
    """Receiver of the events of a run; a subclass overrides what it needs.

    `on_end` is called once after `on_begin`, also if this or the run fails. The thread is that of
    the run.
    """

    def on_begin(self, event: BeginEvent) -> None:
        """Receive the begin of a run."""

    def on_round(self, event: RoundEvent) -> None:
        """Receive the end of a round."""

    def on_checkpoint(self, event: CheckpointEvent) -> None:
        """Receive a checkpoint that can be resumed from."""

    def on_end(self, event: EndEvent) -> None:
        """Receive the end of a run."""


_Receiver: TypeAlias = Callback | Callable[[RoundEvent], object]
Callbacks: TypeAlias = _Receiver | Iterable[_Receiver]
"""Callbacks as a user gives them: a function is called at the end of each round."""


@dataclass(frozen=True)
class _RoundFunction(Callback):
    """Function as a callback."""

    function: Callable[[RoundEvent], object]

    def on_round(self, event: RoundEvent) -> None:
        self.function(event)


def as_callbacks(items: Callbacks | None) -> list[Callback]:
    """Return objects for callbacks; `InputError` for what is none."""
    if items is None:
        return []
    if isinstance(items, Callback) or callable(items) or not isinstance(items, Iterable):
        return [_as_callback(items)]
    return list(map(_as_callback, items))


def _as_callback(item: Any) -> Callback:
    if isinstance(item, Callback):
        return item
    if callable(item) and not isinstance(item, type):
        return _RoundFunction(item)
    raise InputError(
        f"callbacks has {item!r}; give objects of dadagrad.Callback, or functions of the event at "
        "the end of a round"
    )


SPACING = 32
"""A point is kept where the rows have grown by one part in so many, and at the end of a pass."""
COLUMNS = ("rows", "pass_number", "weight", "loss", "error", "seconds")


@dataclass(slots=True)
class LearningCurve(Callback):
    """Points of a learning curve, whose number grows with the logarithm of the rows.

    Attributes
    ----------
    points : list of tuple
        Rows so far, number of the pass, total importance of its rows, their mean loss and error
        (None for a regression), and the seconds of the run.
    """

    points: list[tuple[int, int, float, float, float | None, float]] = field(default_factory=list)

    def on_round(self, event: RoundEvent) -> None:
        """Add a point if the last one is far enough."""
        rows, last = event.rows, self.points[-1][0] if self.points else 0
        if rows <= last:  # the run went back to a checkpoint
            self.points = [point for point in self.points if point[0] < rows]
        elif rows < last + last // SPACING and not event.ends_pass:
            return
        weight, loss = event.passes[-1].weight, event.loss
        if weight and math.isfinite(loss):
            point = (rows, event.pass_number, weight, loss, event.error, event.seconds)
            self.points.append(point)

    def to_json(self) -> dict[str, Any]:
        """Return the curve as plain JSON: a list for each of `COLUMNS`."""
        columns = zip(*self.points, strict=True) if self.points else ((),) * len(COLUMNS)
        return {name: list(column) for name, column in zip(COLUMNS, columns, strict=True)}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> LearningCurve:
        """Invert `to_json`; `ValueError`, `KeyError` or `TypeError` for anything else."""
        columns = (plain[name] for name in COLUMNS)
        return cls(
            [
                (
                    int(rows), int(number), float(weight), float(loss),
                    None if error is None else float(error), float(seconds),
                )
                for rows, number, weight, loss, error, seconds in zip(*columns, strict=True)
            ]
        )  # fmt: skip
