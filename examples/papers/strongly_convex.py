"""Strongly convex games (Shalev-Shwartz and Singer 2007): the SVM in a ball, entropic logistic.

Steps 1 / (sigma t) on one row each. The figure shows the objective at the average of all weights so
far, less its minimum, against T on logarithmic axes, with the bound of the paper drawn in:
(sqrt(sigma) + R)^2 (1 + log T) / (2 sigma T) for the SVM of section 4, and
(sigma (log(1 / eps) + 1) + R)^2 (1 + log T) / (2 sigma T) for logistic losses on the simplex with
floor eps. R bounds the rows, in the 2-norm and in the maximum norm. The minimum comes from SciPy.
The paper has no experiments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import entr

from dadagrad.optim.baselines import Learner, Row, StronglyConvexBall, StronglyConvexSimplex
from dadagrad.optim.losses import Hinge, Logistic
from examples.papers.record import Claim, Options, Outcome, Plot, Table, show

Array = NDArray[np.float64]
Objective = Callable[[Array], float]

SIGMA = 0.1
FLOOR = 1e-3


def run(options: Options) -> Outcome:
    n_steps, n_features = (1_000, 8) if options.quick else (100_000, 20)
    rows, labels = draw(500, n_features)
    order = np.random.default_rng(1).integers(len(rows), size=n_steps)
    marks = np.unique(np.geomspace(10, n_steps, 40).astype(int))
    lines, table = {}, []
    for name, learner, objective, least, bound in games(rows, labels):
        gaps = follow(learner, rows, labels, order, marks, objective) - least
        if gaps.min() < -1e-6:
            raise AssertionError(f"{name}: the minimum of SciPy is not one")
        bounds = bound * (1.0 + np.log(marks)) / marks
        lines[name] = (marks.tolist(), gaps.tolist())
        lines[f"{name}, bound"] = (marks.tolist(), bounds.tolist())
        slope = np.polyfit(np.log(marks[-20:]), np.log(np.maximum(gaps[-20:], 1e-300)), 1)[0]
        table.append((name, n_steps, float(gaps[-1]), float(bounds[-1]), float(slope)))
    columns = ("game", "T", "gap of the average", "bound", "slope on logarithmic axes")
    plot = Plot("strongly_convex", "Objective less its minimum", "T", "gap", lines, "xy")
    return Outcome([Table("Gap after T rows", columns, table)], [plot])


def claims(rows: list[dict[str, Any]]) -> list[Claim]:
    figures = [
        f"{row['game']}: {show(row['gap of the average'])} (bound {show(row['bound'])})"
        for row in rows
    ]
    return [
        Claim(
            "The gap stays below a bound that falls like log(T) / T.",
            all(row["gap of the average"] <= row["bound"] for row in rows),
            "; ".join(figures),
        )
    ]


def draw(n_rows: int, n_features: int) -> tuple[Array, Array]:
    """Rows within [-1, 1]^d / sqrt(d), and noisy labels."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (n_rows, n_features)) / np.sqrt(n_features)
    noise = 0.2 * rng.normal(size=n_rows)
    return rows, np.where(rows @ np.abs(rng.normal(size=n_features)) + noise > 0, 1.0, -1.0)


def games(rows: Array, labels: Array) -> list[tuple[str, Learner, Objective, float, float]]:
    """Name, learner, objective, its minimum, and the factor of (1 + log T) / T in the bound."""
    n_features = rows.shape[1]

    def svm(w: Array) -> float:
        return float(0.5 * SIGMA * w @ w + np.maximum(0.0, 1.0 - labels * (rows @ w)).mean())

    def entropic(w: Array) -> float:
        entropy = np.log(n_features) - entr(w).sum()
        return float(SIGMA * entropy + np.logaddexp(0.0, -labels * (rows @ w)).mean())

    largest_norm = float(np.linalg.norm(rows, axis=1).max())
    most = float(np.abs(rows).max())
    wide = SIGMA * (np.log(1.0 / FLOOR) + 1.0) + most
    return [
        (
            "SVM in a ball",
            StronglyConvexBall(SIGMA, loss=Hinge()),
            svm,
            svm(least_svm(rows, labels)),
            (np.sqrt(SIGMA) + largest_norm) ** 2 / (2.0 * SIGMA),
        ),
        (
            "logistic on the simplex",
            StronglyConvexSimplex(SIGMA, FLOOR, loss=Logistic()),
            entropic,
            float(least_on_simplex(entropic, n_features)),
            wide**2 / (2.0 * SIGMA),
        ),
    ]


def least_svm(rows: Array, labels: Array) -> Array:
    """Minimum of the SVM by its dual: 0 <= alpha <= 1 / m, w = sum alpha y x / sigma."""
    signed = rows * labels[:, None]

    def dual(alpha: Array) -> tuple[float, Array]:
        w = alpha @ signed / SIGMA
        return float(0.5 * SIGMA * w @ w - alpha.sum()), signed @ w - 1.0

    bounds = [(0.0, 1.0 / len(rows))] * len(rows)
    options = {"maxiter": 100_000, "maxfun": 1_000_000, "ftol": 1e-15, "gtol": 1e-9}
    alpha = minimize(dual, np.zeros(len(rows)), jac=True, bounds=bounds, options=options).x
    return np.asarray(alpha @ signed / SIGMA)


def least_on_simplex(objective: Objective, n_features: int) -> float:
    """Minimum of a smooth objective on the simplex with a floor."""
    solution = minimize(
        objective,
        np.full(n_features, 1.0 / n_features),
        bounds=[(FLOOR, 1.0)] * n_features,
        constraints=[{"type": "eq", "fun": lambda w: w.sum() - 1.0}],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 2_000},
    )
    return float(solution.fun)


def follow(
    learner: Learner,
    rows: Array,
    labels: Array,
    order: NDArray[np.int64],
    marks: NDArray[np.int64],
    objective: Objective,
) -> Array:
    """The objective at the average of w_1 to w_T, for each T of `marks`."""
    state, total = learner.init(rows.shape[1], 1), np.zeros(rows.shape[1])
    ids, errors = np.arange(rows.shape[1]), []
    steps_to_record = set(marks.tolist())
    for t, number in enumerate(order, start=1):
        total += learner.weights(state)[:, 0]
        values, target = rows[number], labels[[number]]
        scores = learner.scores(state, ids, values)
        state = learner.learn(state, Row(ids, values, target, scores))
        if t in steps_to_record:
            errors.append(objective(total / t))
    return np.array(errors)
