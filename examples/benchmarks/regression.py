"""Test error of regressions after one pass with nothing chosen, beside VW and scikit-learn.

Every tool makes one pass over the same rows in the same order, which is random and another one in
each run. The root of the mean squared error is that of a run with squared loss, the mean absolute
error that of one with absolute loss (in VW the quantile loss of one half, in scikit-learn the
epsilon-insensitive loss of 0), the mean Poisson deviance that of one with Poisson loss, which
SGDRegressor lacks. Vowpal Wabbit and SGDRegressor have their defaults; the latter gets
standardized columns (which sees all rows first), or text as it is. *From 0* is dadagrad without
means: intercepts start at 0 instead of at the best constant, and dense columns keep their means.
The ratings are also learned with 100 added to each. Counts have 10 normal columns, whose weights
make the logarithm of their mean. Means over the orders and their standard deviations; bold are the
least and those within 1 % of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import reporting
import vw
from numpy.typing import NDArray
from quality_sets import RealSet, imdb_ratings, split_randomly

from dadagrad import evaluate, train
from dadagrad.optim.losses import Poisson

MEASURES = {"squared": "rmse", "absolute": "mae", "poisson": "deviance"}
VW_LOSSES = {
    "squared": ["squared"],
    "absolute": ["quantile", "--quantile_tau", "0.5"],
    "poisson": ["poisson"],
}
SGD_LOSSES = {"squared": {}, "absolute": {"loss": "epsilon_insensitive", "epsilon": 0.0}}
N_FRIEDMAN = 30_000
NEAR = 1.01


def ratings_and_100(data: Path) -> RealSet:
    ratings = imdb_ratings(data)
    return replace(ratings, y=ratings.y + 100.0, test_y=ratings.test_y + 100.0)


def diabetes(data: Path) -> RealSet:
    from sklearn.datasets import load_diabetes

    return split_randomly(*load_diabetes(return_X_y=True, scaled=False), classes=False)


def friedman(data: Path) -> RealSet:
    """Friedman's first function of 5 of 10 numbers, with noise."""
    from sklearn.datasets import make_friedman1

    return split_randomly(*make_friedman1(N_FRIEDMAN, noise=1.0, random_state=0), classes=False)


def counts(data: Path, *, n_rows: int, mean: float) -> RealSet:
    random = np.random.default_rng(0)
    x = random.normal(size=(n_rows, 10))
    rates = np.exp(x @ (0.3 * random.normal(size=10)))
    return split_randomly(x, random.poisson(rates * mean / rates.mean()), classes=False)


REAL = "squared", "absolute"
COUNTED = ("poisson",)
SETS: dict[str, tuple[Callable[[Path], RealSet], tuple[str, ...]]] = {
    "IMDB, ratings by words and pairs": (imdb_ratings, REAL),
    "the same ratings + 100": (ratings_and_100, REAL),
    "diabetes, raw": (diabetes, REAL),
    "Friedman's function": (friedman, REAL),
    "1,000 counts, mean 10": (partial(counts, n_rows=1_000, mean=10.0), COUNTED),
    "1,000 counts, mean 100": (partial(counts, n_rows=1_000, mean=100.0), COUNTED),
    "30,000 counts, mean 100": (partial(counts, n_rows=30_000, mean=100.0), COUNTED),
    "30,000 counts, mean 0.01": (partial(counts, n_rows=30_000, mean=0.01), COUNTED),
}


def main() -> None:
    parser = reporting.parser(__doc__, data="the sets")
    parser.add_argument("--orders", type=int, default=5, help="orders of the rows (default: 5)")
    parser.add_argument("--only", default="", help="part of the name of the sets to run")
    options = parser.parse_args()
    lines: list[list[str]] = []
    tools = {"dadagrad": ours, "from 0": from_0, "VW": vowpal_wabbit, "SGD": scikit_learn}
    for name, (load, losses) in SETS.items():
        if options.only not in name:
            continue
        data = load(options.data)
        orders = [data.ordered(seed) for seed in range(options.orders)]
        for loss in losses:
            errors = [[tool(part, loss) for part in orders] for tool in tools.values()]
            least = np.nanmin(np.mean(errors, axis=1))
            title = f"{name}, {MEASURES[loss]}"
            lines.append([title, *(cell(np.array(each), least) for each in errors)])
            print(lines[-1], flush=True)
    reporting.publish("regression", reporting.table(["", *tools], lines), options.markdown)


def cell(errors: NDArray[np.float64], least: float) -> str:
    if np.isnan(errors).all():
        return "-"
    text = f"{errors.mean():.4g} ± {errors.std():.2g}"
    return f"**{text}**" if errors.mean() <= NEAR * least else text


def ours(data: RealSet, loss: str, **settings: Any) -> float:
    rows, test = data.datasets()
    measured = evaluate(train(rows, loss=loss, **settings).model, test)
    error: float = 2.0 * measured["loss"] if loss == "poisson" else measured[MEASURES[loss]]
    return error


def from_0(data: RealSet, loss: str) -> float:
    return ours(data, loss, center=False)


def vowpal_wabbit(data: RealSet, loss: str) -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model"
        vw.write_matrix(folder / "train.vw", data.x, data.y, classes=False)
        vw.write_matrix(folder / "test.vw", data.test_x, data.test_y, classes=False)
        flags = ["-b", "22", "--loss_function", *VW_LOSSES[loss]]
        vw.run("--data", str(folder / "train.vw"), "-f", str(model), *flags)
        return error_of(vw.scores(model, "--data", str(folder / "test.vw"))[:, 0], data, loss)


def scikit_learn(data: RealSet, loss: str) -> float:
    from sklearn.linear_model import SGDRegressor
    from sklearn.preprocessing import StandardScaler

    if loss not in SGD_LOSSES:
        return np.nan
    x, test_x = data.x, data.test_x
    if x.shape[1] < 100:
        scaler = StandardScaler().fit(x.toarray())
        x, test_x = scaler.transform(x.toarray()), scaler.transform(test_x.toarray())
    model = SGDRegressor(max_iter=1, tol=None, shuffle=False, **SGD_LOSSES[loss])
    return error_of(model.fit(x, data.y).predict(test_x), data, loss)


def error_of(scores: NDArray[np.float64], data: RealSet, loss: str) -> float:
    if loss == "poisson":
        return float(2.0 * Poisson().value(scores, data.test_y).mean())
    difference = scores - data.test_y
    return float(
        np.sqrt(np.mean(difference**2)) if loss == "squared" else np.mean(np.abs(difference))
    )


if __name__ == "__main__":
    main()
