"""Sketch: what a row costs ADA-FD, beside the full metric and a bare decomposition.

Dense rows of 5,000 features go one by one through dual averaging (a step, and the weights after
it) in the metric of a sketch of rank 10 and in the full metric, and through mirror descent in the
same sketch. Beside them stands what keeping a sketch costs without ado: one singular value
decomposition of rank x features every rank rows, which gives no weights yet. All run on one thread
and take turns; figures are medians over rounds. With l1, the weights solve a problem in as many
unknowns as the sketch has rows. Without l1, ADA-FD must be at least 20 times as fast as the full
metric, and within 2 times the decompositions.

The full metric decomposes a matrix of 5,000 x 5,000 at every row, which takes 15 seconds or
more. `--full-rows` says how many such rows are measured.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable

import numpy as np
import reporting
from measuring import seconds_of
from threadpoolctl import threadpool_limits

from dadagrad.optim.preconditioners import Full, Sketch
from dadagrad.optim.regularizers import ElasticBox
from dadagrad.optim.updates import DualAveraging, MirrorDescent, Update

MIN_SPEEDUP = 20.0
MAX_DECOMPOSITIONS = 2.0


def main() -> None:
    parser = reporting.parser(__doc__)
    parser.add_argument("--rows", type=int, default=500, help="a round (default: %(default)s)")
    parser.add_argument("--features", type=int, default=5_000)
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--full-rows", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=7, help="default: %(default)s")
    options = parser.parse_args()
    rows = draw_rows(options.rows, options.features)
    sketch, none, l1 = Sketch(1.0, options.rank), ElasticBox(), ElasticBox(l1=0.01)
    default = Sketch(rank=options.rank)
    runs: dict[str, Callable[[], float]] = {
        "ADA-FD, dual averaging": lambda: learn(DualAveraging(0.1, sketch, none), rows),
        "ADA-FD, mirror descent": lambda: learn(MirrorDescent(0.1, sketch, none), rows),
        f"SVD of {options.rank} rows, every {options.rank} rows": lambda: decompose(
            rows, options.rank
        ),
        "ADA-FD, dual averaging, l1": lambda: learn(DualAveraging(0.1, sketch, l1), rows),
        f"ADA-FD, dual averaging, l1, delta = {default.delta:g}": lambda: learn(
            DualAveraging(0.1, default, l1), rows
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            seconds[name].append(run())
    full = learn(DualAveraging(0.1, Full(1.0), none), rows[: options.full_rows])
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    medians["ADA-FULL, dual averaging"] = full
    dual, mirror, bare, *_ = medians.values()
    lines = [
        [name, f"{1e6 * median:,.0f}", f"{median / dual:,.2f}", f"{median / bare:,.2f}"]
        for name, median in medians.items()
    ]
    text = reporting.table(["", "µs a row", "x ADA-FD", "x SVD"], lines)
    reporting.publish(
        "sketch",
        f"{options.features:,} features, rank {options.rank}, {options.rounds} alternating rounds "
        f"of {options.rows} dense rows ({options.full_rows} rows for ADA-FULL):\n\n{text}",
        options.markdown,
    )
    slowest = max(dual, mirror)
    if full < MIN_SPEEDUP * slowest:
        sys.exit(f"ADA-FULL takes {full / slowest:.1f} times ADA-FD; at least {MIN_SPEEDUP}")
    if slowest > MAX_DECOMPOSITIONS * bare:
        sys.exit(f"ADA-FD takes {slowest / bare:.2f} times the SVD; at most {MAX_DECOMPOSITIONS}")


def draw_rows(n_rows: int, n_features: int) -> np.ndarray:
    """(n_rows, n_features) with decaying singular values, so that shrinking removes something."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(n_rows, 50)) / np.arange(1, 51)
    rows: np.ndarray = factors @ rng.normal(size=(50, n_features))
    return rows + 0.01 * rng.normal(size=rows.shape)


def learn(update: Update, rows: np.ndarray) -> float:
    """Seconds a row: a step with the row as its gradient, and the weights after it."""
    state = update.init(rows.shape[1], 1)

    def walk() -> None:
        now = state
        for row in rows:
            now = update.step(now, row[:, None])
            update.weights(now)

    return seconds_of(walk) / len(rows)


def decompose(rows: np.ndarray, rank: int) -> float:
    """Seconds a row: a singular value decomposition of every `rank` rows."""

    def walk() -> None:
        for start in range(0, len(rows), rank):
            np.linalg.svd(rows[start : start + rank], full_matrices=False)

    return seconds_of(walk) / len(rows)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
