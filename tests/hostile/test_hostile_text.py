"""Hostile text: numbers, names and quotes that no parser expects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.hostile_cases import CORPUS, many, only_our_errors
from helpers.line_formats import COMPRESS
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad import ingest
from dadagrad.data import open_dataset
from dadagrad.data.blocks import Block
from dadagrad.data.ingest import columns, svmlight, vw
from dadagrad.data.ingest.delimited import cut_at_rows, read_layout
from dadagrad.data.ingest.files import Range, read_chunks
from dadagrad.data.ingest.options import Options
from dadagrad.errors import DadagradError, InputError

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
    """`text` with some of its bytes replaced by tokens that are hard to parse."""
    out = bytearray(text)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(out)))
        size = draw(st.sampled_from([0, 0, 1, 3, 8]))
        out[at : at + size] = draw(st.sampled_from(TOKENS) | st.binary(max_size=3))
    return bytes(out)


def check_block(block: Block, *, unlabelled: bool = False) -> None:
    """Everything that is done with a block relies on this."""
    assert block.indptr[0] == 0
    assert (np.diff(block.indptr) >= 0).all()
    assert block.indptr[-1] == len(block.ids)
    assert not block.nnz or block.ids.min() >= 0
    assert block.values is None or np.isfinite(block.values).all()
    if block.labels.dtype != object and not unlabelled:
        assert np.isfinite(block.labels).all()


def check_svmlight(data: bytes, on_error: Any, zero_based: bool, multilabel: bool | None) -> None:
    options = Options("svmlight", zero_based=zero_based, multilabel=multilabel, on_error=on_error)
    with only_our_errors():
        check_block(svmlight.parse(data, path="a.svm", offset=0, options=options))


def check_vw(data: bytes, on_error: Any, hashed: bool, unlabelled: bool | None) -> None:
    options: dict[str, Any] = {"hash_bits": 5, "keep_names": True} if hashed else {}
    options |= {"no_labels": bool(unlabelled), "on_error": on_error}
    with only_our_errors():
        block = vw.parse(data, path="a.vw", offset=0, options=Options("vw", **options))
        check_block(block, unlabelled=bool(unlabelled))


def check_csv(data: bytes, on_error: Any, hashed: bool, tabs: bool | None) -> None:
    data = data.replace(b",", b"\t") if tabs else data
    with only_our_errors():
        layout = read_layout("a.csv", data, "\t" if tabs else ",", header=True)
        table = columns.read_table("a.csv", layout, data, 0, 5 if hashed else None)
        for chunk, offset in [(data, 0)] if tabs else cut_at_rows("a.csv", [(data, 0)]):
            options: dict[str, Any] = {"table": table, "on_error": on_error}
            check_block(columns.parse_table(chunk, path="a.csv", offset=offset, **options))


CHECKS = [(check_svmlight, SVMLIGHT), (check_vw, VW), (check_csv, CSV)]
options = (st.sampled_from(["raise", "skip"]), st.booleans(), st.none() | st.booleans())


@pytest.mark.parametrize(("check", "text"), CHECKS)
def test_spoilt_text_gives_sound_blocks_or_an_input_error(check: Any, text: bytes) -> None:
    settings(max_examples=60, deadline=None)(given(spoilt(text), *options)(check))()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("check", "text"), CHECKS)
def test_much_spoilt_text(check: Any, text: bytes) -> None:
    many(given(spoilt(text), *options)(check))()


BROKE = {
    # Python refuses to convert more than 4,300 digits, zeros in front included.
    "zeros.svm": "line 2: feature '0{40}'... comes after '7'",
    # In memory every tag had the width of the longest: these few took 400 GB.
    "tag.vw": "line 20001: tag is .'tttt.*it must have 256 bytes or less",
    # The whole cell was in the message.
    "cell.csv": r"line 3: column 'a' holds '9{60}'\.\.\.; the first rows have numbers",
    "name.csv": r"column 'n{60}'\.\.\. holds 'red', which is not a number",
    "label.tsv": r"line 2: the label, column 0 counted from 0, is 9{60}; every row",
    # Its header asks for 4 GB.
    "dictionary.svm.xz": "the compressed data are damaged .*emory usage limit",
    # The message had several lines.
    "newline.csv": r"column 'a\\nb' holds 'red'",
}


@pytest.mark.parametrize("name", BROKE)
def test_files_that_broke_a_reader_once(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=BROKE[name]), only_our_errors(False):
        ingest(CORPUS / name, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("length", [255, 256])
def test_only_long_tags_are_skipped(length: int) -> None:
    data = b"1 | 1\n1 '" + b"t" * length + b"| 1\n0 | 1\n"
    block = vw.parse(data, path="a.vw", offset=0, options=Options("vw", on_error="skip"))
    assert (block.n_rows, block.skipped) == ((3, 0) if length == 255 else (2, 1))


@pytest.mark.parametrize("kind", ["gz", "xz"])
def test_a_line_without_an_end(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of ones is a kilobyte of gzip: it is an error when the limit is reached."""
    monkeypatch.setattr("dadagrad.data.ingest.files.MAX_LINE_BYTES", 1 << 20)
    (tmp_path / "a").write_bytes(COMPRESS[kind](b"1 1:1\n" + b"1" * (5 << 20)))
    with pytest.raises(InputError, match="a, line 2 is longer than 1048576 bytes"):
        list(read_chunks(Range(str(tmp_path / "a"), 0, None), 1 << 16))


TEXTS = {
    "a.svm": "1 1:1\n0 2:1 # é\n",
    "a.vw": "1 | 1\n0 'é| 2\n",
    "a.csv": "label,é\n1,2\n0,3\n",
    "a.tsv": "1\tgood dáy\n0\tbad day\n",
}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "latin-1", "utf-8-sig"])
@pytest.mark.parametrize("name", TEXTS)
def test_other_encodings_are_read_whole_or_refused(
    name: str, encoding: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(TEXTS[name].encode(encoding))
    try:
        with only_our_errors(False):
            report = ingest(tmp_path / name, str(tmp_path / "out"))
    except DadagradError:
        assert encoding != "utf-8-sig"
        return
    assert report.rows == open_dataset(str(tmp_path / "out")).n_rows == 2
