"""Numbers, results and objects as texts for people, on the command line and in notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import zip_longest
from textwrap import wrap
from typing import Any

_SWEPT = ("step_size", "l1", "l2")


def utf8(text: str) -> str:
    """`text` with escapes for what UTF-8 cannot have, such as bytes of the names of some files."""
    return text.encode(errors="backslashreplace").decode()


def percent(share: float) -> str:
    """A share as a percentage with three digits, at most two of them after the point."""
    shown = 100 * share
    return f"{shown:.{0 if shown == 0 else 1 if shown >= 1 else 2}f} %"


def significant(value: float) -> str:
    """A loss with three significant digits, or all before the point."""
    if 999.5 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".") if 1e-4 <= abs(value) < 999.5 else f"{value:.3g}"


def three(value: float) -> str:
    """A share with three digits after the point."""
    return f"{value:.3f}"


def number_text(number: float) -> str:
    """A label that is a number as text."""
    return str(int(number)) if float(number).is_integer() else repr(float(number))


def printable(text: str) -> str:
    """`text` on one line, with escapes in the place of characters that control a terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def short(amount: float) -> str:
    """A count with three significant digits, such as 471 k and 8.76 M; below 10,000 in full."""
    if amount < 9999.5:
        return f"{amount:,.0f}"
    units = iter("kMG")
    while amount >= 999.5 and (unit := next(units, None)) is not None:
        amount, shown = amount / 1000.0, unit
    return f"{amount:,.{2 if amount < 9.995 else 1 if amount < 99.95 else 0}f} {shown}"


def duration(seconds: float) -> str:
    """A time in milliseconds, seconds, minutes or hours."""
    if seconds < 0.1:
        return f"{1000.0 * seconds:.0f} ms"
    if seconds < 100.0:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"


def counted(number: int, name: str) -> str:
    """A number of things, such as "1 pass" and "3 passes"."""
    plural = f"{name}es" if name.endswith("s") else f"{name}s"
    return f"{number:,} {name if number == 1 else plural}"


def urls_text(urls: str | Sequence[str]) -> str:
    """A path or URL, or several."""
    return urls if isinstance(urls, str) else ", ".join(urls)


def last_part(url: Any) -> str:
    """The last parts of one path or URL, or of several."""
    urls = url if isinstance(url, list) else [url]
    return ", ".join(str(each).rstrip("/").rpartition("/")[2] for each in urls)


def listed(items: Sequence[str | float], most: int = 10) -> str:
    """The first texts or numbers, and the number of those left out."""
    more = f", and {len(items) - most:,} more" if len(items) > most else ""
    texts = [f"{item:g}" if isinstance(item, float) else str(item) for item in items[:most]]
    return ", ".join(texts) + more


def run_lines(report: Mapping[str, Any], loss: str, *, auto: bool = False) -> list[str]:
    """The report of a run in lines; `auto` is True if the run has chosen the step size."""
    passes = report["by_pass"]
    if not passes:
        return ["Stopped before the first row"]
    first, last = passes[0], passes[-1]
    lines = [
        f"Trained on {counted(first['rows'], 'row')} ({short(first['nnz'])} non-zeros) in "
        f"{duration(report['seconds'])}: {short(report['rows_per_second'])} rows/s"
    ]
    facts = [*facts_before_learning(report, loss)]
    if len(passes) > 1:
        name = "error" if last["error"] is not None else "loss"
        shown = percent(last[name]) if name == "error" else significant(last[name])
        facts.append((f"training {name}, last pass", shown, ""))
    lines += [f"  {name:<25} {value:<9} {best}".rstrip() for name, value, best in facts]
    return [*lines, *_alternatives(report), f"  {_settings_text(report, auto)}"]


def facts_before_learning(report: Mapping[str, Any], loss: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the value and the best constant of the error and the loss, if known."""
    for name, key, show in (
        ("error before learning", "error", percent),
        (f"{loss} loss", "loss", significant),
    ):
        value, constant = (report.get(f"{kind}_{key}") for kind in ("progressive", "constant"))
        if value is not None:
            yield name, show(value), "" if constant is None else f"best constant {show(constant)}"


def _alternatives(report: Mapping[str, Any]) -> list[str]:
    """A line for each of several settings that were learned side by side."""
    lines = []
    for number, setting in enumerate(report["settings"] if len(report["settings"]) > 1 else ()):
        texts = [f"{name} {value:.4g}" for name, value in setting.items() if name in _SWEPT]
        loss, error = setting["progressive_loss"], setting["progressive_error"]
        measured = "diverged" if loss is None else f"loss {significant(loss)}"
        measured += "" if error is None else f", error {percent(error)}"
        model = " (the model)" if number == report["best"] else ""
        lines.append(f"  setting {number}{model}: {', '.join(texts)}: {measured}")
    return lines


def _settings_text(report: Mapping[str, Any], auto: bool) -> str:
    texts = []
    if report["step_size"] is not None:
        average = " of averaged weights" * report.get("average", False)
        texts.append(f"step size {report['step_size']:.4g}{average}{' (auto)' * auto}")
    texts.append(counted(report["passes"], "pass"))
    if report["batch_size"] > 1:
        texts.append(f"batches of {counted(report['batch_size'], 'row')}")
    if report["streams"] > 1:
        texts.append(f"{report['streams']} streams")
    weights = report["features"] * report["outputs"]
    texts.append(f"{short(report['nonzeros'])} of {short(weights)} weights")
    if report["skipped"]:
        texts.append(f"{counted(report['skipped'], 'partition')} left out")
    return ", ".join(texts)


def metrics_text(measured: Mapping[str, Any], loss: str) -> str:
    """The measures of an evaluation in one line."""
    texts = []
    if measured.get("error") is not None:
        texts.append(f"{percent(measured['error'])} error")
    for name, shown in (("auc", "AUC"), ("ndcg", "NDCG@10")):
        if measured.get(name) is not None:
            texts.append(f"{shown} {measured[name]:.3f}")
    if loss == "squared" and measured.get("r2") is not None:
        texts += [f"RMSE {significant(measured['rmse'])}", f"R2 {measured['r2']:.3f}"]
    if len(texts) < 2:
        texts.append(f"{loss} loss {significant(measured['loss'])}")
    return ", ".join(texts)


def wrapped(line: str, width: int) -> list[str]:
    """A line cut at spaces where it is wider than `width`; its continuation is indented."""
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return wrap(
        line, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def side_by_side(sides: Sequence[Sequence[str]], width: int) -> str:
    """Two columns of lines that fit the width; longer lines are cut."""
    column = min((width - 2) // 2, max(len(line) for lines in sides for line in lines))
    cut = [
        [line if len(line) <= column else f"{line[: column - 3]}..." for line in lines]
        for lines in sides
    ]
    rows = zip_longest(*cut, fillvalue="")
    return "\n".join(f"{left:<{column}}  {right}".rstrip() for left, right in rows)


def html_table(title: str, facts: Mapping[str, object]) -> str:
    """A table of facts for a notebook; its colours are those of the page."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in facts.items()
    )
    return f"<div><b>{escape(title)}</b><table><tbody>{rows}</tbody></table></div>"
