"""Options for reading raw files, which `ingest`, `train` and `sweep` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dadagrad.cli.display import Display
from dadagrad.cli.options import GroupedOption, absolute
from dadagrad.data.ingest.options import CHOICES, FORMATS

if TYPE_CHECKING:
    from dadagrad import Dataset

DELIMITERS = {"tab": "\t", "comma": ","}
RAW = "Raw files"
"""Group of these options in the help of commands that also take datasets."""
_BRIEF = ("label", "ignore", "categories", "text_column", "ngrams")
"""Options that such a command shows without ``--help-all``."""


def _column(ctx: click.Context, param: click.Parameter, value: str | None) -> int | str | None:
    """Convert the number of a column, from 0, or keep its name."""
    return int(value) if value is not None and value.isdecimal() else value


def _delimiter(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return None if value is None else DELIMITERS[value]


_COLUMN: dict[str, Any] = {"metavar": "C", "callback": _column}
_FLAG: dict[str, Any] = {"is_flag": True}
_OPTIONS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("Common", "--label", "Column of the label, by name or number from 0.",
     {**_COLUMN, "shown_default": "label, or else 0"}),
    ("Common", "--format", "Format of the files.",
     {"type": click.Choice(FORMATS), "shown_default": "by their names and first lines"}),
    ("Columns", "--columns", "Columns that are features.",
     {"metavar": "C,C", "shown_default": "all"}),
    ("Columns", "--ignore", "Columns that are not features.", {"metavar": "C,C"}),
    ("Columns", "--categories", "Columns of numbers that are categories.", {"metavar": "C,C"}),
    ("Columns", "--text-column",
     "Column of a text. Others are features only if --columns names them.", _COLUMN),
    ("Columns", "--id", "Column that names rows in predictions.", _COLUMN),
    ("Columns", "--cross", "Combine two or more categories. Can be given several times.",
     {"metavar": "C:C", "multiple": True}),
    ("Columns", "--delimiter", "Delimiter of columns (csv).",
     {"type": click.Choice(tuple(DELIMITERS)), "callback": _delimiter}),
    ("Columns", "--header/--no-header", "Read column names in the first row (csv).",
     {"shown_default": "if it looks so"}),
    ("Features", "--ngrams", "Make features of 1 to N words of a text.",
     {"metavar": "N", "type": int, "shown_default": "1"}),
    ("Features", "--hash-bits", "Hash names of features to 2^B ids (tables, vw).",
     {"metavar": "B", "type": int, "shown_default": "20; 18 for vw"}),
    ("Features", "--binary", "Replace every value that is not zero by 1.", _FLAG),
    ("Features", "--norm", "Scale every row to length 1.",
     {"type": click.Choice(CHOICES["norm"]), "shown_default": "none"}),
    ("Features", "--scale", "Scale numbers by median and quartiles, or not.",
     {"type": click.Choice(CHOICES["scale"]), "shown_default": "robust"}),
    ("Features", "--alternate-sign/--no-alternate-sign",
     "Hash the sign of words, too. Collisions cancel in the mean (text).",
     {"shown_default": "alternate-sign"}),
    ("Features", "--keep-names/--no-names", "Keep the names of hashed features.",
     {"shown_default": "those of tables, up to 2^20"}),
    ("Rows", "--zero-based/--one-based", "First feature id of svmlight files.",
     {"shown_default": "0 if any id is 0"}),
    ("Rows", "--multilabel/--single-label", "Read labels as sets (svmlight).",
     {"shown_default": "if any row has several"}),
)  # fmt: skip


def reading_options(*, group: str | None = None) -> Callable[..., Callable[..., None]]:
    """Add the options, from which a command gets those that were given as `reading`.

    In a `group` of its own, ``--help-all`` alone shows those that are rarely needed.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_reading(**options: Any) -> None:
            source = click.get_current_context().get_parameter_source
            values = {name: options.pop(name) for name in names}
            reading = {
                name: value
                for name, value in values.items()
                if source(name) is not ParameterSource.DEFAULT
            }
            command(reading=reading, **options)

        decorated: Callable[..., None] = with_reading
        names = []
        for section, option, text, details in reversed(_OPTIONS):
            name = option.partition("/")[0].removeprefix("--").replace("-", "_")
            names.append(name)
            decorated = click.option(
                option,
                name,
                cls=GroupedOption,
                group=group or section,
                research=group is not None and name not in _BRIEF,
                help=text,
                **({} if "is_flag" in details or "multiple" in details else {"default": None}),
                **details,
            )(decorated)
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
