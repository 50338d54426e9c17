"""Ingest of raw tables: rows a minute and core, and memory that does not grow with the file.

Tab-separated rows of the shape of Criteo's click logs (a label, 13 numbers, 26 categories; see
`criteo_rows.py`) are ingested with no option but the label. A file of `--rows` rows and one of four
times as many are each read in a process of its own: once to load and to compile everything, and
then for its processor time, of all threads. Names of features are kept, or not, or as by default:
up to 2^20 of them.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import reporting
from criteo_rows import StandIn
from measuring import call_apart, peak_memory, seconds_of

from dadagrad import ingest

GOAL = 5.0
"""Millions of rows a minute and core."""


def main() -> None:
    parser = reporting.parser(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the shorter file")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each; the best counts")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for n_rows in (options.rows, 4 * options.rows):
        source = write(options.folder / f"criteo-{n_rows}.tsv", n_rows)
        for names, keep_names in (("as by default", None), ("kept", True), ("not kept", False)):
            arguments = str(source), str(options.folder / "table"), keep_names, options.rounds
            seconds, peak = call_apart(measure, *arguments)
            rate = 60e-6 * n_rows / seconds
            lines.append([f"{n_rows:,}", names, f"{rate:.2f}", f"{peak / 1e6:.0f}"])
    header = ("rows", "names of features", "M rows a minute and core", "peak memory, MB")
    reached = all(float(line[2]) >= GOAL for line in lines)
    goal = f"Goal: {GOAL:g} M rows a minute and core: {'reached' if reached else 'missed'}."
    reporting.publish("tables", f"{reporting.table(header, lines)}\n\n{goal}", options.markdown)


def write(path: Path, n_rows: int) -> Path:
    """Write the rows, if they are not there yet."""
    if path.exists():
        return path
    part = path.with_suffix(".part")
    with open(part, "w") as file:
        for rows in StandIn(n_rows).blocks():
            clicked = rows.clicked.astype(int).tolist()
            cells = zip(clicked, rows.numbers.tolist(), rows.categories.tolist(), strict=True)
            for label, numbers, categories in cells:
                texts = ["" if np.isnan(number) else str(int(number)) for number in numbers]
                texts += ["" if number < 0 else f"{number:08x}" for number in categories]
                file.write("\t".join([str(label), *texts]) + "\n")
    return part.rename(path)


def measure(source: str, out: str, keep_names: bool | None, rounds: int) -> tuple[float, int]:
    """The least processor time of an ingest, and the peak of this process's memory in bytes."""

    def run() -> None:
        ingest(source, out, label=0, keep_names=keep_names, overwrite=True)

    times = [seconds_of(run, time.process_time) for _ in range(rounds + 1)]
    return min(times[1:]), peak_memory()


if __name__ == "__main__":
    main()
