"""Checkpoints: written in the background, committed whole or not at all, read back bit for bit.

A checkpoint exists when its manifest does. `CheckpointWriter.save` uploads the parts under a name
never used before, makes sure that no other run has taken the folder over, and then writes the
manifest, create-only where the store honours that. `CheckpointReader` trusts manifests alone: the
newest whose parts are all genuine wins, and a damaged one is skipped with a warning.

Two writers in one folder are told apart by their fencing epoch (see `dadagrad.training.fence`). A
writer that sees a higher one than its own stops before committing, and whatever it may still commit
at that very moment ranks below every checkpoint of the later epoch. It stops as well, however long
it was paused, before removing anything that a run of a later epoch may need.

Nothing here knows what is in a snapshot.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from types import TracebackType
from uuid import uuid4

from dadagrad.errors import CorruptionError, InputError, StorageError
from dadagrad.parts import sync, write_arrays
from dadagrad.storage import Storage
from dadagrad.training.background import LatestOnly
from dadagrad.training.checkpoint_reader import CheckpointInfo, CheckpointReader
from dadagrad.training.fence import Fence, TakenOver, now
from dadagrad.training.manifest import (
    Manifest,
    Snapshot,
    UnknownVersion,
    folder_name,
    folders,
    is_probe,
    manifest_key,
    manifest_keys,
    read_manifest,
    step_of,
)

__all__ = ["CheckpointInfo", "CheckpointReader", "CheckpointWriter", "Snapshot", "TakenOver"]

logger = logging.getLogger(__name__)


class CheckpointWriter:
    """Writes the checkpoints of one run into one folder.

    Making one probes the store and claims the folder: a run that still writes there is fenced
    off. Use it as a context manager, or call `close`.

    Parameters
    ----------
    url : str, path or Storage
        A folder of any store; it need not exist.
    keep : int
        How many checkpoints to keep; older ones are removed after a newer one is committed.
    new : bool
        For a run that begins: the folder must not be, or become at this moment, that of another.

    Raises
    ------
    InputError
        If `keep` is less than 1, or the URL is none, or for a `new` run if another one has begun
        there.
    StorageError
        If the folder cannot be written.
    """

    def __init__(
        self, url: str | os.PathLike[str] | Storage, *, keep: int = 3, new: bool = False
    ) -> None:
        if keep < 1:
            raise InputError(f"keep={keep} was given; at least 1 checkpoint must be kept")
        self._storage = url if isinstance(url, Storage) else Storage(url)
        self._keep = keep
        self._sequence = 0
        self._saving = threading.Lock()
        self._background = LatestOnly(self.save, "dadagrad-checkpoint")
        self._fence = Fence(self._storage, new=new)

    @property
    def url(self) -> str:
        return self._storage.url

    @property
    def epoch(self) -> int:
        """The fencing epoch of this writer."""
        return self._fence.epoch

    def probe(self) -> bool:
        """Whether the store honours create-only writes, as found at start."""
        return self._fence.create_only

    def __repr__(self) -> str:
        return f"CheckpointWriter({self.url!r}, epoch={self.epoch})"

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            # What went wrong first is what the caller must see.
            logger.warning("the last checkpoint was not written: %s", failure)

    def submit(self, snapshot: Snapshot, *, copy: bool = True) -> None:
        """Have `snapshot` saved in the background; takes no longer than copying it.

        While one is being written one more can wait, and a newer one takes its place. With
        ``copy=False`` the caller promises never to change the arrays again.

        Raises
        ------
        InputError
            For content that cannot be stored.
        StorageError
            The failure of an earlier background write, once.
        """
        if copy:
            snapshot = snapshot.copy()
        else:
            snapshot.check()
        self._background.put(snapshot)

    def check(self) -> None:
        """Raise the failure of an earlier background write, once, if there was one."""
        self._background.check()

    def wait(self) -> None:
        """Return when all that was submitted is committed; raises what went wrong with it."""
        self._background.wait()

    def close(self) -> None:
        """Commit what was submitted and end the background thread; raises what went wrong."""
        self._background.close()

    def save(self, snapshot: Snapshot) -> None:
        """Commit `snapshot`: when this returns, it is what a reader loads.

        Raises
        ------
        InputError
            For content that cannot be stored.
        StorageError
            If the store fails, or if another run has taken the folder over.
        """
        snapshot.check()
        with self._saving:
            uuid = uuid4().hex
            folder = folder_name(snapshot.step, uuid)
            try:
                manifest = self._write_parts(snapshot, uuid, folder)
                document = manifest.seal()
                self._fence.check()
            except BaseException:
                # A full disk must not get fuller with each attempt.
                with contextlib.suppress(StorageError):
                    self._storage.delete_prefix(folder)
                raise
            key = self._commit(manifest, document, uuid)
            logger.info("committed %s at %s", key, self.url)
            try:
                self._remove_old(key)
            except TakenOver:
                # What was committed counts for nothing any more.
                raise
            except StorageError as error:
                logger.warning("could not remove old checkpoints: %s", error)

    def _write_parts(self, snapshot: Snapshot, uuid: str, folder: str) -> Manifest:
        records = write_arrays(self._storage, folder, snapshot.arrays)
        sync(self._storage, [part.key for record in records for part in record.parts])
        self._sequence += 1
        return Manifest(
            manifest_key(snapshot.step, None if self.probe() else uuid),
            snapshot.step,
            self.epoch,
            self._sequence,
            self._fence.owner,
            now(),
            records,
            snapshot.meta,
        )

    def _commit(self, manifest: Manifest, document: bytes, uuid: str) -> str:
        key = manifest.key
        if not self._fence.create(key, document):
            # This step was committed before: by an earlier epoch whose run was resumed from an
            # older checkpoint, by this run, or by a later epoch at this very moment.
            self._fence.check()
            key = manifest_key(manifest.step, uuid)
            if not self._fence.create(key, document):
                raise StorageError(
                    f"cannot write {key} in {self.url}: something else is there, under a name that "
                    "nobody else gives; check who writes there"
                )
        sync(self._storage, [key])
        return key

    def _remove_old(self, newest: str) -> None:
        """Remove all but the newest checkpoints, damaged manifests, and what crashes left."""
        keys = self._storage.list()
        found = folders(keys)
        if self._storage.is_local:
            # What a killed process was writing lies under a temporary name that is not listed.
            found |= folders([f"{name}/" for name in os.listdir(self._storage.local_path())])
        manifests, damaged, all_known = [], [], True
        for key in manifest_keys(keys):
            try:
                manifests.append(read_manifest(self._storage, key))
            except CorruptionError:
                damaged.append(key)
            except UnknownVersion:
                all_known = False
        manifests.sort(key=lambda manifest: manifest.rank, reverse=True)
        # A run that took over meanwhile decides for itself what to keep. Listed after the folders
        # were: a folder of its parts can only be among them if its claim is seen here.
        self._fence.check()
        if not manifests or manifests[0].key != newest:
            logger.warning("%s of %s does not read back: older ones stay", newest, self.url)
            return
        # Not those of later steps: a run that takes over now may give the same names, once they
        # are gone, to what must stay.
        past = [key for key in damaged if (step_of(key) or 0) <= manifests[0].step]
        for key in [*past, *(manifest.key for manifest in manifests[self._keep :])]:
            self._storage.delete(key)
        for key in filter(is_probe, keys):
            self._storage.delete(key)
        # A manifest that cannot be understood names folders that cannot be known.
        if all_known:
            kept = set().union(*(manifest.folders for manifest in manifests[: self._keep]))
            for folder in sorted(found - kept):
                self._storage.delete_prefix(folder)
