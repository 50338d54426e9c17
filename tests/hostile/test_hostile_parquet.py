"""Parquet files whose footers and pages lie."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.hostile_cases import CORPUS, many, mutated_bytes, only_our_errors
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad.data import open_dataset
from dadagrad.data.parquet import N_FEATURES_KEY, ParquetDataset
from dadagrad.errors import DadagradError, InputError


def table(**changes: Any) -> pa.Table:
    columns: dict[str, Any] = {
        "indices": pa.array([[0, 2], [1], [], [1, 3]], pa.list_(pa.int32())),
        "values": [[1.0, 2.0], [1.0], [], [0.5, 0.25]],
        "label": ["a", "b", "a", "b"],
        "weight": [1.0, 2.0, 1.0, 1.0],
    }
    return pa.table(columns | changes)


def parquet(content: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(content, sink, row_group_size=3, **options)
    return sink.getvalue()


def split(data: bytes) -> tuple[bytes, bytes]:
    """What lies before the footer, and the footer."""
    start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    return data[:start], data[start:-8]


def joined(body: bytes, footer: bytes) -> bytes:
    return body + footer + struct.pack("<I", len(footer)) + b"PAR1"


FILES = [
    parquet(table()),
    parquet(table(label=[0.0, 1.0, 0.0, 1.0]), compression="zstd", use_dictionary=False),
    parquet(table(), compression="none", data_page_version="2.0", write_statistics=False),
]


def use(path: Path) -> None:
    data = ParquetDataset(str(path))
    assert len(data.digest) == 64
    assert data.schema.n_features >= 0
    for number, partition in enumerate(data.partitions):
        rows = data.read(number)
        assert rows.n_rows == partition.n_rows
        assert not len(rows.indices) or 0 <= rows.indices.min() <= rows.indices.max() < rows.n_local


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    body, footer = split(draw(st.sampled_from(FILES)))
    where = draw(st.sampled_from(["body", "footer", "footer", "both"]))
    if where != "footer":
        body = b"PAR1" + draw(mutated_bytes(body[4:], 2))
    if where != "body":
        footer = draw(mutated_bytes(footer, 2))
    return joined(body, footer)


def check(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with only_our_errors():
        use(path)


@given(spoilt())
@settings(max_examples=100)
def test_any_damage_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    check(tmp_path_factory.getbasetemp() / "spoilt.parquet", data)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_great_many_bytes(tmp_path: Path) -> None:
    many(given(spoilt())(lambda data: check(tmp_path / "a.parquet", data)))()


def test_a_footer_on_which_pyarrow_aborts() -> None:
    """pyarrow's metadata of columns end the process on this file."""
    program = (
        "import sys\n"
        "from dadagrad.data.parquet import ParquetDataset\n"
        "from dadagrad.errors import DadagradError\n"
        "try:\n"
        "    data = ParquetDataset(sys.argv[1])\n"
        "    for number in range(len(data.partitions)): data.read(number)\n"
        "except DadagradError as error:\n"
        "    print('refused', error)\n"
    )
    command = [sys.executable, "-c", program, CORPUS / "histogram.parquet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


@given(st.sampled_from([2**31, 2**40, 2**62, -1, -(2**40)]) | st.integers(-(2**62), 2**62))
@settings(max_examples=40, deadline=None)
def test_sizes_that_no_file_has(tmp_path_factory: pytest.TempPathFactory, value: int) -> None:
    """Each number 3 of the footer, one of which counts the rows, becomes another number."""
    body, footer = split(parquet(table().slice(0, 3)))
    path = tmp_path_factory.getbasetemp() / "sizes.parquet"
    errors = ""
    for at in range(len(footer) - 2):
        if footer[at : at + 2] == b"\x16\x06":
            damaged = footer[: at + 1] + varint(value) + footer[at + 2 :]
            path.write_bytes(joined(body, damaged))
            try:
                with only_our_errors(False):
                    use(path)
            except DadagradError as error:
                errors += str(error)
    assert "cannot be in a file of" in errors or 0 <= value < 2**25


def test_schemas_that_lie(tmp_path: Path) -> None:
    def metadata(text: bytes) -> pa.Table:
        return table().replace_schema_metadata({N_FEATURES_KEY: text})

    twice = pa.table([table()["indices"]] * 2 + [table()["label"]], ["indices", "indices", "label"])
    wide = pa.array([[2**64 - 1], [1], [], [1]], pa.list_(pa.uint64()))
    cases: list[tuple[pa.Table, str]] = [
        (twice, "two columns 'indices'"),
        (metadata(b"9" * 5000), "needed is a positive integer"),
        (metadata(b"-5"), "needed is a positive integer"),
        (metadata(b"\xff"), "needed is a positive integer"),
        (metadata(b"4611686018427387905"), "needed is a positive integer"),
        (metadata(b"2"), "row 0 has feature 2"),
        (table(indices=wide), "largest feature is 18446744073709551615"),
    ]
    for content, said in cases:
        path = tmp_path / "a.parquet"
        path.write_bytes(parquet(content))
        with pytest.raises(InputError, match=said), only_our_errors(False):
            use(path)


def test_statistics_that_lie_are_noticed(tmp_path: Path) -> None:
    """A largest id that is too small: ids beyond it are refused when they are read."""
    data = parquet(table(), write_page_index=False)
    body, footer = split(data)
    largest = struct.pack("<i", 3)
    assert largest in footer
    path = tmp_path / "a.parquet"
    path.write_bytes(joined(body, footer.replace(largest, struct.pack("<i", 1))))
    with pytest.raises(InputError, match=r"has feature \d+; ids run from 0 to"):
        use(path)


def test_files_that_change_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet(table()))
    data = open_dataset(str(path))
    path.write_bytes(parquet(table(label=["a", "z", "a", "b"])))
    with pytest.raises(DadagradError, match="row group 0"), only_our_errors(False):
        data.read(0)
