"""The place of a dataset while it is written: of ingests that write there at once, one goes on.

An ingest creates ``claim-N.json``, with an N above that of any other claim, writes it again every
second, and removes it at its end. If a claim stays the same for `DEAD_SECONDS`, its ingest was
killed, and another may go on. An ingest that was only paused finds the claim of the other before it
writes the next partition, and stops. The store must honour create-only writes.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

from dadagrad.errors import AlreadyExists, DadagradError, InputError, MissingKey, StorageError
from dadagrad.storage.store import Storage
from dadagrad.summary import listed

logger = logging.getLogger(__name__)

DEAD_SECONDS = 8.0
"""Time without a change after which a claim is that of an ingest that was killed."""

_BEAT_SECONDS = 1.0
_ROOT = "zarr.json"
_CLAIM = re.compile(r"claim-\d{6}\.json")
_OF_DATASET = re.compile(r"part-\d+/|(zarr|claim-\d{6})\.json$")
_PARTITION = re.compile(r"part-\d+")
_UNFINISHED = re.compile(r"(zarr|claim-\d{6})\.json#\d+")  # as the local store names them


def check_output(storage: Storage, *, overwrite: bool) -> list[str]:
    """Check that a dataset can be written to `storage`; return the keys that are there.

    Raises `InputError` if there is a dataset and not `overwrite`, or any other file.
    """
    keys = storage.list()
    if _ROOT in keys and not overwrite:
        raise InputError(
            f"there is a dataset at {storage.url} already; give another URL, or --overwrite to "
            "replace it"
        )
    if foreign := [key for key in keys if not _OF_DATASET.match(key)]:
        raise InputError(
            f"{storage.url} holds files that do not belong to a dataset, like "
            f"{listed(foreign, 3)}; give a URL with nothing in it"
        )
    return keys


@contextmanager
def claimed(storage: Storage, *, overwrite: bool) -> Iterator[Claim]:
    """Hold the only claim to `storage`, without another dataset in it, for the block.

    After an error the files of the dataset are removed, as far as the storage allows.
    """
    claim, stop = Claim(storage), threading.Event()
    thread = threading.Thread(target=claim.keep, args=(stop,), daemon=True)
    thread.start()
    try:
        _remove(storage, check_output(storage, overwrite=overwrite))
        try:
            yield claim
        except BaseException:
            with suppress(DadagradError):
                claim.check()
                _remove(storage, storage.list())
            raise
    finally:
        stop.set()
        thread.join()
        claim.release()


class Claim:
    """The claim of one ingest; the constructor raises `InputError` if another ingest has one."""

    def __init__(self, storage: Storage) -> None:
        self._storage, self._owner, self._beats = storage, uuid4().hex, 0
        dead = _dead_claims(storage)
        number = 1 + max((int(key[6:12]) for key in dead), default=0)
        self._key, self._next = (f"claim-{n:06d}.json" for n in (number, number + 1))
        self._put(create=True)
        for key in dead:
            storage.delete(key)

    def check(self) -> None:
        """Raise `InputError` if another ingest has taken over."""
        if not self._storage.exists(self._key) or self._storage.exists(self._next):
            raise _busy(self._storage)

    def keep(self, stop: threading.Event) -> None:
        """Write the claim again and again, until `stop` is set or another ingest takes over."""
        with suppress(InputError):
            while not stop.wait(_BEAT_SECONDS):
                with suppress(StorageError):
                    self.check()
                    self._put()

    def release(self) -> None:
        """Remove the claim, if the storage allows it."""
        with suppress(StorageError):
            self._storage.delete(self._key)

    def _put(self, *, create: bool = False) -> None:
        self._beats += 1
        content = f'{{"owner":"{self._owner}","beats":{self._beats}}}\n'.encode()
        try:
            self._storage.put(self._key, content, create=create)
        except StorageError as error:
            # A client that lost the answer to its write sends it again, and finds its own claim. An
            # ingest that has just claimed the place removes what others have begun to write.
            claim = _claims(self._storage).get(self._key) if create else None
            if claim is None and not isinstance(error, AlreadyExists):
                raise
            if claim != content:
                raise _busy(self._storage) from None


def _dead_claims(storage: Storage) -> list[str]:
    """Keys of the claims of ingests that were killed; raises `InputError` if one is alive."""
    claims = _claims(storage)
    if claims:
        logger.warning("another ingest has claimed %s: waiting to see if it lives", storage.url)
    pause = min(_BEAT_SECONDS, DEAD_SECONDS) / 4
    # Counted in looks: the clock also runs while this process, or the whole machine, is suspended.
    for _ in range(round(DEAD_SECONDS / pause)):
        if not claims:
            break
        time.sleep(pause)
        now = _claims(storage)
        if not now.items() <= claims.items():
            raise _busy(storage)
        claims = now
    return list(claims)


def _claims(storage: Storage) -> dict[str, bytes]:
    claims = {}
    for key in filter(_CLAIM.fullmatch, storage.list()):
        with suppress(MissingKey):
            claims[key] = storage.get(key)
    return claims


def _busy(storage: Storage) -> InputError:
    return InputError(
        f"another ingest is writing to {storage.url}: this one stops without writing there; give "
        "another URL, or wait until the other has ended"
    )


def _remove(storage: Storage, keys: list[str]) -> None:
    """Remove a dataset, the root first, so that nothing left is taken for one."""
    if _ROOT in keys:
        storage.delete(_ROOT)
    names = {key.partition("/")[0] for key in keys}
    if storage.is_local:  # with what a killed process was writing, which has no keys
        names |= set(os.listdir(storage.local_path()))
    for name in sorted(names):
        if _PARTITION.fullmatch(name):
            storage.delete_prefix(name)
        elif _UNFINISHED.fullmatch(name):
            os.unlink(storage.local_path(name))
