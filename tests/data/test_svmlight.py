"""The svmlight parser against an independent one in plain Python and against scikit-learn."""

from __future__ import annotations

import io
import math
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from dadagrad.data import parsing
from dadagrad.data.blocks import Block
from dadagrad.data.svmlight import parse, split_labels
from dadagrad.errors import InputError

Row = tuple[float, dict[int, float], int | None]


def parsed(chunk: bytes, **options: Any) -> Block:
    return parse(chunk, **{"path": "a.svm", "offset": 0, "zero_based": True, **options})


def rows(block: Block) -> list[Row]:
    values = np.ones(block.nnz, np.float32) if block.values is None else block.values
    return [
        (
            float(block.labels[row, 0]),
            dict(zip(block.ids[start:stop].tolist(), values[start:stop].tolist(), strict=True)),
            None if block.queries is None else int(block.queries[row]),
        )
        for row, (start, stop) in enumerate(zip(block.indptr, block.indptr[1:], strict=False))
    ]


def same_bits(left: float, right: float) -> bool:
    return struct.pack("d", left) == struct.pack("d", right)


# --- the reference -----------------------------------------------------------------------------

NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def reference_number(text: str, kind: type[np.floating[Any]]) -> float:
    if not NUMBER.fullmatch(text):
        raise ValueError(text)
    with np.errstate(over="ignore"):
        value = float(kind(float(text)))
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def reference_line(line: str) -> Row | None:
    """One row; None for a line without one; ValueError for a wrong line."""
    words = re.split(r"[ \t\v\f\r]+", line.partition("#")[0].strip(" \t\v\f\r"))
    if words == [""]:
        return None
    label = reference_number(words[0], np.float64)
    features: dict[int, float] = {}
    query = None
    for word in words[1:]:
        name, colon, value = word.partition(":")
        if not colon or not re.fullmatch("[0-9]+", value if name == "qid" else name):
            raise ValueError(word)
        number = int(value if name == "qid" else name)
        if number > parsing.LARGEST_ID:
            raise ValueError(word)
        if name == "qid":
            if query is not None:
                raise ValueError(word)
            query = number
        else:
            if features and number <= max(features):
                raise ValueError(word)
            features[number] = reference_number(value, np.float32)
    return label, features, query


def reference(chunk: bytes) -> tuple[list[Row], int]:
    """Rows of the right lines, and the number of wrong lines."""
    found, wrong = [], 0
    for line in chunk.decode("latin-1").split("\n"):
        try:
            row = reference_line(line)
        except ValueError:
            wrong += 1
            continue
        if row is not None:
            found.append(row)
    if any(query is not None for _, _, query in found):
        wrong += sum(query is None for _, _, query in found)
        found = [row for row in found if row[2] is not None]
    return found, wrong


# --- properties --------------------------------------------------------------------------------

finite = st.floats(allow_nan=False, allow_infinity=False)
single = st.floats(allow_nan=False, allow_infinity=False, width=32)
decimal = st.from_regex(r"[+-]?([0-9]{1,22}\.?[0-9]{0,22}|\.[0-9]{1,22})([eE][+-]?[0-9]{1,2})?",
                        fullmatch=True).filter(str.isascii)  # fmt: skip
number = st.one_of(
    single.map(repr),
    finite.map(repr).filter(lambda text: abs(float(text)) < 1e38),
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
    *(
        "1",
        "-1",
        "0",
        " ",
        "  ",
        "\n",
        "\r\n",
        ":",
        "3:1",
        "4:0.5",
        "7:1e5",
        "nan",
        "inf",
        ",",
        "#",
    ),
    *("qid:", "qid:3", "q", "1e", ".", "+", "-", "5:1e-400", "6:1e39", "0:1", "1.5", "\t", "\0"),
    *("9:0.1234567890123456789012", "9223372036854775799:1", "9223372036854775800:1", "\xff"),
]
mess = st.lists(st.sampled_from(FRAGMENTS), max_size=25).map(
    lambda pieces: "".join(pieces).encode("latin-1")
)


@given(st.lists(right_lines(), max_size=6), st.booleans())
def test_right_lines_match_the_reference(lines: list[str], ended: bool) -> None:
    chunk = "\n".join(lines).encode() + (b"\n" if ended else b"")
    found = rows(parsed(chunk))
    expected, wrong = reference(chunk)
    assert wrong == 0
    assert found == expected
    assert all(same_bits(a[0], b[0]) for a, b in zip(found, expected, strict=True))


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
    assert rows(block) == expected
    assert block.skipped == wrong
    if wrong:
        with pytest.raises(InputError, match=r"a\.svm, line \d+: "):
            parsed(text)
    else:
        assert rows(parsed(text)) == expected
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


def test_sixteen_and_seventeen_digits_are_exact_without_the_slow_path() -> None:
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
    dump_svmlight_file(
        matrix, target, file, zero_based=zero_based, query_id=groups, comment="made for a test"
    )
    block = parsed(file.getvalue(), zero_based=zero_based)
    file.seek(0)
    theirs, labels, queries = load_svmlight_file(
        file, n_features=30, dtype=np.float64, zero_based=zero_based, query_id=True
    )
    assert block.values is not None
    assert block.queries is not None
    assert block.indptr.tolist() == theirs.indptr.tolist()
    assert block.ids.tolist() == theirs.indices.tolist()
    assert block.values.tolist() == theirs.data.astype(np.float32).tolist()
    assert block.labels[:, 0].tolist() == labels.tolist()
    assert block.queries.tolist() == queries.tolist()


# --- cases -------------------------------------------------------------------------------------


