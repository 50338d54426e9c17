"""Which run owns a folder: fencing epochs, and whether create-only writes can be relied on.

Whoever writes checkpoints claims the folder with an epoch of his own, one more than the highest
there is; whoever has a lower one is fenced off. Where a run is resumed that is all: the last to
come takes over. Of new runs that begin in one folder at the same moment exactly one may go on:

- with create-only writes, the one that creates the claim that all of them see to be next;
- without, each writes a claim under a name of its own, waits until the claims of those that came
  as early must be there as well, and the one with the greatest name goes on.

A claim without a checkpoint is one of a run that begins at this moment, or that died doing so: who
comes later waits for a while to see which.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from datetime import UTC, datetime
from uuid import uuid4

from dadagrad.errors import AlreadyExists, CorruptionError, InputError, StorageError
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

BEGIN_SECONDS = 5.0
"""After so long without a checkpoint, whoever claimed a folder for a new run is taken for dead."""

_ATTEMPTS = 50


class TakenOver(StorageError):
    """Another run has claimed the folder."""


class Fence:
    """One run's claim to a folder; making it claims.

    Parameters
    ----------
    storage : Storage
    new : bool
        For a new run: nobody else may be beginning one there. Otherwise whoever had the folder
        before is fenced off.

    Attributes
    ----------
    owner : str
        A name that nobody else has.
    create_only : bool
        Whether the store honours create-only writes.
    epoch : int
        One more than the highest epoch there was.

    Raises
    ------
    InputError
        If another run begins in the folder, or has begun, where it is for a `new` one.
    """

    def __init__(self, storage: Storage, *, new: bool = False) -> None:
        self._storage = storage
        self.owner = uuid4().hex
        begun = time.monotonic()
        self.create_only = self._probe()
        # What two rounds of writing and deleting took, some times over.
        self._settle = min(max(4.0 * (time.monotonic() - begun), 0.3), BEGIN_SECONDS)
        self.epoch = self._claim_new() if new else self._claim()

    def create(self, key: str, data: bytes) -> bool:
        """Write a key that nobody has; False if somebody has it (where the store can tell).

        No two callers may ever give the same `data`.
        """
        for attempt in range(_ATTEMPTS):
            try:
                self._storage.put(key, data, create=self.create_only)
            except AlreadyExists:
                # A write whose answer was lost is sent again, and then finds itself. And some
                # stores refuse both of two writes, or one while the key is being deleted.
                with contextlib.suppress(MissingKey):
                    return self._storage.get(key) == data
                time.sleep(random.uniform(0.0, 0.01 * (attempt + 1)))
                continue
            return True
        raise StorageError(
            f"cannot write {key} in {self._storage.url}: it is refused as existing already, and "
            "does not exist; check that the store honours create-only writes"
        )

    def check(self) -> None:
        """Raise `TakenOver` if another run has claimed the folder since."""
        rival = self._rival()
        if rival and not self.create_only and rival[0] == self.epoch:
            # Who lost the race to begin here may not have taken its claim back yet.
            time.sleep(self._settle)
            rival = self._rival()
        if rival:
            raise TakenOver(
                f"another run took over the checkpoints at {self._storage.url} (its epoch is "
                f"{rival[0]}, this run has {self.epoch}): this run stops without writing; give "
                "each run a folder of its own"
            )

    def _rival(self) -> tuple[int, str] | None:
        """The greatest claim, if it is greater than this one."""
        mine = self.epoch, epoch_key(self.epoch, None if self.create_only else self.owner)
        greatest = max(_claims(self._storage.list()), default=mine)
        return greatest if greatest > mine else None

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
        """Take the folder over, whoever has it."""
        for attempt in range(_ATTEMPTS):
            epoch, key = self._next(self._storage.list())
            if self._write_claim(epoch, key):
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

    def _claim_new(self) -> int:
        """Take a folder that nobody has."""
        keys = self._wait_for_others()
        epoch, key = self._next(keys)
        if not self._write_claim(epoch, key):
            raise self._lost()
        if not self.create_only:
            time.sleep(self._settle)
        keys = self._storage.list()
        if manifest_keys(keys) or max(_claims(keys), default=(0, "")) > (epoch, key):
            if not self.create_only:
                # So that it does not stand in the way of the one that has won.
                self._storage.delete(key)
            raise self._lost()
        self._forget({other: 0 for other in epochs(keys) if other != key})
        return epoch

    def _wait_for_others(self) -> list[str]:
        """The keys that are there, once nobody is about to begin a run."""
        begun = time.monotonic()
        seen: set[str] = set()
        while True:
            keys = self._storage.list()
            if manifest_keys(keys):
                raise self._lost()
            claims = set(epochs(keys))
            if not claims or (claims <= seen and time.monotonic() - begun > BEGIN_SECONDS):
                return keys
            if not claims <= seen:
                begun, seen = time.monotonic(), seen | claims
                logger.info("%s is claimed: waiting for who did so", self._storage.url)
            time.sleep(0.2)

    def _lost(self) -> InputError:
        return InputError(
            f"another run has just begun at {self._storage.url}: this one stops without writing; "
            "give each run a folder of its own, or go on with that one by `dadagrad resume`"
        )

    def _next(self, keys: list[str]) -> tuple[int, str]:
        """The epoch to claim where these `keys` are, and the key of the claim."""
        epoch = 1 + max(self._highest_manifest(keys), *epochs(keys).values(), 0)
        return epoch, epoch_key(epoch, None if self.create_only else self.owner)

    def _write_claim(self, epoch: int, key: str) -> bool:
        claim = f'{{"epoch":{epoch},"owner":"{self.owner}","created":"{now()}"}}\n'
        return self.create(key, claim.encode())

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


def _claims(keys: list[str]) -> list[tuple[int, str]]:
    """The claims among `keys`, by epoch and name."""
    return [(epoch, key) for key, epoch in epochs(keys).items()]


def now() -> str:
    """The time as text, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
