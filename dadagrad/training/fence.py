"""Which run owns a folder: fencing epochs, and whether create-only writes can be relied on."""

from __future__ import annotations

import contextlib
import logging
import random
import time
from datetime import UTC, datetime
from uuid import uuid4

from dadagrad.errors import AlreadyExists, CorruptionError, StorageError
from dadagrad.storage import MissingKey, Storage
from dadagrad.training.manifest import (
    UnknownVersion,
    epoch_key,
    epochs,
    manifest_keys,
    probe_key,
    read_manifest,
)

logger = logging.getLogger(__name__)

_ATTEMPTS = 50


class Fence:
    """One run's claim to a folder; making it claims.

    Attributes
    ----------
    owner : str
        A name that nobody else has.
    create_only : bool
        Whether the store honours create-only writes.
    epoch : int
        One more than the highest epoch there was.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.owner = uuid4().hex
        self.create_only = self._probe()
        self.epoch = self._claim()

    def create(self, key: str, data: bytes) -> bool:
        """Write a key that nobody has; False if somebody has it (where the store can tell)."""
        try:
            self._storage.put(key, data, create=self.create_only)
        except AlreadyExists:
            # A write whose answer was lost is sent again by the client, and then finds itself.
            with contextlib.suppress(MissingKey):
                return self._storage.get(key) == data
            return False
        return True

    def check(self) -> None:
        """Raise `StorageError` if another run has claimed the folder since."""
        highest = max(epochs(self._storage.list()).values(), default=0)
        if highest > self.epoch:
            raise StorageError(
                f"another run took over the checkpoints at {self._storage.url} (its epoch is "
                f"{highest}, this run has {self.epoch}): this run stops without writing; give "
                "each run a folder of its own"
            )

    def _probe(self) -> bool:
        key = probe_key(uuid4().hex)
        try:
            honoured = self._refuses_second(key)
        finally:
            with contextlib.suppress(StorageError):
                self._storage.delete(key)
        if not honoured:
            logger.warning(
                "%s does not honour create-only writes: checkpoints get unique names, and runs "
                "that write there at the same time are told apart by listing only",
                self._storage.url,
            )
        return honoured

    def _refuses_second(self, key: str) -> bool:
        """Two create-only writes of one key: whether the second is refused, as it must be."""
        try:
            self._storage.put(key, b"{}\n", create=True)
            self._storage.put(key, b"{}\n", create=True)
        except AlreadyExists:
            return True
        except StorageError:
            # Some stores refuse the condition itself. One that refuses this as well is at fault.
            self._storage.put(key, b"{}\n")
        return False

    def _claim(self) -> int:
        for attempt in range(_ATTEMPTS):
            keys = self._storage.list()
            epoch = 1 + max(self._highest_manifest(keys), *epochs(keys).values(), 0)
            key = epoch_key(epoch, None if self.create_only else self.owner)
            claim = f'{{"epoch":{epoch},"owner":"{self.owner}","created":"{now()}"}}\n'
            if self.create(key, claim.encode()):
                others = epochs(self._storage.list())
                others.pop(key, None)
                if all(other < epoch for other in others.values()):
                    self._forget(others)
                    return epoch
            # Somebody else is claiming at this moment.
            time.sleep(random.uniform(0.0, 0.01 * (attempt + 1)))
        raise StorageError(
            f"could not claim {self._storage.url} in {_ATTEMPTS} attempts: other runs keep "
            "claiming it; give each run a folder of its own"
        )

    def _highest_manifest(self, keys: list[str]) -> int:
        """The highest epoch of the manifests: somebody may have removed the claims."""
        highest = 0
        for key in manifest_keys(keys):
            with contextlib.suppress(CorruptionError, UnknownVersion):
                highest = max(highest, read_manifest(self._storage, key).epoch)
        return highest

    def _forget(self, claims: dict[str, int]) -> None:
        # Best effort: they are a few bytes each, and lower than the one that counts.
        with contextlib.suppress(StorageError):
            for key in claims:
                self._storage.delete(key)


def now() -> str:
    """The time as text, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
