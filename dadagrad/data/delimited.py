"""Text files with delimited fields: tab-separated ones, split plainly, and CSV with its quoting.

Tab-separated text has no quoting: a newline ends a row, a tab ends a field. So it can be cut into
byte ranges. CSV may hold newlines inside quotes, and where a quote opens depends on all that comes
before; a CSV file is therefore read as one stream and cut where Python's csv module ends a row.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from dadagrad.data.sources import place
from dadagrad.errors import InputError

Delimiter = Literal["\t", ","]
OnError = Literal["raise", "skip"]

MAX_ROW_BYTES = 64 << 20
"""A CSV row longer than this is taken for a quote that was never closed."""

LONGEST_SHOWN = 60
"""Letters of a cell that a message has."""

_MOST_SHOWN = 30
_COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")


@dataclass(frozen=True, slots=True)
class Layout:
    """How the rows of a file are laid out, as its first row shows.

    `header` holds the names of the columns where the first row of the file gives them.
    """

    delimiter: Delimiter
    width: int
    header: tuple[str, ...] | None = None

    def column(self, wanted: int | str, option: str, path: str) -> int:
        """The position of a column that is given by name or by number, counted from 0."""
        if isinstance(wanted, str) and self.header is not None and wanted in self.header:
            return self.header.index(wanted)
        if isinstance(wanted, str) and not wanted.isdecimal():
            raise InputError(
                f"{path} has no column named {wanted!r}; its first row has "
                f"{', '.join(map(shown, (self.header or ())[:_MOST_SHOWN]))}; give "
                f"{option} as one of these or as a number counted from 0"
            )
        if int(wanted) >= self.width or int(wanted) < 0:
            kind = "tab" if self.delimiter == "\t" else "comma"
            raise InputError(
                f"{path}: {option} is {wanted}, counted from 0, but the first row has "
                f"{self.width} {kind}-separated field{'s' * (self.width != 1)}"
            )
        return int(wanted)

    def names(self) -> tuple[str, ...]:
        """The name of each column: its number where there is no header."""
        return self.header or tuple(map(str, range(self.width)))


def shown(text: str) -> str:
    """`text` for a message: printable, on one line, not too long."""
    return repr(text[:LONGEST_SHOWN]) + ("..." if len(text) > LONGEST_SHOWN else "")


def is_name(column: int | str | None) -> bool:
    """Whether a column is given by name, which makes the first row of a file a header."""
    return isinstance(column, str) and not column.isdecimal()


def guess_delimiter(path: str, head: bytes) -> Delimiter:
    """Tab for .tsv and .tab, comma for .csv, and otherwise a tab if the first line has one."""
    name = path.lower()
    for compression in _COMPRESSIONS:
        name = name.removesuffix(compression)
    if name.endswith((".tsv", ".tab")):
        return "\t"
    if name.endswith(".csv"):
        return ","
    return "\t" if b"\t" in head.partition(b"\n")[0] else ","


def read_layout(path: str, head: bytes, delimiter: Delimiter | None, header: bool) -> Layout:
    """The layout that the first rows, `head`, of a file show."""
    delimiter = delimiter or guess_delimiter(path, head)
    rows = iter_rows(_without_mark(head.decode("utf-8", "replace")), delimiter)
    first = next((fields for _, fields in rows if fields), None)
    if first is None:
        raise InputError(f"{path} has no rows; give a file with one example a row")
    if header and len(set(first)) < len(first):
        twice = next(name for name in first if first.count(name) > 1)
        raise InputError(f"{path}: the first row names the column {shown(twice)} twice; rename one")
    return Layout(delimiter, len(first), tuple(first) if header else None)


def cut_at_rows(path: str, chunks: Iterable[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
    """Recut `chunks` of whole lines, and their offsets in the file, into whole CSV rows.

    Raises `InputError` naming the line at which a quote opens that is never closed.
    """
    open_row, start, looked_at = b"", 0, 0
    waiting: list[bytes] = []
    for chunk, offset in itertools.chain(chunks, [(b"", 0)]):
        if not open_row and not waiting:
            start = offset
        waiting.append(chunk)
        n_bytes = len(open_row) + sum(map(len, waiting))
        # A row without an end is looked at again when it has doubled, not with each chunk.
        if chunk and n_bytes < min(2 * looked_at, MAX_ROW_BYTES):
            continue
        data = b"".join([open_row, *waiting])
        waiting = []
        end = len(data) if b'"' not in data else _end_of_rows(path, data, start)
        if end:
            yield data[:end], start
        open_row, start = data[end:], start + end
        looked_at = 0 if end else len(data)
        if len(open_row) > MAX_ROW_BYTES:
            break
    if open_row:
        raise InputError(
            f"{place(path, b'', start, 0)}: a quote opens in this row and does not close "
            f'within {min(len(open_row), MAX_ROW_BYTES)} bytes; double the quotes (") that are '
            "part of a field, or save the file tab-separated (.tsv), where quotes mean nothing"
        )


def _end_of_rows(path: str, data: bytes, offset: int) -> int:
    """Where the last row of `data` ends that is complete, as the csv module sees rows."""
    asked = 0
    exhausted = False

    def lines() -> Iterator[str]:
        nonlocal asked, exhausted
        # Latin-1 keeps one character a byte; quotes and commas are the same in UTF-8.
        for line in io.BytesIO(data):
            asked += len(line)
            yield line.decode("latin-1")
        exhausted = True

    end = 0
    with _unlimited_fields():
        reader = csv.reader(lines())
        try:
            # The reader asks for another line in the midst of a row only inside quotes.
            for _ in reader:
                if exhausted:
                    break
                end = asked
        except csv.Error as error:
            raise InputError(f"{place(path, data, offset, end)}: {error}") from error
    return end


@contextmanager
def _unlimited_fields() -> Iterator[None]:
    """The csv module refuses fields of more than 131,072 characters unless told otherwise."""
    limit = csv.field_size_limit(2 * MAX_ROW_BYTES)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def iter_rows(text: str, delimiter: Delimiter) -> Iterator[tuple[int, list[str]]]:
    """The rows of `text` with the number, from 0, of the line in which each starts.

    Lines end in a newline, or a carriage return and a newline; nothing else ends one. A blank
    line gives no fields.
    """
    if delimiter == "\t":
        for number, line in enumerate(text.split("\n")):
            line = line.removesuffix("\r")
            yield number, line.split("\t") if line else []
        return
    reader = csv.reader(io.StringIO(text, newline="\n"))
    first = 0
    for fields in reader:
        yield first, fields
        first = reader.line_num


@dataclass(frozen=True, slots=True)
class Problems:
    """What to do about wrong rows of one chunk: raise, or count them."""

    chunk: bytes
    path: str
    offset: int
    on_error: OnError

    def at(self, line: int, message: str) -> InputError:
        """The error about line number `line`, from 0, of the chunk."""
        position = 0
        for _ in range(line):
            position = self.chunk.find(b"\n", position) + 1
        return InputError(f"{place(self.path, self.chunk, self.offset, position)}: {message}")


def parse_rows(problems: Problems, layout: Layout) -> tuple[list[list[str]], list[int], int]:
    """The rows of a chunk, all of the layout's width.

    Returns
    -------
    rows
        The fields of each row; the header of the file is not among them.
    lines
        The number, from 0, of the line of the chunk in which each row starts.
    skipped
        How many rows were left out because they were wrong.
    """
    chunk = problems.chunk
    try:
        text, damaged = chunk.decode("utf-8"), False
    except UnicodeDecodeError:
        text, damaged = chunk.decode("utf-8", "surrogateescape"), True
    first = problems.offset == 0
    if first:
        text = _without_mark(text)
    skip_header = first and layout.header is not None
    rows: list[list[str]] = []
    lines: list[int] = []
    skipped = 0
    with _unlimited_fields():
        try:
            for line, fields in iter_rows(text, layout.delimiter):
                if not fields:
                    continue
                if skip_header:
                    skip_header = False
                    continue
                wrong = _wrong(fields, layout, damaged)
                if not wrong:
                    rows.append(fields)
                    lines.append(line)
                elif problems.on_error == "skip":
                    skipped += 1
                else:
                    raise problems.at(line, wrong)
        except csv.Error as error:
            raise problems.at(lines[-1] + 1 if lines else 0, str(error)) from error
    return rows, lines, skipped


def _wrong(fields: Sequence[str], layout: Layout, damaged: bool) -> str:
    """What is wrong with a row; empty if nothing is."""
    if len(fields) != layout.width:
        kind = "tab" if layout.delimiter == "\t" else "comma"
        return (
            f"{len(fields)} {kind}-separated fields, but the first row of the file has "
            f"{layout.width}; every row must have the same columns"
        )
    if damaged and any("\udc80" <= char <= "\udcff" for field in fields for char in field):
        return "the row is not UTF-8 text; convert the file, for example with iconv -t utf-8"
    return ""


def _without_mark(text: str) -> str:
    """The text without the byte order mark that some programs begin files with."""
    return text.removeprefix("\ufeff")
