"""Bytes in a folder, in memory or in an object store, behind one small interface.

Local files are read with plain system calls, which take a third of the time of obstore; everything
else goes through obstore. Each failure becomes a message that names the URL and the key and says
what to do, without credentials.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias, TypeVar, cast

from dadagrad.errors import InputError, MissingKey, StorageError, TooLarge
from dadagrad.storage.backends import (
    SCHEMES,
    URL,
    ChangedObject,
    ObjectFile,
    Version,
    explain,
    open_store,
    parse,
    path_of_url,
    segments,
    shared_policy,
    version_of,
)
from dadagrad.storage.memory import check_addresses

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

LEFTOVER_SECONDS = 300.0
"""Seconds after which a file under a temporary name is taken for that of a killed writer."""

_LEFTOVER = re.compile(r".+\.json#[0-9]+")  # as the local store of obstore names them
_LARGE_BYTES = 1 << 20  # objects of more bytes are sent with a longer timeout
N_REQUESTS = 8  # requests in flight while several objects are read or written

T = TypeVar("T")
Keys: TypeAlias = list[str]  # `list` is a method below


class Storage:
    """Objects under one prefix of one store.

    Parameters
    ----------
    url : str or path
        A path, or a URL of one of `SCHEMES`: ``file:///folder``, ``memory://name`` (shared by the
        whole process), ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``az://container/prefix``,
        ``https://host/prefix``. A user and a password in it are refused: credentials and endpoints
        come from the usual environment variables (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``).

    Notes
    -----
    Keys are relative and separated by ``/``. A pickle holds the URL alone: another process takes
    the credentials from its own environment. In a local folder only regular files and links to
    them are read; a pipe, device or socket raises `InputError`.

    A request that a store does not answer, or answers with 429 or 5xx, is repeated: for
    ``DADAGRAD_STORAGE_PATIENCE`` seconds (120) if the store has answered before, else for 3. A
    request fails after ``DADAGRAD_STORAGE_TIMEOUT`` seconds (15) without a byte; a write of more
    than 1 MiB after four times as many.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        text = os.fspath(url)
        if not text:
            raise InputError("an empty URL was given; give a path or a URL such as s3://bucket")
        scheme, separator, rest = text.partition("://")
        if not separator and URL.match(text):
            raise InputError(f"{text} has one slash where a URL has two; write SCHEME://PREFIX")
        self._scheme = scheme.lower() if separator else "file"
        if self._scheme not in SCHEMES:
            raise InputError(
                f"cannot open {text}: the scheme must be one of {', '.join(SCHEMES)}, "
                "or give a path"
            )
        self.url = text
        if self.is_local:
            path = path_of_url(text) if separator else os.path.expanduser(text)
            self._root = os.path.abspath(path)
            self._name, self._prefix = "", self._root.strip("/")
        else:
            self._name, self._prefix = parse(self._scheme, rest, text)
            _ = self._store  # raises if the environment does not say what it needs
        self._policy = shared_policy(self._scheme, self._name)

    @property
    def is_local(self) -> bool:
        """True for a folder of the local file system."""
        return self._scheme == "file"

    def local_path(self, key: str = "") -> str:
        """The path of a key in a local folder; only if `is_local`."""
        return os.path.join(self._root, *segments(key)) if key else self._root

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Read an object; `MissingKey` if there is none, `TooLarge` if it exceeds `max_bytes`."""
        if self.is_local:
            return self._read_local(key, max_bytes, io.BufferedReader.read)

        def fetch() -> bytes:
            result = self._store.get(self._path(key))
            self._check_size(key, result.meta["size"], max_bytes)
            return bytes(result.bytes())

        return self._ask("read", key, fetch)

    def read_into(self, key: str, buffer: WriteableBuffer) -> int:
        """Read an object into `buffer`, return the number of its bytes; raises as `get`."""
        view = memoryview(buffer).cast("B")
        if self.is_local:
            return self._read_local(key, len(view), lambda file: file.readinto(view))
        data = self.get(key, max_bytes=len(view))
        view[: len(data)] = data
        return len(data)

    def read_many(self, buffers: Mapping[str, WriteableBuffer]) -> Sequence[int]:
        """Read each object into its buffer, in parallel from afar; return their sizes."""
        return self._map(self.read_into, buffers)

    def open(self, key: str, version: Version | None = None) -> BinaryIO:
        """Open an object as a readable, seekable binary file, by default in its version now."""
        if not self.is_local:
            version = version or self.version(key)
            return cast(BinaryIO, ObjectFile(version[0], partial(self._get_range, key, version)))
        with self._explained("read", key):
            return open(self.local_path(key), "rb", opener=open_regular)

    def put(self, key: str, data: bytes | bytearray | memoryview, *, create: bool = False) -> None:
        """Write a whole object: a reader sees the old bytes, or all of the new ones.

        With `create`, raises `AlreadyExists` if the key exists: perhaps by this very write, which
        is sent again if its answer is lost. A store that does not honour conditional writes
        overwrites instead (the checkpoint writer probes for that).
        """
        mode: Literal["create", "overwrite"] = "create" if create else "overwrite"
        store = self._uploads if memoryview(data).nbytes > _LARGE_BYTES else self._store
        # A single request: the parts of a multipart upload cannot be create-only.
        put = partial(store.put, self._path(key), data, mode=mode, use_multipart=False)
        self._ask("write", key, put)

    def put_file(self, key: str, file: BinaryIO) -> None:
        """Write a whole object from a local file of any size."""

        def send() -> None:
            file.seek(0)
            self._uploads.put(self._path(key), file)

        self._ask("write", key, send)

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        """Write several objects, in parallel to a remote store."""
        self._map(self.put, objects)

    def entries(self, prefix: str = "") -> dict[str, ObjectMeta]:
        """Sizes and times of all objects under the folder `prefix`, by key."""
        if self.is_local and not os.path.isdir(self.local_path(prefix)):
            return {}
        start = len(self._path("x")) - 1

        def fetch() -> dict[str, ObjectMeta]:
            pages = self._store.list(self._path(prefix) or None, chunk_size=1000)
            return {entry["path"][start:]: entry for page in pages for entry in page}

        return self._ask("list", prefix, fetch)

    def list(self, prefix: str = "") -> Keys:
        """All keys under the folder `prefix`, sorted."""
        return sorted(self.entries(prefix))

    def folders(self) -> Keys:
        """Names of the folders right under this URL."""
        start = len(self._path("x")) - 1
        fetch = partial(self._store.list_with_delimiter, self._path("") or None)
        return [path[start:] for path in self._ask("list", "", fetch)["common_prefixes"]]

    def list_if_possible(self) -> Keys:
        """All keys, sorted; none if a web server cannot list."""
        try:
            return self.list()
        except StorageError:
            if self._scheme in ("http", "https"):
                return []
            raise

    def exists(self, key: str) -> bool:
        """True if there is an object of that key."""
        try:
            self.size(key)
        except MissingKey:
            return False
        return True

    def size(self, key: str) -> int:
        """The size of an object in bytes; raises `MissingKey` if there is none."""
        return self.version(key)[0]

    def version(self, key: str) -> Version:
        """The size of an object, and its tag, which differs in other content; "" of a file."""
        if not self.is_local:
            return self._ask("look up", key, lambda: version_of(self._store.head(self._path(key))))
        # Without obstore, whose threads a forked process lacks and would wait for without end:
        # a process that has only read can be forked.
        with self._explained("look up", key):
            status = os.stat(self.local_path(key))
            check_regular(self.local_path(key), status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError
            return status.st_size, ""

    def n_bytes(self) -> int:
        """The total size of all objects under this URL, or of the one object at it."""
        entries = self.entries()
        return sum(entry["size"] for entry in entries.values()) if entries else self.size("")

    def delete(self, key: str) -> None:
        """Remove an object, if there is one."""
        with suppress(MissingKey):
            self._ask("delete", key, lambda: self._store.delete(self._path(key)))

    def delete_prefix(self, prefix: str = "") -> None:
        """Remove all objects under the folder `prefix`."""
        if not self.is_local:
            self._map(lambda key, _: self.delete(key), dict.fromkeys(self.list(prefix)))
            return
        with suppress(MissingKey), self._explained("delete", prefix):
            shutil.rmtree(self.local_path(prefix))

    def remove_leftovers(self) -> None:
        """Remove files of JSON documents whose writer was killed, from a local folder.

        A write in progress has such a file too: only those of the last `LEFTOVER_SECONDS` stay.
        """
        if not self.is_local:
            return
        before = time.time() - LEFTOVER_SECONDS
        with self._explained("delete", ""), os.scandir(self._root) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # the write has just been completed
                    if _LEFTOVER.fullmatch(entry.name) and entry.stat().st_mtime < before:
                        os.remove(entry.path)

    @contextmanager
    def without_empty_folders(self) -> Iterator[None]:
        """Remove local folders that the block has made, if nothing is in them at its end."""
        path = Path(self.local_path()) if self.is_local else Path()
        new = [folder for folder in (path, *path.parents) if not os.path.exists(folder)]
        try:
            yield
        finally:
            for folder in new:
                with suppress(OSError):
                    folder.rmdir()

    @cached_property
    def _store(self) -> ObjectStore:
        return open_store(self._scheme, self._name, self.url)

    @cached_property
    def _uploads(self) -> ObjectStore:
        """The same store with a longer timeout, which also runs while a large object is sent."""
        return open_store(self._scheme, self._name, self.url, for_uploads=True)

    def _path(self, key: str) -> str:
        """Path of an object from the root of the store."""
        return "/".join([part for part in (self._prefix, *segments(key)) if part])

    def _map(self, action: Callable[[str, Any], T], objects: Mapping[str, Any]) -> Sequence[T]:
        """Call `action` for each key and value, in parallel if each call is a round trip."""
        if self._policy is None or len(objects) < 2:
            return [action(key, value) for key, value in objects.items()]
        with ThreadPoolExecutor(min(len(objects), N_REQUESTS)) as pool:
            return list(pool.map(action, objects.keys(), objects.values()))

    def _ask(self, action: str, key: str, call: Callable[[], T]) -> T:
        """Return the answer of the store, after retries; explain its errors."""
        check_addresses(self.url)
        with self._explained(action, key):
            return call() if self._policy is None else self._policy.ask(call)

    def _get_range(self, key: str, version: Version, start: int, stop: int) -> bytes:
        def fetch() -> bytes:
            answer = self._store.get(self._path(key), options={"range": (start, stop)})
            data = bytes(answer.bytes())
            if version_of(answer.meta) != version or len(data) != stop - start:
                raise ChangedObject
            return data

        return self._ask("read", key, fetch)

    def _read_local(
        self, key: str, max_bytes: int | None, read: Callable[[io.BufferedReader], T]
    ) -> T:
        with (
            self._explained("read", key),
            open(self.local_path(key), "rb", opener=open_regular) as file,
        ):
            self._check_size(key, os.fstat(file.fileno()).st_size, max_bytes)
            return read(file)

    def _check_size(self, key: str, size: int, limit: int | None) -> None:
        if limit is not None and size > limit:
            raise TooLarge(
                f"{self.url}: {key} has {size} bytes where at most {limit} were expected"
            )

    @contextmanager
    def _explained(self, action: str, key: str) -> Iterator[None]:
        try:
            yield
        except (StorageError, InputError, MemoryError):
            raise
        except Exception as error:
            # Without the cause, whose text can hold the URL with its credentials.
            raise explain(error, action, self.url, key, self._scheme) from None

    def __getstate__(self) -> dict[str, Any]:
        own = {"_store", "_uploads", "_policy"}  # of this process
        state = {name: value for name, value in self.__dict__.items() if name not in own}
        return state | {"url": self._root} if self.is_local else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over the storage of another process, which knows that the store exists.

        The store is opened when it is first used, where an error can be explained.
        """
        self.__dict__ |= state
        self._policy = shared_policy(self._scheme, self._name)
        if self._policy is not None:
            self._policy.answered = True

    def __repr__(self) -> str:
        return f"Storage({self.url!r})"


def open_regular(path: str, flags: int) -> int:
    """Open a regular file: an `opener` for the built-in `open`; `InputError` as `check_regular`.

    Whoever made a folder of data may have put a pipe, which blocks, or an endless device there.
    """
    # Checked once it is open, so that nothing can be put in its place after the check. The flag
    # means nothing for a file; without it, a pipe would wait for a writer.
    try:
        handle = os.open(path, flags | os.O_NONBLOCK)
    except OSError:
        check_regular(path, os.stat(path).st_mode)  # a socket cannot be opened
        raise
    try:
        check_regular(path, os.fstat(handle).st_mode)
    except InputError:
        os.close(handle)
        raise
    return handle


def check_regular(path: str, mode: int) -> None:
    """Raise `InputError` unless `mode`, an ``st_mode``, is that of a file or a folder."""
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        kinds = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
        raise InputError(
            f"cannot read {path}: it is {kinds.get(stat.S_IFMT(mode), 'a device')}, or a link to "
            "one, where only regular files are read; put the file itself there"
        )
