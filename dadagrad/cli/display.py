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
    """Messages, progress and the result of a command.

    Parameters
    ----------
    quiet : bool
        Show warnings and the result only.
    as_json : bool
        Print the result as one JSON object.
    """

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.as_json = as_json
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

    def show_result(self, result: Mapping[str, Any], *, n_bytes: tuple[str, ...] = ()) -> None:
        """Print the result to stdout; people read the entries `n_bytes` with their unit."""
        if self.as_json:
            print_json(result)
        else:
            print_facts({**result, **{name: decimal(result[name]) for name in n_bytes}})

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
    def bar(self, title: str, *, unit: str = "rows", done: int = 0) -> Iterator[Bar]:
        """Yield a bar to be updated; `done` is the part that was done before."""
        if self._quiet:
            yield Bar(lambda bar, state: None, math.inf, unit, done)
        elif not self.console.is_terminal:
            yield Bar(lambda bar, state: self.say(f"{title}: {state}"), PLAIN_SECONDS, unit, done)
        else:
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
                task = progress.add_task(title, total=None, completed=done, state="")

                def show(bar: Bar, state: str) -> None:
                    total = bar.total or None
                    progress.update(task, completed=bar.done, total=total, state=state)

                yield Bar(show, BAR_SECONDS, unit, done)


@dataclass
class Bar:
    """Progress, which `show` receives as a line of text at most every `seconds`."""

    show: Callable[[Bar, str], None]
    seconds: float
    unit: str
    done: int
    total: int = 0

    def __post_init__(self) -> None:
        self._done_before = self.done
        self._begun = self._last = time.monotonic()

    def update(self, done: int, total: int, note: str = "") -> None:
        """Record that `done` of `total` rows or bytes are done; a total of 0 is unknown."""
        self.done, self.total = done, total
        now = time.monotonic()
        at_end = done >= total > 0 and self.seconds < 1.0
        if now - self._last >= self.seconds or at_end:
            self._last = now
            rate = (done - self._done_before) / max(now - self._begun, 1e-9)
            of_total = f" of {self._amount(total)}" if total else ""
            unit = "" if self.unit == "bytes" else f" {self.unit}"
            self.show(self, f"{self._amount(done)}{of_total}{unit}, {self._amount(rate)}/s{note}")

    def _amount(self, amount: float) -> str:
        return decimal(int(amount)) if self.unit == "bytes" else f"{amount:,.0f}"


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
