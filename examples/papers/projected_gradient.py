"""Projected gradients on the l1 ball (Duchi, Shalev-Shwartz, Singer, Chandra 2008, figs. 4 to 6).

**Synthetic** (figures 4 and 5): Gaussian rows, half of the weights 0, as many rows as features
(800, and 4,000 with `--full`). Least squares with Gaussian noise, and logistic losses with a tenth
of the labels turned. Projected gradient descent in batches, with a backtracking line search, and on
random rows, steps of eta / sqrt(t), stays in the ball whose radius is the l1 norm of the solution
w* of coordinate descent (scikit-learn) and of the interior point method (Newton steps on a
logarithmic barrier), which minimise the loss plus lambda |w|_1. As in the paper each method has the
gap of its own objective; here against CPU seconds.

**Text** (figure 6): logistic loss on IMDB in the place of RCV1; projection against exponentiated
gradient (EG), on all rows and on a random quarter of them, and row by row with the structure for
sparse gradients (`projected-gradient`) and EG in a tree (`eg-signed`). Each has the best step size
of a grid, and EG also the best of three schedules, as in the paper.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LogisticRegression

from dadagrad.optim.baselines import Row
from dadagrad.optim.baselines.exponentiated_gradient import SignedExponentiatedGradient
from dadagrad.optim.losses import Logistic
from dadagrad.optim.projection_tree import ProjectedGradient
from dadagrad.optim.projections import project_l1_ball
from examples.papers import sets
from examples.papers.record import Options, Outcome, Plot, Table, order

Array = NDArray[np.float64]
Weights = Iterator[Array]

POWERS = {"constant": 0.0, "1 / sqrt(t)": 0.5, "1 / t": 1.0}
LEAST_GAP = 1e-9
LOSS = Logistic()


class Task(NamedTuple):
    """Mean losses of rows: half squares of errors, or logistic losses."""

    x: Any
    y: Array
    logistic: bool

    def value(self, w: Array) -> float:
        scores = self.x @ w
        if self.logistic:
            return float(np.logaddexp(0.0, -self.y * scores).mean())
        return float(0.5 * np.square(scores - self.y).mean())

    def gradient(self, w: Array, rows: Any = slice(None)) -> Array:
        x, y = self.x[rows], self.y[rows]
        slopes = -y * expit(-y * (x @ w)) if self.logistic else x @ w - y
        return np.asarray(x.T @ slopes) / len(y)

    def curvatures(self, w: Array) -> Array:
        """The second derivative of each row's loss."""
        if not self.logistic:
            return np.ones(len(self.y))
        return expit(self.x @ w) * expit(-(self.x @ w))


def run(options: Options) -> Outcome:
    sizes = (40,) if options.quick else (800, 4_000) if options.full else (800,)
    seconds = 0.02 if options.quick else 3.0
    lines, plots = [], []
    for logistic, n in itertools.product((False, True), sizes):
        name = f"{'Logistic' if logistic else 'Least squares'}, {n:,} features"
        curves = synthetic(draw(n, logistic), seconds)
        plots.append(
            plot(f"projected_gradient_{'logistic' if logistic else 'squares'}_{n}", name, curves)
        )
        lines += [(name, method, *times(curve)) for method, curve in curves.items()]
    curves = on_text(options, 0.7 * seconds)
    plots.append(plot("projected_gradient_text", "Logistic loss on text", curves))
    lines += [("text", method, *times(curve)) for method, curve in curves.items()]
    columns = ("problem", "method", "seconds to 0.1", "to 0.01", "to 0.001", "gap at the end")
    return Outcome(
        [Table("CPU seconds to a gap, as a part of the gap at 0", columns, lines)], plots
    )


def findings(rows: list[dict[str, Any]]) -> str:
    parts = []
    for problem in dict.fromkeys(row["problem"] for row in rows):
        gaps = {row["method"]: row["gap at the end"] for row in rows if row["problem"] == problem}
        firsts = []
        for column in ("seconds to 0.1", "to 0.001"):
            seconds = {row["method"]: row[column] for row in rows if row["problem"] == problem}
            reached = {name: value for name, value in seconds.items() if value is not None}
            name = min(reached, key=lambda each: reached[each], default="no method")
            firsts.append(f"{name} is the first to {column.rpartition(' ')[2]}")
        parts.append(f"{problem}: {', '.join(firsts)}, gaps at the end {order(gaps)}")
    return (
        "The claims: projections are fast at first and interior points overtake them; on text "
        f"projections beat EG. Here: {'; '.join(parts)}."
    )


def plot(name: str, title: str, curves: dict[str, Any]) -> Plot:
    return Plot(name, title, "CPU seconds", "gap", curves, "xy")


