"""Datasets: a schema and a list of immutable partitions that can be read one at a time."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import reprlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, pairwise
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.feature_space import FeatureSpace
from dadagrad.data.rows import Rows
from dadagrad.errors import CorruptionError, InputError
from dadagrad.summary import html_table, listed, number_text

MAX_LISTED_VALUES = 1000
"""A label column with more distinct values than this is a regression target, not classes."""
MAX_FEATURES = 2**62
MAX_COUNT = 2**53

_MAX_CLASSES = 1 << 20
_MAX_DEPTH = 16  # of JSON from a file
_MAX_NAME = 1 << 12


@dataclass(frozen=True, slots=True)
class LabelColumn:
    """One label of the rows.

    `values` are the distinct values in increasing order with their `counts`, or None where there
    are more than `MAX_LISTED_VALUES`; `names[i]` is the text that became ``values[i]``, where
    labels were text.
    """

    name: str
    values: tuple[float, ...] | None = None
    counts: tuple[int, ...] | None = None
    names: tuple[str, ...] | None = None

    @classmethod
    def of_counts(cls, name: str, counts: Mapping[Any, int]) -> LabelColumn:
        """The column of labels with these counts: numbers, or texts, which become classes."""
        labels = sorted(counts)
        listed = tuple(counts[label] for label in labels)
        if labels and isinstance(labels[0], str):
            return cls(name, tuple(map(float, range(len(labels)))), listed, tuple(labels))
        return cls(name, tuple(map(float, labels)), listed)

    @property
    def place(self) -> str:
        """The column in a message."""
        return "the label" if self.name == "label" else f"label column {self.name!r}"

    @property
    def texts(self) -> tuple[str, ...]:
        """Text of each of `values`: its name, or the number."""
        return tuple(map(number_text, self.values or ())) if self.names is None else self.names

    def position(self, label: str) -> int | None:
        """Position of a label in `values`; it may have another form: +1, 1.0, true or TRUE."""
        texts, is_truth = self.texts, self.names == ("false", "true")
        if label not in texts:
            try:
                number = float({"false": 0, "true": 1}.get(label.lower(), label))
            except ValueError:
                return None
            label = {0.0: "false", 1.0: "true"}.get(number, "") if is_truth else number_text(number)
        return texts.index(label) if label in texts else None

    def to_report(self) -> dict[str, Any]:
        """The name, and the number of rows of each label; None where they are not known."""
        counts = self.counts or (None,) * len(self.values or ())
        values = None if self.values is None else dict(zip(self.texts, counts, strict=True))
        return {"name": self.name, "values": values}

    @property
    def summary(self) -> str:
        """The first values, with the number of rows of each."""
        if self.values is None:
            return f"more than {MAX_LISTED_VALUES:,} distinct numbers"
        if self.counts is None:
            return listed(self.texts)
        pairs = zip(self.texts, self.counts, strict=True)
        return listed([f"{text} ({count:,})" for text, count in pairs])


@dataclass(frozen=True, slots=True)
class Schema:
    """Properties that all partitions of a dataset share.

    `queried` is true if the rows belong to queries, as those of a ranking do.
    """

    n_features: int
    label_columns: tuple[LabelColumn, ...]
    weighted: bool = False
    feature_space: FeatureSpace = field(default_factory=FeatureSpace)
    queried: bool = False

    @property
    def has_sets(self) -> bool:
        """True if a label column stands for a label that some of the rows list."""
        is_svmlight = self.feature_space.format == "svmlight"
        return is_svmlight and self.label_names not in ([], ["label"])

    def names_of(self, ids: NDArray[np.int64], names: Mapping[int, str]) -> list[str | None]:
        """Names of features: those in `names`, else ids of svmlight that begin at 1, else None."""
        first = self.feature_space.first_id
        return [names.get(each, str(each + first) if first else None) for each in ids.tolist()]

    @property
    def label_names(self) -> list[str]:
        return [column.name for column in self.label_columns]

    def to_json(self) -> dict[str, Any]:
        """The schema as plain JSON types."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        plain["feature_space"] = plain["feature_space"]["plain"] or None
        if not self.queried:
            del plain["queried"]  # digests of datasets without queries do not depend on it
        return plain

    @classmethod
    def from_json(cls, plain: Any) -> Schema:
        """The inverse of `to_json`; raises `InputError` for anything that `to_json` cannot make."""
        need(type(plain) is dict, "the schema", plain, "an object")
        n_features, space = plain.get("n_features"), plain.get("feature_space")
        suits = type(n_features) is int and 0 < n_features <= MAX_FEATURES
        need(suits, "n_features", n_features, "1 to 2**62")
        weighted, queried = plain.get("weighted"), plain.get("queried", False)
        for name, value in (("weighted", weighted), ("queried", queried)):
            need(type(value) is bool, name, value, "true or false")
        need(isinstance(space, dict | None), "feature_space", space, "an object, or null")
        check_plain(space, "feature_space")
        bits = (space or {}).get("hash_bits")
        suits = bits is None or (type(bits) is int and 0 < bits < 32)
        need(suits, "hash_bits of feature_space", bits, "1 to 31")
        columns = plain.get("label_columns")
        need(type(columns) is list, "label_columns", columns, "a list")
        labels = [_label_column(item, f"label column {n}") for n, item in enumerate(columns)]
        return cls(n_features, tuple(labels), weighted, FeatureSpace(space or {}), queried)


