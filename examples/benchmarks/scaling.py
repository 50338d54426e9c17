"""Scaling: threads, streams and workers of a cluster, on a corpus of RCV1's size and on more.

One pass with a step size that is given: on threads with one stream, which learns as the online
algorithm does, and with more; and on a cluster of workers in processes of their own, of one thread
and on one core each, with 16 streams: without that, one worker reads on another core.

With --copies N the dataset has every partition N times, by symbolic links: as many rows to read and
to learn from, without the space on disk.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import reporting
from dask_processes import dask_cluster
from memory import prepare

from dadagrad import Dataset, TrainConfig, open_dataset, train
from dadagrad.data.synthetic import Corpus
from dadagrad.data.zarr.writer import attributes_checksum

STREAMS = (1, 16, 64)
STEP_SIZE = 0.2


def main() -> None:
    options = arguments()
    folder = prepare(options.folder, Corpus(options.rows, options.features, options.nnz))
    if options.copies > 1:
        folder = copied(folder, options.copies)
    data = open_dataset(str(folder))
    intro = (
        f"{data.n_rows:,} rows, {data.nnz:,} non-zeros, {data.schema.n_features:,} features, "
        f"medians of {options.rounds} rounds:"
    )
    name = "scaling" if options.copies == 1 else f"scaling-{options.copies}"
    text = f"{intro}\n\n{described(data, measure(data, options.rounds))}"
    reporting.publish(name, text, options.markdown)


def arguments() -> argparse.Namespace:
    parser = reporting.parser(__doc__)
    parser.add_argument("--rows", type=int, default=804_414, help="default: %(default)s")
    parser.add_argument("--features", type=int, default=1_950_000, help="default: %(default)s")
    parser.add_argument("--nnz", type=float, default=200.0, help="a row (default: %(default)s)")
    parser.add_argument("--copies", type=int, default=1, help="of every partition (default: 1)")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    return parser.parse_args()


def copied(folder: Path, copies: int) -> Path:
    """A dataset next to the one in `folder`, of so many links to each of its partitions."""
    target = folder.with_name(f"{folder.name}-{copies}")
    root = json.loads((folder / "zarr.json").read_text())
    attributes = root["attributes"]
    partitions = attributes["partitions"]
    for column in attributes["schema"]["label_columns"]:
        column["counts"] = [copies * count for count in column["counts"]]
    attributes["partitions"] = []
    target.mkdir(exist_ok=True)
    for number in range(copies * len(partitions)):
        partition = partitions[number % len(partitions)]
        link = target / f"part-{number:05d}"
        if not link.is_symlink():
            link.symlink_to(folder.resolve() / partition["name"])
        attributes["partitions"].append(partition | {"name": link.name})
    attributes["checksum"] = attributes_checksum(attributes)
    (target / "zarr.json").write_text(json.dumps(root))
    return target


@dataclass(frozen=True)
class Way:
    """A way to run a pass: its streams, and threads of this process or workers."""

    streams: int
    threads: int = 0
    workers: int = 0

    def __str__(self) -> str:
        learned = f"{self.streams} stream{'s' * (self.streams > 1)}"
        count, kind = (self.workers, "worker") if self.workers else (self.threads, "thread")
        return f"{learned}, {count} {kind}{'s' * (count > 1)}"


@dataclass(frozen=True)
class Measured:
    """Medians of a pass; the seconds of processors are those of this process alone.

    Those of the system are mostly for memory, which it clears before a pass gets it.
    """

    seconds: float
    cpu_seconds: float
    system_seconds: float
    error: float

    @property
    def user_seconds(self) -> float:
        return self.cpu_seconds - self.system_seconds


def measure(data: Dataset, rounds: int) -> dict[Way, Measured]:
    """Passes in each way; a first round of all is not counted."""
    ways = [Way(streams, threads=count) for streams in STREAMS for count in (1, 2)]
    ways += [Way(16, workers=1), Way(16, workers=2)]
    results: dict[Way, list[Measured]] = {way: [] for way in ways}
    for workers in (0, 1, 2):
        with dask_cluster(workers, on_a_core=True) if workers else nullcontext() as client:
            for way in [way for way in ways if way.workers == workers] * (rounds + 1):
                config = TrainConfig(step_size=STEP_SIZE, streams=way.streams)
                resources = {"client": client} if client else {"threads": way.threads}
                before = os.times()
                report = train(data.url, config, **resources).report
                after = os.times()
                system = after.system - before.system
                cpu = after.user - before.user + system
                error = report["progressive_error"]
                results[way].append(Measured(report["seconds"], cpu, system, error))
    return {
        way: Measured(
            statistics.median(each.seconds for each in counted),
            statistics.median(each.cpu_seconds for each in counted),
            statistics.median(each.system_seconds for each in counted),
            counted[0].error,
        )
        for way, (_, *counted) in results.items()
    }


def described(data: Dataset, measured: dict[Way, Measured]) -> str:
    """The runs, and the ratios that the project has set itself as goals."""
    lines = [
        [
            str(way),
            f"{each.seconds:.2f}",
            "" if way.workers else f"{each.cpu_seconds:.2f}",
            "" if way.workers else f"{each.system_seconds:.2f}",
            f"{data.nnz / each.seconds / 1e6:.0f}",
            f"{each.error:.4f}",
        ]
        for way, each in measured.items()
    ]
    online = measured[Way(1, threads=1)]
    ratios = [
        f"{streams} streams take {each.cpu_seconds / online.cpu_seconds:.2f} times the CPU time of "
        f"one on one thread, {each.user_seconds / online.user_seconds:.2f} times without that of "
        "the system"
        for streams in STREAMS[1:]
        for each in [measured[Way(streams, threads=1)]]
    ]
    alone, local = measured[Way(16, threads=1)].seconds, measured[Way(16, threads=2)].seconds
    worker, both = measured[Way(16, workers=1)].seconds, measured[Way(16, workers=2)].seconds
    ratios += [
        f"16 streams are {alone / local:.2f} times as fast on two threads as on one",
        f"two workers take {both / local:.2f} times as long as two threads, and are "
        f"{worker / both:.2f} times as fast as one worker",
    ]
    header = ["", "s", "CPU s", "of it the system", "M nnz/s", "progressive error"]
    return f"{reporting.table(header, lines)}\n\nOf these, {'; '.join(ratios)}."


if __name__ == "__main__":
    main()
