"""Criteo's click logs: one pass of logistic regression, beside Vowpal Wabbit on the same rows.

The rows are those of a published file (--data: Kaggle's train.txt or a day of Terabyte), or a
seeded stand-in of the same shape, whose true probabilities are known (`criteo_rows.py`). Each row
has 39 hashed features of value 1; every tenth row is held out. Rows are read, hashed and written in
blocks: memory does not grow with the file.

Runs alternate in one process: VW with its defaults from its binary cache, and dadagrad from its
dataset, by dual averaging (the default) and by FTRL, with the step size it chooses and with that
step size given. Seconds are those of the pass, reading included. A core's rate is that of a second
of CPU time, of all threads. The ratio is the median over rounds of VW's seconds divided by the
line's in the same round.

No linear model reaches the true probabilities of the stand-in: they depend on pairs of values, and
many values are rare. With --batch, one is fitted to convergence by L-BFGS as well, with two
strengths of an l2 penalty; the better of them on the held-out rows shows how far a linear model
gets with these rows and features.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import reporting
import scipy.sparse
import vw
from criteo_rows import RawRows, StandIn, Text, features, read_tsv
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from dadagrad import TrainConfig, evaluate, ingest, open_dataset, train

ROWS = 4_600_000
"""Rows of the stand-in: a tenth of Kaggle's file."""

HELD_OUT = 10
SPEED, BYTES, LOSS = 3, 2, 0.002
"""Goals: times VW's speed, bytes a non-zero on disk, distance to the best reachable log loss."""

