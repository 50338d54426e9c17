"""Ownership of a folder of checkpoints, by fencing epochs.

A run claims its folder with an epoch, one more than the highest epoch in the folder. A run with a
lower epoch is fenced off: it may write no more. A run that is resumed takes the folder over. Of new
runs that begin in one folder at the same moment exactly one may go on:

- with create-only writes, the run that creates the claim of the next epoch;
- without, each run writes a claim under a unique name, waits until the claims of the others must be
  visible, and the run whose claim has the greatest name goes on.

A claim without a checkpoint belongs to a run that begins at this moment, or that died when it
began. A later run waits for `BEGIN_SECONDS` to see which.
"""

from __future__ import annotations

import contextlib
import logging
import random
import re
import time
from collections.abc import Iterable
from uuid import uuid4

from dadagrad.errors import AlreadyExists, InputError, MissingKey, StorageError
from dadagrad.storage.documents import timestamp
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints.manifest import manifest_keys, read_manifests

logger = logging.getLogger(__name__)

BEGIN_SECONDS = 5.0
"""Time without a checkpoint after which a run that claimed the folder is taken for dead."""

_LOOK_SECONDS = 0.2
_ATTEMPTS = 50
_CLAIM = re.compile(r"epoch-([0-9]{10,18})(-[0-9a-f]{32})?\.json")
PROBE = re.compile(r"probe-[0-9a-f]{32}\.json")


class TakenOver(StorageError):
    """Another run has claimed the folder."""


