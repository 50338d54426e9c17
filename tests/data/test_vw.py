"""The Vowpal Wabbit parser against one in plain Python, and scikit-learn's hash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.blocks import block_rows
from helpers.line_formats import check_error, exact_number, reference_rows, rounded
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.feature_extraction import FeatureHasher
from sklearn.utils import murmurhash3_32

from dadagrad.data.blocks import Block
from dadagrad.data.ingest import parsing
from dadagrad.data.ingest.options import Options
from dadagrad.data.ingest.vw import parse
from dadagrad.errors import InputError

BITS = 12


def parsed(chunk: bytes, **options: Any) -> Block:
    options = {"hash_bits": BITS} | options
    return parse(chunk, path="a.vw", offset=0, options=Options("vw", **options))


def reference_id(name: bytes) -> int:
    return int(abs(int(murmurhash3_32(name, seed=0))) % 2**BITS)


def reference_word(word: bytes) -> tuple[bytes, float]:
    name, colon, value = word.partition(b":")
    if not name:
        raise ValueError(word)
    return name, exact_number(value) if colon else 1.0


def reference_row(line: bytes) -> tuple[Any, ...] | None:
    """One row; None for a line without one; ValueError for a wrong line."""
    if not line.strip():
        return None
    header, *namespaces = line.split(b"|")
    if not namespaces:
        raise ValueError(line)
    words = header.split()
    tag = b""
    if words and (not header[-1:].isspace() or words[-1].startswith(b"'")):
        tag = words.pop()
    numbers = [exact_number(word) for word in words]
    if not 1 <= len(numbers) <= 3 or (len(numbers) == 3 and numbers[2] != 0):
        raise ValueError(line)
    label = rounded(numbers[0], np.float64)
    importance = rounded(numbers[1], np.float32) if len(numbers) > 1 else 1.0
    if importance < 0:
        raise ValueError(line)
    sums: dict[int, float] = {}
    for text in namespaces:
        words = text.split()
        space, scale = b"", 1.0
        if text and not text[:1].isspace():
            space, scale = reference_word(words.pop(0))
        for word in words:
            name, value = reference_word(word)
            feature = reference_id(space + b"^" + name if space else name)
            sums[feature] = sums.get(feature, 0.0) + rounded(value * scale, np.float32)
    features = [(feature, rounded(value, np.float32)) for feature, value in sorted(sums.items())]
    kept = tuple((feature, value) for feature, value in features if value)
    return label, kept, importance, tag.removeprefix(b"'").decode("utf-8", "backslashreplace"), -1


name = st.text(
    st.characters(codec="utf-8", exclude_characters=":|", exclude_categories=("Z", "C")),
    min_size=1,
    max_size=9,
)
number = st.one_of(
    st.floats(-1e6, 1e6).map(repr),
    st.floats(-1, 1, width=32).map(lambda value: f"{value:.7e}"),
    st.integers(-3, 3).map(str),
    st.sampled_from(["0", "0.0", "1e-50", "0.12345678901234567890123", "1e-30"]),
)
maybe = number.map(lambda text: ":" + text) | st.just("")
feature = st.builds("{}{}".format, name, maybe)


@st.composite
def right_lines(draw: st.DrawFn) -> str:
    line = draw(number)
    if draw(st.booleans()):
        line += " " + draw(st.floats(0, 1e3).map(repr))
        line += draw(st.sampled_from(["", " 0", "  0.0"]))
    line += draw(st.sampled_from([" ", " 'tag ", " tag", " 'tag", "\t"]))
    for _ in range(draw(st.integers(1, 3))):
        space = draw(st.builds("{}{}".format, name, maybe) | st.just(""))
        words = draw(st.lists(feature, max_size=30))
        line += "|" + " ".join([space, *words]) + draw(st.sampled_from(["", " ", "\r"]))
    return line


FRAGMENTS = [
    b"1", b"-1", b" ", b"\n", b"|", b" |", b"| ", b"a", b"bc", b":", b":2", b":0.5", b":nan",
    b"'t", b"'", b" 2 ", b"|f", b"|g:3", b":1e39", b":1e-400", b"\xc3\xa9", b"\xff", b"\t",
    b"1 | ", b"\n2 |x ", b" a:1e30", b":1e300", b"\r", b"\0", b"#", b"17", b"1e999 ",
]  # fmt: skip
mess = st.lists(st.sampled_from(FRAGMENTS), max_size=25).map(b"".join)


@given(st.lists(right_lines(), max_size=5), st.booleans())
@example(["0.0 | 0:0.01312080180977767 0 0"], False)  # summed in double precision
def test_right_lines_match_the_reference(lines: list[str], ended: bool) -> None:
    chunk = "\n".join(lines).encode() + (b"\n" if ended else b"")
    expected, wrong = reference_rows(chunk, reference_row)
    assert wrong == 0
    assert block_rows(parsed(chunk)) == expected


@given(mess | st.binary(max_size=60))
@example(b"1 |f:1e999 a:0\n1 |f:1e999\n")
@example(b"1 |f:1e300 a:1e-300 b:1e10\n")
@example(b"1 | a:3e38 a:3e38\n2 | b\n")
@example(b"1 2 3 4 | a\n1 -1 | a\n1 1 1 | a\n1e999 | a\n1 1e99 | a\n 0 |")
@example(b"1|||a|")
@example(b"\xef\xbb\xbf1 | a")
def test_any_bytes_give_rows_or_an_input_error(chunk: bytes) -> None:
    text = b"   " + chunk[3:] if chunk[:3] == b"\xef\xbb\xbf" else chunk
    expected, wrong = reference_rows(text, reference_row)
    block = parsed(chunk, on_error="skip", keep_names=True)
    assert block_rows(block) == expected
    assert block.skipped == wrong
    if wrong:
        with pytest.raises(InputError, match=r"a\.vw, line \d+: "):
            parsed(chunk)
    try:
        parsed(chunk, hash_bits=None, no_labels=True, on_error="skip")
    except InputError as error:
        assert "pass --hash-bits" in str(error)  # noqa: PT017


@given(
    st.lists(st.tuples(st.integers(0, 40) | st.integers(0, 2**62), st.integers(-2, 2)), max_size=80)
)
def test_integer_names_are_sorted_and_added_up(features: list[tuple[int, int]]) -> None:
    line = "1 | " + " ".join(f"{feature}:{value}" for feature, value in features)
    sums: dict[int, float] = {}
    for number, value in features:
        sums[number] = sums.get(number, 0.0) + value
    (row,) = block_rows(parsed(line.encode(), hash_bits=None))
    assert dict(row[1]) == {number: value for number, value in sums.items() if value}


def test_hash_is_that_of_feature_hasher() -> None:
    rng = np.random.default_rng(2)
    documents = [
        [f"{'é' * int(rng.integers(3))}w{number}" for number in rng.integers(0, 10**6, 200)]
        for _ in range(20)
    ]
    hasher = FeatureHasher(2**18, input_type="string", alternate_sign=False, dtype=np.float32)
    expected = hasher.transform(documents)
    expected.sort_indices()
    text = "\n".join("1 | " + " ".join(words) for words in documents)
    block = parsed(text.encode(), hash_bits=18)
    np.testing.assert_array_equal(block.indptr, expected.indptr)
    np.testing.assert_array_equal(block.ids, expected.indices)
    np.testing.assert_array_equal(block.values, expected.data)


def test_namespaces_prefix_names_and_scale_values() -> None:
    block = parsed(b"1 |f:2 a b:3 |g a:0.5 | c:0 a\n", keep_names=True)
    found = {block.names[feature]: value for feature, value in block_rows(block)[0][1]}
    assert found == {"f^a": 2.0, "f^b": 6.0, "g^a": 0.5, "a": 1.0}


ERRORS = {
    "| word": "there is no label before the first '|'",
    "1| word": "there is no label before the first '|'",
    "1 word": "found no '|' after '1'",
    "yes | word": "label or importance is 'yes'; it must be a number",
    "nan | word": "label or importance is 'nan'; it must be finite",
    "1e999 | word": "label is '1e999'; that is too large",
    "1 1e99 | word": "importance is '1e99'; that is too large",
    "1 -2 | word": "found '-2' before the first '|'; needed are a label",
    "1 2 0 4 | word": "found '4' before the first '|'",
    "1 2 3 | word": "base is '3'; only 0, or no base, is supported",
    "1:0.5 2:1 | word": "label or importance is '1:0.5'; it must be a number",
    "1 | word:nan": "value of feature 'word' is 'nan'; it must be finite",
    "1 | word:": "value of feature 'word' is ''; it must be a number",
    "1 | word:1:2": "value of feature 'word' is '1:2'; it must be a number",
    "1 | word:1e39": "value of feature 'word' is '1e39'; that is too large",
    "1 |f:1e30 a:1e30": "value of feature 'a' is '1e30' times its namespace's '1e30'",
    "1 | a:3e38 a:3e38": "add up to more than float32 holds",
    "1 | :3": "found ':3'; features look like 'name' or 'name:0.5'",
    "1 |f:x a": "found the namespace 'f:x'; one looks like",
    "1 |:2 a": "found the namespace ':2'; one looks like",
}


@pytest.mark.parametrize("line", ERRORS)
def test_errors_name_file_line_and_reason(tmp_path: Path, line: str) -> None:
    options: dict[str, Any] = {"format": "vw", "hash_bits": BITS}
    check_error(tmp_path / "bad.vw", "1 | a", line, ERRORS[line], parse, **options)


@pytest.mark.parametrize("line", ["1 | word", "1 |f 3:1", "1 | 3:1 4x", "1 | -3"])
def test_names_need_hash_bits(line: str) -> None:
    """It is the options that are wrong, not the line, so it is not skipped."""
    with pytest.raises(InputError, match=r"line 2: feature '.*' is not an integer .*--hash-bits"):
        parsed(f"1 | 3:2\n{line}\n".encode(), hash_bits=None, on_error="skip")


def test_integer_ids_have_a_limit() -> None:
    assert parsed(b"1 | 9223372036854775799", hash_bits=None).ids[0] == parsing.MAX_ID
    with pytest.raises(InputError, match="ids must be 9223372036854775799 or less"):
        parsed(b"1 | 9223372036854775800", hash_bits=None)
