"""Parts of a pass: where its time goes, beside what the bandwidth of the memory allows.

One pass over a corpus like Reuters RCV1 (that of `vowpal_wabbit.py`) with a given step size. The
parts of reading and the copies of the state are measured alone, on one thread; a row "rest" is what
a whole has beside its parts. The least time of several repeats counts. The last column is the time
in which the bytes that a part reads and writes can be copied.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import reporting
from crc32c import crc32c
from measuring import seconds_of
from memory import prepare

from dadagrad import Dataset, open_dataset, train
from dadagrad.data.synthetic import Corpus
from dadagrad.kernels.id_sets import put, take

STATE_BYTES = 8
"""Bytes of the two sums of a weight."""


def main() -> None:
    parser = reporting.parser(__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--features", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    url = prepare(options.folder, Corpus(options.rows, options.features, 66.0))
    data = open_dataset(str(url))
    chunks = [path for path in Path(url).glob("part-*/*/*/c/*") if "_index" not in str(path)]
    on_disk = sum(path.stat().st_size for path in chunks)
    n_entries = sum(partition.n_local for partition in data.partitions)
    decoded = 8 * (data.nnz + n_entries + data.n_rows)

    def least(call: Callable[[], object]) -> float:
        return min(seconds_of(call) for _ in range(options.repeats))

    bandwidth = bandwidth_of_memory(least)
    contents = [path.read_bytes() for path in chunks]
    buffer = memoryview(bytearray(max(map(len, contents))))
    files = least(lambda: [read_into(path, buffer) for path in chunks])
    checksums = least(lambda: [crc32c(content) for content in contents])
    reading = least(lambda: sum(data.read(number).nnz for number in range(len(data.partitions))))
    copies = copies_of_state(data, least)
    train(data, step_size=0.2, threads=1)  # compiles
    runs = {threads: shortest_run(data, threads, options.repeats) for threads in (1, 2)}
    alone = runs[1]["seconds_by_part"]
    other_seconds = runs[1]["seconds"] - sum(alone.values())
    parts = [
        ("reading: files from the page cache", files, 2 * on_disk),
        ("reading: checksums", checksums, on_disk),
        ("reading: decoding, checks", reading - files - checksums, on_disk + decoded),
        ("learning: state out and back", copies, 4 * STATE_BYTES * n_entries),
        ("learning: rest", alone["learn"] - copies, (8 + 2 * STATE_BYTES) * data.nnz),
        ("coordinator", alone["coordinate"], 0),
        ("first look at the rows, waiting", other_seconds, 0),
    ]

    def line(name: str, seconds: float, n_bytes: int = 0) -> list[str]:
        shortest = f"{1e9 * n_bytes / bandwidth / data.nnz:.2f}" if n_bytes else ""
        return [name, f"{1e3 * seconds:.0f}", f"{1e9 * seconds / data.nnz:.2f}", shortest]

    lines = [line(*part) for part in parts]
    for threads, run in runs.items():
        busy = ", ".join(f"{name} {1e3 * s:.0f}" for name, s in run["seconds_by_part"].items())
        name = f"the pass on {threads} thread{'s' * (threads > 1)} ({busy})"
        lines.append(line(name, run["seconds"]))
    header = ["", "milliseconds", "ns a non-zero", "ns at the memory's bandwidth"]
    intro = (
        f"{data.n_rows:,} rows, {data.nnz:,} non-zeros of {on_disk / data.nnz:.1f} bytes on disk; "
        f"the memory copies {bandwidth / 1e9:.1f} GB/s (read and written):"
    )
    reporting.publish("parts", f"{intro}\n\n{reporting.table(header, lines)}", options.markdown)


def read_into(path: Path, buffer: memoryview) -> None:
    with open(path, "rb", buffering=0) as file:
        file.readinto(buffer)


def bandwidth_of_memory(least: Callable[[Callable[[], object]], float]) -> float:
    """Bytes a second, read and written, of one thread that copies what no cache holds."""
    source, target = np.ones((2, 1 << 25))
    return 2 * source.nbytes / least(lambda: np.copyto(target, source))


def copies_of_state(data: Dataset, least: Callable[[Callable[[], object]], float]) -> float:
    """Seconds of taking the state of each partition's features out, and of putting it back."""
    vocabularies = [data.read(number).vocabulary for number in range(len(data.partitions))]
    state = np.zeros(data.schema.n_features, np.complex64).reshape(-1, 1)
    parts = np.empty((max(map(len, vocabularies)), 1), np.complex64)

    def copy() -> None:
        for ids in vocabularies:
            take(state, ids, parts[: len(ids)])
            put(state, ids, parts[: len(ids)])

    copy()  # compiles
    return least(copy)


def shortest_run(data: Dataset, threads: int, repeats: int) -> dict[str, Any]:
    """The report of the shortest of several passes."""
    reports = [train(data, step_size=0.2, threads=threads).report for _ in range(repeats)]
    return min(reports, key=lambda report: report["seconds"])


if __name__ == "__main__":
    main()
