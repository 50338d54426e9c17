"""Memory: ten times the data must not take more of it.

Trains on a corpus of 2 million features and on one ten times as long, each in a process of its own,
and prints the peak of the resident memory beside what is to be expected: what Python
and the libraries take, three arrays over all features (two accumulators and the weights of the
model, float32, and the ids of those that are not 0), and the partitions that are in use or read
ahead. A run on a thousand rows shows what Python and the libraries take. Peaks of the two lengths
must be within 10 % of each other. Peaks are medians over rounds: how much freed memory the
allocator of the C library holds back depends on how threads happen to meet.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import reporting
from measuring import call_apart, peak_memory

from dadagrad import ingest, open_dataset, train
from dadagrad.data.synthetic import Corpus

LIMIT = 1.10
PARTITIONS_AT_ONCE = 3  # one in use, and two that are read ahead


def main() -> None:
    parser = reporting.parser(__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="of the shorter corpus")
    parser.add_argument("--features", type=int, default=2_000_000)
    parser.add_argument("--step-size", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each (default: %(default)s)")
    options = parser.parse_args()
    lengths = (1_000, options.rows, 10 * options.rows)
    runs = []
    for rows in lengths:
        data = prepare(options.folder, Corpus(rows, options.features, 66.0))
        rounds = [call_apart(measure, str(data), options.step_size) for _ in range(options.rounds)]
        runs.append(
            (data, {key: statistics.median(run[key] for run in rounds) for key in rounds[0]})
        )
    floor = runs[0][1]["peak"]
    lines = [
        [
            f"{rows:,}",
            f"{open_dataset(str(data)).nnz:,}",
            f"{run['seconds']:.2f}",
            f"{run['peak'] / 1e6:.0f}",
            f"{(floor + expected(data)) / 1e6:.0f}",
            f"{run['peak'] / runs[1][1]['peak']:.3f}",
            f"{run['error']:.4f}",
        ]
        for rows, (data, run) in zip(lengths, runs, strict=True)
    ]
    header = ["rows", "non-zeros", "s", "peak MB", "expected MB", "ratio", "progressive error"]
    text = reporting.table(header, lines)
    reporting.publish(
        "memory",
        f"{options.features:,} features, medians of {options.rounds} runs:\n\n{text}",
        options.markdown,
    )
    ratio = runs[2][1]["peak"] / runs[1][1]["peak"]
    if ratio > LIMIT:
        sys.exit(f"ten times the data took {ratio:.2f} times the memory; the limit is {LIMIT}")


def prepare(folder: Path, corpus: Corpus) -> Path:
    """The dataset of `corpus`, made if it is not there yet; its text goes again."""
    data = folder / f"corpus-{corpus.n_rows}-{corpus.n_features}" / "train"
    if not (data / "zarr.json").exists():
        data.parent.mkdir(parents=True, exist_ok=True)
        text = data.parent / "memory.svmlight"
        corpus.write_text(text)
        ingest(text, str(data), n_features=corpus.n_features, overwrite=True)
        text.unlink()
    return data


def measure(data: str, step_size: float) -> dict[str, float]:
    """Train; the peak of this process's memory in bytes, seconds and error."""
    report = train(data, step_size=step_size).report
    error = report["progressive_error"]
    return {"peak": peak_memory(), "seconds": report["seconds"], "error": error}


def expected(data: Path) -> int:
    """Bytes that training on `data` should take beyond what a run on next to nothing does."""
    dataset = open_dataset(str(data))
    largest = max(dataset.partitions, key=lambda partition: partition.nnz)
    several = min(PARTITIONS_AT_ONCE, len(dataset.partitions))
    entries = several * largest.nnz * 8  # an index and a value
    vocabularies = several * largest.n_local * 8 + largest.n_local * 8  # and the share of the state
    if len(dataset.partitions) == 1:
        return entries + vocabularies
    # A run on a thousand rows has the accumulators too, but touches (and so takes) few of them.
    return dataset.schema.n_features * (2 * 4 + 4 + 4 + 8) + entries + vocabularies


if __name__ == "__main__":
    main()
