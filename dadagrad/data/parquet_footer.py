"""What the footer of a Parquet file says of its row groups, read and checked here.

pyarrow reads the data, and it ends the process where some numbers of a footer contradict each
other. So these are read by the few lines below, in bounds, and nothing that they declare is
believed if the file is too small for it. The format is Thrift's compact protocol.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from dadagrad.errors import InputError

_MAX_FOOTER = 1 << 28
_MAX_COUNT = 2**31 - 1
_ALWAYS, _MAX_RATIO = 1 << 24, 1000
"""Values that a file may declare whatever its size, and for each of its bytes."""
_DEEPEST = 24

# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_NUMBERS = (_BYTE, _I16, _I32, _I64)


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """One column of a row group. `largest` is as the file has it: little-endian bytes."""

    n_values: int
    n_nulls: int | None
    largest: bytes | None


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group; `columns` by the first part of their paths, `digest` of what is said of it."""

    n_rows: int
    columns: dict[str, ColumnChunk]
    digest: str


def read_row_groups(file: BinaryIO, where: str) -> list[RowGroup]:
    """The row groups of an open Parquet file.

    Raises `InputError` for a footer that is damaged, or that declares more than the file can hold.
    """
    size = file.seek(0, 2)
    file.seek(max(size - 8, 0))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or size < 12:
        raise InputError(f"{where} is not a whole Parquet file; write it again")
    if length > min(size - 12, _MAX_FOOTER):
        raise InputError(
            f"{where} is not a whole Parquet file: its footer would have {length} bytes of {size}; "
            "write it again"
        )
    file.seek(size - 8 - length)
    footer = _Reader(file.read(length))
    try:
        groups: list[RowGroup] = []
        for field, kind in footer.fields():
            if field == 4 and kind == _LIST:
                groups = [_row_group(footer, size) for _ in footer.items(_STRUCT)]
            else:
                footer.skip(kind)
        return groups
    except (_DamagedError, IndexError, UnicodeDecodeError) as error:
        reason = str(error) if isinstance(error, _DamagedError) else "it ends too early"
        raise InputError(
            f"{where} has a footer that cannot be read: {reason}; write or copy the file again"
        ) from None


class _DamagedError(Exception):
    """What is wrong with a footer."""


def _row_group(footer: _Reader, size: int) -> RowGroup:
    start = footer.at
    columns: dict[str, ColumnChunk] = {}
    n_rows = -1
    for field, kind in footer.fields():
        if field == 1 and kind == _LIST:
            for _ in footer.items(_STRUCT):
                name, chunk = _column_chunk(footer, size)
                columns.setdefault(name, chunk)
        elif field == 3 and kind in _NUMBERS:
            n_rows = footer.count("rows of a row group", size)
        else:
            footer.skip(kind)
    if n_rows < 0:
        raise _DamagedError("a row group has no number of rows")
    digest = hashlib.sha256(footer.data[start : footer.at]).hexdigest()
    return RowGroup(n_rows, columns, digest)


def _column_chunk(footer: _Reader, size: int) -> tuple[str, ColumnChunk]:
    found = None
    for field, kind in footer.fields():
        if field == 1 and kind == _BINARY:
            if footer.binary():
                raise _DamagedError("it says that data lies in another file")
        elif field == 3 and kind == _STRUCT:
            found = _column_metadata(footer, size)
        else:
            footer.skip(kind)
    if found is None:
        raise _DamagedError("nothing is said of a column")
    return found


def _column_metadata(footer: _Reader, size: int) -> tuple[str, ColumnChunk]:
    name, n_values = "", -1
    n_nulls = largest = None
    for field, kind in footer.fields():
        if field == 3 and kind == _LIST:
            parts = [footer.binary() for _ in footer.items(_BINARY)]
            name = parts[0].decode() if parts else ""
        elif field == 5 and kind in _NUMBERS:
            n_values = footer.count("values of a column", size)
        elif field == 6 and kind in _NUMBERS:
            footer.count("bytes of a column", size, 8)
        elif field == 12 and kind == _STRUCT:
            n_nulls, largest = _statistics(footer, size)
        else:
            footer.skip(kind)
    if n_values < 0 or (n_nulls or 0) > n_values:
        raise _DamagedError(f"column {name[:40]!r} has {n_values} values, {n_nulls} of them null")
    return name, ColumnChunk(n_values, n_nulls, largest)


def _statistics(footer: _Reader, size: int) -> tuple[int | None, bytes | None]:
    n_nulls = largest = None
    for field, kind in footer.fields():
        if field == 3 and kind in _NUMBERS:
            n_nulls = footer.count("nulls of a column", size)
        elif field == 5 and kind == _BINARY:
            largest = footer.binary()
        else:
            footer.skip(kind)
    return n_nulls, largest


class _Reader:
    """Reads the compact protocol; raises `_DamagedError` or `IndexError` for what is none."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        number = shift = 0
        while shift < 70:
            byte = self.byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
        raise _DamagedError("a number has too many bytes")

    def count(self, what: str, size: int, most_each: int = 1) -> int:
        """A number of things that a file of `size` bytes can have."""
        number = self.varint()
        number = (number >> 1) ^ -(number & 1)
        if not 0 <= number <= min(_ALWAYS + _MAX_RATIO * size, _MAX_COUNT) * most_each:
            raise _DamagedError(f"{number} {what} cannot be in a file of {size} bytes")
        return number

    def binary(self) -> bytes:
        length = self.varint()
        if length > len(self.data) - self.at:
            raise IndexError
        self.at += length
        return self.data[self.at - length : self.at]

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field of a struct; whoever iterates reads or skips its value."""
        field = 0
        while head := self.byte():
            kind, step = head & 15, head >> 4
            if step:
                field += step
            else:
                number = self.varint()
                field = (number >> 1) ^ -(number & 1)
            yield field, kind

    def items(self, wanted: int | None = None) -> Iterator[int]:
        """The type of each item of a list; whoever iterates reads or skips the item."""
        head = self.byte()
        kind, length = head & 15, head >> 4
        if length == 15:
            length = self.varint()
        if length and wanted not in (None, kind):
            raise _DamagedError("a list holds something else than it should")
        if length > len(self.data) - self.at:
            raise IndexError
        for _ in range(length):
            yield kind

    def skip(self, kind: int, depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise _DamagedError("it is nested too deep")
        if kind in (_TRUE, _FALSE):
            return
        steps: dict[int, Callable[[], object]] = {
            _BYTE: self.byte, _I16: self.varint, _I32: self.varint, _I64: self.varint,
            _BINARY: self.binary,
        }  # fmt: skip
        if kind in steps:
            steps[kind]()
        elif kind == _DOUBLE:
            self.at += 8
        elif kind in (_LIST, _SET):
            for item in self.items():
                # In lists a boolean has a byte of its own.
                self.skip(_BYTE if item in (_TRUE, _FALSE) else item, depth + 1)
        elif kind == _STRUCT:
            for _, item in self.fields():
                self.skip(item, depth + 1)
        else:
            raise _DamagedError(f"it holds something of type {kind}, which no footer has")
