"""JSON lines: the rows of files with one object a line, read by Arrow."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json
from pyarrow import types

from dadagrad.data.blocks import MAX_NOTES
from dadagrad.data.reading.files import Place
from dadagrad.data.tables.cells import Batch, columns_of_rows, flatten
from dadagrad.data.tables.delimited import NOT_UTF8, check_distinct_columns
from dadagrad.errors import InputError, OnError

_MAX_DEPTH = 100
"""Most lists and objects of a line of JSON in each other; of 20,000 Arrow's reader crashes."""

_BAD_JSON_ROW = re.compile(r" in row (\d+)")
_MAX_EXACT = 2.0**53
"""Whole numbers below are exact as floating point numbers."""
_JSON_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"')


def read_json(
    chunk: bytes, *, path: str, offset: int, on_error: OnError, required: Sequence[str] = ()
) -> Batch:
    """Read whole lines of JSON objects; keys of nested objects are joined by points.

    Columns of `required` that are in no line of the chunk are null.
    """
    lines = chunk.split(b"\n")
    rows = [number for number, line in enumerate(lines) if line.strip()]
    n_rows = len(rows)

    def place_of(line: int) -> Place:
        return Place(path, offset, sum(len(each) + 1 for each in lines[:line]), line)

    problems = {n: reason for n, line in enumerate(lines) if (reason := _json_problem(line))}
    if problems and on_error == "raise":
        line, reason = next(iter(problems.items()))
        raise InputError(f"{place_of(line)}: {reason}")
    while True:
        rows = [number for number in rows if number not in problems]
        try:
            table = _table_of_lines([lines[number] for number in rows], path)
            break
        except pa.ArrowInvalid as error:
            row = _BAD_JSON_ROW.search(str(error))
            wrong = int(row[1]) if row and int(row[1]) < len(rows) else None
            reason = _BAD_JSON_ROW.sub("", " ".join(str(error).split()))
            reason += "; every line must be one JSON object, and a key must have values of one kind"
            line = rows[wrong or 0]
            if on_error == "raise" or wrong is None:
                raise InputError(f"{place_of(line)}: {reason}") from None
            problems[line] = reason
            if not is_object(lines[line]):  # Arrow names the first of maybe many
                later = [number for number in rows[wrong:] if not is_object(lines[number])]
                problems |= dict.fromkeys(later, reason)
    for name in set(required).difference(table.schema.names):
        table = table.append_column(name, pa.nulls(table.num_rows))
    batches = table.combine_chunks().to_batches()
    notes = [(place_of(line), reason) for line, reason in islice(problems.items(), MAX_NOTES)]
    return Batch(
        batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema),
        lambda row: place_of(rows[row]),
        n_rows - len(rows),
        lambda: np.array(rows, np.int64),
        tuple(notes),
    )


def _table_of_lines(lines: list[bytes], path: str) -> pa.Table:
    """A table of JSON objects, whose nested ones become columns."""
    if not lines:
        return pa.table({})
    table = flatten(_parse(b"\n".join(lines)))
    check_distinct_columns(table.schema.names, path)
    if table.num_columns and table.num_rows != len(lines):
        raise InputError(
            f"{path}: {table.num_rows} JSON objects in {len(lines)} lines; every line must be one"
        )
    return table


def _parse(lines: bytes) -> pa.Table:
    """A table of JSON objects, one a line, whose texts stay texts.

    Arrow alone reads texts as times if all of them look like times.
    """
    reading = pa_json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    table = pa_json.read_json(pa.BufferReader(lines), reading)
    try:
        table.validate()
    except pa.ArrowInvalid:  # it counts nulls wrongly if the first list begins with several
        return _parse_slowly(lines)
    if any(map(_may_be_rounded, flatten(table).columns)):
        with suppress(pa.ArrowInvalid):  # no type has all of the numbers
            return _parse_slowly(lines)
    schema = pa.schema([field.with_type(_without_times(field.type)) for field in table.schema])
    if schema == table.schema:
        return table
    parsing = pa_json.ParseOptions(explicit_schema=schema)
    return pa_json.read_json(pa.BufferReader(lines), reading, parsing)


def _parse_slowly(lines: bytes) -> pa.Table:
    """A table of JSON objects, one a line, parsed without Arrow's reader."""
    try:
        rows = list(map(json.loads, lines.split(b"\n")))
        return pa.Table.from_batches([columns_of_rows(rows)])
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise pa.ArrowInvalid(str(error)) from None


def _may_be_rounded(column: pa.ChunkedArray) -> bool:
    """True for floating point numbers that stand for whole ones, of which some are not exact."""
    if not types.is_floating(column.type):
        return False
    numbers = pc.drop_null(column).to_numpy()
    is_long = bool((np.abs(numbers) >= _MAX_EXACT).any())
    return is_long and bool((numbers == np.floor(numbers)).all())


def _without_times(kind: pa.DataType) -> pa.DataType:
    """The type with texts in place of times."""
    if types.is_timestamp(kind):
        return pa.string()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_without_times(field.type)) for field in kind])
    return pa.list_(_without_times(kind.value_type)) if types.is_list(kind) else kind


def _json_problem(line: bytes) -> str | None:
    """A reason why Arrow must not read a line."""
    if line.count(b"[") + line.count(b"{") > _MAX_DEPTH:
        marks = np.frombuffer(_JSON_TEXT.sub(b"", line), np.uint8)
        opened = np.isin(marks, list(b"[{")).astype(int) - np.isin(marks, list(b"]}"))
        if opened.cumsum().max(initial=0) > _MAX_DEPTH:
            return f"lists and objects are in each other more than {_MAX_DEPTH} deep; write columns"
    try:
        line.decode()
    except UnicodeDecodeError:
        return NOT_UTF8
    return None


def is_object(line: bytes) -> bool:
    """True if a line is a JSON object."""
    try:
        return line.lstrip().startswith(b"{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
