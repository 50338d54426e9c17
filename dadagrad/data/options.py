"""How to read sources: the options of ingest, checked, and the feature space they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dadagrad.data import csv_table, text, vw
from dadagrad.data.delimited import Delimiter, OnError
from dadagrad.errors import InputError

Format = Literal["svmlight", "vw", "text", "csv", "parquet", "anndata", "npz"]
FORMATS: tuple[Format, ...] = ("svmlight", "vw", "text", "csv", "parquet", "anndata", "npz")
ARRAY_FORMATS = ("parquet", "anndata", "npz")


@dataclass(frozen=True, slots=True)
class Options:
    """How to read sources. `dadagrad.data.ingest.ingest` explains each of them."""

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
        for name, allowed in (
            ("format", FORMATS),
            ("norm", ("l2", "none")),
            ("on_error", ("raise", "skip")),
            ("zero_based", (True, False, "auto")),
            ("delimiter", ("\t", ",", None)),
        ):
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"{name} is {getattr(self, name)!r}; it must be one of "
                    f"{', '.join(map(str, allowed))}"
                )
        largest = vw.MAX_HASH_BITS if self.format == "vw" else text.MAX_HASH_BITS
        if self.hash_bits is not None and not 1 <= self.hash_bits <= largest:
            raise InputError(f"hash_bits is {self.hash_bits}; it must be 1 to {largest}")
        if self.ngrams < 1:
            raise InputError(f"ngrams is {self.ngrams}; it must be 1 or more")
        self._refuse_unused()
        for name in ("label_column", "multilabel"):
            if self.no_labels and getattr(self, name):
                raise InputError(f"no_labels and {name} exclude each other; give one of them")

    def _refuse_unused(self) -> None:
        """An option that the format has no use for is a mistake: say so."""
        used_by: dict[str, tuple[tuple[str, ...], object]] = {
            "hash_bits": (("text", "vw", "csv"), None),
            "ngrams": (("text",), 1),
            "text_column": (("text",), None),
            "label_column": (("text", "csv", "anndata"), None),
            "delimiter": (("text", "csv"), None),
            "header": (("text", "csv"), None),
            "multilabel": (("svmlight",), None),
            "zero_based": (("svmlight",), "auto"),
            "keep_names": (("vw",), False),
            "on_error": (("svmlight", "vw", "text", "csv"), "raise"),
        }
        for name, (formats, unset) in used_by.items():
            if self.format not in formats and getattr(self, name) != unset:
                raise InputError(
                    f"{name} is {getattr(self, name)!r}, but the format is {self.format}; it "
                    f"applies to {' and '.join(formats)} only: leave it out, or choose the format"
                )


def feature_space(options: Options, table: csv_table.Table | None, zero_based: bool) -> Any:
    """How the source became features, as plain JSON; None where ids are what they were.

    Two datasets of the same space can share a model.
    """
    space: dict[str, Any] = {"format": options.format}
    if options.format == "text":
        space["hash_bits"] = options.hash_bits or text.DEFAULT_HASH_BITS
        space["ngrams"] = options.ngrams
        # The sign of a hash changes no value if values are all 1.
        space["alternate_sign"] = options.alternate_sign and not options.binary
    elif options.format == "vw":
        space["hash_bits"] = options.hash_bits
    elif options.format == "svmlight":
        space["zero_based"] = zero_based
    elif options.format == "csv" and table is not None:
        names = table.layout.names()
        space["hash_bits"] = options.hash_bits
        space["columns"] = [names[column] for column in table.features]
        space["categorical"] = [names[column] for column in table.categorical]
    elif not options.binary and options.norm == "none":
        return None
    return {**space, "binary": options.binary, "norm": options.norm}
