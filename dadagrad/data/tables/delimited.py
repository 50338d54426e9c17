"""Delimited text: the rows of CSV and tab-separated files, and of ARFF.

Tab-separated text has no quoting: a newline ends a row and a tab ends a field, so a file can be cut
into byte ranges. CSV, with commas, semicolons or bars, may hold newlines inside quotes, so a CSV
file is read as one stream and cut at the ends of rows. Arrow reads the rows of both.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from dadagrad.data.blocks import MAX_NOTES, Note
from dadagrad.data.reading.files import COMPRESSED_NAME, Place, count_lines, place
from dadagrad.data.reading.options import Delimiter
from dadagrad.data.tables.cells import MISSING, Batch, as_number, to_matrix
from dadagrad.data.tables.row_columns import shown
from dadagrad.errors import InputError

MAX_ROW_BYTES = 64 << 20
"""Longest row of a CSV file; a longer one means that a quote was never closed."""

# A field in quotes, one that does not begin with a quote, or an empty one.
_FIELD = rb'(?:"(?:[^"]++|"")*+"[^,\n]*+|[^",\n][^,\n]*+|)'
_CSV_ROW = rb"(?:" + _FIELD + rb",)*+" + _FIELD + rb"\n"
_ROW = {mark: _CSV_ROW.replace(b",", re.escape(mark).encode()) for mark in (",", ";", "|")}
_ROW["\t"] = rb"[^\n]*+\n"
_SEPARATED = {",": "comma", ";": "semicolon", "|": "bar", "\t": "tab"}
NOT_UTF8 = "the row is not UTF-8 text; convert the file, for example with iconv -f latin1 -t utf-8"
_WIDE = {
    "utf-32": rb"\xff\xfe\0\0|\0\0\xfe\xff",
    "utf-32le": rb".\0\0\0",
    "utf-32be": rb"\0\0\0",
    "utf-16": rb"\xff\xfe|\xfe\xff",
    "utf-16be": rb"\0",
    "utf-16le": rb".{1,3}\0",
}
"""Start of text of two or four bytes a letter, by its encoding, as iconv names it."""
_WRONG_BYTE, _MARK = re.compile(r"[\udc80-\udcff]"), "\ufdd0"  # which is no character
_SEP = re.compile(rb'\A"?sep=([,;|\t])"?\r?\n', re.IGNORECASE)
"""First line by which a file tells Excel its delimiter."""
_QUOTED = re.compile(rb'"[^"]*"')
_LONE_RETURN = re.compile(rb"\r(?!\n)")
_ARFF = re.compile(rb"\s*(%[^\n]*\n\s*)*@relation\b.*?^@data\b[^\n]*\n", re.I | re.S | re.M)
_ATTRIBUTE = re.compile(rb"""^\s*@attribute\s+('[^'\n]*'|"[^"\n]*"|\S+)""", re.I | re.M)


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of a file: their names, whether its first row has them, and how they are read.

    Read are those `included`, or all if that is None: as texts but for the `numbers`.
    """

    delimiter: Delimiter
    names: tuple[str, ...] = ()
    header: bool = False
    numbers: frozenset[str] = frozenset()
    included: frozenset[str] | None = None

    def fields(self, number: int) -> str:
        """Format a number of fields of a row for a message."""
        return f"{number} {_SEPARATED[self.delimiter]}-separated field{'s' * (number != 1)}"


def guess_delimiter(path: str, head: bytes) -> Delimiter:
    """Tab for .tsv and .tab, and for others than .csv if the first line has one; else a comma.

    A semicolon, bar or tab separates the columns of a first line without a comma outside quotes. A
    first line ``sep=;`` names the delimiter.
    """
    if named := _SEP.match(head.removeprefix(codecs.BOM_UTF8)):
        return named[1].decode()  # type: ignore[return-value]
    name = COMPRESSED_NAME.sub("", path.lower())
    if name.endswith((".tsv", ".tab")):
        return "\t"
    first = _plain(head, 0).lstrip(b"\n").partition(b"\n")[0]
    if b"\t" in first and not name.endswith(".csv"):
        return "\t"
    candidates: tuple[Delimiter, ...] = (",", ";", "|", "\t")
    texts = _QUOTED.sub(b"", first), first
    return next((mark for text in texts for mark in candidates if mark.encode() in text), ",")


def read_layout(path: str, head: bytes, delimiter: Delimiter, header: bool | None) -> Layout:
    """Layout that the first rows, `head`, of a file show; `header` None detects a header."""
    refuse_wide_text(path, head)
    first = next(_rows(_plain(head, 0), delimiter), None)
    if first is None:
        raise InputError(f"{path} has no rows; give a file with one row of data a line")
    columns, _ = _arrow_columns(first[0], Layout(delimiter))
    fields = [column.cast(pa.binary())[0].as_py().decode("utf-8", "replace") for column in columns]
    numbers = tuple(map(str, range(len(fields))))
    if header is None:
        body = read_batch(_plain(head, 0), Layout(delimiter, numbers), path=path, offset=0)
        header = _looks_like_header(fields, body.table)
    if not header:
        return Layout(delimiter, numbers)
    names = [name.strip() or number for name, number in zip(fields, numbers, strict=True)]
    check_distinct_columns(names, f"{path}: the first row")
    return Layout(delimiter, tuple(names), header=True)


def refuse_wide_text(path: str, head: bytes) -> None:
    """Raise `InputError` if a file whose first bytes are `head` is UTF-16 or UTF-32."""
    for kind, start in _WIDE.items():
        if re.match(start, head, re.DOTALL):
            raise InputError(
                f"{path} is {kind[:6].upper()}; convert the file, for example with "
                f"iconv -f {kind} -t utf-8"
            )


def check_distinct_columns(names: Sequence[str], place: str) -> None:
    """Raise `InputError` about a name that two columns have."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"{place} names the column {shown(twice[0])} twice; rename one")


