"""Files of text as chunks of whole lines, decompressed."""

from __future__ import annotations

import io
import lzma
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TypeAlias

import pyarrow as pa

from dadagrad.errors import InputError, StorageError, lacks_memory
from dadagrad.storage.files import SourceFile, readable_file

MAX_LINE_BYTES = 1 << 28
"""Longest line of a text file; a longer one means that the file is not text."""

TASK_BYTES = 4 << 20
"""Bytes parsed by one task. They decide which rows share a stream of random shuffle keys."""

HEAD_BYTES = 1 << 20
"""Bytes of the first lines, from which the format and kinds of columns are learned."""

COMPRESSED_NAME = re.compile(r"\.(gz|bz2|xz|zst)$")

STDIN = "/dev/stdin"
"""Path of standard input."""

_READ_BYTES = 1 << 20
_MAX_XZ_MEMORY = 1 << 28  # bytes: xz -9 takes 65 MB, and a header can ask for 4 GB
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_MAX_MAGIC = max(map(len, _MAGIC))


@dataclass(frozen=True, slots=True)
class Range:
    """A part of a file: the lines that start in bytes ``start`` to ``stop``.

    A `stop` of None is the end of a file that can only be read from its beginning.
    """

    file: SourceFile
    start: int
    stop: int | None


@dataclass(slots=True)
class Meter:
    """Position of a reading in its file: in compressed bytes if the file is compressed."""

    position: int = 0
    taken: int = 0

    def take(self) -> int:
        """Bytes read since the last call, or since the beginning."""
        n_bytes, self.taken = self.position - self.taken, self.position
        return n_bytes


_Reader: TypeAlias = Callable[[int], bytes]
"""Reader of up to so many bytes; none at the end."""


def plan_ranges(source: SourceFile, range_bytes: int = TASK_BYTES) -> list[Range]:
    """Cut a file into ranges that can be read independently.

    An uncompressed file is cut every `range_bytes` bytes. A compressed file, or a pipe, is one
    range. An empty file has none.
    """
    path, whole = source.path, [Range(source, 0, None)]
    exists = path == STDIN or (os.path.exists(path) and not os.path.isdir(path))
    if exists and not os.path.isfile(path):
        return whole  # a pipe: bytes read from it here would be lost
    with readable_file(path), source.open() as file:
        if _compression(file.read(_MAX_MAGIC)) is not None:
            return whole
        size = file.seek(0, os.SEEK_END)
    starts = range(0, size, range_bytes)
    return [Range(source, start, min(start + range_bytes, size)) for start in starts]


def _open(source: Range, chunk_bytes: int) -> io.BufferedReader:
    """Open a file; standard input by its number, as a socket cannot be opened by name."""
    if source.file.path == STDIN and not os.path.isfile(STDIN):
        return open(0, "rb", closefd=False)
    if source.stop is None:  # read in order
        return source.file.open(pipes=True, buffer_bytes=chunk_bytes)
    return source.file.open(pipes=True)


def read_chunks(
    source: Range, chunk_bytes: int, meter: Meter | None = None, *, at_once: bool = False
) -> Iterator[tuple[bytes, int]]:
    """Read whole lines of `source`, about `chunk_bytes` at a time, with the offset of each chunk.

    Offsets count bytes of the decompressed file. Only the last line of a file can lack its
    newline. A chunk exceeds `chunk_bytes` only if a line does. With `at_once`, lines of a pipe come
    as soon as they are there. Raises `InputError` naming the file if it cannot be read, is damaged
    or cut short, or a line exceeds `MAX_LINE_BYTES`.
    """
    meter = meter or Meter()
    with readable_file(source.file.path), _open(source, chunk_bytes) as file:
        start, stop = source.start, source.stop
        read: _Reader = file.read
        if stop is None:
            read = _decompressed(file, at_once=at_once)
        else:
            start, stop = _first_line(file, start), _first_line(file, stop)
            file.seek(start)
        meter.taken = start
        for chunk, offset in _whole_lines(source.file.path, read, start, stop, chunk_bytes):
            meter.position = file.tell() if file.seekable() else offset + len(chunk)
            yield chunk, offset


def read_head(file: SourceFile) -> bytes:
    """The first whole lines of a file, about `HEAD_BYTES`."""
    return next(read_chunks(Range(file, 0, None), HEAD_BYTES), (b"", 0))[0]


