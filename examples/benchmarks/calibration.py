"""Calibration of probabilities after 1 to 10 passes with nothing chosen but the loss.

The expected calibration error (10 bins of the probability of the predicted class: Guo et al. 2017,
equation 3) on test rows, in percent: by Platt's curve (the default), by isotonic regression, and of
the scores as log-odds (logistic loss alone). All are fitted to progressive scores of the run.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import reporting
from quality_sets import RealSet, a9a, census, imdb, mnist

from dadagrad import evaluate, train
from dadagrad.optim.calibration import CALIBRATIONS
from dadagrad.training.result import calibrate

LOSSES = ("hinge", "squared-hinge", "logistic", "multiclass-hinge")
PASSES = (1, 3, 5, 10)
SETS = {"IMDB": imdb, "census": census, "a9a": a9a, "MNIST, 10 classes": mnist}


def main() -> None:
    parser = reporting.parser(__doc__, data="the sets")
    parser.add_argument("--only", default="", help="part of the name of the sets to run")
    options = parser.parse_args()
    rows = [
        [f"{name}, {passes}", *(cell for loss in LOSSES for cell in errors(data, loss, passes))]
        for name, load in SETS.items()
        if options.only in name
        for data in [load(options.data).ordered(0)]
        for passes in PASSES
    ]
    header = [f"{loss}, {kind}" for loss in LOSSES for kind in CALIBRATIONS]
    columns = [0, *(1 + n for n, text in enumerate(header) if not text.endswith("hinge, none"))]
    lines = np.array([["passes", *header], *rows])[:, columns].tolist()
    reporting.publish("calibration", reporting.table(lines[0], lines[1:]), options.markdown)


def errors(data: RealSet, loss: str, passes: int) -> list[str]:
    """Calibration error of each kind of calibration of the same model."""
    rows, test = data.datasets()
    result = train(rows, loss=loss, passes=passes)
    end, model = result.coordinator, result.model
    cells = []
    for kind in CALIBRATIONS:
        config = replace(end.problem.config, calibration=kind)
        fitted = calibrate(replace(end.problem, config=config), end.place.passes, 0)
        measured = evaluate(replace(model, calibration=fitted), test)
        cells.append(f"{100 * measured.get('calibration_error', np.nan):.2f}")
    return cells


if __name__ == "__main__":
    main()
