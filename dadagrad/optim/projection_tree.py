"""Projected gradient steps on the l1 ball when gradients are sparse: O(k log n) for k non-zeros.

    w <- the point of {|w|_1 <= radius} nearest to w + change

moves every non-zero weight by the same theta towards 0, so it is kept once for all of them
(Duchi, Shalev-Shwartz, Singer and Chandra 2008, section 6): the key of feature i is |w_i| + shift,
and a projection adds theta to the shift.

The paper keeps the keys in a red-black tree with sums, searches it for the pivot (fig. 3) and
splits off what falls to 0. Here a heap is enough. Before the projection all keys exceed the shift,
so theta >= (|w|_1 - radius) / (how many are not 0), and a feature that is not above that bound is 0
afterwards. Taking the least key out raises the bound; when the least key stays above it, the bound
is theta. Each feature taken out was once put in, so an update takes amortised O(k log n), too.

Digits are kept: before the shift has grown to 1024 radii all keys are moved back by it, and the
mass |w|_1 is counted anew every so many changes as there are features in the heap, both of which
is O(1) per change.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

import numpy as np

from dadagrad.errors import InputError
from dadagrad.optim.arrays import Array, Arrays, Ids, Shapes, rows_of
from dadagrad.optim.preconditioners.base import Step
from dadagrad.optim.registry import Positive, register
from dadagrad.optim.updates import UPDATES, GradientUpdate, State


@register(UPDATES, "projected-gradient")
class ProjectedGradient(GradientUpdate):
    """Projected gradient descent on the l1 ball of each output: O(k log n) a step.

    w <- the point of {|w|_1 <= radius} nearest to w - eta / sqrt(t) g (Zinkevich 2003), where k is
    the number of non-zeros of g. The state keeps the signed keys of all weights as ``primary`` and
    the heap of each output in arrays with a leading axis of outputs.
    """

    radius: Positive = field(kw_only=True)

    has_kernels: ClassVar[bool] = False
    uses_penalties: ClassVar[bool] = False
    weighs_ids: ClassVar[bool] = True

    def init(self, n_features: int, n_outputs: int) -> State:
        if not 1 <= n_features < 2**31:
            raise InputError(f"n_features must be from 1 to {2**31 - 1}, not {n_features}")
        kinds = {"places": np.int32, "order": np.int32}
        arrays: Arrays = {
            name: np.zeros(shape, kinds.get(name, np.float64))
            for name, shape in self._held_shapes(n_features, n_outputs).items()
        }
        return State(0.0, np.zeros((n_features, n_outputs)), arrays)

    def _held_shapes(self, n_features: int, n_outputs: int) -> Shapes:
        heaps = dict.fromkeys(("places", "keys", "order"), (n_outputs, n_features))
        return {**heaps, "totals": (n_outputs, 4)}

    def weights(self, state: State, ids: Ids | None = None) -> Array:
        signed = rows_of(state.primary, ids)
        sizes = np.maximum(np.abs(signed) - state.preconditioner["totals"][:, 0], 0.0)
        weights: Array = np.copysign(sizes, signed)
        return weights

    def _step(self, state: State, step: Step) -> State:
        t = state.t + step.importance
        for output, column in enumerate(step.gradient.T):
            moved = np.flatnonzero(column)
            ids = moved if step.ids is None else step.ids[moved]
            self.add(state, output, ids, -self.step_size / np.sqrt(t) * column[moved])
        return State(t, state.primary, state.preconditioner)

    def add(self, state: State, output: int, ids: Ids, change: Array) -> None:
        """Add `change` to the weights of `ids` of an output, then project all, in place.

        A feature that is named twice gets both changes.
        """
        from dadagrad.optim.projection_kernels import Heap, add

        arrays = state.preconditioner
        held = (arrays[name][output] for name in ("places", "keys", "order", "totals"))
        add(Heap(state.primary[:, output], *held), ids, change, float(self.radius))
