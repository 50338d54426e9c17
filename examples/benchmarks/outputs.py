"""Outputs: many linear models on one stream, and whole features that vanish together.

First, one pass with one label column and with more: what a pass with 16 outputs costs beside a pass
with one. From disk, where reading and decoding are shared by all outputs, and over rows that are in
memory already, where what is left is the walks and the moving of state.

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
from pathlib import Path

import numpy as np
import reporting
from memory import prepare

from dadagrad import Dataset, TrainConfig, open_dataset, train
from dadagrad.data.dataset import LabelColumn, MemoryDataset
from dadagrad.data.rows import Rows
from dadagrad.data.synthetic import Corpus
from dadagrad.data.zarr.writer import write_partition, write_root
from dadagrad.optim.preconditioners import Diagonal
from dadagrad.optim.regularizers import MixedL2
from dadagrad.optim.updates import DualAveraging
from dadagrad.storage.store import Storage

GOAL = 6.0


def main() -> None:
    parser = reporting.parser(__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="default: %(default)s")
    parser.add_argument("--features", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    options = parser.parse_args()
    passes = measure_passes(options)
    steps = measure_steps(options.features, 10, options.rounds)
    from_disk, in_memory = (
        reporting.table(
            ["outputs", "s", "x one"],
            [
                [f"{count}", f"{seconds:.3f}", f"{seconds / passes_of_kind[0][1]:.1f}"]
                for count, seconds in passes_of_kind
            ],
        )
        for passes_of_kind in passes
    )
    ratio = passes[0][-1][1] / passes[0][0][1]
    text = (
        f"{options.rows:,} rows, {options.features:,} features, 2 threads, one pass, medians of "
        f"{options.rounds} rounds. From disk:\n\n{from_disk}\n\n"
        f"Goal: 16 outputs at most {GOAL:g} times one: "
        f"{'reached' if ratio <= GOAL else 'not reached'}.\n\n"
        f"In memory:\n\n{in_memory}\n\n"
        f"Mixed l1/l2 norm, {options.features:,} features x 10 outputs, a step and the weights "
        "after it:\n\n"
    )
    lines = [[f"{touched:,}", f"{1e3 * seconds:.2f}"] for touched, seconds in steps]
    reporting.publish(
        "outputs", text + reporting.table(["features touched", "ms"], lines), options.markdown
    )


Passes = list[tuple[int, float]]
"""Outputs, and the median seconds of a pass."""


def measure_passes(options: argparse.Namespace) -> tuple[Passes, Passes]:
    """From disk and in memory; the rounds take turns."""
    corpus = Corpus(options.rows, options.features, 66.0)
    data = open_dataset(str(prepare(options.folder, corpus)))
    parts = [data.read(number) for number in range(len(data.partitions))]
    counts = (1, 4, 16)
    in_memory = {outputs: with_labels(data, parts, outputs) for outputs in counts}
    from_disk = {
        outputs: on_disk(rows, options.folder / f"outputs-{options.rows}-{outputs}")
        for outputs, rows in in_memory.items()
    }
    medians = []
    for sets in (from_disk, in_memory):
        seconds: dict[int, list[float]] = {outputs: [] for outputs in counts}
        for _ in range(options.rounds + 1):
            for outputs, rows in sets.items():
                report = train(rows, TrainConfig(step_size=0.2), threads=2).report
                seconds[outputs].append(report["seconds"])
        medians.append([(outputs, statistics.median(seconds[outputs][1:])) for outputs in counts])
    from_disk_passes, in_memory_passes = medians
    return from_disk_passes, in_memory_passes


def on_disk(data: Dataset, folder: Path) -> Dataset:
    """`data` as a Zarr dataset in `folder`, written where it is not there yet."""
    if not (folder / "zarr.json").exists():
        storage = Storage(str(folder))
        names = [column.name for column in data.schema.label_columns]
        partitions = [
            write_partition(storage, f"part-{number:05d}", data.read(number), names)
            for number in range(len(data.partitions))
        ]
        write_root(storage, data.schema, partitions, {})
    return open_dataset(str(folder))


def with_labels(data: Dataset, parts: Sequence[Rows], outputs: int) -> MemoryDataset:
    """The same rows with `outputs` columns of signs: the label, with some rows turned around."""
    generator = np.random.default_rng(outputs)
    datasets = []
    for rows in parts:
        signs = np.where(generator.random((rows.n_rows, outputs)) < 0.1, -1.0, 1.0)
        datasets.append(replace(rows, labels=rows.labels[:, :1] * signs))
    column = data.schema.label_columns[0]
    columns = tuple(
        LabelColumn(f"label{number}", column.values, column.counts) for number in range(outputs)
    )
    return MemoryDataset(datasets, replace(data.schema, label_columns=columns))


def measure_steps(n_features: int, n_outputs: int, rounds: int) -> list[tuple[int, float]]:
    """Features of a gradient, and the median seconds of a step."""
    generator = np.random.default_rng(0)
    update = DualAveraging(0.1, Diagonal(1e-6), MixedL2(1e-4))
    state = update.init(n_features, n_outputs)
    figures = []
    for touched in (n_features // 2_000, n_features // 200, n_features // 20):
        ids = np.sort(generator.choice(n_features, touched, replace=False))
        gradient = generator.normal(size=(touched, n_outputs))
        seconds = []
        for _ in range(rounds + 1):
            begun = time.perf_counter()
            state = update.step(state, gradient, ids=ids)
            update.weights(state, ids)
            seconds.append(time.perf_counter() - begun)
        figures.append((touched, statistics.median(seconds[1:])))
    return figures


if __name__ == "__main__":
    main()
