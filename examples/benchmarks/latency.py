"""Latency: the time from a line on the standard input of `predict` to its answer.

A process ``dadagrad predict MODEL - --out -`` gets rows of a table one at a time, each after the
answer to the one before, through pipes.
"""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import reporting

from dadagrad import train
from dadagrad.data.ingest.ingest import read_dataset


def main() -> None:
    parser = reporting.parser(__doc__)
    parser.add_argument("--lines", type=int, default=2_000)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    jobs = rng.choice(["cook", "nurse", "clerk", "pilot"], 10_000).tolist()
    ages = rng.normal(40, 12, 10_000).round(1).tolist()
    rows = [f"{int(age > 40)},{job},{age}\n" for job, age in zip(jobs, ages, strict=True)]
    table = options.folder / "table.csv"
    table.write_text("y,job,age\n" + "".join(rows))
    model = str(options.folder / "model")
    train(read_dataset(str(table), label="y"), loss="logistic").model.save(model)
    command = [sys.executable, "-m", "dadagrad", "predict", model, "-", "--out", "-", "--quiet"]
    seconds = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(b"job,age\ncook,30\n")
        program.stdin.flush()
        for _ in range(2):  # the header, and the first row, before which libraries are loaded
            program.stdout.readline()
        for job, age in zip(jobs[: options.lines], ages, strict=False):
            begun = time.perf_counter()
            program.stdin.write(f"{job},{age}\n".encode())
            program.stdin.flush()
            program.stdout.readline()
            seconds.append(time.perf_counter() - begun)
        program.stdin.close()
    shown = [f"{1e3 * np.quantile(seconds, q):.2f}" for q in (0.5, 0.9, 0.99, 1.0)]
    header = ("milliseconds", "median", "90 %", "99 %", "largest")
    lines = [[f"of {options.lines:,} lines", *shown]]
    reporting.publish("latency", reporting.table(header, lines), options.markdown)


if __name__ == "__main__":
    main()
