"""From the options of ``dadagrad train`` and a TOML file to a `TrainConfig`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from dadagrad.errors import InputError

if TYPE_CHECKING:
    from dadagrad.config import TrainConfig
    from dadagrad.data.dataset import Schema

_NAMES = ("loss", "update", "metric", "regularizer", "domain", "squares")
_SWITCHES = ("shuffle", "fit_intercept", "average")
_BOUNDS = ("low", "high")


def make_config(file: str | None, given: Mapping[str, Any], schema: Schema) -> TrainConfig:
    """The settings of a run: those `given` on the command line (not None), then the `file`'s.

    Raises `InputError` for a file that is no TOML and for settings that are not known or wrong,
    and for class weights of labels that the data of `schema` does not have.
    """
    from dadagrad.config import TrainConfig

    settings = _read(file) if file is not None else {}
    settings |= {name: value for name, value in given.items() if value is not None}
    weights = settings.get("class_weight")
    if isinstance(weights, Mapping):
        settings["class_weight"] = {
            _label_value(label, schema): weight for label, weight in weights.items()
        }
    return TrainConfig(**settings)


def _read(file: str) -> dict[str, Any]:
    """The settings of a TOML file, as far as `TrainConfig` does not check them itself."""
    from dadagrad.config import TrainConfig

    try:
        with open(file, "rb") as source:
            settings = tomllib.load(source)
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not TOML: {error}") from error
    known = [field.name for field in fields(TrainConfig)]
    for name, value in settings.items():
        if name not in known:
            raise InputError(
                f"{file}: setting {name!r} is not known; the settings are {', '.join(known)}"
            )
        if name in _NAMES and not isinstance(value, str):
            raise InputError(f"{file}: {name} must be text, not {value!r}")
        if name in _SWITCHES and not isinstance(value, bool):
            raise InputError(f"{file}: {name} must be true or false, not {value!r}")
        if name in _BOUNDS and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"{file}: {name} must be a number, -inf or inf, not {value!r}")
    return settings


def parse_class_weight(text: str) -> str | dict[str, float]:
    """``balanced``, or ``LABEL=WEIGHT,LABEL=WEIGHT``."""
    if text == "balanced":
        return text
    weights: dict[str, float] = {}
    for item in text.split(","):
        label, separator, weight = item.rpartition("=")
        try:
            weights[label.strip()] = float(weight)
        except ValueError:
            separator = ""
        if not separator or not label.strip():
            raise InputError(
                f"class weight {item!r} is not understood; give 'balanced' or LABEL=WEIGHT,..."
            )
    return weights


def _label_value(label: object, schema: Schema) -> float:
    """The value that stands for a label, given as a name where labels were text."""
    column = schema.label_columns[0] if schema.label_columns else None
    if column is not None and column.names is not None and column.values is not None:
        if str(label) in column.names:
            return column.values[column.names.index(str(label))]
        raise InputError(
            f"class_weight names label {label!r}, which the data does not have; its labels are "
            f"{', '.join(column.names[:10])}"
        )
    try:
        return float(str(label))
    except ValueError:
        raise InputError(
            f"class_weight names label {label!r}, but the labels of the data are numbers"
        ) from None
