"""Time of three projections onto the l1 ball (Duchi, Shalev-Shwartz, Singer and Chandra 2008).

Online logistic regression in {|w|_1 <= radius}: each row moves the weights of its words, then they
are projected. By sorting (fig. 1 there) that takes O(n log n) of n features, by random pivots
(fig. 2) O(n) on average, and in a structure that knows the order of the weights (fig. 3; here a
heap in the place of a tree) O(k log n) for the k words of a row: the first two grow with n, the
last hardly does. All three hold the same weights at the end, or the script fails. The rows are
those of a made-up corpus with the statistics of RCV1, which the paper uses, and in the second table
random rows of k features.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import Dataset
from dadagrad.data.synthetic import Corpus
from dadagrad.optim.projection_tree import ProjectedGradient
from dadagrad.optim.projections import project_l1_ball
from examples.papers.record import Claim, Options, Outcome, Plot, Table, order

Array = NDArray[np.float64]
Ids = NDArray[np.int64]


class Ball(Protocol):
    """Weights in an l1 ball."""

    def weights(self, ids: Ids | None = None) -> Array: ...

    def add(self, ids: Ids, change: Array) -> None: ...


class WholeBall:
    """Weights that are projected all at once."""

    def __init__(self, n_features: int, radius: float, method: Literal["sort", "pivot"]) -> None:
        self._weights, self._radius = np.zeros(n_features), radius
        self._method: Literal["sort", "pivot"] = method

    def weights(self, ids: Ids | None = None) -> Array:
        return self._weights if ids is None else self._weights[ids]

    def add(self, ids: Ids, change: Array) -> None:
        self._weights[ids] += change
        ones = np.ones(len(self._weights))
        self._weights = project_l1_ball(self._weights, ones, self._radius, self._method)


class HeapBall:
    """Weights of one output, as `ProjectedGradient` keeps them."""

    def __init__(self, n_features: int, radius: float) -> None:
        self.update = ProjectedGradient(radius=radius)
        self.state = self.update.init(n_features, 1)

    def add(self, ids: Ids, change: Array) -> None:
        self.update.add(self.state, 0, ids, change)

    def weights(self, ids: Ids | None = None) -> Array:
        return self.update.weights(self.state, ids)[:, 0]


BALLS: dict[str, Callable[[int, float], Ball]] = {
    "sorting": lambda n, radius: WholeBall(n, radius, "sort"),
    "pivots": lambda n, radius: WholeBall(n, radius, "pivot"),
    "heap": HeapBall,
}


def run(options: Options) -> Outcome:
    sizes = (2_000, 3_000) if options.quick else (10_000, 100_000, 500_000, 2_000_000)
    changes = (3, 10) if options.quick else (1, 10, 100, 1_000, 10_000)
    n_steps, radius = (20, 3.0) if options.quick else (100, 100.0)
    rows = []
    for n in sizes:
        data = Corpus(n_steps, n).dataset()
        rows.append(measure(n, list(itertools.islice(examples(data), n_steps)), radius))
    of_changes = [
        measure(sizes[-1], random_rows(sizes[-1], k, n_steps // 5), radius) for k in changes
    ]
    columns = ("features", "changed weights", "not 0", *BALLS)
    tables = [
        Table("Milliseconds a step (median), rows of the corpus", columns, rows),
        Table("Milliseconds a step (median), random rows", columns, of_changes),
    ]
    plots = []
    for axis, numbers, table in (
        ("features", sizes, rows),
        ("changed weights", changes, of_changes),
    ):
        lines = {name: (numbers, [row[3 + k] for row in table]) for k, name in enumerate(BALLS)}
        file = f"l1_projections_{axis.replace(' ', '_')}"
        plots.append(Plot(file, "A projected step", axis, "milliseconds", lines, "xy"))
    return Outcome(tables, plots)


def claims(of_features: list[dict[str, Any]], of_changes: list[dict[str, Any]]) -> list[Claim]:
    growth = {name: of_features[-1][name] / of_features[0][name] for name in BALLS}
    more = of_features[-1]["features"] / of_features[0]["features"]
    fastest = [row["heap"] == min(row[name] for name in BALLS) for row in of_changes]
    return [
        Claim(
            "With sparse gradients the time of a projected step hardly grows with n.",
            growth["heap"] < 0.05 * more and all(fastest),
            f"times as long with {more:,.0f} times as many features: {order(growth)}; the heap is "
            f"the fastest for {sum(fastest)} of {len(fastest)} numbers of changed weights",
        )
    ]


def random_rows(n: int, k: int, n_rows: int) -> list[tuple[Ids, Array]]:
    """Rows of k random features with Gaussian values."""
    rng = np.random.default_rng(0)
    return [(np.sort(rng.choice(n, k, replace=False)), rng.normal(size=k)) for _ in range(n_rows)]


def measure(n: int, stream: list[tuple[Ids, Array]], radius: float) -> list[float]:
    """One line of a table."""
    learn(HeapBall(n, radius), stream[:2])  # compiles
    balls = {name: make(n, radius) for name, make in BALLS.items()}
    seconds = [learn(ball, stream) for ball in balls.values()]
    weights = [ball.weights() for ball in balls.values()]
    if max(np.abs(other - weights[0]).max() for other in weights) > 1e-9:
        raise RuntimeError("the projections do not agree")
    words = round(float(np.mean([len(ids) for ids, _ in stream])))
    return [n, words, int(np.count_nonzero(weights[0])), *(1e3 * each for each in seconds)]


def examples(data: Dataset) -> Iterator[tuple[Ids, Array]]:
    """The features of each row, and its values times its label (the sign of the first column)."""
    for partition in range(len(data.partitions)):
        rows = data.read(partition)
        for row in range(rows.n_rows):
            entries = slice(int(rows.indptr[row]), int(rows.indptr[row + 1]))
            ids = rows.vocabulary[rows.indices[entries]]
            values = np.ones(len(ids)) if rows.values is None else rows.values[entries]
            scale = 1.0 if rows.row_scale is None else float(rows.row_scale[row])
            sign = 1.0 if rows.labels[row, 0] > 0 else -1.0
            yield ids, sign * scale * np.asarray(values, np.float64)


def learn(ball: Ball, stream: list[tuple[Ids, Array]]) -> float:
    """Projected steps of 50 / sqrt(t) on logistic losses; the median of their CPU seconds."""
    seconds = []
    for t, (ids, signed) in enumerate(stream, start=1):
        start = time.process_time()
        margin = float(signed @ ball.weights(ids))
        step = 50.0 / np.sqrt(t) * np.exp(-np.logaddexp(0.0, margin))
        ball.add(ids, step * signed)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)
