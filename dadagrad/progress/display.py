"""Messages and progress of commands and runs on a terminal, in a notebook or in a log.

A terminal has one line, which is rewritten. It fits any width from 60 columns: the error and the
time left stay, the bar shrinks first, then the rate and the loss are left out. Where lines are
kept, a run shows a table whose lines double the number of rows, as Vowpal Wabbit does.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from rich.console import Console, ConsoleOptions, RenderResult
from rich.filesize import decimal
from rich.live import Live
from rich.text import Text

from dadagrad.summary import percent, short, significant
from dadagrad.training.callbacks import BeginEvent, Callback, EndEvent, RoundEvent
from dadagrad.training.progressive import ProgressiveMetrics

PLAIN_SECONDS = 5.0
"""Seconds between two plain lines of progress without a terminal."""
LINE_SECONDS = 0.1
"""Seconds between two updates of the line of a terminal."""
MIN_BAR, MAX_BAR = 5, 24
"""Columns of a bar."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of progress; a `total` of 0 is unknown."""

    title: str
    done: int = 0
    total: int = 0
    facts: tuple[str, ...] = ()
    rate: str = ""
    left: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.fitted(options.max_width, ascii_only=options.ascii_only)

    def fitted(self, width: int, *, ascii_only: bool = False) -> Text:
        """The line in at most `width` columns."""
        share = min(1.0, self.done / self.total) if self.total else None
        percent = "" if share is None else f"{100 * share:3.0f} %"
        bar, texts = 0, [""]
        for facts in ((*self.facts, self.rate), self.facts, self.facts[:1]):
            texts = [text for text in (percent, *facts, self.left) if text]
            bar = min(MAX_BAR, width - len("  ".join([self.title, *texts])) - 2)
            if bar >= MIN_BAR:
                break
        if share is None or bar < MIN_BAR:
            return Text("  ".join([self.title, *texts])[:width], no_wrap=True)
        filled, half = divmod(round(2 * bar * share), 2)
        full, tip, empty = "##-" if ascii_only else "━╸─"
        done = (full * filled + tip * half)[:bar]
        return Text.assemble(
            f"{self.title}  ",
            (done, "cyan"),
            (empty * (bar - len(done)), "bright_black"),
            "  " + "  ".join(texts),
            no_wrap=True,
        )

    def __str__(self) -> str:
        """The line without a bar."""
        percent = [f"{100 * self.done / self.total:.0f} %"] if self.total else []
        parts = (*percent, *self.facts, self.rate, self.left)
        return f"{self.title}: {', '.join(part for part in parts if part)}"


class Bar:
    """Progress of `unit` ("rows" or "bytes"), which `show` receives at most every `seconds`.

    Rates count from now on, when `before` are done.
    """

    def __init__(
        self, show: Callable[[Line], None], seconds: float, title: str, unit: str, before: int
    ) -> None:
        self._show = show
        self._seconds = seconds
        self.title = title
        self._unit = unit
        self._before = before
        self._begun = self._last = time.monotonic()

    def update(self, done: int, total: int, *facts: str) -> None:
        """Record that `done` of `total` are done; a total of 0 is unknown."""
        now = time.monotonic()
        at_end = done >= total > 0 and self._seconds < 1.0
        if now - self._last < self._seconds and not at_end:
            return
        self._last = now
        elapsed, new = max(now - self._begun, 1e-9), done - self._before
        left = timedelta(seconds=round(elapsed * (total - done) / new)) if new > 0 else None
        rate, is_bytes = new / elapsed, self._unit == "bytes"
        amount = (decimal(done),) if is_bytes else ()
        self._show(
            Line(
                self.title,
                done,
                total,
                (*facts, *(() if total else amount)),
                f"{decimal(int(rate))}/s" if is_bytes else f"{short(rate)} {self._unit}/s",
                f"{left} left" if total and left is not None else "",
            )
        )


