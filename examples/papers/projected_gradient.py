"""Projected gradients on the l1 ball (Duchi, Shalev-Shwartz, Singer, Chandra 2008, figs. 4 to 7).

**Synthetic** (figures 4 and 5): Gaussian rows, half of the weights 0, as many rows as features, 800
(and 4,000 with `--full`). Least squares with Gaussian noise, and logistic losses with a tenth of
the labels turned. Projected gradient descent in batches, with a backtracking line search, and on
random rows, steps of eta / sqrt(t), stays in the ball whose radius is the l1 norm of the solution
w* of the interior point method (Newton steps on a logarithmic barrier), which minimises the loss
plus lambda |w|_1. So do coordinate descent (scikit-learn; logistic losses start from 0 for each
point of the curve) and, where it is installed, celer. The paper does not print lambda: here it is a
50th of the largest gradient at 0, or a 5,000th ("weak l1"). As in the paper each method has the gap
of its own objective; here against CPU seconds.

Interior points overtake steps of eta / sqrt(t) where l1 is weak: most weights are not 0, the loss
hardly bends in some directions, and the steps slow down, as in the paper. With strong l1 the
weights that are left have nearly the same curvature in all directions, and the steps gain digits as
steadily as interior points. A line search is overtaken on least squares with weak l1 and 800
features alone. Projections have the time that the interior point needs to a millionth of the gap:
44 to 84 seconds with 4,000 features, of which the first 5 choose eta. Steps on random rows are then
overtaken on all problems, and steps on all rows on logistic losses with weak l1.

**Text** (figure 6): logistic loss on IMDB in the place of RCV1; projection against exponentiated
gradient (EG), on all rows and on a random quarter of them, and row by row with the structure for
sparse gradients (`projected-gradient`) and EG in a tree (`eg-signed`).

**Digits** (figure 7): multinomial logistic loss of MNIST on Gaussian kernels with a support set,
each class in a ball of its own, on all rows and on 1 % of them; 4,000 rows and 500 support images,
or 60,000 and 2,766 as in the paper with `--full`. Each method on text and digits has the best step
size of a grid, and EG also the best of three schedules, as in the paper; gaps are those to the
least loss of all methods, down to 1e-4.

The radius decides between EG and projections on digits, and the paper does not print it. In balls
of 100, which cut the weights short, EG wins. In balls of 1,000 projections win on all rows, and EG
wins on 1 % by its constant steps. Weights of fixed signs, as in the paper, do not change that:
after 0.4 seconds on 1 %, in balls of 1,000, EG has a loss of 0.18 with constant steps and 0.24 with
steps of eta / sqrt(t), and projections, which have such steps, 0.23.
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
PARTS = (0.1, 0.01, 0.001, 1e-6)
"""Parts of the first gap whose times are in the table."""
PENALTIES = {"": 0.02, ", weak l1": 2e-4}
"""lambda of the synthetic problems as a part of the largest gradient at 0."""
ETA_STEPS = ("projection, batch", "projection, stochastic")
"""Methods with steps of eta / sqrt(t)."""
RADII = (100, 1_000)
"""l1 norms of the weights of a digit."""


class Curve(NamedTuple):
    """CPU seconds, gaps, and the last weights of a method."""

    seconds: list[float]
    gaps: list[float]
    weights: Array

    def above(self, least: float, smallest: float) -> Curve:
        """The same with gaps to another least value."""
        return self._replace(gaps=[max(gap - least, smallest) for gap in self.gaps])

    def until(self, part: float) -> float | None:
        """Seconds until the gap is a part of the first one."""
        reached = np.flatnonzero(np.array(self.gaps) <= part * self.gaps[0])
        return self.seconds[reached[0]] if len(reached) else None


NOTHING = Curve([], [], np.empty(0))


def run(options: Options) -> Outcome:
    sizes: tuple[int, ...] = options.choose((16,), (800,), (800, 4_000))
    lines, plots = [], []
    problems: list[tuple[str, str, Callable[[], dict[str, Curve]]]] = [
        (
            f"{name}, {n:,} features{strength}",
            f"{file}_{n}{'_weak' if strength else ''}",
            partial(synthetic, n, loss, part),
        )
        for name, file, loss in (
            ("Least squares", "squares", Squared()),
            ("Logistic", "logistic", Logistic()),
        )
        for n in sizes
        for strength, part in PENALTIES.items()
    ]
    problems.append(("Text", "text", partial(on_text, options)))
    problems += [
        (f"Digits, radius {radius:,}", f"digits_{radius}", partial(on_digits, options, radius))
        for radius in RADII
    ]
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

    times = {
        part: {
            (row["problem"], row["method"]): row[f"seconds to {part:g}"] or np.inf for row in rows
        }
        for part in (PARTS[0], PARTS[-1])
    }
    firsts = {}
    for problem in problems:
        seconds = {name: time for (each, name), time in times[PARTS[0]].items() if each == problem}
        firsts[problem] = min(seconds, key=lambda name: seconds[name])
    last = times[PARTS[-1]]
    overtaken = {
        problem: [
            name for name in ETA_STEPS if last[problem, "interior point"] < last[problem, name]
        ]
        for problem in problems
    }
    return [
        Claim(
            "Projected gradients are the fastest to a small accuracy.",
            all(name.startswith("projection") for name in firsts.values()),
            f"first to {PARTS[0]:g} of the gap: "
            + "; ".join(f"{problem}: {name}" for problem, name in firsts.items()),
        ),
        *(
            Claim(
                "Interior points overtake projected steps of eta / sqrt(t), with "
                f"{'weak' if strength else 'strong'} l1.",
                all(overtaken[problem] == list(ETA_STEPS) for problem in of_strength),
                f"the interior point is faster to {PARTS[-1]:g} of the gap than: "
                + "; ".join(
                    f"{problem}: {' and '.join(overtaken[problem]) or 'neither'}"
                    for problem in of_strength
                ),
            )
            for strength in PENALTIES
            for of_strength in [
                [each for each in problems if each.endswith("weak l1") == bool(strength)]
            ]
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
    return [*map(curve.until, PARTS), curve.gaps[-1], float(np.mean(curve.weights != 0))]


def follow(
    weights: Weights, objective: Objective, least: float, seconds: float, before: Curve = NOTHING
) -> Curve:
    """Gaps after ever more steps, without the time of the objective, until `seconds` are over.

    The first steps were followed `before`.
    """
    spent, gaps, w = [*before.seconds], [*before.gaps], before.weights
    total = max(spent, default=0.0)
    mark, begin = 1.15 * total, time.process_time()

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
    runs: Sequence[Weights], objective: Objective, least: float, seconds: float, end: float = 0.0
) -> Curve:
    """The run with the least gap after `seconds`, until the `end`."""
    tried = [follow(each, objective, least, seconds) for each in runs]
    best = min(range(len(runs)), key=lambda number: tried[number].gaps[-1])
    if tried[best].gaps[-1] == LEAST_GAP or end <= seconds:
        return tried[best]
    return follow(runs[best], objective, least, end, tried[best])


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


def synthetic(n: int, loss: Loss, part: float) -> dict[str, Curve]:
    """Gaps of all methods.

    The strength of l1 is a `part` of the largest gradient at 0. Projections have the time in which
    the interior point reaches the smallest of `PARTS`, and at least `n` / 800 seconds.
    """
    task, seconds = draw(n, loss), n / 800
    first = task.gradient(start(task))
    penalty = part * float(np.abs(first).max())

    def penalised(w: Array) -> float:
        return task.value(w) + penalty * float(np.abs(w).sum())

    inside = follow(interior_point(task, penalty), penalised, 0.0, np.inf)
    solution = inside.weights
    radius, least = float(np.abs(solution).sum()), penalised(solution)
    least_loss = task.value(solution)
    inside = inside.above(least, LEAST_GAP)
    end = max(seconds, inside.until(PARTS[-1]) or 0.0)
    eta = radius / (np.linalg.norm(first) * np.sqrt(n))
    batch = [projected(task, radius, eta * factor, None) for factor in (0.1, 1.0, 10.0, 100.0)]
    by_rows = [projected(task, radius, eta * factor, 1) for factor in (0.01, 0.1, 1.0)]
    curves = {
        "projection, batch": follow_best(batch, task.value, least_loss, seconds, end),
        "projection, line search": follow(line_search(task, radius), task.value, least_loss, end),
        "projection, stochastic": follow_best(by_rows, task.value, least_loss, seconds, end),
    }
    for name, model in coordinate_descents(task, penalty).items():
        curves[name] = follow(more_sweeps(task, model), penalised, least, seconds)
    return {**curves, "interior point": inside}


# Text and digits


def on_text(options: Options) -> dict[str, Curve]:
    """Gaps on text: all rows, a quarter of them, and one."""
    if options.quick:
        digits = sets.digits()
        x, labels, radius, seconds = digits.x, digits.y == 1, 20.0, 0.004
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


def on_digits(options: Options, radius: float) -> dict[str, Curve]:
    """Gaps on kernels of digits: all rows, and 1 % of them."""
    n_rows, n_support = options.choose((300, 30), (4_000, 500), (60_000, 2_766))
    data = sets.images(options)
    order = np.random.default_rng(0).permutation(len(data.y))
    kernel = digits_kernels.Kernel(data.x[order[-n_support:]].toarray())
    x = kernel(data.x[order[:n_rows]].toarray()).astype(np.float64)
    y = np.where(data.y[order[:n_rows], None] == np.arange(data.y.max() + 1), 1.0, -1.0)
    task = Task(x, y, Softmax())
    seconds = options.choose(0.004, 0.8, 12.0)
    return compare(task, against_eg(task, radius, 0.01, "1 %"), seconds)


def against_eg(task: Task, radius: float, part: float, name: str) -> dict[str, list[Weights]]:
    """Projection and EG with the settings of their grids, on all rows and on a part of them."""
    first = task.gradient(start(task))
    of_projection = (
        radius / (np.linalg.norm(first) * np.sqrt(len(first))) * 10.0 ** np.arange(-2, 4)
    )
    of_eg = 1.0 / (radius * np.abs(first).max()) * 10.0 ** np.arange(-1, 3)
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