def draw(n: int, logistic: bool) -> Task:
    """The made-up rows of section 7."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=n) * (rng.random(n) < 0.5)
    x = rng.normal(size=(n, n))
    if not logistic:
        return Task(x, x @ truth + rng.normal(size=n), False)
    signs = np.where(rng.random(n) < 0.9, 1.0, -1.0)
    return Task(x, np.sign(x @ truth) * signs, True)


def synthetic(task: Task, seconds: float) -> dict[str, Any]:
    """Gaps of all methods against seconds."""
    n = task.x.shape[1]
    penalty = 0.02 * float(np.abs(task.gradient(np.zeros(n))).max())
    *_, solution = coordinate_descent(task, penalty, 2_000)
    *_, refined = interior_point(task, penalty)

    def penalised(w: Array) -> float:
        return task.value(w) + penalty * float(np.abs(w).sum())

    solution = min(solution, refined, key=penalised)
    radius = float(np.abs(solution).sum())
    eta = radius / (np.linalg.norm(task.gradient(np.zeros(n))) * np.sqrt(n))
    starts: dict[
        str, tuple[Callable[[float], Weights], Sequence[float], Callable[[Array], float]]
    ] = {
        "projection, batch": (
            lambda eta: projected(task, radius, eta, None),
            eta * 10.0 ** np.arange(-1, 2),
            task.value,
        ),
        "projection, line search": (lambda _: line_search(task, radius), (0.0,), task.value),
        "projection, stochastic": (
            lambda eta: projected(task, radius, eta, 1),
            eta * 10.0 ** np.arange(-2, 1),
            task.value,
        ),
        "coordinate descent": (lambda _: coordinate_descent(task, penalty, 200), (0.0,), penalised),
        "interior point": (lambda _: interior_point(task, penalty), (0.0,), penalised),
    }
    curves = {}
    for name, (method, grid, objective) in starts.items():
        tried = [follow(method(each), objective, objective(solution), seconds) for each in grid]
        curves[name] = min(tried, key=lambda curve: curve[1][-1])
    return curves


def follow(
    weights: Weights, objective: Callable[[Array], float], least: float, seconds: float
) -> tuple[list[float], list[float]]:
    """CPU seconds and gaps of weights, without the time of the objective, after ever more steps."""
    spent, gaps, total, mark = [], [], 0.0, 1e-4
    start = time.process_time()
    for w in weights:
        now = total + time.process_time() - start
        if now >= mark:
            gap = objective(w) - least
            spent.append(round(now, 5))
            gaps.append(max(gap, LEAST_GAP))
            if now > seconds or gap < LEAST_GAP:
                break
            total, mark = now, 1.15 * now
            start = time.process_time()
    return spent, gaps


def times(curve: tuple[list[float], list[float]]) -> list[float | None]:
    """Seconds until the gap is a part of the first one, and the last gap."""
    spent, gaps = np.array(curve[0]), np.array(curve[1])
    firsts = [np.flatnonzero(gaps <= part * gaps[0]) for part in (0.1, 0.01, 0.001)]
    return [*(float(spent[each[0]]) if len(each) else None for each in firsts), float(gaps[-1])]


def projected(task: Task, radius: float, eta: float, n_rows: int | None) -> Weights:
    """Projected steps of eta / sqrt(t) on all rows, or on random ones."""
    w, ones, rng = np.zeros(task.x.shape[1]), np.ones(task.x.shape[1]), np.random.default_rng(0)
    yield w
    for t in itertools.count(1):
        rows = slice(None) if n_rows is None else rng.integers(len(task.y), size=n_rows)
        step = eta / np.sqrt(t) * task.gradient(w, rows)
        w = project_l1_ball(w - step, ones, radius)
        yield w


def line_search(task: Task, radius: float) -> Weights:
    """Projected steps on all rows, halved until the objective falls enough."""
    w, ones, eta = np.zeros(task.x.shape[1]), np.ones(task.x.shape[1]), 1.0
    yield w
    while True:
        gradient, value, eta = task.gradient(w), task.value(w), 2.0 * eta
        while eta > 1e-12:
            moved = project_l1_ball(w - eta * gradient, ones, radius)
            change = moved - w
            if task.value(moved) <= value + gradient @ change + change @ change / (2.0 * eta):
                break
            eta *= 0.5
        w = moved
        yield w


def coordinate_descent(task: Task, penalty: float, n_sweeps: int) -> Weights:
    """scikit-learn's solution after ever more sweeps, each of them from 0."""
    yield np.zeros(task.x.shape[1])
    if task.logistic:
        model: Any = LogisticRegression(
            l1_ratio=1.0, solver="liblinear", C=1.0 / (penalty * len(task.y)),
            fit_intercept=False, tol=1e-12, max_iter=1, random_state=0,
        )  # fmt: skip
    else:
        model = Lasso(penalty, fit_intercept=False, tol=1e-14, max_iter=1, warm_start=True)
    sweeps = 1
    while sweeps <= n_sweeps:
        model.set_params(max_iter=sweeps if task.logistic else max(1, sweeps // 2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # more sweeps follow
            model.fit(task.x, task.y)
        yield np.array(model.coef_).ravel()
        sweeps *= 2


def interior_point(task: Task, penalty: float) -> Weights:
    """Newton steps on value(w) + penalty sum u - sum log(u + w) / s - sum log(u - w) / s."""
    n = task.x.shape[1]
    w, u, s = np.zeros(n), np.ones(n), 1.0 / penalty
    yield w

    def barrier(w: Array, u: Array) -> float:
        if np.any(u <= np.abs(w)):
            return np.inf
        return task.value(w) + penalty * u.sum() - np.log((u + w) * (u - w)).sum() / s

    while 2.0 * n / s > 1e-11:
        up, down = 1.0 / (u + w), 1.0 / (u - w)
        same, cross = (up**2 + down**2) / s, (up**2 - down**2) / s
        of_w = task.gradient(w) - (up - down) / s
        of_u = penalty - (up + down) / s
        hessian = (task.x.T * (task.curvatures(w) / len(task.y))) @ task.x
        hessian[np.diag_indices(n)] += same - cross**2 / same
        move = np.linalg.solve(hessian, cross / same * of_u - of_w)
        move_u = -(of_u + cross * move) / same
        decrease = -(of_w @ move + of_u @ move_u)
        length, value = 1.0, barrier(w, u)
        while barrier(w + length * move, u + length * move_u) > value - 0.1 * length * decrease:
            length *= 0.5
            if length < 1e-10:
                return
        w, u = w + length * move, u + length * move_u
        if decrease < 1e-3 * 2.0 * n / s:
            s *= 10.0
        yield w


# Text


def on_text(options: Options, seconds: float) -> dict[str, Any]:
    """Gaps on text: projection and EG, on all rows, a quarter of them and one."""
    if options.quick:
        digits = sets.digits()
        x, labels, radius = digits.x, digits.y == 1, 20.0
    else:
        x, labels = sets.reviews(options, 400)
        x, labels, radius = x[::2], labels[::2], 200.0
    task = Task(x.astype(np.float64), np.where(labels, 1.0, -1.0), True)
    n, start = x.shape[1], task.gradient(np.zeros(x.shape[1]))
    quarter = len(task.y) // 4
    eta = radius / (np.linalg.norm(start) * np.sqrt(n)) * 10.0 ** np.arange(-1, 2)
    of_eg = 1.0 / (radius * np.abs(start).max()) * np.array([0.03, 0.1, 0.3, 1.0])
    schedules = list(itertools.product(of_eg, POWERS.values()))
    methods: dict[str, list[Weights]] = {
        "projection, all rows": [projected(task, radius, each, None) for each in eta],
        "projection, a quarter": [projected(task, radius, each, quarter) for each in eta],
        "projection, one row": [
            by_row(task, ProjectedGradient(each, radius=radius)) for each in (0.3, 1.0, 3.0)
        ],
        "EG, all rows": [exponentiated(task, radius, *each, None) for each in schedules],
        "EG, a quarter": [exponentiated(task, radius, *each, quarter) for each in schedules],
        "EG, one row": [
            by_row(task, SignedExponentiatedGradient(radius, each, loss=LOSS))
            for each in (3e-4, 1e-3, 3e-3)
        ],
    }
    tried = {
        name: [follow(each, task.value, 0.0, seconds) for each in runs]
        for name, runs in methods.items()
    }
    least = min(min(curve[1]) for curves in tried.values() for curve in curves)
    best = {name: min(curves, key=lambda c: c[1][-1]) for name, curves in tried.items()}
    return {
        name: (spent, [max(value - least, LEAST_GAP) for value in values])
        for name, (spent, values) in best.items()
    }


def exponentiated(
    task: Task, radius: float, eta: float, power: float, n_rows: int | None
) -> Weights:
    """EG with weights of both signs, steps of eta / t^power."""
    scores, rng = np.zeros(task.x.shape[1]), np.random.default_rng(0)
    w = scores
    yield w
    for t in itertools.count(1):
        rows = slice(None) if n_rows is None else rng.integers(len(task.y), size=n_rows)
        scores = scores - eta / t**power * radius * task.gradient(w, rows)
        above = np.exp(scores - np.abs(scores).max()), np.exp(-scores - np.abs(scores).max())
        w = radius * (above[0] - above[1]) / (above[0] + above[1]).sum()
        yield w


def by_row(task: Task, update: Any) -> Weights:
    """A step for each of random rows, whose gradients are sparse."""
    state, rng = update.init(task.x.shape[1], 1), np.random.default_rng(0)
    for t in itertools.count():
        if t % 500 == 0:
            yield update.weights(state)[:, 0]
        row = int(rng.integers(len(task.y)))
        part = slice(task.x.indptr[row], task.x.indptr[row + 1])
        ids, values = task.x.indices[part].astype(np.int64), task.x.data[part]
        targets = task.y[[row]]
        scores = values @ update.weights(state, ids)
        if update.by_row:
            state = update.learn(state, Row(ids, values, targets, scores))
        else:
            gradient = values[:, None] * LOSS.slope(scores, targets)
            state = update.step(state, gradient, ids=ids)
