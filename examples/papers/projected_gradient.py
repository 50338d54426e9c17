"""Projected gradients on the l1 ball (Duchi, Shalev-Shwartz, Singer, Chandra 2008, figs. 4 to 7).

**Synthetic** (figures 4 and 5): Gaussian rows, half of the weights 0, as many rows as features, 800
(and 4,000 with `--full`). Least squares with Gaussian noise, and logistic losses with a tenth of
the labels turned. Projected gradient descent in batches, with a backtracking line search, and on
random rows, steps of eta / sqrt(t), stays in the ball whose radius is the l1 norm of the solution
w* of the interior point method (Newton steps on a logarithmic barrier), which minimises the loss
plus lambda |w|_1. So do coordinate descent (scikit-learn; logistic losses start from 0 for each
point of the curve) and, where it is installed, celer. As in the paper each method has the gap of
its own objective; here against CPU seconds.

**Text** (figure 6): logistic loss on IMDB in the place of RCV1; projection against exponentiated
gradient (EG), on all rows and on a random quarter of them, and row by row with the structure for
sparse gradients (`projected-gradient`) and EG in a tree (`eg-signed`).

**Digits** (figure 7): multinomial logistic loss of MNIST on Gaussian kernels with a support set,
each class in a ball of its own, on all rows and on 1 % of them; 4,000 rows and 500 support images,
or 60,000 and 2,766 as in the paper with `--full`. Each method on text and digits has the
best step size of a grid, and EG also the best of three schedules, as in the paper; gaps are those
to the least loss of all methods, down to 1e-4. Against the paper, EG wins on digits, by its
constant steps: with steps of eta / sqrt(t), as projections have, the two end alike on all rows.
And interior points do not overtake projections: these rows have nearly the same curvature in all
directions, so that projections with a line search gain digits as steadily.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dadagrad.optim.baselines.exponentiated_gradient import SignedExponentiatedGradient
from dadagrad.optim.losses import Logistic, Loss, Softmax, Squared
from dadagrad.optim.projection_tree import ProjectedGradient
from examples.papers import digits_kernels, sets
from examples.papers.l1_solvers import (
    Array,
    Task,
    Weights,
    by_row,
    coordinate_descents,
    exponentiated,
    interior_point,
    line_search,
    more_sweeps,
    projected,
    start,
)
from examples.papers.record import Claim, Options, Outcome, Plot, Table, show

Objective = Callable[[Array], float]

POWERS = {"constant": 0.0, "1 / sqrt(t)": 0.5, "1 / t": 1.0}
LEAST_GAP, LEAST_OF_ALL = 1e-9, 1e-4
"""Smallest gaps that are told apart: to a known minimum, and to the least loss of all methods."""
PARTS = (0.1, 0.01, 0.001)
"""Parts of the first gap whose times are in the table."""


class Curve(NamedTuple):
    """CPU seconds, gaps, and the last weights of a method."""

    seconds: list[float]
    gaps: list[float]
    weights: Array

    def above(self, least: float, smallest: float) -> Curve:
        """The same with gaps to another least value."""
        return self._replace(gaps=[max(gap - least, smallest) for gap in self.gaps])


def run(options: Options) -> Outcome:
    sizes = (40,) if options.quick else (800, 4_000) if options.full else (800,)
    lines, plots = [], []
    problems: list[tuple[str, str, Callable[[], dict[str, Curve]]]] = [
        (f"{name}, {n:,} features", f"{file}_{n}", partial(synthetic, n, loss))
        for name, file, loss in (
            ("Least squares", "squares", Squared()),
            ("Logistic", "logistic", Logistic()),
        )
        for n in sizes
    ]
    problems.append(("Text", "text", partial(on_text, options)))
    problems.append(("Digits", "digits", partial(on_digits, options)))
    for name, file, measure in problems:
        curves = measure()
        lines += [(name, method, *cells(curve)) for method, curve in curves.items()]
        shown = {method: (curve.seconds, curve.gaps) for method, curve in curves.items()}
        plots.append(Plot(f"projected_gradient_{file}", name, "CPU seconds", "gap", shown, "xy"))
    columns = ("problem", "method", *(f"seconds to {part:g}" for part in PARTS))
    columns += ("gap at the end", "weights not 0")
    return Outcome(
        [Table("CPU seconds to a gap, as a part of the gap at 0", columns, lines)], plots
    )


def claims(rows: list[dict[str, Any]]) -> list[Claim]:
    problems = dict.fromkeys(row["problem"] for row in rows if "features" in row["problem"])
    gaps = {(row["problem"], row["method"]): row["gap at the end"] for row in rows}
    pairs: dict[str, list[tuple[str, float, float]]] = {}
    for (problem, name), gap in gaps.items():
        if name.startswith("EG, "):
            ours = gaps[problem, name.replace("EG", "projection")]
            pairs.setdefault(problem, []).append((name[4:], ours, gap))

    def fastest(problem: str, part: float) -> str:
        seconds = {row["method"]: row for row in rows if row["problem"] == problem}
        return min(seconds, key=lambda name: seconds[name][f"seconds to {part:g}"] or np.inf)

    firsts, ends = ([fastest(problem, part) for problem in problems] for part in PARTS[::2])
    shown = [f"{name}: {a}, then {b}" for name, a, b in zip(problems, firsts, ends, strict=True)]
    return [
        Claim(
            "Projected gradients are the fastest to a small accuracy.",
            all(name.startswith("projection") for name in firsts),
            f"first to {PARTS[0]:g} of the gap, and to {PARTS[-1]:g}: {'; '.join(shown)}",
        ),
        Claim(
            "Interior points overtake projected gradients.",
            all(name == "interior point" for name in ends),
            f"first to {PARTS[-1]:g} on {ends.count('interior point')} of {len(ends)} problems",
        ),
        *(
            Claim(
                f"Projections on the l1 ball beat EG on {problem.lower()}.",
                all(ours < gap for _, ours, gap in by_solver),
                "gap at the end, projection and EG: "
                + "; ".join(
                    f"{name} {show(ours)} and {show(gap)}" for name, ours, gap in by_solver
                ),
            )
            for problem, by_solver in pairs.items()
        ),
    ]


def cells(curve: Curve) -> list[float | None]:
    """Seconds until the gap is a part of the first one, the last gap, and the non-zero weights."""
    gaps = np.array(curve.gaps)
    firsts = [np.flatnonzero(gaps <= part * gaps[0]) for part in PARTS]
    seconds = [curve.seconds[each[0]] if len(each) else None for each in firsts]
    return [*seconds, curve.gaps[-1], float(np.mean(curve.weights != 0))]


def follow(weights: Weights, objective: Objective, least: float, seconds: float) -> Curve:
    """Gaps after ever more steps, without the time of the objective, until `seconds` are over."""
    spent: list[float] = []
    gaps: list[float] = []
    total, mark, begin = 0.0, 0.0, time.process_time()

    def note(w: Array, now: float) -> None:
        spent.append(max(round(now, 5), 1e-5))
        gaps.append(max(objective(w) - least, LEAST_GAP))

    for w in weights:
        now = total + time.process_time() - begin
        if now >= mark:
            note(w, now)
            if now > seconds or gaps[-1] == LEAST_GAP:
                break
            total, mark, begin = now, max(1.15 * now, 1e-4), time.process_time()
    else:
        note(w, total + time.process_time() - begin)
    return Curve(spent, gaps, w)


def follow_best(
    runs: Sequence[Weights], objective: Objective, least: float, seconds: float
) -> Curve:
    """The run with the least gap at the end."""
    tried = [follow(each, objective, least, seconds) for each in runs]
    return min(tried, key=lambda curve: curve.gaps[-1])


# Synthetic


def draw(n: int, loss: Loss) -> Task:
    """The made-up rows of section 7."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=n) * (rng.random(n) < 0.5)
    x = rng.normal(size=(n, n))
    if not loss.classifies:
        return Task(x, x @ truth + rng.normal(size=n), loss)
    signs = np.where(rng.random(n) < 0.9, 1.0, -1.0)
    return Task(x, np.sign(x @ truth) * signs, loss)