def _label_column(plain: Any, place: str) -> LabelColumn:
    """A label column from JSON; raises `InputError` if it is not one."""
    need(type(plain) is dict, place, plain, "an object")
    name = plain.get("name")
    short = type(name) is str and len(name) <= _MAX_NAME
    need(short, f"the name of {place}", name, "a short text")
    values, counts, names = (plain.get(key) for key in ("values", "counts", "names"))
    if values is None:
        need(counts is None and names is None, f"the counts of {place}", counts, "null")
        return LabelColumn(name)
    listed = type(values) is list and len(values) <= _MAX_CLASSES
    listed = listed and all(
        type(value) in (int, float) and abs(value) <= sys.float_info.max for value in values
    )
    increasing = listed and all(before < after for before, after in pairwise(values))
    need(increasing, f"the list of values of {place}", values, "a list of increasing numbers")
    for key, kind, items in (("counts", int, counts), ("names", str, names)):
        listed = type(items) is list and len(items) == len(values)
        suits = items is None or (listed and all(type(item) is kind for item in items))
        need(suits, f"the list of {key} of {place}", items, "one for each value")
    in_range = all(0 <= count <= MAX_COUNT for count in counts or ())
    need(in_range, f"the list of counts of {place}", counts, f"numbers of 0 to {MAX_COUNT}")
    columns = (None if items is None else tuple(items) for items in (values, counts, names))
    return LabelColumn(name, *columns)


def need(suits: bool, name: str, value: Any, needed: str) -> None:
    """Raise `InputError` about a `value` of a document unless it `suits`."""
    if not suits:
        raise InputError(f"{name} is {reprlib.repr(value)}; needed is {needed}")


def check_plain(value: Any, name: str, depth: int = 0) -> None:
    """Raise `InputError` for JSON that is nested deep, or has numbers that are not finite."""
    if depth > _MAX_DEPTH:
        raise InputError(f"{name} is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            check_plain(item, name, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{name} holds the number {value}; numbers must be finite")


@dataclass(frozen=True, slots=True)
class Partition:
    """Names one immutable piece of a dataset; holds none of its data."""

    name: str
    n_rows: int
    nnz: int
    n_local: int
    checksum: str


