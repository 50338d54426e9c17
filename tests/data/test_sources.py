"""Ranges and chunks: every line exactly once, from any kind of file, damaged ones named."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import threading
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.data import sources
from dadagrad.data.sources import Range, line_number, place, plan_ranges, read_chunks
from dadagrad.errors import InputError

COMPRESSORS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


def incompressible_lines(n: int) -> bytes:
    return b"".join(b"%d %d\n" % (i, i * 2654435761 % 2**61) for i in range(n))


@given(
    lines=st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"x")), max_size=30),
    ended=st.booleans(),
    range_bytes=st.integers(1, 40),
    chunk_bytes=st.integers(1, 30),
)
def test_ranges_cover_every_line_once(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[bytes],
    ended: bool,
    range_bytes: int,
    chunk_bytes: int,
) -> None:
    # A first byte that no compression has: hypothesis does find the others.
    text = b"-" + b"\n".join(lines) + (b"\n" if ended else b"")
    path = tmp_path_factory.mktemp("text") / "lines"
    path.write_bytes(text)
    joined = b""
    for source in plan_ranges(str(path), range_bytes):
        for chunk, offset in read_chunks(source, chunk_bytes):
            assert offset == len(joined)
            joined += chunk
            assert chunk.endswith(b"\n") or joined == text
            # The first line of each range starts in it.
            assert source.stop is not None
            assert source.start <= offset < len(text)
    assert joined == text


def test_a_line_belongs_to_the_range_in_which_it_starts(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"aaaa\nbbbb\ncccc\n")
    found = [b"".join(c for c, _ in read_chunks(r)) for r in plan_ranges(str(path), 5)]
    assert found == [b"aaaa\n", b"bbbb\n", b"cccc\n"]
    found = [b"".join(c for c, _ in read_chunks(r)) for r in plan_ranges(str(path), 6)]
    assert found == [b"aaaa\nbbbb\n", b"cccc\n", b""]


def test_chunks_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(incompressible_lines(5000))
    sizes = [len(chunk) for chunk, _ in read_chunks(Range(str(path), 0, None), 4096)]
    assert len(sizes) > 20
    assert max(sizes) <= 4096


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_compression_is_recognised_by_content(tmp_path: Path, suffix: str) -> None:
    text = incompressible_lines(20_000) + b"no newline at the end\r"
    path = tmp_path / "misleading.txt"
    path.write_bytes(COMPRESSORS[suffix](text))
    (source,) = plan_ranges(str(path), 100)
    assert source == Range(str(path), 0, None)
    chunks = list(read_chunks(source, 10_000))
    assert b"".join(chunk for chunk, _ in chunks) == text
    assert all(text[offset : offset + len(chunk)] == chunk for chunk, offset in chunks)
    assert max(len(chunk) for chunk, _ in chunks) <= 10_000
    assert line_number(str(path), text.index(b"\n777 ") + 1) == 778


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_joined_compressed_files_are_read_whole(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "joined"
    compress = COMPRESSORS[suffix]
    path.write_bytes(compress(b"one\ntw") + compress(b"o\n"))
    assert [chunk for chunk, _ in read_chunks(Range(str(path), 0, None))] == [b"one\ntwo\n"]


@pytest.mark.parametrize("damage", ["cut", "flipped"])
@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_damaged_compressed_file_is_named(tmp_path: Path, suffix: str, damage: str) -> None:
    packed = bytearray(COMPRESSORS[suffix](incompressible_lines(20_000)))
    if damage == "cut":
        del packed[len(packed) * 2 // 3 :]
    else:
        middle = len(packed) // 2
        packed[middle : middle + 64] = b"\xff" * 64
    path = tmp_path / f"damaged.{suffix}"
    path.write_bytes(packed)
    with pytest.raises(InputError, match=rf"damaged\.{suffix}: .*damaged or cut short"):
        list(read_chunks(Range(str(path), 0, None), 1000))


def test_zstd_gives_no_more_than_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "zeros.zst"
    text = (b"0" * 99 + b"\n") * 200_000
    path.write_bytes(zstandard.ZstdCompressor().compress(text))
    chunks = [chunk for chunk, _ in read_chunks(Range(str(path), 0, None), 1 << 16)]
    assert max(map(len, chunks)) <= 1 << 16
    assert b"".join(chunks) == text


def test_long_line_grows_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"short\n" + b"x" * 10_000 + b"\nlast")
    chunks = list(read_chunks(Range(str(path), 0, None), 100))
    assert [len(chunk) for chunk, _ in chunks] == [6, 10_001, 4]
    assert [offset for _, offset in chunks] == [0, 6, 10_007]
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 5000)
    with pytest.raises(InputError, match=r"long, line 2 is longer than 5000 bytes"):
        list(read_chunks(Range(str(path), 0, None), 100))


def test_empty_files_have_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    assert plan_ranges(str(path)) == []
    assert list(read_chunks(Range(str(path), 0, None))) == []
    path.write_bytes(gzip.compress(b""))
    assert [list(read_chunks(source)) for source in plan_ranges(str(path))] == [[]]


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*nowhere: No such file"):
        plan_ranges(str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"cannot read .*nowhere: No such file"):
        list(read_chunks(Range(str(tmp_path / "nowhere"), 0, None)))
    with pytest.raises(InputError, match="is a folder"):
        plan_ranges(str(tmp_path))
    with pytest.raises(InputError, match="range_bytes is 0"):
        plan_ranges(str(tmp_path), 0)


def test_pipe_is_streamed(tmp_path: Path) -> None:
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    (source,) = plan_ranges(path)
    text = incompressible_lines(1000)
    writer = threading.Thread(target=Path(path).write_bytes, args=(gzip.compress(text),))
    writer.start()
    assert b"".join(chunk for chunk, _ in read_chunks(source, 1000)) == text
    writer.join()
    # It cannot be read again to count lines: the message has the byte instead.
    assert place(path, b"ab\ncd", 7, 3) == f"{path}, line at byte 10"


def test_place_counts_lines_of_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb\nc\nd\n")
    assert line_number(str(path), 0) == 1
    assert line_number(str(path), 1) == 1
    assert line_number(str(path), 2) == 2
    assert line_number(str(path), 10**9) == 5
    assert place(str(path), b"c\nd\n", 4, 2) == f"{path}, line 4"
    assert place("not there", b"c\nd\n", 0, 2) == "not there, line 2"
