"""``dadagrad ingest``: convert sources into a dataset."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

import click

import dadagrad
from dadagrad.cli.display import Display
from dadagrad.cli.options import ON_ERROR, check_one_of, output_options

FORMATS = ("svmlight", "vw", "text", "csv", "jsonl", "parquet", "anndata", "npz")
DELIMITERS: dict[str, Literal["\t", ","]] = {"tab": "\t", "comma": ","}


def _column(ctx: click.Context, param: click.Parameter, value: str | None) -> int | str | None:
    """Convert the number of a column, from 0, or keep its name."""
    return int(value) if value is not None and value.isdecimal() else value


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--out", required=True, metavar="URL", help="URL of the dataset to write.")
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    help="Format of the sources.  [default: by their names and first lines]",
)
@click.option(
    "--hash-bits",
    type=int,
    metavar="B",
    help="Hash names of features to 2^B ids (tables, vw).  [default: 20; 18 for vw]",
)
@click.option("--ngrams", default=1, metavar="N", help="Make features of 1 to N words of a text.")
@click.option("--binary", is_flag=True, help="Replace every value that is not zero by 1.")
@click.option(
    "--norm", type=click.Choice(("l2", "none")), default="none", help="Scale every row to length 1."
)
@click.option(
    "--label",
    callback=_column,
    metavar="C",
    help="Column of the label: its name, or its number from 0.  [default: label, or else 0]",
)
@click.option(
    "--text-column",
    callback=_column,
    metavar="C",
    help="Column of a text; others are features only if --columns names them.",
)
@click.option("--columns", metavar="C,C", help="Columns that are features.  [default: all]")
@click.option("--ignore", metavar="C,C", help="Columns that are not features.")
@click.option("--categories", metavar="C,C", help="Columns of numbers that are categories.")
@click.option(
    "--cross",
    multiple=True,
    metavar="C:C",
    help="Make a feature of each combination of two or more categories; can be repeated.",
)
@click.option(
    "--id", callback=_column, metavar="C", help="Column that names rows, kept for predictions."
)
@click.option(
    "--scale",
    type=click.Choice(("robust", "none")),
    default="robust",
    help="Scale columns of numbers by median and quartiles, or not.",
)
@click.option(
    "--like",
    metavar="URL",
    help="Make the features of this model or dataset, with its recorded options.",
)
@click.option("--partition-nnz", default=2_000_000, metavar="N", help="Non-zeros of a partition.")
@click.option(
    "--shuffle",
    type=int,
    metavar="SEED",
    help="Seed of the random order of all rows.  [default: 0; no shuffle with --no-labels]",
)
@click.option("--no-shuffle", is_flag=True, help="Keep the order of the rows.")
@click.option(
    "--workers", type=int, metavar="N", help="Number of threads or processes.  [default: 1]"
)
@click.option(
    "--scheduler", "client", metavar="ADDRESS", help="Parse on the workers of a Dask scheduler."
)
@click.option(
    "--on-error",
    default="raise",
    help="Treatment of a malformed row: raise stops, skip leaves the row out and counts it.",
    **ON_ERROR,
)
@click.option("--overwrite", is_flag=True, help="Replace an existing dataset.")
@click.option(
    "--n-features",
    type=int,
    metavar="N",
    help="Number of features, if it is larger than in the sources, such as that of training data.",
)
@click.option(
    "--zero-based/--one-based",
    default=None,
    help="First feature id of svmlight files.  [default: 0 if any id is 0]",
)
@click.option(
    "--multilabel/--single-label",
    default=None,
    help="Read labels as sets (svmlight).  [default: if any row has several]",
)
@click.option(
    "--no-labels", is_flag=True, help="Read rows to predict: labels are not needed and not kept."
)
@click.option(
    "--alternate-sign/--no-alternate-sign",
    default=True,
    help="Hash the sign of features too, so that collisions cancel in the mean (text).",
)
@click.option(
    "--keep-names/--no-names",
    default=None,
    help="Keep the names of hashed features.  [default: those of tables, up to 2^20]",
)
@click.option(
    "--delimiter",
    type=click.Choice(tuple(DELIMITERS)),
    help="Delimiter of columns (csv).",
)
@click.option(
    "--header/--no-header", default=None, help="Read the first row as column names (csv)."
)
@click.option("--temporary", metavar="FOLDER", help="Folder for data that exceeds the memory.")
@output_options
def ingest(
    sources: tuple[str, ...],
    out: str,
    workers: int | None,
    client: str | None,
    zero_based: bool | None,
    delimiter: str | None,
    shuffle: int | None,
    no_shuffle: bool,
    display: Display,
    **options: Any,
) -> None:
    """Make a dataset of text, tables or arrays.

    A SOURCE is a file, a folder, a glob or - for standard input, and may be compressed (gz, bz2,
    xz, zst). The dataset becomes visible when it is complete. Numbers of tables are scaled, and
    categories and words are hashed; --like applies the same to other data.
    """
    if no_shuffle and shuffle is not None:
        raise click.UsageError("--shuffle and --no-shuffle exclude each other; give one of them")
    check_one_of(workers=workers, scheduler=client)
    with display.bar("reading", unit="bytes") as bar:
        report = dadagrad.ingest(
            list(sources),
            out,
            workers=1 if workers is None else workers,
            client=client,
            zero_based="auto" if zero_based is None else zero_based,
            delimiter=None if delimiter is None else DELIMITERS[delimiter],
            shuffle=None if no_shuffle else "auto" if shuffle is None else shuffle,
            progress=lambda done, total, rows: bar.update(done, total, f"{rows:,} rows"),
            **options,
        )
    facts = asdict(report) | ({} if display.as_json else {"dataset": out})
    display.show_result(facts, n_bytes=("source_bytes", "bytes"))
