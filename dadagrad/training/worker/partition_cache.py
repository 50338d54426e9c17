"""Partitions that a worker has decoded, within a share of its memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from dadagrad.data.rows import Rows

SHARE = 0.4
"""Share of the memory of a worker beside its libraries; the rest is for reading, for weights and
gradients, and for messages. Dask lets a worker have four fifths of its limit."""

Key = tuple[str, int]
"""The digest of a dataset, and the number of a partition."""


class PartitionCache:
    """Keeps what was used last, by its bytes; what does not fit is read again.

    It may be used by several threads.

    Parameters
    ----------
    most_bytes : int
        Of all rows that are kept together.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.n_bytes = 0
        self._rows: OrderedDict[Key, Rows] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: Key) -> bool:
        return key in self._rows

    def get(self, key: Key, read: Callable[[], Rows]) -> Rows:
        """The rows of `key`, which `read` gives where they are not kept."""
        with self._lock:
            if key in self._rows:
                self._rows.move_to_end(key)
                return self._rows[key]
        rows = read()
        with self._lock:
            self._drop(key)  # another thread may have read it too
            if rows.nbytes <= self.most_bytes:
                while self.n_bytes + rows.nbytes > self.most_bytes:
                    self._drop(next(iter(self._rows)))
                self._rows[key] = rows
                self.n_bytes += rows.nbytes
        return rows

    def drop(self, key: Key) -> None:
        """Let go of the rows of `key`, if they are kept."""
        with self._lock:
            self._drop(key)

    def forget(self, digest: str) -> None:
        """Let go of all partitions of a dataset."""
        with self._lock:
            for key in [key for key in self._rows if key[0] == digest]:
                self._drop(key)

    def _drop(self, key: Key) -> None:
        rows = self._rows.pop(key, None)
        if rows is not None:
            self.n_bytes -= rows.nbytes


def cache_bytes(memory_limit: int | None, taken: int) -> int:
    """Bytes of rows that a worker may keep, of whose `memory_limit` so much is `taken`.

    Without a limit, it is a worker's usual share of the machine that counts: that of one processor.
    """
    if not memory_limit:
        from dask.system import CPU_COUNT
        from distributed.system import MEMORY_LIMIT

        memory_limit = int(MEMORY_LIMIT // CPU_COUNT)
    return int(SHARE * max(0, memory_limit - taken))
