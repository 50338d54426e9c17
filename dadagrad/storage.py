"""Where bytes live: a folder, memory, or object storage, behind one small interface.

Everything goes through `obstore`. Two things are done here and not there: local files are read
with plain system calls, which take a third of the time, and every failure becomes a message that
names the URL and the key and says what to do, with no credentials in it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, cast

from dadagrad.errors import InputError, StorageError
from dadagrad.storage_backends import (
    SCHEMES,
    MissingKey,
    TooLarge,
    check_size,
    explained,
    open_backend,
    path_of_url,
    redact,
    segments,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from obstore.store import ObjectStore

__all__ = ["MissingKey", "Storage", "TooLarge", "open_store"]

_AT_ONCE = 8  # requests in flight while several objects are read or written


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
    credentials from its own environment. An unreachable endpoint fails after some 15 seconds.
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
            self._store: ObjectStore | None = None
        else:
            self._store, self._prefix = open_backend(self._scheme, rest, self.url)

    @property
    def is_local(self) -> bool:
        """Whether this is a folder of the local file system."""
        return self._store is None

    def local_path(self, key: str = "") -> str:
        """The path of a key in a local folder; only where `is_local`."""
        return os.path.join(self._root, *segments(key)) if key else self._root

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """The bytes of an object.

        Raises `MissingKey` if there is none, `TooLarge` if it has more than `max_bytes` (before any
        of it is read), and `StorageError` if it cannot be read.
        """
        try:
            if self._store is None:
                with open(self.local_path(key), "rb", buffering=0) as file:
                    check_size(os.fstat(file.fileno()).st_size, max_bytes, self.url, key)
                    return cast(bytes, file.read())
            result = self._store.get(self._full(key))
            check_size(result.meta["size"], max_bytes, self.url, key)
            return bytes(result.bytes())
        except Exception as error:
            self._explain(error, "read", key)

    def read_into(self, key: str, buffer: WriteableBuffer) -> int:
        """Read an object into `buffer`; the number of its bytes.

        Raises as `get`, with the size of the buffer for the limit.
        """
        view = memoryview(buffer).cast("B")
        try:
            if self._store is None:
                with open(self.local_path(key), "rb", buffering=0) as file:
                    size = os.fstat(file.fileno()).st_size
                    check_size(size, len(view), self.url, key)
                    filled = 0
                    while more := file.readinto(view[filled:size]):
                        filled += more
                    return filled
            result = self._store.get(self._full(key))
            check_size(result.meta["size"], len(view), self.url, key)
            data = memoryview(result.bytes())
            view[: len(data)] = data
            return len(data)
        except Exception as error:
            self._explain(error, "read", key)

    def read_many(self, buffers: Mapping[str, WriteableBuffer]) -> list[int]:
        """Read several objects, each into its buffer and at the same time where each takes a round
        trip; the numbers of their bytes."""
        if self._store is None or len(buffers) < 2 or self._scheme == "memory":
            return [self.read_into(key, buffer) for key, buffer in buffers.items()]
        with ThreadPoolExecutor(min(len(buffers), _AT_ONCE)) as pool:
            return list(pool.map(self.read_into, buffers.keys(), buffers.values()))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Up to `length` bytes of an object from offset `start`."""
        try:
            if self._store is None:
                with open(self.local_path(key), "rb", buffering=0) as file:
                    file.seek(start)
                    return file.read(length)
            return bytes(self._store.get_range(self._full(key), start=start, length=length))
        except Exception as error:
            self._explain(error, "read", key)

    def open(self, key: str) -> BinaryIO:
        """A readable, seekable binary file over an object."""
        try:
            if self._store is None:
                return open(self.local_path(key), "rb")
            return cast(BinaryIO, _ObjectFile(self, key))
        except Exception as error:
            self._explain(error, "read", key)

    def put(self, key: str, data: bytes | bytearray | memoryview, *, create: bool = False) -> None:
        """Write an object whole: a reader sees the old bytes, or all of the new ones.

        With `create`, raises `AlreadyExists` if the key is taken; a store that does not honour
        conditional writes overwrites instead (see the checkpoint's probe).
        """
        try:
            # A single request: the parts of a multipart upload cannot be create-only.
            self._writer.put(
                self._full(key), data, mode="create" if create else "overwrite", use_multipart=False
            )
        except Exception as error:
            self._explain(error, "write", key)

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        """Write several objects, at the same time where each takes a round trip."""
        if self._store is None or len(objects) < 2 or self._scheme == "memory":
            for key, data in objects.items():
                self.put(key, data)
        else:
            with ThreadPoolExecutor(min(len(objects), _AT_ONCE)) as pool:
                list(pool.map(self.put, objects.keys(), objects.values()))

    def list(self, prefix: str = "") -> list[str]:
        """All keys that lie under the folder `prefix`, sorted."""
        try:
            if self._store is None and not os.path.isdir(self.local_path(prefix)):
                return []
            start = len(self._full("x")) - 1
            found = self._writer.list(self._full(prefix) or None, chunk_size=1000)
            return sorted(entry["path"][start:] for page in found for entry in page)
        except Exception as error:
            self._explain(error, "list", prefix)

    def exists(self, key: str) -> bool:
        """Whether there is an object of that key."""
        try:
            self.size(key)
        except MissingKey:
            return False
        return True

    def size(self, key: str) -> int:
        """The size of an object in bytes; raises `MissingKey` if there is none."""
        try:
            return int(self._writer.head(self._full(key))["size"])
        except Exception as error:
            self._explain(error, "look up", key)

    def n_bytes(self) -> int:
        """The size of all objects that lie here together, or of the one that this is.

        Raises `MissingKey` if there is none, and `StorageError` where they cannot be listed.
        """
        try:
            if self._store is None and not os.path.isdir(self._root):
                return self.size("")
            found = self._writer.list(self._full("") or None, chunk_size=1000)
            sizes = [int(entry["size"]) for page in found for entry in page]
        except Exception as error:
            self._explain(error, "list", "")
        return sum(sizes) if sizes else self.size("")

    def delete(self, key: str) -> None:
        """Remove an object; nothing happens if there is none."""
        try:
            self._writer.delete(self._full(key))
        except Exception as error:
            try:
                self._explain(error, "delete", key)
            except MissingKey:
                return

    def delete_prefix(self, prefix: str = "") -> None:
        """Remove all objects under the folder `prefix`."""
        if self._store is None:
            self._delete_folder(prefix)
        else:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(self.delete, self.list(prefix)))

    def zarr(self, *, read_only: bool = True) -> Any:
        """A store that `zarr` and `anndata` can open, rooted at this prefix."""
        import zarr.storage

        if self._store is None:
            return zarr.storage.LocalStore(self._root, read_only=read_only)
        store = zarr.storage.ObjectStore(self._store, read_only=read_only)
        return zarr.storage.StorePath(store, self._prefix)

    @property
    def _writer(self) -> ObjectStore:
        if self._store is None:
            from obstore.store import LocalStore

            # Rooted at / so that nothing is created before something is written.
            return LocalStore("/")
        return self._store

    def _full(self, key: str) -> str:
        """The key from the root of the store."""
        start = self._root.strip("/") if self._store is None else self._prefix
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

    def __reduce__(self) -> tuple[type[Storage], tuple[str]]:
        return (Storage, (self._address,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Storage) and self._address == other._address

    def __hash__(self) -> int:
        return hash(self._address)

    def __repr__(self) -> str:
        return f"Storage({self.url!r})"


class _ObjectFile(io.RawIOBase):
    """A seekable file over an object that is not local; each read is one request."""

    def __init__(self, storage: Storage, key: str) -> None:
        self._storage, self._key = storage, key
        self._size, self._position = storage.size(key), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        length = max(min(len(view), self._size - self._position), 0)
        if length:
            view[:length] = self._storage.get_range(self._key, self._position, length)
        self._position += length
        return length


def open_store(url: str) -> ObjectStore:
    """The obstore store that holds `url`: the root of its bucket, host or file system."""
    return Storage(url)._writer
