"""Text files in chunks: every line exactly once, from any kind of file, damaged ones named."""

import gzip
import io
import lzma
import os
import pickle
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest
from helpers.line_formats import COMPRESS
from hypothesis import given
from hypothesis import strategies as st

from dadagrad import InputError
from dadagrad.data.reading import files
from dadagrad.data.reading.files import Range, place, plan_ranges, read_chunks
from dadagrad.data.reading.names import guess_format
from dadagrad.storage.files import SourceFile


def ranges(path, *range_bytes):
    return plan_ranges(SourceFile(str(path)), *range_bytes)


def whole(path):
    """A range that is read in order."""
    return Range(SourceFile(str(path)), 0, None)


def incompressible_lines(n):
    return b"".join(b"%d %d\n" % (i, i * 2654435761 % 2**61) for i in range(n))


@given(
    lines=st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"x")), max_size=30),
    ended=st.booleans(),
    range_bytes=st.integers(1, 40),
    chunk_bytes=st.integers(1, 30),
)
def test_ranges_cover_every_line_once(tmp_path_factory, lines, ended, range_bytes, chunk_bytes):
    text = b"-" + b"\n".join(lines) + (b"\n" if ended else b"")  # "-" begins no compressed file
    path = tmp_path_factory.mktemp("text") / "lines"
    path.write_bytes(text)
    joined = b""
    for source in ranges(path, range_bytes):
        for number, (chunk, offset) in enumerate(read_chunks(source, chunk_bytes)):
            assert offset == len(joined)
            assert number > 0 or source.start <= offset < source.stop
            joined += chunk
            assert chunk.endswith(b"\n") or joined == text
    assert joined == text


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compression_is_recognised_by_content_and_streams_are_joined(tmp_path, suffix):
    first, last = incompressible_lines(20_000), b"no newline at the end\r"
    text = first + last
    path = tmp_path / "misleading.txt"
    compress = COMPRESS[suffix]
    path.write_bytes(compress(first[:100_000]) + compress(first[100_000:] + last))
    (source,) = ranges(path, 100)
    assert source == whole(path)
    chunks = list(read_chunks(source, 10_000))
    assert b"".join(chunk for chunk, _ in chunks) == text
    assert all(text[offset : offset + len(chunk)] == chunk for chunk, offset in chunks)
    assert 5000 < max(len(chunk) for chunk, _ in chunks) <= 10_000
    assert str(place(str(path), b"", text.index(b"\n777 ") + 1, 0)) == f"{path}, line 778"


def test_an_xz_file_may_end_in_zeros(tmp_path):
    (tmp_path / "a.xz").write_bytes(lzma.compress(b"one\n") + bytes(512) + lzma.compress(b"two"))
    chunks = read_chunks(whole(tmp_path / "a.xz"), 99)
    assert b"".join(chunk for chunk, _ in chunks) == b"one\ntwo"


def test_a_chunk_grows_for_a_long_line_up_to_a_limit(tmp_path, monkeypatch):
    path = tmp_path / "long"
    path.write_bytes(b"short\n" + b"x" * 10_000 + b"\nlast")
    chunks = list(read_chunks(whole(path), 100))
    assert [(len(chunk), offset) for chunk, offset in chunks] == [(6, 0), (10_001, 6), (4, 10_007)]
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 5000)
    with pytest.raises(InputError, match=r"long, line 2 is longer than 5000 bytes"):
        list(read_chunks(whole(path), 100))


def test_empty_files_have_no_chunks(tmp_path):
    path = tmp_path / "empty"
    path.touch()
    assert ranges(path) == []
    path.write_bytes(gzip.compress(b""))
    assert [list(read_chunks(source, 100)) for source in ranges(path)] == [[]]


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*nowhere: No such file"):
        ranges(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"cannot read .*nowhere: No such file"):
        list(read_chunks(whole(tmp_path / "nowhere"), 100))
    with pytest.raises(InputError, match="Is a directory"):
        ranges(tmp_path)


def test_a_compressed_pipe_is_streamed(tmp_path):
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    (source,) = ranges(path)
    text = incompressible_lines(1000)
    writer = threading.Thread(target=Path(path).write_bytes, args=(gzip.compress(text),))
    writer.start()
    assert b"".join(chunk for chunk, _ in read_chunks(source, 1000)) == text
    writer.join()
    # It cannot be read again to count lines: the message has the byte instead.
    assert str(place(path, b"ab\ncd", 7, 3)) == f"{path}, line at byte 10"


def test_place_counts_lines_of_the_whole_file(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb\nc\nd\n")
    assert str(place(str(path), b"b\nc\nd\n", 2, 0)) == f"{path}, line 2"
    assert str(place(str(path), b"c\nd\n", 4, 2)) == f"{path}, line 4"
    assert str(place("not there", b"c\nd\n", 0, 2)) == "not there, line 2"


def archive(name):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr(name, "a,y\n1,2\n")
    return content.getvalue()


def tarred():
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as file:
        file.addfile(tarfile.TarInfo("a.csv"))
    return content.getvalue()


OTHERS = [
    (archive("[Content_Types].xml"), "is a file of Office; save a sheet as CSV"),
    (archive("t.csv"), "is a zip archive; unpack it"),
    (tarred(), "is a tar archive; unpack it"),
    (pickle.dumps([1]), "is a pickle, which is not read"),
    (b"ARROW1\0\0", "is an Arrow file; write Parquet"),
    (b"SQLite format 3\0", "is a database of SQLite"),
    (b"\x93NUMPY\x01\0", "is an array of NumPy"),
]


def test_texts_that_begin_as_files_of_other_programs_are_texts(tmp_path):
    for content in (b"SQLite is fine\tgood\n", b"ARROW1,y\n1,2\n", b"a,y\n" + b"ustar,1\n" * 60):
        (tmp_path / "rows").write_bytes(content)
        assert guess_format(str(tmp_path / "rows")) == "csv"


@pytest.mark.parametrize(("content", "message"), OTHERS, ids=[text for _, text in OTHERS])
def test_files_of_other_programs_are_called_by_their_names(tmp_path, content, message):
    (tmp_path / "rows").write_bytes(content)
    with pytest.raises(InputError, match=message):
        guess_format(str(tmp_path / "rows"))
