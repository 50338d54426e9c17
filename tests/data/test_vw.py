"""The Vowpal Wabbit parser against an independent one in plain Python, and scikit-learn's hash."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.feature_extraction import FeatureHasher
from sklearn.utils import murmurhash3_32

from dadagrad.data import parsing
from dadagrad.data.blocks import Block
from dadagrad.data.vw import parse
from dadagrad.errors import InputError

BITS = 12
Row = tuple[float, float, str, dict[int, float]]


def parsed(chunk: bytes, **options: Any) -> Block:
    return parse(chunk, **{"path": "a.vw", "offset": 0, "hash_bits": BITS, **options})


def rows(block: Block) -> list[Row]:
    values = np.ones(block.nnz, np.float32) if block.values is None else block.values
    for start, stop in zip(block.indptr, block.indptr[1:], strict=False):
        assert (np.diff(block.ids[start:stop]) > 0).all()
    return [
        (
            float(block.labels[row, 0]),
            1.0 if block.weights is None else float(block.weights[row]),
            "" if block.tags is None else str(block.tags[row]),
            dict(zip(block.ids[start:stop].tolist(), values[start:stop].tolist(), strict=True)),
        )
        for row, (start, stop) in enumerate(zip(block.indptr, block.indptr[1:], strict=False))
    ]


# --- the reference -----------------------------------------------------------------------------

NUMBER = re.compile(rb"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def reference_number(text: bytes) -> float:
    if not NUMBER.fullmatch(text):
        raise ValueError(text)
    return float(text)


def single(value: float) -> float:
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    if not math.isfinite(rounded):
        raise ValueError(value)
    return rounded


def reference_id(name: bytes) -> int:
    return int(abs(int(murmurhash3_32(name, seed=0))) % 2**BITS)


def reference_word(word: bytes) -> tuple[bytes, float]:
    name, colon, value = word.partition(b":")
    return name, reference_number(value) if colon else 1.0


def reference_line(line: bytes) -> Row | None:
    if not line.strip():
        return None
    header, *namespaces = line.split(b"|")
    if not namespaces:
        raise ValueError(line)
    words = header.split()
    tag = b""
    if words and (not header[-1:].isspace() or words[-1].startswith(b"'")):
        tag = words.pop()
    numbers = [reference_number(word) for word in words]
    if not 1 <= len(numbers) <= 3 or not math.isfinite(numbers[0]):
        raise ValueError(line)
    importance = single(numbers[1]) if len(numbers) > 1 else 1.0
    if importance < 0 or (len(numbers) == 3 and numbers[2] != 0):
        raise ValueError(line)
    sums: dict[int, float] = {}
    for text in namespaces:
        words = text.split()
        space, scale = b"", 1.0
        if text and not text[:1].isspace():
            space, scale = reference_word(words.pop(0))
            if not space:
                raise ValueError(text)
        for word in words:
            name, value = reference_word(word)
            if not name:
                raise ValueError(word)
            feature = reference_id(space + b"^" + name if space else name)
            sums[feature] = sums.get(feature, 0.0) + single(value * scale)
    features = {feature: single(value) for feature, value in sorted(sums.items())}
    kept = {feature: value for feature, value in features.items() if value}
    return numbers[0], importance, tag.removeprefix(b"'").decode("utf-8", "backslashreplace"), kept


def reference(chunk: bytes) -> tuple[list[Row], int]:
    found, wrong = [], 0
    for line in chunk.split(b"\n"):
        try:
            row = reference_line(line)
        except ValueError:
            wrong += 1
            continue
        if row is not None:
            found.append(row)
    return found, wrong


# --- properties --------------------------------------------------------------------------------

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
    *(b"1", b"-1", b" ", b"\n", b"|", b" |", b"| ", b"a", b"bc", b":", b":2", b":0.5", b":nan"),
    *(b"'t", b"'", b" 2 ", b"|f", b"|g:3", b":1e39", b":1e-400", b"\xc3\xa9", b"\xff", b"\t"),
    *(b"1 | ", b"\n2 |x ", b" a:1e30", b":1e300", b"\r", b"\0", b"#", b"17", b"1e999 "),
]
mess = st.lists(st.sampled_from(FRAGMENTS), max_size=25).map(b"".join)


@given(st.lists(right_lines(), max_size=5), st.booleans())
@example(["0.0 | 0:0.01312080180977767 0 0"], False)  # summed in double precision
def test_right_lines_match_the_reference(lines: list[str], ended: bool) -> None:
    chunk = "\n".join(lines).encode() + (b"\n" if ended else b"")
    expected, wrong = reference(chunk)
    assert wrong == 0
    assert rows(parsed(chunk)) == expected


@given(mess | st.binary(max_size=60))
@example(b"1 |f:1e999 a:0\n1 |f:1e999\n")
@example(b"1 |f:1e300 a:1e-300 b:1e10\n")
@example(b"1 | a:3e38 a:3e38\n2 | b\n")
@example(b"1 2 3 4 | a\n1 -1 | a\n1 1 1 | a\n1e999 | a\n1 1e99 | a\n 0 |")
@example(b"1|||a|")
@example(b"\xef\xbb\xbf1 | a")
def test_any_bytes_give_rows_or_an_input_error(chunk: bytes) -> None:
    text = b"   " + chunk[3:] if chunk[:3] == b"\xef\xbb\xbf" else chunk
    expected, wrong = reference(text)
    block = parsed(chunk, on_error="skip", keep_names=True)
    assert rows(block) == expected
    assert block.skipped == wrong
    if wrong:
        with pytest.raises(InputError, match=r"a\.vw, line \d+: "):
            parsed(chunk)
    try:
        parsed(chunk, hash_bits=None, allow_unlabelled=True, on_error="skip")
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
    (row,) = rows(parsed(line.encode(), hash_bits=None))
    assert row[3] == {number: value for number, value in sums.items() if value}
    assert list(row[3]) == sorted(row[3])


def test_hash_is_that_of_feature_hasher() -> None:
    rng = np.random.default_rng(2)
    documents = [
        [f"{'é' * int(rng.integers(3))}w{number}" for number in rng.integers(0, 10**6, 200)]
        for _ in range(20)
    ]
    hasher = FeatureHasher(2**18, input_type="string", alternate_sign=False, dtype=np.float32)
    theirs = hasher.transform(documents)
    theirs.sort_indices()
    text = "\n".join("1 | " + " ".join(words) for words in documents)
    block = parsed(text.encode(), hash_bits=18)
    assert block.indptr.tolist() == theirs.indptr.tolist()
    assert block.ids.tolist() == theirs.indices.tolist()
    assert block.values is not None
    assert block.values.tolist() == theirs.data.tolist()


# --- cases -------------------------------------------------------------------------------------


def test_namespaces_prefix_names_and_scale_values() -> None:
    block = parsed(b"1 |f:2 a b:3 |g a:0.5 | c:0 a\n", keep_names=True)
    found = {block.names[feature]: value for feature, value in rows(block)[0][3].items()}
    assert found == {"f^a": 2.0, "f^b": 6.0, "g^a": 0.5, "a": 1.0}


def test_ones_are_not_stored_and_types() -> None:
    block = parsed(b"1 | a b c\n-1 1 | d\n")
    assert (block.values, block.weights, block.tags) == (None, None, None)
    assert block.labels.tolist() == [[1.0], [-1.0]]
    assert block.labels.dtype == np.float64
    block = parsed(b"1 0.5 'x| a:2\n2 | b\n")
    assert block.values is not None
    assert block.weights is not None
    assert block.tags is not None
    assert block.values.dtype == block.weights.dtype == np.float32
    assert block.weights.tolist() == [0.5, 1.0]
    assert block.tags.tolist() == ["x", ""]


def test_rows_to_predict_need_no_label() -> None:
    block = parsed(b"| a\n'tag | b\n3 | c\n", allow_unlabelled=True)
    assert block.labels[2, 0] == 3
    assert np.isnan(block.labels[:2]).all()
    assert block.tags is not None
    assert block.tags.tolist() == ["", "tag", ""]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("| word", "there is no label before the first '|'"),
        ("1| word", "there is no label before the first '|'"),
        ("1 word", "found no '|' after '1'"),
        ("yes | word", "label or importance is 'yes'; it must be a number"),
        ("nan | word", "label or importance is 'nan'; it must be finite"),
        ("1e999 | word", "label is '1e999'; that is too large"),
        ("1 1e99 | word", "importance is '1e99'; that is too large"),
        ("1 -2 | word", "found '-2' before the first '|'; needed are a label"),
        ("1 2 0 4 | word", "found '4' before the first '|'"),
        ("1 2 3 | word", "base is '3'; only 0, or no base, is supported"),
        ("1:0.5 2:1 | word", "label or importance is '1:0.5'; it must be a number"),
        ("1 | word:nan", "value of feature 'word' is 'nan'; it must be finite"),
        ("1 | word:", "value of feature 'word' is ''; it must be a number"),
        ("1 | word:1:2", "value of feature 'word' is '1:2'; it must be a number"),
        ("1 | word:1e39", "value of feature 'word' is '1e39'; that is too large"),
        ("1 |f:1e30 a:1e30", "value of feature 'a' is '1e30' times its namespace's '1e30'"),
        ("1 | a:3e38 a:3e38", "add up to more than float32 holds"),
        ("1 | :3", "found ':3'; features look like 'name' or 'name:0.5'"),
        ("1 |f:x a", "found '|f:x'; a namespace looks like"),
        ("1 |:2 a", "found '|:2'; a namespace looks like"),
    ],
)
def test_errors_name_file_line_and_reason(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "bad.vw"
    before = "1 | a\n\n" * 10
    path.write_text(f"{before}1 | b\n{line}\n1 | c\n")
    chunk = path.read_bytes()[len(before) :]
    options: dict[str, Any] = {"path": str(path), "offset": len(before), "hash_bits": BITS}
    with pytest.raises(InputError, match=re.escape("bad.vw, line 22: ")) as caught:
        parse(chunk, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    block = parse(chunk, on_error="skip", **options)
    assert (block.n_rows, block.skipped, block.nnz) == (2, 1, 2)


@pytest.mark.parametrize("line", ["1 | word", "1 |f 3:1", "1 | 3:1 4x", "1 | -3"])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_names_need_hash_bits(line: str, on_error: str) -> None:
    with pytest.raises(InputError, match=r"line 2: feature '.*' is not an integer .*--hash-bits"):
        parsed(f"1 | 3:2\n{line}\n".encode(), hash_bits=None, on_error=on_error)


def test_integer_ids_have_a_limit() -> None:
    assert parsed(b"1 | 9223372036854775799", hash_bits=None).ids[0] == parsing.LARGEST_ID
    with pytest.raises(InputError, match="ids must be 9223372036854775799 or less"):
        parsed(b"1 | 9223372036854775800", hash_bits=None)


@pytest.mark.parametrize("bits", [0, -1, 32])
def test_hash_bits_have_limits(bits: int) -> None:
    with pytest.raises(InputError, match=f"hash_bits is {bits}; it must be 1 to 31"):
        parsed(b"1 | a", hash_bits=bits)


def test_parsing_compiles_once() -> None:
    parsed(b"1 | a b\n")
    before = len(parsing.vw_rows.signatures)
    parsed(b"1 | 3:2 1 4:5\n", hash_bits=None, on_error="skip", allow_unlabelled=True)
    assert len(parsing.vw_rows.signatures) == before == 1
