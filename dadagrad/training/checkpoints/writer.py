"""Checkpoints: written in the background, committed whole or not at all.

A checkpoint exists when its manifest does. `CheckpointWriter.save` uploads the parts under a name
never used before, checks that no other run has taken the folder over, and then writes the manifest,
create-only if the store honours that.

Two writers in one folder are told apart by their fencing epoch (see
`dadagrad.training.checkpoints.lease`). A writer that sees a higher epoch than its own stops before
it commits. A manifest that it commits at that very moment ranks below every checkpoint of the
higher epoch. The writer also stops, however long it was paused, before it removes anything that a
run of a higher epoch may need.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Self
from uuid import uuid4

from dadagrad.errors import StorageError
from dadagrad.settings import Number
from dadagrad.storage.arrays import shared_folder, sync, write_arrays
from dadagrad.storage.backends import absolute
from dadagrad.storage.documents import UnknownVersion, timestamp
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints.lease import PROBE, Lease, TakenOver
from dadagrad.training.checkpoints.manifest import (
    Manifest,
    Snapshot,
    folders,
    manifest_key,
    read_manifests,
    step_of,
)

logger = logging.getLogger(__name__)


class CheckpointWriter:
    """Writer of the checkpoints of one run into one folder, of which it keeps the `keep` newest.

    A new writer probes the store and claims the folder: a run that still writes there is fenced
    off, or `InputError` is raised if this is a `new` run. Use the writer as a context manager, or
    call `close`.
    """

    def __init__(
        self, url: str | os.PathLike[str] | Storage, *, keep: int = 3, new: bool = False
    ) -> None:
        Number(whole=True, minimum=1).convert("keep", keep)
        self._storage = url if isinstance(url, Storage) else Storage(url)
        self._keep = keep
        self._sequence = 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="dadagrad-checkpoint")
        self._futures: list[Future[None]] = []
        self._submitting = threading.Lock()
        self._waiting: Snapshot | None = None
        self._committed: deque[Manifest] = deque()
        with self._storage.without_empty_folders():
            self._lease = Lease(self._storage, new=new)
        self.url = self._storage.url
        self.epoch = self._lease.epoch
        self.create_only = self._lease.create_only

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            # The caller must see the first error.
            logger.warning("the last checkpoint was not written: %s", failure)

    def submit(self, snapshot: Snapshot) -> None:
        """Save a copy of `snapshot` in the background; raises as `save` and `check`.

        A snapshot that has others write arrays is saved at once: these must not change meanwhile.

        One snapshot waits at most while another is being written: a newer one replaces it. So this
        takes no longer than the copy, and memory holds two copies at most.
        """
        self.check()
        if snapshot.write_shards is not None:
            self.wait()
            self.save(snapshot)
            return
        snapshot = snapshot.copy()
        with self._submitting:
            if self._waiting is None:
                self._futures.append(self._pool.submit(self._save_waiting))
            else:
                logger.info("step %d is not saved: a newer one is", self._waiting.step)
            self._waiting = snapshot

    def _save_waiting(self) -> None:
        with self._submitting:
            snapshot, self._waiting = self._waiting, None
        assert snapshot is not None
        self.save(snapshot)

    def check(self) -> None:
        """Raise the error of an earlier write in the background, once."""
        while self._futures and self._futures[0].done():
            self._futures.pop(0).result()

    def committed(self) -> Iterator[Manifest]:
        """Yield the manifests that have been written since the last call."""
        while self._committed:
            yield self._committed.popleft()

    def wait(self) -> None:
        """Return when all submitted snapshots are committed; raise the error of any, once."""
        wait(self._futures)
        self.check()

    def close(self) -> None:
        """Commit all submitted snapshots and end the background thread; raises as `wait`."""
        self._pool.shutdown()
        self.check()

    def save(self, snapshot: Snapshot) -> None:
        """Commit `snapshot`: afterwards a reader loads it.

        Raises `InputError` for content that cannot be stored, and `StorageError` if the store
        fails or another run has taken the folder over.
        """
        uuid = uuid4().hex
        folder = f"{snapshot.step:012d}-{uuid}"
        try:
            manifest = self._write_parts(snapshot, uuid, folder)
            document = manifest.seal()
            self._lease.check()
        except BaseException:  # a full disk must not get fuller with each attempt
            with contextlib.suppress(StorageError):
                self._storage.delete_prefix(folder)
            raise
        key = self._commit(manifest, document, uuid)
        logger.info("saved the checkpoint of step %s to %s", f"{snapshot.step:,}", self.url)
        self._committed.append(replace(manifest, key=key))
        try:
            self._remove_old(key)
        except TakenOver:
            raise
        except StorageError as error:
            logger.warning("could not remove old checkpoints: %s", error)

    def _write_parts(self, snapshot: Snapshot, uuid: str, folder: str) -> Manifest:
        records = write_arrays(self._storage, folder, snapshot.arrays)
        if snapshot.write_shards is not None:
            with shared_folder(self._storage, folder):
                records += tuple(snapshot.write_shards(absolute(self._storage.url), folder))
        self._sequence += 1
        return Manifest(
            key=manifest_key(snapshot.step, None if self.create_only else uuid),
            step=snapshot.step,
            epoch=self.epoch,
            sequence=self._sequence,
            writer=self._lease.owner,
            created=timestamp(),
            arrays=records,
            meta=snapshot.meta,
        )

    def _commit(self, manifest: Manifest, document: bytes, uuid: str) -> str:
        """Write the manifest; returns its key."""
        key = manifest.key
        if not self._lease.create(key, document):
            # This step was committed before: by a lower epoch whose run was resumed from an older
            # checkpoint, by this run, or by a higher epoch at this very moment.
            self._lease.check()
            key = manifest_key(manifest.step, uuid)
            self._lease.create(key, document)
        sync(self._storage, [key])
        return key

    def _remove_old(self, newest: str) -> None:
        """Remove all but the newest checkpoints, damaged manifests, and the remains of crashes."""
        keys = self._storage.list()
        present = folders(keys)
        if self._storage.is_local:
            # A killed process leaves files under temporary names, which `list` hides.
            names = os.listdir(self._storage.local_path())
            present |= folders(f"{name}/" for name in names)
        manifests, errors = read_manifests(self._storage, keys)
        # A run that took over meanwhile decides for itself which checkpoints stay. This look at the
        # claims comes after the list of folders: if parts of that run are in the list, its claim is
        # seen here.
        self._lease.check()
        if not manifests or manifests[0].key != newest:
            logger.warning("%s of %s does not read back: older ones stay", newest, self.url)
            return
        # Damaged manifests of later steps stay until the run gets there: a run that takes over at
        # this moment could create a manifest under the same name, and this one would delete it.
        unknown = [key for key, error in errors.items() if isinstance(error, UnknownVersion)]
        past = [key for key in errors.keys() - unknown if step_of(key) <= manifests[0].step]
        old = [manifest.key for manifest in manifests[self._keep :]]
        for key in [*past, *old, *filter(PROBE.fullmatch, keys)]:
            self._storage.delete(key)
        # A manifest of unknown version may need any of the folders.
        if not unknown:
            used_parts = set().union(*(manifest.part_keys for manifest in manifests[: self._keep]))
            for folder in sorted(present - folders(used_parts)):
                self._storage.delete_prefix(folder)
        self._storage.remove_leftovers()