STRENGTHS = (40.0, 20.0)  # the second starts from the first
PARTS = ("train", "test")
HEADER = (
    "one pass", "s (min)", "s (median)", "M rows/s", "M nnz/s", "M nnz/s a core", "x VW",
    "bytes/nnz on disk", "progressive log loss", "log loss", "AUC",
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """Result of a run; nothing was timed where `seconds` is 0."""

    log_loss: float
    auc: float
    progressive: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


@dataclass
class Line:
    """A competitor and its results, one for each round."""

    name: str
    run: Callable[[], Result]
    bytes_on_disk: int = 0
    results: list[Result] = field(default_factory=list)

    def speed(self, peer: Line) -> float:
        """Times the speed of `peer`."""
        rounds = zip(peer.results, self.results, strict=True)
        return statistics.median(theirs.seconds / ours.seconds for theirs, ours in rounds)

    def cells(self, n_rows: int, nnz: int, peer: Line | None) -> list[str]:
        seconds = [result.seconds for result in self.results]
        middle = statistics.median(seconds)
        cpu = statistics.median(result.cpu_seconds for result in self.results)
        last = self.results[-1]
        return [
            self.name,
            f"{min(seconds):.2f}",
            f"{middle:.2f}",
            f"{n_rows / middle / 1e6:.2f}",
            f"{nnz / middle / 1e6:.0f}",
            f"{nnz / cpu / 1e6:.0f}",
            "" if peer is None else f"{self.speed(peer):.2f}",
            f"{self.bytes_on_disk / nnz:.2f}",
            f"{last.progressive:.4f}",
            *quality_cells(last),
        ]


def main(arguments: list[str] | None = None) -> None:
    parser = reporting.parser(__doc__)
    parser.add_argument(
        "--rows", type=int, help=f"rows to read (default: {ROWS:,} of the stand-in, or all)"
    )
    parser.add_argument("--bits", type=int, default=22, help="2^BITS features (default: 22)")
    parser.add_argument("--data", type=Path, metavar="TSV", help="a published file, plain or .gz")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each (default: 5)")
    parser.add_argument("--batch", action="store_true", help="also fit by L-BFGS")
    parser.add_argument("--no-vw", dest="vw", action="store_false", help="leave VW out")
    options = parser.parse_args(arguments)
    n_rows = options.rows or (None if options.data else ROWS)
    name = options.data.name if options.data else "stand-in"
    folder = prepare(options.folder, n_rows, options.bits, options.data)
    lines = competitors(folder, options.bits, options.vw)
    alternate(lines, options.rounds)
    references = reachable(folder)
    if options.batch:
        references |= fit_batch(folder)
    text = summary(folder, lines, references, f"{name}, 2^{options.bits} features")
    reporting.publish("criteo", text, options.markdown)


# Data


def prepare(folder: Path, n_rows: int | None, bits: int, data: Path | None = None) -> Path:
    """The folder of the datasets of `data`, by default of the stand-in, made if there is none."""
    name = data.name if data else "stand-in"
    folder /= f"criteo-{name}-{n_rows or 'all'}-{bits}"
    if not (folder / "test" / "zarr.json").exists():
        write_rows(
            folder, read_tsv(data, n_rows) if data else StandIn(n_rows or ROWS).blocks(), bits
        )
        for part in PARTS:
            ingest_part(folder, part, bits)
    return folder


def write_rows(folder: Path, blocks: Iterable[RawRows], bits: int) -> None:
    """Write ``train.vw`` and ``test.vw``, and the true log odds of the test rows if known."""
    folder.mkdir(parents=True, exist_ok=True)
    to_text, n_rows, log_odds = Text(bits), 0, []
    with ExitStack() as stack:
        train, test = (stack.enter_context(open(folder / f"{part}.vw", "wb")) for part in PARTS)
        for rows in blocks:
            ids = features(rows, bits)
            held_out = np.arange(n_rows, n_rows + len(ids)) % HELD_OUT == HELD_OUT - 1
            train.write(to_text(rows.clicked[~held_out], ids[~held_out]))
            test.write(to_text(rows.clicked[held_out], ids[held_out]))
            if rows.log_odds is not None:
                log_odds.append(rows.log_odds[held_out])
            n_rows += len(ids)
    if log_odds:
        np.save(folder / "log_odds.npy", np.concatenate(log_odds))


def ingest_part(folder: Path, part: str, bits: int) -> None:
    ingest(
        folder / f"{part}.vw",
        str(folder / part),
        format="vw",
        n_features=1 << bits,
        shuffle=None,  # Vowpal Wabbit and the true odds have the rows in this order
        workers=2,
        overwrite=True,
    )


# Runs


def competitors(folder: Path, bits: int, with_vw: bool) -> list[Line]:
    """VW if it is wanted, and dadagrad; each has run once, and nothing is left to compile."""
    lines = []
    if with_vw:
        options = ("--data", str(folder / "train.vw"), "--cache_file", str(folder / "train.cache"))
        options += ("-b", str(bits), "--loss_function", "logistic")
        vw.run(*options)
        size = (folder / "train.cache").stat().st_size
        lines.append(Line("VW, defaults", partial(run_vw, folder, options), size))
    data, files = str(folder / "train"), (folder / "train").rglob("*")
    size = sum(path.stat().st_size for path in files if path.is_file())
    defaults = TrainConfig(loss="logistic")
    # As McMahan et al. (KDD 2013) for clicks.
    ftrl = replace(defaults, update="ftrl", preconditioner="diagonal:delta=1")
    for name, config in (("defaults", defaults), ("ftrl with delta 1", ftrl)):
        step_size = train(data, config).report["step_size"]
        with_step_size = replace(config, step_size=step_size)
        name = f"dadagrad, {name}"
        lines.append(Line(name, partial(run_dadagrad, folder, config), size))
        name = f"{name}, step size {step_size:g} given"
        lines.append(Line(name, partial(run_dadagrad, folder, with_step_size), size))
    return lines


def alternate(lines: list[Line], rounds: int) -> None:
    """Run all `rounds` times, in a new random order each time."""
    order = random.Random(0)
    for _ in range(rounds):
        for line in order.sample(lines, len(lines)):
            line.results.append(line.run())


def run_dadagrad(folder: Path, config: TrainConfig) -> Result:
    cpu = time.process_time()
    result = train(str(folder / "train"), config)
    cpu = time.process_time() - cpu
    metrics = evaluate(result.model, str(folder / "test"))
    report = result.report
    return Result(
        metrics["loss"], metrics["auc"], report["progressive_loss"], report["seconds"], cpu
    )


def run_vw(folder: Path, options: Iterable[str]) -> Result:
    model = folder / "model.vw"
    done = vw.run(*options, "-f", str(model))
    scores = vw.scores(model, "--data", str(folder / "test.vw"))[:, 0]
    metrics = quality(scores, read_labels(folder))
    return Result(metrics.log_loss, metrics.auc, done.loss, done.seconds, done.cpu_seconds)


def read_labels(folder: Path) -> NDArray[np.bool_]:
    """True for each clicked row of the test part."""
    data = open_dataset(str(folder / "test"))
    numbers = range(len(data.partitions))
    return np.concatenate([data.read(number).labels[:, 0] for number in numbers]) > 0


def quality(scores: NDArray[np.float64], clicked: NDArray[np.bool_]) -> Result:
    """Log loss and AUC of log odds."""
    losses = np.logaddexp(0.0, np.where(clicked, -scores, scores))
    return Result(float(losses.mean()), float(roc_auc_score(clicked, scores)))


def reachable(folder: Path) -> dict[str, Result]:
    """The quality of the true log odds, if they are known."""
    if not (folder / "log_odds.npy").exists():
        return {}
    clicked = read_labels(folder)
    names = ("best reachable", "planted weights of values, without pairs")
    log_odds = np.load(folder / "log_odds.npy")
    return {name: quality(scores, clicked) for name, scores in zip(names, log_odds.T, strict=True)}


def fit_batch(folder: Path) -> dict[str, Result]:
    """Fit sum of losses + strength/2 |w|^2; the best strength on the test rows.

    All rows are in memory, and features that no training row has are left out.
    """
    (rows, clicked), (test_rows, test_clicked) = (load(folder / part) for part in PARTS)
    used = np.flatnonzero(np.bincount(rows.indices))
    rows, test_rows = rows[:, used], test_rows[:, used]
    sign = np.where(clicked, 1.0, -1.0)

    def objective(
        weights: NDArray[np.float64], strength: float
    ) -> tuple[float, NDArray[np.float64]]:
        """Its mean over rows, and the gradient; the last weight is the intercept."""
        penalized = np.append(weights[:-1], 0.0)
        margins = sign * (rows @ weights[:-1] + weights[-1])
        slopes = -sign * expit(-margins)
        gradient = np.append(rows.T @ slopes, slopes.sum()) + strength * penalized
        total = np.logaddexp(0.0, -margins).sum() + strength / 2 * (penalized @ penalized)
        return total / len(sign), gradient / len(sign)

    weights, results = np.zeros(len(used) + 1), {}
    for strength in STRENGTHS:
        weights = minimize(
            objective,
            weights,
            (strength,),
            method="L-BFGS-B",
            jac=True,
            options={"ftol": 1e-6, "gtol": 0.0},
        ).x
        metrics = quality(test_rows @ weights[:-1] + weights[-1], test_clicked)
        results[f"linear by L-BFGS, l2 = {strength:g} / rows"] = metrics
    best = min(results, key=lambda name: results[name].log_loss)
    return {best: results[best]}


def load(path: Path) -> tuple[scipy.sparse.csr_array, NDArray[np.bool_]]:
    """All rows of a dataset."""
    data = open_dataset(str(path))
    matrices, labels = [], []
    for number in range(len(data.partitions)):
        rows = data.read(number)
        ids = rows.vocabulary[rows.indices].astype(np.int32)
        ones = np.ones(len(ids))
        shape = (rows.n_rows, data.schema.n_features)
        matrices.append(scipy.sparse.csr_array((ones, ids, rows.indptr - rows.indptr[0]), shape))
        labels.append(rows.labels[:, 0] > 0)
    return scipy.sparse.vstack(matrices, format="csr"), np.concatenate(labels)


# Report


def summary(folder: Path, lines: list[Line], references: dict[str, Result], source: str) -> str:
    """The table, and which goals are reached."""
    data, test = (open_dataset(str(folder / part)) for part in PARTS)
    peer = lines[0] if lines[0].name.startswith("VW") else None
    rows = [line.cells(data.n_rows, data.nnz, peer) for line in lines]
    blank = [""] * (len(HEADER) - 3)
    rows += [[name, *blank, *quality_cells(metrics)] for name, metrics in references.items()]
    ours = [line for line in lines if line is not peer]
    goals = [check_goals(line, data.nnz, peer, references) for line in ours]
    cells = [[line.name, *reached.values()] for line, reached in zip(ours, goals, strict=True)]
    return (
        f"Rows of {source}: {data.n_rows:,} rows and {data.nnz:,} non-zeros to train on, "
        f"{test.n_rows:,} test rows with {read_labels(folder).mean():.1%} clicks; "
        f"{len(lines[0].results)} alternating rounds:\n\n{reporting.table(HEADER, rows)}\n\n"
        + reporting.table(["goals", *goals[0]], cells)
    )


def quality_cells(result: Result) -> list[str]:
    return [f"{result.log_loss:.4f}", f"{result.auc:.4f}"]


def check_goals(
    line: Line, nnz: int, peer: Line | None, references: dict[str, Result]
) -> dict[str, str]:
    """The goals, and whether `line` reaches them."""
    log_loss = line.results[-1].log_loss
    goals = {f"at most {BYTES} bytes/nnz": in_words(line.bytes_on_disk <= BYTES * nnz)}
    if peer is not None:
        goals[f"{SPEED} times VW's speed"] = in_words(line.speed(peer) >= SPEED)
        goals["VW's log loss"] = in_words(log_loss <= peer.results[-1].log_loss)
    for name, reference in references.items():
        distance = log_loss - reference.log_loss
        goals[f"within {LOSS} of {name}"] = f"{in_words(distance <= LOSS)} ({distance:+.4f})"
    return goals


def in_words(reached: bool) -> str:
    return "reached" if reached else "missed"


if __name__ == "__main__":
    main()