def synthetic(n: int, loss: Loss) -> dict[str, Curve]:
    """Gaps of all methods, which have `n` / 800 seconds each but for the interior point."""
    task, seconds = draw(n, loss), n / 800
    first = task.gradient(start(task))
    penalty = 0.02 * float(np.abs(first).max())

    def penalised(w: Array) -> float:
        return task.value(w) + penalty * float(np.abs(w).sum())

    inside = follow(interior_point(task, penalty), penalised, 0.0, np.inf)
    solution = inside.weights
    radius, least = float(np.abs(solution).sum()), penalised(solution)
    least_loss = task.value(solution)
    eta = radius / (np.linalg.norm(first) * np.sqrt(n))
    batch = [projected(task, radius, eta * factor, None) for factor in (0.1, 1.0, 10.0)]
    by_rows = [projected(task, radius, eta * factor, 1) for factor in (0.01, 0.1, 1.0)]
    curves = {
        "projection, batch": follow_best(batch, task.value, least_loss, seconds),
        "projection, line search": follow(
            line_search(task, radius), task.value, least_loss, seconds
        ),
        "projection, stochastic": follow_best(by_rows, task.value, least_loss, seconds),
    }
    for name, model in coordinate_descents(task, penalty).items():
        curves[name] = follow(more_sweeps(task, model), penalised, least, seconds)
    return {**curves, "interior point": inside.above(least, LEAST_GAP)}


