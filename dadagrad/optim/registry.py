"""Names of losses, regularizers, preconditioners and updates, and their form as text.

Each of them is an object. A built-in one is a frozen dataclass with a class attribute `name`, whose
parameters are its fields; it is registered under its name, so that text stands for it on the
command line, in reports and in checkpoints:

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

import math
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, ClassVar, Generic, TypeVar

from dadagrad.errors import InputError

T = TypeVar("T")
Class = TypeVar("Class", bound=type)


BOUND = {"bound": True}
"""Metadata of a field that a run fills in, and that is no parameter: the loss of an update."""


class Named:
    """Base of classes whose `name` is by default that of the class."""

    __slots__ = ()
    name: ClassVar[str]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.name = vars(cls).get("name", cls.__name__)


class Registry(Generic[T]):
    """Classes of one kind by name.

    Parameters
    ----------
    kind : str
        Name of the kind in messages: "loss", for example.
    base : type
        Base class of the objects, also of a user's own.
    """

    def __init__(self, kind: str, base: type[T]) -> None:
        self.kind = kind
        self.base: Any = base
        self._classes: dict[str, type[T]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __getitem__(self, name: str) -> type[T]:
        return self._classes[name]

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order of registration."""
        return tuple(self._classes)

    def register(self, cls: Class) -> Class:
        """Register a class under its `name`; for use as a decorator."""
        self._classes[cls.name] = cls  # type: ignore[attr-defined]
        return cls

    def make(self, value: T | str) -> T:
        """Return the object that a text stands for; an object is returned as it is.

        Raises
        ------
        InputError
            The name or a parameter is not known, is missing or out of range, or an object of
            another class has the name of a built-in one.
        """
        if isinstance(value, self.base):
            name = value.name
            if name in self._classes and type(value) is not self._classes[name]:
                raise InputError(
                    f"{type(value).__name__} has the name {name!r} of a built-in {self.kind}; "
                    "give the class another name"
                )
            return value  # type: ignore[no-any-return]
        if not isinstance(value, str):
            raise InputError(
                f"{self.kind} must be a name or an object of a class derived from "
                f"dadagrad.{self.base.__name__}, not {value!r}"
            )
        name, _, text = value.partition(":")
        if name not in self._classes:
            raise InputError(
                f"{self.kind} {name!r} is not known; choose one of {', '.join(self._classes)}, or "
                f"give an object of a class derived from dadagrad.{self.base.__name__}"
            )
        return self._parse(name, text)

    def _parse(self, name: str, text: str) -> T:
        cls: Any = self._classes[name]
        known = {each.name: each for each in _own_fields(cls)}
        values = {}
        for item in filter(None, text.split(",")):
            key, _, value = item.partition("=")
            if key not in known:
                listed = ", ".join(known) or "none"
                raise InputError(
                    f"{self.kind} {name!r} has no parameter {key!r}; its parameters: {listed}"
                )
            values[key] = _parse_value(f"{name}:{key}", value, str(known[key].type))
        for key, each in known.items():
            if key not in values and each.default is MISSING:
                raise InputError(f"{self.kind} {name!r} needs {key}; write {name}:{key}=VALUE")
        made: T = cls(**values)
        return made


def parameters(value: Any) -> dict[str, Any]:
    """Return the parameters of an object: its fields, or the attributes of a plain class."""
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in _own_fields(type(value))}
    return dict(getattr(value, "__dict__", {}))


def describe(value: Any) -> str:
    """Return the text that stands for an object: its name and the parameters that are not usual."""
    usual = {each.name: each.default for each in _own_fields(type(value))}
    changed = [
        f"{key}={_text(parameter)}"
        for key, parameter in parameters(value).items()
        if key not in usual or parameter != usual[key]
    ]
    return ":".join([value.name, ",".join(changed)]) if changed else str(value.name)


def _own_fields(cls: type) -> list[Any]:
    """The fields that are parameters."""
    if not is_dataclass(cls):
        return []
    return [each for each in fields(cls) if not each.metadata.get("bound")]


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    return str(value.item() if hasattr(value, "item") else value)


def _parse_value(place: str, text: str, annotation: str) -> Any:
    """Convert text to the type of a field, as its annotation names it."""
    convert: list[Callable[[str], Any]] = [float] if "float" in annotation else [int]
    if "tuple" in annotation:
        convert.append(lambda text: tuple(int(part) for part in text.split("+")))
    if "str" in annotation:
        convert = [str]
    for each in convert:
        try:
            return each(text)
        except ValueError:
            continue
    kind = "a number" if convert[0] is float else "a whole number"
    raise InputError(f"{place} must be {kind}, not {text!r}")


def check_number(name: str, value: Any, *, minimum: float = 0.0, positive: bool = False) -> None:
    """Refuse a parameter that is not a finite number from `minimum`, or above 0; `InputError`."""
    number = hasattr(value, "__float__") and not isinstance(value, bool)
    if number and math.isfinite(value) and (value > 0 if positive else value >= minimum):
        return
    bound = "above 0" if positive else f"of at least {minimum:g}"
    raise InputError(f"{name} must be a finite number {bound}, not {value!r}")


def check_sizes(name: str, value: Any) -> None:
    """Refuse a parameter that is not a whole number above 0, or a tuple of them; `InputError`."""
    sizes = value if isinstance(value, tuple) else (value,)
    if not sizes or not all(
        hasattr(size, "__index__") and not isinstance(size, bool) and size >= 1 for size in sizes
    ):
        raise InputError(
            f"{name} must be a whole number of at least 1, or a tuple of such numbers, not "
            f"{value!r}"
        )
