"""Delimited text: rows as the csv module reads them, and features as scikit-learn makes them."""

import csv
import io

import numpy as np
import pytest
from helpers.blocks import dense_block
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import HashingVectorizer

from dadagrad import InputError
from dadagrad.data.blocks import transform_values
from dadagrad.data.reading.options import Options
from dadagrad.data.tables.columns import Column
from dadagrad.data.tables.delimited import (
    Layout,
    cut_at_rows,
    guess_delimiter,
    read_batch,
    read_layout,
)
from dadagrad.data.tables.encoder import TableEncoder
from dadagrad.data.tables.encoding import TableParser
from dadagrad.data.tables.row_columns import RowColumns

TAB = Layout("\t", ("0", "1"))
COMMA = Layout(",", ("0", "1"))
WORDS = ["good", "Film", "x", "a_1", "don't", "élan", "é", "İz", "ΟΔΟΣ", "ten"]
documents = st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), min_size=1)


def parse(chunk, layout=TAB, **options):
    data = chunk.encode() if isinstance(chunk, str) else chunk
    on_error = options.pop("on_error", "raise")
    place = {"path": "f.tsv", "offset": options.pop("offset", 0)}
    label, text = layout.names
    encoder = TableEncoder(
        (Column(text, "text"),), rows=RowColumns((label,)), **{"hash_bits": 20} | options
    )
    return TableParser(encoder, Options("text", on_error=on_error)).encode(
        read_batch(data, layout, **place)
    )


def cells(chunk, delimiter, width):
    layout = Layout(delimiter, tuple(map(str, range(width))))
    table = read_batch(chunk, layout, path="f.csv", offset=0).table
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


# --- rows


@given(
    st.lists(
        st.tuples(st.just("1"), st.text('ab",;|\n é\t+', max_size=8)), min_size=1, max_size=20
    ),
    st.integers(1, 40),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(",;|"),
)
def test_csv_is_cut_at_rows_and_read_as_the_csv_module_does(
    rows, n_lines, newline, quote_all, ended, mark
):
    out = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL
    csv.writer(out, quoting=quoting, lineterminator=newline, delimiter=mark).writerows(rows)
    data = out.getvalue().encode()
    data = data if ended else data.removesuffix(newline.encode())
    lines = io.BytesIO(data).readlines()
    parts = [b"".join(lines[start : start + n_lines]) for start in range(0, len(lines), n_lines)]
    offsets = [sum(map(len, parts[:number])) for number in range(len(parts))]
    chunks = list(cut_at_rows("f.csv", zip(parts, offsets, strict=True), mark))
    assert b"".join(chunk for chunk, _ in chunks) == data
    assert all(data[at:].startswith(chunk) for chunk, at in chunks)
    assert [row for chunk, _ in chunks for row in cells(chunk, mark, 2)] == rows


@example(["a\vb", "c\x85d", "e\u2028f", 'g"h', '"i"', "j\x1ck", "+"])
@given(st.lists(st.text(st.characters(exclude_characters="\t\n\r\0\ufeff", codec="utf-8"))))
def test_only_tabs_and_newlines_separate_tab_separated_text(fields):
    data = "".join(f"x\t{field}\r\n" for field in fields).encode()
    assert cells(data, "\t", 2) == [("x", field) for field in fields]


def test_a_carriage_return_alone_is_a_space():
    assert cells(b'a,b\rc\r\nd,"e\rf"\n', ",", 2) == [("a", "b c"), ("d", "e f")]


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
def test_wrong_rows_are_named_or_skipped(chunk, layout, message):
    with pytest.raises(InputError, match=r"f\.tsv, " + message):
        parse(chunk, layout)
    block = parse(chunk, layout, on_error="skip")
    assert (block.n_rows, block.skipped) == (1, 1)
    block = parse(chunk[chunk.rindex(b"\n", 0, -1) + 1 :], layout, on_error="skip")
    assert (block.n_rows, block.skipped) == (0, 1)


def test_header_and_byte_order_mark_are_left_out_at_the_start_only():
    layout = Layout("\t", ("label", "text"), header=True)
    assert parse("\ufefflabel\ttext\n1\tgood\n", layout).labels.tolist() == [[1.0]]
    assert parse("1\tgood\n0\tbad\n", layout, offset=50).labels.tolist() == [[1], [0]]


def test_a_very_long_field_is_read():
    block = parse('1,"' + " ".join(["word"] * 50_000) + '"\n', COMMA, hash_bits=10)
    assert abs(block.values.sum()) == 50_000


@pytest.mark.parametrize(
    ("head", "header"),
    [
        (b"age,job\n1,cook\n", True),  # words above numbers
        (b"label,text\nneg,so bad\npos,fine\nneg,no\npos,yes\n", True),  # a word of its own
        (b"neg,so bad\npos,fine\nneg,no\npos,yes\n", False),  # the word comes again
        (b"1,2\n3,4\n", False),
        (b"a,a\n1,2\n", False),
        (b"NA,x\n1,2\n2,3\n", True),
    ],
)
def test_a_header_is_detected(head, header):
    assert read_layout("f", head, ",", None).header == header


@pytest.mark.parametrize(
    ("path", "head", "delimiter"),
    [
        ("a.tsv.gz", b"x,y\n", "\t"),
        ("a.CSV", b"x,\ty\n", ","),
        ("a.txt", b"x\ty\n", "\t"),
        ("a.txt", b"x,y\n\t", ","),
        ("a.csv", b"x;y\n1,5;2\n", ";"),
        ("a.csv", b'"price, EUR";y\n', ";"),
        ("a.txt", b"x|y\n", "|"),
        ("a.csv", b"x\ty\n", "\t"),
    ],
)
def test_the_delimiter_is_guessed(path, head, delimiter):
    assert guess_delimiter(path, head) == delimiter


# --- text


@given(documents, st.integers(1, 3), st.booleans(), st.sampled_from(["l2", "none"]))
def test_features_are_those_of_hashing_vectorizer(texts, ngrams, binary, norm):
    chunk = "".join(f"1\t{line}\n" for line in texts)
    block = parse(chunk, ngrams=ngrams, hash_bits=6, binary=binary)
    block = transform_values(block, binary=binary, norm=norm)
    expected = HashingVectorizer(
        ngram_range=(1, ngrams),
        n_features=64,
        binary=binary,
        norm=None if norm == "none" else norm,
        alternate_sign=not binary,
    ).transform(texts)
    np.testing.assert_array_equal(dense_block(block, 64), expected.toarray().astype(np.float32))
    assert (block.values is None) <= binary


def test_labels_are_numbers_if_all_are():
    assert parse("1\ta\n-2.5\tb\n +3 \tc\n").labels.tolist() == [[1.0], [-2.5], [3.0]]
    assert parse("pos\ta\n 1\tb\n").labels.tolist() == ["pos", "1"]
    assert parse("1_0\ta\n2\tb\n").labels.tolist() == ["1_0", "2"]
