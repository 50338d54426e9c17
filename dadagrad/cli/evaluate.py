"""``dadagrad evaluate``, ``predict``, ``report`` and ``export``: use of a model."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

import click

import dadagrad
from dadagrad.cli.display import Display, print_facts, size_text
from dadagrad.cli.ingest import RAW, reading_options
from dadagrad.cli.options import COUNT, GroupedCommand, grouped, output_options, place_argument
from dadagrad.data.reading.options import FREE, OPTIONS
from dadagrad.summary import counted, duration

_FIXED = set(OPTIONS) - FREE - {"text_column"} | {"no_labels", "keep_names"}
"""Options of raw files that rows for a model do not take."""


@click.command(cls=GroupedCommand)
@place_argument("model")
@place_argument("data", nargs=-1, required=True)
@reading_options(group=RAW, without=_FIXED | {"id"})
@output_options
def evaluate(model: str, data: tuple[str, ...], reading: dict[str, Any], display: Display) -> None:
    """Measure a model on a dataset or raw files.

    DATA is a dataset, or a file that `ingest` reads: its rows get the features of the model.
    Several are one after the other. The result is loss, error, AUC and other metrics, weighted by
    the weights of the rows. For a ranking it is the share of pairs in the right order and the NDCG
    of the first 10 rows, averaged over queries.
    """
    with display.bar("evaluating") as bar:
        result = dadagrad.evaluate(model, _one_or_all(data), progress=bar.update, **reading)
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
        print_facts(shown, title=f"class {name} (weight {facts['weight']:,.0f})")


@click.command(cls=GroupedCommand)
@place_argument("model")
@place_argument("data", nargs=-1, required=True)
@grouped("Common")(
    "--out",
    required=True,
    metavar="URL",
    help="File to write, or - for standard output. Parquet (.parquet, or no suffix), or CSV with a "
    "header (.csv, pipes and standard output).",
)
@grouped("Common")(
    "--reasons",
    help="Number of features to name for each row. They contribute most to its score.",
    **COUNT,
)
@reading_options(group=RAW, without=_FIXED | {"weight"})
@grouped("Output")("--overwrite", is_flag=True, help="Replace an existing file.")
@output_options
def predict(
    model: str,
    data: tuple[str, ...],
    out: str,
    reasons: int | None,
    overwrite: bool,
    reading: dict[str, Any],
    display: Display,
) -> None:
    """Write the predictions of a model to a file.

    DATA is a dataset, or a file that `ingest` reads, or - for standard input: its rows get the
    features of the model, and are predicted as they arrive. Several are one after the other. The
    columns are row, file, line, tag, query and label if there are any, score (one for each class or
    label), prediction, and probability (of the second of two classes, else one for each) if the
    loss classifies. The file appears when it is complete.
    """
    _check_output(out, display)
    with display.bar("predicting") as bar:
        result = dadagrad.predict(
            model,
            _one_or_all(data),
            out,
            overwrite=overwrite,
            reasons=reasons,
            progress=bar.update,
            **reading,
        )
    if out == "-":
        display.say(f"{counted(result['rows'], 'prediction')} in {duration(result['seconds'])}")
    else:
        display.show_result(result | {"out": out}, bytes=size_text(result["bytes"]))


@click.command(cls=GroupedCommand)
@place_argument("run", metavar="MODEL|CHECKPOINTS")
@grouped("Common")(
    "--out",
    required=True,
    metavar="FILE",
    help="File or URL to write. - is standard output.",
)
@grouped("Common")(
    "--holdout",
    metavar="DATA",
    help="Data on which the model is measured; by default the rows that the run held out.",
)
@reading_options(group=RAW, without=_FIXED | {"id", "format"})
@grouped("Common")(
    "--format",
    "kind",
    type=click.Choice(("html", "json")),
    help="A page for a browser, or a JSON object.  [default: json for FILE.json, else html]",
)
@grouped("Common")(
    "--top",
    type=click.IntRange(0),
    default=15,
    metavar="N",
    help="Number of the largest weights of each sign to show.",
)
@grouped("Output")("--overwrite", is_flag=True, help="Replace an existing file.")
@output_options
def report(
    run: str,
    out: str,
    holdout: str | None,
    kind: Literal["html", "json"] | None,
    top: int,
    overwrite: bool,
    reading: dict[str, Any],
    display: Display,
) -> None:
    """Write a page about a model or a run.

    The page has, as far as they are known, the learning curve, the quality on held-out data, the
    largest weights with their names, the time of each part of the run, the settings, and the
    command that makes the model again. It needs no other file and no network, and prints well.
    """
    _check_output(out, display)
    text = dadagrad.report(
        run, out, holdout=holdout, format=kind, top=top, overwrite=overwrite, **reading
    )
    if out != "-":
        n_bytes = len(text.encode())
        display.show_result({"out": out, "bytes": n_bytes}, bytes=size_text(n_bytes))


@click.command()
@place_argument("model")
@click.option(
    "--format",
    "format_",
    metavar="NAME",
    help="Format of the file. sklearn, onnx, csv, parquet, npz or card; the default is that of the "
    "suffix, which is .skops, .onnx, .csv, .parquet, .npz or .md.",
)
@grouped("Common")(
    "--out", required=True, metavar="URL", help="File or URL to write. - is standard output."
)
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@output_options
def export(model: str, format_: str | None, out: str, overwrite: bool, display: Display) -> None:
    """Export a model for other programs.

    sklearn is an estimator of scikit-learn in a file of skops, which runs no code when it is
    loaded; onnx is a graph from raw texts, or from ids and values of features; csv and parquet are
    the weights with the names of features; card is a model card in Markdown.
    """
    _check_output(out, display)
    dadagrad.export(model, out, format=format_, overwrite=overwrite)
    if out != "-":
        display.show_result({"model": model, "out": out})


@dataclass(frozen=True)
class _Url(PathLike[str]):
    """URL of data, which is not a text to predict, as one of several strings could be."""

    url: str

    def __fspath__(self) -> str:
        return self.url


def _one_or_all(data: tuple[str, ...]) -> str | list[_Url]:
    return data[0] if len(data) == 1 else list(map(_Url, data))


def _check_output(out: str, display: Display) -> None:
    """Raise `click.UsageError` if two things would be written to standard output."""
    if out == "-" and display.as_json:
        raise click.UsageError("--out - and --json both write to standard output; leave out one")
