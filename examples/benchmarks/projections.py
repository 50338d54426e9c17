"""Projections on the l1 ball: the whole vector, and after steps with few non-zeros.

First the projection of all features, by sorting and by random pivots. Then projected steps that
change k features each, which keep an ordered structure between steps: the compiled heap of
`dadagrad.optim.projection_tree`, and the same algorithm on the sorted list of the package
sortedcontainers. Both are run where most weights are 0 (steps hit features as words occur in text)
and where most are not (they start inside the ball and are hit evenly). At the end all structures
must agree with each other, and inside the ball, or the script fails.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import reporting
from measuring import seconds_of
from numpy.typing import NDArray
from sortedcontainers import SortedList

from dadagrad.optim.projection_tree import ProjectedGradient
from dadagrad.optim.projections import project_l1_ball

Array = NDArray[np.float64]
Step = tuple[NDArray[np.int64], Array]


class HeapBall:
    """Weights of one output, as `ProjectedGradient` keeps them."""

    def __init__(self, n_features: int, radius: float) -> None:
        self.update = ProjectedGradient(radius=radius)
        self.state = self.update.init(n_features, 1)

    def add(self, ids: NDArray[np.int64], change: Array) -> None:
        self.update.add(self.state, 0, ids, change)

    def weights(self, ids: NDArray[np.int64] | None = None) -> Array:
        return self.update.weights(self.state, ids)[:, 0]

    @property
    def n_nonzero(self) -> int:
        return int(self.state.preconditioner["totals"][0, 2])


class SortedListBall:
    """The algorithm of `HeapBall` on a sorted list of (key, feature)."""

    def __init__(self, weights: Array, radius: float) -> None:
        self.radius, self.shift = radius, 0.0
        self.signed = {int(i): float(weights[i]) for i in np.flatnonzero(weights)}
        self.keys = SortedList((abs(weight), i) for i, weight in self.signed.items())
        self.mass = float(np.abs(weights).sum())

    def add(self, ids: NDArray[np.int64], change: Array) -> None:
        for feature, amount in zip(ids.tolist(), change.tolist(), strict=True):
            weight = self.weight(feature)
            if weight:
                self.keys.remove((abs(self.signed.pop(feature)), feature))
            changed = weight + amount
            self.mass += abs(changed) - abs(weight)
            if changed:
                key = abs(changed) + self.shift
                self.signed[feature] = np.copysign(key, changed)
                self.keys.add((key, feature))
        if self.mass <= self.radius:
            return
        while self.keys[0][0] - self.shift <= (self.mass - self.radius) / len(self.keys):
            key, feature = self.keys.pop(0)
            self.mass -= key - self.shift
            del self.signed[feature]
        self.shift += (self.mass - self.radius) / len(self.keys)
        self.mass = self.radius

    def weight(self, feature: int) -> float:
        signed = self.signed.get(feature, 0.0)
        return float(np.copysign(abs(signed) - self.shift, signed)) if signed else 0.0


def main() -> None:
    parser = reporting.parser(__doc__)
    parser.add_argument("--features", type=int, default=2_000_000)
    parser.add_argument("--changed", type=int, default=1_000, help="features in each step")
    parser.add_argument("--steps", type=int, default=2_000, help="of the heap")
    parser.add_argument("--slow-steps", type=int, default=200, help="of the sorted list")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    text = "\n\n".join(
        [
            f"{options.features:,} features, the whole vector:",
            whole_vectors(options.features, rng),
            f"Steps that change {options.changed:,} features:",
            sparse_steps(options.features, options.changed, options.steps, options.slow_steps, rng),
        ]
    )
    reporting.publish("projections", text, options.markdown)


def whole_vectors(n_features: int, rng: np.random.Generator) -> str:
    """A table of projections of everything."""
    vector = rng.normal(size=n_features)
    weights = 10.0 ** rng.uniform(-1, 1, n_features)
    lines = []
    for name, chosen in (("Euclidean", np.ones(n_features)), ("weighted", weights)):
        for share in (1e-5, 1e-1):
            size = float(np.abs(vector) @ chosen)
            results, seconds = [], []
            for method in ("sort", "pivot"):
                took, projected = timed(vector, share * size, chosen, method)
                results.append(projected)
                seconds.append(took)
            must_agree(np.abs(results[0] - results[1]).max())
            n_nonzero = np.count_nonzero(results[0])
            lines.append([f"{name}, radius {share:g} of the norm", f"{n_nonzero:,}"])
            lines[-1] += [f"{1e3 * took:.0f}" for took in seconds]
    return reporting.table(["", "non-zeros", "sorting, ms", "pivots, ms"], lines)


def timed(vector: Array, radius: float, weights: Array, method: str) -> tuple[float, Array]:
    """The median seconds of five projections on {z : <weights, |z|> <= radius}, and their result.

    In y = weights z this is the projection of weights vector with |y|_1 <= radius, in the metric
    1 / weights^2.
    """
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        projected = project_l1_ball(weights * vector, weights**2, radius, method) / weights
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), projected


def sparse_steps(
    n_features: int, changed: int, n_steps: int, n_slow: int, rng: np.random.Generator
) -> str:
    """A table of projected steps."""
    full = rng.normal(size=n_features)
    cases = {
        "most weights 0": (np.zeros(n_features), 1_000.0, 0.3, True),
        "most weights not 0": (full, float(np.abs(full).sum()), 0.3, False),
    }
    lines = []
    for name, (start, radius, size, like_text) in cases.items():
        steps = draw_steps(n_features, changed, n_steps, size, like_text, rng)
        for _ in range(2):  # the first compiles
            heap = HeapBall(n_features, radius)
            heap.add(np.flatnonzero(start), start[np.flatnonzero(start)])
        heap_times = take(heap.add, steps[:n_slow])
        slow = SortedListBall(start, radius)
        slow_times = take(slow.add, steps[:n_slow])
        ids = np.unique(np.concatenate([ids for ids, _ in steps[:n_slow]]))
        slow_weights = np.array([slow.weight(int(feature)) for feature in ids])
        must_agree(np.abs(heap.weights(ids) - slow_weights).max())
        heap_times += take(heap.add, steps[n_slow:])
        must_agree(max(np.abs(heap.weights()).sum() / radius - 1.0, 0.0))
        rows = [
            ("heap", heap.n_nonzero, heap_times),
            ("sorted list", len(slow.keys), slow_times),
        ]
        for structure, n_nonzero, times in rows:
            figures = (statistics.median(times), statistics.fmean(times), max(times))
            lines.append([f"{structure}, {name}", f"{n_nonzero:,}", f"{len(times):,}"])
            lines[-1] += [f"{1e3 * figure:.2f}" for figure in figures]
    header = ["", "non-zeros, last", "steps", "ms (median)", "ms (mean)", "ms (max)"]
    return reporting.table(header, lines)


def draw_steps(
    n_features: int,
    changed: int,
    n_steps: int,
    size: float,
    like_text: bool,
    rng: np.random.Generator,
) -> list[Step]:
    """Distinct ids in each step: a few of them everywhere and most rare, or all alike."""
    steps = []
    for _ in range(n_steps):
        if like_text:
            drawn = n_features ** rng.random(2 * changed)  # the r-th feature as often as 1 / r
        else:
            drawn = n_features * rng.random(2 * changed)
        ids = rng.permutation(np.unique(np.minimum(drawn.astype(np.int64), n_features - 1)))
        ids = ids[:changed]
        steps.append((ids, size * rng.normal(size=len(ids))))
    return steps


def take(add: Callable[[NDArray[np.int64], Array], None], steps: Sequence[Step]) -> list[float]:
    """The seconds of each step."""
    return [seconds_of(partial(add, *step)) for step in steps]


def must_agree(difference: float) -> None:
    if difference > 1e-9:
        sys.exit(f"two ways to project differ by {difference:g}")


if __name__ == "__main__":
    main()
