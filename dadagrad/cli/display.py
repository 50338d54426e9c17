"""Output of commands: progress and messages on stderr, results on stdout.

A terminal shows progress as a bar; a file or a pipe receives a plain line every few seconds.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

PLAIN_SECONDS = 5.0
"""Seconds between two lines of progress without a terminal."""
BAR_SECONDS = 0.1
"""Seconds between two updates of a bar."""
STATE_WIDTH = 74
"""Characters of a line of progress beside the bar."""


class Display:
    """Messages and progress of a command, on stderr.

    Parameters
    ----------
    quiet : bool
        Show warnings only.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._quiet = quiet

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
    def bar(self, title: str, total: int, *, unit: str = "rows", done: int = 0) -> Iterator[Bar]:
        """Show progress towards `total`; `done` is the part that was done before."""
        bar = Bar(total, done, unit)
        if self._quiet:
            yield bar
        elif not self.console.is_terminal:
            bar.seconds = PLAIN_SECONDS
            bar.show = lambda state: self.say(f"{title}: {state}")
            yield bar
        else:
            bar.seconds = BAR_SECONDS
            state_column = Column(ratio=1, no_wrap=True, overflow="ellipsis")
            with Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=min(max(self.console.width - STATE_WIDTH, 6), 30)),
                TextColumn("{task.fields[state]}", markup=False, table_column=state_column),
                TimeRemainingColumn(compact=True),
                console=self.console,
                transient=True,
                expand=True,
            ) as progress:
                task = progress.add_task(title, total=total or None, completed=done, state="")
                bar.show = lambda state: progress.update(
                    task, completed=bar.done, total=bar.total or None, state=state
                )
                yield bar


@dataclass
class Bar:
    """Progress in "rows" or "bytes" that is shown at most every `seconds`.

    `total` is the amount at the end, 0 if it is not known; `show` receives a line of text.
    """

    total: int
    done: int
    unit: str
    seconds: float = math.inf
    show: Callable[[str], None] = lambda state: None

    def __post_init__(self) -> None:
        self._done_before = self.done
        self._begun = self._last = time.monotonic()

    def update(self, done: int, note: str = "", *, total: int | None = None) -> None:
        """Record that `done` is done; `note` follows it on the line."""
        self.done = done
        self.total = self.total if total is None else total
        now = time.monotonic()
        at_end = done >= self.total > 0 and self.seconds < 1.0
        if now - self._last >= self.seconds or at_end:
            self._last = now
            rate = (done - self._done_before) / max(now - self._begun, 1e-9)
            self.show(f"{self._state(rate)}{note}")

    def _state(self, rate: float) -> str:
        if self.unit == "bytes":
            total = f" of {decimal(self.total)}" if self.total else ""
            return f"{decimal(self.done)}{total}, {decimal(int(rate))}/s"
        total = f" of {self.total:,}" if self.total else ""
        return f"{self.done:,}{total} {self.unit}, {rate:,.0f}/s"


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
    click.echo(json.dumps(_plain(result), allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def print_facts(facts: Mapping[str, object], *, title: str = "") -> None:
    """Print names and values to stdout, one a line and aligned; with a title, below it."""
    if title:
        click.echo(f"\n{title}")
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        click.echo(f"{'  ' if title else ''}{name:<{width}}  {number(value)}")
