"""Rates per coordinate, and sparse models (McMahan's lecture of 2012).

Logistic losses on rows whose features are as rare as those of text: feature i occurs with
probability i^-0.9. Of each algorithm the best step size of one grid is shown. The lecture has no
experiments, and so no sizes.

- **Rates.** eta / sqrt(t) is blind to the gradients, the global rate eta / sqrt(sum |g|^2) adapts
  to their size, and one rate for each coordinate adapts to how often each feature occurs. The
  lecture's lemma orders the bounds; the table shows that the losses have the same order.
- **Coordinates.** Each of T rounds has the loss |w_i - b_i| of one of k coordinates, whose rarity
  follows a power law: with k = 1 all rates that adapt are the same, and the more coordinates there
  are, the more of the adaptation is hidden from one rate for all of them.
- **l1.** The subgradient of l1 |w| moves weights across 0 without an end: the lecture's sequence
  0.5, -1, +1, ... oscillates, and none of its weights is 0. The prox of the step has exact zeros.
- **t lambda.** FTRL holds every weight to t times lambda, where a step of gradient descent holds it
  to lambda once: at one lambda FTRL is sparser at about the same loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.optim.preconditioners import Diagonal, Global, Identity, Preconditioner
from dadagrad.optim.regularizers import ElasticBox
from dadagrad.optim.updates import FollowTheLeader, GradientUpdate, MirrorDescent
from examples.papers.record import Claim, Options, Outcome, Plot, Table, order, show

Array = NDArray[np.float64]

STEP_SIZES = tuple(2.0**power for power in range(-6, 5))
LAMBDAS = (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)


def run(options: Options) -> Outcome:
    n_rows, n_features = (100, 20) if options.quick else (10_000, 500)
    rows, labels = draw(n_rows, n_features)
    rates: dict[str, Preconditioner] = {
        "eta / sqrt(t)": Identity("sqrt"),
        "global": Global(),
        "per coordinate": Diagonal(0.0),
    }
    bests = {
        name: best(MirrorDescent(preconditioner=each), rows, labels) for name, each in rates.items()
    }
    n_rounds, counts = (60, (1, 8)) if options.quick else (4_000, (1, 4, 16, 64, 256))
    by_count = Table(
        f"Mean loss of {n_rounds:,} rounds with k coordinates, best step size",
        ("k", *rates),
        [
            (k, *(least_loss(each, *draw_rounds(n_rounds, k)) for each in rates.values()))
            for k in counts
        ],
    )
    by_rate = Table(
        f"Mean logistic loss of {n_rows:,} rows with {n_features} features",
        ("rate", "step size", "mean loss"),
        [(name, each.step_size, each.loss) for name, each in bests.items()],
    )
    sparse = [
        (name, strength, *sparse_run(name, strength, rows, labels))
        for name in ("subgradient", "gradient descent", "FTRL")
        for strength in LAMBDAS
    ]
    by_strength = Table(
        "l1 of strength lambda a step",
        ("l1 as", "lambda", "mean loss", "proportion not 0"),
        sparse,
    )
    marks = np.unique(np.geomspace(1, n_rows, 60).astype(int))
    losses = {
        name: (marks.tolist(), (np.cumsum(each.losses)[marks - 1] / marks).tolist())
        for name, each in bests.items()
    }
    path = oscillation(40)
    plots = [
        Plot("per_coordinate_rates", "Rates", "rows", "mean loss so far", losses, "x"),
        Plot(
            "per_coordinate_oscillation",
            "The sequence 0.5, -1, +1, ... with lambda 0.6",
            "step",
            "weight",
            {name: (list(range(len(each))), each) for name, each in path.items()},
        ),
    ]
    return Outcome([by_rate, by_strength, by_count], plots)


def claims(
    rates: list[dict[str, Any]], sparse: list[dict[str, Any]], coordinates: list[dict[str, Any]]
) -> list[Claim]:
    losses = {row["rate"]: row["mean loss"] for row in rates}
    proportions = {(row["l1 as"], row["lambda"]): row["proportion not 0"] for row in sparse}
    strengths = sorted({strength for _, strength in proportions if strength})
    middle = strengths[len(strengths) // 2]
    names = ("FTRL", "gradient descent", "subgradient")
    fewest = [
        proportions["FTRL", each] < proportions["gradient descent", each] for each in strengths
    ]
    last = coordinates[-1]
    return [
        Claim(
            "Rates per coordinate lose less than one rate for all.",
            min(losses, key=lambda name: losses[name]) == "per coordinate",
            f"mean loss {order(losses)}",
        ),
        Claim(
            "The more coordinates, the more one rate for all hides.",
            last["per coordinate"] < last["global"],
            f"{last['k']} coordinates: per coordinate {show(last['per coordinate'])}, global "
            f"{show(last['global'])}; with 1 they are the same",
        ),
        Claim(
            "FTRL is sparser than gradient descent, and subgradients of l1 have no zeros.",
            all(fewest) and min(proportions["subgradient", each] for each in strengths) == 1.0,
            f"not 0 at lambda {middle:g}: "
            f"{order({name: proportions[name, middle] for name in names})}",
        ),
    ]


def draw(n_rows: int, n_features: int) -> tuple[Array, Array]:
    """Rows of 0 and 1, (n_rows, n_features), and labels -1 or 1 of a fifth of the features."""
    rng = np.random.default_rng(0)
    rows = (rng.random((n_rows, n_features)) < np.arange(1, n_features + 1) ** -0.9).astype(float)
    truth = rng.normal(size=n_features) * (rng.random(n_features) < 0.2) * 2.0
    chance = 1.0 / (1.0 + np.exp(-(rows - rows.mean(axis=0)) @ truth))
    return rows, np.where(rng.random(n_rows) < chance, 1.0, -1.0)


@dataclass(frozen=True)
class Run:
    """A run at one step size: the loss of each row before its step, and the last weights."""

    step_size: float
    losses: Array
    weights: Array

    @property
    def loss(self) -> float:
        return float(self.losses.mean())


def learn(update: GradientUpdate, rows: Array, labels: Array, subgradient: float = 0.0) -> Run:
    """One pass; with `subgradient` each gradient has that many times the sign of the weights."""
    state, losses = update.init(rows.shape[1], 1), np.zeros(len(rows))
    for t, (row, label) in enumerate(zip(rows, labels, strict=True)):
        weights = update.weights(state)
        margin = label * float(row @ weights[:, 0])
        losses[t] = np.logaddexp(0.0, -margin)
        slope = -label * np.exp(-np.logaddexp(0.0, margin))
        gradient = slope * row[:, None] + subgradient * np.sign(weights)
        state = update.step(state, gradient)
    return Run(update.step_size, losses, update.weights(state)[:, 0])


def best(update: GradientUpdate, rows: Array, labels: Array, subgradient: float = 0.0) -> Run:
    """The run of least loss among all step sizes."""
    runs = [
        learn(
            type(update)(eta, update.preconditioner, update.regularizer), rows, labels, subgradient
        )
        for eta in STEP_SIZES
    ]
    return min(runs, key=lambda run: run.loss)


def sparse_run(name: str, strength: float, rows: Array, labels: Array) -> tuple[float, float]:
    """Mean loss and proportion of non-zero weights with one way to use l1."""
    kind = FollowTheLeader if name == "FTRL" else MirrorDescent
    inside = name != "subgradient"
    regularizer = ElasticBox(strength if inside else 0.0)
    update = kind(preconditioner=Diagonal(1.0), regularizer=regularizer)
    learned = best(update, rows, labels, 0.0 if inside else strength)
    return learned.loss, float(np.count_nonzero(learned.weights) / rows.shape[1])


def draw_rounds(n_rounds: int, k: int) -> tuple[NDArray[np.int64], Array]:
    """The coordinate of each round, as rare as i^-1.5, and the target of each coordinate."""
    rng = np.random.default_rng(0)
    shares = np.arange(1, k + 1) ** -1.5
    targets = rng.choice([-1.0, 1.0], k)
    return rng.choice(k, n_rounds, p=shares / shares.sum()), targets


def least_loss(preconditioner: Preconditioner, rounds: NDArray[np.int64], targets: Array) -> float:
    """Mean loss |w_i - b_i| of the best step size."""
    losses = []
    for eta in STEP_SIZES:
        update = MirrorDescent(eta, preconditioner)
        state, total = update.init(len(targets), 1), 0.0
        for i in rounds:
            error = update.weights(state)[i, 0] - targets[i]
            gradient = np.zeros((len(targets), 1))
            gradient[i] = np.sign(error)
            total += abs(error)
            state = update.step(state, gradient)
        losses.append(total / len(rounds))
    return min(losses)


def oscillation(n_steps: int) -> dict[str, list[float]]:
    """Weights of the lecture's sequence, l1 as a subgradient and inside the step."""
    gradients = [0.5, *(-1.0, 1.0) * (n_steps // 2)]
    paths = {}
    for name, strength, subgradient in (("subgradient", 0.0, 0.6), ("inside the step", 0.6, 0.0)):
        update = MirrorDescent(0.5, Identity("constant"), ElasticBox(strength))
        state, path = update.init(1, 1), [0.0]
        for gradient in gradients:
            weight = update.weights(state)
            state = update.step(state, gradient + subgradient * np.sign(weight))
            path.append(float(update.weights(state)[0, 0]))
        paths[name] = path
    return paths
