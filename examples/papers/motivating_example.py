"""AdaGrad against gradient descent on the motivating examples (Duchi, Hazan and Singer 2011, 1.3).

Section 1.3 there: hinge losses whose examples are single features (or, in appendix A, single
directions of a rotation), the first of them eta^2 / eps^2 times, then the others in random order.
AdaGrad needs each once and suffers d losses of 1. Gradient descent with a step size of
eta / sqrt(t) has a step of less than eps left for the others, which costs at least
(d - 1) / (2 eps): the smaller eps, the more, whatever eta is. The paper gives the argument and no
figures; "at least" is its bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.optim.preconditioners import Diagonal, Full, Identity
from dadagrad.optim.regularizers import ElasticBox, L2Ball
from dadagrad.optim.updates import MirrorDescent, Update
from examples.papers.record import Claim, Options, Outcome, Table

Array = NDArray[np.float64]

ETAS = (0.5, 1.0, 2.0)
ABOVE_ONE = 1.0 + 1e-9
"""A step to a margin that rounding cannot leave just below 1, where the hinge still has a slope."""


def run(options: Options) -> Outcome:
    d, all_eps = (4, (0.2, 0.1)) if options.quick else (10, (0.2, 0.1, 0.05))
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(d, d))).Q
    box, ball = ElasticBox(low=-1.0, high=1.0), L2Ball(np.sqrt(d) * (1.0 + 1e-6))
    diagonal = MirrorDescent(np.sqrt(2.0), Diagonal(0.0), box)
    full = MirrorDescent(ABOVE_ONE, Full(0.0), ball)
    rows = []
    for name, directions, adagrad, domain in (
        ("features", np.eye(d), diagonal, box),
        ("directions", rotation, full, ball),
    ):
        for eps in all_eps:
            for eta in ETAS:
                stream = draw(directions, eta, eps, rng)
                descent = MirrorDescent(eta, Identity("sqrt"), domain)
                losses = round(suffered(adagrad, stream), 1), round(suffered(descent, stream), 1)
                rows.append((name, eps, eta, len(stream), *losses, (d - 1) / (2 * eps)))
    columns = ("examples", "eps", "eta", "rounds", "AdaGrad", "gradient descent", "at least")
    return Outcome([Table(f"Sum of all hinge losses, {d} features", columns, rows)])


def claims(rows: list[dict[str, Any]]) -> list[Claim]:
    worst = max(row["AdaGrad"] for row in rows)
    ratios = [row["gradient descent"] / row["at least"] for row in rows]
    return [
        Claim(
            "AdaGrad loses 1 a feature; gradient descent loses its bound or more.",
            worst == rows[0]["AdaGrad"] == 10 and min(ratios) >= 1.0,
            f"AdaGrad {worst:.3g} of 10 features; gradient descent {min(ratios):.3g} to "
            f"{max(ratios):.3g} times its bound",
        )
    ]


def draw(directions: Array, eta: float, eps: float, rng: np.random.Generator) -> Array:
    """(T, d): the columns of `directions`, times their label.

    A sign drawn at random multiplies example and label alike, so that it cancels in y z.
    """
    d = directions.shape[1]
    visits = int(d / eta**2 + 1 / eps) + 3
    first = np.zeros(int(np.ceil(eta**2 / eps**2)), np.int64)
    later = [1 + rng.permutation(d - 1) for _ in range(visits)]
    rows: Array = directions.T[np.concatenate([first, *later])]
    return rows


def suffered(update: Update, stream: Array) -> float:
    """The sum of [1 - <y z, x>]_+ over the stream."""
    state, total = update.init(stream.shape[1], 1), 0.0
    for signed in stream:
        loss = 1.0 - float(signed @ update.weights(state)[:, 0])
        total += max(loss, 0.0)
        gradient = -signed if loss > 0 else np.zeros_like(signed)
        state = update.step(state, gradient[:, None])
    return total
