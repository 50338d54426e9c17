"""The state of training, as the coordinator and the work on rows see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.rows import Rows
from dadagrad.kernels.training import Batch
from dadagrad.problem import Problem
from dadagrad.training.state.gradients import GradientSum
from dadagrad.training.worker.parallel import Spread

Count: TypeAlias = Callable[[int, int | None], None]
"""Takes note that a group of outputs has learned, with the id of a feature whose sums are no longer
finite."""

Shapes: TypeAlias = dict[str, tuple[tuple[int, ...], int]]
"""The shape of each array of a state, and the bytes of a number of it."""


class TrainingState(Protocol):
    """Everything that training changes: of compiled updates, or of algorithms in NumPy."""

    t: float

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that a checkpoint must keep besides `t`."""

    def with_arrays(self, arrays: dict[str, NDArray[Any]], t: float) -> Self:
        """The state with other `arrays`, which become its own."""

    def copy(self) -> Self: ...

    def weights(self, problem: Problem) -> NDArray[np.float32]:
        """The (n_features, n_outputs) weights of the model."""

    def nonzero_weights(self, problem: Problem) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The increasing ids of features with a weight other than 0, and their weights."""

    def weights_at(self, problem: Problem, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The (len(ids), n_outputs) weights of some features at t."""

    def intercepts(self, problem: Problem) -> NDArray[np.float64]:
        """The (n_outputs,) intercepts of the model."""

    def intercepts_now(self, problem: Problem) -> NDArray[np.float64]:
        """The (n_outputs,) intercepts at t, with which the next rows are predicted."""

    def step(self, problem: Problem, total: GradientSum, importance: float) -> None:
        """Take one step with the mean gradient of rows whose gradients sum to `total`."""

    def learn(
        self,
        problem: Problem,
        rows: Rows,
        batch: Batch,
        scores: NDArray[np.float64],
        count: Count,
        spread: Spread,
    ) -> None:
        """Take one step for each of the `rows`, in order; `batch` are the same for the kernels.

        The (n_outputs, n_rows) `scores` before each step are written; `count` is called for each
        group of outputs when its scores are there. `spread` calls a function for each group.
        """
