"""Ways to combine the results of a round: one step, or a merge of streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dadagrad.kernels.id_sets import DistinctIds
from dadagrad.problem import Problem
from dadagrad.training.coordinator.merge import (
    features_after,
    merge_common,
    merge_shard,
    shards,
    unite,
)
from dadagrad.training.messages import Merge, MergeRemotely, RemoteChange, Result, SliceInput
from dadagrad.training.progressive import ProgressiveMetrics
from dadagrad.training.schedule.base import Slice, Stretch
from dadagrad.training.state.base import TrainingState
from dadagrad.training.state.compiled import State
from dadagrad.training.state.slices import FeatureSlice, SharedFeatures, Weights, add_gradients


@dataclass(slots=True)
class Progress:
    """A stretch of the present round, of whose slices the first `done` have results.

    `change` is what came of them: a gradient, or the states of features.
    """

    slices: Stretch
    done: int = 0
    metrics: list[ProgressiveMetrics] = field(default_factory=list)
    change: FeatureSlice[Any] | RemoteChange | None = None

    @property
    def slice_(self) -> Slice:
        """The next slice, or the one in work."""
        return self.slices[self.done]


class Combination(ABC):
    """The input of the work on each slice, and the change of the state at the end of a round.

    With `gives_stretches`, the input is for all slices of a stretch, whose partitions need not be
    open.
    """

    gives_stretches: ClassVar[bool] = False

    @abstractmethod
    def give(self, stretch: Progress) -> SliceInput:
        """The input of the next slice."""

    def take(self, stretch: Progress, result: Result) -> None:
        """Take note of the result of the slice in work."""
        stretch.change = result.change

    def merges(self, stretches: list[Progress]) -> Sequence[Merge | MergeRemotely]:
        """Changes of the state, each of other features, for any threads to make before `finish`."""
        return []

    @abstractmethod
    def finish(self, stretches: list[Progress]) -> int:
        """Change the state; the number of steps."""


@dataclass(frozen=True)
class OnlineSteps(Combination):
    """The state itself is given away, and comes back after a step for each row."""

    state: TrainingState

    def give(self, stretch: Progress) -> SliceInput:
        return self.state

    def finish(self, stretches: list[Progress]) -> int:
        return _n_rows(stretches)


class BatchStep(Combination):
    """One step with the mean gradient of all rows of the round."""

    def __init__(self, problem: Problem, state: TrainingState) -> None:
        self._problem = problem
        self._state = state
        self._distinct = DistinctIds(problem.n_features)
        self._intercept: NDArray[np.float64] | None = None

    def give(self, stretch: Progress) -> SliceInput:
        problem, state = self._problem, self._state
        if self._intercept is None:  # the same for all slices of a round
            self._intercept = state.intercepts_now(problem)
        intercept = self._intercept
        return SharedFeatures(lambda ids: Weights(state.weights_at(problem, ids), intercept))

    def finish(self, stretches: list[Progress]) -> int:
        self._intercept = None
        importance = sum(metrics.weight for stretch in stretches for metrics in stretch.metrics)
        if not importance > 0.0:
            return 0
        total = add_gradients(_changes(stretches), self._distinct)
        self._state.step(self._problem, total, importance)
        return 1


@dataclass(frozen=True)
class StreamMerge(Combination):
    """Streams take steps from the same state, which nobody changes until they are merged."""

    problem: Problem
    state: State

    def give(self, stretch: Progress) -> SliceInput:
        assert not isinstance(stretch.change, RemoteChange)
        return features_after(stretch.change, self.state.without_momentum().pull)

    def take(self, stretch: Progress, result: Result) -> None:
        assert not isinstance(stretch.change, RemoteChange)
        stretch.change = unite(stretch.change, result.features)

    def merges(self, stretches: list[Progress]) -> Sequence[Merge | MergeRemotely]:
        learned = _changes(stretches)
        return [
            Merge(partial(merge_shard, self.problem, self.state, learned, shard))
            for shard in shards(learned)
        ]

    def finish(self, stretches: list[Progress]) -> int:
        learned = [change.content for change in _changes(stretches)]
        merge_common(self.problem, self.state, learned)
        return _n_rows(stretches)


class RemoteMerge(StreamMerge):
    """The same where workers of a cluster hold the state, and `state` the intercept and t."""

    gives_stretches = True
    take = Combination.take

    def give(self, stretch: Progress) -> State:
        return self.state.common()

    def merges(self, stretches: list[Progress]) -> list[MergeRemotely]:
        keys = tuple(change.key for change in _changes(stretches))
        return [MergeRemotely(keys, self.state.t)]


def combination_of(problem: Problem, state: TrainingState, *, remote: bool) -> Combination:
    """The combination for the settings of `problem`; `remote` streams learn on a cluster."""
    if not problem.online:
        return BatchStep(problem, state)
    if problem.config.n_streams == 1:
        return OnlineSteps(state)
    assert isinstance(state, State), "streams are compiled"
    return RemoteMerge(problem, state) if remote else StreamMerge(problem, state)


def _changes(stretches: list[Progress]) -> list[Any]:
    """The changes of the stretches, where there are some."""
    return [stretch.change for stretch in stretches if stretch.change is not None]


def _n_rows(stretches: list[Progress]) -> int:
    return sum(metrics.rows for stretch in stretches for metrics in stretch.metrics)
