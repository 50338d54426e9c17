"""Reading of checkpoints: only manifests are trusted, and the newest undamaged checkpoint wins."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any, NoReturn

from dadagrad.errors import CorruptionError, InputError
from dadagrad.storage.arrays import check_parts, read_arrays
from dadagrad.storage.documents import UnknownVersion, content_at
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints.manifest import Manifest, Snapshot, read_manifests, step_of
from dadagrad.training.checkpoints.shards import is_of_shard

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CheckpointInfo:
    """One checkpoint in a list, with its `problem` if it is not valid.

    Only the step, from the name, is known of a damaged manifest.
    """

    key: str
    step: int
    problem: str | None
    epoch: int | None = None
    created: str | None = None
    bytes: int | None = None
    meta: dict[str, Any] | None = None

    @property
    def valid(self) -> bool:
        return self.problem is None


class CheckpointReader:
    """Reader of the checkpoints in the folder that a `CheckpointWriter` writes."""

    def __init__(self, url: str | os.PathLike[str] | Storage) -> None:
        self._storage = url if isinstance(url, Storage) else Storage(url)
        self.url = self._storage.url

    def list(self, *, verify: bool = False) -> list[CheckpointInfo]:
        """List all checkpoints, newest first, those with a damaged manifest last.

        A checkpoint counts as valid if its manifest is undamaged and all its parts are present;
        with `verify`, every part is read and checked as well.
        """
        keys = self._storage.list()
        manifests, errors = read_manifests(self._storage, keys)
        sound = [
            CheckpointInfo(
                key=each.key,
                step=each.step,
                problem=self._problem(each, set(keys), verify),
                epoch=each.epoch,
                created=each.created,
                bytes=each.nbytes,
                meta=each.meta,
            )
            for each in manifests
        ]
        damaged = sorted(errors.items(), reverse=True)
        return sound + [CheckpointInfo(key, step_of(key), str(error)) for key, error in damaged]

    def newest_meta(self) -> dict[str, Any]:
        """Describe the run by its newest valid checkpoint, without its arrays; raises as `load`."""
        for info in self.list():
            if info.valid and info.meta is not None:
                return info.meta
        return self.load().meta

    def load(self, *, read_shards: bool = True) -> Snapshot:
        """Load the newest valid snapshot.

        Without `read_shards`, arrays that the workers of a cluster wrote are checked, and not read.

        Damaged checkpoints are skipped, each with a logged warning. Raises `InputError` if there is
        no valid one, or a later release wrote it.
        """
        damaged: dict[str, str] = {}
        while True:
            # Listed again each time: a writer that goes on may have removed some of them.
            keys = [key for key in self._storage.list() if key not in damaged]
            manifests, errors = read_manifests(self._storage, keys)
            for key, error in errors.items():
                if isinstance(error, UnknownVersion):
                    raise error
                self._skip(key, error, damaged)
            if not manifests:
                self._refuse(damaged)
            newest = manifests[0]
            try:
                place = f"{self.url}: {newest.key}"
                unread = () if read_shards else tuple(filter(is_of_shard, newest.arrays))
                check_parts(self._storage, unread, place)
                read = tuple(record for record in newest.arrays if record not in unread)
                arrays = read_arrays(self._storage, read, place)
            except CorruptionError as error:
                self._skip(newest.key, error, damaged)
            else:
                return Snapshot(newest.step, arrays, newest.meta, unread=unread)

    def _problem(self, manifest: Manifest, present: set[str], verify: bool) -> str | None:
        """Explain why a checkpoint is not valid; None if it is."""
        place = f"{self.url}: {manifest.key}"
        missing = sorted(manifest.part_keys - present)
        if missing:
            return f"{place}: part {missing[0]} is missing"
        if verify:
            try:
                read_arrays(self._storage, manifest.arrays, place)
            except CorruptionError as error:
                return str(error)
        return None

    def _refuse(self, damaged: dict[str, str]) -> NoReturn:
        """Raise the error of a folder without a valid checkpoint."""
        subject = f"no checkpoint at {self.url}"
        if damaged:
            reason = next(iter(damaged.values()))
            raise InputError(
                f"{subject} can be read: all {len(damaged)} are damaged; the first one: {reason}"
            )
        kind = content_at(self._storage)
        raise InputError(f"{subject}: {f'it is {kind}' if kind else 'the folder has no run'}")

    def _skip(self, key: str, error: CorruptionError, damaged: dict[str, str]) -> None:
        damaged[key] = str(error)
        logger.warning("skipped the damaged checkpoint %s of %s: %s", key, self.url, error)