# Text and digits


def on_text(options: Options) -> dict[str, Curve]:
    """Gaps on text: all rows, a quarter of them, and one."""
    if options.quick:
        digits = sets.digits()
        x, labels, radius, seconds = digits.x, digits.y == 1, 20.0, 0.01
    else:
        x, labels = sets.reviews(options, 400)
        x, labels, radius, seconds = x[::8], labels[::8], 200.0, 0.8
    task = Task(x.astype(np.float64), np.where(labels, 1.0, -1.0), Logistic())
    tree = [by_row(task, ProjectedGradient(each, radius=radius)) for each in (0.3, 1.0, 3.0)]
    products = [
        by_row(task, SignedExponentiatedGradient(radius, each, loss=task.loss))
        for each in (3e-4, 1e-3, 3e-3)
    ]
    methods = against_eg(task, radius, 0.25, "a quarter")
    methods |= {"projection, one row": tree, "EG, one row": products}
    return compare(task, methods, seconds)


def on_digits(options: Options) -> dict[str, Curve]:
    """Gaps on kernels of digits: all rows, and 1 % of them."""
    n_rows, n_support = (300, 30) if options.quick else (4_000, 500)
    n_rows, n_support = (60_000, 2_766) if options.full else (n_rows, n_support)
    data = sets.images(options)
    order = np.random.default_rng(0).permutation(len(data.y))
    kernel = digits_kernels.Kernel(data.x[order[-n_support:]].toarray())
    x = kernel(data.x[order[:n_rows]].toarray()).astype(np.float64)
    y = np.where(data.y[order[:n_rows], None] == np.arange(data.y.max() + 1), 1.0, -1.0)
    task = Task(x, y, Softmax())
    seconds = 0.01 if options.quick else 30.0 if options.full else 0.8
    return compare(task, against_eg(task, 100.0, 0.01, "1 %"), seconds)


def against_eg(task: Task, radius: float, part: float, name: str) -> dict[str, list[Weights]]:
    """Projection and EG with the settings of their grids, on all rows and on a part of them."""
    first = task.gradient(start(task))
    of_projection = (
        radius / (np.linalg.norm(first) * np.sqrt(len(first))) * 10.0 ** np.arange(-2, 3)
    )
    of_eg = 1.0 / (radius * np.abs(first).max()) * 10.0 ** np.arange(-1, 2)
    methods: dict[str, list[Weights]] = {}
    for rows, n_rows in (("all rows", None), (name, int(part * len(task.y)))):
        methods[f"projection, {rows}"] = [
            projected(task, radius, eta, n_rows) for eta in of_projection
        ]
        methods[f"EG, {rows}"] = [
            exponentiated(task, radius, eta, power, n_rows)
            for eta, power in itertools.product(of_eg, POWERS.values())
        ]
    return methods


def compare(task: Task, methods: dict[str, list[Weights]], seconds: float) -> dict[str, Curve]:
    """The best run of each method, with gaps to the least loss of all."""
    best = {name: follow_best(runs, task.value, 0.0, seconds) for name, runs in methods.items()}
    least = min(min(curve.gaps) for curve in best.values())
    return {name: curve.above(least, LEAST_OF_ALL) for name, curve in best.items()}
