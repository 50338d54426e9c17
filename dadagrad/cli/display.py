"""Output of commands: progress and messages on stderr, results on stdout."""

from __future__ import annotations

import logging
import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from textwrap import wrap
from typing import Any

import click
from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from dadagrad.cli.progress import (
    LINE_SECONDS,
    PLAIN_SECONDS,
    Bar,
    RunBar,
    RunTable,
    Start,
    live_line,
)
from dadagrad.storage.documents import strict_json
from dadagrad.summary import wrapped


class Display:
    """Messages, progress and the result of a command.

    Parameters
    ----------
    quiet : bool
        Show warnings and the result only.
    as_json : bool
        Print the result as one JSON object.
    progress : "line", "table" or None
        Show progress in one line of a terminal, or as a table; None chooses by the terminal.
    """

    def __init__(
        self, *, quiet: bool = False, as_json: bool = False, progress: str | None = None
    ) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.as_json = as_json
        self._quiet = quiet
        is_terminal = self.console.is_terminal or self.console.is_jupyter
        self._as_table = progress == "table" or not (progress == "line" or is_terminal)

    def say(self, message: str) -> None:
        """Show one line, unless the command is quiet."""
        if not self._quiet:
            self._print(message)

    def warn(self, message: str) -> None:
        """Show one line, also if the command is quiet."""
        self._print(f"warning: {message}")

    def _print(self, message: str) -> None:
        # Markup would read [0, 1] as a style, and wrapping would cut lines that are searched for.
        self.console.print(Text(message), soft_wrap=True)

    def show_result(self, result: Mapping[str, Any], *, n_bytes: tuple[str, ...] = ()) -> None:
        """Print the result to stdout; people read the entries `n_bytes` with their unit."""
        if self.as_json:
            print_json(result)
        else:
            print_facts({**result, **{name: decimal(result[name]) for name in n_bytes}})

    def show_lines(self, lines: Iterable[str]) -> None:
        """Print lines to stdout, wrapped to the width of a terminal."""
        for line in lines:
            click.echo("\n".join(wrapped(line, output_width())))

    @contextmanager
    def showing_logs(self) -> Iterator[None]:
        """Show the library's warnings and its messages about checkpoints within the context."""
        logger = logging.getLogger("dadagrad")
        handler = _LogLines(self)
        before = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.setLevel(before)
            logger.removeHandler(handler)

    @contextmanager
    def bar(self, title: str, *, unit: str = "rows", start: Start | None = None) -> Iterator[Bar]:
        """Yield a bar to be updated; `start` is the part that was done before."""
        start = start or Start()
        if self._quiet:
            yield Bar(lambda line: None, math.inf, title, unit, start)
        elif self._as_table:
            yield Bar(lambda line: self.say(str(line)), PLAIN_SECONDS, title, unit, start)
        else:
            with live_line(self.console) as show:
                yield Bar(show, LINE_SECONDS, title, unit, start)

    @contextmanager
    def run(self, start: Start, *, has_errors: bool) -> Iterator[RunBar | RunTable]:
        """Yield the progress of a run, to be updated with the ends of its rounds."""
        if self._as_table and not self._quiet:
            yield RunTable(self.say, start, has_errors=has_errors)
        else:
            with self.bar("pass 1", start=start) as bar:
                yield RunBar(bar)


class _LogLines(logging.Handler):
    """Handler that shows each log record as one line of a display."""

    def __init__(self, display: Display) -> None:
        super().__init__(logging.INFO)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        message = " ".join(record.getMessage().split())
        if record.levelno >= logging.WARNING:
            self._display.warn(message)
        elif record.name.startswith("dadagrad.training.checkpoints.writer"):
            self._display.say(message)


def output_width() -> int:
    """Columns of stdout; without a terminal, lines are not cut."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return shutil.get_terminal_size().columns if known else 10_000


def number(value: object) -> str:
    """Format a number for people; None is a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.5g}"


def print_json(result: Mapping[str, Any]) -> None:
    """Print one JSON object to stdout; infinities and NaN become null."""
    click.echo(strict_json(result))


def print_facts(facts: Mapping[str, object], *, title: str = "") -> None:
    """Print names and values to stdout, one a line and aligned; with a title, below it."""
    if title:
        click.echo(f"\n{title}")
    names = max((len(name) for name in facts), default=0)
    indent = "  " if title else ""
    width = max(20, output_width() - names - len(indent) - 2)
    for name, value in facts.items():
        first, *others = wrap(
            number(value), width, break_on_hyphens=False, break_long_words=False
        ) or [""]
        click.echo(f"{indent}{name:<{names}}  {first}".rstrip())
        for line in others:
            click.echo(f"{indent}{'':<{names}}  {line}")
