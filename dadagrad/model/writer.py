"""Writing of models, in place of a model that is there.

A stored model is a folder of any store::

    parts-9f...c1/000-00000.zst    the arrays, compressed
    model.json                     written last; names every part, its size and sha256

Parts are never overwritten: a model is replaced by writing new parts and then ``model.json``, in
one atomic write. The parts of the old model are removed last, and those of a killed writer by the
first save that is a day younger.
"""

from __future__ import annotations

import logging
import math
import os
import re
from contextlib import ExitStack, suppress
from typing import Any, Self
from uuid import uuid4

from dadagrad.errors import CorruptionError, DadagradError, InputError, MissingKey, StorageError
from dadagrad.storage.arrays import read_records, sync
from dadagrad.storage.documents import Content, content_at, read_sealed, seal
from dadagrad.storage.store import Storage

DOCUMENT = "model.json"
STALE_SECONDS = 86_400.0
"""Seconds without a write after which parts that no model has are those of a killed writer."""

_PARTS = re.compile(r"parts-[0-9a-f]{32}")

logger = logging.getLogger(__name__)


class ModelWriter:
    """Writer of one model to a folder, in place of a model that is there.

    As a context manager it removes what was written if the block does not commit it. Raises
    `InputError` if the folder holds a dataset or checkpoints, or is a file.
    """

    def __init__(self, url: str | os.PathLike[str] | Storage) -> None:
        storage = self.storage = url if isinstance(url, Storage) else Storage(url)
        if storage.is_local and os.path.isfile(storage.local_path()):
            raise InputError(f"{storage.url} is a file; save the model to a folder of its own")
        content = content_at(storage)
        if content not in (None, Content.MODEL):
            raise InputError(
                f"{storage.url} holds {content}; save the model to a folder of its own"
            )
        self._folders: list[str] = []
        self._at_end = ExitStack()

    def check(self) -> None:
        """Raise `StorageError` if the store takes no files, before a run that would be lost."""
        with self.storage.without_empty_folders():
            try:
                self._put_and_delete()
            except StorageError:
                if not self.storage.is_local:
                    raise
                self._put_and_delete()  # another run that begins may have removed the folder

    @property
    def folder(self) -> str:
        """The folder of the parts."""
        return self._folders[-1] if self._folders else self.new_folder()

    def _put_and_delete(self) -> None:
        self.storage.put("model.part", b"")  # one name: the next removes that of a killed one
        with suppress(DadagradError):
            self.storage.delete("model.part")

    def new_folder(self) -> str:
        """Name another folder for the parts, in place of one that may be incomplete."""
        self._folders.append(f"parts-{uuid4().hex}")
        return self.folder

    def __enter__(self) -> Self:
        self._at_end.enter_context(self.storage.without_empty_folders())
        return self

    def __exit__(self, *error: object) -> None:
        with self._at_end, suppress(StorageError):
            self._remove(self._folders)

    def commit(self, body: dict[str, Any]) -> None:
        """Write ``model.json`` with this body: a reader sees the old model or the new one.

        Raises `StorageError` if the parts are gone: this process stood still for too long.
        """
        storage = self.storage
        first = next(part["key"] for array in body["arrays"] for part in array["parts"])
        if not storage.exists(first):
            raise StorageError(
                f"the parts of the model at {storage.url} have been removed while it was saved, "
                "perhaps by another save; save it again"
            )
        old_folders = _part_folders(storage)
        document = seal(body, f"the description of the model at {storage.url}")
        folders, self._folders = self._folders, []  # stay: the store may get the document
        try:
            storage.put(DOCUMENT, document)
        except StorageError:
            if storage.is_local:  # it has not
                self._folders = folders
            raise
        sync(storage, [DOCUMENT])
        # Other parts may belong to a save in progress, unless nobody writes to them.
        try:
            self._remove([*old_folders, *folders[:-1], *_stale_folders(storage, folders[-1])])
            storage.remove_leftovers()
        except StorageError as error:
            logger.warning("could not remove the parts of the replaced model: %s", error)

    def _remove(self, folders: list[str]) -> None:
        for folder in folders:
            self.storage.delete_prefix(folder)


def _part_folders(storage: Storage) -> set[str]:
    """Return the folders of parts of the model at `storage`; none if its document is damaged."""
    with suppress(CorruptionError, MissingKey):
        records = read_records(read_sealed(storage, DOCUMENT, storage.url), storage.url)
        folders = {part.key.partition("/")[0] for record in records for part in record.parts}
        return set(filter(_PARTS.fullmatch, folders))
    return set()


def _stale_folders(storage: Storage, new: str) -> set[str]:
    """Return the folders of parts that no model has, and last written to long before the `new`."""
    before = _last_write(storage, new) - STALE_SECONDS
    others = filter(_PARTS.fullmatch, storage.folders())
    stale = {folder for folder in others if _last_write(storage, folder) < before}
    return stale - _part_folders(storage)


def _last_write(storage: Storage, folder: str) -> float:
    """Return the time of the last write to a folder, by the clock of the store; or NaN."""
    entries = storage.entries(folder)
    if not entries and storage.is_local:  # a writer that was killed at its first part left no entry
        with suppress(OSError):
            return os.path.getmtime(storage.local_path(folder))
    return max((each["last_modified"].timestamp() for each in entries.values()), default=math.nan)
