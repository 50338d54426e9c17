"""Today's tools for linear models side by side: the same rows, the same split, tuned alike.

Each tool learns from the same rows in the same random orders. It is tuned over six settings on the
first rows of one order: three quarters of them to learn from, one quarter to choose the setting
with the least error. *dadagrad, defaults* has nothing chosen. Tools of one pass see each row once;
the others solve until they converge, or 20 passes of SAGA. Each tool runs in a process of its own,
one set at a time, and is stopped after --limit seconds of CPU time; tuning takes at most a third of
them.

Error, log loss and area under the ROC curve (AUC) are those of test rows: means, and the standard
deviation of the error over orders. There is no log loss where the chosen setting has no
probabilities. Seconds (medians) are from the rows on disk in the tool's form to a fitted model,
without imports and compilation; "CPU s" adds those of all threads. Memory is the peak of the whole
process. "MB on disk" is what the tool reads: dadagrad's dataset, VW's cache, or NumPy arrays.
Non-zero weights are a share of the columns that the training rows have. Bold are the least error
of one pass and what is within 1 % of it. The last table sets the best line of dadagrad beside the
best of the other tools of one pass, and beside the fastest (by CPU time: the machine may be busy)
of those within 1 % of that one.
"""

from __future__ import annotations

import json
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import reporting
import scipy.sparse
import vw
from numpy.typing import NDArray
from peers_tools import CSR_PARTS, TOOLS, Part, Tool, vw_flags
from quality_sets import RealSet, a9a, census, criteo, imdb, newsgroups, rcv1_shaped, w8a

from dadagrad import ingest

SETS: dict[str, Callable[[Path], RealSet]] = {
    "IMDB, words and pairs of words": imdb,
    "census, values": census,
    "a9a": a9a,
    "w8a": w8a,
    "20 Newsgroups, tf-idf": lambda data: newsgroups(data, tf_idf=True),
    "stand-in for Criteo": criteo,
    "RCV1-shaped": rcv1_shaped,
}
NEAR, SPEED = 1.01, 3.0
GOALS = ("dadagrad, %", "least of others, %", "ratio", "dadagrad, CPU s",
         "fastest of those near, CPU s", "times as fast", "error reached",
         "speed reached")  # fmt: skip
HEADER = ("", "error, %", "log loss", "AUC", "s", "CPU s", "peak MB", "MB on disk", "non-zero, %",
          "orders", "chosen")  # fmt: skip


def main() -> None:
    parser = reporting.parser(__doc__, data="the sets")
    parser.add_argument("--orders", type=int, default=5, help="orders of the rows (default: 5)")
    parser.add_argument("--only", default="", help="part of the name of the sets to run")
    parser.add_argument("--tools", default="", help="part of the name of the tools to run")
    parser.add_argument("--tuning-rows", type=int, default=16_000, help="(default: %(default)s)")
    parser.add_argument(
        "--limit", type=float, default=45.0, help="CPU seconds of a tool on a set (default: 45)"
    )
    options = parser.parse_args()
    tools = [tool for tool in TOOLS if options.tools in tool.name]
    texts, goals = [], []
    for name, load in SETS.items():
        if options.only not in name:
            continue
        data, folder = load(options.data), options.folder / "peers"
        prepare(folder, data, options.orders, options.tuning_rows)
        outcomes = [run(tool, folder, data.x.shape[1], options.limit) for tool in tools]
        shutil.rmtree(folder)
        texts.append(f"**{name}**: {describe(data)}\n\n{reporting.table(HEADER, lines(outcomes))}")
        print(texts[-1], flush=True)
        goals.append([name, *compare(outcomes)])
    texts.append(reporting.table(["one pass", *GOALS], goals))
    reporting.publish("peers", "\n\n".join(texts), options.markdown)


# Data


def describe(data: RealSet) -> str:
    return (
        f"{len(data.y):,} rows and {data.x.nnz:,} non-zeros of {data.x.shape[1]:,} features to "
        f"learn from, {len(data.test_y):,} rows to test on, {int(data.y.max()) + 1} classes"
    )


def prepare(folder: Path, data: RealSet, n_orders: int, n_tuning: int) -> None:
    """Write the rows in each order, the first of one order to tune on, and those to test on."""
    shutil.rmtree(folder, ignore_errors=True)
    for seed in range(n_orders):
        rows = data.ordered(seed)
        write(folder / f"order-{seed}", rows.x, rows.y)
    rows = data.ordered(0)
    end = min(n_tuning, len(rows.y))
    start = 3 * end // 4
    write(folder / "tuning" / "learn", rows.x[:start], rows.y[:start])
    write(folder / "tuning" / "judge", rows.x[start:end], rows.y[start:end])
    write(folder / "test", data.test_x, data.test_y)


