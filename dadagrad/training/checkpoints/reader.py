"""Reading of checkpoints: only manifests are trusted, and the newest undamaged checkpoint wins."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dadagrad.errors import CorruptionError, InputError
from dadagrad.storage.arrays import read_arrays
from dadagrad.storage.documents import what_is_at
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints.manifest import (
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
    """One checkpoint in the list of `CheckpointReader.list`.

    If `valid` is False, `problem` gives the reason; of a damaged manifest only the step in its name
    is known.
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
    """Reader of the checkpoints of a folder.

    Parameters
    ----------
    url : str, path or Storage
        The folder that a `CheckpointWriter` writes.
    """

    def __init__(self, url: str | os.PathLike[str] | Storage) -> None:
        self._storage = url if isinstance(url, Storage) else Storage(url)

    @property
    def url(self) -> str:
        """URL of the folder."""
        return self._storage.url

    def __repr__(self) -> str:
        return f"CheckpointReader({self.url!r})"

    def list(self, *, verify: bool = False) -> list[CheckpointInfo]:
        """List all checkpoints, newest first, those with a damaged manifest last.

        A checkpoint counts as valid if its manifest is undamaged and all its parts are present;
        with `verify`, every part is read and checked as well.
        """
        keys = self._storage.list()
        ranked = [self._inspect(key, set(keys), verify) for key in manifest_keys(keys)]
        return [info for _, info in sorted(ranked, key=lambda item: item[0], reverse=True)]

    def load(self, step: int | None = None) -> Snapshot:
        """Load the newest valid snapshot, or the newest valid one of `step`.

        Damaged checkpoints are skipped, each with a logged warning.

        Raises
        ------
        InputError
            There is no valid checkpoint, or a later release wrote it.
        StorageError
            The store cannot be read.
        """
        damaged: dict[str, str] = {}
        while True:
            # Listed again each time: a writer that goes on may have removed some of them.
            keys = manifest_keys(self._storage.list())
            manifest = self._newest(step, keys, damaged)
            try:
                arrays = read_arrays(self._storage, manifest.arrays, f"{self.url}: {manifest.key}")
            except CorruptionError as error:
                self._skip(manifest.key, error, damaged)
                continue
            return Snapshot(manifest.step, arrays, manifest.meta)

    def _inspect(
        self, key: str, present: set[str], verify: bool
    ) -> tuple[tuple[int, int, str], CheckpointInfo]:
        """Describe one checkpoint; also returns its rank in the list."""
        place = f"{self.url}: {key}"
        try:
            manifest = read_manifest(self._storage, key)
        except (CorruptionError, UnknownVersion) as error:
            return (-1, step_of(key), key), CheckpointInfo(key, step_of(key), False, str(error))
        missing = sorted(manifest.part_keys - present)
        problem = f"{place}: part {missing[0]} is missing" if missing else None
        if verify and not missing:
            try:
                read_arrays(self._storage, manifest.arrays, place)
            except CorruptionError as error:
                problem = str(error)
        return manifest.rank, CheckpointInfo(
            key,
            manifest.step,
            problem is None,
            problem,
            manifest.epoch,
            manifest.created,
            manifest.nbytes,
            manifest.meta,
        )

    def _newest(self, step: int | None, keys: Sequence[str], damaged: dict[str, str]) -> Manifest:
        """Return the newest manifest that is not `damaged`, or raise; records damage."""
        manifests = []
        for key in keys:
            if key not in damaged and (step is None or step_of(key) == step):
                try:
                    manifests.append(read_manifest(self._storage, key))
                except CorruptionError as error:
                    self._skip(key, error, damaged)
        if manifests:
            return max(manifests, key=lambda manifest: manifest.rank)
        subject = f"no checkpoint{'' if step is None else f' of step {step}'} at {self.url}"
        if damaged:
            reason = next(iter(damaged.values()))
            raise InputError(
                f"{subject} can be read: all {len(damaged)} are damaged; the first one: {reason}"
            )
        if keys:
            steps = sorted({step_of(key) for key in keys})
            raise InputError(f"{subject}; there are checkpoints of the steps {steps}")
        kind = what_is_at(self._storage)
        raise InputError(f"{subject}: {f'it is {kind}' if kind else 'the folder has no run'}")

    def _skip(self, key: str, error: CorruptionError, damaged: dict[str, str]) -> None:
        damaged[key] = str(error)
        logger.warning("skipped the damaged checkpoint %s of %s: %s", key, self.url, error)
