"""The state of an algorithm that runs as it is written down, with all its parts.

The same duties as those of the compiled `dadagrad.training.state.compiled.State`, one row or one
batch at a time in NumPy. The state is not taken apart by partition: most of these algorithms look
at all features in every step.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.rows import Rows
from dadagrad.kernels.parallel import Spread
from dadagrad.kernels.training import MAX_STEPS, Batch
from dadagrad.optim.arrays import Array
from dadagrad.optim.baselines import GradientLearner, Learner, Row
from dadagrad.optim.updates import GradientUpdate, Update, average_count
from dadagrad.problem import Problem
from dadagrad.training.state.base import NOTHING, Shapes, TrainingState, intercepts, step_intercepts
from dadagrad.training.state.slices import FeatureSlice, Gradient

_asking = threading.Lock()  # of all states: a lock of its own could not be pickled


@dataclass(slots=True)
class PlainState(TrainingState):
    """Everything that training changes.

    Attributes
    ----------
    algorithm : Update or Learner
        A learner sees the intercept as one more feature, the last, that is 1 in every row.
    inner : dadagrad.optim.updates.State or LearnerState
    intercept : (n_groups, 1, width, 2) float64
        The accumulators of the intercept of an update.
    mean : (n_features + 1, n_outputs) float64, or (0, 0)
        With averaging: the mean of the weights, and in the last row of the intercepts, after each
        step.
    t : float
        Steps so far, by importance.
    """

    algorithm: Update
    inner: Any
    intercept: Array
    mean: Array
    t: float = 0.0
    # All weights, once somebody has asked for some; whoever asks meanwhile waits (`_asking`).
    _current: Array | None = None

    @classmethod
    def zero(cls, problem: Problem) -> PlainState:
        """The state before the first step."""
        inner = problem.algorithm.init(_inner_features(problem), problem.n_outputs)
        shapes = cls.shapes(problem)
        intercept, mean = (np.zeros(shapes[name][0]) for name in ("intercept", "mean"))
        return cls(problem.algorithm, inner, intercept, mean)

    @classmethod
    def shapes(cls, problem: Problem) -> Shapes:
        """The shapes of `arrays`, and the kinds of their numbers; no memory is taken."""
        n_outputs = problem.n_outputs
        inner = problem.algorithm.shapes(_inner_features(problem), n_outputs)
        named = {_key(problem.algorithm, name): shape for name, shape in inner.items()}
        named["intercept"] = (problem.n_groups, 1, problem.group_width, 2)
        averaged = problem.config.average is True
        named["mean"] = (problem.n_features + 1, n_outputs) if averaged else (0, 0)
        return {name: (shape, np.float64) for name, shape in named.items()}

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        named = {_key(self.algorithm, name): array for name, array in self.inner.arrays.items()}
        return named | {"intercept": self.intercept, "mean": self.mean}

    def with_arrays(self, arrays: dict[str, NDArray[Any]], t: float) -> PlainState:
        inner_arrays = {name: arrays[_key(self.algorithm, name)] for name in self.inner.arrays}
        inner = self.inner.with_arrays(inner_arrays, t)
        return PlainState(self.algorithm, inner, arrays["intercept"], arrays["mean"], t)

    def weights_at(self, problem: Problem, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._weights_at(ids).astype(np.float32)

    def _weights_at(self, ids: NDArray[np.int64]) -> Array:
        if self.algorithm.weighs_ids:
            return self.algorithm.weights(self.inner, ids)
        with _asking:
            if self._current is None:
                self._current = self.algorithm.weights(self.inner)
            weights: Array = self._current[ids]
        return weights

    def weights(self, problem: Problem) -> NDArray[np.float32]:
        weights = self.mean if len(self.mean) else self.algorithm.weights(self.inner)
        return weights[: problem.n_features].astype(np.float32)

    def intercepts(self, problem: Problem) -> Array:
        return self.mean[-1].copy() if len(self.mean) else self.intercepts_now(problem)

    def intercepts_now(self, problem: Problem) -> Array:
        if not problem.learns_by_row:
            return intercepts(problem, self.intercept, self.t)
        if not problem.config.fit_intercept:
            return np.zeros(problem.n_outputs)
        bias: Array = self._weights_at(np.array([problem.n_features]))[0]
        return bias

    def step(self, problem: Problem, total: FeatureSlice[Gradient], importance: float) -> None:
        ids, gradient = total.ids, total.content.gradient / importance
        intercept = total.content.intercept[:1] / importance
        if not isinstance(self.algorithm, GradientLearner):
            return self._step(problem, ids, gradient, intercept, 1.0)
        if problem.config.fit_intercept:
            ids = np.append(ids, problem.n_features)
            gradient = np.vstack([gradient, intercept])
        self.inner = self.algorithm.step(self.inner, gradient, ids)
        self._moved(problem, 1.0)

    def _step(
        self,
        problem: Problem,
        ids: NDArray[np.int64],
        gradient: Array,
        intercept: Array,
        importance: float,
        scales: Array | None = None,
    ) -> None:
        """One step with `gradient` at `ids` and (1, n_outputs) `intercept`, times `importance`.

        `scales` are the absolute values of the features, where one row makes the step.
        """
        assert isinstance(self.algorithm, GradientUpdate)
        self.inner = self.algorithm.step(self.inner, gradient, importance, ids, scales)
        step_intercepts(problem, self.intercept, self.t, importance * intercept, NOTHING)
        self._moved(problem, importance)

    def _moved(self, problem: Problem, importance: float) -> None:
        """Note that a step of so much `importance` has changed the weights."""
        self._current = None
        before, self.t = self.t, self.t + importance
        if len(self.mean):
            weights = self.algorithm.weights(self.inner)[: problem.n_features]
            weights = np.vstack([weights, self.intercepts_now(problem)])
            self.mean += average_count(before, importance) / self.t**2 * (weights - self.mean)

    def learn(
        self,
        problem: Problem,
        rows: Rows,
        batch: Batch,
        scores: Array,
        spread: Spread,
        average_scores: Array,
    ) -> tuple[()]:
        targets = problem.targets(rows.labels)
        for row in range(rows.n_rows):
            ids, values = _entries(problem, rows, row)
            now = self._scores(problem, ids, values)
            scores[:, row] = now
            if not np.isfinite(now).all():
                scores[:, row:] = now[:, None]  # whoever counts the rows will name this one
                break
            importance = float(batch.importance[row]) if len(batch.importance) else 1.0
            for number, part in enumerate(_parts(importance)):
                if number:
                    now = self._scores(problem, ids, values)
                self._learn(problem, Row(ids, values, targets[row], now, part))
        return ()

    def _scores(self, problem: Problem, ids: NDArray[np.int64], values: Array) -> Array:
        if isinstance(self.algorithm, Learner):
            return self.algorithm.scores(self.inner, ids, values)
        return values @ self._weights_at(ids) + self.intercepts_now(problem)

    def _learn(self, problem: Problem, row: Row) -> None:
        if isinstance(self.algorithm, Learner):
            self.inner = self.algorithm.learn(self.inner, row)
            self._moved(problem, row.importance)
            return
        slopes = problem.loss.slope(row.scores[None], row.targets[None])
        intercept = slopes if problem.config.fit_intercept else np.zeros_like(slopes)
        gradient, scales = np.outer(row.values, slopes), np.abs(row.values)
        self._step(problem, row.ids, gradient, intercept, row.importance, scales)


def _inner_features(problem: Problem) -> int:
    """The features of the algorithm: a learner has the intercept as its last one."""
    return problem.n_features + (problem.learns_by_row and problem.config.fit_intercept)


def _key(algorithm: Update, name: str) -> str:
    """The name of an array of `algorithm` in a checkpoint."""
    return f"learner.{name}" if algorithm.by_row else name


def _parts(importance: float) -> Iterator[float]:
    """The importance of each step of a row, as `dadagrad.kernels.training.online_kernel` has it."""
    part = max(importance / MAX_STEPS, 1.0)
    while importance > 0.0:
        yield min(importance, part)
        importance -= part


def _entries(problem: Problem, rows: Rows, row: int) -> tuple[NDArray[np.int64], Array]:
    """The features of a row and their values; for a learner with the intercept's."""
    start, stop = rows.indptr[row], rows.indptr[row + 1]
    ids = rows.vocabulary[rows.indices[start:stop]]
    values = np.ones(stop - start) if rows.values is None else rows.values[start:stop].astype(float)
    if rows.row_scale is not None:
        values = values * float(rows.row_scale[row])
    if _inner_features(problem) > problem.n_features:
        return np.append(ids, problem.n_features), np.append(values, 1.0)
    return ids, values
