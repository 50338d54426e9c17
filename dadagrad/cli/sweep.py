"""``dadagrad sweep``: a grid of settings in one stream, and the regularization path."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

import dadagrad
from dadagrad.cli.config_file import ConfigFile, config_option
from dadagrad.cli.display import Display, number, output_width, print_json
from dadagrad.cli.failures import Interrupted
from dadagrad.cli.ingest import RAW, open_data, reading_options
from dadagrad.cli.options import (
    GroupedCommand,
    grouped,
    place_argument,
    resource_options,
    setting_options,
    share_or_url,
    training_output,
)
from dadagrad.cli.run_support import check_data, check_destinations
from dadagrad.config import SWEPT, make_config
from dadagrad.errors import InputError
from dadagrad.summary import percent
from dadagrad.training.callbacks import Callback

common, output = grouped("Common"), grouped("Output")
_SETTINGS = ("loss", *SWEPT)
COLUMNS = (*_SETTINGS, "rows", "progressive_loss", "progressive_error", "nonzeros",
           "holdout_loss", "holdout_error", "holdout_auc")  # fmt: skip
"""Columns of the path."""
_HEADS = {
    "loss": "loss", "step_size": "step size", "l1": "l1", "l2": "l2", "rows": "rows",
    "progressive_loss": "mean loss", "progressive_error": "error", "nonzeros": "weights",
    "holdout_loss": "held-out loss", "holdout_error": "held-out error",
}  # fmt: skip
"""Columns of the table on a terminal, and their heads, which have two lines."""
_LEAST = ("rows", "progressive_loss", "progressive_error", "holdout_loss")
"""Columns that a narrow terminal does without, first of them the first."""


@click.command(cls=GroupedCommand)
@place_argument("data", nargs=-1, required=True)
@common("--model", required=True, metavar="URL", help="Where to save the best model.")
@common(
    "--loss",
    "losses",
    metavar="NAME,...",
    help="Loss to minimize. Several losses for classes are compared by the error.",
    shown_default="hinge",
)
@common(
    "--holdout",
    metavar="SHARE|DATA",
    help="Rows to compare the settings on. Either a share of DATA, such as 0.1, or other data.",
)
@setting_options("loss", "holdout", "early_stopping")
@reading_options(group=RAW, without=("no_labels",))
@config_option
@output(
    "--path",
    "paths",
    multiple=True,
    metavar="FILE",
    help="File of the regularization path. It has the settings that were trained to the end: "
    ".json, .csv, or a picture as .svg. Give it once for each of several.",
)
@resource_options
@output("--overwrite", is_flag=True, help="Replace an existing model and files.")
@training_output
def sweep(
    data: tuple[str, ...],
    model: str,
    losses: str | None,
    file: str | None,
    holdout: str | None,
    paths: tuple[str, ...],
    overwrite: bool,
    resources: dict[str, Any],
    reading: dict[str, Any],
    display: Display,
    callbacks: list[Callback],
    **settings: Any,
) -> None:
    """Train a grid of settings and save the best.

    --step-size, --l1, --l2 and --loss take several values, separated by commas, and all
    combinations are trained in one stream over DATA. After an eighth, a quarter and half of the
    first pass, the worse half of those with the same penalties is dropped. Settings are compared
    on the rows since the last comparison, or on those held out: one with a smaller mean over all
    rows may lose. A sweep has no checkpoints: one that stops begins again.
    """
    # These modules need numba and pyarrow, which load slowly.
    from dadagrad.storage.output import check_new_file, output_file
    from dadagrad.training.holdout import split_setting
    from dadagrad.training.sweep import make_grid

    config_file = ConfigFile.read(file, several_losses=True)
    reading, values = config_file.replaced(reading, settings)
    of_file = values.pop("loss", "hinge")
    names = losses.split(",") if losses else [of_file] if isinstance(of_file, str) else of_file
    if not names:
        raise InputError(f"{file}: loss must have at least one name")
    other, values = split_setting(share_or_url(holdout or config_file.holdout), values)
    config = make_config(None, {**values, "loss": names[0]})
    for path in paths:
        if not path.lower().endswith((".json", ".csv", ".svg")):
            raise InputError(f"--path {path} must end in .json, .csv or .svg (a picture)")
        check_new_file(path, overwrite)
    make_grid(config, names)
    check_destinations(model, overwrite=overwrite)
    rows = open_data(data, reading, display, resources, shuffle=config.row_order)
    check_data(rows, config, resources)
    result = dadagrad.sweep(
        rows,
        config,
        loss=names,
        holdout=other,
        **resources,
        callbacks=callbacks,
        messages=display.say,
    )
    if not result.complete:
        report = result.best.report
        raise Interrupted(
            f"stopped after {report['rows']:,} rows; nothing was saved",
            report["stopped_by"],
        )
    result.best.save(model)
    if display.as_json:
        print_json({"model": model, "best": result.best.report, "settings": result.table})
    else:
        best = result.best.model.report["settings"][0] | {"loss": result.best.model.loss}
        lines = _table_lines(list(map(_flat, result.table)), best, output_width())
        display.show_lines([*lines, f"Model of the setting marked * saved to {model}."])
    for path in sorted(paths, key=_is_picture):  # there may be nothing to draw
        text = _path_text(path, result.path)
        with output_file(path, overwrite=True) as destination:
            destination.write(text.encode())


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    measured = entry.get("holdout") or {}
    flat = dict(entry) | {
        f"holdout_{name}": measured.get(name) for name in ("loss", "error", "auc")
    }
    return {name: flat.get(name) for name in (*COLUMNS, "dropped")}


def _table_lines(
    table: Sequence[Mapping[str, Any]], best: Mapping[str, Any], width: int
) -> list[str]:
    """The settings as aligned columns, without those that are empty or alike in all rows."""
    is_best = [
        not row["dropped"] and all(row[name] == best[name] for name in _SETTINGS) for row in table
    ]
    columns = {"": ["", "", *("*" if each else "" for each in is_best)]}
    for name, head in _HEADS.items():
        values = [row[name] for row in table]
        # Losses of different kinds tell nothing beside each other.
        is_vague = name.endswith("_loss") and len({row["loss"] for row in table}) > 1
        if is_vague or set(values) == {None} or (name in _SETTINGS and len(set(values)) == 1):
            continue
        above, _, below = head.rpartition(" ")
        is_share = name.endswith("error")
        cells = (percent(x) if is_share and x is not None else number(x) for x in values)
        columns[name] = [above, below, *cells]
    for name in _LEAST:
        if sum(max(map(len, column)) + 2 for column in columns.values()) - 2 > width:
            columns.pop(name, None)
    widths = [max(map(len, column)) for column in columns.values()]
    return [
        "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True))
        for line in zip(*columns.values(), strict=True)
    ]


def _is_picture(path: str) -> bool:
    return path.lower().endswith(".svg")


def _path_text(path: str, entries: Sequence[Mapping[str, Any]]) -> str:
    if _is_picture(path):
        from dadagrad.reports.page import sweep_picture  # loads slowly

        return sweep_picture(entries)
    rows = list(map(_flat, entries))
    columns = [name for name in COLUMNS if any(row[name] is not None for row in rows)]
    chosen = [{name: row[name] for name in columns} for row in rows]
    if path.lower().endswith(".json"):
        return json.dumps(chosen, indent=1)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(chosen)
    return text.getvalue()
