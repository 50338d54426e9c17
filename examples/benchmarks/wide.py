"""Wide models: more features than a worker has memory for, and the memory that was predicted.

Makes hashed data of 2^HASH_BITS features, whose words follow Zipf's law, and trains on it through a
Dask scheduler and a worker with a limit of memory, both in processes of their own. Only the weights
of the features that its rows touch travel to the worker. Prints the peaks of the coordinator and
the worker beside what `dadagrad.dry_run` predicted, the bytes that moved for a step, and seconds.

With --check it fails where a prediction of the coordinator's memory is more than a tenth off.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import reporting
from dask_processes import dask_cluster

from dadagrad.data.dataset import Schema
from dadagrad.data.labels import LabelCollector
from dadagrad.data.rows import Rows
from dadagrad.data.zarr.writer import write_partition, write_root
from dadagrad.storage.store import Storage

TOLERANCE = 0.1
COORDINATOR = """
import json, re, sys
from pathlib import Path
from dadagrad import TrainConfig, dry_run, train

def peak():
    return 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])

if __name__ == "__main__":
    data, config, scheduler, checkpoints = json.loads(sys.argv[1])
    config = TrainConfig(**config)
    predicted = dry_run(data, config, client=scheduler, checkpoints=checkpoints).to_json()
    result = train(data, config, client=scheduler, checkpoints=checkpoints)
    report = {key: result.report[key] for key in ("seconds", "steps", "bytes_per_step")}
    report |= {"predicted": predicted, "peak": peak(), "nonzeros": len(result.model.ids)}
    print(json.dumps(report))
"""


def main() -> None:
    parser = reporting.parser(__doc__)
    parser.add_argument("--hash-bits", type=int, default=28)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--words", type=int, default=100, help="of a row (default: %(default)s)")
    parser.add_argument("--memory-limit", default="2GB", help="of the worker")
    parser.add_argument("--step-size", default="auto")
    parser.add_argument("--checkpoints", action="store_true", help="write checkpoints meanwhile")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    data = prepare(options.folder, options.hash_bits, options.rows, options.words)
    step_size = "auto" if options.step_size == "auto" else float(options.step_size)
    checkpoints = str(options.folder / f"wide-run-{os.getpid()}") if options.checkpoints else None
    with dask_cluster(1, "--memory-limit", options.memory_limit) as address:
        first, _ = look_at_worker(address)
        ran = coordinate(str(data), {"step_size": step_size}, address, checkpoints)
        last, worker = look_at_worker(address)
    if first != last:
        sys.exit("the worker ran out of memory, and its nanny started another")
    predicted = ran["predicted"]
    coordinator = predicted["coordinator"]["total"]
    moved = sum(predicted["bytes_per_step"].values())
    state = predicted["coordinator"]["state"]
    text = reporting.table(
        ["", "predicted", "measured", "measured / predicted"],
        [
            line("coordinator, MB", coordinator, ran["peak"]),
            line("worker, MB", predicted["worker"]["total"], worker),
            line("moved for a step, MB", moved, ran["bytes_per_step"], 2),
            line("steps", predicted["steps"], ran["steps"], 0, 1),
        ],
    )
    reporting.publish(
        "wide",
        f"2^{options.hash_bits} features (state {state / 1e9:.2f} GB), {options.rows:,} rows, "
        f"{ran['nonzeros']:,} weights in the end, a worker limited to {options.memory_limit}, "
        f"{ran['seconds']:.1f} s:\n\n{text}",
        options.markdown,
    )
    if options.check and abs(ran["peak"] / coordinator - 1.0) > TOLERANCE:
        sys.exit(f"the coordinator took {ran['peak'] / coordinator:.2f} times what was predicted")


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
    schema = Schema(1 << bits, columns, False, {"format": "text", "hash_bits": bits})
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


def coordinate(
    data: str, config: dict[str, object], address: str, checkpoints: str | None
) -> dict[str, object]:
    """Predict and train in a new process; what it printed."""
    arguments = json.dumps([data, config, address, checkpoints])
    command = [sys.executable, "-c", COORDINATOR, arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=3600)
    ran: dict[str, object] = json.loads(done.stdout)
    return ran


def look_at_worker(address: str) -> tuple[int, int]:
    """The process of the worker, and the peak of its resident memory."""
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(1, timeout=60)
        (process,) = client.run(_process_and_peak).values()
    return int(process[0]), int(process[1])


def _process_and_peak() -> tuple[int, int]:
    match = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    return os.getpid(), 1024 * int(match[1]) if match else 0


if __name__ == "__main__":
    main()
