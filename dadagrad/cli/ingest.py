"""``dadagrad ingest``, and the options for raw files that it shares with `train` and `sweep`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from functools import wraps
from typing import Any

import click
from rich.filesize import decimal

import dadagrad
from dadagrad.cli.display import Display
from dadagrad.cli.options import (
    GroupedCommand,
    check_one_of,
    grouped,
    output_options,
    place_argument,
    setting_option,
)
from dadagrad.data.reading.options import OPTIONS
from dadagrad.storage.backends import absolute
from dadagrad.summary import counted, duration

RAW = "Raw files"
"""Group of these options in the help of commands that also take datasets."""


def reading_options(
    *, group: str | None = None, without: Collection[str] = ()
) -> Callable[..., Callable[..., None]]:
    """Add the options, from which a command gets those that were given as `reading`.

    In a `group` of its own, ``--help-all`` alone shows those that are rarely needed. The command
    does `without` some.
    """
    chosen = {
        name: replace(described, research=False)
        if group is None
        else replace(described, group=group)
        for name, described in OPTIONS.items()
        if name not in without
    }

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_reading(**options: Any) -> None:
            values = {name: options.pop(name) for name in chosen}
            reading = {name: value for name, value in values.items() if value not in (None, ())}
            command(reading=reading, **options)

        decorated: Callable[..., None] = with_reading
        for name, described in reversed(chosen.items()):
            decorated = setting_option(name, described)(decorated)
        return decorated

    return add


def open_data(
    data: Sequence[str],
    reading: dict[str, Any],
    display: Display,
    resources: dict[str, Any],
    **options: Any,
) -> dadagrad.Dataset:
    """Open datasets, or read raw files with the options `reading`, and say what was read as what.

    Other `options` are those of `Resources.dataset`.
    """
    from dadagrad.data.ingest.sources import is_raw
    from dadagrad.data.ingest.summary import describe  # loads slowly, and the next
    from dadagrad.training.engines.resources import Resources

    raw = all(map(is_raw, data))
    with display.bar("reading", unit="bytes") as bar:
        rows = Resources(**resources).dataset(
            list(data) if raw else [absolute(each) for each in data],
            progress=lambda done, total, rows: bar.update(done, total, f"{rows:,} rows"),
            **options,
            **reading,
        )
    if raw:
        display.say(describe(rows.schema))
    return rows


common, rows, parallel, output = map(grouped, ("Common", "Rows", "Parallel", "Output"))


@click.command(cls=GroupedCommand)
@place_argument("sources", nargs=-1, required=True, metavar="SOURCE...")
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
    "--workers",
    type=int,
    metavar="N",
    help="Number of threads that parse and write.",
    shown_default="1",
)
@parallel(
    "--scheduler", "client", metavar="ADDRESS", help="Parse on the workers of a Dask cluster."
)
@output("--partition-nnz", default=2_000_000, metavar="N", help="Non-zeros of a partition.")
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

    A SOURCE is a file, a folder or a glob, by path or by URL, or - for standard input, and may be
    compressed (gz, bz2, xz, zst). The dataset becomes visible when it is complete. Numbers of
    tables are scaled, and categories and words are hashed; --like applies the same to other data.
    """
    check_one_of(shuffle=shuffle, no_shuffle=no_shuffle or None)
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
    size = f"{decimal(report.source_bytes)} " if report.source_bytes else ""  # 0 of a pipe
    facts = asdict(report)
    if not display.as_json:
        facts = {
            "rows": report.rows,
            "features": report.features,
            "non-zeros": report.nnz,
            "partitions": report.partitions,
            "left out": counted(report.skipped, "row") if report.skipped else None,
            "columns": report.columns or None,
            "collisions": report.collisions,
            "read": f"{size}in {duration(report.seconds)}",
            "dataset": f"{out}, {decimal(report.bytes)}",
        }
    display.show_result(facts)