def write(folder: Path, x: scipy.sparse.csr_array, y: NDArray[np.int64]) -> None:
    """Write rows in the form of each tool."""
    folder.mkdir(parents=True)
    for name in CSR_PARTS:
        np.save(folder / f"{name}.npy", getattr(x, name))
    np.save(folder / "labels.npy", y)
    (folder / "shape.json").write_text(json.dumps(x.shape))
    text = folder / "rows.vw"
    vw.write_matrix(text, x, y)
    data = str(folder / "dataset")
    ingest(text, data, format="vw", n_features=x.shape[1], shuffle=None, workers=2)
    if find_spec("vowpalwabbit"):
        vw.run(*vw_flags(Part(folder), folder))
    text.unlink()


# Runs


@dataclass(frozen=True)
class Outcome:
    """Results of a tool, one for each order; `note` says why there are none, or fewer."""

    tool: Tool
    results: list[dict[str, float]]
    note: str

    def mean(self, name: str) -> float:
        return float(np.mean([result.get(name, np.nan) for result in self.results]))

    def median(self, name: str) -> float:
        return statistics.median(result[name] for result in self.results)


def run(tool: Tool, folder: Path, n_columns: int, limit: float) -> Outcome:
    """Run a tool in a process of its own, which ends after `limit` seconds of CPU time."""
    if not find_spec(tool.package):
        return Outcome(tool, [], "not installed")
    if n_columns > tool.widest:
        return Outcome(tool, [], f"dense: needs at most {tool.widest:,} columns")
    script = str(Path(__file__).with_name("peers_tools.py"))
    command = [sys.executable, "-W", "ignore", script, tool.name, str(folder), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == -signal.SIGXCPU:
        error = f"stopped after {limit:g} s"
    else:
        error = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
    tuned, *results = [json.loads(line) for line in done.stdout.splitlines()] or [{}]
    chosen = " ".join(f"{name}={value}" for name, value in tuned.get("settings", {}).items())
    if tuned and tuned["n_tried"] < len(tool.settings):
        chosen += f" (of {tuned['n_tried']})"
    return Outcome(tool, results, chosen if results else error)


# Report


def lines(outcomes: list[Outcome]) -> list[list[str]]:
    least = min(error for _, error in one_pass(outcomes)) if one_pass(outcomes) else 0.0
    return [cells(outcome, least) for outcome in outcomes]


def cells(outcome: Outcome, least: float) -> list[str]:
    if not outcome.results:
        return [outcome.tool.name, *[""] * (len(HEADER) - 2), outcome.note]
    spread = 100 * np.std([result["error"] for result in outcome.results])
    error = f"{100 * outcome.mean('error'):.2f} ± {spread:.2f}"
    if outcome.tool.one_pass and outcome.mean("error") <= NEAR * least:
        error = f"**{error}**"
    has_log_loss = "log_loss" in outcome.results[0]
    return [
        outcome.tool.name if outcome.tool.one_pass else f"{outcome.tool.name} (many passes)",
        error,
        f"{outcome.mean('log_loss'):.4f}" if has_log_loss else "",
        f"{outcome.mean('auc'):.4f}",
        f"{outcome.median('seconds'):.3f}",
        f"{outcome.median('cpu'):.3f}",
        f"{outcome.results[0]['peak'] / 1e6:.0f}",
        f"{outcome.results[0]['disk'] / 1e6:.1f}",
        f"{100 * outcome.mean('non_zero'):.1f}",
        str(len(outcome.results)),
        outcome.note,
    ]


def one_pass(outcomes: list[Outcome]) -> list[tuple[Outcome, float]]:
    """The outcomes of tools of one pass, and their errors."""
    measured = [outcome for outcome in outcomes if outcome.results and outcome.tool.one_pass]
    return [(outcome, outcome.mean("error")) for outcome in measured]


def compare(outcomes: list[Outcome]) -> list[str]:
    """The best of dadagrad's lines beside the other tools of one pass."""
    all_lines = one_pass(outcomes)
    ours = [line for line in all_lines if line[0].tool.package == "dadagrad"]
    others = [line for line in all_lines if line[0].tool.package != "dadagrad"]
    if not ours or not others:
        return [""] * len(GOALS)
    best, error = min(ours, key=lambda line: line[1])
    _, least = min(others, key=lambda line: line[1])
    near = [outcome for outcome, each in others if each <= NEAR * least]
    fastest = min(near, key=lambda outcome: outcome.median("cpu"))
    speed = fastest.median("cpu") / best.median("cpu")
    return [
        f"{100 * error:.2f}",
        f"{100 * least:.2f}",
        f"{error / least:.3f}",
        f"{best.median('cpu'):.3f}",
        f"{fastest.median('cpu'):.3f} ({fastest.tool.name})",
        f"{speed:.1f}",
        "yes" if error <= NEAR * least else "no",
        "yes" if speed >= SPEED else "no",
    ]


if __name__ == "__main__":
    main()
