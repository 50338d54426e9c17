"""Names of losses, regularizers, preconditioners and updates, and their form as text.

Each of them is an object. A built-in one is a frozen dataclass, whose parameters are its fields; it
is registered under its name, so that text stands for it on the command line, in reports and in
checkpoints:

>>> from dadagrad.optim.losses import LOSSES
>>> LOSSES.make("huber:width=0.5")
Huber(width=0.5)
>>> describe(LOSSES.make("huber:width=0.5"))
'huber:width=0.5'

An object of a user's own class is described in the same way, but text never becomes one: nothing
that was read from a file is imported or evaluated. Several whole numbers are joined by plus signs,
as in ``block:size=4+4+2``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from hashlib import sha256
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform

import numpy as np

from dadagrad.errors import InputError, nearest
from dadagrad.settings import Choice, Number, plain_number

T = TypeVar("T")
Class = TypeVar("Class", bound=type)

BOUND = {"bound": True}
"""Metadata of a field that a run fills in, and that is no parameter: the loss of an update."""

Positive = float
NonNegative = float
Finite = float
Numbers = tuple[float, ...]
Schedule = str
Rank = int
Count = int
Sizes = int | tuple[int, ...]
"""Annotations of parameters; `KINDS` has the permitted values of each."""


class Named:
    """Base of classes whose `name` is by default that of the class."""

    name: ClassVar[str]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.name = vars(cls).get("name", cls.__name__)

    def __post_init__(self) -> None:
        """Check the fields of a dataclass by their annotations, such as `Positive`."""
        for each in fields(self):  # type: ignore[arg-type]
            annotation, _, optional = str(each.type).partition(" | ")
            value = getattr(self, each.name)
            if annotation in KINDS and not (optional and value is None):
                KINDS[annotation].convert(f"{each.name} of {self.name}", value)


class Registry(dict[str, type[T]]):
    """Classes of one kind, "loss" for example, by name.

    `base` is theirs, and that of a user's own classes, which are refused if not `takes_own`.
    """

    def __init__(self, kind: str, base: type[T], *, takes_own: bool = True) -> None:
        self.kind, self.takes_own = kind, takes_own
        self.base: Any = base

    def is_built_in(self, value: object) -> bool:
        """Return True if an object is of one of the classes, and not of a user's own."""
        return type(value) in self.values()

    def make(self, value: T | str) -> T:
        """Return the object that a text stands for; an object is returned as it is.

        `InputError` if the name or a parameter is not known, missing or out of range, or an object
        of another class has the name of a built-in one.
        """
        is_built_in = self.is_built_in(value)
        if is_built_in or (self.takes_own and isinstance(value, self.base)):
            name = cast(Any, value).name
            if name in self and not is_built_in:
                raise InputError(
                    f"{type(value).__name__} has the name {name!r} of a built-in {self.kind}; "
                    "give the class another name"
                )
            return cast(T, value)
        own = f"an object of a class derived from dadagrad.{self.base.__name__}"
        if not isinstance(value, str):
            words = f"a name or {own}" if self.takes_own else f"one of {', '.join(self)}"
            raise InputError(f"{self.kind} must be {words}, not {value!r}")
        name, _, text = value.partition(":")
        if name not in self:
            choices = f"choose one of {', '.join(self)}" + f", or give {own}" * self.takes_own
            # A capital is that of a user's class, of which a checkpoint has the name alone.
            remedy = nearest(name, self, choices) if name.islower() else choices
            raise InputError(f"{self.kind} {name!r} is not known; {remedy}")
        return self._parse(name, text)

    def _parse(self, name: str, text: str) -> T:
        cls: Any = self[name]
        parameters = {each.name: each for each in _parameters_of(cls)}
        values = {}
        for item in filter(None, text.split(",")):
            key, _, value = item.partition("=")
            if key not in parameters:
                listed = ", ".join(parameters) or "none"
                raise InputError(
                    f"{self.kind} {name!r} has no parameter {key!r}; its parameters: {listed}"
                )
            kind = KINDS[str(parameters[key].type).partition(" | ")[0]]
            values[key] = kind.parse(f"{key} of {name}", value)
        for key, each in parameters.items():
            if key not in values and each.default is MISSING:
                raise InputError(f"{self.kind} {name!r} needs {key}; write {name}:{key}=VALUE")
        parsed: T = cls(**values)
        return parsed


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def register(registry: Registry[Any], name: str) -> Callable[[Class], Class]:
    """Make a class a frozen dataclass and register it under a name; for use as a decorator."""

    def add(cls: Class) -> Class:
        cls.name = name  # type: ignore[attr-defined]
        registry[name] = dataclass(frozen=True)(cls)
        return cls

    return add


def parameters(value: Any) -> dict[str, Any]:
    """Return the parameters of an object: its fields, or the attributes of a plain class."""
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in _parameters_of(type(value))}
    return dict(getattr(value, "__dict__", {}))


def describe(value: Any) -> str:
    """Return the text that stands for an object: its name and the parameters that are not usual.

    An array is described by a digest.
    """
    usual = {each.name: each.default for each in _parameters_of(type(value))}
    changed = [
        f"{key}={_text(parameter)}"
        for key, parameter in parameters(value).items()
        if key not in usual or not np.array_equal(parameter, usual[key])
    ]
    return ":".join([value.name, ",".join(changed)]) if changed else str(value.name)


def _parameters_of(cls: type) -> list[Any]:
    if not is_dataclass(cls):
        return []
    return [each for each in fields(cls) if not each.metadata.get("bound")]


def _text(value: Any) -> str:
    if getattr(value, "ndim", 0):  # an array may be as long as the features
        return sha256(value.tobytes()).hexdigest()[:16]
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    return str(plain_number(value))


@dataclass(frozen=True)
class Registered:
    """Kind of a setting that is an object by name, or the object itself."""

    registry: Registry[Any]
    optional: bool = False
    metavar: str = "NAME[:K=V]"

    @property
    def type_text(self) -> str:
        kind = f"str or {self.registry.base.__name__}"
        return f"{kind} or None" if self.optional else kind

    def convert(self, name: str, value: Any) -> Any:
        return None if value is None and self.optional else self.registry.make(value)

    parse = convert


@dataclass(frozen=True)
class _Joined:
    """Kind of a parameter that is a number or a tuple; or always a tuple, if `plural`."""

    number: Number
    plural: bool = False

    def convert(self, name: str, value: Any) -> Any:
        numbers = value if isinstance(value, tuple) else (value,)
        try:
            if not numbers and not self.plural:
                raise InputError("no number")
            for each in numbers:
                self.number.convert(name, each)
        except InputError:
            raise InputError(
                f"{name} must be {self.number.phrase}, or a tuple of such numbers, not {value!r}"
            ) from None
        return value

    def parse(self, name: str, text: str) -> Any:
        numbers = tuple(self.number.parse(name, each) for each in text.split("+"))
        return numbers if self.plural or len(numbers) > 1 else numbers[0]


KINDS: dict[str, Number | Choice | _Joined] = {
    "Schedule": Choice(("constant", "sqrt", "linear")),
    "int": Number(whole=True),
    "float": Number(finite=False),
    "Positive": Number(above=0),
    "NonNegative": Number(minimum=0),
    "Finite": Number(),
    "Numbers": _Joined(Number(), plural=True),
    "Rank": Number(whole=True, minimum=2),
    "Count": Number(whole=True, minimum=0),
    "Sizes": _Joined(Number(whole=True, minimum=1)),
}
"""Kinds of parameters by the annotations of fields."""
