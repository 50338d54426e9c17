"""Labels on their way from text to class codes.

Which classes there are is known only when the last row was seen. Until then a label that is text
travels as a NaN that carries the number of its text (labels that are numbers are finite), so that
labels of both kinds share one float64 column.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import MAX_LISTED_VALUES, LabelColumn
from dadagrad.errors import InputError

_NAN = 0x7FF8_0000_0000_0000
_CODE = 0x0000_FFFF_FFFF_FFFF
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class LabelTable:
    """What labels become: their columns, and the final values of each text."""

    columns: tuple[LabelColumn, ...]
    numbers: NDArray[np.float64] | None = None
    """(n_numbers,) distinct labels that came as numbers, increasing, where some came as text."""
    of_numbers: NDArray[np.float64] | None = None
    """(n_numbers, n_columns) what each of them becomes."""
    of_texts: NDArray[np.float64] | None = None
    """(n_texts, n_columns) what each text becomes, by its number."""

    def decode(self, labels: NDArray[np.float64]) -> NDArray[np.float64]:
        """The final (n_rows, n_columns) labels of spooled (n_rows, 1) or final `labels`."""
        if self.of_texts is None or self.of_numbers is None or self.numbers is None:
            return labels
        spooled = np.ascontiguousarray(labels[:, 0])
        is_text = np.isnan(spooled)
        final = np.empty((len(spooled), len(self.columns)))
        final[is_text] = self.of_texts[spooled[is_text].view(np.int64) & _CODE]
        final[~is_text] = self.of_numbers[np.searchsorted(self.numbers, spooled[~is_text])]
        return final


class LabelEncoder:
    """Takes the labels of blocks in, counts them, and settles what they become.

    Parameters
    ----------
    several
        Whether a comma in a text separates several labels of one row.
    """

    def __init__(self, *, several: bool = False) -> None:
        self._several = several
        self._texts: dict[str, int] = {}
        self._text_counts: Counter[int] = Counter()
        self._number_counts: list[Counter[float] | None] = []

    def encode(self, labels: NDArray[Any]) -> NDArray[np.float64]:
        """Labels as they travel: (n_rows, n_columns) float64, (n_rows, 1) for texts."""
        if labels.dtype == object:
            return self._encode_texts(labels)
        if not self._number_counts:
            self._number_counts = [Counter() for _ in range(labels.shape[1])]
        if labels.shape[1] != len(self._number_counts):
            raise InputError(
                f"rows have {labels.shape[1]} labels, those before {len(self._number_counts)}; "
                "all sources must have the same label columns"
            )
        for number, counts in enumerate(self._number_counts):
            if counts is None:
                continue
            values, repeats = np.unique(labels[:, number], return_counts=True)
            if len(values) <= MAX_LISTED_VALUES:
                for value, repeat in zip(values.tolist(), repeats.tolist(), strict=True):
                    counts[value] += repeat
            if max(len(counts), len(values)) > MAX_LISTED_VALUES:
                self._number_counts[number] = None
        return np.asarray(labels, np.float64)

    def _encode_texts(self, labels: NDArray[np.object_]) -> NDArray[np.float64]:
        texts = self._texts
        codes = np.fromiter(
            (texts.setdefault(label, len(texts)) for label in labels), np.int64, len(labels)
        )
        values, repeats = np.unique(codes, return_counts=True)
        for value, repeat in zip(values.tolist(), repeats.tolist(), strict=True):
            self._text_counts[value] += repeat
        return (codes | _NAN).view(np.float64)[:, None]

    def settle(self) -> LabelTable:
        """What the labels become, now that all were seen.

        Texts become class codes in the order of the sorted texts, or, if any row has several
        labels, one column of 0 and 1 for each label. Raises `InputError` if there are more
        classes than a label column can list.
        """
        if not self._texts:
            names = column_names(len(self._number_counts))
            columns = zip(names, self._number_counts, strict=True)
            return LabelTable(tuple(_describe(name, counts) for name, counts in columns))
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
        several = self._several and any("," in text for text in self._texts)
        return self._table(sorted(counts), counts, several)

    def _table(self, numbers: list[float], counts: Counter[float], several: bool) -> LabelTable:
        texts = [_number_text(number) for number in numbers] + list(self._texts)
        repeats = np.array(
            [counts[number] for number in numbers]
            + [self._text_counts[code] for code in range(len(self._texts))]
        )
        sets = [_split(text) for text in texts] if several else [[text] for text in texts]
        classes = _sorted_classes({name for names in sets for name in names}, numeric=several)
        position = {name: number for number, name in enumerate(classes)}
        if several:
            final = np.zeros((len(texts), len(classes)))
            for row, names in enumerate(sets):
                final[row, [position[name] for name in names]] = 1
            columns = tuple(
                _describe(name, _count(final[:, number], repeats))
                for number, name in enumerate(classes)
            )
        else:
            if len(classes) > MAX_LISTED_VALUES:
                raise InputError(
                    f"{len(classes)} different labels, like "
                    f"{', '.join(repr(one[:60]) for one in classes[:_SHOWN])}; at most "
                    f"{MAX_LISTED_VALUES} classes can be told apart: is the label column the right "
                    "one?"
                )
            final = np.array([[position[text]] for text in texts], np.float64)
            described = _describe("label", _count(final[:, 0], repeats))
            columns = (LabelColumn("label", described.values, described.counts, tuple(classes)),)
        return LabelTable(columns, np.array(numbers), final[: len(numbers)], final[len(numbers) :])


def column_names(n_columns: int) -> list[str]:
    """Names for `n_columns` columns of labels that have none."""
    return ["label"] if n_columns == 1 else [f"label_{number}" for number in range(n_columns)]


def _describe(name: str, counts: Counter[float] | None) -> LabelColumn:
    if counts is None:
        return LabelColumn(name)
    values = sorted(counts)
    return LabelColumn(name, tuple(values), tuple(counts[value] for value in values))


def _count(values: NDArray[np.float64], repeats: NDArray[np.int64]) -> Counter[float]:
    counts: Counter[float] = Counter()
    for value, repeat in zip(values.tolist(), repeats.tolist(), strict=True):
        counts[value] += repeat
    return counts


def _number_text(number: float) -> str:
    return str(int(number)) if number.is_integer() else repr(number)


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _split(text: str) -> list[str]:
    """The labels in a text with commas between; numbers in one way of writing them."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    numbers = [_as_number(part) for part in parts]
    return [
        part if number is None else _number_text(number)
        for part, number in zip(parts, numbers, strict=True)
    ]


def _sorted_classes(classes: set[str], *, numeric: bool) -> list[str]:
    """Sorted as texts; as numbers where that is asked for and all are numbers."""
    numbers = {name: _as_number(name) for name in classes}
    if numeric and all(number is not None for number in numbers.values()):
        return sorted(classes, key=lambda name: (numbers[name] or 0.0, name))
    return sorted(classes)
