"""A report as one HTML page without external resources: for a browser, a phone and paper.

Everything that comes from data or from a user is escaped: names of features, classes and files.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

from dadagrad.reports.elements import last_part, three
from dadagrad.reports.sections import SECTIONS
from dadagrad.summary import counted, duration, percent, short, significant

Document = Mapping[str, Any]

_TASKS = {
    "binary": "binary classification",
    "multiclass": "classification",
    "multilabel": "multilabel classification",
}


def page(document: Document, *, live: bool = False) -> str:
    """Return the page; a `live` one replaces its content every second by ``content``."""
    name = escape(_title(document))
    script = f"<script>{_text('live.js')}</script>" if live else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{name}</title>\n<style>{_text('style.css')}</style>\n</head>\n"
        f'<body>\n<main id="report">\n{content(document)}</main>\n{script}</body>\n</html>\n'
    )


def content(document: Document) -> str:
    """Return the content of the page alone."""
    parts = [_header(document), _tiles(document)]
    parts += [section(document) for section in SECTIONS]
    return "\n".join(filter(None, parts)) + "\n"


def _text(name: str) -> str:
    return files("dadagrad.reports").joinpath(name).read_text("utf-8")


def _title(document: Document) -> str:
    data = (document.get("data") or {}).get("url")
    name = "data in memory" if data in (None, "memory") else last_part(data)
    loss = (document.get("model") or {}).get("loss") or document.get("config", {}).get("loss")
    return f"{loss} loss on {name}" if loss else name


def _header(document: Document) -> str:
    status = escape(document["status"])
    mark = f' <span class="status {status}">{status}</span>' if status != "complete" else ""
    model, data = document.get("model") or {}, document.get("data") or {}
    facts = [_TASKS.get(model["task"], model["task"])] if model else []
    facts += [counted(data["rows"], "row")] if data.get("rows") else []
    labels = model.get("labels") or []
    if len(labels) == 1 and labels[0]["values"]:
        facts.append(counted(len(labels[0]["values"]), "class"))
    elif labels and labels[0]["values"]:
        facts.append(counted(len(labels), "label"))
    facts += [document["created"].replace("T", " ").replace("+00:00", " UTC")]
    error = document.get("error")
    failed = f'<p class="error">{escape(error)}</p>' if error else ""
    return (
        f"<header><h1>{escape(_title(document))}{mark}</h1>"
        f'<p class="facts">{escape(" · ".join(facts))}</p>{failed}{_progress(document)}</header>'
    )


def _progress(document: Document) -> str:
    training = document.get("training") or {}
    total = training.get("rows_total")
    if document["status"] != "running" or not total:
        return ""
    share = min(1.0, training.get("rows", 0) / total)
    rate = training.get("rows_per_second") or 0.0
    left = (total - training.get("rows", 0)) / rate if rate else None
    texts = [f"{100 * share:.0f} %", f"pass {training.get('pass_number', 1)}"]
    texts += [f"{duration(left)} left"] if left is not None else []
    return (
        f'<div class="progress" role="progressbar" aria-valuenow="{100 * share:.0f}">'
        f'<span style="width:{100 * share:.1f}%"></span></div>'
        f'<p class="facts">{escape(" · ".join(texts))}</p>'
    )


def _tiles(document: Document) -> str:
    """The numbers that people look at first."""
    training, held = document.get("training") or {}, document.get("holdout") or {}
    tiles: list[tuple[str, str, str]] = []
    for key, name, shown in (
        ("error", "error before learning", percent),
        ("loss", "loss before learning", significant),
    ):
        value, constant = training.get(f"progressive_{key}"), training.get(f"constant_{key}")
        if value is not None:
            note = "" if constant is None else f"best constant {shown(constant)}"
            tiles.append((name, shown(value), note))
    for key, name, shown in (
        ("error", "error on holdout", percent),
        ("auc", "AUC", three),
        ("rmse", "RMSE on holdout", significant),
        ("r2", "R² on holdout", three),
        ("ndcg", "NDCG@10 on holdout", three),
    ):
        if held.get(key) is not None:
            tiles.append((name, shown(held[key]), counted(held["rows"], "row")))
    nonzeros = training.get("nonzeros")
    if nonzeros is not None:
        weights = training.get("features", 0) * training.get("outputs", 1)
        tiles.append(("non-zero weights", short(nonzeros), f"of {short(weights)}"))
    if training.get("seconds") is not None:
        rows = f"{short(training.get('rows_per_second') or 0.0)} rows/s"
        tiles.append(("time", duration(training["seconds"]), rows))
    if training.get("workers") is not None:
        tiles.append(("workers", f"{training['workers']:,}", "of the cluster"))
    shown_tiles = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd>"
        f'<dd class="note">{escape(note)}</dd></div>'
        for name, value, note in tiles
    )
    return f'<dl class="tiles">{shown_tiles}</dl>' if tiles else ""
