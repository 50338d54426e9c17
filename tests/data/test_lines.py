"""The parsers of svmlight and Vowpal Wabbit against parsers in plain Python and scikit-learn."""

import io
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.blocks import block_rows
from helpers.line_formats import TOKENS, check_error, exact_number, reference_rows, rounded
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from sklearn.utils import murmurhash3_32

from dadagrad import InputError
from dadagrad.data.ingest import svmlight, vw
from dadagrad.data.reading.options import Options
from dadagrad.kernels import parsing

BITS = 12


def svm(chunk, **options):
    return svmlight.parse(chunk, path="a.svm", offset=0, options=Options("svmlight", **options))


def wabbit(chunk, **options):
    options = {"hash_bits": BITS} | options
    return vw.parse(chunk, path="a.vw", offset=0, options=Options("vw", **options))


def same_bits(left, right):
    return struct.pack("d", left) == struct.pack("d", right)


# --- references: a row, None for a line without one, ValueError for a wrong line


def svm_row(line):
    words = re.split(rb"[ \t\v\f\r]+", line.partition(b"#")[0].strip(b" \t\v\f\r"))
    if words == [b""]:
        return None
    label = exact_number(words[0], np.float64)
    features = {}
    query = last = -1
    for word in words[1:]:
        name, colon, value = word.partition(b":")
        digits = value if name == b"qid" else name
        if not colon or not re.fullmatch(rb"[0-9]+", digits):
            raise ValueError(word)
        id_ = int(digits.lstrip(b"0") or b"0")  # Python converts 4,300 digits at most
        if id_ > parsing.MAX_ID or ((query >= 0) if name == b"qid" else id_ <= last):
            raise ValueError(word)
        if name == b"qid":
            query = id_
        else:
            features[id_], last = exact_number(value, np.float32), id_
    return label, tuple(features.items()), 1.0, "", query


def svm_rows(chunk):
    rows, wrong = reference_rows(chunk, svm_row)
    queried = [row for row in rows if row[-1] >= 0]
    return (queried, wrong + len(rows) - len(queried)) if queried else (rows, wrong)


def scaled_word(word):
    name, colon, value = word.partition(b":")
    if not name:
        raise ValueError(word)
    return name, exact_number(value) if colon else 1.0


def vw_row(line):
    if not line.strip():
        return None
    header, *namespaces = line.split(b"|")
    words = header.split()
    tag = b""
    if words and (not header[-1:].isspace() or words[-1].startswith(b"'")):
        tag = words.pop()
    numbers = [exact_number(word) for word in words]
    if not namespaces or not 1 <= len(numbers) <= 3 or (len(numbers) == 3 and numbers[2] != 0):
        raise ValueError(line)
    label = rounded(numbers[0], np.float64)
    importance = rounded(numbers[1], np.float32) if len(numbers) > 1 else 1.0
    if importance < 0:
        raise ValueError(line)
    sums = {}
    for text in namespaces:
        words = text.split()
        space, scale = b"", 1.0
        if text and not text[:1].isspace():
            space, scale = scaled_word(words.pop(0))
        for word in words:
            name, value = scaled_word(word)
            full_name = space + b"^" + name if space else name
            feature = int(abs(int(murmurhash3_32(full_name, seed=0))) % 2**BITS)
            sums[feature] = sums.get(feature, 0.0) + rounded(value * scale, np.float32)
    features = [(feature, rounded(value, np.float32)) for feature, value in sorted(sums.items())]
    kept = tuple((feature, value) for feature, value in features if value)
    return label, kept, importance, tag.removeprefix(b"'").decode("utf-8", "backslashreplace"), -1


Reference = Callable[[bytes], tuple[list[tuple[Any, ...]], int]]
PARSERS = {"a.svm": (svm, svm_rows), "a.vw": (wabbit, lambda chunk: reference_rows(chunk, vw_row))}

# --- text

decimal = st.from_regex(r"[+-]?([0-9]{1,22}\.?[0-9]{0,22}|\.[0-9]{1,22})([eE][+-]?[0-9]{1,2})?",
                        fullmatch=True).filter(str.isascii)  # fmt: skip
