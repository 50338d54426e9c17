"""Messages and progress of runs on a terminal, in a notebook or in a log."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dadagrad.progress.bars import LINE_SECONDS, PLAIN_SECONDS, Bar, RunBar, RunTable
from dadagrad.training.callbacks import BeginEvent, Callback, EndEvent, RoundEvent

_SHOWN_LOGS = ("dadagrad.training.checkpoints.writer", "dadagrad.data.ingest.collect")


class ProgressDisplay:
    """Messages and progress for people, on standard error.

    Parameters
    ----------
    quiet : bool
        Show warnings and the result only.
    progress : "line", "table" or None
        Show progress in one line of a terminal, or as a table; None chooses by the terminal.
    """

    def __init__(self, *, quiet: bool = False, progress: str | None = None) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._quiet = quiet
        is_terminal = self.console.is_terminal or self.console.is_jupyter
        self._as_table = progress == "table" or not (progress == "line" or is_terminal)

    def say(self, message: str) -> None:
        """Show one line, unless the display is quiet."""
        if not self._quiet:
            self._print(message)

    def warn(self, message: str) -> None:
        """Show one line, also if the display is quiet."""
        self._print(f"warning: {message}")

    def _print(self, message: str) -> None:
        # Markup would read [0, 1] as a style, and wrapping would cut lines that are searched for.
        self.console.print(Text(message), soft_wrap=True)

    @contextmanager
    def showing_logs(self) -> Iterator[None]:
        """Show the library's warnings, and what it says of checkpoints and ingests."""
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
    def bar(self, title: str, *, unit: str = "rows", before: int = 0) -> Iterator[Bar]:
        """Yield a bar to be updated, of which the part `before` is done already."""
        if self._quiet:
            yield Bar(lambda line: None, math.inf, title, unit, before)
        elif self._as_table:
            yield Bar(lambda line: self.say(str(line)), PLAIN_SECONDS, title, unit, before)
        else:  # the line is gone at the end
            with Live(console=self.console, transient=True, auto_refresh=False) as live:
                show = partial(live.update, refresh=True)
                yield Bar(show, LINE_SECONDS, title, unit, before)

    @contextmanager
    def run(self, rows_before: int, *, has_errors: bool) -> Iterator[RunBar | RunTable]:
        """Yield the progress of a run, to be updated with the ends of its rounds."""
        if self._as_table and not self._quiet:
            yield RunTable(self.say, rows_before, has_errors=has_errors)
        else:
            with self.bar("pass 1", before=rows_before) as bar:
                yield RunBar(bar)


class _LogLines(logging.Handler):
    """Handler that shows each log record as one line of a display."""

    def __init__(self, display: ProgressDisplay) -> None:
        super().__init__(logging.INFO)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        message = " ".join(record.getMessage().split())
        if record.levelno >= logging.WARNING:
            self._display.warn(message)
        elif record.name.startswith(_SHOWN_LOGS):
            self._display.say(message)


class RunDisplay(Callback):
    """Progress of a run on a display, from the end of all preparations on."""

    def __init__(self, display: ProgressDisplay) -> None:
        self._display = display
        self._stack = ExitStack()
        self._shown: RunBar | RunTable | None = None

    def on_begin(self, event: BeginEvent) -> None:
        if event.rows_done and event.checkpoints is not None:
            self._display.say(f"resuming after {event.rows_done:,} rows")
        run = self._display.run(event.rows_done, has_errors=event.has_errors)
        self._shown = self._stack.enter_context(run)

    def on_round(self, event: RoundEvent) -> None:
        assert self._shown is not None, "a run begins before its rounds"
        self._shown.update(event)

    def on_end(self, event: EndEvent) -> None:
        self._stack.close()
