"""Labels between text and class codes.

The classes are known only after the last row. Until then a label that is a text is stored as a NaN
that holds the number of the text (labels that are numbers are finite), so that labels of both kinds
share one float64 column.
"""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import MAX_LISTED_VALUES, LabelColumn
from dadagrad.errors import InputError
from dadagrad.summary import listed, number_text

_NAN = 0x7FF8_0000_0000_0000
_TEXT_NUMBER = 0x0000_FFFF_FFFF_FFFF
_MAX_SHOWN = 3

_FLAGS = frozenset({"false", "true", "False", "True", "FALSE", "TRUE"})
"""Texts of booleans."""

_RESERVED_COLUMNS = frozenset({"weight", "row_scale", "query", "tag", "line", "_index", "index"})

logger = logging.getLogger(__name__)


def check_label_names(names: Sequence[str]) -> None:
    """Raise `InputError` if the label columns cannot be columns of ``obs`` under these `names`."""
    for name in names:
        wrong = not name or "/" in name or name.startswith((".", "__"))
        if wrong or any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
            raise InputError(f"label column {name!r} cannot be stored; use letters, digits and '_'")
        if name in _RESERVED_COLUMNS:
            raise InputError(f"label column {name!r} has a reserved name; rename it")
    if len(set(names)) < len(names):
        raise InputError(f"the label columns {list(names)} must have distinct names")


