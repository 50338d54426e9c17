"""Delimited text: rows as the csv module reads them, and features as scikit-learn makes them."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.blocks import dense_block
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer

from dadagrad.data.blocks import Block, concatenate, transform_values
from dadagrad.data.ingest import columns
from dadagrad.data.ingest.delimited import (
    Layout,
    cut_at_rows,
    guess_delimiter,
    read_cells,
    read_layout,
)
from dadagrad.data.ingest.files import Range, read_chunks
from dadagrad.data.ingest.options import Options
from dadagrad.errors import InputError

TAB = Layout("\t", 2)
COMMA = Layout(",", 2)
WORDS = ["good", "bad", "film", "Plot", "x", "élan", "naïve", "ten"]
documents = st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), min_size=1)


def parse(chunk: str | bytes, layout: Layout = TAB, **options: Any) -> Block:
    data = chunk.encode() if isinstance(chunk, str) else chunk
    place = {"path": "f.tsv", "offset": options.pop("offset", 0)}
    return columns.parse_text(
        data, options=Options("text", **options), layout=layout, label=0, text=1, **place
    )


def cells(chunk: bytes, delimiter: Any, width: int, **options: Any) -> list[tuple[str, ...]]:
    options = {"path": "f.csv", "offset": 0, "on_error": "raise"} | options
    found = read_cells(chunk, Layout(delimiter, width), **options)
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


# --- rows


@given(
    st.lists(st.tuples(st.just("1"), st.text('ab",\n é\t+', max_size=8)), min_size=1, max_size=20),
    st.integers(1, 40),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.booleans(),
)
def test_csv_is_cut_at_rows_and_read_as_the_csv_module_does(
    rows: list[tuple[str, str]], n_lines: int, newline: str, quote_all: bool, ended: bool
) -> None:
    out = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL
    csv.writer(out, quoting=quoting, lineterminator=newline).writerows(rows)
    data = out.getvalue().encode()
    data = data if ended else data.removesuffix(newline.encode())
    lines = io.BytesIO(data).readlines()
    parts = [b"".join(lines[start : start + n_lines]) for start in range(0, len(lines), n_lines)]
    offsets = [sum(map(len, parts[:number])) for number in range(len(parts))]
    chunks = list(cut_at_rows("f.csv", zip(parts, offsets, strict=True)))
    assert b"".join(chunk for chunk, _ in chunks) == data
    assert all(data[at:].startswith(chunk) for chunk, at in chunks)
    assert [row for chunk, _ in chunks for row in cells(chunk, ",", 2)] == rows


@example(["a\vb", "c\x85d", "e\u2028f", 'g"h', '"i"', "j\x1ck", "+"])
@given(st.lists(st.text(st.characters(exclude_characters="\t\n\r\0\ufeff", codec="utf-8"))))
def test_only_tabs_and_newlines_separate_tab_separated_text(fields: list[str]) -> None:
    data = "".join(f"x\t{field}\r\n" for field in fields).encode()
    assert cells(data, "\t", 2) == [("x", field) for field in fields]


def test_a_carriage_return_alone_is_a_space() -> None:
    assert cells(b'a,b\rc\r\nd,"e\rf"\n', ",", 2) == [("a", "b c"), ("d", "e f")]


def test_a_quote_that_never_closes_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text('1,good\n0,"bad\n1,fine\n')
    with pytest.raises(InputError, match=r"f\.csv, line 2: a quote opens in this row"):
        list(cut_at_rows(str(path), read_chunks(Range(str(path), 0, None), 99)))


@pytest.mark.parametrize(
    ("chunk", "layout", "message"),
    [
        (b"1\tgood\n2 bad\n", TAB, r"line 2: 1 tab-separated field, .* has 2"),
        (b'1,"go\n\nod"\n\n2,3,4\n', COMMA, r"line 5: 3 comma-separated fields, .* has 2"),
        (b"1\tgood\n\n\tbad\n", TAB, r"line 3: the label, column 0 counted from 0, is missing"),
        (b"1\tgood\nnan\tbad\n", TAB, r"line 2: the label, .* is nan"),
        (b"1\tgood\n1\tb\xe9\n", TAB, r"line 2: the row is not UTF-8"),
    ],
)
def test_wrong_rows_are_named_or_skipped(chunk: bytes, layout: Layout, message: str) -> None:
    with pytest.raises(InputError, match=r"f\.tsv, " + message):
        parse(chunk, layout)
    block = parse(chunk, layout, on_error="skip")
    assert (block.n_rows, block.skipped) == (1, 1)
    block = parse(chunk[chunk.rindex(b"\n", 0, -1) + 1 :], layout, on_error="skip")
    assert (block.n_rows, block.skipped) == (0, 1)


def test_header_and_byte_order_mark_are_left_out_at_the_start_only() -> None:
    layout = Layout("\t", 2, ("label", "text"))
    assert parse("\ufefflabel\ttext\n1\tgood\n", layout).labels.tolist() == [[1.0]]
    assert parse("1\tgood\n0\tbad\n", layout, offset=50).labels.tolist() == [[1], [0]]


def test_a_very_long_field_is_read() -> None:
    block = parse('1,"' + " ".join(["word"] * 50_000) + '"\n', COMMA, hash_bits=10)
    assert block.values is not None
    assert abs(block.values.sum()) == 50_000


def test_columns_by_name_and_number() -> None:
    layout = read_layout("f", b"\xef\xbb\xbfa\tb\t1\r\n1\t2\t3\n", "\t", header=True)
    assert layout == Layout("\t", 3, ("a", "b", "1"))
    positions = {name: layout.column(name, "--label-column", "f") for name in ("b", "1", "0", 2)}
    assert positions == {"b": 1, "1": 2, "0": 0, 2: 2}  # a name before a number
    with pytest.raises(InputError, match=r"f has no column named 'c'; its first row has 'a', 'b'"):
        layout.column("c", "--label-column", "f")
    with pytest.raises(InputError, match=r"--text-column is 3, counted from 0, .* 3 tab-separated"):
        layout.column(3, "--text-column", "f")
    with pytest.raises(InputError, match=r"f: the first row names the column 'a' twice"):
        read_layout("f", b"a,b,a\n", ",", header=True)


@pytest.mark.parametrize(
    ("path", "head", "delimiter"),
    [
        ("a.tsv.gz", b"x,y\n", "\t"),
        ("a.CSV", b"x\ty\n", ","),
        ("a.txt", b"x\ty\n", "\t"),
        ("a.txt", b"x,y\n\t", ","),
    ],
)
def test_the_delimiter_is_guessed(path: str, head: bytes, delimiter: str) -> None:
    assert guess_delimiter(path, head) == delimiter


# --- text


@given(documents, st.integers(1, 3), st.booleans(), st.sampled_from(["l2", "none"]), st.booleans())
def test_features_are_those_of_hashing_vectorizer(
    texts: list[str], ngrams: int, binary: bool, norm: str, alternate_sign: bool
) -> None:
    chunk = "".join(f"1\t{line}\n" for line in texts)
    block = parse(chunk, ngrams=ngrams, hash_bits=6, binary=binary, alternate_sign=alternate_sign)
    block = transform_values(block, binary=binary, norm=norm)
    expected = HashingVectorizer(
        ngram_range=(1, ngrams),
        n_features=64,
        binary=binary,
        norm=None if norm == "none" else norm,
        alternate_sign=alternate_sign,
    ).transform(texts)
    np.testing.assert_array_equal(dense_block(block, 64), expected.toarray().astype(np.float32))
    assert (block.values is None) <= binary


def test_labels_are_numbers_if_all_are() -> None:
    assert parse("1\ta\n-2.5\tb\n +3 \tc\n").labels.tolist() == [[1.0], [-2.5], [3.0]]
    assert parse("pos\ta\n 1\tb\n").labels.tolist() == ["pos", "1"]
    assert parse("1_0\ta\n2\tb\n").labels.tolist() == ["1_0", "2"]


# --- tables

NAMED = Layout(",", 3, ("y", "age", "job"))


def parse_table(chunk: bytes, table: columns.Table, **options: Any) -> Block:
    return columns.parse_table(b"y,age,job\n" + chunk, path="f", offset=0, table=table, **options)


number = st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr) | st.sampled_from(
    ["", " ", "0", "+1.5", " 2 ", "-.5", "1e3", "٣"]
)


@given(st.lists(st.tuples(number, number), min_size=1, max_size=9))
def test_numbers_are_features_and_empty_cells_and_zeros_are_not_stored(
    rows: list[tuple[str, str]],
) -> None:
    chunk = "".join(f"{row % 2},{age},{job}\n" for row, (age, job) in enumerate(rows)).encode()
    block = parse_table(chunk, columns.Table(NAMED, 0))
    expected = np.array([[float(cell.strip() or 0) for cell in row] for row in rows], np.float32)
    np.testing.assert_array_equal(dense_block(block, 2), expected)
    assert block.nnz == np.count_nonzero(expected)
    assert block.names == {0: "age", 1: "job"}
    assert block.labels[:, 0].tolist() == [row % 2 for row in range(len(rows))]


@pytest.mark.parametrize("bits", [1, 2, 5])  # few bits: features of a row collide, unsorted
def test_categories_are_hashed_as_feature_hasher_does(bits: int) -> None:
    head = b"y,age,job\n1,2.5,cook\n"
    table = columns.read_table("f", NAMED, head, 0, hash_bits=bits)
    assert table.categorical == (2,)
    block = parse_table(b"1,2.5,cook\n0,,nurse\n1,4,\n0,1,12\n", table)
    rows = [{"age": 2.5, "job": "cook"}, {"job": "nurse"}, {"age": 4.0}, {"age": 1, "job": "12"}]
    expected = FeatureHasher(2**bits, alternate_sign=False).transform(rows).toarray()
    np.testing.assert_array_equal(dense_block(block, 2**bits), expected)
    with pytest.raises(InputError, match=r"line 2: column 'job' holds 'cook', .* give --hash-bits"):
        columns.read_table("f", NAMED, head, 0, None)


@pytest.mark.parametrize("cell", ["old", "inf", "nan", "1e39", "1_0"])
def test_cells_that_are_not_finite_numbers_are_named_or_skipped(cell: str) -> None:
    chunk = f"1,2,3\n0,{cell},1\n".encode()
    with pytest.raises(InputError, match=f"f, line 3: column 'age' holds '{cell}'"):
        parse_table(chunk, columns.Table(NAMED, 0))
    block = parse_table(chunk, columns.Table(NAMED, 0), on_error="skip")
    assert (block.n_rows, block.skipped, block.labels.tolist()) == (1, 1, [[1]])


def test_blocks_of_a_file_can_be_joined() -> None:
    blocks = [parse(b"1\tgood\n"), parse(b"x\n", on_error="skip"), parse(b"0\tbad\n")]
    assert concatenate(blocks).labels.tolist() == [[1], [0]]
