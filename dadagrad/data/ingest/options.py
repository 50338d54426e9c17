"""Options of ingest, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dadagrad.errors import InputError

Delimiter = Literal["\t", ","]
OnError = Literal["raise", "skip"]
Format = Literal["svmlight", "vw", "text", "csv", "parquet", "anndata", "npz"]
FORMATS: tuple[Format, ...] = ("svmlight", "vw", "text", "csv", "parquet", "anndata", "npz")
ARRAY_FORMATS = ("parquet", "anndata", "npz")

MAX_HASH_BITS = {"text": 30, "csv": 30, "vw": 31}
"""The hash has 31 bits without its sign; scikit-learn's ids are numbers of 32 bits."""

_CHOICES: dict[str, tuple[object, ...]] = {
    "format": FORMATS,
    "norm": ("l2", "none"),
    "on_error": ("raise", "skip"),
    "zero_based": (True, False, "auto"),
    "delimiter": ("\t", ",", None),
}
_FORMATS_OF: dict[str, tuple[Format, ...]] = {
    "hash_bits": ("text", "vw", "csv"),
    "ngrams": ("text",),
    "text_column": ("text",),
    "label_column": ("text", "csv", "anndata"),
    "delimiter": ("text", "csv"),
    "header": ("text", "csv"),
    "multilabel": ("svmlight",),
    "zero_based": ("svmlight",),
    "keep_names": ("vw",),
    "on_error": ("svmlight", "vw", "text", "csv"),
}


@dataclass(frozen=True, slots=True)
class Options:
    """Options for reading sources; `dadagrad.ingest` documents each of them."""

    format: Format
    hash_bits: int | None = None
    ngrams: int = 1
    binary: bool = False
    norm: str = "none"
    label_column: int | str | None = None
    text_column: int | str | None = None
    alternate_sign: bool = True
    delimiter: Delimiter | None = None
    header: bool | None = None
    multilabel: bool | None = None
    zero_based: bool | Literal["auto"] = "auto"
    keep_names: bool = False
    on_error: OnError = "raise"
    no_labels: bool = False

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"{name} is {getattr(self, name)!r}; it must be one of "
                    f"{', '.join(map(str, allowed))}"
                )
        max_bits = MAX_HASH_BITS.get(self.format, 31)
        if self.hash_bits is not None and not 1 <= self.hash_bits <= max_bits:
            raise InputError(f"hash_bits is {self.hash_bits}; it must be 1 to {max_bits}")
        if self.ngrams < 1:
            raise InputError(f"ngrams is {self.ngrams}; it must be 1 or more")
        for name, formats in _FORMATS_OF.items():
            default = type(self).__dataclass_fields__[name].default
            if self.format not in formats and getattr(self, name) != default:
                raise InputError(
                    f"{name} is {getattr(self, name)!r}, but the format is {self.format}; it "
                    f"applies to {' and '.join(formats)} only: leave it out, or choose the format"
                )
        for name in ("label_column", "multilabel"):
            if self.no_labels and getattr(self, name):
                raise InputError(f"no_labels and {name} exclude each other; give one of them")
