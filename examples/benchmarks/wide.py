"""Wide models: more features than a process has memory for, and the memory that was predicted.

Makes hashed data, whose words follow Zipf's law, and trains on it through a Dask scheduler and
workers with a limit of memory, all in processes of their own: with streams, whose state is on the
workers, and with batches, whose state is in the client. Prints the peaks of the client and of the
largest worker beside what `dadagrad.dry_run` predicted, the bytes that moved for a step, and
seconds. The model is saved: with streams by the workers.

With --check it fails where a prediction of memory is more than 15 % off.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import reporting
from dask_processes import dask_cluster
from measuring import call_apart, peak_memory

from dadagrad import Model, TrainConfig, dry_run, train
from dadagrad.data.dataset import Schema
from dadagrad.data.feature_space import FeatureSpace
from dadagrad.data.labels import LabelCollector
from dadagrad.data.rows import Rows
from dadagrad.data.zarr.writer import write_partition, write_root
from dadagrad.storage.store import Storage

TOLERANCE = 0.15


@dataclass(frozen=True)
class Case:
    """A way to train, the number of features and the workers."""

    way: str
    config: TrainConfig
    hash_bits: int
    workers: int
    memory_limit: str


CASES = (
    # With a penalty streams have no momentum, which would be half of the state again.
    Case("streams", TrainConfig(streams=16, rounds=40, l1=1e-12), 29, 4, "3GB"),
    Case("batches", TrainConfig(batch_size=1_600), 28, 1, "2GB"),
)


def main() -> None:
    parser = reporting.parser(__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--words", type=int, default=100, help="of a row (default: %(default)s)")
    parser.add_argument("--narrower", type=int, default=0, help="bits less, to try it quickly")
    parser.add_argument("--checkpoints", action="store_true", help="write checkpoints meanwhile")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    texts = []
    for case in CASES:
        ran = run(replace(case, hash_bits=case.hash_bits - options.narrower), options)
        texts.append(describe(ran))
        print(texts[-1], flush=True)
        for name, part, peak in (
            ("client", "coordinator", "peak"),
            ("worker", "worker", "worker_peak"),
        ):
            ratio = ran[peak] / ran["predicted"][part]["total"]
            if options.check and abs(ratio - 1.0) > TOLERANCE:
                sys.exit(f"{case.way}: the {name} took {ratio:.2f} times what was predicted")
    reporting.publish("wide", "\n\n".join(texts), options.markdown)


def run(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Train in a new process; what it reports, the peaks, and the heading of the table."""
    data = prepare(options.folder, case.hash_bits, options.rows, options.words)
    folder = options.folder / f"wide-run-{os.getpid()}"
    model = options.folder / f"wide-model-{os.getpid()}"
    with dask_cluster(case.workers, "--memory-limit", case.memory_limit) as address:
        first = look_at_workers(address, case.workers)
        checkpoints = str(folder) if options.checkpoints else None
        ran = call_apart(
            predict_and_train, str(data), case.config, address, checkpoints, str(model)
        )
        last = look_at_workers(address, case.workers)
    ran["nonzeros"] = len(Model.load(model).ids)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(model)
    if first.keys() != last.keys():
        sys.exit(f"{case.way}: a worker ran out of memory, and its nanny started another")
    heading = (
        f"{case.way}: 2^{case.hash_bits} features, {options.rows:,} rows, {ran['nonzeros']:,} "
        f"weights in the end, workers limited to {case.memory_limit} ({case.workers}), "
        f"{ran['seconds']:.1f} s"
    )
    return ran | {"heading": heading, "worker_peak": max(last.values())}


def describe(ran: dict[str, Any]) -> str:
    """The heading and the table of a case."""
    predicted = ran["predicted"]
    moved = sum(predicted["bytes_per_step"].values())
    table = reporting.table(
        ["", "predicted", "measured", "measured / predicted"],
        [
            line("client, MB", predicted["coordinator"]["total"], ran["peak"]),
            line("largest worker, MB", predicted["worker"]["total"], ran["worker_peak"]),
            line("moved for a step, MB", moved, ran["bytes_per_step"], 2),
            line("steps", predicted["steps"], ran["steps"], 0, 1),
        ],
    )
    return f"{ran['heading']}:\n\n{table}"


def line(
    name: str, predicted: float, measured: float, digits: int = 0, unit: float = 1e6
) -> list[str]:
    """A line of the table."""
    ratio = measured / predicted
    return [
        name, f"{predicted / unit:,.{digits}f}", f"{measured / unit:,.{digits}f}", f"{ratio:.2f}"
    ]  # fmt: skip


def prepare(folder: Path, bits: int, n_rows: int, words: int, in_partition: int = 20_000) -> Path:
    """The dataset, made if it is not there yet."""
    dataset = folder / f"wide-{bits}-{n_rows}-{words}"
    if (dataset / "zarr.json").exists():
        return dataset
    storage, partitions, labels = Storage(str(dataset)), [], []
    for number, first in enumerate(range(0, n_rows, in_partition)):
        rows = draw(number, min(in_partition, n_rows - first), words, bits)
        partitions.append(write_partition(storage, f"part-{number:05d}", rows, ["label"]))
        labels.append(rows.labels)
    collector = LabelCollector()
    collector.encode(np.concatenate(labels))
    columns = collector.settle().columns
    schema = Schema(1 << bits, columns, False, FeatureSpace({"format": "text", "hash_bits": bits}))
    write_root(storage, schema, partitions, {})
    return dataset


def draw(number: int, n_rows: int, words: int, bits: int) -> Rows:
    """Rows of words whose probability is 1 / rank, of four times as many as there are features."""
    random = np.random.default_rng([bits, number])
    ranks = np.exp(random.random((n_rows, words)) * math.log(4 << bits)).astype(np.uint64)
    mixed = ranks * np.uint64(0x9E3779B97F4A7C15)
    ids = np.sort((mixed >> np.uint64(64 - bits)).astype(np.int64), axis=1)
    first = np.diff(ids, axis=1, prepend=-1) > 0
    lean = np.where((ids * 2654435761) % 7 < 3, 1.0, -1.0).sum(axis=1)
    labels = np.where(lean > np.median(lean), 1.0, -1.0)[:, None]
    indptr = np.concatenate([[0], np.cumsum(first.sum(axis=1))])
    values = np.full(int(indptr[-1]), 1.0 / math.sqrt(words), np.float32)
    return Rows.from_csr(indptr, ids[first], values, labels)


def predict_and_train(
    data: str, config: TrainConfig, address: str, checkpoints: str | None, model: str
) -> dict[str, Any]:
    """The prediction, parts of the report, and the peak of this process's memory in bytes."""
    run: dict[str, Any] = {"client": address, "checkpoints": checkpoints, "save_to": model}
    predicted = dry_run(data, config, **run).to_json()
    result = train(data, config, **run)
    report = {key: result.report[key] for key in ("seconds", "steps", "bytes_per_step")}
    return report | {"predicted": predicted, "peak": peak_memory()}


def look_at_workers(address: str, n_workers: int) -> dict[int, int]:
    """The peak of the resident memory of each worker, by its process."""
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(n_workers, timeout=60)
        return {process: peak_memory(process) for process in client.run(os.getpid).values()}


if __name__ == "__main__":
    main()
