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
        others = (self.row_name, self.weight, self.query)
        return [*self.labels, *(name for name in others if name is not None)]

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


def shown(text: str) -> str:
    """Format `text` for a message: printable, on one line, not too long."""
    return repr(text[:_MAX_SHOWN]) + ("..." if len(text) > _MAX_SHOWN else "")


def find_column(names: Sequence[str], name: int | str, option: str, place: str) -> str:
    """Name of the column that `option` gives by name or by number, counted from 0."""
    if isinstance(name, str) and name in names:
        return name
    if isinstance(name, str) and not name.isdecimal():
        raise no_column(names, name, option, place)
    if not 0 <= int(name) < len(names):
        raise InputError(
            f"{place}: {option} is {name}, counted from 0, but there are {len(names)} columns"
        )
    return names[int(name)]


def no_column(names: Sequence[str], name: str, needed_by: str, place: str) -> InputError:
    """An error about a column that is missing, with the nearest names."""
    listed = f"its columns are {', '.join(map(shown, names[:_MAX_LISTED]))}"
    hint = nearest(name, names, listed if names else "it has no columns at all")
    return InputError(f"{place} has no column {shown(name)}, which {needed_by} names; {hint}")


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
    chosen = {"--id": options.id, "--weight": options.weight, "--query": options.query}
    others = [
        None if name is None else find_column(names, name, option, place)
        for option, name in chosen.items()
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
