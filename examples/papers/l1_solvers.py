"""Weights after each step of methods for mean losses with an l1 ball or an l1 penalty.

They are those that "Projected gradients on the l1 ball" compares (`projected_gradient`).
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LogisticRegression

from dadagrad.optim.baselines import Row
from dadagrad.optim.losses import Loss
from dadagrad.optim.projections import project_l1_ball

Array = NDArray[np.float64]
Weights = Iterator[Array]


class Task(NamedTuple):
    """Mean losses of rows; labels are numbers, signs, or signs with a column for each class."""

    x: Any
    y: Array
    loss: Loss

    def value(self, w: Array) -> float:
        return float(self.loss.value(self.x @ w, self.y).mean())

    def gradient(self, w: Array, rows: Any = slice(None)) -> Array:
        x, y = self.x[rows], self.y[rows]
        return np.asarray(x.T @ self.loss.slope(x @ w, y)) / len(y)


def start(task: Task) -> Array:
    """Weights of 0, with a column for each class if there are several."""
    return np.zeros((task.x.shape[1], *task.y.shape[1:]))


def project(w: Array, radius: float) -> Array:
    """Each column of weights in a ball of its own."""
    if w.ndim == 2:
        return np.stack([project(column, radius) for column in w.T], axis=1)
    return project_l1_ball(w, np.ones(len(w)), radius)


def projected(task: Task, radius: float, eta: float, n_rows: int | None) -> Weights:
    """Projected steps of eta / sqrt(t) on all rows, or on random ones."""
    w, rng = start(task), np.random.default_rng(0)
    yield w
    for t in itertools.count(1):
        rows = slice(None) if n_rows is None else rng.integers(len(task.y), size=n_rows)
        w = project(w - eta / np.sqrt(t) * task.gradient(w, rows), radius)
        yield w


def line_search(task: Task, radius: float) -> Weights:
    """Projected steps on all rows, halved until the objective falls enough."""
    w, eta = start(task), 1.0
    yield w
    while True:
        gradient, value, eta = task.gradient(w), task.value(w), 2.0 * eta
        while eta > 1e-12:
            moved = project(w - eta * gradient, radius)
            change = moved - w
            if task.value(moved) <= value + gradient @ change + change @ change / (2.0 * eta):
                break
            eta *= 0.5
        w = moved
        yield w


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
        scores = task.x @ w
        bends = expit(scores) * expit(-scores) if task.loss.classifies else np.ones(n)
        scaled = task.x * np.sqrt(bends / len(task.y))[:, None]
        hessian = scaled.T @ scaled
        hessian[np.diag_indices(n)] += same - cross**2 / same
        move = scipy.linalg.solve(hessian, cross / same * of_u - of_w, assume_a="pos")
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


def coordinate_descents(task: Task, penalty: float) -> dict[str, Any]:
    """Estimators that minimise the mean loss plus `penalty` |w|_1."""
    settings: dict[str, Any] = {"tol": 1e-13, "fit_intercept": False, "warm_start": True}
    if task.loss.classifies:
        settings["C"] = 1.0 / (penalty * len(task.y))
        solver = {"solver": "liblinear", "l1_ratio": 1.0, "random_state": 0}
        models: dict[str, Any] = {"coordinate descent": LogisticRegression(**solver, **settings)}
    else:
        settings["alpha"] = penalty
        models = {"coordinate descent": Lasso(**settings)}
    if find_spec("celer"):
        import celer

        kind = celer.LogisticRegression if task.loss.classifies else celer.Lasso
        models["celer"] = kind(**settings)
    return models


def more_sweeps(task: Task, model: Any) -> Weights:
    """The solution of an estimator after ever more iterations."""
    yield np.zeros(task.x.shape[1])
    for power in range(12):
        model.set_params(max_iter=2**power)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # more sweeps follow
            model.fit(task.x, task.y)
        yield np.array(model.coef_).ravel()


def exponentiated(
    task: Task, radius: float, eta: float, power: float, n_rows: int | None
) -> Weights:
    """EG with weights of both signs, steps of eta / t^power."""
    scores, rng = start(task), np.random.default_rng(0)
    w = scores
    yield w
    for t in itertools.count(1):
        rows = slice(None) if n_rows is None else rng.integers(len(task.y), size=n_rows)
        scores = scores - eta / t**power * radius * task.gradient(w, rows)
        largest = np.abs(scores).max(axis=0)
        above, below = np.exp(scores - largest), np.exp(-scores - largest)
        w = radius * (above - below) / (above + below).sum(axis=0)
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
            gradient = values[:, None] * task.loss.slope(scores, targets)
            state = update.step(state, gradient, ids=ids)
