"""Checkpoints of a state that is in no process whole: the workers of a cluster write it in shards.

A shard has the arrays of some neighbouring features, under names such as
``shard-0003.accumulators``; the shards of a checkpoint are those of all features, in their order.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import CorruptionError
from dadagrad.problem import Problem
from dadagrad.storage.arrays import AnyArray, ArrayRecord, read_arrays, shared_storage, write_arrays
from dadagrad.storage.store import Storage
from dadagrad.training.state.compiled import FEATURE_ARRAYS, State
from dadagrad.training.state.remote import RemoteWeights

_NAME = re.compile(r"shard-([0-9]{4,6})\.([a-z_]+)")


def write_shard(
    url: str, folder: str, number: int, arrays: Mapping[str, AnyArray]
) -> tuple[ArrayRecord, ...]:
    """Write the arrays of a shard into a shared `folder` of the store at `url`; their records."""
    named = {f"shard-{number:04d}.{name}": array for name, array in arrays.items()}
    return write_arrays(shared_storage(url, folder), f"{folder}/shard-{number:04d}", named)


def is_of_shard(record: ArrayRecord) -> bool:
    return _NAME.fullmatch(record.name) is not None


def join_shards(arrays: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """The same arrays, with those of shards joined."""
    parts: dict[str, list[AnyArray]] = defaultdict(list)
    for name in sorted(arrays, key=lambda name: (len(name), name)):  # 9999 comes before 10000
        match = _NAME.fullmatch(name)
        parts[match[2] if match else name].append(arrays[name])
    return {
        name: of_shards[0] if len(of_shards) == 1 else np.concatenate(of_shards, axis=1)
        for name, of_shards in parts.items()
    }


@dataclass(frozen=True, slots=True)
class StoredShard:
    """One shard in the store at `url`; messages call the checkpoint `place`."""

    url: str
    place: str
    records: tuple[ArrayRecord, ...]

    def read(self) -> dict[str, AnyArray]:
        """The arrays of the shard, by their names without that of the shard."""
        arrays = read_arrays(Storage(self.url), self.records, self.place)
        return {name.partition(".")[2]: array for name, array in arrays.items()}


@dataclass(slots=True)
class StoredState(State):
    """A state whose features are in a checkpoint: only its intercept and t are here.

    `edges`, (n_shards + 1,) int64, has the first feature of each of the `shards`, and n_features.
    """

    edges: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    shards: tuple[StoredShard, ...] = ()

    def weights_alone(self, problem: Problem) -> RemoteWeights:
        """The weights of the state, which is read shard by shard."""
        parts = []
        for start, shard in zip(self.edges[:-1], self.shards, strict=True):
            ids, weights = self.with_features(shard.read()).nonzero_weights(problem)
            parts.append((ids + start, weights))
        return RemoteWeights.gathered(self, parts)


def stored_state(
    problem: Problem, common: State, records: Iterable[ArrayRecord], url: str, place: str
) -> State:
    """The `StoredState` of a checkpoint with the `records` of its shards, and the rest in `common`.

    Raises `CorruptionError` if the shards are not those of `problem`.
    """
    by_number: dict[int, dict[str, ArrayRecord]] = defaultdict(dict)
    for record in records:
        match = _NAME.fullmatch(record.name)
        assert match is not None, record.name
        by_number[int(match[1])][match[2]] = record
    shards, sizes = [], []
    for number, arrays in sorted(by_number.items()):
        n_features = arrays["accumulators"].shape[1] if "accumulators" in arrays else 0
        expected = State.shapes(problem, n_features)
        shapes = {name: each.shape for name, each in arrays.items()}
        if shapes != {name: expected[name][0] for name in FEATURE_ARRAYS}:
            raise CorruptionError(f"{place}: shard {number} is not one of this run's state")
        shards.append(StoredShard(url, place, tuple(arrays.values())))
        sizes.append(n_features)
    if sum(sizes) != problem.n_features or sorted(by_number) != list(range(len(sizes))):
        raise CorruptionError(f"{place}: its shards do not have the {problem.n_features} features")
    edges = np.array([0, *accumulate(sizes)])
    named: dict[str, Any] = common.arrays
    return StoredState(**named, t=common.t, edges=edges, shards=tuple(shards))
