"""Outputs: many linear models on one stream, and whole features that vanish together.

First, one pass over rows that are in memory already, with one label column and with more: what a
pass with 16 outputs costs beside a pass with one. That is the kernel and the moving of state;
reading and decoding, which all outputs share, are left out.

Second, dual averaging with the mixed l1/l2 norm over the outputs of each feature: a step with the
gradient of some features, and their weights after it. It must cost as much as those features,
not as all there are.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import reporting
from memory import prepare

from dadagrad import Dataset, TrainConfig, open_dataset, train
from dadagrad.data.dataset import LabelColumn, MemoryDataset
from dadagrad.data.rows import Rows
from dadagrad.metrics import Diagonal
from dadagrad.regularizers import MixedL2
from dadagrad.synthetic import Corpus
from dadagrad.updates import DualAveraging

GOAL = 6.0


def main() -> None:
    parser = reporting.parser(__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="default: %(default)s")
    parser.add_argument("--features", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    options = parser.parse_args()
    passes = measure_passes(options)
    steps = measure_steps(options.features, 10, options.rounds)
    ratio = passes[-1][1] / passes[0][1]
    lines = [
        [f"{outputs}", f"{taken:.3f}", f"{taken / passes[0][1]:.1f}"] for outputs, taken in passes
    ]
    text = (
        f"{options.rows:,} rows in memory, {options.features:,} features, one pass, medians of "
        f"{options.rounds} rounds:\n\n{reporting.table(['outputs', 's', 'x one'], lines)}\n\n"
        f"Goal: 16 outputs at most {GOAL:g} times one: "
        f"{'reached' if ratio <= GOAL else 'not reached'}.\n\n"
        f"Mixed l1/l2 norm, {options.features:,} features x 10 outputs, a step and the weights "
        "after it:\n\n"
    )
    lines = [[f"{touched:,}", f"{1e3 * taken:.2f}"] for touched, taken in steps]
    reporting.publish(
        "outputs", text + reporting.table(["features touched", "ms"], lines), options.markdown
    )


def measure_passes(options: argparse.Namespace) -> list[tuple[int, float]]:
    """Outputs, and the median seconds of a pass; the rounds take turns."""
    data = open_dataset(str(prepare(options.folder, Corpus(options.rows, options.features, 66.0))))
    parts = [data.read(number) for number in range(len(data.partitions))]
    counts = (1, 4, 16)
    sets = {outputs: with_labels(data, parts, outputs) for outputs in counts}
    taken: dict[int, list[float]] = {outputs: [] for outputs in counts}
    for _ in range(options.rounds + 1):
        for outputs, rows in sets.items():
            report = train(rows, TrainConfig(step_size=0.2)).report
            taken[outputs].append(report["seconds"])
    return [(outputs, statistics.median(seconds[1:])) for outputs, seconds in taken.items()]


def with_labels(data: Dataset, parts: Sequence[Rows], outputs: int) -> MemoryDataset:
    """The same rows with `outputs` columns of signs: the label, with some rows turned around."""
    generator = np.random.default_rng(outputs)
    made = []
    for rows in parts:
        signs = np.where(generator.random((rows.n_rows, outputs)) < 0.1, -1.0, 1.0)
        made.append(replace(rows, labels=rows.labels[:, :1] * signs))
    column = data.schema.label_columns[0]
    columns = tuple(
        LabelColumn(f"label{number}", column.values, column.counts) for number in range(outputs)
    )
    return MemoryDataset(made, replace(data.schema, label_columns=columns))


def measure_steps(n_features: int, n_outputs: int, rounds: int) -> list[tuple[int, float]]:
    """Features of a gradient, and the median seconds of a step."""
    generator = np.random.default_rng(0)
    update = DualAveraging(0.1, Diagonal(1e-6), MixedL2(1e-4))
    state = update.init(n_features, n_outputs)
    figures = []
    for touched in (1_000, 10_000, 100_000):
        ids = np.sort(generator.choice(n_features, touched, replace=False))
        gradient = generator.normal(size=(touched, n_outputs))
        taken = []
        for _ in range(rounds + 1):
            begun = time.perf_counter()
            state = update.step(state, gradient, ids=ids)
            update.weights(state, ids)
            taken.append(time.perf_counter() - begun)
        figures.append((touched, statistics.median(taken[1:])))
    return figures


if __name__ == "__main__":
    main()
