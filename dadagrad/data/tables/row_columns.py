"""Columns that describe rows: labels, names, weights, queries; and columns that options name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from dadagrad.data.labels import check_label_names
from dadagrad.data.reading.options import Options
from dadagrad.errors import InputError, nearest

_MAX_SHOWN = 60  # letters of a cell in a message
_MAX_LISTED = 30
_INDEX = re.compile(r"__index_level_\d+__|__null_dask_index__|Unnamed: 0")  # of pandas and Dask
_OTHERS = ("row_name", "weight", "query")

RECORDED = "another file or the model names"
"""The need for a column that no option names."""


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Columns that are no features: those of the labels, names, weights and queries of rows."""

    labels: tuple[str, ...] = ()
    row_name: str | None = None
    weight: str | None = None
    query: str | None = None

    @property
    def names(self) -> list[str]:
        """Names of all that there are."""
        return [*self.labels, *(name for name in self._others if name is not None)]

    @property
    def _others(self) -> tuple[str | None, ...]:
        return self.row_name, self.weight, self.query

    def replaced(self, options: Options, columns: Sequence[str]) -> RowColumns:
        """These columns with those that `options` of other data name; `columns` are the known."""
        labels = tuple(map(str, split_columns(columns, options.label)))
        chosen = (
            old if new is None else str(new)
            for (_, new), old in zip(_others(options), self._others, strict=True)
        )
        return RowColumns(labels or self.labels, *chosen)

    def numbered(self, options: Options, names: Sequence[str]) -> RowColumns:
        """These columns with the `names`, in other data, of those that options give by number."""
        labels = self.labels
        if options.label is not None:
            labels = tuple(name_at(names, label) for label in labels)
        others = (
            old if chosen is None or old is None else name_at(names, old)
            for (_, chosen), old in zip(_others(options), self._others, strict=True)
        )
        return RowColumns(labels, *others)

    def required(self, options: Options) -> dict[str, str]:
        """The columns that rows must have, and what names each: an option, or else the model."""
        required = {
            name: f"{option} names"
            for (option, chosen), name in zip(_others(options), self._others, strict=True)
            if chosen is not None and name is not None
        }
        if not options.no_labels and not (options.to_predict and options.label is None):
            by = "--label names" if options.label is not None else f"{RECORDED} (see --label)"
            required |= dict.fromkeys(self.labels, by)
        return required

    def to_json(self) -> dict[str, Any]:
        """The columns as plain JSON; a single label, as in former versions, not in a list."""
        label = self.labels[0] if len(self.labels) == 1 else list(self.labels) or None
        return {"label": label, **{name: getattr(self, name) for name in _OTHERS}}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> RowColumns:
        """The inverse of `to_json`; columns that former versions lack are None."""
        label = plain.get("label")
        labels = label if isinstance(label, list) else [] if label is None else [label]
        return cls(tuple(map(str, labels)), *map(plain.get, _OTHERS))


def _others(options: Options) -> list[tuple[str, int | str | None]]:
    """Options that name the columns of names, weights and queries, and what they name."""
    return [("--id", options.id), ("--weight", options.weight), ("--query", options.query)]


def name_at(names: Sequence[str], name: str) -> str:
    """The column `name`, or of the `names` that at this number, if no column is called so."""
    is_number = name.isdecimal() and name not in names and int(name) < len(names)
    return names[int(name)] if is_number else name


def shown(text: str) -> str:
    """Format `text` for a message: printable, on one line, not too long."""
    return repr(text[:_MAX_SHOWN]) + ("..." if len(text) > _MAX_SHOWN else "")


def no_column(names: Sequence[str], name: str, needed_by: str, place: str) -> InputError:
    """An error about a column that is missing, with the nearest names."""
    listed = f"its columns are {', '.join(map(shown, names[:_MAX_LISTED]))}"
    hint = nearest(name, names, listed if names else "it has no columns at all")
    return InputError(f"{place} has no column {shown(name)}, which {needed_by}; {hint}")


def split_columns(
    names: Sequence[str], chosen: int | str | tuple[int | str, ...] | None
) -> list[int | str]:
    """Columns in an option: one of the `names`, or several with commas between them."""
    if isinstance(chosen, str) and chosen not in names:
        return [*chosen.split(",")]
    return [] if chosen is None else list(chosen) if isinstance(chosen, tuple) else [chosen]


@dataclass(frozen=True)
class TableHead:
    """First rows of a table, and the options that name its columns; `place` is it in messages.

    Columns of a file are known `by_number`, too: the first stands for the label by default.
    """

    rows: pa.RecordBatch
    options: Options
    place: str
    by_number: bool = False

    @cached_property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.rows.schema.names)

    @cached_property
    def indexes(self) -> set[str]:
        """Columns that pandas or Dask wrote for the index of a data frame.

        In a file with a row of names, it is a first column without one.
        """
        indexes = set(filter(_INDEX.fullmatch, self.names))
        if self.by_number and self.names[0] == "0" and not all(map(str.isdecimal, self.names)):
            indexes.add("0")  # what a column without a name is called
        return indexes

    def find(self, option: str, name: int | str) -> str:
        """Name of the column that `option` gives by name or by number, counted from 0."""
        names = self.names
        if str(name) in names:
            return str(name)
        if isinstance(name, str) and not name.isdecimal():
            raise no_column(names, name, f"{option} names", self.place)
        if not 0 <= int(name) < len(names):
            raise InputError(
                f"{self.place}: {option} is {name}, counted from 0, but there are {len(names)} "
                "columns"
            )
        return names[int(name)]

    def find_all(self, option: str, names: Iterable[int | str]) -> list[str]:
        """Names of the columns that `option` gives; an object stands for all of its fields."""
        columns: list[str] = []
        for name in names:
            fields = [each for each in self.names if each.startswith(f"{name}.")]
            is_column = str(name) in self.names or not fields
            columns += [self.find(option, name)] if is_column else fields
        return columns

    def row_columns(self) -> RowColumns:
        """Columns that the options name as those that describe rows."""
        others = [
            None if name is None else self.find(option, name)
            for option, name in _others(self.options)
        ]
        return RowColumns(self._labels(), *others)

    def _labels(self) -> tuple[str, ...]:
        """Names of the labels' columns: those chosen, one named "label", or the first."""
        if self.options.no_labels:
            return ()
        if chosen := split_columns(self.names, self.options.label):
            found = [self.find("--label", name) for name in chosen]
            if len(found) > 1:
                check_label_names(found)
            return tuple(found)
        if named := [name for name in self.names if name.casefold() == "label"]:
            return ("label" if "label" in named else named[0],)
        if self.by_number:
            others = (name for name in self.names if name not in self.indexes)
            return (next(others, self.names[0]),)
        raise InputError(
            f"{self.place} has no column 'label'; its columns are "
            f"{', '.join(map(shown, self.names[:_MAX_LISTED]))}; name the label with --label "
            "(rows without labels, to be predicted, are read with --no-labels)"
        )
