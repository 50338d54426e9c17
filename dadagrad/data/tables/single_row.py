"""Features of one row of a table in plain Python, in microseconds.

The formulas are those of `encoding` and `scaling`, without Arrow and compiled code, whose calls
take longer than the work on one row.
"""

from __future__ import annotations

import math
import re
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from operator import sub
from typing import Any

import numpy as np
import pyarrow as pa

from dadagrad.data.feature_space import FeatureSpace, hash_of_cross
from dadagrad.data.reading.options import Options
from dadagrad.data.rows import Entries, finish_entries
from dadagrad.data.tables.cells import (
    BOOLEANS,
    MISSING,
    NOT_A_NUMBER,
    WHOLE_NUMBER,
    Batch,
    as_number,
    columns_of_rows,
    is_missing,
    to_categories,
)
from dadagrad.data.tables.dates import DAY
from dadagrad.data.tables.encoder import TableEncoder
from dadagrad.data.tables.encoding import TableParser
from dadagrad.data.tables.row_columns import no_column, shown
from dadagrad.data.tables.scaling import LINEAR
from dadagrad.data.tables.words import runs_of_text
from dadagrad.errors import InputError

_EPOCH = date(1970, 1, 1).toordinal()
_ISO_TIME = re.compile(
    r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII
)
_FLOAT_MAX = sys.float_info.max
_LISTS = (list, tuple, np.ndarray)
_UNLABELLED = Options("csv", no_labels=True)


class _OtherKind(TypeError):
    """A cell of a kind that only Arrow knows, such as decimals, or that no column has."""


class RowReader:
    """Reader of a row, which is a dict of cells by column, or a text if that is all there is."""

    def __init__(self, encoder: TableEncoder) -> None:
        from sklearn.utils import murmurhash3_32  # loads slowly

        self._encoder, self._murmur = encoder, murmurhash3_32
        self._mask = 2 ** (encoder.hash_bits or 0) - 1
        self._numbers = encoder.numbers
        self._first = len(encoder.numbers)
        self._columns = [(column.name, column.kind) for column in encoder.columns]
        self._sources = encoder.lengths
        self._nested = [name for name in self._sources if "." in name]
        self._lists = {name: length for name, length in self._sources.items() if length is not None}
        self._dates = [column.name for column in encoder.columns if column.is_date]
        self._is_scaled = any(column.is_scaled for column in self._numbers)
        self._offsets = [column.offset for column in self._numbers]

    def __call__(self, row: Any) -> Entries:
        encoder = self._encoder
        if isinstance(row, str):
            row = {self._columns[0][0]: row}
        try:
            if self._nested:
                row = row | {name: _inner(row, name) for name in self._nested if name not in row}
            try:
                cells = row | {name: _days(row[name]) for name in self._dates}
                for name, length in self._lists.items():
                    cells |= _items(name, length, row[name])
                ids, values = self._read_numbers(cells)
                self._add_others(cells, ids, values)
            except _OtherKind:
                return self._read_by_arrow(row)
        except KeyError as error:
            message = no_column(list(_names_of(row)), error.args[0], "the model names", "the row")
            raise InputError(f"{message} (give None where the value is missing)") from None
        return finish_entries(ids, values, binary=encoder.binary, norm=encoder.norm)

    def _read_by_arrow(self, row: Mapping[str, Any]) -> Entries:
        row = {name: row[name] for name in self._sources}
        try:
            table = columns_of_rows([row])
        except (pa.ArrowException, OverflowError, TypeError) as error:
            raise InputError(f"the row: {error}; give numbers, texts, dates or lists") from None
        batch = Batch(table, lambda number: "the row")
        block = self._encoder.finish(TableParser(self._encoder, _UNLABELLED).encode(batch))
        values = np.ones(block.nnz, np.float32) if block.values is None else block.values
        if block.row_scale is not None:
            values = values * block.row_scale[0]
        return np.asarray(block.ids, np.int64), values

    def _read_numbers(self, row: Mapping[str, Any]) -> tuple[list[int], list[float]]:
        """Scaled numbers and their features; one that is missing counts as the center."""
        encoder = self._encoder
        cells = [row[column.name] for column in self._numbers]
        try:
            numbers = array("d", cells)
        except (TypeError, ValueError, OverflowError):
            pairs = zip(self._numbers, cells, strict=True)
            numbers = array("d", [self._number(column.name, cell) for column, cell in pairs])
        numbers = array("f", map(sub, numbers, self._offsets))
        ids, values = list(range(len(cells))), []
        for place, (column, number) in enumerate(zip(self._numbers, numbers, strict=True)):
            if math.isnan(number):
                if encoder.has_missing:
                    ids[place] = encoder.first_missing + place
                values.append(float(encoder.has_missing))
                continue
            z = (number - column.center) / column.scale
            if self._is_scaled and abs(z) > LINEAR:
                z = math.copysign(LINEAR * (1.0 + math.log(abs(z) / LINEAR)), z)
            values.append(z)
        return ids, values

    def _number(self, name: str, cell: Any) -> float:
        if isinstance(cell, int | float) and abs(cell) <= _FLOAT_MAX:
            return float(cell)
        if isinstance(cell, np.number | np.bool_):
            return float(cell.item())
        text = "" if is_missing(cell) else str(cell).strip()
        number = math.nan if text in MISSING else as_number(text)
        if math.isnan(number) and text not in MISSING and not re.match(NOT_A_NUMBER, text):
            raise InputError(f"the row: column {shown(name)} holds {shown(text)}, not a number")
        return number

    def _add_others(self, row: Mapping[str, Any], ids: list[int], values: list[float]) -> None:
        """Add hashed features, and their values."""
        encoder, murmur, mask, first = self._encoder, self._murmur, self._mask, self._first
        hashes: dict[str, int] = {}
        for name, kind in self._columns:
            if kind == "category":
                text = _category(row[name])
                text = re.sub(WHOLE_NUMBER, r"\1", text) if text.endswith(".0") else text
                hashes[name] = abs(murmur(f"{name}={BOOLEANS.get(text, text)}"))
                ids.append(first + (hashes[name] & mask))
            elif kind == "code":
                number = self._number(name, row[name])
                hashes[name] = abs(murmur(f"{name}={_category(number)}"))
                if not math.isnan(number):
                    ids.append(first + (hashes[name] & mask))
            elif kind in ("day", "time"):
                for part in _parts_of_date(row[name], kind):
                    ids.append(first + (abs(murmur(f"{name}.{part}")) & mask))
            elif kind == "words":
                words = [f"{name}={_category(word)}" for word in _texts(row[name], str | int)]
                ids += [first + (abs(murmur(word)) & mask) for word in words]
            elif kind == "text":
                prefix = "" if encoder.is_text else f"{name}="
                cell = row[name]
                items = _texts(cell) if isinstance(cell, _LISTS) else [cell]
                text = cell if isinstance(cell, str) else " ".join(map(_category, items))
                runs = runs_of_text(text, encoder.ngrams)
                signed = [murmur(prefix + run) for run in runs]
                ids += [first + (abs(hashed) & mask) for hashed in signed]
                if not encoder.binary:
                    values += [1.0] * (len(ids) - len(signed) - len(values))
                    values += [-1.0 if hashed < 0 else 1.0 for hashed in signed]
        for cross in encoder.crosses:
            ids.append(first + (hash_of_cross(map(hashes.__getitem__, cross)) & mask))
        values += [1.0] * (len(ids) - len(values))