number = st.one_of(
    st.floats(-1e9, 1e9, width=32).map(repr),
    st.floats(-1e19, 1e19).map(repr),
    st.floats(-1, 1).map(lambda value: f"{value:.17g}"),
    st.integers(-9, 9).map(str),
    st.sampled_from(["0.0", "1e-50", "0.12345678901234567890123", "1e-30"]),
    decimal.filter(lambda text: abs(float(text)) < 1e19),
)
ids = st.sets(st.integers(0, 10**18) | st.integers(0, 50), max_size=6).map(sorted)
name = st.text(
    st.characters(codec="utf-8", exclude_characters=":|", exclude_categories=("Z", "C")),
    min_size=1,
    max_size=9,
)
word = st.builds("{}{}".format, name, number.map(lambda text: ":" + text) | st.just(""))


@st.composite
def svm_lines(draw):
    words = [draw(number), *(f"{feature}:{draw(number)}" for feature in draw(ids))]
    line = "".join(word + draw(st.text(" \t", min_size=1, max_size=2)) for word in words)
    return draw(st.sampled_from(["", " "])) + line + draw(st.sampled_from(["", "# 1:2, x", "\r"]))


@st.composite
def vw_lines(draw):
    line = draw(number)
    if draw(st.booleans()):
        line += " " + draw(st.floats(0, 1e3).map(repr))
        line += draw(st.sampled_from(["", " 0", "  0.0"]))
    line += draw(st.sampled_from([" ", " 'tag ", " tag", " 'tag", "\t"]))
    for _ in range(draw(st.integers(1, 3))):
        words = draw(st.lists(word, max_size=30))
        line += "|" + " ".join([draw(word | st.just("")), *words])
        line += draw(st.sampled_from(["", " ", "\r"]))
    return line


FRAGMENTS = {
    "a.svm": [
        b"1", b"-1", b"0", b" ", b"  ", b"\n", b"\r\n", b":", b"3:1", b"4:0.5", b"7:1e5", b"nan",
        b"inf", b",", b"#", b"qid:", b"qid:3", b"q", b"1e", b".", b"+", b"-", b"5:1e-400",
        b"6:1e39", b"0:1", b"1.5", b"\t", b"\0", b"9:0.1234567890123456789012",
        b"4611686018427387899:1", b"4611686018427387900:1", b"\xff",
    ],
    "a.vw": [
        b"1", b"-1", b" ", b"\n", b"|", b" |", b"| ", b"a", b"bc", b":", b":2", b":0.5", b":nan",
        b"'t", b"'", b" 2 ", b"|f", b"|g:3", b":1e39", b":1e-400", b"\xc3\xa9", b"\xff", b"\t",
        b"1 | ", b"\n2 |x ", b" a:1e30", b":1e300", b"\r", b"\0", b"#", b"17", b"1e999 ",
    ],
}  # fmt: skip


def chunks(kind, lines):
    """Right lines, lines of fragments, and any bytes."""
    fragments = st.sampled_from(FRAGMENTS[kind]) | st.sampled_from(TOKENS)
    right = st.lists(lines.map(str.encode), max_size=5).map(b"\n".join)
    spoilt = st.lists(fragments, max_size=25).map(b"".join) | st.binary(max_size=60)
    chunks = right | spoilt | st.tuples(right, spoilt).map(b"\n".join)
    wide = b"\xff\xfe", b"\xfe\xff"  # UTF-16 is refused as a whole
    return chunks.filter(lambda chunk: b"\0" not in chunk[:4] and not chunk.startswith(wide))


def check_rows(kind, chunk):
    parse, reference = PARSERS[kind]
    expected, wrong = reference(b"   " + chunk[3:] if chunk[:3] == b"\xef\xbb\xbf" else chunk)
    block = parse(chunk, on_error="skip")
    assert (block_rows(block), block.skipped) == (expected, wrong)
    if wrong:
        with pytest.raises(InputError, match=rf"{kind}, line \d+: "):
            parse(chunk)
    else:
        rows = block_rows(parse(chunk))
        assert rows == expected
        assert all(same_bits(a[0], b[0]) for a, b in zip(rows, expected, strict=True))


