"""Files that are read whole or in parts: of this machine by path, objects of a store by URL."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from typing import TypeVar, cast

from dadagrad.errors import InputError, MissingKey, StorageError
from dadagrad.storage.backends import ChangedObject, Version, explain
from dadagrad.storage.store import N_REQUESTS, Storage, open_regular

T = TypeVar("T")

BUFFER_BYTES = 1 << 18
"""Bytes of a request to a store at least, for a part of an object."""


def is_url(path: str) -> bool:
    """True for a URL, as ``s3://bucket/name``; paths of this machine have no scheme."""
    return "://" in path


def is_file(path: str) -> bool:
    """True for a regular file, and for an object of a store."""
    return Storage(path).exists("") if is_url(path) else os.path.isfile(path)


def source_version(path: str) -> Version:
    """Size of a file or an object in bytes, 0 for pipes and folders; and the tag of an object."""
    if not is_url(path):
        return os.path.getsize(path) if os.path.isfile(path) else 0, ""
    with suppress(MissingKey):
        return Storage(path).version("")
    return 0, ""


def source_bytes(path: str) -> int:
    """Size of a file or an object in bytes; 0 for pipes and folders, which have none."""
    return source_version(path)[0]


def check_unchanged(versions: Mapping[str, Version]) -> None:
    """Raise `StorageError` if an object is not in this version any more."""
    for url, now in zip(versions, map_files(source_version, list(versions)), strict=True):
        if now != versions[url]:
            raise explain(ChangedObject(), "read", url, "", "")


def map_files(answer: Callable[[str], T], paths: Sequence[str]) -> list[T]:
    """The answer about each of several files; stores are asked about many at a time."""
    with ThreadPoolExecutor(N_REQUESTS) as pool:
        return list(pool.map(answer, paths))


def open_file(
    path: str, *, pipes: bool = False, buffer_bytes: int = BUFFER_BYTES
) -> io.BufferedReader:
    """Open a file or an object to read from any position, or with `pipes` also what has none.

    An object is fetched in requests of at least `buffer_bytes`.

    Raises `InputError` for a pipe or a device, `OSError` for a file that cannot be opened, and
    `StorageError` for an object.
    """
    if is_url(path):
        object_file = cast(io.RawIOBase, Storage(path).open(""))
        return io.BufferedReader(object_file, buffer_bytes)
    return open(path, "rb", opener=None if pipes else open_regular)


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

    A ``*`` stands for a part of one name. A folder has its own objects, or where it has none those
    of its folders; names that begin with ``.`` or ``_``, the notes of writers, are left out. A web
    server that lists nothing has none.
    """
    names = url.rstrip("/").split("/")
    n_fixed = next((n for n, name in enumerate(names) if "*" in name), len(names))
    folder, pattern = "/".join(names[:n_fixed]), names[n_fixed:]
    keys = [key.split("/") for key in Storage(folder).list_if_possible()]
    keys = [key for key in keys if _fits(key, pattern)] if pattern else _of_folder(keys)
    return ["/".join([folder, *key]) for key in keys]


def _fits(key: list[str], pattern: list[str]) -> bool:
    return len(key) == len(pattern) and all(map(fnmatchcase, key, pattern))


def _of_folder(keys: list[list[str]]) -> list[list[str]]:
    """The keys of sources that lie in no folder of a folder with sources."""
    keys = [key for key in keys if not any(name.startswith((".", "_")) for name in key)]
    folders = {tuple(key[:-1]) for key in keys}
    return [key for key in keys if folders.isdisjoint(tuple(key[:n]) for n in range(len(key) - 1))]
