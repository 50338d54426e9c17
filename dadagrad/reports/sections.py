"""Content of the sections of a page: charts, and tables as rows of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.filesize import decimal

from dadagrad.data.feature_space import FeatureSpace
from dadagrad.model.facts import MAX_OUTPUTS
from dadagrad.reports.charts import Axis, Chart, Series, plain_count, plain_number, plain_percent
from dadagrad.reports.document import Document
from dadagrad.summary import last_part, listed, percent, short, significant, three, urls_text


def amount(value: float) -> str:
    """A loss or a distance; above 1,000 as a count, such as 118 k."""
    return short(value) if 1e3 <= value < 1e12 else significant(value)


MEASURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "loss": ("loss", amount), "error": ("error", percent), "auc": ("AUC", three),
    "pr_auc": ("PR-AUC", three), "f1": ("F1", three), "log_loss": ("log loss", significant),
    "calibration_error": ("calibration error", three), "rmse": ("RMSE", amount),
    "mae": ("MAE", amount), "r2": ("R²", three), "ndcg": ("NDCG@10", three),
}  # fmt: skip
"""Measures of held-out rows: their names, and the functions that format them."""

_POINT = ("rows", "pass_number", "weight", "loss", "error")
_PARTS = ("read", "learn", "exchange", "merge", "save", "coordinate")
_CURVES = (
    ("roc", "ROC curve", "false positive rate", "true positive rate", True),
    ("precision_recall", "Precision and recall", "recall", "precision", False),
    ("calibration", "Calibration", "probability of the predicted class",
     "share of right predictions", True),
)  # fmt: skip
"""Name in the document, title, axes, and True for a diagonal, of each chart of held-out rows."""
_MAX_CONFUSION = 12  # classes up to which the confusion matrix is drawn
_MAX_SIDE_BY_SIDE = 4  # classes up to which it fits beside another table


def view(document: Document) -> dict[str, Any]:
    """The content of each section by its name in the template; it is empty without any."""
    training = document.get("training") or {}
    seconds = training.get("seconds_by_part") or {}
    total = sum(seconds.get(name) or 0.0 for name in _PARTS)
    return {
        "learning": _learning(document),
        "sweep": sweep(document.get("sweep") or ()),
        "holdout": _holdout(document.get("holdout") or {}),
        "weights": [
            output
            for output in (document.get("weights") or ())[:MAX_OUTPUTS]
            if output["for"] or output["against"]
        ],
        "outputs_left_out": max(0, len(document.get("weights") or ()) - MAX_OUTPUTS),
        "parts": [(name, seconds[name] / total) for name in _PARTS if seconds.get(name)],
        "passes": _passes(training.get("by_pass") or ()),
        "workers": [
            (
                each["address"].partition("://")[2],
                f"{each['threads']}",
                _text(each["memory"], lambda size: decimal(size, precision=0)),
                percent((each["memory"] or 0) / each["limit"]) if each["limit"] else "",
            )
            for each in document.get("workers") or ()
        ],
        "checkpoints": _checkpoints(document.get("checkpoints") or ()),
        "settings": _settings(document),
    }


def _learning(document: Document) -> dict[str, Any] | None:
    """Error and loss as rows go by, first of new rows, then of rows that have been seen."""
    curve = document.get("curve") or {}
    columns = (curve.get(name, ()) for name in _POINT)
    points = [dict(zip(_POINT, values, strict=True)) for values in zip(*columns, strict=True)]
    first = [point for point in points if point["pass_number"] == 1]
    later = [point for point in points if point["pass_number"] > 1]
    if len(points) < 2 or not first:
        return None
    training = document.get("training") or {}
    charts = []
    rows = [point["rows"] for point in points]
    kinds = ("error", "error", plain_percent), ("loss", "mean loss", plain_number)
    for key, label, show in kinds:
        if first[0][key] is None:
            continue
        series = [Series("first pass so far", _line(first, key), "a")]
        if len(first) > 1:
            series.insert(0, Series("since the last point", list(_since_last(first, key)), "b"))
        if later:
            series.append(Series("later passes (training)", _line(later, key), "d"))
        # The first of many points, of few rows, may be far above all others.
        shown = [y for each in series for _, y in each.points[min(2, len(each.points) // 8) :]]
        y = Axis.over(shown, label, show=show)
        constant = training.get(f"constant_{key}")
        if constant is not None and constant <= 1.5 * y.high:
            y = Axis.over([*shown, constant], label, show=show)
            ends = [(rows[0], constant), (rows[-1], constant)]
            series.append(Series("best constant", ends, "c"))
        x = Axis.over(rows, "rows", log=True, show=plain_count)
        inside = [
            replace(each, points=[point for point in each.points if point[1] <= y.high])
            for each in series
        ]
        charts.append(Chart(f"{label} by rows", x, y, inside))
    return {"charts": charts, "later": bool(later)} if charts else None


def _line(points: Sequence[Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    return [(point["rows"], point[key]) for point in points]


def _since_last(points: Sequence[Mapping[str, Any]], key: str) -> Iterator[tuple[float, float]]:
    """Means over the rows since the last point, a quarter of them at least: few are noise."""
    weight_before, sum_before = 0.0, 0.0
    for point in points:
        weight, mean = point["weight"], point[key]
        if weight > 1.25 * weight_before:
            yield point["rows"], max(0.0, (weight * mean - sum_before) / (weight - weight_before))
            weight_before, sum_before = weight, weight * mean


def sweep(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Error, or else loss, against the number of non-zero weights, and the settings."""
    on_holdout = any(entry.get("holdout") for entry in entries)
    measured = [_measured(entry, on_holdout=on_holdout) for entry in entries]
    drawn = [each for each in measured if each["nonzeros"]]
    if not drawn:
        return None
    has_error = drawn[0]["error"] is not None
    key, show = ("error", plain_percent) if has_error else ("loss", plain_number)
    points = sorted((each["nonzeros"], each[key], each["penalty"]) for each in drawn)
    label = f"{key} on the rows held out" if on_holdout else f"{key} before learning"
    line = Series(
        "",
        [(x, y) for x, y, _ in points],
        dots=True,
        labels=[penalty or "no penalty" for *_, penalty in points],
    )
    chart = Chart(
        f"{label} against non-zero weights",
        Axis.over([x for x, *_ in points], "non-zero weights", log=True, show=plain_count),
        Axis.over([y for _, y, _ in points], label, show=show),
        [line],
    )
    shows: dict[str, Callable[[Any], str]] = dict.fromkeys(
        ("loss", "step_size", "l1", "l2", "rows", "progressive_loss"), _setting_text
    )
    shows |= {"rows": _grouped, "progressive_error": percent, "nonzeros": _grouped}
    shows[label] = percent if has_error else amount
    rows = [
        [_text({**entry, label: each[key]}.get(name), show) for name, show in shows.items()]
        for entry, each in zip(entries, measured, strict=True)
    ]
    return {
        "chart": chart,
        "heads": [name.replace("nonzeros", "non-zero weights").replace("_", " ") for name in shows],
        "rows": rows,
    }


