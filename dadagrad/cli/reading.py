"""Options for reading raw files, which `ingest`, `train` and `sweep` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from dadagrad.cli.display import Display
from dadagrad.cli.options import absolute, setting_option
from dadagrad.data.reading.options import OPTIONS

if TYPE_CHECKING:
    from dadagrad import Dataset

RAW = "Raw files"
"""Group of these options in the help of commands that also take datasets."""


def reading_options(*, group: str | None = None) -> Callable[..., Callable[..., None]]:
    """Add the options, from which a command gets those that were given as `reading`.

    In a `group` of its own, of rows to train on, ``--help-all`` alone shows those that are rarely
    needed.
    """
    chosen = {
        name: replace(described, research=False)
        if group is None
        else replace(described, group=group)
        for name, described in OPTIONS.items()
        if group is None or name not in ("no_labels", "on_error")
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
    *,
    like: str | None = None,
    needed_by: Sequence[str] = (),
) -> Dataset:
    """Open datasets, or read raw files with the options `reading`, and say what was read as what.

    With `like`, the URL of a model, the rows of raw files get its features. The options `needed_by`
    do without raw files.
    """
    from dadagrad.data.ingest.collect import describe  # loads slowly, and the next
    from dadagrad.data.ingest.ingest import as_dataset, read_dataset
    from dadagrad.data.ingest.sources import is_raw

    if not all(map(is_raw, data)):
        if reading:
            option = next(iter(reading)).replace("_", "-")
            raise click.UsageError(
                f"--{option} has no effect on a dataset, whose rows were read before; give raw "
                "files, or leave it out"
            )
        return as_dataset([absolute(each) for each in data])
    if needed_by:
        raise click.UsageError(
            f"{needed_by[0]} needs a dataset, which other processes can read, too; make one of the "
            f"files with `dadagrad ingest {data[0]} --out URL`"
        )
    with display.bar("reading", unit="bytes") as bar:
        rows = read_dataset(
            list(data),
            like=like,
            progress=lambda done, total, rows: bar.update(done, total, f"{rows:,} rows"),
            **reading,
        )
    display.say(describe(rows.schema))
    return rows
