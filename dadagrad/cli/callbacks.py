"""Callbacks of the commands that train: progress, log and dashboard."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from dadagrad.cli.display import Display
from dadagrad.cli.options import grouped
from dadagrad.progress.display import RunDisplay
from dadagrad.training.callbacks import Callback


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