def _measured(entry: Mapping[str, Any], *, on_holdout: bool) -> dict[str, Any]:
    """Return the error and the loss by which a setting is compared, and its penalties."""
    source = (entry.get("holdout") or {}) if on_holdout else entry
    prefix = "" if on_holdout else "progressive_"
    numbers = {key: source.get(prefix + key) for key in ("error", "loss")}
    penalty = ", ".join(f"{name} {entry[name]:.3g}" for name in ("l1", "l2") if entry[name])
    return {"nonzeros": entry.get("nonzeros"), "penalty": penalty, **numbers}


def _holdout(holdout: Mapping[str, Any]) -> dict[str, Any] | None:
    if not holdout:
        return None
    curves, classes = holdout.get("curves") or {}, holdout.get("classes") or {}
    source = holdout.get("data")
    return {
        "title": f"Holdout: {last_part(source)}" if source not in (None, "memory") else "Holdout",
        "charts": [
            _curve_chart(name, title, x, y, curves[name], has_diagonal=has_diagonal)
            for name, title, x, y, has_diagonal in _CURVES
            if curves.get(name)
        ],
        "facts": [
            (name, show(holdout[key]))
            for key, (name, show) in MEASURES.items()
            if holdout.get(key) is not None
        ],
        "confusion": _confusion(holdout.get("confusion") or (), classes),
        "classes": [
            (
                name,
                *(three(facts[key]) for key in ("precision", "recall", "f1")),
                f"{facts['weight']:,.0f}",
            )
            for name, facts in classes.items()
        ],
        "side_by_side": len(classes) <= _MAX_SIDE_BY_SIDE,
    }


