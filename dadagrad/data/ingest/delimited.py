"""Delimited text: the rows of CSV and tab-separated files.

Tab-separated text has no quoting: a newline ends a row and a tab ends a field, so a file can be cut
into byte ranges. CSV may hold newlines inside quotes, so a CSV file is read as one stream and cut
at the ends of rows. Arrow reads the rows of both.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from dadagrad.data.ingest.files import COMPRESSED_NAME, place
from dadagrad.data.ingest.options import Delimiter, OnError
from dadagrad.errors import InputError

MAX_ROW_BYTES = 64 << 20
"""Longest row of a CSV file; a longer one means that a quote was never closed."""

_MAX_SHOWN = 60  # letters of a cell in a message
_MAX_NAMES = 30
# A field in quotes, one that does not begin with a quote, or an empty one.
_FIELD = rb'(?:"(?:[^"]++|"")*+"[^,\n]*+|[^",\n][^,\n]*+|)'
_ROW = {",": rb"(?:" + _FIELD + rb",)*+" + _FIELD + rb"\n", "\t": rb"[^\n]*+\n"}
_CSV_ROWS = re.compile(rb"(?:" + _ROW[","] + rb")*+")
_NOT_UTF8 = "the row is not UTF-8 text; convert the file, for example with iconv -t utf-8"
_LONE_RETURN = re.compile(rb"\r(?!\n)")


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of a file, and their names if its first row has them."""

    delimiter: Delimiter
    width: int
    header: tuple[str, ...] | None = None

    def fields(self, number: int) -> str:
        """Format a number of fields of a row for a message."""
        separated = "tab-separated" if self.delimiter == "\t" else "comma-separated"
        return f"{number} {separated} field{'s' * (number != 1)}"

    def column(self, name: int | str, option: str, path: str) -> int:
        """Position of the column that `option` gives by name or by number, counted from 0."""
        if isinstance(name, str) and self.header is not None and name in self.header:
            return self.header.index(name)
        if is_name(name):
            raise InputError(
                f"{path} has no column named {name!r}; its first row has "
                f"{', '.join(map(shown, (self.header or ())[:_MAX_NAMES]))}; give "
                f"{option} as one of these or as a number counted from 0"
            )
        if not 0 <= int(name) < self.width:
            raise InputError(
                f"{path}: {option} is {name}, counted from 0, but the first row has "
                f"{self.fields(self.width)}"
            )
        return int(name)

    def names(self) -> tuple[str, ...]:
        """Name of each column; its number if the file has no header."""
        return self.header or tuple(map(str, range(self.width)))


def shown(text: str) -> str:
    """Format `text` for a message: printable, on one line, not too long."""
    return repr(text[:_MAX_SHOWN]) + ("..." if len(text) > _MAX_SHOWN else "")


def is_name(column: int | str | None) -> bool:
    """True if a column is given by name, which makes the first row of a file a header."""
    return isinstance(column, str) and not column.isdecimal()


def guess_delimiter(path: str, head: bytes) -> Delimiter:
    """Tab for .tsv and .tab, comma for .csv, and otherwise a tab if the first line has one."""
    name = COMPRESSED_NAME.sub("", path.lower())
    if name.endswith((".tsv", ".tab")):
        return "\t"
    if name.endswith(".csv"):
        return ","
    return "\t" if b"\t" in head.partition(b"\n")[0] else ","


def read_layout(path: str, head: bytes, delimiter: Delimiter, header: bool | None) -> Layout:
    """Layout that the first rows, `head`, of a file show.

    Without a `header`, the first row is one if none of its fields is a number.
    """
    first = next(_rows(_plain(head, 0), delimiter), None)
    if first is None:
        raise InputError(f"{path} has no rows; give a file with one row of data a line")
    columns = _arrow_table(first[0], delimiter, None, [])
    fields = [column.cast(pa.binary())[0].as_py().decode("utf-8", "replace") for column in columns]
    if header is None:
        header = not any(_as_number(field) is not None for field in fields)
    if header and len(set(fields)) < len(fields):
        twice = next(name for name in fields if fields.count(name) > 1)
        raise InputError(f"{path}: the first row names the column {shown(twice)} twice; rename one")
    return Layout(delimiter, len(fields), tuple(fields) if header else None)


