"""The project's own format: AnnData reads it, it reads back the same, every bad byte is found."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
import zarr
from helpers.checkpoint_stores import memory_url
from helpers.processes import run_python
from helpers.zarr_cases import N_FEATURES, read_anndata, some_rows, write_zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from dadagrad import open_dataset
from dadagrad.data.dataset import LabelColumn, MemoryDataset, Schema, checksum
from dadagrad.data.feature_space import FeatureSpace
from dadagrad.data.rows import Rows
from dadagrad.data.zarr import codec
from dadagrad.data.zarr.dataset import ZarrDataset
from dadagrad.data.zarr.writer import write_partition
from dadagrad.errors import CorruptionError, InputError
from dadagrad.storage.store import Storage

NAMES = ["label", "other"]


def write(storage, *parts, **extra):
    names = NAMES[: parts[0].labels.shape[1]]
    columns = tuple(LabelColumn(name) for name in names)
    schema = Schema(N_FEATURES, columns, True, FeatureSpace({"format": "x"}))
    write_zarr(MemoryDataset(parts, schema), storage.url, **extra)


@pytest.fixture(params=["path", "memory"])
def storage(request, tmp_path):
    return Storage(tmp_path / "a dataset é" if request.param == "path" else memory_url())


@pytest.mark.parametrize("plain", [False, True])
def test_reads_what_was_written(storage, plain):
    parts = [some_rows(seed, n_labels=1 if plain else 2, plain=plain) for seed in range(3)]
    write(storage, *parts)
    dataset = open_dataset(storage.url)
    assert isinstance(dataset, ZarrDataset)
    assert dataset.schema.feature_space == FeatureSpace({"format": "x"})
    assert dataset.provenance == {"sources": ["a"]}
    assert (dataset.n_rows, dataset.nnz) == (120, sum(rows.nnz for rows in parts))
    for number, rows in enumerate(parts):
        read = dataset.read(number)
        assert checksum(read) == checksum(rows)
        # A read-only array is another type to numba: each kernel would be compiled again.
        for array in (read.vocabulary, read.indptr, read.indices, read.labels, read.values):
            assert array is None or array.flags.writeable


@st.composite
def any_rows(draw):
    vocabulary = np.array(sorted(draw(st.sets(st.integers(0, N_FEATURES - 1), max_size=8))), int)
    positions = st.sets(st.integers(0, max(len(vocabulary) - 1, 0)), max_size=len(vocabulary))
    rows = draw(st.lists(positions.map(sorted), max_size=6))
    indices = np.array([position for row in rows for position in row], np.int32)
    indptr = np.cumsum([0] + [len(row) for row in rows])

    def column(shape, dtype, **bounds):
        width = np.dtype(dtype).itemsize * 8
        finite = st.floats(allow_nan=False, allow_infinity=False, width=width, **bounds)
        return draw(stn.arrays(dtype, shape, elements=finite))

    optional = [draw(st.booleans()) for _ in range(3)]
    return Rows(
        vocabulary,
        indptr,
        indices,
        column(len(indices), np.float32) if optional[0] else None,
        column((len(rows), draw(st.integers(1, 2))), np.float64),
        column(len(rows), np.float32, min_value=0) if optional[1] else None,
        column(len(rows), np.float32) if optional[2] else None,
    )


@given(any_rows(), st.sampled_from([2, codec.MAX_CHUNK]))
@settings(max_examples=15)
def test_any_rows_and_slices_of_rows_survive(rows, max_chunk):
    storage, start = Storage(memory_url()), rows.n_rows // 2
    end = rows.slice(start, rows.n_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "MAX_CHUNK", max_chunk)
        write(storage, rows, replace(end, indptr=rows.indptr[start:]))
        dataset = ZarrDataset(storage.url)
        for number, written in enumerate([rows, end]):
            ones = written.values is not None and (written.values == 1).all()
            expected = replace(written, values=None) if ones else written
            assert checksum(dataset.read(number)) == checksum(expected)
    storage.delete_prefix()


@pytest.mark.parametrize("plain", [False, True])
def test_anndata_reads_a_partition(tmp_path, plain):
    queries, tags = np.arange(40), [f"row é{number}" for number in range(40)]
    rows = replace(some_rows(n_labels=1 if plain else 2, plain=plain), queries=queries)
    names = {int(rows.vocabulary[3]): "naïve", 5: "five"}
    write(Storage(tmp_path), rows, tags=tags, names=names)
    # Other warnings are errors here, including those of anndata.
    read = read_anndata(tmp_path / "part-00000")
    assert read.shape == (rows.n_rows, rows.n_local)
    assert read.X.data.dtype == np.float32
    assert read.X.indptr.tolist() == rows.indptr.tolist()
    assert read.X.indices.tolist() == rows.indices.tolist()
    assert read.X.indices.dtype == read.X.indptr.dtype  # required by SciPy's operations
    assert read.X.tocoo().nnz == rows.nnz
    expected = np.ones(rows.nnz) if rows.values is None else rows.values
    np.testing.assert_array_equal(read.X.data, expected)
    np.testing.assert_array_equal(read.obs["label"], rows.labels[:, 0])
    assert read.obs["tag"].tolist() == tags
    assert read.obs["query"].tolist() == queries.tolist()
    assert read.obs_names.tolist() == [str(number) for number in range(40)]
    assert read.var_names.tolist() == [str(feature) for feature in rows.vocabulary]
    assert read.var["name"].iloc[3] == "naïve"
    if not plain:
        np.testing.assert_array_equal(read.obs["other"], rows.labels[:, 1])
        np.testing.assert_array_equal(read.obs["weight"], rows.weights)
        np.testing.assert_array_equal(read.obs["row_scale"], rows.row_scale)


@pytest.mark.parametrize("places", [0, 2, 7])
def test_numbers_of_few_decimals_keep_their_bits_in_fewer_bytes(tmp_path, places):
    storage, random = Storage(tmp_path), np.random.default_rng(places)
    rows = some_rows(n_rows=4_000)
    numbers = random.integers(-9, 30_000, rows.nnz)
    numbers[0] = 1  # has that many places
    rows = replace(rows, values=np.array([f"{n}e-{places}" for n in numbers], np.float32))
    others = replace(rows, values=random.normal(size=rows.nnz).astype(np.float32))
    write(storage, rows, others)
    read = ZarrDataset(storage.url).read(0)
    np.testing.assert_array_equal(read.values.view(np.int32), rows.values.view(np.int32))
    with warnings.catch_warnings():  # of former versions, about codecs without specification
        warnings.filterwarnings("ignore", "Numcodecs codecs are not in the Zarr")
        data = zarr.open_group(tmp_path, mode="r")["part-00000/X/data"][:]
    np.testing.assert_array_equal(data, rows.values)
    size, other_size = (len(storage.get(f"part-0000{number}/X/data/c/0")) for number in range(2))
    assert size < 0.7 * other_size


def test_the_largest_numbers_have_no_decimals():
    storage, rows = Storage(memory_url()), some_rows()
    rows.values[:] = np.resize(np.array([-0.0, 3e38, -3e38, 1e-45], np.float32), rows.nnz)
    write(storage, rows)
    read = ZarrDataset(storage.url).read(0)
    np.testing.assert_array_equal(read.values.view(np.int32), rows.values.view(np.int32))


def test_ones_are_not_stored():
    storage, rows = Storage(memory_url()), some_rows(plain=True)
    write(storage, rows, replace(rows, values=np.ones(rows.nnz, np.float32)))
    assert not [key for key in storage.list() if "X/data/c/" in key]
    assert ZarrDataset(storage.url).read(1).values is None


def test_anndata_reads_several_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(codec, "MAX_CHUNK", 16)
    storage, rows = Storage(tmp_path), some_rows()
    write(storage, rows)
    assert "part-00000/X/indices/c/9" in storage.list()
    np.testing.assert_array_equal(read_anndata(tmp_path / "part-00000").X.data, rows.values)


def test_names_are_read_across_partitions():
    storage, first, second = Storage(memory_url()), some_rows(1), some_rows(2)
    ids = [*first.vocabulary[::2].tolist(), *second.vocabulary[::2].tolist()]
    names = {feature: f"f{feature}é" for feature in ids}
    write(storage, first, second, names=names)
    dataset = ZarrDataset(storage.url)
    assert dataset.names(np.arange(N_FEATURES)) == names
    some = sorted(names)[3]
    assert dataset.names(np.array([some, some, N_FEATURES + 5])) == {some: names[some]}
    assert dataset.names(np.array([], np.int64)) == {}


def test_digests_follow_the_content_and_survive_pickling(tmp_path):
    storages = [Storage(tmp_path), Storage(memory_url())]
    for storage in storages:
        write(storage, some_rows(1))
    first, second = (ZarrDataset(storage.url) for storage in storages)
    assert first.digest == second.digest
    data = pickle.dumps(first)
    (tmp_path / "zarr.json").unlink()  # is not read again
    again = pickle.loads(data)
    assert again.digest == first.digest
    assert checksum(again.read(0)) == checksum(some_rows(1))
    write(storages[0], some_rows(2))
    assert ZarrDataset(str(tmp_path)).digest != first.digest


ARRAYS = ["X/data", "X/indices", "X/indptr", "obs/label", "obs/other", "obs/row_scale",
          "obs/weight", "var/feature", "var/name"]  # fmt: skip
DAMAGES = {
    "flip": "{array}: chunk 0 does not match its checksum",
    "cut": "{array}: chunk 0 has",
    "extend": ".*{array}/c/0 has .* at most",
    "delete": ".*{array}/c/0 in .*: there is no such object",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damaged_chunk_is_found(damage):
    storage, rows = Storage(memory_url()), some_rows()
    write(storage, rows, names={int(feature): "a" for feature in rows.vocabulary})
    dataset = ZarrDataset(storage.url)
    chunks = {key for key in storage.list() if "/c/" in key and "_index" not in key}
    assert chunks == {f"part-00000/{name}/c/0" for name in ARRAYS}
    for array in ARRAYS:
        key = f"part-00000/{array}/c/0"
        whole = storage.get(key)
        for place in (0, len(whole) // 3, len(whole) - 1):
            flipped = whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :]
            storage.put(key, {"flip": flipped, "cut": whole[:place]}.get(damage, whole + b"x"))
            if damage == "delete":
                storage.delete(key)
            message = f"part-00000, {DAMAGES[damage].format(array=array)}"
            with pytest.raises(CorruptionError, match=message) as caught:
                dataset.names(np.arange(N_FEATURES)) if array == "var/name" else dataset.read(0)
            assert storage.url in str(caught.value)
            assert "make the dataset again with `dadagrad ingest`" in str(caught.value)
        storage.put(key, whole)


def test_partitions_cannot_be_swapped():
    storage = Storage(memory_url())
    write(storage, some_rows(1), some_rows(2))
    for key in [key for key in storage.list() if key.startswith("part-00000/")]:
        storage.put(key, storage.get(key.replace("00000", "00001", 1)))
    dataset = ZarrDataset(storage.url)
    with pytest.raises(CorruptionError, match=r"part-00000, zarr\.json: it does not match"):
        dataset.read(0)
    dataset.read(1)
    storage.delete("part-00001/zarr.json")
    with pytest.raises(CorruptionError, match=r"part-00001, zarr\.json: it is missing"):
        dataset.read(1)


def test_a_flipped_bit_in_the_root_is_found():
    storage = Storage(memory_url())
    write(storage, some_rows())
    original = storage.get("zarr.json")
    for place in range(original.index(b'"attributes"'), len(original) - 2, 3):
        data = bytearray(original)
        data[place] ^= 2
        storage.put("zarr.json", bytes(data))
        with pytest.raises((CorruptionError, InputError)):
            ZarrDataset(storage.url).read(0)


def test_errors_of_folders_that_are_not_datasets(storage):
    with pytest.raises(InputError, match="no dataset at"):
        open_dataset(storage.url)
    write_partition(storage, "part-00007", some_rows(), NAMES)
    with pytest.raises(InputError, match=r"half-written dataset.*no zarr\.json.*overwrite=True"):
        open_dataset(storage.url)
    with pytest.raises(InputError, match="Zarr group of type 'anndata'"):
        open_dataset(f"{storage.url}/part-00007")
    storage.put("zarr.json", b"[1, 2")
    with pytest.raises(CorruptionError, match="not that of a Zarr group"):
        open_dataset(storage.url)


def test_what_cannot_be_stored_is_not_written():
    for wrong, message in (
        ({"label_names": ["label", "label"]}, "distinct"),
        ({"label_names": ["label", "weight"]}, "reserved"),
        ({"label_names": ["label", "a/b"]}, "cannot be stored"),
        ({"label_names": ["label", ""]}, "cannot be stored"),
        (
            {"rows": replace(some_rows(), weights=np.full(40, np.nan, np.float32))},
            "part-00000: row 0 has weight nan",
        ),
    ):
        storage = Storage(memory_url())
        given = {"name": "part-00000", "rows": some_rows(), "label_names": NAMES} | wrong
        with pytest.raises(InputError, match=message):
            write_partition(storage, **given)
        assert storage.list() == []


def test_reading_does_not_load_heavy_libraries(tmp_path):
    write(Storage(tmp_path), some_rows())
    program = (
        "import sys; from dadagrad.data.zarr.dataset import ZarrDataset\n"
        "ZarrDataset(sys.argv[1]).read(0)\n"
        "print([name for name in ('numba', 'zarr', 'pyarrow', 'anndata') if name in sys.modules])"
    )
    assert run_python("-c", program, tmp_path).stdout == "[]\n"
