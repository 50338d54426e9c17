"""Streams: how they are merged, how often, what that costs in quality and what it buys.

Four datasets, one pass each with the hinge loss: film reviews (IMDB, binary uni- and bigrams
hashed to 2^21, rows of length 1), a9a, w8a (the last 30 % of its rows, in a seeded order, to test
on) and census (the values of 33 nominal attributes, one-hot). Rows come in a seeded random order.
Streams learn from rows of their own, one step per row, and are merged 40 times.

*Rules* compares ways to merge the streams' sums, by the error on the test rows at the best step
size of a grid, and at three times that; `rounds.py` compares ways to cut a pass into rounds.
*Penalty* shows what becomes of l1 where a coordinate has a time of its own, and where all have that
of all rows. *Cluster* is two Dask workers on this machine: batches beside streams. `quality.py`
compares the errors of streams by the defaults with those of one stream.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import reporting
from merge_rules import RULES, Rule, walk
from quality_sets import RealSet, a9a, census, read_reviews, w8a

from dadagrad import Dataset, TrainConfig, evaluate, ingest, open_dataset, train
from dadagrad.data.rows import Rows
from dadagrad.problem import make_problem
from dadagrad.training.coordinator import merge as merge_module
from dadagrad.training.result import make_model
from dadagrad.training.schedule import make_schedule, n_rounds
from dadagrad.training.schedule.streams import StreamSchedule

GRIDS = {
    "IMDB": (0.2, 0.3, 0.45),
    "a9a": (0.2, 0.4, 0.8),
    "w8a": (0.4, 0.8, 1.6),
    "census": (0.4, 0.8, 1.6),
}
SETS: dict[str, Callable[[Path], RealSet]] = {"a9a": a9a, "w8a": w8a, "census": census}
STREAMS = (16, 64)
PENALTIES = {"IMDB": 1e-5, "a9a": 1e-3, "w8a": 1e-4, "census": 1e-4}
LOCAL = TrainConfig(batch_size=1, streams=16)


@dataclass(frozen=True)
class Task:
    """A dataset to train on and one to test on."""

    name: str
    rows: Dataset
    test: Dataset

    @cached_property
    def partitions(self) -> list[Rows]:
        return [self.rows.read(number) for number in range(len(self.rows.partitions))]


def main() -> None:
    parser = reporting.parser(__doc__, data="imdb, adult_a9a, w8a and kdd_census_income")
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--datasets", nargs="+", default=list(GRIDS), choices=list(GRIDS))
    parser.add_argument("--repeats", type=int, default=3, help="of the cluster's runs")
    options = parser.parse_args()
    if "cluster" in options.tables and "IMDB" not in options.datasets:
        parser.error("the table 'cluster' is about IMDB, which --datasets leaves out")
    tasks = [load(name, options) for name in GRIDS if name in options.datasets]
    parts = []
    for name in options.tables:
        parts.append(f"*{name.capitalize()}.* {TABLES[name](tasks, options)}")
        print(parts[-1], flush=True)
    reporting.publish("streams", "\n\n".join(parts), options.markdown)


# Data


def load(name: str, options: argparse.Namespace) -> Task:
    if name == "IMDB":
        return reviews(options)
    return Task(name, *SETS[name](options.data).ordered(0).datasets())


def reviews(options: argparse.Namespace) -> Task:
    """IMDB on disk, which a cluster can read; ingested if it is not yet."""
    folder = options.folder / "imdb"
    if not (folder / "test").exists():
        texts, labels, n_train = read_reviews(options.data)
        for name, part in (("train", slice(n_train)), ("test", slice(n_train, None))):
            table = pa.table({"label": labels[part], "text": texts[part]})
            ingest(table, str(folder / name), text_column="text", ngrams=2, hash_bits=21,
                   binary=True, norm="l2", shuffle=0, workers=2, overwrite=True)  # fmt: skip
    return Task("IMDB", *(open_dataset(str(folder / name)) for name in ("train", "test")))


# What is compared


def error_of(task: Task, streams: int, step_size: float, rule: Rule) -> float:
    """The test error after a pass with streams that are merged by `rule`."""
    config = replace(LOCAL, streams=streams, step_size=step_size)
    schedule = make_schedule(config, [partition.n_rows for partition in task.rows.partitions])
    assert isinstance(schedule, StreamSchedule)
    problem = make_problem(config, task.rows.schema, 1)
    # On the way of what diverges, numbers are too large for their squares.
    with np.errstate(over="ignore", invalid="ignore"):
        state = walk(problem, task.partitions, schedule, rule)
    return float(evaluate(make_model(problem, state, task.rows, {}), task.test)["error"])


def at_best(task: Task, streams: int, rule: Rule) -> str:
    """The error at the best step size of the grid, that, and the error at three times it."""
    errors = {eta: error_of(task, streams, eta, rule) for eta in GRIDS[task.name]}
    best = min(errors, key=errors.__getitem__)
    larger = error_of(task, streams, 3 * best, rule)
    return f"{errors[best]:.4f} ({best:g}); {larger:.4f}"


def rules(tasks: Sequence[Task], options: argparse.Namespace) -> str:
    lines = []
    for name, rule in RULES.items():
        lines.append([name])
        for task in tasks:
            lines[-1] += [at_best(task, streams, rule) for streams in STREAMS]
        print(" | ".join(lines[-1]), flush=True)
    header = ["", *(f"{task.name}, {streams}" for task in tasks for streams in STREAMS)]
    return (
        "Test error at the best step size (which it is), and at three times that, for 16 and 64 "
        f"streams:\n\n{reporting.table(header, lines)}"
    )


def penalty(tasks: Sequence[Task], options: argparse.Namespace) -> str:
    lines = []
    for task in tasks:
        step_size, l1 = GRIDS[task.name][1], PENALTIES[task.name]
        online = TrainConfig(batch_size=1, step_size=step_size, l1=l1)
        cells = [f"{task.name}, l1 = {l1:g}", scored(task, online)]
        for streams in STREAMS:
            config = replace(LOCAL, streams=streams, step_size=step_size, l1=l1)
            cells.append(scored(task, config))
            cells.append(with_one_time(lambda task=task, config=config: scored(task, config)))
        lines.append(cells)
        print(" | ".join(cells), flush=True)
    header = ["", "online"]
    for streams in STREAMS:
        header += [f"{streams} streams, own time", f"{streams}, one time"]
    return f"Test error, and weights that are not 0:\n\n{reporting.table(header, lines)}"


def scored(task: Task, config: TrainConfig) -> str:
    result = train(task.rows, config)
    error = evaluate(result.model, task.test)["error"]
    return f"{error:.4f}, {result.report['nonzeros']:,}"


def with_one_time(measure: Callable[[], str]) -> str:
    """Result of `measure` where penalties take no account of participation."""
    merge_streams = merge_module.merge_streams

    def of_one_time(base, ids, states, ends, times, hyperparameters, *rest):  # type: ignore[no-untyped-def]
        without = hyperparameters._replace(l1=0.0, l2=0.0)
        merge_streams(base, ids, states, ends, times, without, *rest)

    merge_module.merge_streams = of_one_time
    try:
        return measure()
    finally:
        merge_module.merge_streams = merge_streams


def cluster(tasks: Sequence[Task], options: argparse.Namespace) -> str:
    task = tasks[0]
    ways = {
        "batches": TrainConfig(step_size=0.3, streams=1),
        **{f"{k} streams": TrainConfig(step_size=0.3, streams=k) for k in STREAMS},
    }  # fmt: skip
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    cells = {}
    for _ in range(options.repeats):
        for name, config in ways.items():
            result = train(task.rows, config, workers=2)
            seconds[name].append(result.report["seconds"])
            moved = result.report["bytes_per_step"] * result.report["steps"]
            steps = result.report["steps"]
            if config.n_streams > 1:
                steps = n_rounds(config, task.rows.n_rows)
            error = evaluate(result.model, task.test)["error"]
            cells[name] = [f"{steps:,}", f"{moved / 1e6:.0f}", f"{error:.4f}"]
    lines = [
        [name, f"{min(values):.2f}", f"{statistics.median(values):.2f}", *cells[name]]
        for name, values in seconds.items()
    ]
    header = ["IMDB, one pass", "s (min)", "s (median)", "merges or steps", "MB moved", "error"]
    return f"Runs that take turns:\n\n{reporting.table(header, lines)}"


TABLES = {"rules": rules, "penalty": penalty, "cluster": cluster}


if __name__ == "__main__":
    main()
