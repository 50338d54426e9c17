"""Make experiments of the papers again: ``python -m examples.papers all --data FOLDER``.

``page`` draws the plots of the records in the folder and writes their page, without experiments.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from examples.papers import record

HERE = Path(__file__).parent
EXPERIMENTS = (
    "motivating_example",
    "per_coordinate",
    "strongly_convex",
    "l1_projections",
    "projected_gradient",
    "text_classification",
    "sparsity",
    "ranking",
    "digits_kernels",
    "census_income",
    "ada_fd_regression",
    "ada_fd_classification",
    "digits_network",
)
"""Modules of this folder, in the order of the page."""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.papers", description=__doc__)
    parser.add_argument("experiment", choices=("all", "page", *EXPERIMENTS))
    parser.add_argument("--quick", action="store_true", help="use small sizes")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="the folder of data sets")
    parser.add_argument("--full", action="store_true", help="use the sizes of the papers")
    parser.add_argument("--fetch", action="store_true", help="fetch data sets from the internet")
    parser.add_argument("--out", type=Path, default=HERE, help="where results and page go")
    choices = parser.parse_args(arguments)
    options = record.Options(choices.quick, choices.data, choices.full, choices.fetch)
    results = choices.out / "results"
    several = {"all": EXPERIMENTS, "page": ()}
    for name in several.get(choices.experiment, (choices.experiment,)):
        print(f"{name} ...", file=sys.stderr, flush=True)
        module = experiment(name)  # loads the libraries whose threads are limited
        try:
            with threadpool_limits(1):  # small matrices: threads would only wait for each other
                outcome = module.run(options)
        except record.MissingData as reason:
            print(f"{name} {reason}", file=sys.stderr)
            continue
        record.write(name, outcome, results, options.size)
        print(record.section(module, name, results), flush=True)
    recorded = [name for name in EXPERIMENTS if (results / f"{name}.json").exists()]
    for name in recorded:
        record.draw(name, results)
    sections = [record.section(experiment(name), name, results) for name in recorded]
    claims = [line for name in recorded for line in record.claims(experiment(name), name, results)]
    (choices.out / "README.md").write_text(record.page(sections, claims))


def experiment(name: str) -> Any:
    """The module of an experiment."""
    return importlib.import_module(f"examples.papers.{name}")


if __name__ == "__main__":
    logging.getLogger("dadagrad").setLevel(logging.ERROR)  # many settings of a grid are bad
    main()
