"""``dadagrad ingest``: convert sources into a dataset."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

import click

import dadagrad
from dadagrad.cli.display import Display
from dadagrad.cli.options import ON_ERROR, check_one_of, output_options

FORMATS = ("svmlight", "vw", "text", "csv", "parquet", "anndata", "npz")
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
    help="Hash features to 2^B ids (text, vw, csv).  [default for text: 20]",
)
@click.option(
    "--ngrams", default=1, metavar="N", help="Make features of sequences of 1 to N words (text)."
)
@click.option("--binary", is_flag=True, help="Replace every value that is not zero by 1.")
@click.option(
    "--norm", type=click.Choice(("l2", "none")), default="none", help="Scale every row to length 1."
)
@click.option(
    "--label-column",
    callback=_column,
    metavar="C",
    help="Column of labels (text, csv, anndata): its number, from 0, or its name, which makes the "
    "first row a header.  [default: 0; label for anndata]",
)
@click.option(
    "--text-column",
    callback=_column,
    metavar="C",
    help="Column of the text (text), as --label-column.  [default: 1; 0 with --no-labels]",
)
@click.option("--partition-nnz", default=2_000_000, metavar="N", help="Non-zeros of a partition.")
@click.option("--shuffle", type=int, metavar="SEED", help="Put all rows in a random order.")
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
@click.option("--keep-names", is_flag=True, help="Keep the names of hashed features (vw).")
@click.option(
    "--delimiter",
    type=click.Choice(tuple(DELIMITERS)),
    help="Delimiter of columns (text, csv).",
)
@click.option(
    "--header/--no-header", default=None, help="Read the first row as column names (text, csv)."
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
    display: Display,
    **options: Any,
) -> None:
    """Make a dataset of text, tables or arrays.

    A SOURCE is a file, a folder, a glob or /dev/stdin, and may be compressed (gz, bz2, xz, zst).
    The dataset becomes visible when it is complete.
    """
    check_one_of(workers=workers, scheduler=client)
    with display.bar("reading", unit="bytes") as bar:
        report = dadagrad.ingest(
            list(sources),
            out,
            workers=1 if workers is None else workers,
            client=client,
            zero_based="auto" if zero_based is None else zero_based,
            delimiter=None if delimiter is None else DELIMITERS[delimiter],
            progress=lambda done, total, rows: bar.update(done, total, f"{rows:,} rows"),
            **options,
        )
    facts = asdict(report) | ({} if display.as_json else {"dataset": out})
    display.show_result(facts, n_bytes=("source_bytes", "bytes"))
