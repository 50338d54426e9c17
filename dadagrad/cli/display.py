"""What people see: progress and messages on stderr, results on stdout.

On a terminal there are bars; elsewhere (a file, a pipe, a batch system's log) a plain line every
few seconds.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from dadagrad.amounts import size

PLAIN_SECONDS = 5.0
"""Between two lines of progress where there is no terminal."""

_BAR_SECONDS = 0.1
_STATE_WIDTH = 74
"""Of a line of progress, beside the bar."""


class Display:
    """Tells people how a command is getting on.

    Parameters
    ----------
    quiet : bool
        Show warnings only.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._quiet = quiet

    def say(self, message: str) -> None:
        """One line for people, unless they want quiet."""
        if not self._quiet:
            self._print(message)

    def warn(self, message: str) -> None:
        self._print(f"warning: {message}")

    def _print(self, message: str) -> None:
        # Markup would take [0, 1] for a style, and wrapping would cut lines that are searched for.
        self.console.print(Text(message), soft_wrap=True)

    @contextmanager
    def showing_logs(self) -> Iterator[None]:
        """Show the library's warnings, and its notes on checkpoints, meanwhile."""
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
    def bar(self, what: str, total: int, *, unit: str = "rows", done: int = 0) -> Iterator[Bar]:
        """Shows how much of `total` is done; `done` of it was before this began."""
        bar: Bar
        if self._quiet:
            yield Bar(total, done, math.inf)
        elif self.console.is_terminal:
            with _TerminalBar(self.console, what, total, unit, done) as bar:
                yield bar
        else:
            yield _PlainBar(self, what, total, unit, done)


class Bar:
    """How much is done; tells it no more often than every `seconds`."""

    def __init__(self, total: int, done: int, seconds: float) -> None:
        self.total = total
        self._before = done
        self._seconds = seconds
        self._begun = self._last = time.monotonic()

    def update(self, done: int, note: str = "") -> None:
        """Take note that `done` is done; `note` says how well."""
        now = time.monotonic()
        if now - self._last >= self._seconds or (done >= self.total > 0 and self._seconds < 1.0):
            self._last = now
            rate = (done - self._before) / max(now - self._begun, 1e-9)
            self._show(done, rate, note)

    def _show(self, done: int, rate: float, note: str) -> None:
        pass


class _PlainBar(Bar):
    def __init__(self, display: Display, what: str, total: int, unit: str, done: int) -> None:
        super().__init__(total, done, PLAIN_SECONDS)
        self._display, self._what, self._unit = display, what, unit

    def _show(self, done: int, rate: float, note: str) -> None:
        self._display.say(f"{self._what}: {_progress(done, self.total, rate, self._unit)}{note}")


class _TerminalBar(Bar):
    def __init__(self, console: Console, what: str, total: int, unit: str, done: int) -> None:
        super().__init__(total, done, _BAR_SECONDS)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=min(max(console.width - _STATE_WIDTH, 6), 30)),
            _State(table_column=Column(ratio=1, no_wrap=True)),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
            expand=True,
        )
        self._unit = unit
        self._task = self._progress.add_task(what, total=total or None, completed=done, state="")

    def __enter__(self) -> _TerminalBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _show(self, done: int, rate: float, note: str) -> None:
        state = f"{_progress(done, self.total, rate, self._unit)}{note}"
        self._progress.update(self._task, completed=done, state=state)


class _State(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(str(task.fields["state"]), no_wrap=True, overflow="ellipsis")


class _LogLines(logging.Handler):
    """Passes log records on to a display, one line each."""

    def __init__(self, display: Display) -> None:
        super().__init__(logging.INFO)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        message = " ".join(record.getMessage().split())
        if record.levelno >= logging.WARNING:
            self._display.warn(message)
        elif record.name.startswith("dadagrad.training.checkpoint"):
            self._display.say(message)


def _progress(done: int, total: int, rate: float, unit: str) -> str:
    if unit == "bytes":
        of = f" of {size(total)}" if total else ""
        return f"{size(done)}{of}, {size(rate)}/s"
    of = f" of {total:,}" if total else ""
    return f"{done:,}{of} {unit}, {rate:,.0f}/s"


def number(value: object) -> str:
    """A number as people read it; a dash where there is none."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.5g}"


def print_json(result: Mapping[str, Any]) -> None:
    """Print one JSON object to stdout; numbers that JSON does not have become null."""
    click.echo(json.dumps(_plain(result), allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def print_facts(facts: Mapping[str, object], *, indent: str = "") -> None:
    """Print names and values to stdout, one a line, aligned."""
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        click.echo(f"{indent}{name:<{width}}  {number(value)}")
