"""Kinds of columns, found in the first rows of a table, and the options that choose columns."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from dadagrad.data.parquet.columns import is_list, is_text
from dadagrad.data.tables.cells import is_date, is_number, is_value, to_matrix, to_texts
from dadagrad.data.tables.dates import (
    DAY,
    EXAMPLES,
    DateOrder,
    find_order,
    to_days,
    to_times,
)
from dadagrad.data.tables.lists import are_lists, commonest_length, kind_of_lists
from dadagrad.data.tables.row_columns import RowColumns, TableHead, shown, split_columns
from dadagrad.data.tables.scaling import scale_of
from dadagrad.errors import InputError, name_options

Kind = Literal["number", "code", "category", "day", "time", "text", "words"]
PLURALS: dict[str, str] = {
    "number": "numbers",
    "code": "codes (numbers and categories)",
    "category": "categories",
    "day": "dates",
    "time": "dates with the time of day",
    "text": "text",
    "words": "words",
}

_MAX_WRONG = 0.05  # words for each number in a column of numbers
_SIGNS = "$€£¥%,"
_SIGNED_NUMBER = r"^\s*[+-]?\s*[$€£¥]?\s*[+-]?\d*([.,]\d{3})*([.,]\d+)?\s*[$€£¥%]?\s*$"
_DATE = r"^\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})([ T,].*)?$"
_WORDS_OF_TEXT = 4  # mean words of a cell from which a column is text
_MIN_DISTINCT = 100  # rows from which strings that all differ are names of rows
_IS_INDEX = (
    "as it is the index of a data frame; --columns keeps it as a feature, --id takes it as names "
    "of rows"
)
_REMEDIES = (
    "--categories keeps it as categories, --text-column reads its words, --id takes it as names of "
    "rows"
)
_FAR = 4096.0  # scales from 0 to the median; float32 would round by up to 1 / 4096 of a scale
_MAX_CODES, _ROWS_OF_CODE = 128, 10  # distinct whole numbers of a code, and rows for each of them

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of features; its number x becomes (x - offset - center) / scale.

    The difference to the `offset` is rounded to float32. It is 0 unless numbers are far from 0.

    A column of few whole numbers, such as an age or the code of an industry, is a "code": a number,
    and a category as well. Each `item` of a column of lists of numbers is a column ``list.item``.
    Texts of dates have their numbers in the `date_order`.
    """

    name: str
    kind: Kind
    center: float = 0.0
    scale: float = 1.0
    offset: float = 0.0
    item: int | None = None
    date_order: DateOrder = ""

    @property
    def source(self) -> str:
        """Name of the column of the table that holds the cells."""
        return self.name if self.item is None else self.name.rpartition(".")[0]

    @property
    def is_scaled(self) -> bool:
        """True if its numbers do not stay as they are."""
        return (self.center, self.scale, self.offset) != (0.0, 1.0, 0.0)

    @property
    def is_number(self) -> bool:
        """True if the column has a feature for its number."""
        return self.kind in ("number", "code") or self.is_date

    @property
    def is_date(self) -> bool:
        """True if parts of its dates have features."""
        return self.kind in ("day", "time")


def learn_columns(head: TableHead) -> tuple[tuple[Column, ...], RowColumns]:
    """Columns of features, and those that describe rows, from the first rows."""
    options, place, find, column = head.options, head.place, head.find, head.rows.column
    others = head.row_columns()
    texts = _find_texts(head, others)
    ignored = set(head.find_all("--ignore", options.ignore))
    for name in ignored.intersection(texts):
        raise InputError(
            f"{place}: --ignore and --text-column both name the column {shown(name)}; leave it out "
            "of one of them"
        )
    categories = set(head.find_all("--categories", options.categories))
    if options.columns is not None:
        named = head.find_all("--columns", options.columns)
        features = named if options.text_column is None else [*named, *texts]
    elif texts and not categories:
        features = texts
    else:
        features = [name for name in head.names if name not in others.names]
    features = [name for name in dict.fromkeys(features) if name not in ignored]
    crossed = {find("--cross", name) for cross in options.cross for name in cross}
    for name in categories.difference(features, crossed):
        raise InputError(
            f"{place}: --categories names the column {shown(name)}, which does not become features "
            "(see --label, --id, --weight, --query, --columns, --ignore); leave it out of one of "
            "them"
        )
    kinds: dict[str, Kind] = {
        name: "words" if is_list(column(name).type) else "category" for name in categories
    }
    kinds |= dict.fromkeys(texts, "text")
    chosen = {*kinds, *crossed}
    numbers = _numbers(head.rows, features)
    kinds |= {n: _kind(column(n), numbers.get(n), n, place) for n in features if n not in kinds}
    if options.columns is None:
        features = _informative(head, features, kinds, chosen)
    for label in others.labels:
        if label in features:
            raise InputError(f"{place}: --columns has the label {shown(label)}; leave it out")
    columns = [each for name in features for each in _columns(name, kinds[name], column(name))]
    if not columns:
        is_unnamed = head.names[0].isdecimal() and head.rows.num_rows
        first = str(column(0)[0].as_py()) if is_unnamed else head.names[0]
        listed = f"one column, {shown(first)}" if len(head.names) == 1 else "no other columns"
        raise InputError(
            f"{place}: the first row has {listed}; needed are a label and at least one feature "
            "(columns of text are separated by --delimiter)"
        )
    if options.scales_numbers:
        columns = [_with_offset(each, column(each.source), numbers) for each in columns]
    return tuple(columns), others


