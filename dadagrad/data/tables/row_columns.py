"""Columns that describe rows: labels, names, weights, queries; and columns that options name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from dadagrad.data.labels import check_label_names
from dadagrad.data.reading.options import Options
from dadagrad.errors import InputError, nearest

_MAX_SHOWN = 60  # letters of a cell in a message
_MAX_LISTED = 30
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


def shown(text: str) -> str:
    """Format `text` for a message: printable, on one line, not too long."""
    return repr(text[:_MAX_SHOWN]) + ("..." if len(text) > _MAX_SHOWN else "")


def find_column(names: Sequence[str], name: int | str, option: str, place: str) -> str:
    """Name of the column that `option` gives by name or by number, counted from 0."""
    if isinstance(name, str) and name in names:
        return name
    if isinstance(name, str) and not name.isdecimal():
        raise no_column(names, name, f"{option} names", place)
    if not 0 <= int(name) < len(names):
        raise InputError(
            f"{place}: {option} is {name}, counted from 0, but there are {len(names)} columns"
        )
    return names[int(name)]


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


def find_row_columns(
    names: Sequence[str], options: Options, place: str, indexes: Set[str], *, by_number: bool
) -> RowColumns:
    """Columns, of the `names` of a table, that the options name as those that describe rows."""
    others = [
        None if name is None else find_column(names, name, option, place)
        for option, name in _others(options)
    ]
    return RowColumns(_find_labels(names, options, place, indexes, by_number=by_number), *others)


def _find_labels(
    names: Sequence[str], options: Options, place: str, indexes: Set[str], *, by_number: bool
) -> tuple[str, ...]:
    """Names of the labels' columns: those chosen, one named "label", or else the first.

    Only if `by_number`, as in files, does the first column stand for the label: the first that is
    none of the `indexes` of a data frame.
    """
    if options.no_labels:
        return ()
    if chosen := split_columns(names, options.label):
        found = [find_column(names, name, "--label", place) for name in chosen]
        if len(found) > 1:
            check_label_names(found)
        return tuple(found)
    if "label" in names:
        return ("label",)
    if by_number:
        return (next((name for name in names if name not in indexes), names[0]),)
    raise InputError(
        f"{place} has no column 'label'; its columns are "
        f"{', '.join(map(shown, names[:_MAX_LISTED]))}; name the label with --label "
        "(rows without labels, to be predicted, are read with --no-labels)"
    )
