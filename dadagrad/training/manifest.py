"""How a checkpoint is laid out in a folder, and the manifest that makes it exist.

::

    epoch-0000000002.json                  claimed by the writer whose fencing epoch is 2
    000000004096-9f...c1/000-00000.zst     parts of arrays, never overwritten
    manifest-000000004096.json             written last; names every part, its size and sha256

A manifest is a sealed document. Where the store does not honour create-only writes, or the step
was committed before, names end in a ``-UUID``: nothing is ever overwritten.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dadagrad import __version__
from dadagrad.documents import field, from_plain, read_sealed, seal, to_plain
from dadagrad.errors import CorruptionError, InputError
from dadagrad.parts import AnyArray, ArrayRecord, check_arrays
from dadagrad.storage import MissingKey, Storage

FORMAT = "dadagrad-checkpoint"
VERSION = 1

_MANIFEST = re.compile(r"manifest-([0-9]{12,18})(-[0-9a-f]{32})?\.json")
_EPOCH = re.compile(r"epoch-([0-9]{10,18})(-[0-9a-f]{32})?\.json")
_PROBE = re.compile(r"probe-[0-9a-f]{32}\.json")
_FOLDER = re.compile(r"([0-9]{12,18}-[0-9a-f]{32})/.*")
_MAX_STEP = 10**18


class UnknownVersion(InputError):
    """A document is whole, but of a version that this release does not know."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything a run needs to go on.

    Attributes
    ----------
    step : int
        Number of steps done.
    arrays : dict of str to ndarray
        Arrays of numbers, of any dtype and shape; they come back bit for bit.
    meta : dict
        Plain JSON (see `dadagrad.documents.to_plain`): configuration, cursor, random state,
        metrics, the fingerprint of the data. Floats come back exactly, NaN and infinities too.
    """

    step: int
    arrays: Mapping[str, AnyArray]
    meta: dict[str, Any]

    def check(self) -> None:
        """Raise `InputError` for content that cannot be stored."""
        if type(self.step) is not int or not 0 <= self.step < _MAX_STEP:
            raise InputError(f"the step of a checkpoint is {self.step!r}; it must be an int >= 0")
        check_arrays(self.arrays)
        to_plain(self.meta, "meta")

    def copy(self) -> Snapshot:
        """A checked snapshot that shares nothing with this one."""
        self.check()
        arrays = {name: array.copy(order="C") for name, array in self.arrays.items()}
        return Snapshot(self.step, arrays, from_plain(to_plain(self.meta, "meta")))


@dataclass(frozen=True)
class Manifest:
    """What a manifest says. Of two, the one with the greater `rank` is the newer."""

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
        """Later epochs first, whatever their step: a run that was taken over never wins."""
        return self.epoch, self.sequence, self.key

    @property
    def stored_bytes(self) -> int:
        """What all parts take in the store."""
        return sum(part.bytes for array in self.arrays for part in array.parts)

    @property
    def part_keys(self) -> set[str]:
        return {part.key for array in self.arrays for part in array.parts}

    @property
    def folders(self) -> set[str]:
        """The folders that hold the parts."""
        return {key.partition("/")[0] for key in self.part_keys}

    def seal(self) -> bytes:
        """The bytes to store under `key`."""
        body = {
            "format": FORMAT,
            "version": VERSION,
            "library": __version__,
            "step": self.step,
            "epoch": self.epoch,
            "sequence": self.sequence,
            "writer": self.writer,
            "created": self.created,
            "arrays": [array.to_json() for array in self.arrays],
            "meta": to_plain(self.meta, "meta"),
        }
        return seal(body, f"the manifest of step {self.step}")


def read_manifest(storage: Storage, key: str) -> Manifest:
    """Read and check a manifest.

    Raises `CorruptionError` if it is damaged or gone, `UnknownVersion` if a later release of
    dadagrad wrote it.
    """
    where = f"{storage.url}: {key}"
    try:
        return parse_manifest(read_sealed(storage, key, where), key, where)
    except MissingKey:
        raise CorruptionError(f"{where} is missing") from None
    except RecursionError:
        raise CorruptionError(f"{where} is nested too deep") from None


def parse_manifest(body: dict[str, Any], key: str, where: str) -> Manifest:
    """The manifest of an unsealed `body`; raises as `read_manifest` does."""
    if body.get("format") != FORMAT:
        raise CorruptionError(f"{where} is no manifest of a checkpoint")
    version = field(body, "version", int, where)
    if version != VERSION:
        raise UnknownVersion(
            f"{where} has format version {version}, and this is dadagrad {__version__}, which "
            f"reads version {VERSION}; use the release that wrote it"
        )
    arrays = field(body, "arrays", list, where)
    manifest = Manifest(
        key,
        field(body, "step", int, where),
        field(body, "epoch", int, where),
        field(body, "sequence", int, where),
        field(body, "writer", str, where),
        field(body, "created", str, where),
        tuple(ArrayRecord.from_json(array, where) for array in arrays),
        from_plain(field(body, "meta", dict, where)),
    )
    if manifest.step != step_of(key):
        raise CorruptionError(f"{where} is the manifest of step {manifest.step}")
    return manifest


def manifest_key(step: int, uuid: str | None = None) -> str:
    return f"manifest-{step:012d}{'-' + uuid if uuid else ''}.json"


def epoch_key(epoch: int, uuid: str | None = None) -> str:
    return f"epoch-{epoch:010d}{'-' + uuid if uuid else ''}.json"


def probe_key(uuid: str) -> str:
    return f"probe-{uuid}.json"


def is_probe(key: str) -> bool:
    return _PROBE.fullmatch(key) is not None


def folder_name(step: int, uuid: str) -> str:
    return f"{step:012d}-{uuid}"


def step_of(key: str) -> int | None:
    """The step in the name of a manifest; None for any other key."""
    match = _MANIFEST.fullmatch(key)
    return int(match[1]) if match else None


def manifest_keys(keys: list[str]) -> list[str]:
    return [key for key in keys if _MANIFEST.fullmatch(key)]


def epochs(keys: list[str]) -> dict[str, int]:
    """The claims among `keys`, and the epoch each claims."""
    return {key: int(match[1]) for key in keys if (match := _EPOCH.fullmatch(key))}


def folders(keys: list[str]) -> set[str]:
    """The folders of parts among `keys`."""
    return {match[1] for key in keys if (match := _FOLDER.fullmatch(key))}
