"""Options for reading sources, each written once. No heavy library is imported.

A field of `Options` carries its help, its permitted values and its place on the command line, as
those of `dadagrad.config.TrainConfig` do: the parameters of `dadagrad.ingest` and the options of
the commands that read raw files are made from the fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from dadagrad.errors import InputError, OnError
from dadagrad.settings import Choice, Number, Setting, Switch, setting

Delimiter = Literal["\t", ",", ";", "|"]
Format = Literal["svmlight", "vw", "text", "csv", "jsonl", "parquet", "anndata", "npz"]
FORMATS: tuple[Format, ...] = get_args(Format)
MATRIX_FORMATS = ("anndata", "npz")
ARRAY_FORMATS = ("parquet", *MATRIX_FORMATS)
TABLE_FORMATS: tuple[Format, ...] = ("text", "csv", "jsonl", "parquet")

DEFAULT_HASH_BITS = 20
"""HashingVectorizer's own default: about a million features."""

_OF_CSV = ("delimiter", "header")
_OF_NAMES = ("hash_bits", "keep_names", "cross", "columns", "ignore")
_OF_TABLES = ("text_column", "categories", "id", "weight", "query", "ngrams", "scale")
_FORMATS_OF: dict[str, tuple[Format, ...]] = {
    "label": ("anndata", *TABLE_FORMATS),
    "multilabel": ("svmlight",),
    "on_error": ("svmlight", "vw", *TABLE_FORMATS),
    **dict.fromkeys(_OF_CSV, ("text", "csv")),
    **dict.fromkeys(_OF_NAMES, ("vw", *TABLE_FORMATS)),
    **dict.fromkeys(_OF_TABLES, TABLE_FORMATS),
}
"""Formats to which an option applies; one that is not named applies to all."""


def _is_list(value: object) -> bool:
    """True for a text, and for anything else whose items are values of an option."""
    return isinstance(value, Iterable) and not isinstance(value, Mapping | bytes)


@dataclass(frozen=True)
class Column:
    """A column by its name, or by its number, from 0; `several` in a list, or with commas."""

    type_text: str = "int, str or None"
    metavar: str = "C"
    several: bool = False

    def convert(self, name: str, value: Any) -> int | str | tuple[int | str, ...] | None:
        is_list = self.several and isinstance(value, list | tuple) and len(value) > 0
        columns = value if is_list else () if value is None else (value,)
        if not all(isinstance(each, int | str) and not isinstance(each, bool) for each in columns):
            needed = "the name or the number of a column" + ", or a list of them" * self.several
            if hasattr(value, "shape"):
                raise InputError(
                    f"{name} must be {needed}, not an array; arrays of labels and weights go "
                    "beside X, as (X, y, weights), and one of queries into dataset_from_arrays"
                )
            raise InputError(f"{name} must be {needed}, not {value!r}")
        return tuple(value) if is_list else value

    def parse(self, name: str, text: str) -> int | str:
        return int(text) if text.isdecimal() else text


SEVERAL_COLUMNS = Column(type_text="int, str, list or None", metavar="C,C", several=True)


@dataclass(frozen=True)
class Columns:
    """Names of columns."""

    type_text: str = "list of str"
    metavar: str = "C,C"

    def convert(self, name: str, value: str | Iterable[str] | None) -> tuple[str, ...] | None:
        if value is None:
            return None
        if not _is_list(value):
            raise InputError(f"{name} must be names of columns, as a list, not {value!r}")
        return tuple(value.split(",") if isinstance(value, str) else map(str, value))

    parse = convert


@dataclass(frozen=True)
class Crosses:
    """Combinations of columns, or of namespaces."""

    type_text: str = "list of str"
    metavar: str = "C:C"

    def convert(self, name: str, value: Any) -> tuple[tuple[str, ...], ...]:
        texts = value.split(",") if isinstance(value, str) else value
        if not (_is_list(texts) and all(map(_is_list, texts))):
            raise InputError(f"{name} must be texts such as a:b, as a list, not {value!r}")
        crosses = tuple(tuple(each.split(":")) if isinstance(each, str) else each for each in texts)
        for cross in crosses:
            if len(cross) < 2 or "" in cross:
                raise InputError(
                    f"{name} is {':'.join(cross)!r}; needed are two columns or more, such as a:b"
                )
        return crosses

    def parse(self, name: str, text: str) -> str:
        return text  # one of several


