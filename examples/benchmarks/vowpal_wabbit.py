"""Speed of one pass, beside Vowpal Wabbit's from its binary cache.

A corpus like Reuters RCV1 (`dadagrad.data.synthetic`: 400,000 rows, 2 million features, 68
non-zeros a row) is ingested into Zarr once, and the same rows are turned into VW's binary cache
once. Then runs alternate in one process: dadagrad's default local run, with the step size it
chooses and with that step size given, and VW. Both learn by hinge loss, one example at a time,
with two threads: while one learns, others read and decode. Seconds are those of the pass: reading
and decoding included, start and compilation not. dadagrad's with ``step_size="auto"`` include
choosing it.

VW runs with its defaults (adaptive, normalized, invariant updates), ``-b 21``, so that no two
features share a weight, and ``--quiet``. Two more rows show its fastest setting and its best
learning rate of a small grid, which is chosen by hindsight.

The ratio is the median over rounds of VW's seconds (first row) divided by the row's, taken in the
same round: what else the machine does then matters little.
"""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import reporting
import vw

from dadagrad import TrainConfig, ingest, open_dataset, train
from dadagrad.data.synthetic import Corpus

HINGE = ("--loss_function", "hinge")
RATES = (0.1, 0.25, 1.0, 2.0, 4.0)


@dataclass
class Line:
    """Results of the rounds of one competitor."""

    name: str
    seconds: list[float] = field(default_factory=list)
    error: float = 0.0
    loss: float = 0.0

    def cells(self, nnz: int, reference: Line) -> list[str]:
        best, middle = min(self.seconds), statistics.median(self.seconds)
        ratios = [
            theirs / mine for mine, theirs in zip(self.seconds, reference.seconds, strict=True)
        ]
        return [
            self.name,
            f"{best:.3f}",
            f"{middle:.3f}",
            f"{nnz / best / 1e6:.0f}",
            f"{nnz / middle / 1e6:.0f}",
            f"{statistics.median(ratios):.2f}",
            f"{self.error:.4f}",
            f"{self.loss:.4f}",
        ]


def main() -> None:
    parser = reporting.parser(__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--features", type=int, default=2_000_000)
    parser.add_argument(
        "--rounds", type=int, default=12, help="runs of each (default: %(default)s)"
    )
    parser.add_argument("--text", action="store_true", help="also what reading text takes")
    options = parser.parse_args()
    folder = options.folder / f"corpus-{options.rows}-{options.features}"
    data = prepare(folder, Corpus(options.rows, options.features, 66.0))
    cache = vw_options(folder, options.features)
    lines = alternate(str(data), cache, options.rounds)
    nnz = open_dataset(str(data)).nnz
    header = ["", "s (min)", "s (median)", "M nnz/s (best)", "M nnz/s (median)", "x VW"]
    text = reporting.table(
        [*header, "progressive error", "progressive loss"],
        [line.cells(nnz, lines[0]) for line in lines],
    )
    text = (
        f"{options.rows:,} rows, {nnz:,} non-zeros, {options.features:,} features, "
        f"{options.rounds} alternating rounds:\n\n{text}"
    )
    if options.text:
        text += "\n\n" + from_text(folder, options.features, nnz)
    reporting.publish("vowpal_wabbit", text, options.markdown)


def prepare(folder: Path, corpus: Corpus) -> Path:
    """Make the dataset and VW's cache, if they are not there yet; the dataset's path."""
    data = folder / "train"
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("svmlight", "vw"):  # `memory.py` makes the same dataset without them
        if not (folder / f"train.{kind}").exists():
            corpus.write_text(folder / f"train.{kind}", kind)
    if not (data / "zarr.json").exists():
        ingest_text(folder, corpus.n_features)
    if not (folder / "train.cache").exists():
        vw.run(*vw_options(folder, corpus.n_features))
    return data


def ingest_text(folder: Path, n_features: int, workers: int = 1) -> None:
    ingest(
        folder / "train.svmlight",
        str(folder / "train"),
        n_features=n_features,
        workers=workers,
        overwrite=True,
    )


def vw_options(folder: Path, n_features: int) -> list[str]:
    bits = str((n_features - 1).bit_length())
    text, cache = str(folder / "train.vw"), str(folder / "train.cache")
    return ["--data", text, "--cache_file", cache, "-b", bits]


def alternate(data: str, cache: list[str], rounds: int) -> list[Line]:
    """Run everything `rounds` times in turn, after one run each that does not count.

    The order of each round is drawn: what ran before leaves memory and caches as it likes.
    """
    rate = str(best_rate(cache))
    peers = {
        "VW, defaults": HINGE,
        "VW, its fastest: --sgd": (*HINGE, "--sgd"),
        f"VW, its best learning rate: -l {rate}": (*HINGE, "-l", rate),
    }
    lines = []
    for name, options in peers.items():
        error = vw.run(*cache, *options, "--binary").loss
        lines.append(Line(name, error=error))
    chosen = train(data, TrainConfig()).report["step_size"]
    ours = {
        "dadagrad, defaults": TrainConfig(),
        f"dadagrad, step size {chosen:g} given": TrainConfig(step_size=chosen),
        "dadagrad, l1 = 1e-6": TrainConfig(step_size=chosen, l1=1e-6),
    }
    lines += [Line(name) for name in ours]

    def run(line: Line) -> None:
        if line.name in peers:
            done = vw.run(*cache, *peers[line.name])
            line.seconds.append(done.seconds)
            line.loss = done.loss
        else:
            report = train(data, ours[line.name]).report
            line.seconds.append(report["seconds"])
            line.error, line.loss = report["progressive_error"], report["progressive_loss"]

    order = random.Random(0)
    for _ in range(rounds):
        for line in order.sample(lines, len(lines)):
            run(line)
    return lines


def best_rate(cache: list[str]) -> float:
    """The learning rate with which VW errs least."""
    return min(RATES, key=lambda rate: vw.run(*cache, *HINGE, "-l", str(rate), "--binary").loss)


def from_text(folder: Path, n_features: int, nnz: int) -> str:
    """Seconds of reading text: VW's pass (every time), dadagrad's ingest (once)."""
    data, text, _, _, *bits = vw_options(folder, n_features)
    timed = [("VW, a pass from text", vw.run(data, text, *bits, *HINGE).seconds)]
    for workers in (1, 2):
        begun = time.perf_counter()
        ingest_text(folder, n_features, workers)
        seconds = time.perf_counter() - begun
        timed.append((f"dadagrad, ingest, {workers} worker(s), once", seconds))
    size = (folder / "train.svmlight").stat().st_size
    rows = [
        [name, f"{seconds:.2f}", f"{nnz / seconds / 1e6:.1f}", f"{size / seconds / 1e6:.0f}"]
        for name, seconds in timed
    ]
    return reporting.table(["", "s", "M nnz/s", "MB of text/s"], rows)


if __name__ == "__main__":
    main()
