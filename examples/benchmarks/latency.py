"""Latency: the time of the answer to one row, through a pipe and in memory.

A process ``dadagrad predict MODEL - --out -`` gets rows of a table one at a time, each after the
answer to the one before. `Model.decision_function` gets a row as a matrix, a dict or a text.
"""

from __future__ import annotations

import subprocess
import sys
import time
import timeit
from typing import Any

import numpy as np
import reporting
import scipy.sparse

from dadagrad import Model, train
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
    text = reporting.table(header, lines)
    lines = [[name, f"{1e6 * row:.0f}"] for name, row in in_memory(rows).items()]
    text += "\n\n" + reporting.table(("one row in memory", "microseconds of processor time"), lines)
    reporting.publish("latency", text, options.markdown)


def in_memory(rows: list[str]) -> dict[str, float]:
    """The processor time of a row, by its kind."""
    cells = (row.strip().split(",") for row in rows)
    table = [{"y": y, "job": job, "age": float(age)} for y, job, age in cells]
    wide = [{"y": row["y"]} | {f"c{n}": str(n % 7) for n in range(39)} for row in table[:2_000]]
    dated = [row | {"at": f"2024-05-{n % 30 + 1:02} 10:00"} for n, row in enumerate(table)]
    texts = [{"y": row["y"], "text": f"{row['job']} {'word ' * 19}"} for row in table[:2_000]]
    matrix = scipy.sparse.random(2_000, 100_000, 1e-3, "csr", rng=0)
    cases = {
        "a row of a CSR matrix": (train((matrix, np.arange(2_000) % 2)), matrix[:1]),
        "a dict of 3 columns": (train(table, label="y"), table[0]),
        "the same, and a date": (train(dated, label="y"), dated[0]),
        "a dict of 39 columns": (train(wide, label="y"), wide[0]),
        "a text of 20 words": (
            train(texts, label="y", text_column="text"),
            [texts[0]["text"]],
        ),
    }
    return {name: least_time(result.model, row) for name, (result, row) in cases.items()}


def least_time(model: Model, row: Any) -> float:
    """Seconds of processor time of an answer: the least mean of several hundred."""
    timer = timeit.Timer(lambda: model.decision_function(row), timer=time.process_time)
    return min(timer.repeat(number=500)) / 500


if __name__ == "__main__":
    main()
