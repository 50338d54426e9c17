"""``dadagrad evaluate`` and ``dadagrad predict``: a model on other data."""

from __future__ import annotations

from typing import Any

import click

import dadagrad
from dadagrad.cli.display import Display, print_facts
from dadagrad.cli.options import ON_ERROR, GroupedCommand, grouped, output_options
from dadagrad.summary import duration


@click.command(cls=GroupedCommand)
@click.argument("model")
@click.argument("data")
@output_options
def evaluate(model: str, data: str, display: Display) -> None:
    """Measure a model on a dataset or raw files.

    DATA is a dataset, or a file that `ingest` reads: its rows get the features of the model. The
    result is loss, error and AUC, weighted by the weights of the rows. A ranking is measured by its
    accuracy over pairs and the NDCG of the first 10 rows, averaged over queries.
    """
    with display.bar("evaluating") as bar:
        result = dadagrad.evaluate(model, data, progress=bar.update)
    if display.as_json:
        display.show_result(result)
        return
    classes, confusion = result.pop("classes", {}), result.pop("confusion", None)
    display.show_result(result)
    for number, (name, facts) in enumerate(classes.items()):
        shown = {key: value for key, value in facts.items() if key != "weight"}
        if confusion is not None:
            pairs = zip(classes, confusion[number], strict=True)
            shown["predicted as"] = ", ".join(f"{other} {count:,.0f}" for other, count in pairs)
        print_facts(shown, title=f"class {name} ({facts['weight']:,.0f} rows)")


@click.command(cls=GroupedCommand)
@click.argument("model")
@click.argument("data")
@grouped("Common")(
    "--out",
    required=True,
    metavar="URL",
    help="File to write, or - for standard output. Parquet (.parquet, or no suffix), or CSV with a "
    "header (.csv, pipes and standard output).",
)
@grouped("Raw files")(
    "--on-error",
    default="raise",
    help="Stop at a malformed row, or leave it out. Rows that are left out are named and counted.",
    **ON_ERROR,
)
@grouped("Output")("--overwrite", is_flag=True, help="Replace an existing file.")
@output_options
def predict(
    model: str, data: str, out: str, overwrite: bool, on_error: Any, display: Display
) -> None:
    """Write the predictions of a model to a file.

    DATA is a dataset, or a file that `ingest` reads, or - for standard input: its rows get the
    features of the model, and are predicted as they arrive. The columns are row (or line), tag and
    label if there are any, score (one for each class or label), prediction, and probability if the
    loss is logistic or softmax. The file appears when it is complete.
    """
    if out == "-" and display.as_json:
        raise click.UsageError("--out - and --json both write to standard output; leave out one")
    with display.bar("predicting") as bar:
        result = dadagrad.predict(
            model, data, out, overwrite=overwrite, on_error=on_error, progress=bar.update
        )
    if out == "-":
        display.say(f"{result['rows']:,} predictions in {duration(result['seconds'])}")
    else:
        n_bytes = () if result["bytes"] is None else ("bytes",)
        display.show_result({**result, "out": out}, n_bytes=n_bytes)
