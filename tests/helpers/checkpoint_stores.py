"""Snapshots to save, and stores that go wrong, for the tests of checkpoints."""

from functools import partial
from uuid import uuid4

import numpy as np
from hypothesis import strategies as st

from dadagrad import StorageError
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints.manifest import Snapshot, read_manifest


def memory_url():
    return f"memory://{uuid4().hex}"


def snapshot(step):
    rng = np.random.default_rng(step)
    arrays = {
        "sums": rng.normal(size=(200, 2)).astype(np.float32),
        "counts": rng.integers(0, 9, 7),
        "t": np.array(float(step)),
    }
    return Snapshot(step, arrays, {"cursor": [0, step], "loss": float("nan"), "mean": 0.1 + 0.2})


def same(left, right):
    """Equal bit for bit; NaN in the JSON compares by its text."""
    return bits_of(left) == bits_of(right)


def bits_of(snapshot):
    arrays = snapshot.arrays.items()
    bits = {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays}
    return snapshot.step, repr(snapshot.meta), bits


def orphans(url):
    """Parts that no manifest names."""
    storage = Storage(url)
    keys = storage.list()
    named = set()
    for key in keys:
        if key.startswith("manifest-"):
            named |= read_manifest(storage, key).part_keys
    return {key for key in keys if key.endswith(".zst")} - named


class Lax(Storage):
    """A store that does not honour create-only writes."""

    def put(self, key, data, *, create=False):
        super().put(key, data)


class Slow(Storage):
    """A store in which something happens before the first part is read."""

    def __init__(self, url, meanwhile):
        super().__init__(url)
        self.meanwhile = meanwhile

    def get(self, key, *, max_bytes=None):
        if self.meanwhile and key.endswith(".zst"):
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return super().get(key, max_bytes=max_bytes)


class Died(BaseException):
    """The process is gone: nothing of it runs any more."""


class Fails(Storage):
    """A store in which write number `at` goes wrong, in one of several ways."""

    def __init__(self, url, at, how):
        super().__init__(url)
        self.at, self.how, self.writes, self.dead = at, how, 0, False

    def put(self, key, data, *, create=False):
        act = partial(super().put, key, data, create=create)
        self._change(act, half=partial(super().put, key, bytes(data)[: len(data) // 2]))

    def delete(self, key):
        self._change(partial(super().delete, key), half=lambda: None)

    def _change(self, act, half):
        if self.dead:
            raise Died
        self.writes += 1
        fails = self.writes == self.at
        if fails and self.how.endswith("torn"):
            half()
        if not fails or self.how.endswith("after"):
            act()
        if fails:
            self.dead = self.how.startswith("dies")
            raise Died if self.dead else StorageError("injected: the store is full")


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
