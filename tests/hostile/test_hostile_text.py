"""Text that means harm: numbers, names and quotes that no parser expects."""

from __future__ import annotations

import csv
import gzip
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hostile_cases import CORPUS, only_our_errors
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dadagrad import ingest
from dadagrad.data import csv_table, svmlight, vw
from dadagrad.data.blocks import Block
from dadagrad.data.dataset import open_dataset
from dadagrad.data.delimited import Problems, parse_rows, read_layout
from dadagrad.data.sources import plan_ranges, read_chunks
from dadagrad.errors import DadagradError, InputError

SLOW = settings(
    max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck), derandomize=False
)
TOKENS = [
    b"1e400", b"-1e400", b"1e-400", b"5e-324", b"1e99999999999", b"0x10", b"1_0", b"nan", b"inf",
    b"9" * 30, b"9" * 5000, b"0" * 5000 + b"5", b"9223372036854775807", b"9223372036854775799",
    b"18446744073709551616", b"-1", b".", b"+", b"-", b"1.", b"e5", b"1e", b"1:1:1",
    b"qid:", b"qid:9223372036854775808", b"qid:-1", b"qid:0", b"#", b"|", b":", b",", b"'", b'"',
    b'"""', b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\t", b" ", b"\x0b", b"\x1c",
    b"\xd9\xa1\xd9\xa2", b"\xef\xbc\x91", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"a" * 300,
    b"'" + b"t" * 300 + b"|", b"|a:1e30 b:1e30", b"|a:1e400",
]  # fmt: skip
SVMLIGHT = b"1 1:0.5 3:2 7:1e-3\n-1 qid:3 2:1 5:-4.25 # c\n1,2 1:1\n0 4:1\n"
VW = b"1 | 1:0.5 3 7:2\n-1 0.5 'tag| 4:1\n1 2 'a|ns:2 x:1 y z:0.1 |b w\n"
CSV = b'label,a,b\n1,2,3\n0,,1e3\n1,"4",5\n'


@st.composite
def spoilt(draw: st.DrawFn, text: bytes) -> bytes:
    """`text` with some of its bytes replaced by what parsers stumble over."""
    out = bytearray(text)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(out)))
        size = draw(st.sampled_from([0, 0, 1, 3, 8]))
        out[at : at + size] = draw(st.sampled_from(TOKENS) | st.binary(max_size=3))
    return bytes(out)


def check_block(block: Block, *, unlabelled: bool = False) -> None:
    """What is done with a block relies on this."""
    assert block.indptr[0] == 0
    assert (np.diff(block.indptr) >= 0).all()
    assert block.indptr[-1] == len(block.ids)
    assert not block.nnz or block.ids.min() >= 0
    assert block.values is None or np.isfinite(block.values).all()
    if block.labels.dtype != object and not unlabelled:
        assert np.isfinite(block.labels).all()


def check_svmlight(data: bytes, skip: bool, zero_based: bool, multilabel: bool | None) -> None:
    with only_our_errors():
        block = svmlight.parse(
            data,
            path="a.svm",
            offset=0,
            zero_based=zero_based,
            on_error="skip" if skip else "raise",
            multilabel=multilabel,
        )
        check_block(block)


def check_vw(data: bytes, skip: bool, hashed: bool, unlabelled: bool) -> None:
    with only_our_errors():
        block = vw.parse(
            data,
            path="a.vw",
            offset=0,
            hash_bits=5 if hashed else None,
            on_error="skip" if skip else "raise",
            keep_names=hashed,
            allow_unlabelled=unlabelled,
        )
        check_block(block, unlabelled=unlabelled)


def check_csv(data: bytes, skip: bool, hashed: bool, tabs: bool) -> None:
    data = data.replace(b",", b"\t") if tabs else data
    with only_our_errors():
        try:
            layout = read_layout("a.csv", data, None, header=True)
            sample = data.decode("utf-8", "replace")
            table = csv_table.read_table("a.csv", layout, sample, 0, 5 if hashed else None)
        except csv.Error:  # becomes an error of ours where these two are called
            return
        on_error: Any = "skip" if skip else "raise"
        block = csv_table.parse(data, path="a.csv", offset=0, table=table, on_error=on_error)
        check_block(block)
        parse_rows(Problems(data, "a.csv", 0, on_error), layout)


@given(spoilt(SVMLIGHT), st.booleans(), st.booleans(), st.none() | st.booleans())
@settings(max_examples=60)
@example(b"1 7:1 " + b"0" * 5000 + b"5:1\n", False, True, None)
def test_svmlight(data: bytes, skip: bool, zero_based: bool, multilabel: bool | None) -> None:
    check_svmlight(data, skip, zero_based, multilabel)