class RunTable:
    """Progress of a run in lines at 1, 2, 4, 8, ... rows and at the end of each pass.

    The mean error and the mean loss are those of the pass; "since last" is the error of the rows
    since the line before. A run without errors has the loss in place of both.
    """

    def __init__(self, say: Callable[[str], None], before: int, *, has_errors: bool) -> None:
        self._say = say
        self._rows_before, self._begun = before, time.monotonic()
        self._has_errors = has_errors
        self._next = before + 1
        self._number = 1
        self._before: ProgressiveMetrics | None = None
        self._show("rows", "error", "since last", "loss", "rows/s", "weights")

    def update(self, event: RoundEvent) -> None:
        """Show a line if the number of rows has doubled, or a pass ends."""
        rows = event.rows
        if rows < self._next and not event.ends_pass:
            return
        while self._next <= rows:
            self._next *= 2
        if event.pass_number != self._number:
            if self._number == 1:
                self._say("later passes: training errors, of rows that are not new")
            self._number, self._before = event.pass_number, None
        metrics = event.passes[-1]
        since = metrics if self._before is None else metrics - self._before
        self._before = metrics
        errors = [event.mean_error(each) for each in (metrics, since)]
        losses = [significant(event.mean_loss(each)) for each in (metrics, since)]
        shown = ["" if error is None else percent(error) for error in errors]
        self._show(
            f"{rows:,}",
            shown[0],
            shown[1] or losses[1],
            losses[0],
            short((rows - self._rows_before) / max(time.monotonic() - self._begun, 1e-9)),
            f"{event.count_nonzeros():,}",
        )

    def _show(self, rows: str, error: str, since: str, loss: str, rate: str, weights: str) -> None:
        means = (
            f"{error:>8} {since:>10} {loss:>7}" if self._has_errors else f"{loss:>8} {since:>10}"
        )
        self._say(f"{rows:>11} {means} {rate:>8} {weights:>11}")


_SHOWN_LOGS = ("dadagrad.training.checkpoints.writer", "dadagrad.data.ingest.collect")


class ProgressDisplay:
    """Messages and progress for people, on standard error; warnings alone if it is `quiet`.

    `progress` is "line" (of a terminal) or "table"; None chooses by the terminal.
    """

    def __init__(self, *, quiet: bool = False, progress: str | None = None) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._quiet = quiet
        is_terminal = self.console.is_terminal or self.console.is_jupyter
        as_table = progress == "table" or not (progress == "line" or is_terminal)
        self.shows_table = as_table and not quiet

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
        elif self.shows_table:
            yield Bar(lambda line: self.say(str(line)), PLAIN_SECONDS, title, unit, before)
        else:  # the line is gone at the end
            with Live(console=self.console, transient=True, auto_refresh=False) as live:
                show = partial(live.update, refresh=True)
                yield Bar(show, LINE_SECONDS, title, unit, before)


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
        self._update: Callable[[RoundEvent], None]

    def on_begin(self, event: BeginEvent) -> None:
        display, rows = self._display, event.rows_done
        if rows and event.checkpoints is not None:
            display.say(f"resuming after {rows:,} rows")
        if display.shows_table:
            self._update = RunTable(display.say, rows, has_errors=event.has_errors).update
        else:
            bar = self._stack.enter_context(display.bar("pass 1", before=rows))
            self._update = partial(_update_bar, bar)

    def on_round(self, event: RoundEvent) -> None:
        self._update(event)

    def on_end(self, event: EndEvent) -> None:
        self._stack.close()


def _update_bar(bar: Bar, event: RoundEvent) -> None:
    """Show the pass, its error and loss; those of later passes are called training errors."""
    number, passes = event.pass_number, event.run.config.passes
    bar.title = f"pass {number}" + (f"/{passes}" if passes > 1 else "")
    facts = []
    if event.passes[-1].weight:
        errors = [] if event.error is None else [f"error {percent(event.error)}"]
        first, *others = [*errors, f"loss {significant(event.loss)}"]
        facts = [f"training {first}" if number > 1 else first, *others]
    bar.update(event.rows, event.run.rows * passes, *facts)
