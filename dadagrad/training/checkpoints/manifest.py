"""Layout of the checkpoints in a folder, and the manifest that makes a checkpoint exist.

::

    epoch-0000000002.json                  the claim of the run whose fencing epoch is 2
    000000004096-9f...c1/000-00000.zst     parts of arrays, never overwritten
    manifest-000000004096.json             written last; names every part, its size and sha256

A manifest is a sealed document. If the store does not honour create-only writes, or the step was
committed before, the name ends in ``-UUID``: nothing is ever overwritten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dadagrad._version import __version__
from dadagrad.errors import CorruptionError, MissingKey
from dadagrad.storage.arrays import AnyArray, ArrayRecord, WriteShards, check_arrays, read_records
from dadagrad.storage.documents import (
    UnknownVersion,
    check_format,
    fields,
    from_plain,
    read_sealed,
    seal,
    to_plain,
)
from dadagrad.storage.store import Storage

VERSION = 5
"""Raised with each change of states or of rounds: a checkpoint names a round by its number."""

_FIELDS: dict[str, type[Any]] = {
    "step": int,
    "epoch": int,
    "sequence": int,
    "writer": str,
    "created": str,
    "arrays": list,
    "meta": dict,
}
_MANIFEST = re.compile(r"manifest-([0-9]{12,18})(-[0-9a-f]{32})?\.json")
_FOLDER = re.compile(r"([0-9]{12,18}-[0-9a-f]{32})/.*")


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything that a run needs to go on after `step` steps; it comes back bit for bit.

    `arrays` are of numbers. `meta` is plain JSON (see `dadagrad.storage.documents.to_plain`).
    `write_shards` has others write more arrays; after loading, `unread` are arrays that were
    checked and not read.
    """

    step: int
    arrays: Mapping[str, AnyArray]
    meta: dict[str, Any]
    write_shards: WriteShards | None = None
    unread: tuple[ArrayRecord, ...] = ()

    def copy(self) -> Snapshot:
        """Return a snapshot that shares no memory with this one; or raise `InputError`."""
        check_arrays(self.arrays)
        arrays = {name: array.copy(order="C") for name, array in self.arrays.items()}
        return Snapshot(self.step, arrays, from_plain(to_plain(self.meta, "meta")))


@dataclass(frozen=True)
class Manifest:
    """The content of a manifest. Of two manifests, the one of greater `rank` is the newer."""

    key: str
    step: int
    epoch: int
    sequence: int
    writer: str
    created: str
    arrays: tuple[ArrayRecord, ...]
    meta: dict[str, Any]

    @property
    def rank(self) -> tuple[int, int, str]:
        """Order by epoch first, whatever the step: a run that was taken over never wins."""
        return self.epoch, self.sequence, self.key

    @property
    def nbytes(self) -> int:
        """Size of all parts in the store."""
        return sum(part.bytes for array in self.arrays for part in array.parts)

    @property
    def part_keys(self) -> set[str]:
        return {part.key for array in self.arrays for part in array.parts}

    def seal(self) -> bytes:
        """Return the document to store under `key`."""
        body = {"format": "dadagrad-checkpoint", "version": VERSION, "library": __version__}
        body |= asdict(self) | {"meta": to_plain(self.meta, "meta")}
        del body["key"]
        return seal(body, f"the manifest of step {self.step}")


def read_manifests(
    storage: Storage, keys: Iterable[str]
) -> tuple[list[Manifest], dict[str, CorruptionError | UnknownVersion]]:
    """Read the manifests among `keys`: the sound ones, newest first, and the errors of others."""
    manifests: list[Manifest] = []
    errors: dict[str, CorruptionError | UnknownVersion] = {}
    for key in manifest_keys(keys):
        try:
            manifests.append(read_manifest(storage, key))
        except (CorruptionError, UnknownVersion) as error:
            errors[key] = error
    return sorted(manifests, key=lambda manifest: manifest.rank, reverse=True), errors


def read_manifest(storage: Storage, key: str) -> Manifest:
    """Read a manifest; `CorruptionError` if it is damaged or missing, or `UnknownVersion`."""
    place = f"{storage.url}: {key}"
    try:
        body = read_sealed(storage, key, place)
        check_format(body, "checkpoint", [VERSION], place)
        content = fields(body, _FIELDS, place) | {"arrays": read_records(body, place)}
        manifest = Manifest(key, **content | {"meta": from_plain(content["meta"])})
    except MissingKey:
        raise CorruptionError(f"{place} is missing") from None
    except RecursionError:
        raise CorruptionError(f"{place} is nested too deep") from None
    if manifest.step != step_of(key):
        raise CorruptionError(f"{place} is the manifest of step {manifest.step}")
    return manifest


def manifest_key(step: int, uuid: str | None = None) -> str:
    """Return the name of the manifest of a step."""
    return f"manifest-{step:012d}{'-' + uuid if uuid else ''}.json"


def manifest_keys(keys: Iterable[str]) -> list[str]:
    """Return the names of manifests among `keys`."""
    return [key for key in keys if _MANIFEST.fullmatch(key)]


def step_of(key: str) -> int:
    """Return the step in the name of a manifest."""
    return int(key.split("-")[1].removesuffix(".json"))


def folders(keys: Iterable[str]) -> set[str]:
    """Return the folders of parts among `keys`."""
    return {match[1] for key in keys if (match := _FOLDER.fullmatch(key))}