def _looks_like_header(fields: list[str], head: pa.RecordBatch) -> bool:
    """True if the first row has distinct short words that do not come again, or above numbers.

    So it is where a column is called "label" and no word comes again, even if the names of others
    are numbers or alike.
    """
    named = [field.strip() for field in fields if field.strip()]
    words = all(np.isnan(as_number(name)) for name in named)
    below = [[cell.strip() for cell in column.slice(1).to_pylist()] for column in head.columns]
    has_spaces = any(" " in name for name in named)
    if "label" in named and head.num_rows > 1 and not has_spaces:
        pairs = zip(map(str.strip, fields), below, strict=True)
        if not any(name and np.isnan(as_number(name)) and name in cells for name, cells in pairs):
            return True
    if not words or len(set(named)) < len(named) or 2 * len(named) < len(fields):
        return False
    if head.num_rows < 2:
        return not has_spaces
    repeat = [2 * len(set(cells)) <= len(cells) for cells in below]
    for name, cells, repeated in zip(fields, below, repeat, strict=True):
        if all(cell in MISSING or not np.isnan(as_number(cell)) for cell in cells):
            return True
        if repeated and name.strip() in cells:
            return False
    return any(repeat)


def cut_at_rows(
    path: str, chunks: Iterable[tuple[bytes, int]], delimiter: Delimiter
) -> Iterator[tuple[bytes, int]]:
    """Cut `chunks` of whole lines, and their offsets in the file, into whole CSV rows."""
    data, start, searched = bytearray(), 0, 0
    for chunk, offset in itertools.chain(chunks, [(b"", 0)]):
        start = start if data else offset
        data += chunk
        # A row without an end is searched again when it has doubled, not with each chunk.
        if chunk and len(data) < min(2 * searched, MAX_ROW_BYTES):
            continue
        end = end_of_rows(data, delimiter)
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


def end_of_rows(data: bytes | bytearray, delimiter: Delimiter) -> int:
    """Position after the last complete row of whole lines."""
    text = data if data.endswith(b"\n") else data + b"\n"
    rows = re.match(rb"(?:" + _ROW[delimiter] + rb")*+", text) if b'"' in data else None
    return min(rows.end(), len(data)) if rows else len(data)


def read_batch(chunk: bytes, layout: Layout, *, path: str, offset: int) -> Batch:
    """Read whole rows; the header of a file is left out.

    Columns of numbers become texts if a cell is something else. Rows with another number of fields,
    or that are not UTF-8, are left out.
    """
    chunk = _plain(chunk, offset)
    text = _marked(chunk)
    body, n_header = text, 0
    if offset == 0 and layout.header:
        header, start = next(_rows(text, layout.delimiter), (b"", 0))
        body, n_header = text[start + len(header) :], 1
    columns, wrong = _arrow_columns(body, layout)
    included = frozenset(layout.names) if layout.included is None else layout.included
    names = [name for name in layout.names if name in included]
    table = pa.RecordBatch.from_arrays(columns, names=names)
    n_rows = n_header + table.num_rows + len(wrong)
    positions = np.delete(np.arange(n_header, n_rows), [row.number - 1 for row in wrong])

    def place_of(position: int) -> Place:
        rows = _rows(chunk, layout.delimiter)
        _, start = next(itertools.islice(rows, position, None), (b"", 0))
        return place(path, chunk, offset, start)

    notes: list[Note] = [
        (
            place_of(n_header + row.number - 1),
            f"{layout.fields(row.actual_columns)}, but the first row of the file has "
            f"{len(layout.names)}; every row must have the same columns",
        )
        for row in wrong[:MAX_NOTES]
    ]
    if text is not chunk:
        right = _is_text(table)
        notes += [(place_of(at), NOT_UTF8) for at in positions[~right][:MAX_NOTES].tolist()]
        table, positions = table.filter(pa.array(right)), positions[right]
    return Batch(
        table,
        lambda row: place_of(int(positions[row])),
        n_rows - n_header - table.num_rows,
        lambda: _line_numbers(chunk, layout.delimiter, positions, n_rows),
        tuple(notes[:MAX_NOTES]),
    )


