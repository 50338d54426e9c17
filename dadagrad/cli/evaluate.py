"""``dadagrad evaluate`` and ``dadagrad predict``: a model on other data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.filesize import decimal

import dadagrad
from dadagrad.cli.display import Display, print_facts, print_json
from dadagrad.cli.options import output_options


@click.command()
@click.argument("model")
@click.argument("data")
@output_options
def evaluate(model: str, data: str, as_json: bool, quiet: bool) -> None:
    """Measure a model on a dataset.

    The result is loss, error and AUC, weighted by the weights of the rows. A ranking is measured by
    its accuracy over pairs and the NDCG of the first 10 rows, averaged over queries.
    """
    with _progress("evaluating", quiet) as progress:
        result = dadagrad.evaluate(model, data, progress=progress)
    (print_json if as_json else print_facts)(result)


@click.command()
@click.argument("model")
@click.argument("data")
@click.option(
    "--out",
    required=True,
    metavar="URL",
    help="File to write: Parquet (.parquet, or no suffix) or CSV with a header (.csv).",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@output_options
def predict(model: str, data: str, out: str, overwrite: bool, as_json: bool, quiet: bool) -> None:
    """Write the predictions of a model to a file.

    The columns are row, score (one for each class or label), prediction, and probability if the
    loss is logistic or softmax. The file appears when it is complete.
    """
    with _progress("predicting", quiet) as progress:
        result = dadagrad.predict(model, data, out, overwrite=overwrite, progress=progress)
    result = {**result, "out": out}
    if as_json:
        print_json(result)
    else:
        print_facts(result | {"bytes": decimal(result["bytes"])})


@contextmanager
def _progress(title: str, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows the number of rows done, and of all rows."""
    display = Display(quiet=quiet)
    with display.showing_logs(), display.bar(title, 0) as bar:
        yield lambda done, total: bar.update(done, total=total)
