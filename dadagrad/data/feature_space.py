"""Feature spaces: how sources became the features of a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_FNV_PRIME, _MASK_64, _MASK_31 = 16777619, 2**64 - 1, 2**31 - 1
_UNSHOWN = ("reading", "names", "has_missing")
_WITHOUT_EFFECT: tuple[Any, ...] = (None, False, "none", "", 1, [])


def hash_of_cross(hashes: Iterable[Any]) -> Any:
    """The hash, of 31 bits, of a combination of features with these hashes.

    Each of them is an int, or an array of uint64 for many combinations, and so is the result.
    """
    mixed: Any = 0
    for hashed in hashes:
        mixed = (mixed * _FNV_PRIME & _MASK_64) ^ hashed
    return (mixed ^ mixed >> 32) & _MASK_31  # the low bits of a product depend on low bits alone


@dataclass(frozen=True, slots=True)
class FeatureSpace:
    """The format of the sources and the options that decide what a feature is.

    `plain` has them by name, as plain JSON; it is empty if they are not known, and the space is
    false then. A model trained in one space refuses data of another. How to read a table, which
    may differ within a space, is under "reading", and a checksum of the names of the columns of a
    matrix under "names".
    """

    plain: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.plain)

    def __str__(self) -> str:
        """The format and the options that had an effect, in words."""
        texts: list[str] = []
        if self.format is None and self.reading:  # columns of a matrix
            texts.append(str(self.reading["format"]))
        for name, value in self.plain.items():
            words = name.replace("_", " ")
            if name in _UNSHOWN or (value is not True and value in _WITHOUT_EFFECT):
                continue
            if name == "format":
                texts.insert(0, str(value))
            elif isinstance(value, list):
                are_names = all(isinstance(each, str) for each in value)
                texts.append(f"{words} {','.join(value)}" if are_names else f"{len(value)} {words}")
            else:
                texts.append(words if value is True else f"{words} {value}")
        return ", ".join(texts)

    @property
    def format(self) -> str | None:
        """The format of the sources; "text" and "table" for those that became a table."""
        return self.plain.get("format")

    @property
    def reading(self) -> Mapping[str, Any]:
        """The options with which the sources were read, which need not be those of other data."""
        reading: Mapping[str, Any] = self.plain.get("reading", {})
        return reading

    @property
    def of_text(self) -> bool:
        """True if features were made of texts alone."""
        return self.format == "text"

    @property
    def of_table(self) -> bool:
        """True if features were made of the columns of a table, of which text has one."""
        return self.format in ("text", "table")

    @property
    def keeps_ids(self) -> bool:
        """True if feature ids are those of the source, without a bound but the highest id."""
        return self.format in ("svmlight", "vw") and not self.hash_bits

    @property
    def first_id(self) -> int:
        """Id of feature 0 in files: 1 if ids of svmlight begin at 1, else 0."""
        return int(self.plain.get("zero_based") is False)

    @property
    def hash_bits(self) -> int | None:
        """Bits of the hashes that names of features became; None without hashing."""
        return self.plain.get("hash_bits")

    @property
    def crosses(self) -> list[list[str]]:
        """Namespaces of Vowpal Wabbit whose combinations are features."""
        return [cross.split(":") for cross in self.plain.get("cross", ())]

    @property
    def binary(self) -> bool:
        """True if all values are 1, up to the norm of their row."""
        return bool(self.plain.get("binary"))

    @property
    def norm(self) -> str:
        """The norm to which rows were scaled, or "none"."""
        return str(self.plain.get("norm", "none"))

    def differing(self, other: FeatureSpace) -> list[str]:
        """Names of the options that make `other` another space; only "format" if that differs."""
        names = sorted({*self.plain, *other.plain} - {"reading", "names"})
        differing = [name for name in names if self.plain.get(name) != other.plain.get(name)]
        return ["format"] if "format" in differing else differing
