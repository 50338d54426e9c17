"""Text files as streams of whole lines: cut into ranges, decompressed, in bounded memory."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, Protocol, cast

from dadagrad.errors import InputError

MAX_LINE_BYTES = 1 << 28
"""A line longer than this is taken for a file that is no text."""

_READ_BYTES = 1 << 20
_XZ_MEMORY = 1 << 28  # bytes: xz -9 takes 65 MB, and a header can ask for 4 GB
_ZSTD_PIECE = 1 << 12  # zstd expands up to 32,000 times: small pieces bound what one gives
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
_LONGEST_MAGIC = max(map(len, _MAGIC))


@dataclass(frozen=True, slots=True)
class Range:
    """A stretch of one file: the lines that start in bytes ``start`` to ``stop``.

    `stop` None means to the end, of a compressed file or one that can only be read as a stream.
    """

    path: str
    start: int
    stop: int | None


@dataclass(slots=True)
class Meter:
    """How many bytes of a file have been read so far: of a compressed one, compressed bytes.

    Of a pipe, which does not say so itself, they are counted as they come out.
    """

    n_bytes: int = 0


class _Reader(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _ZstdReader:
    """Decompressed bytes of a zstd file, of one frame or several.

    Unlike the reader of the zstandard package it notices a file that stops within a frame.
    """

    def __init__(self, file: IO[bytes]) -> None:
        import zstandard

        self._file = file
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame = self._decompressor.decompressobj()
        self._fresh = True
        self._ready = memoryview(b"")

    def read(self, size: int, /) -> bytes:
        pieces: list[memoryview] = []
        while size > 0:
            if not self._ready:
                packed = self._file.read(_ZSTD_PIECE)
                if not packed:
                    if not self._fresh:
                        raise EOFError("the file ends within a zstd frame")
                    break
                self._ready = memoryview(self._decompress(packed))
            # Views: what is left of a piece, which may be large, is not copied for each read.
            pieces.append(self._ready[:size])
            self._ready = self._ready[size:]
            size -= len(pieces[-1])
        return b"".join(pieces)

    def _decompress(self, packed: bytes) -> bytes:
        pieces = []
        while packed:
            pieces.append(self._frame.decompress(packed))
            self._fresh = self._frame.eof
            packed = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = self._decompressor.decompressobj()
        return b"".join(pieces)


def plan_ranges(path: str, range_bytes: int = 32 << 20) -> list[Range]:
    """Cut the file at `path` into ranges that can be read independently, in any order.

    An uncompressed file is cut every `range_bytes` bytes (a line belongs to the range in which it
    starts); a compressed file, or a pipe, is one range. An empty file has none.

    Raises `InputError` where the file cannot be read.
    """
    if range_bytes < 1:
        raise InputError(f"range_bytes is {range_bytes}; it must be 1 or more")
    with _readable(path):
        if not os.path.exists(path) or os.path.isfile(path):
            with open(path, "rb") as file:
                compressed = _compression(file.read(_LONGEST_MAGIC)) is not None
                size = file.seek(0, os.SEEK_END)
        elif os.path.isdir(path):
            raise InputError(f"{path} is a folder; name the files in it")
        else:  # a pipe: what is read to look at it would be lost
            return [Range(path, 0, None)]
    if compressed:
        return [Range(path, 0, None)]
    starts = range(0, size, range_bytes)
    return [Range(path, start, min(start + range_bytes, size)) for start in starts]


def read_chunks(
    source: Range, chunk_bytes: int = 16 << 20, meter: Meter | None = None
) -> Iterator[tuple[bytes, int]]:
    """Whole lines of `source`, about `chunk_bytes` at a time, with the offset of each chunk.

    Offsets count bytes of the decompressed file. Only the last line of a file can lack its
    newline. A chunk grows beyond `chunk_bytes` only for a line that is longer. With each chunk
    the `meter` is brought up to date.

    Raises `InputError` naming the file where it cannot be read, its compressed data are damaged
    or cut short, or a line exceeds `MAX_LINE_BYTES`.
    """
    with _readable(source.path), open(source.path, "rb") as file:
        start, stop = source.start, source.stop
        # Peeking needs no seek, so that pipes can be compressed as well.
        if stop is None and start == 0:
            reader, kind = _decompressed(file, _compression(file.peek(_LONGEST_MAGIC)))
        else:
            start = _first_line(file, start)
            stop = None if stop is None else _first_line(file, stop)
            file.seek(start)
            reader, kind = file, "text"
        seekable = file.seekable()
        for chunk, offset in _whole_lines(source.path, reader, kind, start, stop, chunk_bytes):
            if meter is not None:
                meter.n_bytes = file.tell() if seekable else offset + len(chunk)
            yield chunk, offset


def line_number(path: str, offset: int) -> int:
    """The number, from 1, of the line which holds byte `offset` of the decompressed file."""
    newlines = done = 0
    if not os.path.isfile(path):
        raise InputError(f"{path} cannot be read a second time: it is not a regular file")
    with _readable(path), open(path, "rb") as file:
        reader, kind = _decompressed(file, _compression(file.peek(_LONGEST_MAGIC)))
        while done < offset:
            data = _read(path, reader, kind, min(_READ_BYTES, offset - done), done)
            if not data:
                break
            newlines += data.count(b"\n")
            done += len(data)
    return newlines + 1


def place(path: str, chunk: bytes, offset: int, position: int) -> str:
    """Where ``chunk[position]`` is, for a message: file and line.

    `offset` is where the chunk starts in its file. Lines are only counted here, when something
    is wrong: no range knows the number of its first line.
    """
    newlines = chunk.count(b"\n", 0, position)
    try:
        first = 1 if offset == 0 else line_number(path, offset)
    except InputError:
        return f"{path}, line at byte {offset + position}"
    return f"{path}, line {first + newlines}"


@contextlib.contextmanager
def _readable(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot read {path}: {reason}; give a file that can be read") from error


def _compression(head: bytes) -> str | None:
    """The compression of a file that starts with `head`. Names can be wrong; content is not."""
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    return None


def _decompressed(file: IO[bytes], kind: str | None) -> tuple[_Reader, str]:
    if kind == "gzip":
        return cast(_Reader, gzip.GzipFile(fileobj=file, mode="rb")), kind
    if kind == "bzip2":
        return _StreamsReader(file, bz2.BZ2Decompressor), kind
    if kind == "xz":
        return _StreamsReader(file, partial(lzma.LZMADecompressor, memlimit=_XZ_MEMORY)), kind
    if kind == "zstd":
        return _ZstdReader(file), kind
    return file, "text"


class _StreamsReader:
    """Reads the streams of a bzip2 or xz file, one after the other.

    The standard library's files take whatever follows the first stream and is none for padding, so
    that all rows after a damaged place would be lost in silence. Padding is zeros, here.
    """

    def __init__(
        self, file: IO[bytes], make: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]
    ) -> None:
        self._file = file
        self._make = make
        self._decoder = make()
        self._between = True  # no byte of the current stream was seen

    def read(self, size: int) -> bytes:
        """`size` bytes, or what is left of the file."""
        parts: list[bytes] = []
        while size > 0 and (part := self._read_some(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _read_some(self, size: int) -> bytes:
        """At most `size` bytes; none only at the end."""
        while True:
            data = b""
            if self._decoder.eof:
                data = self._decoder.unused_data
                self._decoder, self._between = self._make(), True
            if not data and self._decoder.needs_input:
                data = self._file.read(_READ_BYTES)
                if not data and self._between:
                    return b""
                if not data:
                    raise EOFError("the file ends within a stream")
            if self._between:
                data = data.lstrip(b"\0")
                if not data:
                    continue
                self._between = False
            out = self._decoder.decompress(data, size)
            if out:
                return out


def _read(path: str, reader: _Reader, kind: str, size: int, done: int) -> bytes:
    """Read up to `size` bytes; `done` were read before, says the message about damage."""
    if kind == "text":
        return reader.read(size)
    import zstandard

    try:
        return reader.read(size)
    except (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        raise InputError(
            f"{path}: the {kind} data are damaged or cut short after {done} decompressed bytes "
            f"or a little later ({error}); get a whole copy of the file"
        ) from error


def _first_line(file: IO[bytes], at: int) -> int:
    """Where the first line starts that starts at byte `at` or later."""
    if at == 0:
        return 0
    at -= 1  # a newline just before byte `at` starts a line there
    file.seek(at)
    while data := file.read(_READ_BYTES):
        found = data.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(data)
    return at


def _whole_lines(
    path: str, reader: _Reader, kind: str, offset: int, stop: int | None, chunk_bytes: int
) -> Iterator[tuple[bytes, int]]:
    """Read from `offset` to `stop`, and yield pieces cut after their last newline."""
    at = offset
    rest: list[bytes] = []  # the line so far that the next piece goes on with
    rest_bytes = 0
    while True:
        size = max(chunk_bytes - rest_bytes, rest_bytes, 1)  # doubles for a long line
        size = min(size, max(MAX_LINE_BYTES, chunk_bytes) + 1 - rest_bytes)
        if stop is not None:
            size = min(size, stop - at)
        data = _read(path, reader, kind, size, at) if size > 0 else b""
        if not data:
            break
        at += len(data)
        end = data.rfind(b"\n") + 1
        if end:
            chunk = b"".join([*rest, data[:end]]) if rest else data[:end]
            rest = [data[end:]] if end < len(data) else []
            rest_bytes = len(data) - end
            yield chunk, offset
            offset += len(chunk)
        else:
            rest.append(data)
            rest_bytes += len(data)
            if rest_bytes > MAX_LINE_BYTES:
                raise InputError(
                    f"{place(path, b'', offset, 0)} is longer than {MAX_LINE_BYTES} bytes; this "
                    "does not look like text with one example a line"
                )
    if rest:
        yield b"".join(rest), offset
