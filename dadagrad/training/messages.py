"""Messages between the coordinator and the engines: events in, instructions out.

Both are plain data. An engine may carry out instructions on threads or on a cluster, in any order:
the coordinator puts results back into the order of the schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dadagrad.storage.arrays import WriteShards
from dadagrad.training.progressive import ProgressiveMetrics
from dadagrad.training.schedule.base import Cursor, Slice, Stretch
from dadagrad.training.state.base import TrainingState
from dadagrad.training.state.compiled import State
from dadagrad.training.state.slices import FeatureSlice, SentFeatures, SharedFeatures


@dataclass(frozen=True, slots=True)
class RemoteChange:
    """State after a stretch, of which the workers of a cluster have the features.

    Attributes
    ----------
    key : str
        Name of the change on the workers.
    content : State
        The intercept and the t of the stream, without features.
    """

    key: str
    content: State


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a run between two rounds.

    Attributes
    ----------
    cursor : Cursor
        Passes that are complete, and rounds of the next pass.
    steps : int
        Steps so far, in all passes.
    passes : tuple of ProgressiveMetrics
        Metrics of each pass so far; only the rows of the first pass were new.
    earlier : ProgressiveMetrics or None
        Metrics of the first passes of earlier runs, from whose state this run went on. Their scores
        calibrate, too.
    """

    cursor: Cursor = field(default_factory=Cursor)
    steps: int = 0
    passes: tuple[ProgressiveMetrics, ...] = ()
    earlier: ProgressiveMetrics | None = None

    @property
    def rows(self) -> int:
        """Rows learned from, in all passes."""
        return sum(metrics.rows for metrics in self.passes)


SliceInput: TypeAlias = SharedFeatures | SentFeatures | TrainingState
"""Input of the work on a slice: some features, or the state itself, which is changed in place; or,
where workers of a cluster hold the features, the rest of the state."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of the work on a slice.

    Attributes
    ----------
    metrics : ProgressiveMetrics
        Its `weight` is the total importance of the rows.
    change : FeatureSlice, RemoteChange or None
        The gradient of some features, or their state after a step for each row. None if the
        state itself was changed.
    """

    metrics: ProgressiveMetrics
    change: FeatureSlice[Any] | RemoteChange | None = None

    @property
    def features(self) -> FeatureSlice[Any]:
        """The `change` of some features."""
        assert isinstance(self.change, FeatureSlice)
        return self.change


# Events.


@dataclass(frozen=True, slots=True)
class Opened:
    """A partition can be worked on."""

    reading: int


@dataclass(frozen=True, slots=True)
class Computed:
    """The results of a `Compute` with the same `task`: of its slices, the last with the change."""

    task: int
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """A `Merge` or a `MergeRemotely` is done."""


@dataclass(frozen=True, slots=True)
class SaveRequested:
    """A checkpoint is wanted after the present round."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The run is to end after the present round, to be resumed later."""


Event: TypeAlias = Opened | Computed | Merged | SaveRequested | StopRequested


# Instructions.


@dataclass(frozen=True, slots=True)
class Open:
    """Read a partition, or have it read, and report when it can be worked on.

    Workers that hold the state report nothing: they may read it before a `Compute` asks for it.

    `first_slices` are the slices whose weights are wanted before a result of this reading: the
    features that they touch can be found meanwhile. Partitions with the same `needed_at` are needed
    at the same time.
    """

    reading: int
    partition: int
    first_slices: tuple[Slice, ...] = ()
    needed_at: int = 0


@dataclass(frozen=True, slots=True)
class Compute:
    """Work on slices one after the other, and report the results of `task`.

    They are one slice of an open partition, or, for the workers of a cluster that hold the state, a
    whole stretch, whose partitions they read themselves. `following` is the slice of this reading
    whose weights are wanted after the result.
    """

    task: int
    slices: Stretch
    input: SliceInput
    following: Slice | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """Call `merge`, on any thread, and report when it is done.

    It merges the changes of all streams to some of the features.
    """

    merge: Callable[[], None]


@dataclass(frozen=True, slots=True)
class MergeRemotely:
    """Have the workers that hold the state merge what the streams changed, and report.

    `keys` are the names of the changes, in the order of the streams; `begun` is the t at the begin
    of the round.
    """

    keys: tuple[str, ...]
    begun: float


@dataclass(frozen=True, slots=True)
class Close:
    """The partition will not be needed again in this reading."""

    reading: int


@dataclass(frozen=True, slots=True)
class Report:
    """Progress of the run; for people and logs.

    Attributes
    ----------
    count_nonzeros : callable
        Returns the number of weights other than 0, until the next event is handled.
    """

    place: Place
    count_nonzeros: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Save:
    """Keep this state; `state` is the coordinator's own, to be copied before anything else.

    If workers hold its features, `write_shards` has them write these into a folder at a URL.
    """

    place: Place
    state: TrainingState
    write_shards: WriteShards | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over: `complete`, or stopped on request."""

    complete: bool


Instruction: TypeAlias = Open | Compute | Merge | MergeRemotely | Close | Report | Save | Finish
