"""Sections of the page of a report. Names of features, classes and files are escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from dadagrad.reports.charts import (
    Axis,
    Series,
    bar_row,
    line_chart,
    plain_count,
    plain_number,
    plain_percent,
)
from dadagrad.reports.elements import (
    facts_table,
    grid,
    number_table,
    number_text,
    section,
    text_or_empty,
)
from dadagrad.reports.quality import holdout, weights
from dadagrad.summary import features_text, percent, short, significant

Document = Mapping[str, Any]

_POINT = ("rows", "pass_number", "weight", "loss", "error")
_PARTS = ("read", "learn", "exchange", "merge", "save", "coordinate")


def learning(document: Document) -> str:
    """Error and loss as rows go by, first of new rows, then of rows that have been seen."""
    curve = document.get("curve") or {}
    points = list(zip(*(curve.get(name, ()) for name in _POINT), strict=True))
    first = [point for point in points if point[1] == 1]
    later = [point for point in points if point[1] > 1]
    if len(points) < 2 or not first:
        return ""
    training = document.get("training") or {}
    charts = []
    for key, place, label, show in (
        ("error", 4, "error", plain_percent),
        ("loss", 3, "mean loss", plain_number),
    ):
        if first[0][place] is None:
            continue
        series = [Series("first pass", [(point[0], point[place]) for point in first], "a")]
        if len(first) > 1:
            series.insert(0, Series("between two points", list(_between(first, place)), "b"))
        if later:
            seen = [(point[0], point[place]) for point in later]
            series.append(Series("later passes (training)", seen, "d"))
        # The first points, of few rows, may be far above all others.
        shown = [y for each in series for _, y in each.points[min(2, len(each.points) - 1) :]]
        y = Axis.over(shown, label, show=show)
        constant = training.get(f"constant_{key}")
        if constant is not None and constant <= 1.5 * y.high:
            y = Axis.over([*shown, constant], label, show=show)
            ends = [(points[0][0], constant), (points[-1][0], constant)]
            series.append(Series("best constant", ends, "c"))
        x = Axis.over([point[0] for point in points], "rows", log=True, show=plain_count)
        inside = [
            replace(each, points=[point for point in each.points if point[1] <= y.high])
            for each in series
        ]
        charts.append(line_chart(f"{label} by rows", x, y, inside))
    more = " In later passes they have been seen: that is a training error." if later else ""
    note = f"<p>Each row is predicted before it is learned from.{more}</p>"
    return section("Learning curve", grid(*charts), note if charts else "")


def _between(points: Sequence[tuple[Any, ...]], place: int) -> Iterator[tuple[float, float]]:
    """Means over the rows between two points of a pass."""
    weight_before, sum_before = 0.0, 0.0
    for point in points:
        rows, _, weight, mean = point[0], point[1], point[2], point[place]
        if weight > weight_before:
            yield rows, max(0.0, (weight * mean - sum_before) / (weight - weight_before))
        weight_before, sum_before = weight, weight * mean


def sweep(document: Document) -> str:
    """Error, or else loss, against the number of non-zero weights, and the settings."""
    entries = document.get("sweep") or ()
    held = any(entry.get("holdout") for entry in entries)
    measured = [_measured(entry, held=held) for entry in entries if entry.get("nonzeros")]
    if not measured:
        return ""
    has_error = measured[0]["error"] is not None
    key, show = ("error", plain_percent) if has_error else ("loss", plain_number)
    points = sorted((entry["nonzeros"], entry[key], entry["penalty"]) for entry in measured)
    label = f"{key} on the rows held out" if held else f"{key} before learning"
    line = Series(
        "",
        [(x, y) for x, y, _ in points],
        dots=True,
        labels=[penalty or "no penalty" for *_, penalty in points],
    )
    chart = line_chart(
        f"{label} against non-zero weights",
        Axis.over([x for x, *_ in points], "non-zero weights", log=True, show=plain_count),
        Axis.over([y for _, y, _ in points], label, show=show),
        [line],
    )
    heads = ("loss", "step_size", "l1", "l2", "rows", "progressive_loss", "progressive_error",
             "nonzeros", label)  # fmt: skip
    shown = [{**entry, label: _measured(entry, held=held)[key]} for entry in entries]
    shows: dict[str, Callable[[Any], str]] = dict.fromkeys(("rows", "nonzeros"), "{:,}".format)
    shows |= {"progressive_error": percent, label: percent if has_error else significant}
    rows = [
        [text_or_empty(entry.get(name), shows.get(name, number_text)) for name in heads]
        for entry in shown
    ]
    names = [name.replace("_", " ") for name in heads]
    return section("Settings that were tried", grid(chart), number_table(names, rows))


def _measured(entry: Mapping[str, Any], *, held: bool) -> dict[str, Any]:
    """Return the error and the loss by which a setting is compared, and its penalties."""
    source = (entry.get("holdout") or {}) if held else entry
    prefix = "" if held else "progressive_"
    numbers = {key: source.get(prefix + key) for key in ("error", "loss")}
    penalty = ", ".join(f"{name} {entry[name]:.3g}" for name in ("l1", "l2") if entry[name])
    return {"nonzeros": entry.get("nonzeros"), "penalty": penalty, **numbers}


def timings(document: Document) -> str:
    """Time of each part of the work, and the passes."""
    training = document.get("training") or {}
    seconds = training.get("seconds_by_part") or {}
    parts = [(name, seconds[name]) for name in _PARTS if seconds.get(name)]
    bar = bar_row(parts) if parts else ""
    note = "<p>Time of all threads and workers, by part.</p>" if parts else ""
    passes = training.get("by_pass") or ()
    rows = [
        (
            f"pass {number}",
            f"{each['rows']:,}",
            short(each["nnz"]),
            significant(each["loss"]),
            text_or_empty(each["error"], percent),
        )
        for number, each in enumerate(passes, start=1)
    ]
    table = number_table(("", "rows", "non-zeros", "loss", "error"), rows) if len(rows) > 1 else ""
    return section("Time and passes", bar, note, table)


def settings(document: Document) -> str:
    """Data, and the settings that are not defaults."""
    data, model = document.get("data") or {}, document.get("model") or {}
    training = document.get("training") or {}
    url = data.get("url")
    rows = [("data", ", ".join(url) if isinstance(url, list) else str(url or "memory"))]
    rows += (
        [("source", features_text(model["feature_space"]))] if model.get("feature_space") else []
    )
    for column in model.get("labels") or ():
        values = column["values"] or {}
        texts = [name if count is None else f"{name} ({count:,})" for name, count in values.items()]
        more = f", and {len(texts) - 10:,} more" if len(texts) > 10 else ""
        if texts:
            rows.append(
                (f"labels {column['name']}".removesuffix(" label"), ", ".join(texts[:10]) + more)
            )
    rows += [("features", f"{model['features']:,}")] if model else []
    if training.get("step_size") is not None:
        rows.append(("step size", f"{training['step_size']:.4g}"))
    for name, value in (document.get("settings") or {}).items():
        if name != "step_size":
            rows.append((name.replace("_", " "), number_text(value)))
    if training.get("skipped"):
        rows.append(("partitions left out", f"{training['skipped']:,}"))
    rows += [("digest of the model", model["digest"][:16])] if model.get("digest") else []
    return section("Data and settings", facts_table(rows))


def workers(document: Document) -> str:
    """Workers of the cluster now."""
    rows = [
        (
            str(each["address"]),
            f"{each['threads']}",
            text_or_empty(each.get("memory"), lambda size: f"{size / 2**30:.2f} GiB"),
            text_or_empty(each.get("limit"), lambda size: f"{size / 2**30:.2f} GiB"),
        )
        for each in document.get("workers") or ()
    ]
    heads = ("worker", "threads", "memory", "limit")
    return section("Workers", number_table(heads, rows) if rows else "")


def checkpoints(document: Document) -> str:
    """Checkpoints of the run, newest first."""
    rows = [
        (
            f"{each['steps']:,}",
            text_or_empty(each.get("rows"), lambda number: f"{number:,}"),
            text_or_empty(each.get("bytes"), lambda size: f"{size / 1e6:,.1f} MB"),
            str(each.get("created") or "")[:19].replace("T", " "),
        )
        for each in document.get("checkpoints") or ()
    ]
    return section(
        "Checkpoints", number_table(("step", "rows", "size", "written"), rows) if rows else ""
    )


def again(document: Document) -> str:
    """Commands that make the model again."""
    lines = "\n".join(document.get("again") or ())
    note = f"<p>With dadagrad {escape(document['library'])}.</p>" if lines else ""
    return section(
        "Make it again", f"<pre><code>{escape(lines)}</code></pre>" if lines else "", note
    )


SECTIONS = (
    learning, sweep, holdout, weights, timings, workers, checkpoints, settings, again,
)  # fmt: skip
"""Functions that return a section of a document, or nothing, in the order of the page."""