def cut_at_rows(path: str, chunks: Iterable[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
    """Cut `chunks` of whole lines, and their offsets in the file, into whole CSV rows."""
    data, start, searched = bytearray(), 0, 0
    for chunk, offset in itertools.chain(chunks, [(b"", 0)]):
        start = start if data else offset
        data += chunk
        # A row without an end is searched again when it has doubled, not with each chunk.
        if chunk and len(data) < min(2 * searched, MAX_ROW_BYTES):
            continue
        end = end_of_rows(data)
        if end:
            yield bytes(data[:end]), start
            del data[:end]
        start, searched = start + end, 0 if end else len(data)
        if len(data) > MAX_ROW_BYTES:
            break
    if data:
        raise InputError(
            f"{place(path, b'', start, 0)}: a quote opens in this row and does not close "
            f'within {min(len(data), MAX_ROW_BYTES)} bytes; double the quotes (") that are '
            "part of a field, or save the file tab-separated (.tsv), where quotes mean nothing"
        )


def end_of_rows(data: bytes | bytearray) -> int:
    """Position after the last complete row of whole lines."""
    rows = _CSV_ROWS.match(data if data.endswith(b"\n") else data + b"\n") if b'"' in data else None
    return min(rows.end(), len(data)) if rows else len(data)


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of the rows of a chunk, all as wide as the layout says.

    `columns` are Arrow arrays of text, `positions` the numbers of the rows in the chunk, from 0;
    `skipped` rows were left out because they were wrong.
    """

    columns: list[Any]
    positions: NDArray[np.int64]
    skipped: int
    chunk: bytes
    path: str
    offset: int
    layout: Layout
    on_error: OnError

    def keep(self, rows: NDArray[np.bool_]) -> Cells:
        """Rows where `rows` is true; the others count as skipped."""
        if rows.all():
            return self
        return replace(
            self,
            columns=[column.filter(pa.array(rows)) for column in self.columns],
            positions=self.positions[rows],
            skipped=self.skipped + int((~rows).sum()),
        )

    def error(self, position: int, message: str) -> InputError:
        """An error about row number `position` of the chunk."""
        rows = _rows(self.chunk, self.layout.delimiter)
        _, start = next(itertools.islice(rows, position, None), (b"", 0))
        return InputError(f"{place(self.path, self.chunk, self.offset, start)}: {message}")

    def refuse(self, wrong: NDArray[np.bool_], describe: Callable[[int], str]) -> None:
        """Raise `InputError` about the first `wrong` row, unless such rows are to be skipped."""
        if self.on_error == "raise" and wrong.any():
            row = int(wrong.argmax())
            raise self.error(int(self.positions[row]), describe(row))


def read_cells(chunk: bytes, layout: Layout, *, path: str, offset: int, on_error: OnError) -> Cells:
    """Read whole rows; the header of a file is left out.

    Rows with another number of fields, or that are not UTF-8, raise `InputError` or are skipped.
    """
    chunk = _plain(chunk, offset)
    wrong: list[Any] = []
    is_utf8 = _is_utf8(chunk)
    text = chunk if is_utf8 else chunk.decode("latin-1").encode()
    columns = _arrow_table(text, layout.delimiter, layout.width, wrong)
    n_rows = len(columns[0]) + len(wrong)
    positions = np.delete(np.arange(n_rows), np.array([row.number - 1 for row in wrong], int))
    if offset == 0 and layout.header is not None and n_rows:
        columns, positions = [column.slice(1) for column in columns], positions[1:]
    cells = Cells(columns, positions, len(wrong), chunk, path, offset, layout, on_error)
    if wrong and on_error == "raise":
        raise cells.error(
            wrong[0].number - 1,
            f"{layout.fields(wrong[0].actual_columns)}, but the first row of the file has "
            f"{layout.width}; every row must have the same columns",
        )
    return cells if is_utf8 else _only_utf8(cells)


def _only_utf8(cells: Cells) -> Cells:
    """Rows whose bytes, read as Latin-1, are UTF-8 as well."""
    columns = [[cell.encode("latin-1") for cell in c.to_pylist()] for c in cells.columns]
    right = np.array([all(map(_is_utf8, row)) for row in zip(*columns, strict=True)], bool)
    cells.refuse(~right, lambda row: _NOT_UTF8)
    texts = [[cell.decode("utf-8", "replace") for cell in column] for column in columns]
    return replace(cells, columns=[pa.array(column, pa.string()) for column in texts]).keep(right)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _plain(chunk: bytes, offset: int) -> bytes:
    """`chunk` without a byte order mark, with newlines as the only ends of lines.

    Arrow ends a line at a carriage return, too. Positions stay the same.
    """
    if offset == 0 and chunk.startswith(b"\xef\xbb\xbf"):
        chunk = chunk[3:]
    return _LONE_RETURN.sub(b" ", chunk) if b"\r" in chunk else chunk


def _rows(chunk: bytes, delimiter: Delimiter) -> Iterator[tuple[bytes, int]]:
    """Rows that are not blank, and their positions."""
    for row in re.finditer(_ROW[delimiter], chunk if chunk.endswith(b"\n") else chunk + b"\n"):
        if row[0].strip(b"\r\n"):
            yield row[0], row.start()


def _arrow_table(
    chunk: bytes, delimiter: Delimiter, width: int | None, wrong: list[Any]
) -> list[Any]:
    """Columns of text; rows of another width are appended to `wrong`."""

    def skip(row: Any) -> str:
        wrong.append(row)
        return "skip"

    n_columns = width or chunk.count(delimiter.encode()) + 1
    names = [f"f{column}" for column in range(n_columns)]
    quoted = delimiter == ","
    table = pa_csv.read_csv(
        pa.BufferReader(chunk or b"\n"),
        pa_csv.ReadOptions(
            use_threads=False,
            block_size=len(chunk) + 1,
            column_names=names if width else None,
            autogenerate_column_names=not width,
        ),
        pa_csv.ParseOptions(
            delimiter=delimiter,
            quote_char='"' if quoted else False,
            double_quote=quoted,
            newlines_in_values=quoted,
            invalid_row_handler=skip,
        ),
        pa_csv.ConvertOptions(check_utf8=False, column_types=dict.fromkeys(names, pa.string())),
    )
    return [column.combine_chunks() for column in table.columns]


def to_numbers(cells: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Numbers in cells, which have no white space around them, and which cells hold texts.

    The number is NaN for a cell that is empty or a text.
    """
    try:
        numbers = pc.cast(pc.if_else(pc.equal(cells, ""), "nan", cells), pa.float64())
    except pa.ArrowInvalid:  # some are texts, or numbers that only Python reads, such as "+1"
        coded = cells.dictionary_encode()
        parsed = [np.nan if v == "" else _as_number(v) for v in coded.dictionary.to_pylist()]
        codes = coded.indices.to_numpy()
        is_text = np.array([number is None for number in parsed], bool)
        return np.array(parsed, np.float64)[codes], is_text[codes]
    return numbers.to_numpy(zero_copy_only=False), np.zeros(len(cells), bool)


def _as_number(cell: str) -> float | None:
    try:
        # Python reads 1_000 as a number; other programs do not.
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def read_labels(cells: Cells, column: int | None) -> tuple[Cells, NDArray[Any]]:
    """Rows that have a label, and their labels; others raise `InputError` or are skipped.

    Labels are (n_rows, 1) float64 if all are numbers, else (n_rows,) objects of str; (n_rows, 0)
    if `column` is None.
    """
    if column is None:
        return cells, np.zeros((len(cells.positions), 0))
    texts = pc.utf8_trim_whitespace(cells.columns[column])
    numbers, is_text = to_numbers(texts)
    labelled = np.isfinite(numbers)
    if is_text.any():
        labelled = pc.not_equal(texts, "").to_numpy(zero_copy_only=False)

    def describe(row: int) -> str:
        label = texts[row].as_py()
        problem = f"is {label[:_MAX_SHOWN]}" if label else "is missing"
        return (
            f"the label, column {column} counted from 0, {problem}; every row needs a class or "
            "a finite number there (--on-error skip leaves out rows that have none, and "
            "--no-labels reads a file without labels, to be predicted)"
        )

    cells.refuse(~labelled, describe)
    if not is_text.any():
        return cells.keep(labelled), numbers[labelled, None]
    labels: NDArray[np.object_] = texts.filter(pa.array(labelled)).to_numpy(zero_copy_only=False)
    return cells.keep(labelled), labels
