"""The state of the compiled updates: sums per feature, of which a partition takes out its share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.arena import Arena, Arenas
from dadagrad.memory import zeros
from dadagrad.training.intercept import intercepts, step_intercepts, zero_intercept

if TYPE_CHECKING:
    from dadagrad.kernels import Batch
    from dadagrad.method import Method
    from dadagrad.training.gradient_sums import GradientSum


Shapes = dict[str, tuple[tuple[int, ...], int]]


@dataclass(slots=True)
class State:
    """Everything that training changes.

    Outputs that are walked together are a bundle of `width`. What belongs to a bundle lies
    together: bundles are learned apart.

    Attributes
    ----------
    accumulators : (n_bundles, n_features, width, 2) float32
        Side by side, because each visit needs both: the primary sum (the gradient sum u of dual
        averaging, the corrected sum z of FTRL, the weights of mirror descent) and the sum of
        squared gradients G.
    settled : (n_bundles, n_features) float64, or (n_bundles, 0)
        Mirror descent only: the t up to which the weights of a feature have been shrunk.
    intercept : (n_bundles, 1, width, 2) float64
        The accumulators of the intercept.
    t : float
        Steps so far, by importance.
    """

    accumulators: NDArray[np.float32]
    settled: NDArray[np.float64]
    intercept: NDArray[np.float64]
    t: float = 0.0
    _arenas: Arenas = field(default_factory=Arenas, repr=False, compare=False)

    @classmethod
    def zero(cls, method: Method) -> State:
        """The state before the first step."""
        n_bundles, n_features = method.n_bundles, method.n_features
        settled = n_features if method.config.update == "mirror-descent" else 0
        return cls(
            zeros((n_bundles, n_features, method.bundle_width, 2), np.float32),
            zeros((n_bundles, settled), np.float64),
            zero_intercept(method),
        )

    @classmethod
    def shapes(cls, method: Method) -> Shapes:
        """The shapes of `arrays`, and the bytes of a number of each; no memory is taken."""
        n_bundles, n_features, width = method.n_bundles, method.n_features, method.bundle_width
        lazy = method.config.update == "mirror-descent"
        return {
            "accumulators": ((n_bundles, n_features, width, 2), 4),
            "settled": ((n_bundles, n_features if lazy else 0), 8),
            "intercept": ((n_bundles, 1, width, 2), 8),
        }

    @property
    def n_features(self) -> int:
        """Features that this is the state of."""
        return int(self.accumulators.shape[1])

    def reset(self) -> None:
        """Back to before the first step, in the same memory."""
        for array in self.arrays.values():
            array.fill(0)
        self.t = 0.0

    def copy(self) -> State:
        return State(self.accumulators.copy(), self.settled.copy(), self.intercept.copy(), self.t)

    def walk(
        self,
        method: Method,
        bundle: int,
        ids: NDArray[np.int64],
        batch: Batch,
        margins: NDArray[np.float64],
    ) -> float:
        """Have the outputs of one bundle walk the rows of `batch`, one step each; t after them.

        The rows are over the features `ids`, whose share of the state is taken out, walked on and
        put back. `t` stays as it is, for the bundles to come. The (width, n_rows) `margins` are
        written.
        """
        from dadagrad import kernels

        problem, steps = method.of_bundle(bundle)
        # What other threads write meanwhile must not be close by.
        intercept = self.intercept[bundle].copy()
        arena = self._arenas.take()
        accumulators = self._taken(bundle, ids, arena)
        if method.config.update == "mirror-descent":
            settled = self.settled[bundle, ids]
            t = kernels.walk_mirror(
                batch, problem, steps, accumulators, settled, intercept, self.t, margins
            )
            self.settled[bundle, ids] = settled
        else:
            t = kernels.walk_dual(batch, problem, steps, accumulators, intercept, self.t, margins)
        self._put_back(bundle, ids, accumulators)
        self._arenas.give_back(arena)
        self.intercept[bundle] = intercept
        return float(t)

    def _taken(self, bundle: int, ids: NDArray[np.int64], arena: Arena) -> NDArray[np.float32]:
        """The accumulators of `ids`, in memory of `arena`; those of all features are no copy."""
        from dadagrad.training.compact import take

        everything: NDArray[np.float32] = self.accumulators[bundle]
        if len(ids) == len(everything):
            return everything
        width = everything.shape[1]
        out = arena.empty("accumulators", len(ids) * width * 2, np.float32)
        out = out.reshape(len(ids), width, 2)
        take(_records(everything), ids, _records(out))
        return out

    def _put_back(self, bundle: int, ids: NDArray[np.int64], taken: NDArray[np.float32]) -> None:
        """Undo `_taken`."""
        from dadagrad.training.compact import put

        if len(ids) < self.accumulators.shape[1]:
            put(_records(self.accumulators[bundle]), ids, _records(taken))

    def pull(self, ids: NDArray[np.int64]) -> State:
        """The share of the features `ids`, as compact arrays of their own."""
        from dadagrad.training.compact import take

        n_bundles, _, width, _ = self.accumulators.shape
        out = np.empty((n_bundles, len(ids), width, 2), np.float32)
        for everything, share in zip(self.accumulators, out, strict=True):
            take(_records(everything), ids, _records(share))
        settled = self.settled.take(ids, axis=1) if self.settled.size else self.settled.copy()
        return State(out, settled, self.intercept.copy(), self.t)

    def push(self, ids: NDArray[np.int64], share: State) -> None:
        """Put a share that `pull` took out back in its place."""
        from dadagrad.training.compact import put

        for everything, own in zip(self.accumulators, share.accumulators, strict=True):
            put(_records(everything), ids, _records(own))
        if self.settled.size:
            self.settled[:, ids] = share.settled
        self.intercept = share.intercept.copy()
        self.t = share.t

    def weights(self, method: Method) -> NDArray[np.float32]:
        """The (n_features, n_outputs) weights at t."""
        from dadagrad import kernels

        weights = np.empty((self.accumulators.shape[1], method.n_outputs), np.float32)
        if method.config.update == "mirror-descent":
            kernels.mirror_weights(self.accumulators, self.settled, method.steps, self.t, weights)
        else:
            kernels.dual_weights(self.accumulators, method.steps, self.t, weights)
        return weights

    def part(self, start: int, stop: int) -> State:
        """The share of the features from `start` to before `stop`; with one bundle no copy."""
        return replace(
            self,
            accumulators=np.ascontiguousarray(self.accumulators[:, start:stop]),
            settled=np.ascontiguousarray(self.settled[:, start:stop]),
        )

    def differences(self, other: State) -> NDArray[np.int64]:
        """Where, increasing, the features are whose state differs from that in `other`."""
        different = np.zeros(self.n_features, np.bool_)
        for own, others in zip(self.accumulators, other.accumulators, strict=True):
            for number in (_records(own) != _records(others)).T:
                different |= number
        for settled, before in zip(self.settled, other.settled, strict=True):
            if len(settled):
                different |= settled != before
        return np.flatnonzero(different)

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


def _records(accumulators: NDArray[np.float32]) -> NDArray[np.complexfloating[Any, Any]]:
    """The sums of each feature as few complex numbers, in the same memory: they move faster."""
    together = np.complex64 if accumulators.shape[1] % 2 else np.complex128
    return accumulators.reshape(len(accumulators), 2 * accumulators.shape[1]).view(together)
