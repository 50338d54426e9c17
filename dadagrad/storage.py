"""Where bytes live: a folder, memory, or object storage, behind one small interface.

Everything goes through `obstore`. Two things are done here and not there: local files are read
with plain system calls, which take a third of the time, and every failure becomes a message that
names the URL and the key and says what to do, with no credentials in it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, TypeAlias, TypeVar, cast

from dadagrad.errors import InputError, StorageError
from dadagrad.regular_files import check_regular, open_regular
from dadagrad.storage_backends import (
    LARGE_BYTES,
    SCHEMES,
    Backend,
    MissingKey,
    TooLarge,
    check_size,
    explained,
    open_backend,
    path_of_url,
    redact,
    segments,
)
from dadagrad.storage_file import ObjectFile

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from obstore.store import ObjectStore

__all__ = ["MissingKey", "Storage", "TooLarge", "open_store"]

_AT_ONCE = 8  # requests in flight while several objects are read or written

T = TypeVar("T")
Listing: TypeAlias = list[Mapping[str, Any]]


class Storage:
    """Objects under one prefix of one store.

    Parameters
    ----------
    url : str or path
        A path, or a URL of one of `SCHEMES`: ``file:///folder``, ``memory://name`` (shared by the
        whole process), ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``az://container/prefix``,
        ``https://host/prefix``. Credentials and endpoints come from the usual environment
        variables (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ...).

    Attributes
    ----------
    url : str
        As given, without any user name and password.

    Raises
    ------
    InputError
        For a URL that cannot be understood.

    Notes
    -----
    Keys are relative and separated by ``/``. Pickles by URL alone: another process takes the
    credentials from its own environment.

    Of a local folder only regular files are read, and what links lead to them: a pipe, a device or
    a socket raises `InputError`.

    A request that a store does not answer, or answers with 429 or 5xx, is repeated: for
    ``DADAGRAD_STORAGE_PATIENCE`` seconds (120) where the store has answered before, and for 3
    where it never has. A request counts as not answered after ``DADAGRAD_STORAGE_TIMEOUT`` seconds
    (15) without a byte; a write of more than 1 MiB after four times as many.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        given = os.fspath(url)
        if not given:
            raise InputError(
                "an empty URL was given; give a path or a URL such as s3://bucket/name"
            )
        scheme, separator, rest = given.partition("://")
        self._scheme = scheme.lower() if separator else "file"
        if self._scheme not in SCHEMES:
            raise InputError(
                f"cannot open {redact(given)}: the scheme must be one of {', '.join(SCHEMES)}, "
                "or give a path"
            )
        self.url = redact(given) if separator else given
        self._address = self.url
        if self._scheme == "file":
            path = os.path.expanduser(given) if not separator else path_of_url(given)
            self._root, self._prefix = os.path.abspath(path), ""
            self._address = self._root
            self._backend: Backend | None = None
        else:
            self._backend, self._prefix = open_backend(self._scheme, rest, self.url)

    @property
    def is_local(self) -> bool:
        """Whether this is a folder of the local file system."""
        return self._backend is None

    def local_path(self, key: str = "") -> str:
        """The path of a key in a local folder; only where `is_local`."""
        return os.path.join(self._root, *segments(key)) if key else self._root

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """The bytes of an object.

        Raises `MissingKey` if there is none, `TooLarge` if it has more than `max_bytes` (before any
        of it is read), and `StorageError` if it cannot be read.
        """
        if self._backend is not None:
            return bytes(self._fetch(key, max_bytes))
        try:
            with open(self.local_path(key), "rb", buffering=0, opener=open_regular) as file:
                check_size(os.fstat(file.fileno()).st_size, max_bytes, self.url, key)
                return cast(bytes, file.read())
        except Exception as error:
            self._explain(error, "read", key)

    def read_into(self, key: str, buffer: WriteableBuffer) -> int:
        """Read an object into `buffer`; the number of its bytes.

        Raises as `get`, with the size of the buffer for the limit.
        """
        view = memoryview(buffer).cast("B")
        if self._backend is not None:
            data = memoryview(self._fetch(key, len(view)))
            view[: len(data)] = data
            return len(data)
        try:
            with open(self.local_path(key), "rb", buffering=0, opener=open_regular) as file:
                size = os.fstat(file.fileno()).st_size
                check_size(size, len(view), self.url, key)
                filled = 0
                while more := file.readinto(view[filled:size]):
                    filled += more
                return filled
        except Exception as error:
            self._explain(error, "read", key)

    def read_many(self, buffers: Mapping[str, WriteableBuffer]) -> list[int]:
        """Read several objects, each into its buffer and at the same time where each takes a round
        trip; the numbers of their bytes."""
        if not self._takes_round_trips or len(buffers) < 2:
            return [self.read_into(key, buffer) for key, buffer in buffers.items()]
        with ThreadPoolExecutor(min(len(buffers), _AT_ONCE)) as pool:
            return list(pool.map(self.read_into, buffers.keys(), buffers.values()))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Up to `length` bytes of an object from offset `start`."""
        if self._backend is not None:
            store, full = self._backend.store, self._full(key)
            return self._ask(
                "read", key, lambda: bytes(store.get_range(full, start=start, length=length))
            )
        try:
            with open(self.local_path(key), "rb", buffering=0, opener=open_regular) as file:
                file.seek(start)
                return file.read(length)
        except Exception as error:
            self._explain(error, "read", key)

    def open(self, key: str) -> BinaryIO:
        """A readable, seekable binary file over an object."""
        try:
            if self._backend is None:
                return open(self.local_path(key), "rb", opener=open_regular)
            return cast(BinaryIO, ObjectFile(self, key))
        except Exception as error:
            self._explain(error, "read", key)

    def put(self, key: str, data: bytes | bytearray | memoryview, *, create: bool = False) -> None:
        """Write an object whole: a reader sees the old bytes, or all of the new ones.

        With `create`, raises `AlreadyExists` if the key is taken: perhaps by this very write, which
        is sent again where its answer is lost. A store that does not honour conditional writes
        overwrites instead (see the checkpoint's probe).
        """
        full = self._full(key)
        large = self._backend is not None and memoryview(data).nbytes > LARGE_BYTES
        # A single request: the parts of a multipart upload cannot be create-only.
        self._ask(
            "write",
            key,
            lambda: (self._uploader if large else self._writer).put(
                full, data, mode="create" if create else "overwrite", use_multipart=False
            ),
        )

    def put_file(self, key: str, path: str) -> None:
        """Write an object whole, out of a local file of any size."""
        full = self._full(key)
        self._ask("write", key, lambda: self._uploader.put(full, Path(path)))

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        """Write several objects, at the same time where each takes a round trip."""
        if not self._takes_round_trips or len(objects) < 2:
            for key, data in objects.items():
                self.put(key, data)
        else:
            with ThreadPoolExecutor(min(len(objects), _AT_ONCE)) as pool:
                list(pool.map(self.put, objects.keys(), objects.values()))

    def list(self, prefix: str = "") -> list[str]:
        """All keys that lie under the folder `prefix`, sorted."""
        if self._backend is None and not os.path.isdir(self.local_path(prefix)):
            return []
        start = len(self._full("x")) - 1
        found = self._entries("list", prefix)
        return sorted(entry["path"][start:] for entry in found)

    def exists(self, key: str) -> bool:
        """Whether there is an object of that key."""
        try:
            self.size(key)
        except MissingKey:
            return False
        return True

    def size(self, key: str) -> int:
        """The size of an object in bytes; raises `MissingKey` if there is none."""
        if self._backend is None:
            # Not through obstore: its threads are not there in a process that is forked, which
            # waits for them for ever. What only reads can so be forked.
            try:
                path = self.local_path(key)
                status = os.stat(path)
                check_regular(path, status.st_mode)
                if stat.S_ISDIR(status.st_mode):
                    raise IsADirectoryError
                return status.st_size
            except Exception as error:
                self._explain(error, "look up", key)
        full, store = self._full(key), self._backend.store
        return self._ask("look up", key, lambda: int(store.head(full)["size"]))

    def n_bytes(self) -> int:
        """The size of all objects that lie here together, or of the one that this is.

        Raises `MissingKey` if there is none, and `StorageError` where they cannot be listed.
        """
        if self._backend is None and not os.path.isdir(self._root):
            return self.size("")
        sizes = [int(entry["size"]) for entry in self._entries("list", "")]
        return sum(sizes) if sizes else self.size("")

    def delete(self, key: str) -> None:
        """Remove an object; nothing happens if there is none."""
        full = self._full(key)
        with suppress(MissingKey):
            self._ask("delete", key, lambda: self._writer.delete(full))

    def delete_prefix(self, prefix: str = "") -> None:
        """Remove all objects under the folder `prefix`."""
        if self._backend is None:
            self._delete_folder(prefix)
        else:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(self.delete, self.list(prefix)))

    def zarr(self, *, read_only: bool = True) -> Any:
        """A store that `zarr` and `anndata` can open, rooted at this prefix."""
        import zarr.storage

        if self._backend is None:
            return zarr.storage.LocalStore(self._root, read_only=read_only)
        store = zarr.storage.ObjectStore(self._backend.store, read_only=read_only)
        return zarr.storage.StorePath(store, self._prefix)

    @property
    def _takes_round_trips(self) -> bool:
        """Whether requests are worth being made side by side."""
        return self._backend is not None and self._backend.patience is not None

    @property
    def _writer(self) -> ObjectStore:
        if self._backend is None:
            from obstore.store import LocalStore

            # Rooted at / so that nothing is created before something is written.
            return LocalStore("/")
        return self._backend.store

    @property
    def _uploader(self) -> ObjectStore:
        return self._writer if self._backend is None else self._backend.uploads

    def _ask(self, action: str, key: str, call: Callable[[], T]) -> T:
        """What the store answers; its failures are waited out, and explained."""
        patience = None if self._backend is None else self._backend.patience
        try:
            return call() if patience is None else patience.ask(call)
        except Exception as error:
            self._explain(error, action, key)

    def _fetch(self, key: str, max_bytes: int | None) -> Any:
        """The bytes of an object that is not local, as a buffer."""
        full = self._full(key)

        def fetch() -> Any:
            result = self._writer.get(full)
            check_size(result.meta["size"], max_bytes, self.url, key)
            return result.bytes()

        return self._ask("read", key, fetch)

    def _entries(self, action: str, prefix: str) -> Listing:
        """What a listing says of all objects under the folder `prefix`."""
        full = self._full(prefix) or None

        def entries() -> Listing:
            pages = self._writer.list(full, chunk_size=1000)
            return [cast(dict[str, Any], entry) for page in pages for entry in page]

        return self._ask(action, prefix, entries)

    def _full(self, key: str) -> str:
        """The key from the root of the store."""
        start = self._root.strip("/") if self._backend is None else self._prefix
        return "/".join([part for part in (start, *segments(key)) if part])

    def _delete_folder(self, prefix: str) -> None:
        import shutil

        try:
            shutil.rmtree(self.local_path(prefix))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self._explain(error, "delete", prefix)

    def _explain(self, error: Exception, action: str, key: str) -> NoReturn:
        if isinstance(error, StorageError | InputError):
            raise error
        # Without the cause: its text can hold the URL with its credentials.
        raise explained(error, action, self.url, key, self._scheme) from None

    def __reduce__(self) -> tuple[Callable[[str], Storage], tuple[str]]:
        return (_arrived, (self._address,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Storage) and self._address == other._address

    def __hash__(self) -> int:
        return hash(self._address)

    def __repr__(self) -> str:
        return f"Storage({self.url!r})"


def _arrived(address: str) -> Storage:
    """What another process had: it has found the store, so that this one need not doubt it."""
    storage = Storage(address)
    if storage._backend is not None and storage._backend.patience is not None:
        storage._backend.patience.answered = True
    return storage


def open_store(url: str) -> ObjectStore:
    """The obstore store that holds `url`: the root of its bucket, host or file system."""
    return Storage(url)._writer