def count_lines(chunk: bytes) -> int:
    """Lines of a chunk; the last may lack its newline."""
    return chunk.count(b"\n") + (not chunk.endswith(b"\n") and bool(chunk))


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file in messages: line `line`, from 0, of the chunk at `offset`.

    The lines before the chunk are counted only when the place is shown: a range does not know the
    number of its first line. `position` is that in the chunk.
    """

    path: str
    offset: int
    position: int
    line: int

    def __str__(self) -> str:
        line, done = 1 + self.line, 0
        # A pipe cannot be read a second time, and an object should not be.
        if self.offset and not os.path.isfile(self.path):
            return f"{self.path}, line at byte {self.offset + self.position}"
        if self.offset:
            with readable_file(self.path), open(self.path, "rb") as file:
                read = _decompressed(file)
                while data := _read(self.path, read, min(_READ_BYTES, self.offset - done), done):
                    line += data.count(b"\n")
                    done += len(data)
        return f"{self.path}, line {line}"


def place(path: str, chunk: bytes, offset: int, position: int) -> Place:
    """Return the place of ``chunk[position]``; `offset` is that of the chunk in its file."""
    return Place(path, offset, position, chunk.count(b"\n", 0, position))


def _compression(head: bytes) -> str | None:
    """Compression of a file that starts with `head`. Names can be wrong; content is not."""
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def _decompressed(file: io.BufferedReader, *, at_once: bool = False) -> _Reader:
    """Reader of the content of a file; `at_once`, what is there already of an uncompressed one."""
    kind = _compression(file.peek(_MAX_MAGIC))  # needs no seek, so pipes can be compressed as well
    if kind is None:
        return file.read1 if at_once else file.read
    if kind == "xz":
        return _XzReader(file).read
    read: _Reader = pa.CompressedInputStream(file, kind).read
    return read


class _XzReader:
    """Decompressed bytes of an xz file.

    `lzma.LZMAFile` has no limit of memory, and it ignores everything after the first stream that
    does not look like a stream, so rows after a damaged place would be lost. Zeros are padding.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._pieces = _xz_pieces(file)
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Read `size` bytes, or the rest of the file."""
        parts, missing = [self._rest], size - len(self._rest)
        while missing > 0 and (piece := next(self._pieces, b"")):
            parts.append(piece)
            missing -= len(piece)
        data = b"".join(parts)
        self._rest = data[size:]
        return data[:size]


def _xz_pieces(file: IO[bytes]) -> Iterator[bytes]:
    data = b"\0"
    while data:
        data = data.lstrip(b"\0")
        if not data:
            data = file.read(_READ_BYTES)
            continue
        decoder = lzma.LZMADecompressor(memlimit=_MAX_XZ_MEMORY)
        while True:
            if piece := decoder.decompress(data, _READ_BYTES):
                yield piece
            if decoder.eof:
                break
            data = file.read(_READ_BYTES) if decoder.needs_input else b""
            if not data and decoder.needs_input:
                raise EOFError("the file ends within a stream")
        data = decoder.unused_data or b"\0"


def _read(path: str, read: _Reader, size: int, done: int) -> bytes:
    """Read up to `size` bytes after the first `done` bytes."""
    try:
        return read(size)
    except (EOFError, OSError, lzma.LZMAError, pa.ArrowException) as error:
        is_outside = isinstance(error, StorageError) or getattr(error, "errno", None) is not None
        if lacks_memory(error) or is_outside:
            raise  # the content may be whole
        raise InputError(
            f"{path}: the compressed data are damaged or cut short after {done} decompressed bytes "
            f"or a little later ({error}); get a whole copy of the file"
        ) from error


def _first_line(file: IO[bytes], at: int) -> int:
    """Position of the first line that starts at byte `at` or later."""
    if at == 0:
        return 0
    file.seek(at - 1)  # a newline just before byte `at` starts a line there
    while file.readline(_READ_BYTES)[-1:] not in (b"\n", b""):
        pass
    return file.tell()


def _whole_lines(
    path: str, read: _Reader, offset: int, stop: int | None, chunk_bytes: int
) -> Iterator[tuple[bytes, int]]:
    """Read from `offset` to `stop`, in chunks cut after their last newline."""
    at, rest = offset, b""
    while True:
        size = max(chunk_bytes - len(rest), len(rest), 1)  # doubles for a long line
        size = min(size, max(MAX_LINE_BYTES, chunk_bytes) + 1 - len(rest))
        if stop is not None:
            size = min(size, stop - at)
        data = _read(path, read, size, at) if size > 0 else b""
        if not data:
            break
        at += len(data)
        end = data.rfind(b"\n") + 1
        if end:
            chunk = rest + data[:end]
            yield chunk, offset
            offset += len(chunk)
            rest = data[end:]
        else:
            rest += data
        if len(rest) > MAX_LINE_BYTES:
            raise InputError(
                f"{place(path, b'', offset, 0)} is longer than {MAX_LINE_BYTES} bytes; give text "
                "with one row a line"
            )
    if offset == 0 and b"\r" in rest.strip():
        raise InputError(
            f"{path}: its lines end in CR alone; convert the file, for example with "
            r"tr '\r' '\n' < FILE"
        )
    if rest:
        yield rest, offset
