"""The svmlight parser against one in plain Python and against scikit-learn."""

from __future__ import annotations

import io
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.blocks import block_rows
from helpers.line_formats import check_error, exact_number, reference_rows
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from dadagrad.data.blocks import Block
from dadagrad.data.ingest import parsing, vw
from dadagrad.data.ingest.options import Options
from dadagrad.data.ingest.svmlight import parse
from dadagrad.errors import InputError


def parsed(chunk: bytes, **options: Any) -> Block:
    options = {"zero_based": True} | options
    return parse(chunk, path="a.svm", offset=0, options=Options("svmlight", **options))


def same_bits(left: float, right: float) -> bool:
    return struct.pack("d", left) == struct.pack("d", right)


def reference_row(line: bytes) -> tuple[Any, ...] | None:
    """One row; None for a line without one; ValueError for a wrong line."""
    words = re.split(rb"[ \t\v\f\r]+", line.partition(b"#")[0].strip(b" \t\v\f\r"))
    if words == [b""]:
        return None
    label = exact_number(words[0], np.float64)
    features: dict[int, float] = {}
    query = -1
    for word in words[1:]:
        name, colon, value = word.partition(b":")
        digits = value if name == b"qid" else name
        if not colon or not re.fullmatch(rb"[0-9]+", digits) or int(digits) > parsing.MAX_ID:
            raise ValueError(word)
        if name == b"qid":
            if query >= 0:
                raise ValueError(word)
            query = int(digits)
        else:
            if features and int(digits) <= max(features):
                raise ValueError(word)
            features[int(digits)] = exact_number(value, np.float32)
    return label, tuple(features.items()), 1.0, "", query


def reference(chunk: bytes) -> tuple[list[tuple[Any, ...]], int]:
    """Rows of the right lines, and the number of wrong lines."""
    rows, wrong = reference_rows(chunk, reference_row)
    if any(row[-1] >= 0 for row in rows):
        wrong += sum(row[-1] < 0 for row in rows)
        rows = [row for row in rows if row[-1] >= 0]
    return rows, wrong


decimal = st.from_regex(r"[+-]?([0-9]{1,22}\.?[0-9]{0,22}|\.[0-9]{1,22})([eE][+-]?[0-9]{1,2})?",
                        fullmatch=True).filter(str.isascii)  # fmt: skip
number = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.floats(-1e38, 1e38).map(repr),
    st.floats(-1, 1).map(lambda value: f"{value:.17g}"),
    st.integers(-9, 9).map(str),
    decimal.filter(lambda text: abs(float(text)) < 1e38),
)
space = st.text(" \t", min_size=1, max_size=2)


@st.composite
def right_lines(draw: st.DrawFn) -> str:
    ids = sorted(draw(st.sets(st.integers(0, 10**18) | st.integers(0, 50), max_size=6)))
    words = [draw(number), *(f"{feature}:{draw(number)}" for feature in ids)]
    line = "".join(word + draw(space) for word in words)
    return draw(st.sampled_from(["", " "])) + line + draw(st.sampled_from(["", "# 1:2, x", "\r"]))


FRAGMENTS = [
    b"1", b"-1", b"0", b" ", b"  ", b"\n", b"\r\n", b":", b"3:1", b"4:0.5", b"7:1e5", b"nan",
    b"inf", b",", b"#", b"qid:", b"qid:3", b"q", b"1e", b".", b"+", b"-", b"5:1e-400", b"6:1e39",
    b"0:1", b"1.5", b"\t", b"\0", b"9:0.1234567890123456789012", b"9223372036854775799:1",
    b"9223372036854775800:1", b"\xff",
]  # fmt: skip
mess = st.lists(st.sampled_from(FRAGMENTS), max_size=25).map(b"".join)


@given(st.lists(right_lines(), max_size=6), st.booleans())
def test_right_lines_match_the_reference(lines: list[str], ended: bool) -> None:
    chunk = "\n".join(lines).encode() + (b"\n" if ended else b"")
    rows = block_rows(parsed(chunk))
    expected, wrong = reference(chunk)
    assert wrong == 0
    assert rows == expected
    assert all(same_bits(a[0], b[0]) for a, b in zip(rows, expected, strict=True))


@given(mess | st.binary(max_size=60))
@example(b"\xef\xbb\xbf1 2:3\n")
@example(b"1 q")
@example(b"1 qid:3 1:1\n1 1:1\n1 3:1 qid:4")
@example(b"1 1:1e400 2:1e400\n1e400 1:1\n2 3:4")
@example(b"1 00000000000000000000000000003:1")
def test_any_bytes_give_rows_or_an_input_error(chunk: bytes) -> None:
    text = chunk.replace(b",", b"")
    expected, wrong = reference(b"   " + text[3:] if text[:3] == b"\xef\xbb\xbf" else text)
    block = parsed(text, on_error="skip")
    assert block_rows(block) == expected
    assert block.skipped == wrong
    if wrong:
        with pytest.raises(InputError, match=r"a\.svm, line \d+: "):
            parsed(text)
    else:
        assert block_rows(parsed(text)) == expected
    for multilabel in (None, True, False):
        block = parsed(chunk, on_error="skip", multilabel=multilabel)
        assert len(block.labels) == block.n_rows
        assert block.nnz == block.indptr[-1]


