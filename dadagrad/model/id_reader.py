"""A single row as a dict of values by feature, where features are not those of a table."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise, product
from math import prod
from typing import Any

from dadagrad.data.dataset import MAX_FEATURES, Schema
from dadagrad.data.feature_space import hash_of_cross
from dadagrad.data.rows import Entries, finish_entries
from dadagrad.errors import InputError


class IdReader:
    """Reader of a dict of values by feature, which is given by its id or its name."""

    def __init__(self, schema: Schema, ids: Mapping[str, int]) -> None:
        space = schema.feature_space
        self._ids, self._first = ids, space.first_id
        self._end = MAX_FEATURES if space.keeps_ids else schema.n_features
        self._is_hashed = space.format == "vw" and space.hash_bits is not None
        self._mask = 2 ** (space.hash_bits or 0) - 1
        self._crosses = space.crosses
        self._binary, self._norm = space.binary, space.norm

    def __call__(self, row: Mapping[Any, float]) -> Entries:
        ids, values = [self._id(key) for key in row], list(row.values())
        try:
            if self._crosses:
                self._add_crosses(row, ids, values)
            return finish_entries(ids, values, binary=self._binary, norm=self._norm)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"the row has a value that is not a number ({error}); give a number for each "
                "feature, and leave out those without one"
            ) from None

    def _add_crosses(self, row: Mapping[Any, float], ids: list[int], values: list[float]) -> None:
        """Add the combinations of features of namespaces, ``namespace^feature`` by their names."""
        members: dict[str, list[int]] = {}
        for number, key in enumerate(map(str, row)):
            members.setdefault(key[: max(key.find("^"), 0)], []).append(number)
        for cross in self._crosses:
            for chosen in product(*(members.get(name, []) for name in cross)):
                pairs = zip(pairwise(cross), pairwise(chosen), strict=True)
                if all(a < b for names, (a, b) in pairs if names[0] == names[1]):
                    ids.append(hash_of_cross(ids[n] for n in chosen) & self._mask)
                    values.append(prod(values[n] for n in chosen))

    def _id(self, key: Any) -> int:
        if not isinstance(key, str):
            return self._checked(int(key))
        if self._is_hashed:
            from sklearn.utils import murmurhash3_32

            hashed: int = murmurhash3_32(key)
            return int(abs(hashed) & self._mask)
        if not self._ids and key.isdecimal():  # as the keys of JSON are
            return self._checked(int(key))
        return self._ids.get(key, -1)

    def _checked(self, number: int) -> int:
        """The feature of an id."""
        feature = number - self._first
        if not 0 <= feature < self._end:
            raise InputError(
                f"the row has the feature {number}; give ids as in the data of the model, "
                f"{self._first} to {self._end - 1 + self._first}"
            )
        return feature