def _find_texts(head: TableHead, others: RowColumns) -> list[str]:
    """Names of the columns of texts: those chosen, or in the format "text" that beside `others`."""
    columns = split_columns(head.names, head.options.text_column)
    if not columns and head.options.format == "text":
        taken = {*others.names, *head.indexes}
        left = [name for name in head.names if name not in taken]
        columns = [left[0] if len(left) == 1 else int(bool(others.labels))]
    texts = [head.find("--text-column", column) for column in columns]
    for text in texts:
        if text in others.labels:
            raise InputError(
                f"{head.place}: --label and --text-column are both column {shown(text)}; name two "
                "columns"
            )
    return texts


def _informative(
    head: TableHead, features: Sequence[str], kinds: Mapping[str, Kind], chosen: Set[str]
) -> list[str]:
    """The `features` but for those not `chosen` that number or name rows, unless all do."""
    left_out = dict.fromkeys(head.indexes, _IS_INDEX)
    n_rows = head.rows.num_rows
    all_differ = f"as no value occurs twice in the first {n_rows} rows; {_REMEDIES}"
    for name in features:
        if kinds[name] == "category" and _names_rows(head.rows.column(name)):
            left_out.setdefault(name, all_differ)
    for name in chosen:
        left_out.pop(name, None)
    if left_out.keys() >= set(features):
        return list(features)
    for name in features:
        if name in left_out:
            reason = name_options(left_out[name])
            logger.warning(f"{head.place}: column {shown(name)} is left out, {reason}")
    return [name for name in features if name not in left_out]


_Numbers = tuple[NDArray[np.float64], NDArray[np.bool_]]
"""Numbers in the cells of a column, and the cells that hold something else."""


def _numbers(head: pa.RecordBatch, names: Sequence[str]) -> dict[str, _Numbers]:
    """The numbers in the columns, of those `names`, that are of numbers, of texts or empty."""
    columns = {name: head.column(name) for name in names}
    for name, kind in [(name, cells.type) for name, cells in columns.items()]:
        if not (is_number(kind) or is_text(kind) or types.is_null(kind)):
            del columns[name]
    if not columns:
        return {}
    numbers, wrong = to_matrix(list(columns.values()))
    return dict(zip(columns, zip(numbers.T, wrong.T, strict=True), strict=True))


def _with_offset(column: Column, cells: pa.Array, numbers: Mapping[str, _Numbers]) -> Column:
    """`column` with the median of its first `cells` if they are far from 0 for their spread."""
    if not column.is_number or column.item is not None:
        return column
    if column.is_date:
        values = to_days(to_times(cells, column.date_order)[0])
    else:
        values = numbers[column.name][0]
    center, scale = scale_of(values[np.isfinite(values)])
    return replace(column, offset=center) if abs(center) > _FAR * scale else column


def _kind(cells: pa.Array, as_numbers: _Numbers | None, name: str, place: str) -> Kind:
    """Kind of a column by the type and the content of its first `cells`."""
    kind = cells.type
    if is_number(kind) and as_numbers is not None:
        return _kind_of_numbers(as_numbers[0])
    if is_date(kind):
        return _kind_of_dates(cells)
    if is_list(kind) and (of_lists := kind_of_lists(cells)) is not None:
        return of_lists
    if types.is_boolean(kind) or (types.is_dictionary(kind) and is_value(kind)):
        return "category"
    if types.is_null(kind):
        return "number"
    if as_numbers is None:
        raise InputError(
            f"{place}: column {shown(name)} is {kind}, which cannot become features; leave it out "
            "with --ignore"
        )
    numbers, wrong = as_numbers
    n_words = int(np.count_nonzero(wrong & np.isnan(numbers)))
    n_numbers = int(np.count_nonzero(~np.isnan(numbers)))
    if n_words <= _MAX_WRONG * n_numbers:
        # The encoder names the first row with something else.
        return _kind_of_numbers(numbers)
    filled = _filled(cells)
    signed = filled.filter(pc.match_substring_regex(filled, f"[{_SIGNS}]"))
    if len(signed) and pc.all(pc.match_substring_regex(filled, _SIGNED_NUMBER)).as_py():
        raise InputError(
            f"{place}: column {shown(name)} holds numbers with commas or signs, such as "
            f"{shown(signed[0].as_py())}; write them with a point, and without separators of "
            "thousands, currencies and percent signs, or read the column with --categories"
        )
    if len(filled) and are_lists(filled):
        raise InputError(
            f"{place}: column {shown(name)} holds texts of lists of numbers, such as "
            f"{shown(filled[0].as_py())}; give lists, as in Parquet and JSON lines (Dask makes "
            "texts unless dataframe.convert-string is False), or read words with --text-column"
        )
    if len(filled) and (order := find_order(filled)) is not None:
        return _kind_of_dates(filled, order)
    if not n_numbers and len(filled):
        texts = to_texts(filled)  # sentences differ from row to row
        mean_words = sum(len(text.split()) for text in texts) / len(texts)
        if 2 * len(set(texts)) >= len(texts) and mean_words >= _WORDS_OF_TEXT:
            return "text"
    if not _names_rows(cells):
        are_words = pa.array(wrong & np.isnan(numbers))
        _warn_of_categories(cells, are_words, n_numbers, f"{place}: column {shown(name)}")
    return "category"


