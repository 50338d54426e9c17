"""Decoded partitions that a worker of a Dask cluster keeps, and those that it reads ahead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeAlias

from zict import LRU

from dadagrad.data.rows import Rows

Key: TypeAlias = tuple[str, int]
"""Digest of rows, which begins with that of their dataset, and number of a partition."""

Read: TypeAlias = Callable[[], Rows]


class PartitionCache:
    """Partitions for the tasks of a worker, whose threads share it.

    Those that were used last stay, as far as they have at most `most_bytes` together; those that
    are read ahead stay until they are used. `kept` has the former.
    """

    def __init__(self, most_bytes: int) -> None:
        self.kept: LRU[Key, Rows] = LRU(most_bytes, {}, weight=lambda key, rows: rows.nbytes)
        self._readings: dict[Key, Future[Rows]] = {}
        self._lock = threading.RLock()

    def load(self, key: Key, read: Read) -> Rows:
        """The rows of `key`, which `read` gives unless they are here or are being read."""
        with self._lock:
            if key in self.kept:
                return self.kept[key]
            is_first = key not in self._readings
            reading = self._readings.setdefault(key, Future())
        if is_first:
            _carry_out(reading, read)
        try:
            rows = reading.result()
            with self._lock:
                self.kept[key] = rows
            return rows
        finally:
            with self._lock:
                self._readings.pop(key, None)

    def read_ahead(self, key: Key, read: Read) -> None:
        """Have another thread `read` the rows of `key`, unless they are here or are being read."""
        with self._lock:
            if key in self.kept or key in self._readings:
                return
            reading = self._readings[key] = Future()
        thread = threading.Thread(
            target=_carry_out, args=(reading, read), name="dadagrad-reader", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # there can be no more threads
            _carry_out(reading, read)

    def drop(self, key: Key) -> None:
        """Let go of a partition."""
        with self._lock:
            self.kept.pop(key, None)

    def forget(self, digest: str) -> None:
        """Let go of all partitions of a dataset."""
        with self._lock:
            for partitions in (self.kept, self._readings):
                for key in [key for key in partitions if key[0].startswith(digest)]:
                    del partitions[key]


def _carry_out(reading: Future[Rows], read: Read) -> None:
    try:
        reading.set_result(read())
    except BaseException as error:
        reading.set_exception(error)