@given(chunks("a.svm", svm_lines()))
@example(b"\xef\xbb\xbf1 2:3\n")
@example(b"1 q")
@example(b"1 qid:3 1:1\n1 1:1\n1 3:1 qid:4")
@example(b"1 1:1e400 2:1e400\n1e400 1:1\n2 3:4")
@example(b"1 00000000000000000000000000003:1")
def test_any_bytes_of_svmlight_give_rows_or_an_input_error(chunk):
    check_rows("a.svm", chunk.replace(b",", b""))
    for multilabel in (True, False):
        block = svm(chunk, on_error="skip", multilabel=multilabel)
        assert len(block.labels) == block.n_rows
        assert block.nnz == block.indptr[-1]


@given(chunks("a.vw", vw_lines()))
@example(b"1 |f:1e999 a:0\n1 |f:1e999\n")
@example(b"1 |f:1e300 a:1e-300 b:1e10\n")
@example(b"1 | a:3e38 a:3e38\n2 | b\n")
@example(b"1 2 3 4 | a\n1 -1 | a\n1 1 1 | a\n1e999 | a\n1 1e99 | a\n 0 |")
@example(b"1|||a|")
@example(b"0.0 | 0:0.01312080180977767 0 0")  # summed in double precision
@example(b"\xef\xbb\xbf1 | a")
def test_any_bytes_of_vw_give_rows_or_an_input_error(chunk):
    check_rows("a.vw", chunk)
    wabbit(chunk, on_error="skip", keep_names=True)
    try:
        wabbit(chunk, hash_bits=None, no_labels=True, on_error="skip")
    except InputError as error:
        assert "pass hash_bits=" in str(error)  # noqa: PT017


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
def test_numbers_are_exact(text):
    block = svm(f"{text} 1:{text}".encode(), on_error="skip")
    if block.n_rows:
        assert same_bits(block.labels[0, 0], float(text))
        assert same_bits(block.values[0], np.float32(float(text)))
    else:
        assert abs(float(text)) > 3.4e38


def test_sixteen_and_seventeen_digits_are_exact():
    numbers = np.random.default_rng(5).random(20_000)
    texts = [f"{number:.{digits}g}" for number in numbers for digits in (16, 17)]
    assert svm("\n".join(texts).encode()).labels[:, 0].tolist() == [float(text) for text in texts]


# --- scikit-learn


def test_svmlight_agrees_with_scikit_learn():
    rng = np.random.default_rng(3)
    matrix = rng.standard_normal((40, 30)) * (rng.random((40, 30)) < 0.2)
    target, groups = rng.standard_normal(40), np.sort(rng.integers(0, 5, 40))
    file = io.BytesIO()
    dump_svmlight_file(matrix, target, file, query_id=groups, comment="x")
    block = svm(file.getvalue())
    file.seek(0)
    expected, *columns = load_svmlight_file(file, n_features=30, zero_based=True, query_id=True)
    np.testing.assert_array_equal(block.indptr, expected.indptr)
    np.testing.assert_array_equal(block.ids, expected.indices)
    np.testing.assert_array_equal(block.values, expected.data.astype(np.float32))
    np.testing.assert_array_equal([block.labels[:, 0], block.queries], columns)


# --- special content


def test_lists_of_labels_are_texts():
    assert svm(b"1,3 4:1.0\n2 5:1\n").labels.tolist() == ["1,3", "2"]
    block = svm(b"\n 4:1.0\n2,3#x\nqid:1 3:1", multilabel=True, on_error="skip")
    assert (block.labels.tolist(), block.skipped) == ([""], 2)


def test_names_of_hashed_features_have_their_namespace():
    block = wabbit(b"1 |f:2 a b:3 |g a:0.5 | c:0 a\n", keep_names=True)
    values = dict(block_rows(block)[0][1])
    ((names, ids),) = block.names
    pairs = zip(names.to_pylist(), ids.tolist(), strict=True)
    found = {name: values[id] for name, id in pairs if id in values}
    assert found == {"f^a": 2.0, "f^b": 6.0, "g^a": 0.5, "a": 1.0}


def test_names_that_are_integers_are_ids():
    largest = parsing.MAX_ID
    (row,) = block_rows(wabbit(b"1 | 7:2 %d 3:1 7:-1 3:-1" % largest, hash_bits=None))
    assert row[1] == ((7, 1.0), (largest, 1.0))
    (row,) = block_rows(wabbit(b"1 |f 7:2 |f 3:1", hash_bits=None))
    assert row[1] == ((3, 1.0), (7, 2.0))


