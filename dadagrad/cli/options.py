"""Options that several commands share."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from dadagrad.training.run import Where

Command = TypeVar("Command", bound=Callable[..., Any])


def output_options(command: Command) -> Command:
    """``--json`` and ``--quiet``."""
    command = click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object to stdout and nothing else."
    )(command)
    return click.option("--quiet", is_flag=True, help="Show no progress.")(command)


def where_options(command: Command) -> Command:
    """Where a run runs."""
    command = click.option(
        "--scheduler", metavar="ADDRESS", help="Use the workers of a running Dask scheduler."
    )(command)
    command = click.option(
        "--workers",
        type=click.IntRange(1),
        help="Start a Dask cluster of so many processes on this machine.",
    )(command)
    command = click.option(
        "--memory",
        callback=_bytes,
        metavar="SIZE",
        help="Memory that the run may take in this process, like 8GB; what is predicted to take "
        "more is refused.  [default: what is free]",
    )(command)
    return click.option(
        "--threads",
        type=click.IntRange(1),
        help="Threads, where no cluster is used.  [default: 2]",
    )(command)


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def _bytes(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """``8GB``, ``500 MiB`` or a plain number."""
    if value is None:
        return None
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([kmgt]?i?)b?", value.strip().lower())
    unit = None if found is None else (_UNITS | _BINARY_UNITS).get(found[2])
    if found is None or unit is None or int(float(found[1]) * unit) < 1:
        raise click.BadParameter(f"{value!r} is no amount of memory, like 8GB or 500MB")
    return int(float(found[1]) * unit)


def make_where(
    threads: int | None, workers: int | None, scheduler: str | None, memory: int | None = None
) -> Where:
    """What the options of `where_options` say; `click.UsageError` if they contradict each other."""
    check_one_of(threads=threads, workers=workers, scheduler=scheduler)
    from dadagrad.training.run import Where

    where = Where(threads, workers, scheduler, memory)
    if where.on_dask:
        # What fails on a worker fails here too, in one line: no need for its traceback as well.
        wanted = os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical").upper()
        level = logging.getLevelNamesMapping().get(wanted, logging.CRITICAL)
        import distributed  # noqa: F401 (sets the levels of its loggers)

        # It may have been loaded before, by `dask dadagrad`; and of a scheduler that has gone, Dask
        # tells with tracebacks in two loggers with levels of their own: what its client does about
        # the connection ends in a cancellation, and results under way end in Tornado's callbacks.
        for name in ("distributed", "distributed.client", "tornado.application"):
            logging.getLogger(name).setLevel(level)
    return where


def check_one_of(**given: Any) -> None:
    """Raise `click.UsageError` if more than one option was given."""
    names = [f"--{name}" for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise click.UsageError(f"{' and '.join(names)} exclude each other; give one of them")


def absolute(url: str) -> str:
    """A path that means the same from any working directory; URLs stay as they are."""
    return url if "://" in url else os.path.abspath(os.path.expanduser(url))
