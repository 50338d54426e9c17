"""``--config FILE.toml``: settings of a run, and how it reads raw files, from a file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dadagrad.cli.options import grouped
from dadagrad.config import SETTINGS
from dadagrad.data.reading.options import OPTIONS
from dadagrad.errors import InputError
from dadagrad.settings import check_names

NOT_READING = "no_labels", "on_error"
"""Options of `ingest` that do not say how `train` reads raw files."""

config_option = grouped("Common")(
    "--config",
    "file",
    metavar="FILE.toml",
    help="TOML file of settings, named as in Python. Options replace them.",
)


@dataclass(frozen=True)
class ConfigFile:
    """Content of a file for ``--config``.

    Attributes
    ----------
    settings : mapping
        Settings of a run, by their names in Python.
    reading : mapping
        Options of `ingest`, of how to read raw files.
    holdout : str or None
        URL of other data to measure on. A share of the rows is a setting.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    reading: Mapping[str, Any] = field(default_factory=dict)
    holdout: str | None = None

    def replaced(
        self, reading: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return `reading` and `settings` with those that options give in place of the file's.

        A setting without an option is None.
        """
        given = {name: value for name, value in settings.items() if value is not None}
        return {**self.reading, **reading}, {**self.settings, **given}

    @classmethod
    def read(cls, file: str | None, *, several_losses: bool = False) -> ConfigFile:
        """Return the content of `file`, if there is one. `loss` may be a list of `several_losses`.

        Raises `InputError`, which names the file, for other names and values than those of Python.
        """
        if file is None:
            return cls()
        options = {name: OPTIONS[name] for name in OPTIONS if name not in NOT_READING}
        known = SETTINGS | options
        try:
            with open(file, encoding="utf-8-sig") as source:  # some editors begin it with a mark
                values = tomllib.loads(source.read())
            check_names(values, known)
            other_data = values.pop("holdout") if isinstance(values.get("holdout"), str) else None
            for name, value in values.items():
                is_list = several_losses and name == "loss" and isinstance(value, list)
                for each in value if is_list else [value]:
                    known[name].kind.convert(name, each)
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{file} is not TOML: {error}") from error
        except InputError as error:
            raise InputError(f"{file}: {error}") from error
        settings = {name: values[name] for name in values if name in SETTINGS}
        reading = {name: values[name] for name in values if name in options}
        return cls(settings, reading, other_data)