def _names_of(row: Mapping[Any, Any]) -> Iterator[str]:
    """Yield the names of the columns of a row; those in a dict have the name of the dict, too."""
    for key, cell in row.items():
        if isinstance(cell, dict):
            yield from (f"{key}.{name}" for name in _names_of(cell))
        else:
            yield str(key)


def _inner(row: Any, name: str) -> Any:
    """Cell of a column ``outer.inner``, which is in a dict in the row."""
    for key in name.split("."):
        if is_missing(row):
            return None
        if not isinstance(row, dict) or key not in row:
            raise KeyError(name)
        row = row[key]
    return row


def sign_of_names(space: FeatureSpace, names: Iterable[str | None]) -> list[float]:
    """The sign of the value of each feature by its name: -1 for words with a negative hash."""
    from sklearn.utils import murmurhash3_32  # loads slowly

    encoder = TableEncoder.of_space(space)
    texts = tuple(f"{column.name}=" for column in encoder.columns if column.kind == "text")
    prefix = "" if encoder.is_text else texts
    return [
        -1.0 if name and name.startswith(prefix) and murmurhash3_32(name) < 0 else 1.0
        for name in names
    ]


def _items(name: str, length: int, cell: Any) -> dict[str, Any]:
    """Cells of the columns of the items of a list of numbers."""
    if is_missing(cell) or (isinstance(cell, _LISTS) and not len(cell)):
        cell = [None] * length
    if not isinstance(cell, _LISTS) or len(cell) != length:
        raise _OtherKind
    return {f"{name}.{item}": number for item, number in enumerate(cell)}


def _days(cell: Any) -> float:
    """Days since 1970 of a date, a time or a text of one, in UTC; NaN where it is missing."""
    if is_missing(cell) or (isinstance(cell, str) and cell.strip() in MISSING):
        return math.nan
    if isinstance(cell, str) and _ISO_TIME.fullmatch(cell.strip()):
        try:
            cell = datetime.fromisoformat(cell.strip())
        except ValueError:
            raise _OtherKind from None
    if not isinstance(cell, date):
        raise _OtherKind
    microseconds: int = 0
    if isinstance(cell, datetime):
        cell = cell if cell.tzinfo is None else cell.astimezone(UTC)
        seconds = (cell.hour * 60 + cell.minute) * 60 + cell.second
        microseconds = seconds * 1_000_000 + cell.microsecond
    day: int = cell.toordinal() - _EPOCH
    return (day * DAY + microseconds) / DAY


def _parts_of_date(days: float, kind: str) -> list[str]:
    """The parts of a date that are categories, as `encoding` names them."""
    if math.isnan(days):
        return []
    day, microseconds = divmod(round(days * DAY), DAY)
    when = date.fromordinal(day + _EPOCH)
    parts = [f"month={when.month}", f"weekday={when.weekday()}"]
    return [*parts, f"hour={microseconds // (DAY // 24)}"] if kind == "time" else parts


def _texts(cell: Any, kind: Any = str) -> Any:
    """Items of a list, of a kind or missing; none of a missing list."""
    if is_missing(cell):
        return ()
    if isinstance(cell, _LISTS) and all(
        isinstance(each, kind) or is_missing(each) for each in cell
    ):
        return cell
    raise _OtherKind


def _category(cell: Any) -> str:
    """Text of a category, as `to_categories` has it."""
    if isinstance(cell, str):
        return cell.strip()
    if is_missing(cell):
        return ""
    if isinstance(cell, bool | np.bool_):
        return "true" if cell else "false"
    if isinstance(cell, float | np.floating):
        if float(cell).is_integer() and abs(float(cell)) < 2**53:
            return str(int(cell))
        text: str = to_categories(pa.array([cell]))[1][0].as_py()
        return text
    if isinstance(cell, int | np.integer):
        return str(cell)
    raise _OtherKind