class Dataset(ABC):
    """Partitions that can be read in any order, any number of times, from any process."""

    url: str
    schema: Schema
    partitions: tuple[Partition, ...]
    _names: Mapping[int, str] = MappingProxyType({})

    @abstractmethod
    def read(self, partition: int) -> Rows:
        """Read and check partition number `partition`."""

    def place_of(self, partition: int) -> str:
        """A partition in a message."""
        return f"{self.url}, partition {self.partitions[partition].name}"

    def with_partitions(self, partitions: Iterable[Partition]) -> Self:
        """Return a copy that has these partitions only, in this order."""
        part = copy.copy(self)
        part.partitions = tuple(partitions)
        return part

    def names(self, ids: NDArray[np.int64]) -> dict[int, str]:
        """Names of those `ids` that have one."""
        known = self._names
        # There may be millions of ids.
        return {each: known[each] for each in ids.tolist() if each in known} if known else {}

    @property
    def has_names(self) -> bool:
        """True if features have names."""
        others = (source.has_names for source in self.sources if source is not self)
        return bool(self._names) or any(others)

    def tags(self, partition: int) -> NDArray[Any] | None:
        """Names of the rows of a partition; None if they have none."""
        return None

    @property
    def files(self) -> list[str]:
        """Sources of the rows that are files, as far as they are known."""
        return list(chain(*(source.files for source in self.sources if source is not self)))

    @property
    def lines_of_files(self) -> dict[str, int]:
        """Largest number of lines of each file; none unless all rows are lines of files."""
        sizes = [source.lines_of_files for source in self.sources if source is not self]
        return {f: max(n.get(f, 0) for n in sizes) for f in chain(*sizes)} if all(sizes) else {}

    def lines(self, partition: int) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
        """Source file and line of the rows of a partition, counted from 1; None if not known."""
        return None

    @property
    def content(self) -> dict[str, int]:
        """Checksums of partitions at their first reading, by name, if the storage has none."""
        return {}

    def compare_content(self, content: Mapping[str, int]) -> None:
        """Add to `content`; raise `CorruptionError` about a partition that has another checksum."""
        for name, checksum in content.items():
            if self.content.setdefault(name, checksum) != checksum:
                raise CorruptionError(
                    f"{self.url}: partition {name} is not what it was when it was first read; "
                    "restore the file, or start again (in a dataset made by `dadagrad ingest`, "
                    "every byte has a checksum)"
                )

    @property
    def in_memory(self) -> bool:
        """True if other processes cannot read the rows."""
        return any(source.in_memory for source in self.sources if source is not self)

    @property
    def is_temporary(self) -> bool:
        """True if the rows are not at `url` when this process has ended."""
        others = (source.is_temporary for source in self.sources if source is not self)
        return self.in_memory or any(others)

    @property
    def sources(self) -> tuple[Dataset, ...]:
        """Datasets whose rows these are, in the order in which they are learned from."""
        return (self,)

    @property
    def source_partitions(self) -> tuple[int, ...]:
        """Number of partitions of each of `sources`."""
        return (len(self.partitions),)

    @property
    def n_rows(self) -> int:
        return sum(partition.n_rows for partition in self.partitions)

    @property
    def nnz(self) -> int:
        return sum(partition.nnz for partition in self.partitions)

    def facts(self) -> dict[str, str]:
        """Facts for people, by name."""
        schema, nnz = self.schema, self.nnz
        rows = f"{self.n_rows:,}{', each with a weight' * schema.weighted}"
        facts = {"rows": rows + ", in queries" * schema.queried}
        facts |= {"features": f"{schema.n_features:,}", "partitions": f"{len(self.partitions):,}"}
        if nnz:
            facts["non-zeros"] = f"{nnz:,} ({nnz / self.n_rows:.1f} a row)"
        for column in schema.label_columns:
            in_source = schema.feature_space.reading.get("label")  # a single one is called "label"
            is_single = column.name == "label" and not isinstance(in_source, list)
            name = in_source if is_single else column.name
            facts["label" if name is None else f"label {name!r}"] = column.summary
        if schema.feature_space:
            facts["source"] = str(schema.feature_space)
        return facts

    def __repr__(self) -> str:
        rows, features = f"{self.n_rows:,} rows", f"{self.schema.n_features:,} features"
        return f"{type(self).__name__}({self.url!r}, {rows}, {features})"

    def _repr_html_(self) -> str:
        return html_table(f"Dataset {self.url}", self.facts())

    @property
    def digest(self) -> str:
        """SHA-256 of the schema and the partitions' checksums: the identity of the data."""
        content = [self.schema.to_json(), [asdict(partition) for partition in self.partitions]]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


IN_MEMORY = "memory"
"""The place of data that have no URL, in messages and checkpoints."""


class MemoryDataset(Dataset):
    """Partitions in memory."""

    in_memory = True

    def __init__(
        self,
        parts: Sequence[Rows],
        schema: Schema,
        url: str = IN_MEMORY,
        names: Mapping[int, str] | None = None,
    ) -> None:
        self.url = url
        self.schema = schema
        self._names = names or {}
        self._parts = tuple(parts)
        self.partitions = tuple(describe_rows(n, rows) for n, rows in enumerate(self._parts))

    def read(self, partition: int) -> Rows:
        return self._parts[partition]


def describe_rows(number: int, rows: Rows) -> Partition:
    """The partition of this number, which holds `rows`."""
    name = f"part-{number:05d}"
    return Partition(name, rows.n_rows, rows.nnz, rows.n_local, checksum(rows))


def checksum(rows: Rows) -> str:
    """SHA-256 of the content of `rows`: equal content gives equal checksums."""
    digest = hashlib.sha256()
    columns: list[NDArray[Any] | None] = [rows.vocabulary, rows.indptr, rows.indices, rows.values]
    columns += [rows.labels, rows.weights, rows.row_scale]
    if rows.queries is not None:
        columns.append(rows.queries)
    for column in columns:
        if column is None:
            digest.update(b"absent")
        else:
            digest.update(f"{column.dtype}{column.shape}".encode())
            digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()