def _curve_chart(
    name: str, title: str, x: str, y: str, points: Any, *, has_diagonal: bool
) -> Chart:
    diagonal = [Series("", [(0.0, 0.0), (1.0, 1.0)], "c")] if has_diagonal else []
    is_calibration = name == "calibration"
    if is_calibration:  # the share of a few rows says nothing
        least = 0.01 * sum(weight for *_, weight in points)
        points = [point for point in points if point[2] >= least]
    curve = Series("", [(a, b) for a, b, *_ in points], dots=is_calibration)
    return Chart(title, Axis(x, 0.0, 1.0), Axis(y, 0.0, 1.0), [*diagonal, curve])


def _confusion(
    matrix: Sequence[Sequence[float]], names: Mapping[str, Any]
) -> list[tuple[str, list[tuple[str, float]]]]:
    """Name of each class, and its rows by predicted class with their shares; empty if too large."""
    if len(matrix) > _MAX_CONFUSION:
        return []
    return [
        (name, [(f"{value:,.0f}", value / (sum(row) or 1.0)) for value in row])
        for name, row in zip(names if matrix else (), matrix, strict=True)
    ]


def _passes(passes: Sequence[Mapping[str, Any]]) -> list[Sequence[str]]:
    return [
        (
            f"pass {number}",
            f"{each['rows']:,}",
            short(each["nnz"]),
            _text(each["loss"], amount),
            _text(each["error"], percent),
        )
        for number, each in enumerate(passes if len(passes) > 1 else (), start=1)
    ]


def _checkpoints(checkpoints: Sequence[Mapping[str, Any]]) -> list[Sequence[str]]:
    """Rows of a table of checkpoints, newest first."""
    return [
        (
            f"{each['steps']:,}",
            _text(each.get("rows"), _grouped),
            _text(each.get("bytes"), decimal),
            str(each.get("created") or "")[:16].replace("T", " "),
        )
        for each in checkpoints
    ]


def _settings(document: Document) -> list[tuple[str, str]]:
    """Data, and the settings that are not defaults."""
    data, model = document.get("data") or {}, document.get("model") or {}
    training = document.get("training") or {}
    url = data.get("url")
    rows = [("data", urls_text(url or "memory"))]
    if space := FeatureSpace(model.get("feature_space") or {}):
        rows.append(("source", str(space)))
    for column in model.get("labels") or ():
        values = column["values"] or {}
        # From right to left, if it is written so.
        names = [f"\u2068{name}\u2069" for name in values]
        if model.get("task") == "regression" and names:
            names, values = [f"{names[0]} to {names[-1]}"], {"": None}
        texts = [
            name if count is None else f"{name} ({count:,})"
            for name, count in zip(names, values.values(), strict=True)
        ]
        if texts:
            rows.append((f"labels {column['name']}".removesuffix(" label"), listed(texts)))
    rows += [("features", f"{model['features']:,}")] if model else []
    if training.get("step_size") is not None:
        rows.append(("step size", f"{training['step_size']:.4g}"))
    for name, value in (document.get("settings") or {}).items():
        if name != "step_size":
            rows.append((name.replace("_", " "), _setting_text(value)))
    if training.get("skipped"):
        rows.append(("partitions left out", f"{training['skipped']:,}"))
    rows += [("digest of the model", model["digest"][:16])] if model.get("digest") else []
    return rows


def _text(value: Any, show: Callable[[Any], str]) -> str:
    """A value as `show` formats it; None as nothing."""
    return "" if value is None else show(value)


def _grouped(number: int) -> str:
    return f"{number:,}"


def _setting_text(value: Any) -> str:
    """A setting as text; floats with four digits, None as nothing."""
    return f"{value:.4g}" if isinstance(value, float) else _text(value, str)
