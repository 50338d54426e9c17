"""``dadagrad ingest``: convert sources into a dataset."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

import dadagrad
from dadagrad.cli.display import Display
from dadagrad.cli.options import GroupedCommand, check_one_of, grouped, output_options
from dadagrad.cli.reading import reading_options

common, rows, parallel, output = map(grouped, ("Common", "Rows", "Parallel", "Output"))


@click.command(cls=GroupedCommand)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@common("--out", required=True, metavar="URL", help="URL of the dataset to write.")
@common(
    "--like",
    metavar="URL",
    help="Make the features of this model or dataset. Its recorded options are used again.",
)
@reading_options()
@rows(
    "--shuffle",
    type=int,
    metavar="SEED",
    help="Seed of the random order of all rows.",
    shown_default="0; no shuffle with --no-labels",
)
@rows("--no-shuffle", is_flag=True, help="Keep the order of the rows.")
@grouped("Features")(
    "--n-features",
    type=int,
    metavar="N",
    help="Number of features, if not all occur. Test data may lack some of the training data.",
)
@parallel(
    "--workers", type=int, metavar="N", help="Number of threads or processes.", shown_default="1"
)
@parallel(
    "--scheduler", "client", metavar="ADDRESS", help="Parse on the workers of a Dask cluster."
)
@output("--partition-nnz", default=2_000_000, metavar="N", help="Non-zeros of a partition.")
@output("--temporary", metavar="FOLDER", help="Folder for data that exceeds the memory.")
@output("--overwrite", is_flag=True, help="Replace an existing dataset.")
@output_options
def ingest(
    sources: tuple[str, ...],
    out: str,
    workers: int | None,
    client: str | None,
    shuffle: int | None,
    no_shuffle: bool,
    reading: dict[str, Any],
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
            shuffle=None if no_shuffle else "auto" if shuffle is None else shuffle,
            progress=lambda done, total, rows: bar.update(done, total, f"{rows:,} rows"),
            **reading,
            **options,
        )
    facts = asdict(report) | ({} if display.as_json else {"dataset": out})
    display.show_result(facts, n_bytes=("source_bytes", "bytes"))
