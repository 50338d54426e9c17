"""Files that a command writes: standard output, a pipe, or a file that appears once complete."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from dadagrad.errors import InputError, StorageError
from dadagrad.storage.backends import explain
from dadagrad.storage.files import is_url
from dadagrad.storage.store import Storage

_STDOUT = ("-", "/dev/stdout")


def is_text_stream(url: str) -> bool:
    """Return True for standard output, a pipe, a socket or a device, which are not replaced."""
    if url in _STDOUT:
        return True
    if is_url(url) or not os.path.exists(url):
        return False
    mode = os.stat(url).st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def output_file(url: str, overwrite: bool) -> Iterator[BinaryIO]:
    """Yield standard output, an open pipe or device, or a `new_file`."""
    if url in _STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    elif is_text_stream(url):
        with open(url, "wb", buffering=0) as file:
            yield file
    else:
        with new_file(url, overwrite) as file:
            yield file


def check_new_file(url: str, overwrite: bool) -> None:
    """Raise `InputError` if `url` is a folder, or a file and not to be replaced.

    Raises `StorageError` if its bucket is missing or may not be listed, or its folder may not be
    written to.
    """
    storage = Storage(url)
    if url.endswith("/") or (storage.is_local and os.path.isdir(storage.local_path())):
        raise InputError(f"{url} is a folder; give the name of a file to write")
    _check_free(storage, url, overwrite)
    if not storage.is_local:  # in a missing bucket, an object is missing like any other
        storage.list_if_possible()
        return
    parents = Path(os.path.realpath(storage.local_path())).parents
    folder = next(filter(os.path.exists, parents))
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise StorageError(
            f"cannot write {url}: {folder} is not a folder that may be written to; check its "
            "owner, or write elsewhere"
        )


def _check_free(storage: Storage, url: str, overwrite: bool) -> None:
    if not overwrite and storage.exists(""):
        raise InputError(
            f"there is a file at {url} already; give another name, or --overwrite to replace it"
        )


@contextmanager
def new_file(url: str, overwrite: bool) -> Iterator[BinaryIO]:
    """Yield a file without a name, which becomes the file at `url` at the end."""
    check_new_file(url, overwrite)
    storage = Storage(url)
    # The file that a link leads to is replaced, and the link stays.
    target = os.path.realpath(storage.local_path()) if storage.is_local else ""
    folder = os.path.dirname(target) or None
    try:
        with storage.without_empty_folders():
            if folder:
                os.makedirs(folder, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:
                yield file
                _check_free(storage, url, overwrite)  # another process may have written it
                if target:
                    _name(file, target)
                else:  # sent in parts, and exists once the last of them has arrived
                    storage.put_file("", file)
    except (StorageError, MemoryError):
        raise
    except (OSError, pa.ArrowException) as error:
        place, key = storage.url, ""
        if not target:
            place, key = tempfile.gettempdir(), f"a temporary file for {storage.url}"
        raise explain(error, "write", place, key, "file") from error


def _name(file: BinaryIO, target: str) -> None:
    """Give a file that has no name the name `target`."""
    file.flush()
    os.fsync(file.fileno())
    folder, name = os.path.split(target)
    part = os.path.join(folder, f".{name}.part")
    with suppress(FileNotFoundError):
        os.remove(part)  # of a process that was killed between the next two calls
    try:
        try:
            # The folder descriptor is ignored, but with one the link is followed.
            os.link(f"/proc/self/fd/{file.fileno()}", part, src_dir_fd=file.fileno())
        except OSError:  # a system without such links, or a file system without such files
            file.seek(0)
            with open(part, "wb") as copy:
                shutil.copyfileobj(file, copy)
                copy.flush()
                os.fsync(copy.fileno())
        os.replace(part, target)
    except BaseException:
        with suppress(OSError):
            os.remove(part)
        raise
