"""References and checks for parsers of text, and the compressions of text files."""

import bz2
import gzip
import lzma
import math
import re

import numpy as np
import pytest
import zstandard

from dadagrad import InputError
from dadagrad.data.reading.options import Options

COMPRESS = {
    "gz": lambda content: gzip.compress(content, 1),
    "bz2": bz2.compress,
    "xz": lambda content: lzma.compress(content, preset=0),
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
TOKENS = [
    b"1e400", b"-1e400", b"1e-400", b"5e-324", b"1e99999999999", b"0x10", b"1_0", b"nan", b"inf",
    b"9" * 30, b"9" * 5000, b"0" * 5000 + b"5", b"9223372036854775807", b"4611686018427387899",
    b"18446744073709551616", b"-1", b".", b"+", b"-", b"1.", b"e5", b"1e", b"1:1:1",
    b"qid:", b"qid:9223372036854775808", b"qid:-1", b"qid:0", b"#", b"|", b":", b",", b"'", b'"',
    b'"""', b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\t", b" ", b"\x0b", b"\x1c",
    b"\xd9\xa1\xd9\xa2", b"\xef\xbc\x91", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"a" * 300,
    b"'" + b"t" * 300 + b"|", b"|a:1e30 b:1e30", b"|a:1e400",
]  # fmt: skip
"""Tokens that are hard to parse."""
NUMBER = re.compile(rb"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def rounded(value, kind):
    """`value` in another precision; ValueError if it is not finite there."""
    with np.errstate(over="ignore"):
        result = float(kind(value))
    if not math.isfinite(result):
        raise ValueError(value)
    return result


def exact_number(text, kind=None):
    """The number in `text`; ValueError if it is none, or not finite as a number of `kind`."""
    if not NUMBER.fullmatch(text):
        raise ValueError(text)
    return float(text) if kind is None else rounded(float(text), kind)


def reference_rows(chunk, row_of):
    """Rows of the right lines, and the number of wrong lines, for which `row_of` raises."""
    rows, wrong = [], 0
    for line in chunk.split(b"\n"):
        try:
            row = row_of(line)
        except ValueError:
            wrong += 1
            continue
        if row is not None:
            rows.append(row)
    return rows, wrong


def check_error(path, right, line, message, parse, **options):
    """Check that a wrong `line` between right ones is named, and that it can be skipped."""
    before = f"{right}\n\n" * 10
    path.write_text(f"{before}{right}\n{line}\n{right}\n")
    chunk = path.read_bytes()[len(before) :]  # it starts in the middle of its file
    place = {"path": str(path), "offset": len(before)}
    with pytest.raises(InputError, match=re.escape(f"{path.name}, line 22: ")) as caught:
        parse(chunk, options=Options(**options), **place)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    block = parse(chunk, options=Options(**options, on_error="skip"), **place)
    assert (block.n_rows, block.skipped, block.nnz) == (2, 1, 2)