def _line_numbers(
    chunk: bytes, delimiter: Delimiter, positions: NDArray[np.int64], n_rows: int
) -> NDArray[np.int64]:
    """Lines of rows that are given by their positions among the `n_rows` that are not blank."""
    if count_lines(chunk) == n_rows:
        return positions
    text = np.frombuffer(chunk, np.uint8)
    starts = np.array([start for _, start in _rows(chunk, delimiter)], np.int64)
    return np.searchsorted(np.flatnonzero(text == ord("\n")), starts)[positions]


def _marked(chunk: bytes) -> bytes:
    """`chunk` itself if it is UTF-8; else UTF-8 with a mark in the place of each wrong byte."""
    try:
        chunk.decode()
    except UnicodeDecodeError:
        return _WRONG_BYTE.sub(_MARK, chunk.decode("utf-8", "surrogateescape")).encode()
    return chunk


def _is_text(table: pa.RecordBatch) -> NDArray[np.bool_]:
    """True for each row of a marked text without a mark."""
    is_text = np.ones(table.num_rows, bool)
    for column in table.columns:
        if pa.types.is_string(column.type):
            is_marked = pc.match_substring(column, _MARK)
            is_text &= ~is_marked.to_numpy(zero_copy_only=False)
    return is_text


def _plain(chunk: bytes, offset: int) -> bytes:
    """`chunk` without a byte order mark, with newlines as the only ends of lines.

    Arrow ends a line at a carriage return, too. The header of an ARFF file becomes a row of names,
    and a line ``sep=;`` a blank one. Rows stay in their lines.
    """
    if offset == 0:
        chunk = _SEP.sub(b"\n", chunk.removeprefix(codecs.BOM_UTF8), count=1)
    if offset == 0 and (arff := _ARFF.match(chunk)):
        names = [name.strip(b"'\"").replace(b'"', b'""') for name in _ATTRIBUTE.findall(arff[0])]
        header = b",".join(b'"%b"' % name for name in names)
        chunk = b"\n" * (arff[0].count(b"\n") - 1) + header + b"\n" + chunk[arff.end() :]
    return _LONE_RETURN.sub(b" ", chunk) if b"\r" in chunk else chunk


def _rows(chunk: bytes, delimiter: Delimiter) -> Iterator[tuple[bytes, int]]:
    """Rows that are not blank, and their positions."""
    for row in re.finditer(_ROW[delimiter], chunk if chunk.endswith(b"\n") else chunk + b"\n"):
        if row[0].strip(b"\r\n"):
            yield row[0], row.start()


def _arrow_columns(chunk: bytes, layout: Layout) -> tuple[list[Any], list[Any]]:
    """Columns that are read, and the rows of another width, which are left out.

    The first row decides the width if the names are not known.
    """
    delimiter, names = layout.delimiter, layout.names
    wrong: list[Any] = []

    def skip(row: Any) -> str:
        wrong.append(row)
        return "skip"

    width = len(names) or chunk.count(delimiter.encode()) + 1
    # Names of one's own: those of a file can be any texts.
    fields = [f"f{number}" for number in range(width)]
    named = list(zip(fields, names or fields, strict=True))
    quoted = delimiter != "\t"
    options = pa_csv.ConvertOptions(
        check_utf8=False,
        column_types={
            f: pa.float64() if name in layout.numbers else pa.string() for f, name in named
        },
        include_columns=layout.included and [f for f, name in named if name in layout.included],
        null_values=list(MISSING),
        strings_can_be_null=False,
    )
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(chunk or b"\n"),
            pa_csv.ReadOptions(
                use_threads=False,
                block_size=len(chunk) + 1,
                column_names=fields if names else None,
                autogenerate_column_names=not names,
            ),
            pa_csv.ParseOptions(
                delimiter=delimiter,
                quote_char='"' if quoted else False,
                double_quote=quoted,
                newlines_in_values=quoted,
                invalid_row_handler=skip,
            ),
            options,
        )
        batches = table.combine_chunks().to_batches()
        columns = batches[0].columns if batches else [pa.array([], f.type) for f in table.schema]
        floats = [column for column in columns if pa.types.is_floating(column.type)]
        doubtful = bool(floats) and bool(to_matrix(floats)[1].any())
    except pa.ArrowInvalid:
        doubtful = True
        if not layout.numbers:
            raise
    if doubtful:  # messages need the texts
        return _arrow_columns(chunk, replace(layout, numbers=frozenset()))
    return columns, wrong
