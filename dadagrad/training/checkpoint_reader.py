"""Finding and reading checkpoints: manifests alone are trusted, and the newest genuine one wins."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

from dadagrad.documents import what_is_at
from dadagrad.errors import CorruptionError, InputError
from dadagrad.parts import read_arrays
from dadagrad.storage import Storage
from dadagrad.training.manifest import (
    Manifest,
    Snapshot,
    UnknownVersion,
    manifest_keys,
    read_manifest,
    step_of,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CheckpointInfo:
    """One checkpoint as `CheckpointReader.list` finds it.

    Where `valid` is False, `problem` says why; of a damaged manifest nothing but the step in its
    name is known.
    """

    key: str
    step: int
    valid: bool
    problem: str | None = None
    epoch: int | None = None
    created: str | None = None
    bytes: int | None = None
    meta: dict[str, Any] | None = None


class CheckpointReader:
    """Reads the checkpoints of a folder.

    Parameters
    ----------
    url : str, path or Storage
        The folder that a `CheckpointWriter` writes.
    """

    def __init__(self, url: str | os.PathLike[str] | Storage) -> None:
        self._storage = url if isinstance(url, Storage) else Storage(url)

    @property
    def url(self) -> str:
        return self._storage.url

    def __repr__(self) -> str:
        return f"CheckpointReader({self.url!r})"

    def list(self, *, verify: bool = False) -> list[CheckpointInfo]:
        """All checkpoints, newest first, those with a damaged manifest last.

        A checkpoint counts as valid if its manifest is genuine and all its parts are there; with
        `verify`, every part is read and checked as well.
        """
        keys = self._storage.list()
        present = set(keys)
        ranked = [_inspect(self._storage, key, present, verify) for key in manifest_keys(keys)]
        return [info for _, info in sorted(ranked, key=lambda item: item[0], reverse=True)]

    def load(self, step: int | None = None) -> Snapshot:
        """The newest valid snapshot, or the newest valid one of `step`.

        Damaged checkpoints are skipped, each with a logged warning.

        Raises
        ------
        InputError
            If there is no valid checkpoint, or one that a later release wrote.
        StorageError
            If the store cannot be read.
        """
        damaged: dict[str, str] = {}
        while True:
            # Listed anew each time: a writer that goes on may have removed what was there.
            keys = manifest_keys(self._storage.list())
            wanted = [key for key in keys if step is None or step_of(key) == step]
            manifest = _newest(self._storage, wanted, damaged)
            if manifest is None:
                raise _nothing(self._storage, step, keys, damaged)
            where = f"{self.url}: {manifest.key}"
            try:
                arrays = read_arrays(self._storage, manifest.arrays, where)
            except CorruptionError as error:
                _skip(self._storage, manifest.key, error, damaged)
                continue
            return Snapshot(manifest.step, arrays, manifest.meta)


def _inspect(
    storage: Storage, key: str, present: set[str], verify: bool
) -> tuple[tuple[int, int, str], CheckpointInfo]:
    """One checkpoint, and what to sort it by."""
    step = step_of(key) or 0
    try:
        manifest = read_manifest(storage, key)
    except (CorruptionError, UnknownVersion) as error:
        return (-1, step, key), CheckpointInfo(key, step, False, str(error))
    problem = _problem(storage, manifest, present, verify)
    return manifest.rank, CheckpointInfo(
        key,
        step,
        problem is None,
        problem,
        manifest.epoch,
        manifest.created,
        manifest.stored_bytes,
        manifest.meta,
    )


def _problem(storage: Storage, manifest: Manifest, present: set[str], verify: bool) -> str | None:
    missing = sorted(manifest.part_keys - present)
    if missing:
        return f"{storage.url}: {manifest.key}: part {missing[0]} is missing"
    if verify:
        try:
            read_arrays(storage, manifest.arrays, f"{storage.url}: {manifest.key}")
        except CorruptionError as error:
            return str(error)
    return None


def _newest(storage: Storage, keys: list[str], damaged: dict[str, str]) -> Manifest | None:
    """The newest of those `keys` that are not known as `damaged`; it may learn of more."""
    found = []
    for key in keys:
        if key in damaged:
            continue
        try:
            found.append(read_manifest(storage, key))
        except CorruptionError as error:
            _skip(storage, key, error, damaged)
    return max(found, key=lambda manifest: manifest.rank, default=None)


def _skip(storage: Storage, key: str, error: CorruptionError, damaged: dict[str, str]) -> None:
    damaged[key] = str(error)
    logger.warning("skipped the damaged checkpoint %s of %s: %s", key, storage.url, error)


def _nothing(
    storage: Storage, step: int | None, keys: list[str], damaged: dict[str, str]
) -> InputError:
    """Why there is nothing to load."""
    what = f"no checkpoint{'' if step is None else f' of step {step}'} at {storage.url}"
    if damaged:
        reason = next(iter(damaged.values()))
        return InputError(
            f"{what} can be read: {len(damaged)} found, all damaged, the first of them so: {reason}"
        )
    if keys:
        steps = sorted({step_of(key) or 0 for key in keys})
        return InputError(f"{what}; there are those of the steps {steps}")
    found = what_is_at(storage)
    return InputError(f"{what}: {f'it is {found}' if found else 'nothing of a run is there'}")