@given(decimal)
@example("9007199254740993")
@example("9007199254740992.5e0")
@example("0.1000000000000000055511151231257827")
@example("123456789012345678e-22")
@example("999999999999999999e-1")
@example("1e22")
@example("1e23")
@example("-0.0e5")
@example("4.35e-3")
@example("0.30000000000000004")
@example("1.0000001788139343261718749")  # halfway between two float32 numbers, but for the end
def test_numbers_are_exact(text: str) -> None:
    block = parsed(f"{text} 1:{text}".encode(), on_error="skip")
    if block.n_rows:
        assert same_bits(block.labels[0, 0], float(text))
        value = 1.0 if block.values is None else block.values[0]
        assert same_bits(value, np.float32(float(text)))
    else:
        assert abs(float(text)) > 3.4e38


def test_sixteen_and_seventeen_digits_are_exact() -> None:
    numbers = np.random.default_rng(5).random(20_000)
    texts = [f"{number:.{digits}g}" for number in numbers for digits in (16, 17)]
    block = parsed("\n".join(texts).encode())
    assert block.labels[:, 0].tolist() == [float(text) for text in texts]


@pytest.mark.parametrize("zero_based", [True, False])
def test_agrees_with_scikit_learn(zero_based: bool) -> None:
    rng = np.random.default_rng(3)
    matrix = rng.standard_normal((40, 30)) * (rng.random((40, 30)) < 0.2)
    target, groups = rng.standard_normal(40), np.sort(rng.integers(0, 5, 40))
    file = io.BytesIO()
    dump_svmlight_file(matrix, target, file, zero_based=zero_based, query_id=groups, comment="x")
    block = parsed(file.getvalue(), zero_based=zero_based)
    file.seek(0)
    expected, labels, queries = load_svmlight_file(
        file, n_features=30, dtype=np.float64, zero_based=zero_based, query_id=True
    )
    np.testing.assert_array_equal(block.indptr, expected.indptr)
    np.testing.assert_array_equal(block.ids, expected.indices + (not zero_based))
    np.testing.assert_array_equal(block.values, expected.data.astype(np.float32))
    np.testing.assert_array_equal(block.labels[:, 0], labels)
    np.testing.assert_array_equal(block.queries, queries)


def test_lists_of_labels_are_texts() -> None:
    assert parsed(b"1,3 4:1.0\n2 5:1\n").labels.tolist() == ["1,3", "2"]
    block = parsed(b"\n 4:1.0\n2,3#x\nqid:1 3:1", multilabel=True, on_error="skip")
    assert (block.labels.tolist(), block.skipped) == ([""], 2)
    with pytest.raises(InputError, match=r"a\.svm, line 1: label is '1,3'; it must be one number"):
        parsed(b"1,3 4:1.0\n", multilabel=False)
    with pytest.raises(InputError, match=r"line 2: label is '1,1e999'; every label must be finite"):
        parsed(b"2 3:1\n1,1e999 4:1.0\n")


ERRORS = {
    "3:1 4:1": "starts with '3:1'; a line must start with its label",
    "qid:3 4:1": "starts with 'qid:3'; a line must start with its label",
    "yes 4:1": "label is 'yes'; it must be a number",
    "-INF": "label is '-INF'; it must be finite",
    "1e999 4:1": "label is '1e999'; that is too large",
    "1,x 4:1": "label is 'x'; it must be a number",
    "1, 4:1": "label is ''; it must be a number",
    "1 4:nan": "value of feature '4' is 'nan'; it must be finite",
    "1 4:infinity": "value of feature '4' is 'infinity'; it must be finite",
    "1 4:1e39": "value of feature '4' is '1e39'; that is too large",
    "1 4:": "value of feature '4' is ''; it must be a number",
    "1 4:1:2": "value of feature '4' is '1:2'; it must be a number",
    "1 4:0x10": "value of feature '4' is '0x10'; it must be a number",
    "1 -4:1": "found '-4:1'; features look like 3:0.5, with white space between and ids from 0",
    "1 9223372036854775800:1": "feature id is '9223372036854775800'; ids must be "
    "9223372036854775799 or less",
    "1 4": "found '4'; features look like 3:0.5",
    "1 word:1": "found 'word:1'; features look like 3:0.5",
    "1 5:1 4:1": "feature '4' comes after '5'; the ids of a line must increase",
    "1 5:1 5:1": "feature '5' comes after '5'",
    "1 0:1": "feature id is 0 in a file read as one-based",
    "1 qid:x 4:1": "found 'qid:x'; 'qid:' must come once",
    "1 qid:1 qid:2": "found 'qid:2'; 'qid:' must come once",
    "1 " + "x" * 100: "found '" + "x" * 40 + "'...;",
}


@pytest.mark.parametrize("line", ERRORS)
def test_errors_name_file_line_and_reason(tmp_path: Path, line: str) -> None:
    options: dict[str, Any] = {"format": "svmlight", "zero_based": False}
    check_error(tmp_path / "bad.svm", "1 2:3", line, ERRORS[line], parse, **options)


def test_the_first_wrong_line_is_reported() -> None:
    with pytest.raises(InputError, match="line 2: value of feature '2' is '1e999'"):
        parsed(b"1 2:1\n1 2:1e999\nx 3:1\n")
    with pytest.raises(InputError, match="line 3: no 'qid:'"):
        parsed(b"1 qid:1 2:1\n\n1 2:1\n")


def test_each_format_compiles_once() -> None:
    parsed(b"1 2:3\n")
    parsed(b"1,2 2:3 4:1\nx", on_error="skip", zero_based=False)
    for options in ({"hash_bits": 9}, {"on_error": "skip", "no_labels": True}):
        vw.parse(b"1 | 3:2 1\n", path="a.vw", offset=0, options=Options("vw", **options))
    assert len(parsing.rows.signatures) == 2
