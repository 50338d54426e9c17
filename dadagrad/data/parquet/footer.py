"""Row groups of a Parquet file, read from its footer.

pyarrow decodes the data, but its functions for the metadata of columns end the whole process if
some numbers of a footer contradict each other (``tests/hostile/corpus/histogram.parquet``). This
file decodes the footer, which is a structure in Thrift's compact protocol, and refuses sizes that a
file of its length cannot have.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO

from dadagrad.errors import InputError
from dadagrad.storage.memory import check_free_memory

_MAX_FOOTER = 1 << 26
_MAX_COUNT = 2**31 - 1
_MIN_ALLOWED, _MAX_RATIO = 1 << 24, 1000
"""Values that a file of any size may declare, and values for each of its bytes."""
_MAX_DEPTH = 24
_WIDTHS = {1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 6: 4}
"""Bytes of a value of each physical type, at least."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The metadata of row group `number`, without that of columns other than ``indices``.

    `first` is the number of its first row, `maximum` the largest index if the footer has it, as an
    unsigned number, `digest` the SHA-256 of all metadata, and `sizes` the bytes of decoded columns.
    Texts that repeat may take more.
    """

    number: int
    first: int
    n_rows: int
    nnz: int
    maximum: int | None
    digest: str
    sizes: dict[str, int]

    def check_memory(self, place: str, columns: Iterable[str] | None = None) -> None:
        """Raise `OutOfMemory` if these columns, or all, take more memory than is free."""
        names = self.sizes if columns is None else {name.partition(".")[0] for name in columns}
        check_free_memory(sum(self.sizes.get(name, 0) for name in names), place)


def read_row_groups(file: BinaryIO, place: str) -> list[RowGroup]:
    """The row groups of an open Parquet file.

    Raises `InputError` for a footer that is damaged, or that declares more than the file can hold.
    """
    size = file.seek(0, 2)
    file.seek(max(size - 8, 0))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or length > min(size - 12, _MAX_FOOTER):
        raise InputError(f"{place} is not a whole Parquet file; write it again")
    file.seek(size - 8 - length)
    try:
        # The numbers of fields are those of parquet.thrift.
        groups = _Decoder(file.read(length)).struct().get(4, [])
        read: list[RowGroup] = []
        for number, group in enumerate(groups):
            first = read[-1].first + read[-1].n_rows if read else 0
            read.append(_row_group(group, size, number, first))
        return read
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = str(error) if isinstance(error, _DamagedError) else "it is malformed"
        raise InputError(
            f"{place} has a footer that cannot be read: {reason}; write or copy the file again"
        ) from None


class _DamagedError(ValueError):
    """The damage of a footer, in words."""


def _row_group(group: dict[int, Any], size: int, number: int, first: int) -> RowGroup:
    n_rows = _count(group[3], "rows of a row group", size)
    sizes: Counter[str] = Counter()
    total, largest = 0, None
    for column in group[1]:
        if column.get(1):
            raise _DamagedError("it says that data lies in another file")
        metadata, statistics = column[3], column[3].get(12, {})
        n_values = _count(metadata[5], "values of a column", size)
        n_bytes = _count(metadata[6], "bytes of a column", size, 8)
        width = _WIDTHS.get(metadata[1], 0)
        sizes[metadata[3][0].decode(errors="replace")] += max(n_bytes, n_values * width)
        # An empty list counts as a value of the column, and as a null.
        nnz = n_values - _count(statistics.get(3, 0), "nulls of a column", size)
        maximum = statistics.get(5)
        if nnz < 0 or not isinstance(maximum, bytes | None):
            raise _DamagedError("the statistics of a column contradict its size")
        if metadata[3][0] == b"indices":
            total = nnz
            if maximum is not None and len(maximum) in (4, 8):
                largest = int.from_bytes(maximum, "little")
    digest = hashlib.sha256(repr(group).encode()).hexdigest()
    return RowGroup(number, first, n_rows, total, largest, digest, sizes)


def _count(number: Any, kind: str, size: int, factor: int = 1) -> int:
    """Return a count; raise `_DamagedError` if a file of `size` bytes cannot have so many."""
    limit = min(_MIN_ALLOWED + _MAX_RATIO * size, _MAX_COUNT) * factor
    if type(number) is not int or not 0 <= number <= limit:
        raise _DamagedError(f"{number} {kind} cannot be in a file of {size} bytes")
    return number


class _Decoder:
    """Decoder of Thrift's compact protocol; raises `_DamagedError` or `IndexError`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """The fields of a structure by their numbers."""
        fields: dict[int, Any] = {}
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else self._integer()
            kind = header & 15
            fields[number] = kind == 1 if kind < 3 else self._value(kind, depth + 1)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise _DamagedError("it is nested too deep")
        if kind <= 3:  # a boolean of a list takes a byte
            return self._byte()
        if kind <= 6:
            return self._integer()
        if kind <= 8:
            return self._bytes(8 if kind == 7 else self._varint())
        if kind <= 10:
            header = self._byte()
            length = self._varint() if header >> 4 == 15 else header >> 4
            self._check_length(length)
            return [self._value(header & 15, depth + 1) for _ in range(length)]
        if kind == 12:
            return self.struct(depth)
        raise _DamagedError(f"it has a value of the unknown type {kind}")  # no map is defined

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise _DamagedError("a number has too many bytes")

    def _integer(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _bytes(self, length: int) -> bytes:
        self._check_length(length)
        self._at += length
        return self._data[self._at - length : self._at]

    def _check_length(self, length: int) -> None:
        if length > len(self._data) - self._at:
            raise _DamagedError("it ends too early")
