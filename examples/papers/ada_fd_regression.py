"""Online regression in the metrics of Wan, Wei and Zhang (2018), section 4.1 and figure 1.

Absolute losses |<b, x> - y| with y = <b*, x>, |b*|_2 = 1, and Gaussian x of mean 1 whose
covariance has the eigenvalues 100 / j^2: an approximately low rank, which a sketch of 10 directions
mostly holds. As b* has no loss, the sum of all losses is the regret of the paper's figure. Step
size and delta of each algorithm are the best of a grid on the first rows, as the paper chooses
them; RADAGRAD and ADA-LR are means over random projections. The paper has 500 features and 10,000
rows (`--features 500 --rows 10000`, hours because of ADA-FULL); the defaults show the same order
in less than a minute: ADA-FULL, its sketches close to it, the diagonal metric behind, and seconds
that grow with the rank instead of with the features squared or cubed.

    python examples/papers/ada_fd.py [--features D] [--rows T] [--tuning ROWS] [--rank TAU]
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dadagrad.optim.preconditioners import (
    AdaLowRank,
    CorrectedSketch,
    Diagonal,
    Full,
    Preconditioner,
    RadaGrad,
    Sketch,
    SketchedNewton,
)
from dadagrad.optim.regularizers import ElasticBox
from dadagrad.optim.updates import DualAveraging, MirrorDescent, Update

Array = NDArray[np.float64]

GRID = tuple(10.0**power for power in range(-4, 3))  # of step sizes and of deltas, as theirs
PROJECTIONS = 3


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--tuning", type=int, default=100, help="rows that settings are chosen on")
    parser.add_argument("--rank", type=int, default=10)
    given = parser.parse_args(arguments)
    rows, targets = draw(given.rows, given.features)
    first = rows[: given.tuning], targets[: given.tuning]
    print(f"{given.rows:,} rows, {given.features} features, rank {given.rank}\n")
    print("| metric | update | step size | delta | regret | seconds |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for kind, preconditioners in algorithms(given.rank).items():
        for name, makers in preconditioners.items():
            eta, delta = choose(kind, makers[0], *first)
            start = time.perf_counter()
            updates = [kind(eta, maker(delta), ElasticBox()) for maker in makers]
            found = [regret(update, rows, targets) for update in updates]
            seconds = (time.perf_counter() - start) / len(makers)
            print(
                f"| {name} | {kind.__name__} | {eta:g} | {delta:g} | {np.mean(found):,.0f} | "
                f"{seconds:.2f} |",
                flush=True,
            )


Maker = Callable[[float], Preconditioner]
Kind = type[DualAveraging] | type[MirrorDescent]


def choose(kind: Kind, maker: Maker, rows: Array, targets: Array) -> tuple[float, float]:
    """The step size and the delta of least regret."""
    regrets = {
        (eta, delta): regret(kind(eta, maker(delta), ElasticBox()), rows, targets)
        for eta, delta in itertools.product(GRID, GRID)
    }
    return min(regrets, key=lambda pair: regrets[pair])


def algorithms(rank: int) -> dict[Kind, dict[str, list[Maker]]]:
    """What makes each metric of a delta; several for those that have a random projection.

    RADAGRAD, ADA-LR and FD-SON are made for mirror descent.
    """
    seeds = range(PROJECTIONS)
    both: dict[str, list[Maker]] = {
        "ADA-FULL": [Full],
        "ADA-FD": [partial(Sketch, rank=rank)],
        "corrected sketch": [partial(CorrectedSketch, rank)],
        "ADA-DIAG": [Diagonal],
    }
    mirror: dict[str, list[Maker]] = {
        "RADAGRAD": [partial(RadaGrad, rank=rank, seed=seed) for seed in seeds],
        "ADA-LR": [partial(AdaLowRank, rank=rank, seed=seed) for seed in seeds],
        "FD-SON": [partial(SketchedNewton, rank=rank)],
    }
    return {DualAveraging: both, MirrorDescent: both | mirror}


def draw(n_rows: int, n_features: int) -> tuple[Array, Array]:
    """Rows and targets, (n_rows, n_features) and (n_rows,)."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=n_features)
    truth /= np.linalg.norm(truth)
    directions = np.linalg.qr(rng.normal(size=(n_features, n_features))).Q
    deviations = 10.0 / np.arange(1, n_features + 1)
    rows: Array = 1.0 + rng.normal(size=(n_rows, n_features)) * deviations @ directions.T
    return rows, rows @ truth


def regret(update: Update, rows: Array, targets: Array) -> float:
    """The sum of |<w_t, x_t> - y_t|."""
    state, total = update.init(rows.shape[1], 1), 0.0
    for row, target in zip(rows, targets, strict=True):
        error = float(row @ update.weights(state)[:, 0]) - target
        total += abs(error)
        state = update.step(state, np.sign(error) * row[:, None])
    return total


if __name__ == "__main__":
    main()
