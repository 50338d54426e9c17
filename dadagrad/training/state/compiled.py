"""The state of the compiled updates: sums of features, of which some rows take out their part."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.buffers import POOL, zeros
from dadagrad.data.rows import Rows
from dadagrad.errors import TrainingError
from dadagrad.kernels import training as kernels
from dadagrad.kernels.id_sets import different, put, take, unite
from dadagrad.kernels.parallel import Spread
from dadagrad.optim.arrays import is_nonzero
from dadagrad.problem import Problem
from dadagrad.training.progressive import OVERFLOW
from dadagrad.training.state.base import NOTHING, Shapes, TrainingState, intercepts, step_intercepts
from dadagrad.training.state.slices import FeatureSlice, Gradient

FEATURE_ARRAYS = ("accumulators", "last_update", "averages", "momentum")
"""Names of the arrays of a state with numbers for each feature."""

CHUNK_WEIGHTS = 1 << 20
"""Weights of all features that are made at a time."""


@dataclass(slots=True)
class State(TrainingState):
    """Everything that training changes.

    Outputs that are learned together are a group of `width`. The numbers of a group lie together:
    groups are learned apart.

    Attributes
    ----------
    accumulators : (n_groups, n_features, width, 2) float32
        Side by side, because each step needs both: the primary sum (the gradient sum u of dual
        averaging, the corrected sum z of FTRL, the weights of mirror descent) and the sum of
        squared gradients G.
    last_update : (n_groups, n_features) float64, or (n_groups, 0)
        Mirror descent only: the t up to which the weights of a feature have been shrunk.
    averages : (n_groups, n_features, width) float32, or (n_groups, 0, width)
        With averaging: what the average of the weights lags behind them, times t^2.
    momentum : (n_groups, n_features, width) float32, or (n_groups, 0, width)
        With streams, without penalties: the momentum of the primary sum, which merges keep.
    intercept : (n_groups, 1, width, 2) float64, or (n_groups, 1, width, 3) with averaging
        The accumulators of the intercept.
    t : float
        Steps so far, by importance.
    """

    accumulators: NDArray[np.float32]
    last_update: NDArray[np.float64]
    averages: NDArray[np.float32]
    momentum: NDArray[np.float32]
    intercept: NDArray[np.float64]
    t: float = 0.0

    @classmethod
    def zero(cls, problem: Problem, n_features: int | None = None) -> State:
        """The state before the first step, of all features or of so many."""
        shapes = cls.shapes(problem, n_features)
        arrays = {name: zeros(shape, kind) for name, (shape, kind) in shapes.items()}
        return cls(**arrays, t=0.0)

    @classmethod
    def shapes(cls, problem: Problem, n_features: int | None = None) -> Shapes:
        """The shapes of `arrays`, and the kinds of their numbers; no memory is taken."""
        n_groups, width = problem.n_groups, problem.group_width
        n_features = problem.n_features if n_features is None else n_features
        lazy, averages = problem.config.update.shrinks_lazily, problem.averages
        return {
            "accumulators": ((n_groups, n_features, width, 2), np.float32),
            "last_update": ((n_groups, n_features if lazy else 0), np.float64),
            "averages": ((n_groups, n_features if averages else 0, width), np.float32),
            "momentum": ((n_groups, n_features if problem.has_momentum else 0, width), np.float32),
            "intercept": ((n_groups, 1, width, 2 + averages), np.float64),
        }

    @property
    def n_features(self) -> int:
        """Features that this is the state of."""
        return int(self.accumulators.shape[1])

    def learn(
        self,
        problem: Problem,
        rows: Rows,
        batch: kernels.Batch,
        scores: NDArray[np.float64],
        spread: Spread,
        average_scores: NDArray[np.float64],
    ) -> list[int | None]:
        after = np.empty(problem.n_groups)
        overflows: list[int | None] = [None] * problem.n_groups

        def learn_group(group: int) -> None:
            after[group], overflows[group] = self._learn_group(
                problem, group, rows.vocabulary, batch, scores, average_scores
            )

        spread(learn_group, problem.n_groups)
        self.t = float(after[0])
        return overflows

    def _learn_group(
        self,
        problem: Problem,
        group: int,
        ids: NDArray[np.int64],
        batch: kernels.Batch,
        scores: NDArray[np.float64],
        average_scores: NDArray[np.float64],
    ) -> tuple[float, int | None]:
        """Take the steps of `learn` for one group of outputs, whose scores are written.

        Returns t after them, and the id of a feature whose sums are no longer finite.

        The part of the state of the features `ids` is taken out, changed and put back. `t` stays
        as it is, for the groups to come.
        """
        outputs = slice(group * problem.group_width, (group + 1) * problem.group_width)
        scores, average_scores = scores[outputs], average_scores[outputs]
        targets, steps = problem.of_group(group)
        lazy = problem.config.update.shrinks_lazily
        # What other threads write meanwhile must not be close by.
        intercept = self.intercept[group, 0].copy()
        names = "accumulators", "last_update", "averages"
        arrays = {name: getattr(self, name)[group] for name in names}
        parts = arrays  # of all features no copy
        if len(ids) < self.n_features:
            parts = {name: _rows_like(arrays[name], len(ids)) for name in names}
            for name, part in parts.items():
                _copy(take, arrays[name][None], ids, part[None])
        accumulators, last_update, averages = parts.values()
        work = kernels.make_work(batch, accumulators, intercept, last_update, averages)
        learn = kernels.online_kernel(lazy, problem.group_width)
        t = learn(batch, targets, problem.user_slope, steps, work, self.t, scores, average_scores)
        if parts is not arrays:
            for name, part in parts.items():
                _copy(put, arrays[name][None], ids, part[None])
        culprit = overflowed(ids, accumulators)
        self.intercept[group, 0] = intercept
        return float(t), culprit

    def pull(self, ids: NDArray[np.int64]) -> State:
        """The share of the features `ids`, as compact arrays of their own."""
        parts = {name: _part(array, ids) for name, array in self.feature_arrays.items()}
        return State(**parts, intercept=self.intercept.copy(), t=self.t)

    def without_momentum(self) -> State:
        """The same state, in the same memory, but for the momentum: only merges need it."""
        return replace(self, momentum=self.momentum[:, :0])

    def pull_into(self, ids: NDArray[np.int64], share: State, places: slice) -> None:
        """Copy the numbers of the features `ids` to some places of a share of more features."""
        for name, array in share.feature_arrays.items():
            _copy(take, getattr(self, name), ids, array[:, places])

    def push(self, ids: NDArray[np.int64], share: State) -> None:
        """Put a share that `pull` took out back in its place."""
        self.push_features(ids, share)
        self.intercept = share.intercept.copy()
        self.t = share.t

    def push_features(self, ids: NDArray[np.int64], share: State) -> None:
        """Put back the numbers of the features alone, without the intercept and t."""
        for name, array in self.feature_arrays.items():
            _copy(put, array, ids, getattr(share, name))

    def weights(self, problem: Problem) -> NDArray[np.float32]:
        weights = self._weights_now(problem)
        if problem.averages and self.t:
            width = problem.group_width
            for group, lags in enumerate(self.averages):
                weights[:, group * width : (group + 1) * width] -= lags / (self.t * self.t)
        return weights

    def _weights_now(self, problem: Problem) -> NDArray[np.float32]:
        weights = np.empty((self.accumulators.shape[1], problem.n_outputs), np.float32)
        if problem.config.update.shrinks_lazily:
            kernels.mirror_weights(
                self.accumulators, self.last_update, problem.hyperparameters, self.t, weights
            )
        else:
            kernels.dual_weights(self.accumulators, problem.hyperparameters, self.t, weights)
        return weights

    def nonzero_weights(self, problem: Problem) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        # Little memory is taken beside them: there may be many features, and most weigh 0.
        stride = max(1, CHUNK_WEIGHTS // problem.n_outputs)
        ids = np.empty(0, np.int64)
        weights = np.empty((0, problem.n_outputs), np.float32)
        for start in range(0, self.n_features, stride):
            weights_of_part = self.part(start, start + stride).weights(problem)
            nonzero = np.flatnonzero(is_nonzero(weights_of_part))
            n_before = len(ids)
            # In place: large arrays are not copied, their pages only get other addresses.
            ids.resize(n_before + len(nonzero), refcheck=False)
            weights.resize((len(ids), problem.n_outputs), refcheck=False)
            np.add(nonzero, start, out=ids[n_before:])
            take(weights_of_part, nonzero, weights[n_before:])
        return ids, weights

    def part(self, start: int, stop: int) -> State:
        """The share of the features from `start` to before `stop`; with one group no copy."""
        arrays = self.without_momentum().feature_arrays
        parts = {name: np.ascontiguousarray(array[:, start:stop]) for name, array in arrays.items()}
        return State(**parts, intercept=self.intercept, t=self.t)

    @property
    def feature_arrays(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, name) for name in FEATURE_ARRAYS}

    def with_features(self, arrays: Mapping[str, NDArray[Any]]) -> State:
        """The state with these arrays of `FEATURE_ARRAYS`, and the same intercept and t."""
        features = {name: arrays[name] for name in FEATURE_ARRAYS}
        return self.with_arrays(self.arrays | features, self.t)

    def common(self) -> State:
        """The intercept and t alone, without features."""
        return self.pull(np.empty(0, np.int64))

    def of_setting(self, problem: Problem, number: int) -> State:
        if problem.n_settings == 1:
            return self
        n_groups = problem.n_groups // problem.n_settings
        groups = slice(number * n_groups, (number + 1) * n_groups)
        arrays = {name: array[groups] for name, array in self.arrays.items()}
        return self.with_arrays(arrays, self.t)

    def of_settings(self, problem: Problem, numbers: Sequence[int]) -> State:
        """The state of some of the settings, increasing, in the same memory; the rest is lost."""
        n_groups = problem.n_groups // problem.n_settings
        arrays = self.arrays
        for array in arrays.values():
            for new_number, number in enumerate(numbers):
                if new_number != number:
                    source, target = number * n_groups, new_number * n_groups
                    array[target : target + n_groups] = array[source : source + n_groups]
        groups = slice(len(numbers) * n_groups)
        return self.with_arrays({name: array[groups] for name, array in arrays.items()}, self.t)

    def changed(self, before: State) -> NDArray[np.int64]:
        """Positions, increasing, of the features whose sums differ from those of `before`."""

        def differing(name: str) -> list[NDArray[np.int64]]:
            # Whole numbers are compared in half the time.
            records = (_records(getattr(state, name)).view(np.int64) for state in (self, before))
            return list(map(different, *records))

        groups = differing("accumulators")
        if self.last_update.size:
            groups += differing("last_update")
        return reduce(lambda ids, others: unite(ids, others)[0], groups)

    def with_arrays(self, arrays: dict[str, NDArray[Any]], t: float) -> State:
        return State(**arrays, t=t)

    def weights_at(self, problem: Problem, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        return self.pull(ids)._weights_now(problem)

    def intercepts(self, problem: Problem) -> NDArray[np.float64]:
        now = self.intercepts_now(problem)
        if problem.averages and self.t:
            now -= self.intercept[..., 2].ravel() / self.t**2
        return now

    def intercepts_now(self, problem: Problem) -> NDArray[np.float64]:
        return intercepts(problem, self.intercept, self.t)

    def step(self, problem: Problem, total: FeatureSlice[Gradient], importance: float) -> None:
        share, sums = self.pull(total.ids), total.content
        means = sums.gradient / importance, sums.squares / importance
        step = share.averages, problem.hyperparameters, share.t, *means
        if problem.config.update.shrinks_lazily:
            kernels.apply_mirror(share.accumulators, share.last_update, *step)
        else:
            kernels.apply_dual(share.accumulators, *step)
        culprit = overflowed(total.ids, np.moveaxis(share.accumulators, 1, 0))
        if culprit is not None and problem.n_settings == 1:
            raise TrainingError(OVERFLOW, culprit)
        self.push(total.ids, share)
        mean = sums.intercept[:1] / importance
        squares = sums.intercept[1:] / importance if sums.squares.shape[1] else NOTHING
        step_intercepts(problem, self.intercept, self.t, mean, squares)
        self.t += 1.0

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        return self.feature_arrays | {"intercept": self.intercept}


def overflowed(ids: NDArray[np.int64], accumulators: NDArray[np.float32]) -> int | None:
    """The first of the `ids` whose sums, in the first axis, are not all finite; None if all are."""
    finite = np.isfinite(accumulators)
    if finite.all():  # the common case apart: numpy is slow at reducing short rows
        return None
    others = tuple(range(1, accumulators.ndim))
    return int(ids[finite.all(axis=others).argmin()])


def _rows_like(array: NDArray[Any], n_rows: int) -> NDArray[Any]:
    """Memory for the numbers of some features of a group; for none if the array has none."""
    shape = (n_rows if len(array) else 0, *array.shape[1:])
    return POOL.empty(math.prod(shape), array.dtype).reshape(shape)


def _part(array: NDArray[Any], ids: NDArray[np.int64]) -> NDArray[Any]:
    """The numbers of the features `ids`; `array` itself where it has no features."""
    if not array.shape[1]:
        return array
    part = np.empty((len(array), len(ids), *array.shape[2:]), array.dtype)
    _copy(take, array, ids, part)
    return part


def _copy(
    direction: Callable[..., None],
    array: NDArray[Any],
    ids: NDArray[np.int64],
    part: NDArray[Any],
) -> None:
    """`take` the numbers of some features out of `array` into `part`, or `put` them back."""
    if part.size:
        for numbers, numbers_of_part in zip(_records(array), _records(part), strict=True):
            direction(numbers, ids, numbers_of_part)


def _records(numbers: NDArray[Any]) -> NDArray[Any]:
    """The numbers of each feature of each group as a row, in the same memory.

    Sums are few complex numbers: these move faster.
    """
    rows = numbers.reshape(*numbers.shape[:2], math.prod(numbers.shape[2:]))
    if numbers.ndim < 4:
        return rows
    return rows.view(np.complex64 if numbers.shape[2] % 2 else np.complex128)