@given(spoilt(VW), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=60)
def test_vw(data: bytes, skip: bool, hashed: bool, unlabelled: bool) -> None:
    check_vw(data, skip, hashed, unlabelled)


@given(spoilt(CSV), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=50)
def test_csv(data: bytes, skip: bool, hashed: bool, tabs: bool) -> None:
    check_csv(data, skip, hashed, tabs)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("check", "text"), [(check_svmlight, SVMLIGHT), (check_vw, VW), (check_csv, CSV)]
)
def test_a_great_many(check: Any, text: bytes) -> None:
    SLOW(given(spoilt(text), st.booleans(), st.booleans(), st.booleans())(check))()


BROKE = {
    # Python refuses to make a number of more than 4,300 digits, zeros in front included.
    "zeros.svm": "line 2: feature 5 comes after 7",
    # Rows on their way had the width of the longest tag: these few took 400 GB.
    "tag.vw": "line 20001: tag is .'tttt.*it must have 256 bytes or less",
    # The whole cell was in the message.
    "cell.csv": r"line 3: column 'a' holds '9{60}'\.\.\.; the first rows have numbers",
    "name.csv": r"column 'n{60}'\.\.\. holds 'red', which is not a number",
    "label.tsv": r"line 2: the label, column 0 counted from 0, is 9{60}; every row",
    # One that claims 4 GB in its header.
    "dictionary.svm.xz": "the xz data are damaged .*emory usage limit",
    # A message of several lines.
    "newline.csv": r"column 'a\\nb' holds 'red'",
}


@pytest.mark.parametrize("name", BROKE)
def test_what_broke(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=BROKE[name]), only_our_errors(False):
        ingest(CORPUS / name, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_long_tags_are_skipped_where_errors_are(tmp_path: Path) -> None:
    (tmp_path / "a.vw").write_bytes(
        b"1 | 1\n1 '" + b"t" * 257 + b"| 1\n0 '" + b"u" * 255 + b"| 1\n"
    )
    report = ingest(tmp_path / "a.vw", str(tmp_path / "out"), on_error="skip")
    assert (report.examples, report.skipped) == (2, 1)


@pytest.mark.parametrize("kind", ["gz", "zst", "xz", "plain"])
def test_a_line_without_an_end(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of zeros is a kilobyte of gzip: it must be noticed when the limit is reached."""
    monkeypatch.setattr("dadagrad.data.sources.MAX_LINE_BYTES", 1 << 20)
    zeros = b"1 1:1\n" + b"1" * (30 << 20)
    compress: Any = {
        "gz": lambda data: gzip.compress(data, 1),
        "zst": zstandard.ZstdCompressor().compress,
        "xz": lambda data: lzma.compress(data, preset=0),
        "plain": lambda data: data,
    }[kind]
    (tmp_path / "a").write_bytes(compress(zeros))
    (source, *_) = plan_ranges(str(tmp_path / "a"), 1 << 30)
    with pytest.raises(InputError, match="a, line 2 is longer than 1048576 bytes"):
        list(read_chunks(source, 1 << 16))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig"])
@pytest.mark.parametrize("name", ["a.svm", "a.vw", "a.csv", "a.tsv"])
def test_other_encodings(name: str, encoding: str, tmp_path: Path) -> None:
    text = {
        "a.svm": "1 1:1\n0 2:1 # é\n",
        "a.vw": "1 | 1\n0 'é| 2\n",
        "a.csv": "label,é\n1,2\n0,3\n",
        "a.tsv": "1\tgood dáy\n0\tbad day\n",
    }[name]
    (tmp_path / name).write_bytes(text.encode(encoding))
    try:
        with only_our_errors(False):
            report = ingest(tmp_path / name, str(tmp_path / "out"))
    except DadagradError:
        return
    assert report.examples == 2
    assert open_dataset(str(tmp_path / "out")).n_rows == 2


@pytest.mark.parametrize("name", ["a.svm", "a.vw", "a.csv", "a.tsv"])
def test_nul_bytes(name: str, tmp_path: Path) -> None:
    text = {
        "a.svm": b"1 1:1\n0 2:1\0\n",
        "a.vw": b"1 | 1\n0 | 2\0\n",
        "a.csv": b"label,a\n1,2\n0,3\0\n",
        "a.tsv": b"1\tgood day\n0\0\tbad day\n",
    }[name]
    (tmp_path / name).write_bytes(text)
    with only_our_errors():
        report = ingest(tmp_path / name, str(tmp_path / "out"))
        assert name in ("a.tsv", "a.vw")
        assert report.examples == 2