def _warn_of_categories(cells: pa.Array, are_words: pa.Array, n_numbers: int, place: str) -> None:
    """Warn of cells that become categories, though most of them are numbers or look like dates."""
    words = _filled(cells.filter(are_words))
    dates = words.filter(pc.match_substring_regex(words, _DATE))
    if n_numbers > len(words):
        found, n_found, odd = "numbers", n_numbers, words
        remedy = "leave these empty to have numbers"
    elif 2 * len(dates) > len(words) + n_numbers:
        found, n_found = f"dates such as {shown(dates[0].as_py())}", len(dates)
        odd = words.filter(pc.invert(pc.match_substring_regex(words, _DATE)))
        remedy = "write all of them as 2024-05-31 to have dates"
    else:
        return
    others = f", and {len(odd):,} others such as {shown(odd[0].as_py())}" if len(odd) else ""
    logger.warning(
        f"{place} is read as categories; in the first rows it has {n_found:,} {found}{others}: "
        f"{remedy}, or {name_options('name the column in --categories')}"
    )


def _columns(name: str, kind: Kind, cells: pa.Array) -> list[Column]:
    """The column, or those of the items of its lists of numbers."""
    if kind in ("day", "time"):
        texts = _filled(cells) if is_text(cells.type) else cells
        return [Column(name, kind, date_order=find_order(texts) or "")]
    if kind != "number" or not is_list(cells.type):
        return [Column(name, kind)]
    items = range(commonest_length(cells))
    return [Column(f"{name}.{item}", kind, item=item) for item in items]


def _filled(texts: pa.Array) -> pa.Array:
    """The texts that are neither missing nor blank."""
    return texts.filter(pc.not_equal(pc.utf8_trim_whitespace(texts), ""))


def _names_rows(cells: pa.Array) -> bool:
    """True for short strings that all differ: they name rows, and teach nothing about others."""
    if not is_text(cells.type) or types.is_dictionary(cells.type):
        return False
    filled = _filled(cells)
    return len(filled) >= _MIN_DISTINCT and pc.count_distinct(filled).as_py() == len(filled)


def _kind_of_numbers(numbers: NDArray[np.float64]) -> Kind:
    """A code if the numbers are whole, and each of them is there several times."""
    present = numbers[~np.isnan(numbers)]
    if not len(present) or (present != np.rint(present)).any():
        return "number"
    n_codes = len(np.unique(present))
    few = 2 < n_codes <= min(_MAX_CODES, len(present) // _ROWS_OF_CODE)
    return "code" if few else "number"


def _kind_of_dates(cells: pa.Array, order: DateOrder = "") -> Kind:
    """Times if one of the dates has a time of day, other than midnight."""
    microseconds = pc.cast(pc.drop_null(to_times(cells, order)[0]), pa.int64()).to_numpy()
    return "time" if (microseconds % DAY).any() else "day"


def column_from_json(plain: Any) -> Column:
    """The column of plain JSON; raises `InputError` if it is not one."""
    given: Any = plain if isinstance(plain, dict) else {}
    name, kind, item = (given.get(key) for key in ("name", "kind", "item"))
    order = given.get("date_order", "")
    numbers = [given.get(key, 0.0) for key in ("center", "scale", "offset")]
    suits = isinstance(name, str) and kind in get_args(Kind) and order in EXAMPLES
    suits = suits and all(type(n) in (int, float) and np.isfinite(n) for n in numbers)
    if not suits or not (item is None or (type(item) is int and name.endswith(f".{item}"))):
        raise InputError(f"{plain!r:.80} does not describe a column of a table")
    center, scale, offset = map(float, numbers)
    return Column(name, kind, center, scale or 1.0, offset, item, order)
