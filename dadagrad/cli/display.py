"""Output of commands: progress and messages on stderr, results on stdout."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import Any

import click
from rich.filesize import decimal

from dadagrad.progress.display import ProgressDisplay
from dadagrad.storage.documents import strict_json
from dadagrad.summary import printable, wrapped


class Display(ProgressDisplay):
    """Messages, progress and the result of a command, which may be one JSON object."""

    def __init__(
        self, *, quiet: bool = False, as_json: bool = False, progress: str | None = None
    ) -> None:
        super().__init__(quiet=quiet, progress=progress)
        self.as_json = as_json

    def show_result(self, result: Mapping[str, Any], **shown: object) -> None:
        """Print the result to stdout; people read what is `shown` instead of some entries."""
        if self.as_json:
            print_json(result)
        else:
            print_facts({**result, **shown})

    def show_lines(self, lines: Iterable[str]) -> None:
        """Print lines to stdout, wrapped to the width of a terminal."""
        for line in lines:
            click.echo("\n".join(wrapped(line, output_width())))


def output_width() -> int:
    """Columns of stdout; without a terminal, lines are not cut."""
    has_width = (sys.stdout is not None and sys.stdout.isatty()) or "COLUMNS" in os.environ
    return shutil.get_terminal_size().columns if has_width else 10_000


def number(value: object) -> str:
    """Format a number for people; None is a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:.5g}"


def size_text(n_bytes: int | None) -> str | None:
    """Format a number of bytes for people, if it is known."""
    return None if n_bytes is None else decimal(n_bytes)


def print_json(result: Mapping[str, Any]) -> None:
    """Print one JSON object to stdout; infinities and NaN become null."""
    click.echo(strict_json(result))


def print_facts(facts: Mapping[str, object], *, title: str = "") -> None:
    """Print names and values to stdout, one a line and aligned; with a title, below it.

    Those that are None are left out.
    """
    facts = {name: value for name, value in facts.items() if value is not None}
    if title:
        click.echo(f"\n{printable(title)}")
    names = max((len(name) for name in facts), default=0)
    indent = "  " if title else ""
    width = max(20, output_width() - names - len(indent) - 2)
    for name, value in facts.items():
        lines = wrap(number(value), width, break_on_hyphens=False, break_long_words=False)
        first, *others = map(printable, lines or [""])
        click.echo(f"{indent}{name:<{names}}  {first}".rstrip())
        for line in others:
            click.echo(f"{indent}{'':<{names}}  {line}")
