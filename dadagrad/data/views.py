"""Datasets that consist of rows of others: several in order, or all rows but those held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import MAX_LISTED_VALUES, Dataset, LabelColumn, Partition, Schema
from dadagrad.data.labels import check_labels
from dadagrad.data.rows import Rows, query_begins
from dadagrad.errors import CorruptionError, InputError, MissingKey
from dadagrad.summary import listed

_MAX_SHOWN = 60  # letters of a property of a feature space
_NOT_SET = LabelColumn("", (0.0,))  # a label that no row has


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows ``start:stop`` of a partition of one of several datasets."""

    source: int
    partition: int
    start: int
    stop: int


class DatasetView(Dataset):
    """Pieces of partitions of other datasets; no row is copied.

    Parameters
    ----------
    sources : sequence of Dataset
        Datasets of one schema, in the order in which they are learned from.
    pieces : sequence of Piece
        Partitions of the view, ordered by source.
    schema : Schema
    """

    def __init__(self, sources: Sequence[Dataset], pieces: Sequence[Piece], schema: Schema) -> None:
        self._sources = tuple(sources)
        self.url = ", ".join(source.url for source in sources)
        self.schema = schema
        self.partitions = tuple(map(self._describe, pieces))
        names = (partition.name for partition in self.partitions)
        self._pieces = dict(zip(names, pieces, strict=True))
        wanted = self.schema.label_columns
        self._label_places = [_label_places(source.schema, wanted) for source in self._sources]

    @property
    def sources(self) -> tuple[Dataset, ...]:
        return self._sources

    @property
    def source_partitions(self) -> tuple[int, ...]:
        pieces = self._pieces.values()
        numbers = range(len(self._sources))
        return tuple(sum(piece.source == number for piece in pieces) for number in numbers)

    @property
    def pieces(self) -> list[Piece]:
        return [self._pieces[partition.name] for partition in self.partitions]

    def _describe(self, piece: Piece) -> Partition:
        partition = self._sources[piece.source].partitions[piece.partition]
        name, n_rows = partition.name, piece.stop - piece.start
        if n_rows < partition.n_rows:
            name += f", rows {piece.start} to {piece.stop - 1}"
        if len(self._sources) > 1:
            name += f" of dataset {piece.source + 1}"
        nnz = partition.nnz * n_rows // max(partition.n_rows, 1)
        return replace(partition, name=name, n_rows=n_rows, nnz=nnz)

    def read(self, partition: int) -> Rows:
        piece = self._piece(partition)
        return self._select(piece, self._sources[piece.source].read(piece.partition))

    def names(self, ids: NDArray[np.int64]) -> dict[int, str]:
        names: dict[int, str] = {}
        for number, source in enumerate(self._sources):
            numbers = [piece.partition for piece in self.pieces if piece.source == number]
            readable = source.with_partitions(source.partitions[each] for each in numbers)
            named = np.fromiter(names, np.int64)
            names |= readable.names(np.setdiff1d(ids, named, assume_unique=True))
        return names

    def tags(self, partition: int) -> NDArray[Any] | None:
        piece = self._piece(partition)
        tags = self._sources[piece.source].tags(piece.partition)
        return None if tags is None else tags[piece.start : piece.stop]

    def lines(self, partition: int) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
        piece = self._piece(partition)
        lines = self._sources[piece.source].lines(piece.partition)
        return lines and (lines[0][piece.start : piece.stop], lines[1][piece.start : piece.stop])

    @property
    def content(self) -> dict[str, int]:
        contents = [source.content for source in self._sources]
        return {
            name: contents[piece.source][original]
            for name, piece in self._pieces.items()
            if (original := self._original_name(piece)) in contents[piece.source]
        }

    def compare_content(self, content: Mapping[str, int]) -> None:
        for name, checksum in content.items():
            piece = self._pieces[name]
            self._sources[piece.source].compare_content({self._original_name(piece): checksum})

    def _piece(self, partition: int) -> Piece:
        return self._pieces[self.partitions[partition].name]

    def _original_name(self, piece: Piece) -> str:
        return self._sources[piece.source].partitions[piece.partition].name

    def _select(self, piece: Piece, rows: Rows) -> Rows:
        """Return the rows of a piece of a partition, with the label codes of this schema."""
        if piece.stop - piece.start < rows.n_rows:
            rows = rows.slice(piece.start, piece.stop)
        source, labels = self._sources[piece.source], rows.labels
        columns, wanted = source.schema.label_columns, self.schema.label_columns
        places = self._label_places[piece.source]
        if places != list(range(len(columns))):
            is_there = [number for number, each in enumerate(places) if each is not None]
            labels = np.zeros((rows.n_rows, len(places)))
            labels[:, is_there] = rows.labels[:, [each for each in places if each is not None]]
        for number, (each, new) in enumerate(zip(places, wanted, strict=True)):
            old = _NOT_SET if each is None else columns[each]
            if old.names != new.names and old.values is not None and new.values is not None:
                of_column = labels[:, number : number + 1]
                check_labels([old], of_column, source.place_of(piece.partition), piece.start)
                numbers = dict(zip(new.texts, new.values, strict=True))
                codes = np.array([numbers[text] for text in old.texts])
                labels = labels.copy()
                labels[:, number] = codes[np.searchsorted(old.values, labels[:, number])]
        return rows if labels is rows.labels else replace(rows, labels=labels)


