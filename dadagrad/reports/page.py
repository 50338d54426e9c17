"""Reports of models and runs: one HTML page for a browser, a phone and paper, or JSON.

The page needs no other file and no network. Its templates escape everything that comes from data or
from a user, such as the names of features, classes and files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any, Literal

from jinja2 import Environment, PackageLoader

from dadagrad.errors import InputError
from dadagrad.model.model import Model
from dadagrad.reports import sections
from dadagrad.reports.document import TOP, Document, describe
from dadagrad.settings import Number
from dadagrad.storage.documents import strict_json
from dadagrad.storage.output import output_file
from dadagrad.summary import counted, duration, last_part, percent, short, utf8
from dadagrad.task import has_classes
from dadagrad.training.result import TrainResult

_FORMATS: dict[str, Literal["html", "json"]] = {".html": "html", ".htm": "html", ".json": "json"}
"""Formats of a report by the suffix of its name."""
_TASKS = {
    "binary": "binary classification",
    "multiclass": "classification",
    "multilabel": "multilabel classification",
}


def report(
    run: Model | TrainResult | str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    holdout: Any = None,
    format: Literal["html", "json"] | None = None,
    top: int = TOP,
    overwrite: bool = True,
    **options: Any,
) -> str:
    """Make a report of a model or a run: one HTML page without external resources, or JSON.

    Parameters
    ----------
    run : Model, TrainResult or str
        A model, a result of training, or the URL of a model or of a folder of checkpoints.
    out : str, optional
        File or URL to write; ``-`` is standard output.
    holdout : Dataset, str, pair (X, y) or data frame, optional
        Data on which the model is measured, as for `dadagrad.evaluate`; by default the report has
        the rows that the run held out, if there are any.
    format : "html" or "json", optional
        By default JSON if the name of `out` ends in ``.json``, else HTML. The entries of the JSON
        object are described in the guide "Reports, logs and callbacks".
    top : int
        Largest weights of each sign that are shown for an output.
    overwrite : bool
        Replace a file that is there.
    **options
        Options of `ingest` for `holdout`, as for `dadagrad.evaluate`, such as ``label="y"``.

    Returns
    -------
    str
        The text of the report.

    Raises
    ------
    InputError
        There is neither a model nor a run, the holdout data do not suit the model, or `out` cannot
        be written.
    """
    suffix = "" if out is None else os.path.splitext(os.fspath(out).partition("?")[0])[1].lower()
    if format is None and suffix not in ("", *_FORMATS):
        raise InputError(
            f"a report cannot be written as {suffix}; give a name that ends in .html or .json, or "
            "the format"
        )
    format = format or _FORMATS.get(suffix, "html")
    if format not in ("html", "json"):
        raise InputError(f"format must be 'html' or 'json', not {format!r}")
    Number(whole=True, minimum=0).convert("top", top)
    with nullcontext() if out is None else output_file(os.fspath(out), overwrite) as file:
        document = describe(run, holdout, top=top, **options)
        text = page(document) if format == "html" else strict_json(document) + "\n"
        if file is not None:
            file.write(text.encode())
    return text


def page(document: Document, *, live: bool = False) -> str:
    """Return the page; a `live` one replaces its content every second by ``content``."""
    template = _templates().get_template("page.html")
    return utf8(template.render(_view(document), live=live)) + "\n"


def content(document: Document) -> str:
    """Return the content of the page alone."""
    return utf8(_templates().get_template("content.html").render(_view(document)))


def sweep_picture(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the picture of the settings of a sweep as a file of SVG."""
    section = sections.sweep(entries)
    if section is None:
        raise InputError(
            "the picture of the path: no setting has a non-zero weight to draw; give smaller "
            "penalties, or write the path as .json or .csv"
        )
    draw = _templates().get_template("elements.html").module.draw  # type: ignore[attr-defined]
    return f"{draw(section['chart'], alone=True)}\n".lstrip()


