"""Snapshots to save, and stores that go wrong, for the tests of checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import numpy as np
from hypothesis import strategies as st

from dadagrad.errors import StorageError
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints.manifest import Snapshot, read_manifest


def memory_url() -> str:
    return f"memory://{uuid4().hex}"


def snapshot(step: int, size: int = 200) -> Snapshot:
    rng = np.random.default_rng(step)
    arrays = {
        "sums": rng.normal(size=(size, 2)).astype(np.float32),
        "counts": rng.integers(0, 9, 7),
        "t": np.array(float(step)),
    }
    return Snapshot(step, arrays, {"cursor": [0, step], "loss": float("nan"), "mean": 0.1 + 0.2})


def same(left: Snapshot, right: Snapshot) -> bool:
    """Equal bit for bit; NaN in the JSON compares by its text."""
    return (
        left.step == right.step
        and repr(left.meta) == repr(right.meta)
        and left.arrays.keys() == right.arrays.keys()
        and all(
            left.arrays[key].tobytes() == right.arrays[key].tobytes()
            and left.arrays[key].dtype == right.arrays[key].dtype
            and left.arrays[key].shape == right.arrays[key].shape
            for key in left.arrays
        )
    )


def orphans(url: str) -> set[str]:
    """Parts that no manifest names."""
    storage = Storage(url)
    keys = storage.list()
    named: set[str] = set()
    for key in keys:
        if key.startswith("manifest-"):
            named |= read_manifest(storage, key).part_keys
    return {key for key in keys if key.endswith(".zst")} - named


class Ignores(Storage):
    """A store that does not honour create-only writes."""

    def put(self, key: str, data: Any, *, create: bool = False) -> None:
        super().put(key, data)


class Died(BaseException):
    """The process is gone: nothing of it runs any more."""


class Failing(Storage):
    """A store in which write number `at` goes wrong, in one of several ways."""

    def __init__(self, url: str, at: int, how: str) -> None:
        super().__init__(url)
        self.at, self.how, self.writes, self.dead = at, how, 0, False

    def put(self, key: str, data: Any, *, create: bool = False) -> None:
        self._count(lambda: Storage.put(self, key, bytes(data)[: len(data) // 2]))
        super().put(key, data, create=create)
        self._after()

    def delete(self, key: str) -> None:
        self._count(lambda: None)
        super().delete(key)
        self._after()

    def _count(self, tear: Callable[[], None]) -> None:
        if self.dead:
            raise Died
        self.writes += 1
        if self.writes != self.at or self.how.endswith("after"):
            return
        if self.how.endswith("torn"):
            self.writes = -(10**6)  # the torn write is not counted
            tear()
        self._fail()

    def _after(self) -> None:
        if self.writes == self.at and self.how.endswith("after"):
            self._fail()

    def _fail(self) -> None:
        if self.how.startswith("dies"):
            self.dead = True
            raise Died
        raise StorageError("injected: the store is full")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text() | st.sampled_from(["$float", "$$float", "$"]), inner, max_size=4
        )
    ),
    max_leaves=10,
)