def join(datasets: Sequence[Dataset]) -> Dataset:
    """Return a dataset of the rows of several, which are learned from in this order.

    Raises `InputError` if their features or labels differ in kind.
    """
    if not datasets:
        raise InputError("no dataset was given; give at least one")
    if len(datasets) == 1:
        return datasets[0]
    pieces = [p for number, each in enumerate(datasets) for p in whole_pieces(each, number)]
    return DatasetView(datasets, pieces, _join_schemas(datasets))


def whole_pieces(data: Dataset, source: int = 0) -> list[Piece]:
    """Return all partitions of a dataset as pieces."""
    rows = [partition.n_rows for partition in data.partitions]
    return [Piece(source, number, 0, n_rows) for number, n_rows in enumerate(rows)]


def hold_out(data: Dataset, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """Split a dataset into rows to learn from and a `fraction` of its rows to measure on.

    Partitions are held out whole, in a random order that `seed` decides, and the first rows of the
    last of them: so little is read to measure, and nothing is copied. Rows of one partition should
    be as good a sample as those of another, as `dadagrad ingest` makes them by shuffling. No query
    is divided: the last partition is read to find where the next begins. One that cannot be read is
    left among the rows to learn from.

    Raises `InputError` if one of the two would have no rows.
    """
    pieces = _pieces_of(data)
    n_missing = round(fraction * data.n_rows)
    learned_pieces, held_out = list(pieces), []
    for number in np.random.default_rng([seed, len(pieces)]).permutation(len(pieces)).tolist():
        piece = pieces[number]
        if data.schema.queried and 0 < n_missing < piece.stop - piece.start:
            try:
                begins = query_begins(np.asarray(data.read(number).queries))
            except (CorruptionError, MissingKey):
                continue  # the run reads it too, and raises or skips it
            n_missing = int(begins[min(int(np.searchsorted(begins, n_missing)), len(begins) - 1)])
        middle = piece.start + min(piece.stop - piece.start, n_missing)
        held_out.append(replace(piece, stop=middle))
        learned_pieces[number] = replace(piece, start=middle)
        n_missing -= middle - piece.start
    learned_pieces = [piece for piece in learned_pieces if piece.stop > piece.start]
    held_out = [piece for piece in held_out if piece.stop > piece.start]
    if not learned_pieces or not held_out:
        raise InputError(
            f"holdout={fraction:g} of the {data.n_rows} rows of {data.url} leaves none to learn "
            "from or none to measure on; change the fraction, or give a dataset to measure on"
        )
    held_out.sort(key=lambda piece: (piece.source, piece.partition))
    learned = DatasetView(data.sources, learned_pieces, data.schema)
    return learned, DatasetView(data.sources, held_out, data.schema)


def with_label_columns(
    data: Dataset,
    columns: Sequence[LabelColumn],
    n_features: int,
    *,
    any_numbers: bool = False,
) -> Dataset:
    """Return a dataset with the label columns that a model was trained on, and more features.

    Labels that are text, here or there, get the numbers of `columns` by their texts. Columns
    without `values` take any numbers, as all do with `any_numbers`. Several label columns are those
    of the same names; a label that no list of the data has is 0 in all rows. Raises `InputError`
    for an unknown label.
    """
    if any_numbers:
        columns = [LabelColumn(column.name) for column in columns]
    theirs, sets = data.schema.label_columns, data.schema.has_sets
    places = _label_places(data.schema, columns)
    missing = [new.name for new, place in zip(columns, places, strict=False) if place is None]
    if len(places) != len(columns) or (missing and not sets):
        names = listed([column.name for column in theirs])
        raise InputError(
            f"the data at {data.url} has the label columns {names}, and the model has "
            f"{listed([column.name for column in columns])}; give data with the same, or ingest it "
            "with --like and the model"
        )
    found = set(places)
    unknown = [old.name for number, old in enumerate(theirs) if number not in found]
    if unknown:
        label = f"the label {unknown[0]!r:.62}"
        raise _unknown_label(data, label, [column.name for column in columns])
    adopted = []
    for new, old in zip(columns, _columns_at(data, places, columns), strict=True):
        place = f"{data.url}: {old.place}"
        shares = new.values is not None and not set(old.texts).isdisjoint(new.texts)
        if (old.names is None) != (new.names is None) and not shares:
            kinds = ("texts", "numbers") if new.names is None else ("numbers", "texts")
            raise InputError(
                f"{place} has {kinds[0]}, and the labels of the model are {kinds[1]}; give data "
                "with the labels of the training data"
            )
        if new.values is None:
            adopted.append(old)
            continue
        if old.values is None and new.names is None and len(new.values) > MAX_LISTED_VALUES:
            adopted.append(replace(new, name=old.name, counts=None))
            continue
        others = sorted(set(old.texts) - set(new.texts))
        if others or old.values is None:
            label = f"the label {others[0]!r:.62}" if others else "more than 1000 labels"
            in_column = f" in column {old.name!r}" if len(columns) > 1 else ""
            raise _unknown_label(data, label + in_column, new.texts)
        counts = dict(zip(old.texts, old.counts or (), strict=False))
        counted = tuple(counts.get(text, 0) for text in new.texts) if counts else None
        adopted.append(replace(new, name=old.name, counts=counted))
    schema = replace(data.schema, label_columns=tuple(adopted), n_features=n_features)
    return data if schema == data.schema else DatasetView(data.sources, _pieces_of(data), schema)


def _unknown_label(data: Dataset, label: str, known: Sequence[str]) -> InputError:
    return InputError(
        f"{data.url} has {label}, which the model was not trained on; it knows {listed(known)}; "
        "leave out such rows, or train from the start with all labels"
    )


def _label_places(schema: Schema, wanted: Sequence[LabelColumn]) -> list[int | None]:
    """The place of each `wanted` label column in `schema`, or None where there is none.

    Several are found by their names, unless all have other names; then they come in their order.
    """
    number_of = {column.name: number for number, column in enumerate(schema.label_columns)}
    names = [column.name for column in wanted]
    if schema.has_sets or (len(wanted) > 1 and not number_of.keys().isdisjoint(names)):
        return [number_of.get(name) for name in names]
    return list(range(len(schema.label_columns)))


def _columns_at(
    data: Dataset, places: Sequence[int | None], wanted: Sequence[LabelColumn]
) -> list[LabelColumn]:
    """The label columns at `places`; where there is none, one that is set in no row."""
    return [
        replace(_NOT_SET, name=new.name, counts=(data.n_rows,))
        if place is None
        else data.schema.label_columns[place]
        for new, place in zip(wanted, places, strict=True)
    ]


def _pieces_of(data: Dataset) -> list[Piece]:
    return data.pieces if isinstance(data, DatasetView) else whole_pieces(data)


def _join_schemas(datasets: Sequence[Dataset]) -> Schema:
    schemas = [data.schema for data in datasets]
    first = schemas[0]
    wanted = first.label_columns
    if first.has_sets:  # all labels that some row has
        named = {each.name: each for schema in schemas for each in schema.label_columns}
        wanted = tuple(named.values())
    columns = []
    for data, schema in zip(datasets, schemas, strict=True):
        check_features(first, schema, data.url, datasets[0].url)
        places = _label_places(schema, wanted)
        is_alike = (schema.queried, schema.has_sets) == (first.queried, first.has_sets)
        is_whole = len(places) == len(wanted) and (first.has_sets or None not in places)
        if not is_alike or not is_whole:
            raise InputError(
                f"{data.url} does not go with {datasets[0].url}: both need the same columns of "
                "labels, and queries or none"
            )
        columns.append(_columns_at(data, places, wanted))
    return replace(
        first,
        n_features=max(schema.n_features for schema in schemas),
        label_columns=tuple(_join_columns(each, datasets) for each in zip(*columns, strict=True)),
        weighted=any(schema.weighted for schema in schemas),
    )


def check_features(
    expected: Schema, schema: Schema, data: str = "the data", other: str = "the model"
) -> None:
    """Raise `InputError` unless `data` of a schema has the features of `other`, those `expected`.

    How files were read may differ, and also the last features where ids are those of the source.
    """
    differing = expected.feature_space.differing(schema.feature_space)
    if differing:
        spaces = schema.feature_space.plain, expected.feature_space.plain
        space, needed = (
            ", ".join(_property_text(name, a.get(name), b.get(name)) for name in differing)
            for a, b in (spaces, spaces[::-1])
        )
        one_format = differing == ["format"]
        remedy = "give data of one format" if one_format else f"ingest it with --like and {other}"
        raise InputError(
            f"{data} is in another feature space than {other}: it has {space}, and {other} "
            f"{needed}; {remedy}"
        )
    check_columns(expected, schema, data, other)


def _property_text(name: str, value: Any, other: Any) -> str:
    """A property of a feature space; of its columns, the first that the `other` has not."""
    if name == "columns" and value and other:
        column = next((each for each in value if each not in other), None)
        if column is None:
            return f"the columns {listed([each['name'] for each in value])}"
        if column["name"] not in [each["name"] for each in other]:
            return f"the column {column['name']!r}"
        texts = [
            f"{key} {fact:g}" if isinstance(fact, float) else str(fact)
            for key, fact in column.items()
            if key != "name"
        ]
        return f"the column {column['name']!r} ({', '.join(texts)})"
    return f"{name} {value!r:.{_MAX_SHOWN}}"


def check_columns(expected: Schema, schema: Schema, data: str, other: str) -> None:
    """Raise `InputError` unless there are as many features, and names, if both have any, agree."""
    space = expected.feature_space
    names = [each.plain.get("names") for each in (space, schema.feature_space)]
    if None not in names and names[0] != names[1]:
        raise InputError(
            f"{data} has columns of other names or in another order than {other}; give the same"
        )
    if schema.n_features != expected.n_features and not schema.feature_space.keeps_ids:
        width = "give the same columns, or ingest it with --n-features if the last are missing"
        remedy = f"ingest it with --like and {other}" if space.hash_bits else width
        raise InputError(
            f"{data} has {schema.n_features} features and {other} {expected.n_features}; {remedy}"
        )


def _join_columns(columns: Sequence[LabelColumn], datasets: Sequence[Dataset]) -> LabelColumn:
    first = columns[0]
    for column, data in zip(columns, datasets, strict=True):
        if (column.names is None) != (first.names is None):
            raise InputError(
                f"label column {column.name!r} of {data.url} and that of {datasets[0].url} are "
                "texts and numbers; ingest both with labels of one kind"
            )
    if any(column.values is None for column in columns):
        return LabelColumn(first.name)
    counts: dict[str | float, int] = {}
    for column in columns:
        labels: Sequence[str | float] = column.names or column.values or ()
        for label, count in zip(labels, column.counts or [0] * len(labels), strict=True):
            counts[label] = counts.get(label, 0) + count
    if first.names is None and len(counts) > MAX_LISTED_VALUES:
        return LabelColumn(first.name)
    joined = LabelColumn.of_counts(first.name, counts)
    all_counted = all(column.counts is not None for column in columns)
    return joined if all_counted else replace(joined, counts=None)
