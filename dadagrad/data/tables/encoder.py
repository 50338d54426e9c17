"""The transformation of a table's rows into features, as plain JSON that is applied again.

Features are numbered in three sections: one for each column of numbers, ``2**hash_bits`` for
hashed ones (``column=value`` of categories and codes, ``column=word`` of texts, parts of dates,
crosses), and one for each column of numbers that says that the number is missing. A table of a
single text column has the features of scikit-learn's `HashingVectorizer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dadagrad.data.blocks import Block, drop_entries, transform_values
from dadagrad.data.feature_space import FeatureSpace
from dadagrad.data.tables.columns import Column, column_from_json
from dadagrad.data.tables.row_columns import RowColumns
from dadagrad.data.tables.scaling import scale_numbers
from dadagrad.errors import InputError

Hashes = NDArray[np.int64]
Names = Sequence[tuple[pa.Array, Hashes]]
"""Texts, and their hashes, or their features where these are not hashed."""

_PLAIN = ("hash_bits", "ngrams", "binary", "norm")


@dataclass(frozen=True)
class TableEncoder:
    """Transformation of a table: its columns, and how their cells become features.

    Attributes
    ----------
    columns : tuple of Column
    hash_bits : int or None
        None if no feature is hashed.
    crosses : tuple of tuple of str
        Categories whose combinations are features, too.
    has_missing : bool
        True if numbers were missing when the transformation was learned.
    rows : RowColumns
        Columns that describe rows. They need not be the same in other data of the feature space.
    """

    columns: tuple[Column, ...]
    hash_bits: int | None = None
    crosses: tuple[tuple[str, ...], ...] = ()
    ngrams: int = 1
    binary: bool = False
    norm: str = "none"
    has_missing: bool = False
    rows: RowColumns = field(default_factory=RowColumns)

    @cached_property
    def numbers(self) -> list[Column]:
        """Columns of numbers and dates, which have features of their own."""
        return [column for column in self.columns if column.is_number]

    @cached_property
    def groups(self) -> list[list[Column]]:
        """Columns that are read together: neighbours of numbers, the items of a list, or one."""

        def group_of(column: Column) -> str | None:
            is_plain = column.kind == "number" and column.item is None
            return None if is_plain else column.source

        return [list(group) for _, group in groupby(self.columns, group_of)]

    @cached_property
    def lengths(self) -> dict[str, int | None]:
        """Columns of the table that have features, and lengths of their lists of numbers."""
        return {
            column.source: None if column.item is None else column.item + 1
            for column in self.columns
        }

    @cached_property
    def number_of(self) -> dict[str, int]:
        """Features of the numbers of columns, by the names of these."""
        return {column.name: number for number, column in enumerate(self.numbers)}

    @property
    def is_text(self) -> bool:
        """True if the only feature is a text, whose words are hashed as HashingVectorizer does."""
        return len(self.columns) == 1 and self.columns[0].kind == "text"

    @property
    def first_missing(self) -> int:
        """Feature that says that the first number is missing."""
        return len(self.numbers) + (0 if self.hash_bits is None else 2**self.hash_bits)

    @property
    def n_features(self) -> int:
        return self.first_missing + (len(self.numbers) if self.has_missing else 0)

    def features_of(self, hashed: Hashes) -> Hashes:
        """Features of signed hashes."""
        n_hashed = 2 ** (self.hash_bits or 0)
        features: Hashes = len(self.numbers) + (np.abs(hashed) & (n_hashed - 1))
        return features

    def to_json(self) -> dict[str, Any]:
        """The transformation as a feature space of plain JSON."""
        if self.is_text:
            return {"format": "text"} | {name: getattr(self, name) for name in _PLAIN}
        names = (each.name for each in fields(self) if each.name != "rows")
        plain = {name: getattr(self, name) for name in names}
        left_out = {"offset": 0.0, "item": None, "date_order": ""}.items()  # as in former versions
        plain["columns"] = [
            {key: value for key, value in asdict(each).items() if (key, value) not in left_out}
            for each in self.columns
        ]
        plain["crosses"] = [list(cross) for cross in self.crosses]
        return {"format": "table", **plain}

    def reading(self) -> dict[str, Any]:
        """Names of columns that need not be the same in other data of the feature space."""
        plain = self.rows.to_json()
        return {**plain, "text": self.columns[0].name} if self.is_text else plain

    @classmethod
    def of_space(cls, space: FeatureSpace) -> TableEncoder:
        """The inverse of `to_json` and `reading`; raises `InputError` for anything else."""
        stored = space.plain
        try:
            reading = stored["reading"]
            plain = {key: stored[key] for key in _PLAIN} | {"rows": RowColumns.from_json(reading)}
            if space.of_text:
                return cls((Column(str(reading["text"]), "text"),), **plain)
            columns = tuple(map(column_from_json, stored["columns"]))
            crosses = tuple(tuple(map(str, cross)) for cross in stored["crosses"])
            return cls(columns, crosses=crosses, has_missing=bool(stored["has_missing"]), **plain)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"the recorded transformation of the table is not whole: {error!r}; make the "
                "dataset again"
            ) from None

    def finish(self, block: Block) -> Block:
        """Scale the numbers of encoded rows, then apply binary and norm."""
        numbers = self.numbers
        if any(column.is_scaled for column in numbers):
            block = scale_numbers(block, numbers, self.first_missing)
        if not self.has_missing and block.nnz and block.ids.max() >= self.first_missing:
            block = drop_entries(block, block.ids < self.first_missing)
        return transform_values(block, binary=self.binary, norm=self.norm)

    def column_names(self) -> list[str]:
        """Names of all columns of the table that are read."""
        return [*self.lengths, *self.rows.names]

    def names_of_numbers(self) -> dict[int, str]:
        """Names of the features of numbers, and of those that say that one is missing."""
        names = {number: column.name for number, column in enumerate(self.numbers)}
        if self.has_missing:
            first = self.first_missing
            names |= {first + number: f"{name} is missing" for number, name in names.items()}
        return names


def scales_cells(space: FeatureSpace) -> bool:
    """True for a table of scaled numbers alone, whose raw cells make a matrix of the same width."""
    if space.format != "table" or space.hash_bits is not None:
        return False
    return any(column.is_scaled for column in TableEncoder.of_space(space).columns)


class NameTable:
    """Distinct names of features.

    Names are told apart by their features, or by hashes of 31 bits, so that no text is compared: of
    two names with one hash, which have one feature, the first is kept.
    """

    def __init__(self) -> None:
        self._seen: Hashes = np.zeros(0, np.int64)
        self._texts: list[pa.Array] = []
        self._hashes: list[Hashes] = []

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, names: Names) -> None:
        """Add texts and their hashes."""
        if not names:
            return
        hashes, first = np.unique(
            np.concatenate([hashes for _, hashes in names]), return_index=True
        )
        places = np.searchsorted(self._seen, hashes)
        padded = np.append(self._seen, -1)
        new = padded[places] != hashes
        if new.any():
            texts = pa.concat_arrays([texts for texts, _ in names])
            self._texts.append(texts.take(pa.array(first[new])))
            self._hashes.append(hashes[new])
            self._seen = np.insert(self._seen, places[new], hashes[new])

    def pieces(self) -> list[Names]:
        """Names in the order in which they were added, for another table."""
        return [[piece] for piece in zip(self._texts, self._hashes, strict=True)]

    def by_feature(self, to_features: Callable[[Hashes], Hashes]) -> dict[int, str]:
        """Names by feature; of several names of one feature the one that was added first."""
        if not self._texts:
            return {}
        features = to_features(np.concatenate(self._hashes))
        texts = pa.concat_arrays(self._texts)
        return dict(zip(features[::-1].tolist(), texts.to_pylist()[::-1], strict=True))

    def collisions(self, to_features: Callable[[Hashes], Hashes]) -> int:
        """Number of names that share their feature with another."""
        features = np.sort(to_features(self._seen))
        return int(np.count_nonzero(features[1:] == features[:-1]))
