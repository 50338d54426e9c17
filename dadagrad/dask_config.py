"""The settings of `dadagrad.yaml`, as Dask's configuration has them by now.

Importing this adds their defaults to it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import dask.config
from dask.utils import parse_timedelta

from dadagrad.errors import InputError

(_defaults,) = dask.config.collect_yaml([str(Path(__file__).with_name("dadagrad.yaml"))])
dask.config.update_defaults(_defaults)


def seconds(name: str) -> float:
    """The time span that the setting ``dadagrad.NAME`` says.

    Raises
    ------
    InputError
        It is none, or negative.
    """
    given = dask.config.get(f"dadagrad.{name}")
    value = None
    if isinstance(given, str | int | float):
        with suppress(KeyError, ValueError):
            value = parse_timedelta(given)
    if value is None or value < 0.0:
        raise _wrong(name, given, "a time, such as 60s or 2h")
    return float(value)


def count(name: str, least: int) -> int:
    """The whole number that the setting ``dadagrad.NAME`` says; `InputError` unless >= `least`."""
    given = dask.config.get(f"dadagrad.{name}")
    if type(given) is not int or given < least:
        raise _wrong(name, given, f"a whole number of at least {least}")
    return given


def _wrong(name: str, given: object, needed: str) -> InputError:
    return InputError(
        f"dadagrad.{name} is {given!r} in Dask's configuration; it must be {needed} (see the files "
        f"of ~/.config/dask, and DASK_DADAGRAD__{name.upper().replace('-', '_')})"
    )