class Lease:
    """The claim of one run to a folder; the constructor claims it.

    A `new` run raises `InputError` if another run begins or has begun in the folder. Any other run
    takes the folder over. `create_only` is True if the store honours create-only writes.
    """

    def __init__(self, storage: Storage, *, new: bool) -> None:
        self._storage = storage
        self.owner = uuid4().hex
        begun = time.monotonic()
        self.create_only = self._probe()
        # A multiple of the time of two rounds of writing and deleting.
        self._settle = min(max(4.0 * (time.monotonic() - begun), 0.3), BEGIN_SECONDS)
        self.epoch = self._claim_new() if new else self._take_over()

    def create(self, key: str, data: bytes) -> bool:
        """Write a new key with unique `data`; False if the key exists, as far as is known."""
        for attempt in range(_ATTEMPTS):
            try:
                self._storage.put(key, data, create=self.create_only)
            except AlreadyExists:
                # A client that lost the answer to its write sends the write again, and finds its
                # own data. Some stores refuse both of two writes, or refuse a write while the key
                # is being deleted.
                with contextlib.suppress(MissingKey):
                    return self._storage.get(key) == data
                _pause(attempt)
            else:
                return True
        raise StorageError(
            f"cannot write {key} in {self._storage.url}: it is refused as existing already, and "
            "does not exist; check that the store honours create-only writes"
        )

    def check(self) -> None:
        """Raise `TakenOver` if another run has claimed the folder since."""
        rival = self._rival()
        if rival and not self.create_only and rival[0] == self.epoch:
            # A run that lost the race may not have removed its claim yet.
            time.sleep(self._settle)
            rival = self._rival()
        if rival:
            raise TakenOver(
                f"another run took over the checkpoints at {self._storage.url} (its epoch is "
                f"{rival[0]}, this run has {self.epoch}): this run stops without writing; give "
                "each run a folder of its own"
            )

    def _rival(self) -> tuple[int, str] | None:
        claim = self.epoch, self._claim_key(self.epoch)
        greatest = max(_claims(self._storage.list()), default=claim)
        return greatest if greatest > claim else None

    def _probe(self) -> bool:
        """Return True if the store refuses the second of two create-only writes of a key."""
        key = f"probe-{uuid4().hex}.json"
        try:
            self._storage.put(key, b"{}\n", create=True)
            self._storage.put(key, b"{}\n", create=True)
        except AlreadyExists:
            return True
        except StorageError:
            # Some stores refuse the condition itself. A store that refuses this write too fails.
            self._storage.put(key, b"{}\n")
        finally:
            with contextlib.suppress(StorageError):
                self._storage.delete(key)
        logger.warning(
            "%s does not honour create-only writes: checkpoints get unique names, and runs that "
            "write there at the same time are told apart by listing only",
            self._storage.url,
        )
        return False

    def _take_over(self) -> int:
        """Claim the folder, even if another run has it."""
        for attempt in range(_ATTEMPTS):
            epoch, written = self._claim_next(self._storage.list())
            if written:
                others = self._other_claims(self._storage.list(), epoch)
                if all(other_epoch < epoch for other_epoch, _ in others):
                    self._delete(others)
                    return epoch
            _pause(attempt)
        raise StorageError(
            f"could not claim {self._storage.url} in {_ATTEMPTS} attempts: other runs keep "
            "claiming it; give each run a folder of its own"
        )

    def _claim_new(self) -> int:
        """Claim a folder that no other run has."""
        epoch, written = self._claim_next(self._wait_for_others())
        if not written:
            raise self._lost()
        if not self.create_only:
            time.sleep(self._settle)
        keys, claim = self._storage.list(), (epoch, self._claim_key(epoch))
        others = self._other_claims(keys, epoch)
        if manifest_keys(keys) or max(others, default=claim) > claim:
            if not self.create_only:
                self._storage.delete(claim[1])  # it must not hinder the run that has won
            raise self._lost()
        self._delete(others)
        return epoch

    def _wait_for_others(self) -> list[str]:
        """Return the keys in the folder once no other run is about to begin."""
        looks = 0  # not a clock, which also runs while the whole machine is suspended
        old_claims: set[tuple[int, str]] = set()
        while True:
            keys = self._storage.list()
            if manifest_keys(keys):
                raise self._lost()
            claims = set(_claims(keys))
            if not claims <= old_claims:
                looks, old_claims = 0, old_claims | claims
                logger.info("another run claims %s: waiting for its checkpoint", self._storage.url)
            elif not claims or looks * _LOOK_SECONDS > BEGIN_SECONDS:
                return keys
            time.sleep(_LOOK_SECONDS)
            looks += 1

    def _lost(self) -> InputError:
        return InputError(
            f"another run has just begun at {self._storage.url}: this one stops without writing; "
            "give each run a folder of its own, or go on with that one by `dadagrad resume`"
        )

    def _claim_next(self, keys: list[str]) -> tuple[int, bool]:
        """Claim the epoch after all in `keys`; returns it, and False if it was claimed before."""
        manifests, _ = read_manifests(self._storage, keys)  # a user may have removed the claims
        epochs = [epoch for epoch, _ in _claims(keys)] + [manifest.epoch for manifest in manifests]
        epoch = max(epochs, default=0) + 1
        claim = f'{{"epoch":{epoch},"owner":"{self.owner}","created":"{timestamp()}"}}\n'
        return epoch, self.create(self._claim_key(epoch), claim.encode())

    def _claim_key(self, epoch: int) -> str:
        return f"epoch-{epoch:010d}{'' if self.create_only else '-' + self.owner}.json"

    def _other_claims(self, keys: Iterable[str], epoch: int) -> list[tuple[int, str]]:
        return [claim for claim in _claims(keys) if claim[1] != self._claim_key(epoch)]

    def _delete(self, claims: Iterable[tuple[int, str]]) -> None:
        """Delete lower claims, if possible: they have no effect."""
        with contextlib.suppress(StorageError):
            for _, key in claims:
                self._storage.delete(key)


def _claims(keys: Iterable[str]) -> list[tuple[int, str]]:
    """Return the epoch and the key of each claim among `keys`."""
    return [(int(match[1]), key) for key in keys if (match := _CLAIM.fullmatch(key))]


def _pause(attempt: int) -> None:
    """Wait for another run that writes at this moment."""
    time.sleep(random.uniform(0.0, 0.01 * (attempt + 1)))
