"""Files that are read whole or in parts: of this machine by path, objects of a store by URL."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import has_magic
from typing import TypeVar, cast

from dadagrad.errors import InputError, MissingKey, StorageError
from dadagrad.storage.backends import Version
from dadagrad.storage.store import N_REQUESTS, Storage, open_regular

F = TypeVar("F")
T = TypeVar("T")

BUFFER_BYTES = 1 << 18
"""Bytes of a request to a store at least, for a part of an object."""


_N_HOST = 2
"""Place of the bucket or host among the names of a URL."""


def is_url(path: str) -> bool:
    """True for a URL, as ``s3://bucket/name``; paths of this machine have no scheme."""
    return "://" in path


def is_file(path: str) -> bool:
    """True for a regular file, and for an object of a store."""
    return Storage(path).exists("") if is_url(path) else os.path.isfile(path)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file, or an object of a store, which is read in its `version` alone if that is given."""

    path: str
    version: Version | None = None

    @classmethod
    def look_up(cls, path: str) -> SourceFile:
        """Find the version of a file; what is missing, a pipe and a folder have none."""
        if not is_url(path):
            return cls(path, (os.path.getsize(path), "") if os.path.isfile(path) else None)
        with suppress(MissingKey):
            return cls(path, Storage(path).version(""))
        return cls(path)

    @property
    def size(self) -> int:
        """Size in bytes, where it was looked up; else 0."""
        return 0 if self.version is None else self.version[0]

    def open(self, *, pipes: bool = False, buffer_bytes: int = BUFFER_BYTES) -> io.BufferedReader:
        """Open it to read from any position, or with `pipes` also what has none.

        An object is fetched in requests of at least `buffer_bytes`.

        Raises `InputError` for a pipe or a device, `OSError` for a file that cannot be opened, and
        `StorageError` for an object that is missing or has changed.
        """
        if is_url(self.path):
            object_file = cast(io.RawIOBase, Storage(self.path).open("", self.version))
            return io.BufferedReader(object_file, buffer_bytes)
        return open(self.path, "rb", opener=None if pipes else open_regular)


def map_files(answer: Callable[[F], T], files: Sequence[F]) -> list[T]:
    """The answer about each of several files; stores are asked about many at a time."""
    if len(files) == 1:
        return [answer(files[0])]
    with ThreadPoolExecutor(N_REQUESTS) as pool:
        return list(pool.map(answer, files))


@contextmanager
def readable_file(path: str) -> Iterator[None]:
    """Raise `InputError` for an `OSError` at the file `path`."""
    try:
        yield
    except StorageError:  # which says what it was about
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot read {path}: {reason}; give a file that can be read") from error


def list_objects(url: str) -> list[str]:
    """URLs of the objects in a folder, or of those that fit a glob, sorted.

    A glob is one of `glob.glob`: ``**`` stands for any folders, and names that begin with ``.`` are
    given with the dot. A folder has its own objects, or where it has none those of its folders;
    names that begin with ``.`` or ``_``, the notes of writers, are left out. A glob that no object
    fits is one of folders. A web server that lists nothing has none.
    """
    names = url.rstrip("/").split("/")
    if "*" in names[_N_HOST]:
        raise InputError(f"{url} has a glob in place of a bucket; name the bucket")
    patterns = [n for n, name in enumerate(names) if n > _N_HOST and has_magic(name)]
    n_fixed = min(patterns, default=len(names))
    folder, pattern = "/".join(names[:n_fixed]), names[n_fixed:]
    keys = [key.split("/") for key in Storage(folder).list_if_possible()]
    named = [key for key in keys if _fits(key, pattern)] if pattern else _of_folder(keys)
    if pattern and all(key[-1].startswith("_") for key in named):
        named = _of_folders(keys, pattern) or named
    return ["/".join([folder, *key]) for key in named]


def _fits(key: list[str], pattern: list[str]) -> bool:
    if not key or not pattern:
        return not key and all(name == "**" for name in pattern)
    is_hidden, is_deep = key[0].startswith("."), pattern[0] == "**"
    if is_deep and _fits(key, pattern[1:]):
        return True
    if is_hidden and not pattern[0].startswith("."):
        return False
    return fnmatchcase(key[0], pattern[0]) and _fits(key[1:], pattern if is_deep else pattern[1:])


def _of_folders(keys: list[list[str]], pattern: list[str]) -> list[list[str]]:
    """The keys of sources in the folders that fit a glob."""
    inside: dict[tuple[str, ...], list[list[str]]] = {}
    for key in keys:
        n_fitting = next((n for n in range(1, len(key)) if _fits(key[:n], pattern)), None)
        if n_fitting is not None:
            inside.setdefault(tuple(key[:n_fitting]), []).append(key[n_fitting:])
    return [
        [*folder, *key]
        for folder, rest in inside.items()
        for key in ([[]] if ["zarr.json"] in rest else _of_folder(rest))
    ]


def _of_folder(keys: list[list[str]]) -> list[list[str]]:
    """The keys of sources that lie in no folder of a folder with sources."""
    keys = [key for key in keys if not any(name.startswith((".", "_")) for name in key)]
    folders = {tuple(key[:-1]) for key in keys}
    return [key for key in keys if folders.isdisjoint(tuple(key[:n]) for n in range(len(key) - 1))]