@dataclass(frozen=True, slots=True)
class Options:
    """Options for reading sources, checked when they are made.

    Recorded is `zero_based`: whether svmlight's ids begin at 0, as they do if any id is 0. Rows
    `to_predict` come as soon as they are there, with labels as far as they have any.
    """

    format: Format = setting(
        None,
        Choice(FORMATS),
        "Format of the files. text is csv of labels and texts, csv may have tabs, and parquet is a "
        "table, or any dataset.",
        "Common",
        research=True,
        shown_default="by their names and first lines",
    )
    label: int | str | tuple[int | str, ...] | None = setting(
        None,
        SEVERAL_COLUMNS,
        "Column of the label, by name or number from 0. Several columns of numbers or booleans "
        "(toxic,insult) have an output each. For anndata, it is one of obs.",
        "Common",
        shown_default="label, or else 0",
    )
    text_column: int | str | tuple[int | str, ...] | None = setting(
        None,
        SEVERAL_COLUMNS,
        "Column of a text, or several (title,body). The others are features only if columns names "
        "them.",
        "Columns",
    )
    columns: tuple[str, ...] | None = setting(
        None,
        Columns(),
        "Columns, or namespaces, that are features.",
        "Columns",
        research=True,
        shown_default="all but the label",
    )
    ignore: tuple[str, ...] = setting(
        (), Columns(), "Columns, or namespaces, that are not features.", "Columns"
    )
    categories: tuple[str, ...] = setting(
        (),
        Columns(),
        "Columns of numbers (codes) that are categories.",
        "Columns",
    )
    cross: tuple[tuple[str, ...], ...] = setting(
        (),
        Crosses(),
        "Combine categories or namespaces (city:product). Several can be given.",
        "Columns",
        research=True,
    )
    id: int | str | None = setting(
        None,
        Column(),
        "Column that names rows in predictions. It is kept as their tag, and is not a feature.",
        "Columns",
        research=True,
    )
    weight: int | str | None = setting(
        None,
        Column(),
        "Column of the weight of each row, at least 0. A row of weight 0 is left out.",
        "Columns",
        research=True,
    )
    query: int | str | None = setting(
        None,
        Column(),
        "Column of the query of each row, for rankings. Queries are numbers or texts.",
        "Columns",
        research=True,
    )
    delimiter: Delimiter | None = setting(
        None,
        Choice(("\t", ",", ";", "|"), optional=True, words=("tab", "comma", "semicolon", "bar")),
        "Delimiter of columns (csv).",
        "Columns",
        research=True,
        shown_default="by the name and the first rows",
    )
    header: bool | None = setting(
        None,
        Switch(optional=True),
        "Read column names in the first row (csv).",
        "Columns",
        research=True,
        shown_default="detected",
    )
    hash_bits: int | None = setting(
        None,
        Number(whole=True, optional=True),
        "Hash names of features to 2^N ids (tables, vw). The names of a vw file are not hashed by "
        "default if all are integers in one namespace, which are then the ids. Numbers of a table "
        "have ids of their own.",
        "Features",
        research=True,
        shown_default="20; 18 for vw",
    )
    ngrams: int = setting(
        1, Number(whole=True, minimum=1), "Make features of 1 to N words of a text.", "Features"
    )
    binary: bool = setting(
        False,
        Switch(),
        "Replace every value that is not zero by 1.",
        "Features",
        research=True,
    )
    norm: str = setting(
        "none",
        Choice(("l2", "none")),
        "Scale every row to length 1, or not.",
        "Features",
        research=True,
    )
    scale: str = setting(
        "robust",
        Choice(("robust", "none")),
        "Scale numbers by median and quartiles, or not. Numbers far from the median are "
        "compressed; a missing number becomes the median, and has a feature that says so.",
        "Features",
        research=True,
    )
    keep_names: bool | None = setting(
        None,
        Switch(optional=True),
        "Keep the names of hashed features.",
        "Features",
        research=True,
        option="keep-names/--no-names",
        shown_default="those of tables, up to 2^20",
    )
    multilabel: bool = setting(
        False,
        Switch(),
        "Read labels as sets, which may be empty (svmlight).",
        "Rows",
        research=True,
        shown_default="if any row has several",
    )
    on_error: OnError = setting(
        "raise",
        Choice(("raise", "skip")),
        "Stop at a malformed row, or leave it out. Rows that are left out are named and counted.",
        "Rows",
    )
    no_labels: bool = setting(
        False,
        Switch(),
        "Read rows to predict. Labels are not needed, and those of svmlight, vw and array files "
        "not kept. Every column of csv is a feature, and the first column of text is the text. The "
        "dataset cannot be used for training.",
        "Rows",
        option="no-labels/--labels",
        shown_default="labels",
    )
    zero_based: bool | None = None
    to_predict: bool = False
    keep_lines: bool = False

    @property
    def scales_numbers(self) -> bool:
        """True if the numbers of tables are scaled."""
        return self.scale != "none" and not self.binary

    def __post_init__(self) -> None:
        for name, described in OPTIONS.items():
            value = described.kind.convert(name, getattr(self, name))
            object.__setattr__(self, name, value)
            formats = _FORMATS_OF.get(name, FORMATS)
            if self.format not in formats and value != described.default:
                if isinstance(value, tuple):  # columns, or crosses of them
                    texts = (each if isinstance(each, str) else ":".join(each) for each in value)
                    value = ",".join(texts)
                raise InputError(
                    f"{name} is {value!r}, but the format is {self.format}; it applies to "
                    f"{', '.join(formats)} only: leave it out, or choose the format"
                )
        # The hash of vw has 31 bits without its sign; scikit-learn's ids are numbers of 32 bits.
        max_bits = 31 if self.format == "vw" else 30
        if self.hash_bits is not None and not 1 <= self.hash_bits <= max_bits:
            raise InputError(f"hash_bits is {self.hash_bits}; it must be 1 to {max_bits}")
        for name in ("label", "multilabel"):
            if self.no_labels and getattr(self, name):
                raise InputError(f"no_labels and {name} exclude each other; give one of them")


OPTIONS: dict[str, Setting] = {
    each.name: each.metadata["setting"] for each in fields(Options) if each.metadata
}
"""Options by name, in the order of the fields of `Options`."""


FREE = {
    "format", "label", "id", "weight", "query", "no_labels", "on_error", "delimiter", "header",
    "keep_names",
}  # fmt: skip
"""Options that may differ from the recorded ones, because no feature depends on them."""


def given_options(settings: Mapping[str, Any], *, free: Set[str] = frozenset()) -> list[str]:
    """Options among `settings` that are not defaults, without those that are `free`.

    Raises `InputError` for a value of another kind.
    """
    chosen = (
        (name, value, OPTIONS[name])
        for name, value in settings.items()
        if name in OPTIONS and name not in free and value is not None
    )
    return [name for name, value, each in chosen if each.kind.convert(name, value) != each.default]
