"""Parquet files whose footers and pages lie."""

import struct
from functools import partial

import pyarrow as pa
import pytest
from helpers import array_files
from helpers.array_files import joined, split
from helpers.checkpoint_stores import memory_url
from helpers.hostile_cases import CORPUS, mutated_bytes, only_our_errors
from helpers.processes import run_python
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad import DadagradError, InputError, open_dataset
from dadagrad.data.ingest.ingest import read_dataset
from dadagrad.data.parquet.dataset import N_FEATURES_KEY, ParquetDataset
from dadagrad.storage.store import Storage


def table(**changes):
    columns = {
        "indices": pa.array([[0, 2], [1], [], [1, 3]], pa.list_(pa.int32())),
        "values": [[1.0, 2.0], [1.0], [], [0.5, 0.25]],
        "label": ["a", "b", "a", "b"],
        "weight": [1.0, 2.0, 1.0, 1.0],
    }
    return pa.table(columns | changes)


parquet = partial(array_files.parquet, row_group_size=3)
FILES = [
    parquet(table()),
    parquet(table(label=[0.0, 1.0, 0.0, 1.0]), compression="zstd", use_dictionary=False),
    parquet(table(), compression="none", data_page_version="2.0", write_statistics=False),
]


STORAGE = Storage(f"{memory_url()}/a.parquet")


def use(file):
    STORAGE.put("", file)
    data = ParquetDataset(STORAGE.url)
    assert len(data.digest) == 64
    assert data.schema.n_features >= 0
    for number, partition in enumerate(data.partitions):
        rows = data.read(number)
        assert rows.n_rows == partition.n_rows
        assert not len(rows.indices) or 0 <= rows.indices.min() <= rows.indices.max() < rows.n_local


@st.composite
def spoilt(draw):
    body, footer = split(draw(st.sampled_from(FILES)))
    where = draw(st.sampled_from(["body", "footer", "footer", "both"]))
    if where != "footer":
        body = b"PAR1" + draw(mutated_bytes(body[4:], 2))
    if where != "body":
        footer = draw(mutated_bytes(footer, 2))
    return joined(body, footer)


@given(spoilt())
def test_any_damage_is_refused_or_harmless(file):
    with only_our_errors():
        use(file)


TABLE = parquet(pa.table({"a": [0.5, 1.5, 2.5, 3.5], "b": list("xyzx"), "label": [0, 1, 0, 1]}))


@given(mutated_bytes(TABLE))
def test_any_damage_of_a_table_is_refused_or_harmless(tmp_path_factory, file):
    path = tmp_path_factory.getbasetemp() / "table.parquet"
    path.write_bytes(file)
    with only_our_errors():
        read_dataset(str(path))


def test_a_footer_on_which_pyarrow_aborts():
    """pyarrow's metadata of columns end the process on this file."""
    program = (
        "import sys\n"
        "from dadagrad.data.parquet.dataset import ParquetDataset\n"
        "from dadagrad.errors import DadagradError\n"
        "try:\n"
        "    data = ParquetDataset(sys.argv[1])\n"
        "    for number in range(len(data.partitions)): data.read(number)\n"
        "except DadagradError as error:\n"
        "    print('refused', error)\n"
    )
    assert run_python("-c", program, CORPUS / "histogram.parquet").stderr == ""


def varint(number):
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


@given(st.sampled_from([2**31, 2**40, 2**62, -1, -(2**40)]) | st.integers(-(2**62), 2**62))
@settings(max_examples=40)
def test_sizes_that_no_file_has(value):
    """Each number 3 of the footer, one of which counts the rows, becomes another number."""
    body, footer = split(parquet(table().slice(0, 3)))
    errors = ""
    for at in range(len(footer) - 2):
        if footer[at : at + 2] == b"\x16\x06":
            damaged = footer[: at + 1] + varint(value) + footer[at + 2 :]
            try:
                with only_our_errors(False):
                    use(joined(body, damaged))
            except DadagradError as error:
                errors += str(error)
    assert "cannot be in a file of" in errors or 0 <= value < 2**25


def declared(n_features):
    return table().replace_schema_metadata({N_FEATURES_KEY: n_features})


TWICE = pa.table([table()["indices"]] * 2 + [table()["label"]], ["indices", "indices", "label"])
WIDE = pa.array([[2**64 - 1], [1], [], [1]], pa.list_(pa.uint64()))


def test_schemas_that_lie():
    for content, said in (
        (TWICE, "two columns 'indices'"),
        (declared(b"9" * 5000), "needed is a positive integer"),
        (declared(b"many"), r"dadagrad\.n_features is b'many'; needed is a positive integer"),
        (declared(b"-5"), "needed is a positive integer"),
        (declared(b"\xff"), "needed is a positive integer"),
        (declared(b"4611686018427387905"), "needed is a positive integer"),
        (declared(b"2"), "row 0 has feature 2"),
        (table(indices=WIDE), "largest feature is 18446744073709551615"),
    ):
        with pytest.raises(InputError, match=said), only_our_errors(False):
            use(parquet(content))


def test_statistics_that_lie_are_noticed():
    """A largest id that is too small: ids beyond it are refused when they are read."""
    body, footer = split(parquet(table(), write_page_index=False))
    largest = struct.pack("<i", 3)
    assert largest in footer
    with pytest.raises(InputError, match=r"has feature \d+; ids run from 0 to"):
        use(joined(body, footer.replace(largest, struct.pack("<i", 1))))


def test_files_that_change_meanwhile(tmp_path):
    for place, said in ((str(tmp_path / "a.parquet"), "row group 0"), (STORAGE.url, "changed")):
        Storage(place).put("", parquet(table()))
        data = open_dataset(place)
        Storage(place).put("", parquet(table(label=["a", "z", "a", "b"])))
        with pytest.raises(DadagradError, match=said), only_our_errors(False):
            data.read(0)
