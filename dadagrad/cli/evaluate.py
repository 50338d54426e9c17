"""``dadagrad evaluate`` and ``dadagrad predict``: a model on other data."""

from __future__ import annotations

import click

import dadagrad
from dadagrad.cli.display import Display
from dadagrad.cli.options import output_options
from dadagrad.summary import duration


@click.command()
@click.argument("model")
@click.argument("data")
@output_options
def evaluate(model: str, data: str, display: Display) -> None:
    """Measure a model on a dataset.

    The result is loss, error and AUC, weighted by the weights of the rows. A ranking is measured by
    its accuracy over pairs and the NDCG of the first 10 rows, averaged over queries.
    """
    with display.bar("evaluating") as bar:
        result = dadagrad.evaluate(model, data, progress=bar.update)
    display.show_result(result)


@click.command()
@click.argument("model")
@click.argument("data")
@click.option(
    "--out",
    required=True,
    metavar="URL",
    help="File to write: Parquet (.parquet, or no suffix) or CSV with a header (.csv). - is "
    "standard output, as CSV.",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@output_options
def predict(model: str, data: str, out: str, overwrite: bool, display: Display) -> None:
    """Write the predictions of a model to a file.

    The columns are row, score (one for each class or label), prediction, and probability if the
    loss is logistic or softmax. The file appears when it is complete.
    """
    if out == "-" and display.as_json:
        raise click.UsageError("--out - and --json both write to standard output; leave out one")
    with display.bar("predicting") as bar:
        result = dadagrad.predict(model, data, out, overwrite=overwrite, progress=bar.update)
    if out == "-":
        display.say(f"{result['rows']:,} predictions in {duration(result['seconds'])}")
    else:
        n_bytes = () if result["bytes"] is None else ("bytes",)
        display.show_result({**result, "out": out}, n_bytes=n_bytes)
