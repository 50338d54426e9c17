"""Test error after one pass with nothing chosen, beside Vowpal Wabbit's and scikit-learn's.

Real data sets of all kinds: text, dense, few features, several classes, imbalanced classes, and
tables of raw numbers that nobody has scaled. Every tool makes one pass over the same rows in the
same order, which is random and another one in each of five runs. Each set is in one half of two:
defaults are decided by the first, and confirmed by the second.

*dadagrad* has all defaults but the loss. Vowpal Wabbit has its defaults; *tuned* is the learning
rate of a grid with the least progressive error. scikit-learn's SGDClassifier has its defaults,
also with averaging, and rows that are scaled beforehand where the set is a raw table (which sees
all rows first). The mean and the standard deviation of the error over the orders, in percent; bold
are the least and those within 1 % of it. Two more tables have dadagrad alone: with ``--streams``
the errors of streams over that of one stream, with the step size and the average that this chose;
with ``--settings`` the errors of the defaults over those of the one step size, with the average or
the last weights, that has the least error on the test rows of a set in the mean of the orders.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import reporting
import vw
from numpy.typing import NDArray
from quality_sets import CHOSEN_ON, CONFIRMED_ON, RealSet

from dadagrad import TrainConfig, evaluate, train
from dadagrad.training.step_size import GRID

RATES = (0.1, 0.25, 1.0, 2.0, 4.0)
STREAMS = (16, 64)
LOSSES = ("hinge", "logistic", "squared-hinge")
NEAR = 1.01


def main() -> None:
    parser = reporting.parser(__doc__, data="the sets")
    parser.add_argument("--orders", type=int, default=5, help="orders of the rows (default: 5)")
    parser.add_argument("--only", default="", help="part of the name of the sets to run")
    parser.add_argument("--streams", action="store_true", help="the table of streams instead")
    parser.add_argument("--settings", action="store_true", help="the table of settings instead")
    options = parser.parse_args()
    for name, make in (("streams", of_streams), ("settings", of_settings)):
        if getattr(options, name):
            reporting.publish(f"quality-{name}", make(options), options.markdown)
            return
    halves = {"Chosen on": CHOSEN_ON, "Confirmed on": CONFIRMED_ON}
    tables = [half(title, sets, options) for title, sets in halves.items()]
    reporting.publish("quality", "\n\n".join(table for table in tables if table), options.markdown)


def of_streams(options: argparse.Namespace) -> str:
    """The table of streams: mean errors, and means of the ratios to one stream."""
    lines, all_ratios = [], []
    for name, load in (CHOSEN_ON | CONFIRMED_ON).items():
        if options.only not in name:
            continue
        data = load(options.data)
        errors = np.array([stream_errors(data.ordered(seed)) for seed in range(options.orders)])
        ratios = errors[:, 1:].mean(axis=0) / errors[:, 0].mean()
        all_ratios.append(ratios)
        lines.append([name, f"{len(data.y):,}", f"{100 * errors[:, 0].mean():.2f}"])
        lines[-1] += [f"{ratio:.3f}" for ratio in ratios]
        print(lines[-1], flush=True)
    lines.append(["mean", "", "", *(f"{ratio:.3f}" for ratio in np.mean(all_ratios, axis=0))])
    header = ["", "rows", "one stream", *(f"{streams} streams" for streams in STREAMS)]
    return reporting.table(header, lines)


def stream_errors(data: RealSet) -> list[float]:
    """Errors of one stream by the defaults, and of `STREAMS` with what it chose."""
    rows, test = data.datasets()
    model = train(rows).model
    chosen = TrainConfig.from_json(model.report["config"])
    several = (train(rows, replace(chosen, streams=streams)).model for streams in STREAMS)
    return [evaluate(each, test)["error"] for each in (model, *several)]


def of_settings(options: argparse.Namespace) -> str:
    """The table of settings: mean errors of the defaults and of the best fixed setting."""
    settings = [
        {"step_size": step_size, "average": average, "center": True}
        for average in (False, True)
        for step_size in GRID
    ]
    lines, ratios = [], []
    for name, load in (CHOSEN_ON | CONFIRMED_ON).items():
        if options.only not in name:
            continue
        data = load(options.data)
        pairs = [data.ordered(seed).datasets() for seed in range(options.orders)]
        errors = [
            np.mean([evaluate(train(rows, **setting).model, test)["error"] for rows, test in pairs])
            for setting in ({}, *settings)
        ]
        best = int(np.argmin(errors[1:]))
        ratios.append(errors[0] / errors[1 + best])
        weights = "average" if settings[best]["average"] else "last weights"
        chosen = f"{settings[best]['step_size']:g}, {weights}"
        lines.append([name, f"{100 * errors[0]:.2f}", f"{100 * errors[1 + best]:.2f}"])
        lines[-1] += [f"{ratios[-1]:.3f}", chosen]
        print(lines[-1], flush=True)
    lines.append(["mean", "", "", f"{np.mean(ratios):.3f}", ""])
    return reporting.table(["", "defaults", "best setting", "ratio", "which is"], lines)


def half(
    title: str, sets: dict[str, Callable[[Path], RealSet]], options: argparse.Namespace
) -> str:
    """The table of one half of the sets, with the ratios to the best in the mean."""
    rows: list[list[str]] = []
    ratios: list[list[float]] = []
    names: list[str] = []
    for name, load in sets.items():
        if options.only not in name:
            continue
        errors = errors_on(load(options.data), options.orders)
        names = list(errors)
        means = {tool: float(np.mean(errors_of_tool)) for tool, errors_of_tool in errors.items()}
        least = np.min(list(means.values()))
        ratios.append([mean / least for mean in means.values()])
        rows.append([name, *(cell(errors[tool], least) for tool in errors)])
        print(rows[-1], flush=True)
    if not rows:
        return ""
    mean_ratios = [f"{ratio:.3f}" for ratio in np.mean(np.array(ratios), axis=0)]
    return reporting.table([title, *names], [*rows, ["mean ratio to the best", *mean_ratios]])


def cell(errors: NDArray[np.float64], least: float) -> str:
    mean, spread = 100 * errors.mean(), 100 * errors.std()
    text = f"{mean:.2f} ± {spread:.2f}"
    return f"**{text}**" if mean <= 100 * NEAR * least else text


def errors_on(data: RealSet, orders: int) -> dict[str, NDArray[np.float64]]:
    """The test errors of each tool, (orders,)."""
    by_tool: dict[str, list[float]] = {}
    for seed in range(orders):
        part, begun = data.ordered(seed), time.perf_counter()
        for name, measure in (("dadagrad", ours), ("VW", vowpal_wabbit), ("SGD", scikit_learn)):
            for variant, error in measure(part).items():
                by_tool.setdefault(f"{name}, {variant}", []).append(error)
        print(f"  order {seed}: {time.perf_counter() - begun:.0f} s", flush=True)
    return {name: np.array(errors) for name, errors in by_tool.items()}


def ours(data: RealSet) -> dict[str, float]:
    rows, test = data.datasets()
    return {loss: evaluate(train(rows, loss=loss).model, test)["error"] for loss in LOSSES}


def vowpal_wabbit(data: RealSet) -> dict[str, float]:
    """Errors of hinge loss, with VW's default rate and the best one, and of logistic loss."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        multi = int(data.y.max()) > 1
        vw.write_matrix(folder / "train.vw", data.x, data.y)
        vw.write_matrix(folder / "test.vw", data.test_x, data.test_y)
        flags = ["-b", "22", *(["--oaa", str(int(data.y.max()) + 1)] if multi else [])]

        def run(*options: str) -> tuple[float, float]:
            """The progressive loss and the test error."""
            model, cache = folder / "model", folder / "cache"
            loss = vw.run("--data", str(folder / "train.vw"), "--cache_file", str(cache), "-f",
                          str(model), *flags, *options).loss  # fmt: skip
            scores = vw.scores(model, "--data", str(folder / "test.vw"))
            classes = scores.argmax(axis=1) if multi else scores[:, 0] > 0
            return loss, float(np.mean(classes != data.test_y))

        hinge = ("--loss_function", "hinge")
        binary = () if multi else ("--binary",)  # the progressive loss is then the error
        tuned = min((run(*hinge, "-l", str(rate), *binary) for rate in RATES), key=lambda r: r[0])
        logistic = run("--loss_function", "logistic")
        return {"hinge": run(*hinge)[1], "hinge, tuned": tuned[1], "logistic": logistic[1]}


def scikit_learn(data: RealSet) -> dict[str, float]:
    from sklearn.linear_model import SGDClassifier
    from sklearn.preprocessing import MaxAbsScaler

    x, test_x = data.x, data.test_x
    if abs(x).max() > 1.0:
        scaler = MaxAbsScaler().fit(x)
        x, test_x = scaler.transform(x), scaler.transform(test_x)
    errors = {}
    for name, average in (("defaults", False), ("averaged", True)):
        model = SGDClassifier(max_iter=1, tol=None, shuffle=False, average=average)
        errors[name] = 1.0 - model.fit(x, data.y).score(test_x, data.test_y)
    return errors


if __name__ == "__main__":
    main()
