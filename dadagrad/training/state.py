"""The state of the compiled updates: sums per feature, of which a partition takes out its share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.training.intercept import intercepts, step_intercepts, zero_intercept

if TYPE_CHECKING:
    from dadagrad.method import Method
    from dadagrad.training.gradient_sums import GradientSum
    from dadagrad.training.states import TrainingState


Shapes = dict[str, tuple[tuple[int, ...], int]]


@dataclass(slots=True)
class State:
    """Everything that training changes.

    Attributes
    ----------
    accumulators : (n_features, n_outputs, 2) float32
        Side by side, because each visit needs both: the primary sum (the gradient sum u of dual
        averaging, the corrected sum z of FTRL, the weights of mirror descent) and the sum of
        squared gradients G.
    settled : (n_features,) float64, or (0,)
        Mirror descent only: the t up to which the weights of a feature have been shrunk.
    intercept : (1, n_outputs, 2) float64
        The accumulators of the intercept.
    t : float
        Steps so far, by importance.
    """

    accumulators: NDArray[np.float32]
    settled: NDArray[np.float64]
    intercept: NDArray[np.float64]
    t: float = 0.0

    @classmethod
    def zero(cls, method: Method) -> State:
        """The state before the first step."""
        settled = method.n_features if method.config.update == "mirror-descent" else 0
        return cls(
            np.zeros((method.n_features, method.n_outputs, 2), np.float32),
            np.zeros(settled),
            zero_intercept(method),
        )

    @classmethod
    def shapes(cls, method: Method) -> Shapes:
        """The shapes of `arrays`, and the bytes of a number of each; no memory is taken."""
        lazy = method.config.update == "mirror-descent"
        return {
            "accumulators": ((method.n_features, method.n_outputs, 2), 4),
            "settled": ((method.n_features if lazy else 0,), 8),
            "intercept": ((1, method.n_outputs, 2), 8),
        }

    def copy(self) -> State:
        return replace(
            self,
            accumulators=self.accumulators.copy(),
            settled=self.settled.copy(),
            intercept=self.intercept.copy(),
        )

    def pull(self, ids: NDArray[np.int64], reuse: TrainingState | None = None) -> State:
        """The share of the features `ids`, as compact arrays of their own.

        It takes the memory of `reuse`, a share that nobody needs any more.
        """
        return replace(
            self,
            accumulators=self._taken(ids, reuse),
            settled=self.settled[ids] if len(self.settled) else np.zeros(0),
            intercept=self.intercept.copy(),
        )

    def _taken(self, ids: NDArray[np.int64], reuse: TrainingState | None) -> NDArray[np.float32]:
        """The accumulators of `ids`."""
        if self.accumulators.shape[1] > 1:
            taken = _records(self.accumulators)[ids].view(np.float32)
            return taken.reshape(len(ids), *self.accumulators.shape[1:])
        from dadagrad.training.compact import take

        memory = reuse.accumulators.base if isinstance(reuse, State) else None
        if memory is None or memory.dtype != np.complex64 or len(memory) < len(ids):
            memory = np.empty(len(ids) + len(ids) // 8, np.complex64)
        out = memory[: len(ids)]
        take(_couples(self.accumulators), ids, out)
        return out.view(np.float32).reshape(len(ids), 1, 2)

    def push(self, ids: NDArray[np.int64], share: TrainingState) -> None:
        """Put a share that `pull` took out back in its place."""
        assert isinstance(share, State)
        if self.accumulators.shape[1] == 1:
            from dadagrad.training.compact import put

            put(_couples(self.accumulators), ids, _couples(share.accumulators))
        else:
            _records(self.accumulators)[ids] = _records(share.accumulators)
        if len(self.settled):
            self.settled[ids] = share.settled
        self.intercept = share.intercept.copy()
        self.t = share.t

    def weights(self, method: Method) -> NDArray[np.float32]:
        """The (n_features, n_outputs) weights at t."""
        from dadagrad import kernels

        weights = np.empty(self.accumulators.shape[:2], np.float32)
        if method.config.update == "mirror-descent":
            kernels.mirror_weights(self.accumulators, self.settled, method.steps, self.t, weights)
        else:
            kernels.dual_weights(self.accumulators, method.steps, self.t, weights)
        return weights

    def part(self, start: int, stop: int) -> State:
        """The share of the features from `start` to before `stop`: views, nothing is copied."""
        return replace(
            self,
            accumulators=self.accumulators[start:stop],
            settled=self.settled[start:stop],
        )

    def with_arrays(self, arrays: dict[str, NDArray[Any]], t: float) -> State:
        """The state with other `arrays`, which become its own."""
        return State(arrays["accumulators"], arrays["settled"], arrays["intercept"], t)

    def weights_at(self, method: Method, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The (len(ids), n_outputs) weights of some features at t."""
        return self.pull(ids).weights(method)

    def intercepts(self, method: Method) -> NDArray[np.float64]:
        """The (n_outputs,) intercepts at t; 0 where none is fitted."""
        return intercepts(method, self.intercept, self.t)

    def intercepts_now(self, method: Method) -> NDArray[np.float64]:
        """The same: without averaging, the model's are those at t."""
        return self.intercepts(method)

    def step(self, method: Method, total: GradientSum, importance: float) -> None:
        """One step with the mean gradient of rows whose gradients sum to `total`."""
        share = self.pull(total.ids)
        share._step_weights(method, total.gradient / importance, total.squares / importance)
        self.push(total.ids, share)
        mean, squares = total.intercept / importance, total.intercept_squares / importance
        step_intercepts(method, self.intercept, self.t, mean, squares)
        self.t += 1.0

    def _step_weights(
        self,
        method: Method,
        gradient: NDArray[np.float64],
        squares: NDArray[np.float64],
    ) -> None:
        from dadagrad import kernels

        if method.config.update == "mirror-descent":
            kernels.apply_mirror(
                self.accumulators, self.settled, method.steps, self.t, gradient, squares
            )
        else:
            kernels.apply_dual(self.accumulators, method.steps, self.t, gradient, squares)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that a checkpoint must keep besides `t`."""
        return {
            "accumulators": self.accumulators,
            "settled": self.settled,
            "intercept": self.intercept,
        }


def _records(accumulators: NDArray[np.float32]) -> NDArray[np.void]:
    """One opaque record per feature: numpy moves whole records faster than little rows."""
    width = accumulators.shape[1] * accumulators.shape[2]
    record = np.dtype((np.void, accumulators.itemsize * width))
    return accumulators.reshape(len(accumulators), width).view(record)[:, 0]


def _couples(accumulators: NDArray[np.float32]) -> NDArray[np.complex64]:
    """The two sums of the only output as one complex number: they move at once."""
    return accumulators.reshape(-1).view(np.complex64)