def answer(document: Document, path: str) -> tuple[str, bytes] | None:
    """Return the type and the bytes at a path of the live page; None if there is nothing.

    The paths are "", "content" (which the page fetches each second) and "report.json".
    """
    if path == "report.json":
        return "application/json", strict_json(document).encode()
    if path in ("", "content"):
        text = page(document, live=True) if not path else content(document)
        return "text/html; charset=utf-8", text.encode()
    return None


HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'self'",
}
"""Headers of all answers."""


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("dadagrad.reports", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def filled_columns(rows: Sequence[Sequence[str]]) -> list[int]:
        columns = enumerate(zip(*rows, strict=True))
        return [number for number, column in columns if any(column)]

    templates.filters |= {"percent": percent, "filled_columns": filled_columns}
    return templates


def _view(document: Document) -> dict[str, Any]:
    """The texts, tables and charts that the templates show."""
    return {
        "document": document,
        "title": _title(document),
        "header": _header(document),
        "progress": _progress(document),
        "tiles": _tiles(document),
        **sections.view(document),
    }


def _title(document: Document) -> str:
    data = (document.get("data") or {}).get("url")
    name = "data in memory" if data in (None, "memory") else last_part(data)
    loss = (document.get("model") or {}).get("loss") or document.get("config", {}).get("loss")
    return f"{loss} loss on {name}" if loss else name


def _header(document: Document) -> list[str]:
    """The task, the number of rows and of classes, and the time of the report."""
    model, data = document.get("model") or {}, document.get("data") or {}
    facts = [_TASKS.get(model["task"], model["task"])] if model else []
    facts += [counted(data["rows"], "row")] if data.get("rows") else []
    labels = (model.get("labels") or []) if has_classes(model.get("task", "")) else []
    if len(labels) == 1 and labels[0]["values"]:
        facts.append(counted(len(labels[0]["values"]), "class"))
    elif labels and labels[0]["values"]:
        facts.append(counted(len(labels), "label"))
    return [*facts, document["created"].replace("T", " ").replace("+00:00", " UTC")]


def _progress(document: Document) -> dict[str, Any] | None:
    training = document.get("training") or {}
    total = training.get("rows_total")
    if document["status"] != "running" or not total:
        return None
    rows, rate = training.get("rows", 0), training.get("rows_per_second")
    share = min(1.0, rows / total)
    texts = [f"{100 * share:.0f} %", f"pass {training.get('pass_number', 1)}"]
    texts += [f"{duration((total - rows) / rate)} left"] if rate else []
    return {"percent": 100 * share, "texts": texts}


def _tiles(document: Document) -> list[tuple[str, str, str]]:
    """Names, numbers and notes of the numbers that people look at first."""
    training, holdout = document.get("training") or {}, document.get("holdout") or {}
    tiles: list[tuple[str, str, str]] = []
    for key, shown in (("error", percent), ("loss", sections.amount)):
        value, constant = training.get(f"progressive_{key}"), training.get(f"constant_{key}")
        if value is not None:
            note = "" if constant is None else f"best constant {shown(constant)}"
            tiles.append((f"{key} before learning", shown(value), note))
    for key in ("error", "auc", "rmse", "r2", "ndcg"):
        if holdout.get(key) is not None:
            measure, show = sections.MEASURES[key]
            name = measure if key == "auc" else f"{measure} on holdout"
            tiles.append((name, show(holdout[key]), counted(holdout["rows"], "row")))
    nonzeros = training.get("nonzeros")
    if nonzeros is not None:
        weights = training.get("features", 0) * training.get("outputs", 1)
        tiles.append(("non-zero weights", short(nonzeros), f"of {short(weights)}"))
    if training.get("seconds") is not None:
        rows = f"{short(training.get('rows_per_second') or 0.0)} rows/s"
        tiles.append(("time", duration(training["seconds"]), rows))
    if training.get("workers") is not None:
        tiles.append(("workers", f"{training['workers']:,}", "of the cluster"))
    return tiles
