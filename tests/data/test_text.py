"""Raw text: the features of scikit-learn's HashingVectorizer, and the rows of the csv module."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer

from dadagrad.data import csv_table, text
from dadagrad.data.blocks import Block
from dadagrad.data.combine import concatenate, transform_values
from dadagrad.data.delimited import Layout, cut_at_rows, guess_delimiter
from dadagrad.data.sources import Range, read_chunks
from dadagrad.errors import InputError

TAB = Layout("\t", 2)
COMMA = Layout(",", 2)
WORDS = ["good", "bad", "film", "Plot", "x", "élan", "naïve", "ten"]
documents = st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), min_size=1)


def parse(chunk: str | bytes, layout: Layout = TAB, **options: Any) -> Block:
    data = chunk.encode() if isinstance(chunk, str) else chunk
    options = {"path": "f.tsv", "offset": 0, "label": 0, "text": 1} | options
    return text.parse(data, layout=layout, **options)


def dense(block: Block, n_features: int) -> np.ndarray:
    values = np.ones(block.nnz, np.float32) if block.values is None else block.values
    matrix = scipy.sparse.csr_array(
        (values, block.ids, block.indptr), shape=(block.n_rows, n_features)
    ).toarray()
    return matrix if block.row_scale is None else matrix * block.row_scale[:, None]


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
    np.testing.assert_array_equal(dense(block, 64), expected.toarray().astype(np.float32))
    if binary:
        assert block.values is None
    for start, stop in zip(block.indptr, block.indptr[1:], strict=False):
        assert (np.diff(block.ids[start:stop]) > 0).all()


def test_numeric_labels_are_numbers_and_others_stay_text() -> None:
    assert parse("1\ta\n-2.5\tb\n").labels.tolist() == [[1.0], [-2.5]]
    assert parse("pos\ta\n1\tb\n").labels.tolist() == ["pos", "1"]
    assert parse("1_0\ta\n2\tb\n").labels.tolist() == ["1_0", "2"]


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        ("1\tgood\n2 bad\n", r"f\.tsv, line 2: 1 tab-separated fields, .* has 2"),
        ("1\tgood\n\n\tbad\n", r"f\.tsv, line 3: the label, column 0 counted from 0, is missing"),
        ("1\tgood\nnan\tbad\n", r"f\.tsv, line 2: the label, .* is nan"),
        (b"1\tgood\n1\tb\xe9\n", r"f\.tsv, line 2: the row is not UTF-8"),
    ],
)
def test_wrong_rows_are_named_or_skipped(chunk: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(chunk)
    block = parse(chunk, on_error="skip")
    assert (block.n_rows, block.skipped) == (1, 1)


def test_only_newlines_end_a_row() -> None:
    odd = "1\tone\x0btwo\x85three\u2028four\x1cfive\r\n0\tsix\r\n"
    block = parse(odd, hash_bits=10)
    expected = HashingVectorizer(n_features=1024, norm=None).transform(
        [line.split("\t")[1] for line in odd.split("\r\n")[:2]]
    )
    np.testing.assert_array_equal(dense(block, 1024), expected.toarray())


def test_header_and_byte_order_mark_are_skipped_at_the_start_only() -> None:
    layout = Layout("\t", 2, ("label", "text"))
    chunk = "\ufefflabel\ttext\n1\tgood\n"
    assert parse(chunk, layout).labels.tolist() == [[1.0]]
    assert parse("1\tgood\n0\tbad\n", layout, offset=50, path="none").labels.tolist() == [[1], [0]]


def test_a_chunk_of_nothing_but_skipped_rows() -> None:
    block = parse("x\n", on_error="skip")
    assert (block.n_rows, block.nnz, block.skipped) == (0, 0, 1)


def test_columns_by_name_and_number() -> None:
    layout = Layout("\t", 3, ("a", "b", "1"))
    assert layout.column("b", "--label-column", "f") == 1
    assert layout.column("1", "--label-column", "f") == 2  # a name before a number
    assert layout.column("0", "--label-column", "f") == 0
    assert layout.column(2, "--label-column", "f") == 2
    with pytest.raises(InputError, match=r"f has no column named 'c'; its first row has 'a', 'b'"):
        layout.column("c", "--label-column", "f")
    with pytest.raises(InputError, match=r"--text-column is 3, counted from 0, .* 3 tab-separated"):
        layout.column(3, "--text-column", "f")


@pytest.mark.parametrize(
    ("path", "head", "delimiter"),
    [
        ("a.tsv.gz", b"x,y\n", "\t"),
        ("a.CSV", b"x\ty\n", ","),
        ("a.txt", b"x\ty\n", "\t"),
        ("a.txt", b"x,y\n\t", ","),
    ],
)
def test_delimiter(path: str, head: bytes, delimiter: str) -> None:
    assert guess_delimiter(path, head) == delimiter


fields = st.text(st.sampled_from('ab",\n\r é'), max_size=8)


@given(st.lists(st.tuples(st.just("1"), fields), min_size=1, max_size=20), st.integers(1, 40))
def test_csv_is_cut_at_rows_and_read_as_the_csv_module_does(
    rows: list[tuple[str, str]], size: int
) -> None:
    out = io.StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows(rows)
    data = out.getvalue().encode()
    lines = data.splitlines(keepends=True) if b"\r" not in data else io.BytesIO(data).readlines()
    chunks = []
    offset = 0
    for start in range(0, len(lines), size):
        chunk = b"".join(lines[start : start + size])
        chunks.append((chunk, offset))
        offset += len(chunk)
    found = list(cut_at_rows("f.csv", chunks))
    assert b"".join(chunk for chunk, _ in found) == data
    assert all(data[at:].startswith(chunk) for chunk, at in found)
    blocks = [
        text.parse(c, path="f.csv", offset=at, layout=COMMA, label=0, text=1, hash_bits=8)
        for c, at in found
    ]
    block = concatenate(blocks)
    expected = HashingVectorizer(n_features=256, norm=None).transform([row[1] for row in rows])
    np.testing.assert_array_equal(dense(block, 256), expected.toarray())


def test_quote_that_never_closes_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text('1,good\n0,"bad\n1,fine\n')
    with pytest.raises(InputError, match=r"f\.csv, line 2: a quote opens in this row"):
        list(cut_at_rows(str(path), read_chunks(Range(str(path), 0, None))))


def test_long_csv_fields_are_read_and_the_modules_limit_is_left_alone() -> None:
    limit = csv.field_size_limit()
    words = " ".join(["word"] * 50_000)
    block = parse(f'1,"{words}"\n', COMMA, hash_bits=10)
    assert block.values is not None
    assert abs(block.values.sum()) == 50_000
    assert csv.field_size_limit() == limit


# CSV tables.

NAMED = Layout(",", 3, ("y", "age", "job"))


def test_columns_of_numbers_are_features_and_empty_cells_and_zeros_are_none() -> None:
    table = csv_table.Table(NAMED, 0)
    chunk = b"y,age,job\n1,2.5,\n0,0,-3\n1, ,0\n"
    block = csv_table.parse(chunk, path="f", offset=0, table=table)
    assert dense(block, 2).tolist() == [[2.5, 0], [0, -3], [0, 0]]
    assert block.nnz == 2
    assert block.names == {0: "age", 1: "job"}
    assert block.labels.tolist() == [[1], [0], [1]]


@pytest.mark.parametrize("bits", [1, 2, 5])  # few bits: features of a row collide, unsorted
def test_categories_are_hashed_as_feature_hasher_does(bits: int) -> None:
    head = "y,age,job\n1,2.5,cook\n"
    table = csv_table.read_table("f", NAMED, head, 0, hash_bits=bits)
    assert table.categorical == (2,)
    chunk = b"y,age,job\n1,2.5,cook\n0,,nurse\n1,4,\n0,1,12\n"
    block = csv_table.parse(chunk, path="f", offset=0, table=table)
    rows = [{"age": 2.5, "job": "cook"}, {"job": "nurse"}, {"age": 4.0}, {"age": 1, "job": "12"}]
    expected = FeatureHasher(2**bits, alternate_sign=False).transform(rows).toarray()
    np.testing.assert_array_equal(dense(block, 2**bits), expected)
    for start, stop in zip(block.indptr, block.indptr[1:], strict=False):
        assert (np.diff(block.ids[start:stop]) > 0).all()


def test_text_without_hashing_is_an_error_that_names_the_column() -> None:
    with pytest.raises(InputError, match=r"column 'job' holds 'cook', .* give --hash-bits"):
        csv_table.read_table("f", NAMED, "y,age,job\n1,2.5,cook\n", 0, None)


@pytest.mark.parametrize("cell", ["old", "inf", "nan", "1e39"])
def test_cells_that_are_no_numbers_are_named_or_skipped(cell: str) -> None:
    table = csv_table.Table(NAMED, 0)
    chunk = f"y,age,job\n1,2,3\n0,{cell},1\n".encode()
    with pytest.raises(InputError, match=f"f, line 3: column 'age' holds '{cell}'"):
        csv_table.parse(chunk, path="f", offset=0, table=table)
    block = csv_table.parse(chunk, path="f", offset=0, table=table, on_error="skip")
    assert (block.n_rows, block.skipped) == (1, 1)
