"""What a schema must look like that was read from a file: nobody vouches for what wrote it.

Each check raises `InputError` that says which field is wrong; the reader of the file adds where it
lies and what to do.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from dadagrad.errors import InputError

MAX_FEATURES = 2**62
_MOST_CLASSES = 1 << 20
_MOST_NESTED = 16
_LONGEST_NAME = 1 << 12


def check_schema(plain: Any) -> None:
    """Raise `InputError` unless `plain` is what `Schema.to_json` makes."""
    if not isinstance(plain, Mapping):
        raise InputError(f"the schema is {reprlib.repr(plain)}, no object")
    n_features = plain.get("n_features")
    if type(n_features) is not int or not 0 < n_features <= MAX_FEATURES:
        raise InputError(f"n_features is {reprlib.repr(n_features)}; needed is 1 to 2**62")
    for name in ("weighted", "queried"):
        value = plain.get(name, False if name == "queried" else None)
        if type(value) is not bool:
            raise InputError(f"{name} is {reprlib.repr(value)}; needed is true or false")
    columns = plain.get("label_columns")
    if type(columns) is not list:
        raise InputError(f"label_columns is {reprlib.repr(columns)}; needed is a list")
    for number, column in enumerate(columns):
        _check_column(column, f"label column {number}")
    space = plain.get("feature_space")
    if not isinstance(space, dict | None):
        raise InputError(f"feature_space is {reprlib.repr(space)}; needed is an object, or null")
    check_plain(space, "feature_space")


def _check_column(column: Any, where: str) -> None:
    if not isinstance(column, Mapping):
        raise InputError(f"{where} is {reprlib.repr(column)}, no object")
    name = column.get("name")
    if type(name) is not str or len(name) > _LONGEST_NAME:
        raise InputError(f"the name of {where} is {reprlib.repr(name)}; needed is a short text")
    values, counts, names = (column.get(field) for field in ("values", "counts", "names"))
    if values is None:
        if counts is not None or names is not None:
            raise InputError(f"{where} has counts or names of values, and no values")
        return
    if type(values) is not list or not all(map(_is_finite, values)):
        raise InputError(f"the values of {where} are {reprlib.repr(values)}; needed are numbers")
    increasing = all(before < after for before, after in pairwise(values))
    if len(values) > _MOST_CLASSES or not increasing:
        raise InputError(f"the values of {where} do not increase; needed is each value once")
    for field, kind, listed in (("counts", int, counts), ("names", str, names)):
        if listed is not None and not (
            type(listed) is list
            and len(listed) == len(values)
            and all(type(item) is kind for item in listed)
        ):
            raise InputError(
                f"the {field} of {where} are {reprlib.repr(listed)}; needed is one for each value"
            )


def _is_finite(value: Any) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an int that no float holds
        return False


def check_plain(value: Any, where: str, depth: int = 0) -> None:
    """Raise `InputError` for plain JSON that is nested deep, or has numbers that are not finite."""
    if depth > _MOST_NESTED:
        raise InputError(f"{where} is nested deeper than {_MOST_NESTED} levels")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            check_plain(item, where, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where} holds the number {value}; numbers must be finite")