@dataclass(frozen=True, slots=True)
class LabelTable:
    """Columns of the final labels, and the final values of encoded ones.

    `final`, (n_numbers + n_texts, n_columns), holds the final labels of each of the `numbers`,
    which increase, and of each text; it is None if no label is a text.
    """

    columns: tuple[LabelColumn, ...]
    numbers: NDArray[np.float64]
    final: NDArray[np.float64] | None = None

    def decode(self, labels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Final (n_rows, n_columns) labels of encoded `labels`."""
        if self.final is None:
            return labels
        encoded = np.ascontiguousarray(labels[:, 0])
        rows = np.searchsorted(self.numbers, encoded)  # all texts, which are NaN, come last
        is_text = np.isnan(encoded)
        rows[is_text] += encoded[is_text].view(np.int64) & _TEXT_NUMBER
        return self.final[rows]


class LabelCollector:
    """The labels of blocks, which are encoded and counted, and then get their final values.

    If `several`, a comma in a text separates several labels of one row; `always`, rows may have
    several even where no text has a comma.
    """

    def __init__(self, *, several: bool = False, always: bool = False) -> None:
        self.several, self.always = several, always
        self._texts: dict[str, int] = {}
        self._text_counts: Counter[int] = Counter()
        self._number_counts: list[Counter[float] | None] = []

    def encode(self, labels: NDArray[Any]) -> NDArray[np.float64]:
        """Encoded labels: (n_rows, n_columns) float64, (n_rows, 1) for texts."""
        if labels.dtype == object:
            texts = self._texts
            codes = np.array([texts.setdefault(label, len(texts)) for label in labels], np.int64)
            self._text_counts.update(codes.tolist())
            return (codes | _NAN).view(np.float64)[:, None]
        self._add_counts([_count(column) for column in labels.T])
        return np.asarray(labels, np.float64)

    def _add_counts(self, columns: Sequence[Counter[float] | None]) -> None:
        """Add counts of the numbers in each column; None for more than are listed."""
        if not self._number_counts:
            self._number_counts = [Counter() for _ in columns]
        if len(columns) != len(self._number_counts):
            raise InputError(
                f"rows have {len(columns)} labels, those before {len(self._number_counts)}; "
                "all sources must have the same label columns"
            )
        for number, counts in enumerate(columns):
            total = self._number_counts[number]
            if total is not None and counts is not None:
                total.update(counts)
            if total is None or counts is None or len(total) > MAX_LISTED_VALUES:
                self._number_counts[number] = None

    def merge(self, other: LabelCollector) -> NDArray[np.int64] | None:
        """Add what `other` has counted, and return the numbers here of its texts, if it has any."""
        texts = self._texts
        codes = [texts.setdefault(text, len(texts)) for text in other._texts]
        for number, count in other._text_counts.items():
            self._text_counts[codes[number]] += count
        if other._number_counts:
            self._add_counts(other._number_counts)
        return np.array(codes, np.int64) if codes else None

    def settle(self) -> LabelTable:
        """Settle the final labels, after all were encoded.

        Texts become class codes in the order of the sorted texts, or, if any row has several
        labels, one column of 0 and 1 for each label.
        """
        self._check_precision()
        if not self._texts:
            n_columns = len(self._number_counts)
            names = ["label"] if n_columns == 1 else [f"label_{n}" for n in range(n_columns)]
            columns = tuple(
                LabelColumn(name) if counts is None else LabelColumn.of_counts(name, counts)
                for name, counts in zip(names, self._number_counts, strict=True)
            )
            return LabelTable(columns, np.zeros(0))
        if len(self._number_counts) > 1:
            raise InputError(
                "some sources have several columns of labels, others text labels; ingest them apart"
            )
        counts = self._number_counts[0] if self._number_counts else Counter()
        if counts is None:
            raise InputError(
                f"some labels are text, like {next(iter(self._texts))[:60]!r}, and more than "
                f"{MAX_LISTED_VALUES} different ones are numbers; give labels that are either "
                "classes or numbers"
            )
        numbers = sorted(counts)
        if numbers and {0.0, 1.0}.issuperset(numbers) and _FLAGS.issuperset(self._texts):
            raise InputError(
                f"some labels are {number_text(numbers[0])} and others {min(self._texts)!r}; write "
                "0 and 1, or false and true, in all rows"
            )
        labels = [*map(number_text, numbers), *self._texts]
        repeats = [counts[number] for number in numbers]
        repeats += [self._text_counts[code] for code in range(len(self._texts))]
        is_set = self.always or (self.several and any("," in text for text in self._texts))
        columns, final = (_sets if is_set else _classes)(labels, repeats)
        return LabelTable(columns, np.array(numbers), final)

    def _check_precision(self) -> None:
        """Warn of whole numbers that 64 bits can hold as integers, and not as floats."""
        for label in sorted(label for counts in self._number_counts for label in counts or ()):
            if 2**53 <= abs(label) < 2**64:
                logger.warning(
                    f"labels beyond 2**53, such as {number_text(label)}, are rounded, and classes "
                    "that differ in their last digits become one; write labels that are names as "
                    "texts, such as 'id-1'"
                )
                return


def recode(labels: NDArray[np.float64], codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Encoded labels with other numbers, `codes`, for the texts."""
    recoded = np.array(labels)
    is_text = np.isnan(recoded)
    numbers = codes[recoded[is_text].view(np.int64) & _TEXT_NUMBER]
    recoded[is_text] = (numbers | _NAN).view(np.float64)
    return recoded


def keep_class_names(
    columns: tuple[LabelColumn, ...], source_columns: tuple[LabelColumn, ...] | None
) -> tuple[LabelColumn, ...]:
    """Give `columns` the names, of themselves and of their classes, that their source has."""
    if source_columns is None or len(source_columns) != len(columns):
        return columns
    named = []
    for column, source in zip(columns, source_columns, strict=True):
        names = column.names
        if names is None and source.names is not None and column.values is not None:
            texts = dict(zip(source.values or (), source.names, strict=True))
            if all(value in texts for value in column.values):
                names = tuple(texts[value] for value in column.values)
        named.append(replace(column, name=source.name, names=names))
    return tuple(named)


def _classes(
    labels: list[str], repeats: list[int]
) -> tuple[tuple[LabelColumn, ...], NDArray[np.float64]]:
    """One column of class codes, and the code of each label."""
    counts = _total(labels, repeats)
    classes = sorted(counts)
    if len(classes) > MAX_LISTED_VALUES:
        raise InputError(
            f"{len(classes)} different labels, like "
            f"{', '.join(repr(name[:60]) for name in classes[:_MAX_SHOWN])}; at most "
            f"{MAX_LISTED_VALUES} classes can be told apart: is the label column the right one?"
        )
    codes = {name: float(code) for code, name in enumerate(classes)}
    final = np.array([codes[label] for label in labels])
    return (LabelColumn.of_counts("label", counts),), final[:, None]


def _sets(
    labels: list[str], repeats: list[int]
) -> tuple[tuple[LabelColumn, ...], NDArray[np.float64]]:
    """A column of 0 and 1 for each number in lists with commas, and the columns of each list."""
    sets = [[float(part) for part in label.split(",") if part] for label in labels]
    numbers = sorted({number for members in sets for number in members})
    final = np.zeros((len(sets), len(numbers)))
    for row, members in enumerate(sets):
        final[row, np.searchsorted(numbers, members)] = 1
    names = map(number_text, numbers)
    counts = [_total(column, repeats) for column in final.T.tolist()]
    return tuple(map(LabelColumn.of_counts, names, counts)), final


def _count(numbers: NDArray[np.float64]) -> Counter[float] | None:
    """Counts of distinct numbers, unless there are more than are listed."""
    values, repeats = np.unique(numbers, return_counts=True)
    if len(values) > MAX_LISTED_VALUES:
        return None
    return Counter(dict(zip(values.tolist(), repeats.tolist(), strict=True)))


def _total(labels: Sequence[Any], repeats: list[int]) -> Counter[Any]:
    total: Counter[Any] = Counter()
    for label, repeat in zip(labels, repeats, strict=True):
        total[label] += repeat
    return total


def check_labels(
    columns: Sequence[LabelColumn], labels: NDArray[np.float64], place: str, first: int
) -> None:
    """Raise `InputError` if a label is not among the `values` of its column.

    `place` names the data, and row `first` has the first labels.
    """
    for column, numbers in zip(columns, labels.T, strict=True):
        values = np.array(column.values or ())
        if len(values) == 2:  # the common case apart: it takes no time
            known = (numbers == values[0]) | (numbers == values[1])
        else:
            known = np.isin(numbers, values)
        if not known.all():
            row = int(known.argmin())
            raise InputError(
                f"{place}: row {first + row} has label {numbers[row]:g} in column "
                f"{column.name!r}, which is not one of the declared classes "
                f"({listed(column.values or ())})"
            )


def class_labels(column: LabelColumn) -> NDArray[Any]:
    """Labels of the values of a column: numbers, texts, or booleans if they are false and true."""
    if column.names == ("false", "true"):
        return np.array([False, True])
    return np.array(column.names or column.values)
