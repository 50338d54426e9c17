"""Kinds of settings: help, permitted values and form on the command line of a field.

A field that is made by `setting` describes itself. Those of `dadagrad.config.TrainConfig` and of
`dadagrad.data.reading.options.Options` are: the options of the command line, the parameters of
functions and estimators and the reference documentation come from them.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from inspect import Parameter, signature
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from dadagrad.errors import InputError, nearest
from dadagrad.summary import number_text

T = TypeVar("T")


class Kind(Protocol):
    """Permitted values of a setting."""

    @property
    def type_text(self) -> str:
        """Type of the setting, as reference documentation shows it."""

    @property
    def metavar(self) -> str:
        """Form of the setting on the command line."""

    def convert(self, name: str, value: Any) -> Any:
        """Check `value` and return it as it is stored; `InputError` names the setting `name`."""

    def parse(self, name: str, text: str) -> Any:
        """Convert an argument of the command line."""


@dataclass(frozen=True)
class Choice:
    """One of several names, or None if that is permitted; `words` are the command line's."""

    names: tuple[str, ...]
    optional: bool = False
    words: tuple[str, ...] = ()

    @property
    def type_text(self) -> str:
        listed = json.dumps(self.names)[1:-1]
        return f"{{{listed}}}{' or None' if self.optional else ''}"

    @property
    def metavar(self) -> str:
        return "|".join(self.words or self.names) if len(self.names) < 4 else "NAME"

    def convert(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            value = dict(zip(self.words, self.names, strict=False)).get(value, value)
        if (value is None and self.optional) or (isinstance(value, str) and value in self.names):
            return value
        names = ", ".join(self.words or self.names)
        raise InputError(f"{name} {value!r} is not known; choose one of {names}")

    def parse(self, name: str, text: str) -> Any:
        return self.convert(name, text)


@dataclass(frozen=True)
class Number:
    """A number in a range, one of several words, or None if that is permitted."""

    minimum: float | None = None
    above: float | None = None
    below: float | None = None
    whole: bool = False
    finite: bool = True
    words: tuple[str, ...] = ()
    optional: bool = False

    @property
    def type_text(self) -> str:
        kind = "int" if self.whole else "float"
        return " or ".join([kind, *(f'"{word}"' for word in self.words), *["None"] * self.optional])

    @property
    def metavar(self) -> str:
        return "|".join([*self.words, "N" if self.whole else "X"])

    def convert(self, name: str, value: Any) -> Any:
        if (value is None and self.optional) or (isinstance(value, str) and value in self.words):
            return value
        plain = plain_number(value)
        number = isinstance(plain, int if self.whole else int | float)
        if number and not isinstance(plain, bool) and self._contains(plain):
            return plain
        words = "".join(f" or {word!r}" for word in self.words)
        raise InputError(f"{name} must be {self.phrase}{words}, not {reprlib.repr(value)}")

    @property
    def phrase(self) -> str:
        """The numbers in words."""
        kind = "a whole number" if self.whole else "a finite number" if self.finite else "a number"
        bounds = [f" of at least {self.minimum:g}"] if self.minimum is not None else []
        bounds += [f" above {self.above:g}"] if self.above is not None else []
        bounds += [f" below {self.below:g}"] if self.below is not None else []
        return f"{kind}{' and'.join(bounds)}"

    def _contains(self, value: float) -> bool:
        return (
            (math.isfinite(value) or not (self.finite or math.isnan(value)))
            and (self.minimum is None or value >= self.minimum)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def parse(self, name: str, text: str) -> Any:
        value: float | str = text
        with suppress(ValueError):  # it is a word
            value = int(text) if self.whole else float(text)
        return self.convert(name, value)


@dataclass(frozen=True)
class Several:
    """A number, or several that are tried side by side in one pass."""

    number: Number

    @property
    def type_text(self) -> str:
        return f"{self.number.type_text} or list of float"

    @property
    def metavar(self) -> str:
        return f"{self.number.metavar},..."

    def convert(self, name: str, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return self.number.convert(name, value)
        alone = replace(self.number, words=())
        numbers = tuple(alone.convert(name, each) for each in value)
        if not numbers:
            raise InputError(f"{name} must have at least one number, not an empty list")
        return numbers if len(numbers) > 1 else numbers[0]

    def parse(self, name: str, text: str) -> Any:
        numbers = [self.number.parse(name, each) for each in text.split(",")]
        return self.convert(name, numbers if len(numbers) > 1 else numbers[0])


@dataclass(frozen=True)
class Switch:
    """True, False, or "auto" or None if that is permitted."""

    auto: bool = False
    optional: bool = False
    metavar: str = ""

    @property
    def type_text(self) -> str:
        return "bool" + ' or "auto"' * self.auto + " or None" * self.optional

    def convert(self, name: str, value: Any) -> Any:
        if isinstance(value, bool) or (self.auto and value == "auto"):
            return value
        if self.optional and value is None:
            return value
        auto = " or 'auto'" if self.auto else ""
        raise InputError(f"{name} must be True or False{auto}, not {value!r}")

    parse = convert


class Spec(Generic[T]):
    """Type of a field that takes an object or its text, and holds the object."""

    if TYPE_CHECKING:

        def __get__(self, instance: Any, owner: Any) -> T: ...
        def __set__(self, instance: Any, value: T | str) -> None: ...


@dataclass(frozen=True)
class ClassWeights:
    """Weights by the texts of labels, "balanced", or None; labels that are numbers become texts."""

    type_text: str = 'None, "balanced" or {label: weight}'
    metavar: str = "balanced|LABEL=W,..."

    def convert(self, name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                _label_text(label): Number(minimum=0).convert(f"{name}[{label}]", weight)
                for label, weight in value.items()
            }
        if value not in (None, "balanced"):
            raise InputError(
                f"{name} must be None, 'balanced' or a mapping of labels to weights, not {value!r}"
            )
        return value

    def parse(self, name: str, text: str) -> Any:
        """``balanced``, or ``LABEL=WEIGHT,...`` as a dict."""
        if text == "balanced":
            return text
        weights: dict[str, float] = {}
        for item in text.split(","):
            label, _, weight = item.rpartition("=")
            if not label.strip() or label.strip() in weights:
                problem = "names its label again" if label.strip() else "is not understood"
                raise InputError(
                    f"class weight {item!r} {problem}; give 'balanced' or LABEL=WEIGHT, once for "
                    "each label and separated by commas"
                )
            weights[label.strip()] = Number(minimum=0).parse(f"{name}[{label.strip()}]", weight)
        return weights


def plain_number(value: Any) -> Any:
    """A number of NumPy as one of Python; anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () else value


def _label_text(label: Any) -> str:
    plain = plain_number(label)
    if isinstance(plain, bool):
        return str(plain).lower()
    return number_text(plain) if isinstance(plain, int | float) else str(plain)


GROUPS = (
    "Common", "Columns", "Features", "Rows", "Raw files", "Data", "Regularizers and constraints",
    "Algorithm", "Parallel", "Checkpoints", "Output",
)  # fmt: skip
"""Groups of options, in the order in which the command line shows them."""


@dataclass(frozen=True)
class Setting:
    """Description of a field of `TrainConfig` or `Options`.

    The first phrase of `help` says what it is. `group` is one of `GROUPS`. `option` is the name on
    the command line without dashes; empty if it is that of the field. Few users need a setting of
    `research`: ``--help-all`` shows it, ``--help`` does not. `shown_default` is the default in
    words, where the value says less.
    """

    help: str
    kind: Kind
    default: Any
    group: str = "Algorithm"
    option: str = ""
    research: bool = False
    shown_default: str = ""


def setting(default: Any, kind: Kind, help: str, group: str = "Algorithm", **more: Any) -> Any:
    """Field of a configuration; see `Setting`, whose other attributes are `more`."""
    described = Setting(help, kind, default, group, **more)
    return field(default=default, metadata={"setting": described})


def parameter_docs(settings: Mapping[str, Setting]) -> str:
    """Describe settings as the section "Parameters" of a NumPy docstring does."""
    lines: list[str] = []
    for name, described in settings.items():
        shown = described.shown_default
        default = f"by default {shown}" if shown else f"default={described.default!r}"
        lines.append(f"{name} : {described.kind.type_text}, {default}")
        lines += [f"    {line}" for line in wrap(described.help, 88)]
    return "\n    ".join(lines)


def check_names(
    values: Mapping[str, Any], settings: Mapping[str, Setting], others: Iterable[str] = ()
) -> None:
    """Refuse values of settings that are not known; `InputError` names `others` like them, too."""
    if unknown := values.keys() - settings.keys():
        name, listed = min(unknown), ", ".join(sorted(settings))
        remedy = nearest(name, [*settings, *others], f"the settings are {listed}")
        raise InputError(f"setting {name!r} is not known; {remedy}")


def show_settings(function: Callable[..., Any], settings: Mapping[str, Setting]) -> None:
    """Put `settings` into the signature and at ``{options}`` in the docstring of `function`.

    They take the place of its last parameter, ``**options``.
    """
    if function.__doc__ is not None:  # None under python -OO
        function.__doc__ = function.__doc__.replace("{options}", parameter_docs(settings))
    written = signature(function)
    parameters = [
        *list(written.parameters.values())[:-1],
        *(
            Parameter(name, Parameter.KEYWORD_ONLY, default=described.default)
            for name, described in settings.items()
        ),
    ]
    shown = written.replace(parameters=parameters)
    function.__signature__ = shown  # type: ignore[attr-defined]
