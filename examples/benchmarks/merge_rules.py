"""Rules for merging what streams made of one state, for `streams.py` to compare.

Each takes, for every coordinate that some stream changed, the sum of gradients u and of their
squares G before the round, what the streams changed of them (du_k, dG_k) and of the weight (dw_k),
and says what u and G are after it. They are about dual averaging without a penalty, where
w = -eta u / (delta + sqrt(G)).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.rows import Rows
from dadagrad.problem import Problem
from dadagrad.training.coordinator.combine import Progress, StreamMerge
from dadagrad.training.schedule.base import Cursor, Stretch
from dadagrad.training.schedule.streams import StreamSchedule
from dadagrad.training.state.compiled import State
from dadagrad.training.state.slices import FeatureSlice
from dadagrad.training.worker.compute import compute

Array = NDArray[np.float64]


@dataclass(slots=True)
class Changes:
    """Sums over the streams, (n_changed, n_outputs) each.

    `weighted` is the sum of (G + dG_k) (w + dw_k) over those that changed the coordinate, `largest`
    the largest |dw_k|.
    """

    streams: int
    eta: float
    delta: float
    u: Array
    G: Array
    n: Array
    du: Array
    du2: Array
    ds: Array
    ds2: Array
    weighted: Array
    largest: Array

    @classmethod
    def none(cls, problem: Problem, streams: int, state: NDArray[np.floating]) -> Changes:
        u, G = state[..., 0].astype(np.float64), state[..., 1].astype(np.float64)
        sums = [np.zeros(u.shape) for _ in fields(cls)[5:]]
        return cls(streams, problem.step_size, problem.hyperparameters.delta, u, G, *sums)

    def weight(self, u: Array, G: Array) -> Array:
        return -self.eta * u / (self.delta + np.sqrt(G))

    def sum_at(self, w: Array, G: Array) -> Array:
        """The u that makes w with G."""
        return -w * (self.delta + np.sqrt(G)) / self.eta

    def add(self, places: NDArray[np.int64], state: NDArray[np.floating]) -> None:
        """Count what a stream made of the coordinates at `places`."""
        u, G = state[..., 0].astype(np.float64), state[..., 1].astype(np.float64)
        du, ds = u - self.u[places], G - self.G[places]
        w = self.weight(u, G)
        dw = w - self.weight(self.u[places], self.G[places])
        changed = (du != 0.0) | (ds != 0.0)
        self.n[places] += changed
        self.du[places] += du
        self.du2[places] += du**2
        self.ds[places] += ds
        self.ds2[places] += ds**2
        self.weighted[places] += changed * G * w
        self.largest[places] = np.maximum(self.largest[places], np.abs(dw))

    @property
    def participation(self) -> Array:
        alone = np.maximum(self.n, 1.0)
        return np.where(self.ds2 > 0.0, self.ds**2 / np.maximum(self.ds2, 1e-300), alone)

    @property
    def agreement(self) -> Array:
        """Participation of the sums of gradients: less where their signs differ."""
        return np.maximum(1.0, self.du**2 / np.maximum(self.du2, 1e-300))


Rule = Callable[[Changes], tuple[Array, Array]]


def added(changes: Changes) -> tuple[Array, Array]:
    return changes.u + changes.du, changes.G + changes.ds


def divided(c: Array, changes: Changes) -> tuple[Array, Array]:
    return changes.u + changes.du / c, changes.G + changes.ds / c


def participation(power: float = 1.0) -> Rule:
    return lambda changes: divided(changes.participation**power, changes)


def halfway(changes: Changes) -> tuple[Array, Array]:
    """Three quarters of the way from a sum to participation."""
    return divided(0.25 + 0.75 * changes.participation, changes)


def agreement(changes: Changes) -> tuple[Array, Array]:
    return divided(changes.agreement, changes)


def weights_by_squares(changes: Changes) -> tuple[Array, Array]:
    """Means weighted by G_k, of all streams, of w_k and G_k: Vowpal Wabbit's."""
    absent, w = changes.streams - changes.n, changes.weight(changes.u, changes.G)
    total = np.maximum(changes.streams * changes.G + changes.ds, 1e-300)
    squares = changes.streams * changes.G**2 + 2.0 * changes.G * changes.ds + changes.ds2
    G = squares / total
    return changes.sum_at((absent * changes.G * w + changes.weighted) / total, G), G


def revision(changes: Changes) -> tuple[Array, Array]:
    """Adaptive revision (McMahan and Streeter 2014): G grows by what delays make of gradients.

    A gradient g counts as g^2 + 2 g b, where b is what others added that it did not know of.
    """
    delayed = changes.ds + changes.du**2 - changes.du2
    return changes.u + changes.du, changes.G + np.maximum(changes.ds, delayed)


def trusted(rule: Rule, factor: float) -> Rule:
    """`rule`, but no weight moves farther than `factor` times what it did in some stream."""

    def bounded(changes: Changes) -> tuple[Array, Array]:
        u, G = rule(changes)
        before, most = changes.weight(changes.u, changes.G), factor * changes.largest
        return changes.sum_at(before + np.clip(changes.weight(u, G) - before, -most, most), G), G

    return bounded


RULES: dict[str, Rule] = {
    "divided by participation (dadagrad, without momentum)": participation(),
    "by its power 0.75": participation(0.75),
    "by 1/4 + 3/4 of it": halfway,
    "divided by agreement": agreement,
    "mean of weights by G (VW's)": weights_by_squares,
    "sum, trust region": trusted(added, 1.0),
    "sum, adaptive revision": revision,
    "sum": added,
}


def walk(
    problem: Problem,
    partitions: Sequence[Rows],
    schedule: StreamSchedule,
    rule: Rule,
) -> State:
    """The state after all rounds of `schedule`, with streams merged by `rule`."""
    state = State.zero(problem)
    for round_ in schedule.rounds(Cursor()):
        walks = [stretch(problem, partitions, state, part) for part in round_.stretches]
        end = state.t + sum(stream.content.t - state.t for stream in walks)
        ids = np.unique(np.concatenate([stream.ids for stream in walks]))
        share = state.pull(ids)
        places = [np.searchsorted(ids, stream.ids) for stream in walks]
        _merge(
            problem,
            share.accumulators,
            places,
            [stream.content.accumulators for stream in walks],
            rule,
        )
        nowhere = [np.zeros(1, np.int64)] * len(walks)
        _merge(
            problem, share.intercept, nowhere, [stream.content.intercept for stream in walks], rule
        )
        share.t = end
        state.push(ids, share)
    return state


def stretch(
    problem: Problem, partitions: Sequence[Rows], state: State, slices: Stretch
) -> FeatureSlice[State]:
    """Sums that a stream learns from its slices of a round."""
    streams, progress = StreamMerge(problem, state), Progress(slices)
    for slice_ in slices:
        rows = partitions[slice_.partition]
        slice_input = streams.give(progress)
        result = compute(problem, rows, slice_, slice_input, f"partition {slice_.partition}")
        streams.take(progress, result)
    assert progress.change is not None
    return progress.change


def _merge(
    problem: Problem,
    state: NDArray[np.floating],
    places: Sequence[NDArray[np.int64]],
    changed: Sequence[NDArray[np.floating]],
    rule: Rule,
) -> None:
    for group, base in enumerate(state):
        changes = Changes.none(problem, len(changed), base)
        for positions, stream in zip(places, changed, strict=True):
            changes.add(positions, stream[group])
        u, G = rule(changes)
        moved = changes.n > 0
        base[moved, 0], base[moved, 1] = u[moved], G[moved]