def test_values_that_are_all_one_are_not_stored() -> None:
    assert parsed(b"1 2:1 3:1.0\n0 4:10e-1\n").values is None
    assert parsed(b"").values is None
    assert parsed(b"1 2:1 3:1.5\n").values is not None
    skipped = parsed(b"1 2:1\n1 2:0.5 1:1\n1 1:1e999 2:3\n", on_error="skip")
    assert (skipped.values, skipped.skipped) == (None, 2)


def test_types_and_shapes() -> None:
    block = parsed(b"# nothing\n\n-1 qid:7 3:0.5 9:2 # a comment 4:4\r\n+1 qid:8\n")
    assert block.indptr.dtype == block.ids.dtype == np.int64
    assert block.values is not None
    assert block.values.dtype == np.float32
    assert block.labels.dtype == np.float64
    assert block.labels.tolist() == [[-1.0], [1.0]]
    assert block.queries is not None
    assert block.queries.tolist() == [7, 8]
    assert block.indptr.tolist() == [0, 2, 2]
    assert block.weights is None


def test_one_based_ids_become_zero_based() -> None:
    assert parsed(b"1 1:2 5:3\n", zero_based=False).ids.tolist() == [0, 4]
    assert parsed(b"1 1:2 5:3\n", zero_based=True).ids.tolist() == [1, 5]


def test_label_lists() -> None:
    block = parsed(b"1,3 4:1.0\n2 5:1\n")
    assert block.labels.tolist() == ["1,3", "2"]
    assert [split_labels(text) for text in block.labels] == [(1.0, 3.0), (2.0,)]
    block = parsed(b"\n 4:1.0\n2,3#x\nqid:1 3:1", multilabel=True, on_error="skip")
    assert (block.labels.tolist(), block.skipped) == ([""], 2)
    assert split_labels("") == ()
    with pytest.raises(InputError, match=r"a\.svm, line 1: label is '1,3'; it must be one number"):
        parsed(b"1,3 4:1.0\n", multilabel=False)
    with pytest.raises(InputError, match=r"line 2: label is '1,1e999'; every label must be finite"):
        parsed(b"2 3:1\n1,1e999 4:1.0\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("3:1 4:1", "starts with '3:1'; a line must start with its label"),
        ("qid:3 4:1", "starts with 'qid:3'; a line must start with its label"),
        ("yes 4:1", "label is 'yes'; it must be a number"),
        ("nan 4:1", "label is 'nan'; it must be finite"),
        ("-INF", "label is '-INF'; it must be finite"),
        ("1e999 4:1", "label is '1e999'; that is too large"),
        ("1,x 4:1", "label is 'x'; it must be a number"),
        ("1, 4:1", "label is ''; it must be a number"),
        ("1 4:nan", "value of feature 4 is 'nan'; it must be finite"),
        ("1 4:infinity", "value of feature 4 is 'infinity'; it must be finite"),
        ("1 4:1e39", "value is '1e39'; that is too large"),
        ("1 4:x", "value of feature 4 is 'x'; it must be a number"),
        ("1 4:", "value of feature 4 is ''; it must be a number"),
        ("1 4:1:2", "value of feature 4 is '1:2'; it must be a number"),
        ("1 4:0x10", "value of feature 4 is '0x10'; it must be a number"),
        ("1 -4:1", "feature id is '-4'; ids must not be negative"),
        (
            "1 9223372036854775800:1",
            "feature id is '9223372036854775800'; ids must be 9223372036854775799 or less",
        ),
        ("1 4", "found '4'; features look like 3:0.5"),
        ("1 word:1", "found 'word:1'; features look like 3:0.5"),
        ("1 5:1 4:1", "feature 4 comes after 5; the ids of a line must increase"),
        ("1 5:1 5:1", "feature 5 comes twice"),
        ("1 0:1", "feature id is 0, and ids were said to start at 1"),
        ("1 qid:x 4:1", "found 'qid:x'; 'qid:' must come once"),
        ("1 qid:1 qid:2", "found 'qid:2'; 'qid:' must come once"),
        ("1 " + "x" * 100, "found '" + "x" * 40 + "'...;"),
    ],
)
def test_errors_name_file_line_and_reason(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "bad.svm"
    before = "1 1:1\n# comment\n\n" * 10
    path.write_text(f"{before}1 2:3\n{line}\n1 3:1\n")
    # The chunk starts in the middle of its file.
    chunk = path.read_bytes()[len(before) :]
    with pytest.raises(InputError, match=re.escape(f"bad.svm, line 32: {message}")) as caught:
        parse(chunk, path=str(path), offset=len(before), zero_based=False, on_error="raise")
    assert "\n" not in str(caught.value)
    block = parse(chunk, path=str(path), offset=len(before), zero_based=False, on_error="skip")
    assert block.skipped == 1
    assert block.ids.tolist() == [1, 2]
    assert block.n_rows == 2


def test_the_first_wrong_line_is_the_one_reported() -> None:
    with pytest.raises(InputError, match="line 2: value is '1e999'"):
        parsed(b"1 2:1\n1 2:1e999\nx 3:1\n")
    with pytest.raises(InputError, match="line 1: label is '1e999'"):
        parsed(b"1e999 2:1\n1 2:1e999\n")  # labels are looked at after values
    with pytest.raises(InputError, match="line 3: no 'qid:'"):
        parsed(b"1 qid:1 2:1\n\n1 2:1\n")


def test_unknown_policy_is_refused() -> None:
    with pytest.raises(InputError, match="on_error is 'ignore'; it must be 'raise' or 'skip'"):
        parsed(b"", on_error="ignore")


def test_parsing_compiles_once() -> None:
    parsed(b"1 2:3\n")
    before = len(parsing.svmlight_rows.signatures)
    parsed(b"1,2 2:3 4:1\nx", on_error="skip", zero_based=False)
    assert len(parsing.svmlight_rows.signatures) == before == 1
