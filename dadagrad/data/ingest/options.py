"""Formats of sources, and the options of each. No heavy library is imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dadagrad.errors import InputError, OnError

Delimiter = Literal["\t", ","]
Format = Literal["svmlight", "vw", "text", "csv", "jsonl", "parquet", "anndata", "npz"]
FORMATS: tuple[Format, ...] = (
    *("svmlight", "vw", "text", "csv", "jsonl", "parquet", "anndata", "npz"),
)
ARRAY_FORMATS = ("parquet", "anndata", "npz")
TABLE_FORMATS: tuple[Format, ...] = ("text", "csv", "jsonl", "parquet")

DEFAULT_HASH_BITS = 20
"""HashingVectorizer's own default: about a million features."""

MAX_HASH_BITS = {"vw": 31}
"""The hash has 31 bits without its sign; scikit-learn's ids are numbers of 32 bits."""

CHOICES: dict[str, tuple[object, ...]] = {
    "format": FORMATS,
    "norm": ("l2", "none"),
    "on_error": ("raise", "skip"),
    "zero_based": (True, False, "auto"),
    "delimiter": ("\t", ",", None),
    "scale": ("robust", "none"),
}
_FORMATS_OF: dict[str, tuple[Format, ...]] = {
    "hash_bits": ("vw", *TABLE_FORMATS),
    "ngrams": TABLE_FORMATS,
    "text_column": TABLE_FORMATS,
    "label": ("anndata", *TABLE_FORMATS),
    "columns": TABLE_FORMATS,
    "ignore": TABLE_FORMATS,
    "categories": TABLE_FORMATS,
    "cross": TABLE_FORMATS,
    "id": TABLE_FORMATS,
    "scale": TABLE_FORMATS,
    "delimiter": ("text", "csv"),
    "header": ("text", "csv"),
    "multilabel": ("svmlight",),
    "zero_based": ("svmlight",),
    "keep_names": ("vw", *TABLE_FORMATS),
    "on_error": ("svmlight", "vw", *TABLE_FORMATS),
}


@dataclass(frozen=True, slots=True)
class Options:
    """Options for reading sources; `dadagrad.ingest` documents each of them."""

    format: Format
    hash_bits: int | None = None
    ngrams: int = 1
    binary: bool = False
    norm: str = "none"
    label: int | str | None = None
    text_column: int | str | None = None
    columns: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    cross: tuple[tuple[str, ...], ...] = ()
    id: int | str | None = None
    scale: str = "robust"
    alternate_sign: bool = True
    delimiter: Delimiter | None = None
    header: bool | None = None
    multilabel: bool | None = None
    zero_based: bool | Literal["auto"] = "auto"
    keep_names: bool | None = None
    on_error: OnError = "raise"
    no_labels: bool = False
    keep_lines: bool = False
    note_skipped: bool = True

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"{name} is {getattr(self, name)!r}; it must be one of "
                    f"{', '.join(map(str, allowed))}"
                )
        max_bits = MAX_HASH_BITS.get(self.format, 30)
        if self.hash_bits is not None and not 1 <= self.hash_bits <= max_bits:
            raise InputError(f"hash_bits is {self.hash_bits}; it must be 1 to {max_bits}")
        if self.ngrams < 1:
            raise InputError(f"ngrams is {self.ngrams}; it must be 1 or more")
        for name, formats in _FORMATS_OF.items():
            default = type(self).__dataclass_fields__[name].default
            if self.format not in formats and getattr(self, name) != default:
                raise InputError(
                    f"{name} is {getattr(self, name)!r}, but the format is {self.format}; it "
                    f"applies to {', '.join(formats)} only: leave it out, or choose the format"
                )
        for name in ("label", "multilabel"):
            if self.no_labels and getattr(self, name) not in (None, False):
                raise InputError(f"no_labels and {name} exclude each other; give one of them")
