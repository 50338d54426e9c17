"""``dadagrad export``: a model for other programs."""

from __future__ import annotations

import click

import dadagrad
from dadagrad.cli.display import Display
from dadagrad.cli.options import output_options
from dadagrad.model.export import FORMATS


@click.command()
@click.argument("model")
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS.names),
    help="Format of the file. The default is that of its suffix: "
    + ", ".join(FORMATS[name].suffix for name in FORMATS)
    + ".",
)
@click.option("--out", required=True, metavar="URL", help="File to write.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@output_options
def export(model: str, format_: str | None, out: str, overwrite: bool, display: Display) -> None:
    """Export a model for other programs.

    sklearn is an estimator of scikit-learn in a file of skops, which runs no code when it is
    loaded; onnx is a graph from raw texts, or from ids and values of features; csv and parquet are
    the weights with the names of features; card is a model card in Markdown.
    """
    dadagrad.export(model, out, format=format_, overwrite=overwrite)
    display.show_result({"model": model, "out": out})
