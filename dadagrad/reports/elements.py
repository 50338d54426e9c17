"""Elements of the page of a report, whose texts are escaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any


def three(value: float) -> str:
    """A share with three digits after the point."""
    return f"{value:.3f}"


def last_part(url: Any) -> str:
    """The last parts of one path or URL, or of several."""
    urls = url if isinstance(url, list) else [url]
    return ", ".join(str(each).rstrip("/").rpartition("/")[2] for each in urls)


def section(name: str, *parts: str) -> str:
    """A section of its parts; nothing without content."""
    body = "".join(parts)
    return f"<section><h2>{escape(name)}</h2>{body}</section>" if body else ""


def grid(*parts: str) -> str:
    """Parts side by side where there is space."""
    shown = "".join(f"<figure>{part}</figure>" for part in parts if part)
    return f'<div class="grid2">{shown}</div>' if shown else ""


def number_text(value: Any) -> str:
    """A setting as text; floats with four digits, None as nothing."""
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def text_or_empty(value: Any, show: Callable[[Any], str]) -> str:
    """A value as `show` formats it; None as nothing."""
    return "" if value is None else show(value)


def facts_table(facts: Sequence[tuple[str, str]]) -> str:
    """A table of names and values; nothing without any."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts
    )
    return f'<table class="facts-table"><tbody>{rows}</tbody></table>' if rows else ""


def number_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table without the columns that are empty."""
    kept = [number for number in range(len(heads)) if any(row[number] for row in rows)]
    head = "".join(f'<th scope="col">{escape(heads[number])}</th>' for number in kept)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(row[number])}</td>" for number in kept) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table class="numbers"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
