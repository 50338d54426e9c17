"""Error against sparsity (Duchi, Hazan and Singer 2011, section 6.5 and figure 7).

AdaGrad-RDA with l1 strengths from 1e-8 to 1e-1, all of them trained in one pass by
`dadagrad.sweep`, each with the step size that has the least progressive loss of a grid. A quarter
of the rows is held out. AROW, which has no zeros, is the dashed line; its r has the fewest
mistakes. The claim of the paper: with more than 1 % of the weights the error is that of AROW. The
sets are those of `text_classification`, and IMDB once more with all its pairs of words, hashed to
2^21 features.

The 1 % of the paper are 20,000 weights; here they are some hundred words of a small vocabulary, and
the error falls towards that of AROW with the number of features.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dadagrad import sweep
from examples.papers import sets
from examples.papers.algorithms import GRIDS, ONLINE, make_dataset, tune
from examples.papers.record import Claim, Options, Outcome, Plot, Table

POWERS = np.array([-8, -7, -6, *np.arange(-5.5, -2, 0.25), -2, -1])
Path = list[tuple[float, float, float]]
"""l1 strength, proportion of non-zero weights, and error."""


def run(options: Options) -> Outcome:
    strengths = [1e-4, 1e-2] if options.quick else (10.0**POWERS).tolist()
    table = []
    lines: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for set_name, name, rows, labels in problems(options):
        path, arow = trace(rows, labels, strengths)
        nonzero_points = [point for point in path if point[1] > 0]
        line = lines.setdefault(set_name, {})
        line[name] = ([each[1] for each in nonzero_points], [each[2] for each in nonzero_points])
        line[f"{name}, AROW"] = ([nonzero_points[0][1], nonzero_points[-1][1]], [arow, arow])
        best = min(path, key=lambda point: point[2])
        matching = [proportion for _, proportion, error in path if error <= arow]
        at_one = min(nonzero_points, key=lambda point: abs(np.log(point[1] / 0.01)))
        least = min(matching) if matching else None
        table.append((name, rows.shape[1], arow, best[2], best[1], least, at_one[1], at_one[2]))
    plots = [
        Plot(
            f"sparsity_{number}",
            f"AdaGrad-RDA and AROW (dashed), {set_name}",
            "proportion of non-zero weights",
            "test error",
            line,
            "x",
        )
        for number, (set_name, line) in enumerate(lines.items())
    ]
    columns = (
        "set",
        "features",
        "error of AROW",
        "best error",
        "its proportion",
        "least proportion with AROW's error",
        "proportion nearest to 1 %",
        "its error",
    )
    return Outcome([Table("Errors along the path of l1", columns, table)], plots)


def claims(rows: list[dict[str, Any]]) -> list[Claim]:
    reached = [row["least proportion with AROW's error"] for row in rows]
    ratios = [row["its error"] / row["error of AROW"] for row in rows]
    largest = int(np.argmax([row["features"] for row in rows]))
    return [
        Claim(
            "AdaGrad-RDA has AROW's error with about 1 % of the weights.",
            max(ratios) <= 1.0,
            f"with 1 % {min(ratios):.2f} to {max(ratios):.2f} times AROW's error, "
            f"{ratios[largest]:.2f} with {rows[largest]['features']:,} features; AROW's error is "
            f"reached on {len(reached) - reached.count(None)} of {len(rows)} sets",
        )
    ]


def problems(options: Options) -> Iterator[tuple[str, str, Any, sets.Labels]]:
    """Set, name of the category, rows and labels."""
    for set_name, rows, categories in sets.texts(options):
        for category, labels in categories.items():
            yield set_name, f"{set_name}: {category}", rows, labels
    if not options.quick:
        hashed = sets.whole(sets.quality_sets.imdb(options.folder))
        yield "IMDB", "IMDB, 2^21 features: positive", sets.binary(hashed.x), hashed.y == 1


def trace(rows: Any, labels: sets.Labels, strengths: list[float]) -> tuple[Path, float]:
    """The path of AdaGrad-RDA, and the error of AROW."""
    data = make_dataset(rows, labels, np.random.default_rng(0).permutation(len(labels)))
    held_out = {"holdout": 0.25, "seed": 0}
    steps = GRIDS["AdaGrad-RDA"]
    swept = sweep(data, threads=1, step_size=steps, l1=strengths, **ONLINE, **held_out)
    path = [
        (each["l1"], each["nonzeros"] / rows.shape[1], each["holdout"]["error"])
        for each in swept.path
    ]
    return path, tune("AROW", data, **held_out)[1].report["holdout"]["error"]
