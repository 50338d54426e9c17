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

import math
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast, dataclass_transform

from dadagrad.errors import InputError

T = TypeVar("T")
Class = TypeVar("Class", bound=type)

BOUND = {"bound": True}
"""Metadata of a field that a run fills in, and that is no parameter: the loss of an update."""

Positive = float
"""Annotation of a parameter that is a finite number above 0."""
NonNegative = float
"""Annotation of a parameter that is a finite number of at least 0."""
Finite = float
"""Annotation of a parameter that is a finite number."""
Numbers = tuple[float, ...]
"""Annotation of a parameter that is several finite numbers."""
Rank = int
"""Annotation of the rank of a sketch, at least 2."""
Count = int
"""Annotation of a whole number of at least 0."""
Sizes = int | tuple[int, ...]
"""Annotation of the size of all blocks, or the size of each."""


class Named:
    """Base of classes whose `name` is by default that of the class."""

    __slots__ = ()
    name: ClassVar[str]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.name = vars(cls).get("name", cls.__name__)

    def __post_init__(self) -> None:
        """Check the fields of a dataclass by their annotations, such as `Positive`."""
        for each in fields(self):  # type: ignore[arg-type]
            annotation, _, optional = str(each.type).partition(" | ")
            value, kind = getattr(self, each.name), KINDS.get(annotation)
            if kind and not kind.holds(value) and not (optional and value is None):
                raise InputError(f"{each.name} of {self.name} must be {kind.words}, not {value!r}")


class Registry(Generic[T]):
    """Classes of one kind, "loss" for example, by name; `base` is theirs and that of a user's."""

    def __init__(self, kind: str, base: type[T]) -> None:
        self.kind = kind
        self.base: Any = base
        self.classes: dict[str, type[T]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.classes)

    def __getitem__(self, name: str) -> type[T]:
        return self.classes[name]

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order of registration."""
        return tuple(self)

    def make(self, value: T | str) -> T:
        """Return the object that a text stands for; an object is returned as it is.

        `InputError` if the name or a parameter is not known, missing or out of range, or an object
        of another class has the name of a built-in one.
        """
        if isinstance(value, self.base):
            name = value.name
            if name in self.classes and type(value) is not self.classes[name]:
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
        if name not in self.classes:
            raise InputError(
                f"{self.kind} {name!r} is not known; choose one of {', '.join(self.classes)}, or "
                f"give an object of a class derived from dadagrad.{self.base.__name__}"
            )
        return self._parse(name, text)

    def _parse(self, name: str, text: str) -> T:
        cls: Any = self.classes[name]
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
            try:
                values[key] = kind.parse(value)
            except ValueError:
                raise InputError(f"{name}:{key} must be {kind.words}, not {value!r}") from None
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
        frozen: Any = dataclass(frozen=True, slots=True)(cls)
        registry.classes[name] = frozen
        return cast(Class, frozen)

    return add


def parameters(value: Any) -> dict[str, Any]:
    """Return the parameters of an object: its fields, or the attributes of a plain class."""
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in _parameters_of(type(value))}
    return dict(getattr(value, "__dict__", {}))


def describe(value: Any) -> str:
    """Return the text that stands for an object: its name and the parameters that are not usual."""
    usual = {each.name: each.default for each in _parameters_of(type(value))}
    changed = [
        f"{key}={_text(parameter)}"
        for key, parameter in parameters(value).items()
        if key not in usual or parameter != usual[key]
    ]
    return ":".join([value.name, ",".join(changed)]) if changed else str(value.name)


def _parameters_of(cls: type) -> list[Any]:
    """The fields that are parameters."""
    if not is_dataclass(cls):
        return []
    return [each for each in fields(cls) if not each.metadata.get("bound")]


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    return str(value.item() if hasattr(value, "item") else value)


def _is_number(value: Any, minimum: float = -math.inf) -> bool:
    number = hasattr(value, "__float__") and not isinstance(value, bool)
    return number and math.isfinite(value) and value >= minimum


def _is_whole(value: Any, minimum: int = 1) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool) and value >= minimum


def _parse_sizes(text: str) -> int | tuple[int, ...]:
    sizes = tuple(map(int, text.split("+")))
    return sizes if "+" in text else sizes[0]


def _is_sizes(value: Any) -> bool:
    return value != () and all(map(_is_whole, value if isinstance(value, tuple) else (value,)))


class Kind(NamedTuple):
    """Values that a parameter may have: in words, from text, and a test of one."""

    words: str
    parse: Callable[[str], Any]
    holds: Callable[[Any], bool] = lambda value: True


KINDS = {
    "str": Kind("text", str),
    "int": Kind("a whole number", int),
    "float": Kind("a number", float),
    "Positive": Kind("a finite number above 0", float, lambda x: _is_number(x) and x > 0),
    "NonNegative": Kind("a finite number of at least 0", float, lambda x: _is_number(x, 0)),
    "Finite": Kind("a finite number", float, _is_number),
    "Numbers": Kind(
        "finite numbers",
        lambda text: tuple(map(float, text.split("+"))),
        lambda x: isinstance(x, tuple) and all(map(_is_number, x)),
    ),
    "Rank": Kind("a whole number of at least 2", int, lambda x: _is_whole(x, 2)),
    "Count": Kind("a whole number of at least 0", int, lambda x: _is_whole(x, 0)),
    "Sizes": Kind(
        "a whole number of at least 1, or a tuple of such numbers", _parse_sizes, _is_sizes
    ),
}
"""Kinds of parameters by the annotations of fields."""
