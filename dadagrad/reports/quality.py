"""Quality on held-out rows, and the largest weights, as sections of the page of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from dadagrad.reports.charts import Axis, Series, line_chart, plain_number
from dadagrad.reports.elements import facts_table, grid, last_part, number_table, section, three
from dadagrad.summary import percent, significant

Document = Mapping[str, Any]

_CURVES = (
    ("roc", "ROC curve", "false positive rate", "true positive rate", 0, False),
    ("precision_recall", "precision and recall", "recall", "precision", 1, False),
    ("calibration", "calibration", "probability of the predicted class",
     "share of right predictions", 0, True),
)  # fmt: skip
"""Name in the document, title, axes, 1 without a diagonal, and dots of each chart."""
_DIAGONAL = (Series("", [(0.0, 0.0), (1.0, 1.0)], "c"),)
_METRICS = {
    "loss": significant, "error": percent, "auc": three, "pr_auc": three, "f1": three,
    "log_loss": significant, "calibration_error": three, "rmse": significant, "mae": significant,
    "r2": three, "ndcg": three,
}  # fmt: skip
_MAX_CONFUSION = 12  # classes up to which the confusion matrix is drawn
_MAX_SIDE_BY_SIDE = 4  # classes up to which it fits beside another table


def holdout(document: Document) -> str:
    held = document.get("holdout") or {}
    if not held:
        return ""
    curves = held.get("curves") or {}
    charts = [
        line_chart(title, _unit(x), _unit(y), [*_DIAGONAL[diagonal:], _line(curves[name], dots)])
        for name, title, x, y, diagonal, dots in _CURVES
        if curves.get(name)
    ]
    facts = [
        (name.replace("_", " "), show(held[name]))
        for name, show in _METRICS.items()
        if held.get(name) is not None
    ]
    source = held.get("data")
    title = "Holdout" if source in (None, "rows held out") else f"Holdout: {last_part(source)}"
    tables: tuple[str, ...] = (_confusion(held), _classes(held))
    if len(held.get("classes") or ()) <= _MAX_SIDE_BY_SIDE:
        tables = (grid(*tables),)
    return section(title, grid(*charts, facts_table(facts)), *tables)


def _unit(label: str) -> Axis:
    return Axis(label, 0.0, 1.0, show=plain_number)


def _line(points: Sequence[Sequence[float]], dots: bool) -> Series:
    return Series("", [(point[0], point[1]) for point in points], dots=dots)


def _confusion(held: Mapping[str, Any]) -> str:
    matrix, names = held.get("confusion"), list(held.get("classes") or ())
    if not matrix or len(matrix) > _MAX_CONFUSION:
        return ""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    lines = []
    for name, row in zip(names, matrix, strict=True):
        total = sum(row) or 1.0
        cells = "".join(
            f'<td class="heat" style="--share:{100 * value / total:.0f}%">{value:,.0f}'
            f"<small>{percent(value / total)}</small></td>"
            for value in row
        )
        lines.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    return (
        '<div class="scroll"><table class="confusion"><caption>Rows by true class (lines) and '
        f"predicted class (columns)</caption><thead><tr><td></td>{heads}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _classes(held: Mapping[str, Any]) -> str:
    rows = [
        (
            name,
            *(three(facts[key]) for key in ("precision", "recall", "f1")),
            f"{facts['weight']:,.0f}",
        )
        for name, facts in (held.get("classes") or {}).items()
    ]
    return number_table(("class", "precision", "recall", "F1", "rows"), rows) if rows else ""


def weights(document: Document) -> str:
    """The largest weights of each class, with bars."""
    shown = []
    for entry in document.get("weights") or ():
        largest = max(
            (abs(each["weight"]) for side in ("for", "against") for each in entry[side]),
            default=1.0,
        )
        for title, side in zip(entry["classes"], ("for", "against"), strict=True):
            lines = "".join(
                f'<li><span class="name">{_feature(each)}</span>'
                f'<span class="bar {side}" style="width:{_share(each, largest)}"></span>'
                f'<span class="value">{each["weight"]:+.4g}</span></li>'
                for each in entry[side]
            )
            if lines:
                shown.append(f'<div><h3>{escape(title)}</h3><ol class="weights">{lines}</ol></div>')
    return section("Largest weights", f'<div class="grid2">{"".join(shown)}</div>' if shown else "")


def _share(weight: Mapping[str, Any], largest: float) -> str:
    return f"{100 * abs(weight['weight']) / largest:.1f}%"


def _feature(weight: Mapping[str, Any]) -> str:
    if weight["name"] is None:
        return f"feature {weight['feature']:,}"
    return escape(str(weight["name"]))