ERRORS = {
    "a.svm": {
        "3:1 4:1": "starts with '3:1'; a line must start with its label, a number (rows with sets "
        "of labels, which may be empty, are read with multilabel=True",
        "qid:3 4:1": "starts with 'qid:3'; a line must start with its label",
        "yes 4:1": "label is 'yes'; it must be a number",
        "-INF": "label is '-INF'; it must be finite",
        "1e999 4:1": "label is '1e999'; that is too large",
        "1,x 4:1": "label is 'x'; it must be a number",
        "1,1e999 4:1": "label is '1,1e999'; every label must be finite",
        "1 4:nan": "value of feature '4' is 'nan'; it must be finite",
        "1 4:1e39": "value of feature '4' is '1e39'; that is too large",
        "1 4:": "value of feature '4' is ''; it must be a number",
        "1 4:0x10": "value of feature '4' is '0x10'; it must be a number",
        "1 -4:1": "found '-4:1'; features look like 3:0.5, with white space between and ids from 0",
        "1 4611686018427387900:1": "feature id is '4611686018427387900'; ids must be "
        "4611686018427387899 or less",
        "1 4": "found '4'; features look like 3:0.5",
        "1 5:1 4:1": "feature '4' comes after '5'; the ids of a line must increase",
        "1 5:1 5:1": "feature '5' comes after '5'",
        "1 0:1": "feature id is 0 in a file read as one-based",
        "1 qid:x 4:1": "found 'qid:x'; 'qid:' must come once",
        "1 qid:1 qid:2": "found 'qid:2'; 'qid:' must come once",
        "1 " + "x" * 100: "found '" + "x" * 40 + "'...;",
    },
    "a.vw": {
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
        "1 | word:nan": "value of feature 'word' is 'nan'; it must be finite",
        "1 | word:1e39": "value of feature 'word' is '1e39'; that is too large",
        "1 |f:1e30 a:1e30": "value of feature 'a' is '1e30' times its namespace's '1e30'",
        "1 | a:3e38 a:3e38": "add up to more than float32 holds",
        "1 | :3": "found ':3'; features look like 'name' or 'name:0.5'",
        "1 |f:x a": "found the namespace 'f:x'; one looks like",
    },
}


@pytest.mark.parametrize(
    ("kind", "line"), [(kind, line) for kind in ERRORS for line in ERRORS[kind]]
)
def test_errors_name_file_line_and_reason(tmp_path, kind, line):
    options = {"format": "vw", "hash_bits": BITS}
    right, parse = "1 | a", vw.parse
    if kind == "a.svm":
        options = {"format": "svmlight", "zero_based": False}
        right, parse = "1 2:3", svmlight.parse
    check_error(tmp_path / kind, right, line, ERRORS[kind][line], parse, **options)


@pytest.mark.parametrize("line", ["1 | word", "1 |f 3:1", "1 | 3:1 4x", "1 | -3"])
def test_names_need_hash_bits(line):
    """It is the options that are wrong, not the line, so it is not skipped."""
    with pytest.raises(
        InputError, match=r"line 2: feature '.*' is not an integer .*hash_bits= .* tra"
    ):
        wabbit(f"1 | 3:2\n{line}\n".encode(), hash_bits=None, on_error="skip")
    with pytest.raises(InputError, match="ids must be 4611686018427387899 or less"):
        wabbit(b"1 | 4611686018427387900", hash_bits=None)


def test_the_first_wrong_line_is_reported():
    with pytest.raises(InputError, match="line 2: value of feature '2' is '1e999'"):
        svm(b"1 2:1\n1 2:1e999\nx 3:1\n")
    with pytest.raises(InputError, match="line 3: no 'qid:'"):
        svm(b"1 qid:1 2:1\n\n1 2:1\n")


def test_each_format_compiles_once():
    svm(b"1 2:3\n")
    svm(b"1,2 2:3 4:1\nx", on_error="skip", zero_based=False)
    wabbit(b"1 | a b\n")
    wabbit(b"1 | 3:2 1 4:5\n", hash_bits=None, on_error="skip", no_labels=True)
    assert len(parsing.rows.signatures) == 2
