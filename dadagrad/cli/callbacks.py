"""Callbacks of the commands that train: progress, log and dashboard."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

from dadagrad.cli.display import Display
from dadagrad.cli.options import grouped
from dadagrad.cli.progress import RunBar, RunTable, Start
from dadagrad.training.callbacks import BeginEvent, Callback, EndEvent, RoundEvent


class RunDisplay(Callback):
    """Progress of a run on a display, from the end of all preparations on."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._stack = ExitStack()
        self._shown: RunBar | RunTable | None = None

    def on_begin(self, event: BeginEvent) -> None:
        if event.rows_done and event.checkpoints is not None:
            self._display.say(f"resuming after {event.rows_done:,} rows")
        run = self._display.run(Start(event.rows_done), has_errors=event.has_errors)
        self._shown = self._stack.enter_context(run)

    def on_round(self, event: RoundEvent) -> None:
        assert self._shown is not None, "a run begins before its rounds"
        self._shown.update(event)

    def on_end(self, event: EndEvent) -> None:
        self._stack.close()


def callback_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--log`` and ``--dashboard``, from which the command gets `callbacks` for its run."""

    @grouped("Output")(
        "--log",
        metavar="FILE.jsonl",
        help="File or URL for a log of the run as JSON lines.",
    )
    @grouped("Output")(
        "--dashboard",
        is_flag=False,
        flag_value="127.0.0.1:0",
        metavar="[HOST:PORT]",
        help="Serve a live page of the run. By default it is at a free port of this machine alone; "
        "on a cluster it is at /dadagrad of Dask's dashboard too.",
    )
    @wraps(command)
    def with_callbacks(
        *, display: Display, log: str | None, dashboard: str | None, **options: Any
    ) -> None:
        callbacks: list[Callback] = [RunDisplay(display)]
        if log is not None:
            from dadagrad.training.json_log import JsonLog

            callbacks.append(JsonLog(log))
        if dashboard is not None:
            from dadagrad.reports.dashboard import Dashboard

            page = Dashboard(dashboard)
            display.say(f"dashboard at {page.url}")
            callbacks.append(page)
        command(display=display, callbacks=callbacks, **options)

    return with_callbacks
