"""The state of an update: sums per feature, and how a partition's share of them is taken out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dadagrad.kernels import Steps
    from dadagrad.method import Method


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
            np.zeros((1, method.n_outputs, 2)),
        )

    def copy(self) -> State:
        return replace(
            self,
            accumulators=self.accumulators.copy(),
            settled=self.settled.copy(),
            intercept=self.intercept.copy(),
        )

    def pull(self, ids: NDArray[np.int64]) -> State:
        """The share of the features `ids`, as compact arrays of their own."""
        return replace(
            self,
            accumulators=_records(self.accumulators)[ids]
            .view(np.float32)
            .reshape(len(ids), *self.accumulators.shape[1:]),
            settled=self.settled[ids] if len(self.settled) else np.zeros(0),
            intercept=self.intercept.copy(),
        )

    def push(self, ids: NDArray[np.int64], share: State) -> None:
        """Put a share that `pull` took out back in its place."""
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

    def intercepts(self, method: Method) -> NDArray[np.float64]:
        """The (n_outputs,) intercepts at t; 0 where none is fitted."""
        from dadagrad import kernels

        weights: NDArray[np.float64] = np.zeros((1, self.intercept.shape[1]))
        if method.config.update == "mirror-descent":
            weights[0] = self.intercept[0, :, 0]
        else:
            kernels.dual_weights(self.intercept, _free(method), self.t, weights)
        return weights.reshape(-1)

    def step(
        self,
        method: Method,
        gradient: NDArray[np.float64],
        squares: NDArray[np.float64],
    ) -> None:
        """One step of these features with their mean `gradient`; t and intercept stay."""
        from dadagrad import kernels

        if method.config.update == "mirror-descent":
            kernels.apply_mirror(
                self.accumulators, self.settled, method.steps, self.t, gradient, squares
            )
        else:
            kernels.apply_dual(self.accumulators, method.steps, self.t, gradient, squares)

    def step_intercept(
        self, method: Method, gradient: NDArray[np.float64], squares: NDArray[np.float64]
    ) -> None:
        """One step of the intercepts ((1, n_outputs) `gradient`), which ends the step: t grows."""
        from dadagrad import kernels

        if method.config.update == "mirror-descent":
            settled = np.full(1, self.t)
            kernels.apply_mirror(self.intercept, settled, _free(method), self.t, gradient, squares)
        else:
            kernels.apply_dual(self.intercept, _free(method), self.t, gradient, squares)
        self.t += 1.0


def _free(method: Method) -> Steps:
    """The settings of the intercept: no penalty, no box."""
    none = np.zeros(method.n_outputs)
    return method.steps._replace(l1=none, l2=none, low=-np.inf, high=np.inf)


def _records(accumulators: NDArray[np.float32]) -> NDArray[np.void]:
    """One opaque record per feature: numpy moves whole records faster than little rows."""
    width = accumulators.shape[1] * accumulators.shape[2]
    record = np.dtype((np.void, accumulators.itemsize * width))
    return accumulators.reshape(len(accumulators), width).view(record)[:, 0]
