"""Weights of a model in a store, written by one process or by several.

The digest of a model is made of those of ranges of features, so that processes that hold whole
ranges compute it together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from dadagrad.storage.arrays import ArrayRecord, write_arrays
from dadagrad.storage.store import Storage

RANGE = 1 << 10
"""Features of a range. Processes that write weights hold whole ranges."""


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """Weights of neighbouring features, as they are in a store.

    `records` are those of the arrays `ids` and `weights`, `digests` those of `range_digests`, and
    `nonzeros` is the number of weights other than 0.
    """

    records: tuple[ArrayRecord, ...]
    digests: tuple[bytes, ...]
    nonzeros: int

    @classmethod
    def write(
        cls, storage: Storage, folder: str, ids: NDArray[np.int64], weights: NDArray[np.float32]
    ) -> StoredWeights:
        """Write the weights of the features `ids`, increasing, into a `folder` of a store."""
        records = write_arrays(storage, folder, {"ids": ids, "weights": weights})
        return cls(records, tuple(range_digests(ids, weights)), int(np.count_nonzero(weights)))

    @classmethod
    def join(cls, parts: Sequence[StoredWeights]) -> StoredWeights:
        """Weights that were written apart, those of smaller ids first."""
        records = []
        for same in zip(*(part.records for part in parts), strict=True):
            first = same[0]
            shape = (sum(record.shape[0] for record in same), *first.shape[1:])
            keys = tuple(chain.from_iterable(record.parts for record in same))
            records.append(ArrayRecord(first.name, first.dtype, shape, keys))
        digests = tuple(chain.from_iterable(part.digests for part in parts))
        return cls(tuple(records), digests, sum(part.nonzeros for part in parts))


def range_digests(ids: NDArray[np.int64], weights: NDArray[np.float32]) -> Iterator[bytes]:
    """SHA-256 of the ids and the weights of each range of features that has any, in their order."""
    start = 0
    while start < len(ids):
        end_of_range = (int(ids[start]) // RANGE + 1) * RANGE
        stop = int(np.searchsorted(ids, end_of_range))
        digest = hashlib.sha256(np.ascontiguousarray(ids[start:stop], "<i8").data)
        digest.update(np.ascontiguousarray(weights[start:stop], "<f4").data)
        yield digest.digest()
        start = stop


def model_digest(digests: Iterable[bytes], intercept: NDArray[np.float64]) -> str:
    """SHA-256 of `range_digests` and the intercepts."""
    digest = hashlib.sha256(b"".join(digests))
    digest.update(np.ascontiguousarray(intercept, "<f8").data)
    return digest.hexdigest()
