"""Ranking (Duchi, Hazan and Singer 2011, section 6.2 and table 2).

A ranker for each class: a step takes a random row z1 of the class and a random row z2 of all, with
the loss [1 - <x, z1 - z2>]_+. The test ranks all rows of the class among ten times as many others;
average precision and precision at k are means over classes and four sets of rankers. Step sizes, C
and r have the best average precision on a tenth of the rows, held out, for three classes.

The paper ranks ImageNet: 15,000 classes with 100,000 steps each. It cannot be had; here are the 20
classes of 20 Newsgroups, tf-idf rows of length 1, with 100,000 steps each with `--full`, and 10,000
by default. Precision depends on the data; what can be compared with the paper is the order of the
algorithms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from dadagrad import Dataset, TrainResult
from examples.papers import sets
from examples.papers.algorithms import GRIDS, density, learn, make_dataset
from examples.papers.record import Claim, Options, Outcome, Table, order

Array = NDArray[np.float64]

L1 = 1e-5
TOPS = (1, 3, 5, 10)
OTHERS = 10
"""Rows of other classes in a test, for each row of the class."""
PAPER = {
    "AdaGrad-RDA": (0.6022, 0.8502, 0.8307, 0.8130, 0.7811, 0.7267),
    "AROW": (0.5813, 0.8597, 0.8369, 0.8165, 0.7816, 1.0),
    "PA": (0.5581, 0.8455, 0.8184, 0.7957, 0.7576, 1.0),
    "RDA": (0.5042, 0.7496, 0.7185, 0.6950, 0.6545, 0.8996),
}


def run(options: Options) -> Outcome:
    data = sets.newsgroups(options)
    n_steps, n_sets = options.choose((100, 1), (10_000, 4), (100_000, 4))
    classes = np.unique(data.y)[: 3 if options.quick else None]
    rng = np.random.default_rng(0)
    held_out = rng.random(len(data.y)) < 0.1
    x, y = data.x[~held_out], data.y[~held_out]
    chosen = {}
    tuning = [draw_pairs(x, y, each, n_steps, rng) for each in classes[::7]]
    for name in PAPER:
        qualities = [
            np.mean(
                [
                    rank(learn(name, pairs, value, L1), data.x[held_out], data.y[held_out], each)
                    for pairs, each in zip(tuning, classes[::7], strict=True)
                ],
                axis=0,
            )[0]
            for value in GRIDS[name]
        ]
        chosen[name] = GRIDS[name][int(np.argmax(qualities))]
    sums = {name: np.zeros(len(TOPS) + 2) for name in PAPER}
    for _ in range(n_sets):
        for each in classes:
            pairs = draw_pairs(x, y, each, n_steps, rng)
            for name in PAPER:
                result = learn(name, pairs, chosen[name], L1)
                sums[name] += (*rank(result, data.test_x, data.test_y, each), density(result))
    lines = []
    for name, total in sums.items():
        lines.append((name, *(total / (n_sets * len(classes))).tolist()))
        lines.append((f"{name} (paper)", *PAPER[name]))
    columns = ("algorithm", "average precision", *(f"P@{k}" for k in TOPS), "proportion non-zero")
    return Outcome([Table(f"Test precision, {n_steps:,} steps a class", columns, lines)])


def claims(rows: list[dict[str, Any]]) -> list[Claim]:
    ours = {row["algorithm"]: row for row in rows if "paper" not in row["algorithm"]}
    precision = {name: row["average precision"] for name, row in ours.items()}
    proportions = {name: row["proportion non-zero"] for name, row in ours.items()}
    return [
        Claim(
            "AdaGrad-RDA has the best average precision, with the fewest weights.",
            max(precision, key=lambda name: precision[name])
            == min(proportions, key=lambda name: proportions[name])
            == "AdaGrad-RDA",
            f"precision {order(precision, largest_first=True)}; not 0 {order(proportions)}",
        )
    ]


def draw_pairs(
    x: Any, y: NDArray[np.int64], topic: int, n_steps: int, rng: np.random.Generator
) -> Dataset:
    """Differences z1 - z2; half of them as z2 - z1 with the label -1, which is the same loss."""
    first = rng.choice(np.flatnonzero(y == topic), n_steps)
    second = rng.integers(len(y), size=n_steps)
    signs = rng.choice([-1.0, 1.0], n_steps)
    differences = (x[first] - x[second]).multiply(signs[:, None]).tocsr()
    return make_dataset(differences, signs > 0, np.arange(n_steps))


def rank(result: TrainResult, x: Any, y: NDArray[np.int64], topic: int) -> list[float]:
    """Average precision, and precision at each of `TOPS`."""
    rng = np.random.default_rng(topic)
    of_class, others = np.flatnonzero(y == topic), np.flatnonzero(y != topic)
    n_others = min(OTHERS * len(of_class), len(others))
    rows = np.append(of_class, rng.choice(others, n_others, replace=False))
    scores = x[rows][:, result.model.ids] @ result.model.weights[:, 0]
    hits = y[rows] == topic
    best = hits[np.argsort(-scores, kind="stable")]
    return [average_precision_score(hits, scores), *(best[:k].mean() for k in TOPS)]
