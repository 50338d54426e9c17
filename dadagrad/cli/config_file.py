"""Settings of ``dadagrad train`` from its options and a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dadagrad.config import SETTINGS, TrainConfig, make_config
from dadagrad.errors import InputError

if TYPE_CHECKING:
    from dadagrad.data.dataset import Schema


def read_config(file: str | None, options: Mapping[str, Any], schema: Schema) -> TrainConfig:
    """Return the settings of a run: those of `options` that are not None, then those of `file`.

    Raises `InputError` for a file that is not TOML, for settings that are not known or wrong, and
    for class weights of labels that data of `schema` does not have.
    """
    values = {} if file is None else _read(file)
    values |= {name: value for name, value in options.items() if value is not None}
    weights = values.get("class_weight")
    if isinstance(weights, Mapping):
        values["class_weight"] = {
            _label_value(label, schema): weight for label, weight in weights.items()
        }
    return make_config(None, values)


def _read(file: str) -> dict[str, Any]:
    """Read a TOML file and check each setting but class weights, which need the data."""
    try:
        with open(file, "rb") as source:
            values = tomllib.load(source)
        for name in values:
            if name not in SETTINGS:
                known = ", ".join(SETTINGS)
                raise InputError(f"setting {name!r} is not known; the settings are {known}")
            if name != "class_weight":
                SETTINGS[name].kind.convert(name, values[name])
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not TOML: {error}") from error
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    return values


def _label_value(label: object, schema: Schema) -> float:
    """Return the number that stands for a label, which is a name where labels were text."""
    column = schema.label_columns[0] if schema.label_columns else None
    if column is not None and column.names is not None and column.values is not None:
        if str(label) in column.names:
            return column.values[column.names.index(str(label))]
        known = f"which the data does not have; its labels are {', '.join(column.names[:10])}"
    else:
        try:
            return float(str(label))
        except ValueError:
            known = "but the labels of the data are numbers"
    raise InputError(f"class_weight names label {label!r}, {known}")
