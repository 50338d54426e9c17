"""``dadagrad report``: a page about a model or a run."""

from __future__ import annotations

from typing import Literal

import click

import dadagrad
from dadagrad.cli.display import Display
from dadagrad.cli.options import output_options


@click.command()
@click.argument("run", metavar="MODEL|CHECKPOINTS")
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    help="File or URL to write. - is standard output.",
)
@click.option(
    "--holdout",
    metavar="DATA",
    help="Data on which the model is measured; by default the rows that the run held out.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(("html", "json")),
    default="html",
    help="A page for a browser, or a JSON object.",
)
@click.option(
    "--top",
    type=click.IntRange(0),
    default=15,
    metavar="N",
    help="Number of the largest weights of each sign to show.",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@output_options
def report(
    run: str,
    out: str,
    holdout: str | None,
    kind: Literal["html", "json"],
    top: int,
    overwrite: bool,
    display: Display,
) -> None:
    """Write a page about a model or a run.

    The page has the learning curve, the quality on held-out data, the largest weights with their
    names, the time of each part of the run, the settings, and the command that makes the model
    again. It needs no other file and no network, and prints well.
    """
    if out == "-":
        click.echo(dadagrad.report(run, holdout=holdout, format=kind, top=top), nl=False)
        return
    text = dadagrad.report(run, out, holdout=holdout, format=kind, top=top, overwrite=overwrite)
    display.show_result({"out": out, "bytes": len(text.encode())}, n_bytes=("bytes",))
