"""Names of hashed features, such as ``job=nurse``, collected over all blocks of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Hashes = NDArray[np.int64]
HashedNames = Sequence[tuple[pa.Array, Hashes]]
"""Texts, and their hashes."""


class NameTable:
    """Distinct names of hashed features.

    A name is told from others by its hash of 31 bits, so that no name is looked at twice: of two
    names of one hash, which have one feature, the first is kept.
    """

    def __init__(self) -> None:
        self._seen: Hashes = np.zeros(0, np.int64)
        self._texts: list[pa.Array] = []
        self._hashes: list[Hashes] = []

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, names: HashedNames) -> None:
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

    def pieces(self) -> list[HashedNames]:
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
