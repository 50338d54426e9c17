"""An object of a store as a file: for readers that look for what they need."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from dadagrad.storage import Storage


class ObjectFile(io.RawIOBase):
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
