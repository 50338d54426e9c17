"""``dadagrad ingest``: sources into a dataset."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from dadagrad.amounts import size
from dadagrad.cli.display import Display, print_facts, print_json
from dadagrad.cli.options import check_one_of, output_options

FORMATS = ("svmlight", "vw", "text", "csv", "parquet", "anndata", "npz")
DELIMITERS = {"tab": "\t", "comma": ","}


def _column(ctx: click.Context, param: click.Parameter, value: str | None) -> int | str | None:
    """A column by its number, from 0, or by its name."""
    return int(value) if value is not None and value.isdecimal() else value


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--out", required=True, metavar="URL", help="Where the dataset goes.")
@click.option("--format", type=click.Choice(FORMATS), help="Default: by names and first lines.")
@click.option(
    "--hash-bits",
    type=int,
    metavar="B",
    help="Hash features to 2^B ids (text, vw, csv).  [default for text: 20]",
)
@click.option("--ngrams", type=int, default=1, metavar="N", help="Runs of 1 to N words (text).")
@click.option("--binary", is_flag=True, help="Every value that is not zero becomes 1.")
@click.option(
    "--norm",
    type=click.Choice(("l2", "none")),
    default="none",
    show_default=True,
    help="Scale every row to length 1.",
)
@click.option(
    "--label-column",
    callback=_column,
    metavar="C",
    help="Where labels are: a column's number, from 0, or its name, which makes the first row a "
    "header (text, csv, anndata).  [default: 0; of anndata label]",
)
@click.option(
    "--text-column",
    callback=_column,
    metavar="C",
    help="Where the text is, likewise (text).  [default: 1; with --no-labels 0]",
)
@click.option(
    "--partition-nnz",
    type=int,
    default=2_000_000,
    show_default=True,
    metavar="N",
    help="Size of a partition in non-zeros.",
)
@click.option("--shuffle", type=int, metavar="SEED", help="Put all rows in a random order.")
@click.option(
    "--workers", type=int, metavar="N", help="Parse so many pieces at once.  [default: 1]"
)
@click.option("--scheduler", metavar="ADDRESS", help="Parse on the workers of a Dask scheduler.")
@click.option(
    "--on-error",
    type=click.Choice(("raise", "skip")),
    default="raise",
    show_default=True,
    help="Stop at the first wrong row, or leave wrong rows out and count them.",
)
@click.option("--overwrite", is_flag=True, help="Replace a dataset that is there.")
@click.option(
    "--n-features",
    type=int,
    metavar="N",
    help="Number of features, if more than the sources show (as of the training data).",
)
@click.option(
    "--zero-based/--one-based",
    default=None,
    help="Where ids start (svmlight).  [default: at 0 if any is 0]",
)
@click.option(
    "--multilabel/--single-label",
    default=None,
    help="Whether labels are sets (svmlight).  [default: if any row has several]",
)
@click.option(
    "--no-labels",
    is_flag=True,
    help="Rows to predict: they need no labels, and none are kept.",
)
@click.option("--alternate-sign/--no-alternate-sign", default=True, help="Signed hash (text).")
@click.option("--keep-names", is_flag=True, help="Keep the names of hashed features (vw).")
@click.option("--delimiter", type=click.Choice(tuple(DELIMITERS)), help="Of text and csv.")
@click.option("--header/--no-header", default=None, help="Whether row 1 has names (text, csv).")
@click.option("--temporary", metavar="FOLDER", help="For what does not fit in memory.")
@output_options
def ingest(
    sources: tuple[str, ...],
    out: str,
    workers: int | None,
    scheduler: str | None,
    zero_based: bool | None,
    delimiter: str | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Turn SOURCEs (files, folders, globs, /dev/stdin) into a dataset at URL.

    Files may be compressed (gz, bz2, xz, zst). The dataset becomes visible when it is complete.
    """
    check_one_of(workers=workers, scheduler=scheduler)
    display = Display(quiet=quiet)
    from dadagrad.data.ingest import ingest as run

    with display.showing_logs(), display.bar("reading", 0, unit="bytes") as bar:

        def progress(done: int, total: int, rows: int) -> None:
            bar.total = total
            bar.update(done, f", {rows:,} rows")

        report = run(
            list(sources),
            out,
            workers=1 if workers is None else workers,
            scheduler=scheduler,
            zero_based="auto" if zero_based is None else zero_based,
            delimiter=None if delimiter is None else DELIMITERS[delimiter],  # type: ignore[arg-type]
            progress=progress,
            **options,
        )
    if as_json:
        print_json(asdict(report))
    else:
        sizes = {"source_bytes": size(report.source_bytes), "bytes": size(report.bytes)}
        print_facts(asdict(report) | sizes | {"dataset": out})
