"""The project's own format: AnnData reads it, it reads back the same, every bad byte is found."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from dadagrad.data import open_dataset
from dadagrad.data.dataset import LabelColumn, Partition, Schema, checksum
from dadagrad.data.rows import Rows
from dadagrad.data.zarr import codec
from dadagrad.data.zarr.dataset import ZarrDataset, looks_like_zarr, write_partition, write_root
from dadagrad.errors import CorruptionError, InputError
from dadagrad.storage.store import Storage

N_FEATURES = 1000
_numbers = itertools.count()


def some_rows(seed: int = 0, n_rows: int = 40, *, plain: bool = False) -> Rows:
    """Rows with every optional column, or with none if `plain`."""
    random = np.random.default_rng(seed)
    counts = random.integers(0, 9, n_rows)
    ids = [np.sort(random.choice(N_FEATURES, count, replace=False)) for count in counts]
    indptr = np.concatenate([[0], np.cumsum(counts)])
    labels = random.choice([-1.0, 1.0], (n_rows, 1 if plain else 2))
    rows = Rows.from_csr(indptr, np.concatenate(ids), None, labels)
    if plain:
        return rows
    return replace(
        rows,
        values=random.normal(size=rows.nnz).astype(np.float32),
        weights=random.random(n_rows).astype(np.float32),
        row_scale=random.random(n_rows).astype(np.float32),
    )


def write(storage: Storage, *parts: Rows, **extra: Any) -> list[Partition]:
    names = ["label", "other"][: parts[0].labels.shape[1]]
    partitions = [
        write_partition(storage, f"part-{number:05d}", rows, names, **extra)
        for number, rows in enumerate(parts)
    ]
    schema = Schema(N_FEATURES, tuple(LabelColumn(name) for name in names), True, {"format": "x"})
    write_root(storage, schema, partitions, {"sources": ["a"]})
    return partitions


def in_memory() -> Storage:
    return Storage(f"memory://zarr-{next(_numbers)}/a dataset é")


@pytest.fixture(params=["path", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return Storage(tmp_path / "a dataset é") if request.param == "path" else in_memory()


@pytest.mark.parametrize("plain", [False, True])
def test_reads_what_was_written(storage: Storage, plain: bool) -> None:
    parts = [some_rows(seed, plain=plain) for seed in range(3)]
    partitions = write(storage, *parts)
    assert looks_like_zarr(storage)
    dataset = open_dataset(storage.url)
    assert isinstance(dataset, ZarrDataset)
    assert dataset.partitions == tuple(partitions)
    assert dataset.schema.feature_space == {"format": "x"}
    assert dataset.provenance == {"sources": ["a"]}
    assert (dataset.n_rows, dataset.nnz) == (120, sum(rows.nnz for rows in parts))
    for number, rows in enumerate(parts):
        read = dataset.read(number)
        assert checksum(read) == checksum(rows)
        # A read-only array is another type to numba: each kernel would be compiled again.
        for array in (read.vocabulary, read.indptr, read.indices, read.labels, read.values):
            assert array is None or array.flags.writeable
        assert dataset.read_vocabulary(number).tolist() == rows.vocabulary.tolist()


@st.composite
def any_rows(draw: st.DrawFn) -> Rows:
    vocabulary = np.array(sorted(draw(st.sets(st.integers(0, N_FEATURES - 1), max_size=8))), int)
    positions = st.sets(st.integers(0, max(len(vocabulary) - 1, 0)), max_size=len(vocabulary))
    rows = draw(st.lists(positions.map(sorted), max_size=6))
    indices = np.array([position for row in rows for position in row], np.int32)
    indptr = np.cumsum([0] + [len(row) for row in rows])

    def column(shape: Any, dtype: type, **bounds: Any) -> Any:
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


@given(any_rows())
@settings(max_examples=30, deadline=None, derandomize=True)
def test_any_rows_survive(rows: Rows) -> None:
    storage = in_memory()
    write(storage, rows)
    if rows.values is not None and (rows.values == 1).all():
        rows = replace(rows, values=None)
    assert checksum(ZarrDataset(storage.url).read(0)) == checksum(rows)
    storage.delete_prefix()


@pytest.mark.parametrize("plain", [False, True])
def test_anndata_reads_a_partition(tmp_path: Path, plain: bool) -> None:
    import anndata

    queries, tags = np.arange(40), [f"row é{number}" for number in range(40)]
    rows = replace(some_rows(plain=plain), queries=queries)
    names = {int(rows.vocabulary[3]): "naïve", 5: "five"}
    write(Storage(tmp_path), rows, tags=tags, names=names)
    # Warnings are errors here, including those of anndata.
    read = anndata.read_zarr(tmp_path / "part-00000")
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
    assert read.var["feature"].tolist() == rows.vocabulary.tolist()
    assert read.var["name"].iloc[3] == "naïve"
    if not plain:
        np.testing.assert_array_equal(read.obs["other"], rows.labels[:, 1])
        np.testing.assert_array_equal(read.obs["weight"], rows.weights)
        np.testing.assert_array_equal(read.obs["row_scale"], rows.row_scale)


def test_zarr_reads_every_array_without_the_consolidated_metadata(tmp_path: Path) -> None:
    rows = some_rows()
    write(Storage(tmp_path), rows)
    root = zarr.open_group(tmp_path, mode="r", use_consolidated=False)
    assert dict(root.attrs)["encoding-type"] == "dadagrad-dataset"
    group = zarr.open_group(tmp_path / "part-00000", mode="r", use_consolidated=False)
    np.testing.assert_array_equal(group["X/data"][:], rows.values)
    np.testing.assert_array_equal(group["X/indices"][:], rows.indices)
    np.testing.assert_array_equal(group["obs/weight"][:], rows.weights)


@given(st.sets(st.integers(0, 2**63 - 1), max_size=20) | st.sets(st.integers(0, 200)))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_the_index_of_features_is_their_ids_as_text(ids: set[int]) -> None:
    vocabulary = np.array(sorted(ids), np.int64)
    none = np.zeros(0, np.int32)
    rows = Rows(vocabulary, np.zeros(1, np.int64), none, None, np.zeros((0, 1)))
    with TemporaryDirectory() as folder:
        write_partition(Storage(folder), "part-00000", rows, ["label"])
        group = zarr.open_group(folder, mode="r", path="part-00000")
        assert group["var/_index"][:].tolist() == [str(feature) for feature in sorted(ids)]


def test_ones_are_not_stored(storage: Storage) -> None:
    rows = some_rows(plain=True)
    for values in (None, np.ones(rows.nnz, np.float32)):
        write(storage, replace(rows, values=values))
        assert not [key for key in storage.list() if "X/data/c/" in key]
        assert ZarrDataset(storage.url).read(0).values is None
        storage.delete_prefix()


def test_several_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import anndata

    monkeypatch.setattr(codec, "MAX_CHUNK", 16)
    storage, rows = Storage(tmp_path), some_rows()
    write(storage, rows)
    assert "part-00000/X/indices/c/9" in storage.list()
    assert checksum(ZarrDataset(storage.url).read(0)) == checksum(rows)
    np.testing.assert_array_equal(anndata.read_zarr(tmp_path / "part-00000").X.data, rows.values)


def test_slices_are_written_from_their_start(storage: Storage) -> None:
    rows = some_rows()
    write(storage, replace(rows.slice(10, 20), indptr=rows.indptr[10:21]))
    assert checksum(ZarrDataset(storage.url).read(0)) == checksum(rows.slice(10, 20))


def test_names_are_read_across_partitions(storage: Storage) -> None:
    first, second = some_rows(1), some_rows(2)
    ids = [*first.vocabulary[::2].tolist(), *second.vocabulary[::2].tolist()]
    names = {feature: f"f{feature}é" for feature in ids}
    write(storage, first, second, names=names)
    dataset = ZarrDataset(storage.url)
    assert dataset.names(np.arange(N_FEATURES)) == names
    some = sorted(names)[3]
    assert dataset.names(np.array([some, some, N_FEATURES + 5])) == {some: names[some]}
    assert dataset.names(np.array([], np.int64)) == {}


def test_equal_content_has_equal_digests() -> None:
    storages = [in_memory(), in_memory()]
    for storage in storages:
        write(storage, some_rows(1))
    first, second = (ZarrDataset(storage.url) for storage in storages)
    assert first.digest == second.digest
    assert write(storages[0], some_rows(2))[0].checksum != second.partitions[0].checksum


def test_pickles_without_reading_again(tmp_path: Path) -> None:
    write(Storage(tmp_path), some_rows())
    dataset = ZarrDataset(str(tmp_path))
    data = pickle.dumps(dataset)
    (tmp_path / "zarr.json").unlink()
    again = pickle.loads(data)
    assert again.digest == dataset.digest
    assert checksum(again.read(0)) == checksum(some_rows())


ARRAYS = ["X/data", "X/indices", "X/indptr", "obs/label", "obs/other", "obs/row_scale",
          "obs/weight", "var/feature", "var/name"]  # fmt: skip


@given(st.data(), st.sampled_from(ARRAYS))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_every_damaged_chunk_is_found(data: st.DataObject, array: str) -> None:
    storage, rows = in_memory(), some_rows()
    write(storage, rows, names={int(feature): "a" for feature in rows.vocabulary})
    dataset = ZarrDataset(storage.url)
    chunks = {key for key in storage.list() if "/c/" in key and "_index" not in key}
    assert chunks == {f"part-00000/{name}/c/0" for name in ARRAYS}
    key = f"part-00000/{array}/c/0"
    chunk = bytearray(storage.get(key))
    damage = data.draw(st.sampled_from(["flip", "flip", "cut", "extend", "delete"]))
    if damage == "flip":
        chunk[data.draw(st.integers(0, len(chunk) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    storage.put(key, bytes(chunk)[: len(chunk) - (damage == "cut")] + b"\0" * (damage == "extend"))
    if damage == "delete":
        storage.delete(key)
    message = {
        "flip": f"part-00000, {array}: chunk 0 does not match its checksum",
        "cut": f"part-00000, {array}: chunk 0 has",
        "extend": f"part-00000, .*{array}/c/0 has .* at most",
        "delete": f"part-00000, {array}/c/0: the chunk is missing",
    }
    with pytest.raises(CorruptionError, match=message[damage]) as caught:
        dataset.names(np.arange(N_FEATURES)) if array == "var/name" else dataset.read(0)
    assert storage.url in str(caught.value)


def test_partitions_cannot_be_swapped(storage: Storage) -> None:
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


def test_a_flipped_bit_in_the_root_is_found() -> None:
    storage = in_memory()
    write(storage, some_rows())
    original = storage.get("zarr.json")
    for place in range(original.index(b'"attributes"'), len(original) - 2, 3):
        data = bytearray(original)
        data[place] ^= 2
        storage.put("zarr.json", bytes(data))
        with pytest.raises((CorruptionError, InputError)):
            ZarrDataset(storage.url).read(0)


def test_errors_of_folders_that_are_not_datasets(storage: Storage) -> None:
    with pytest.raises(InputError, match="no dataset at"):
        open_dataset(storage.url)
    with pytest.raises(InputError, match=r"there is no zarr\.json"):
        ZarrDataset(storage.url)
    write_partition(storage, "part-00007", some_rows(), ["label", "other"])
    with pytest.raises(InputError, match=r"half-written dataset.*--overwrite"):
        open_dataset(storage.url)
    with pytest.raises(InputError, match="Zarr group of type 'anndata'"):
        open_dataset(f"{storage.url}/part-00007")
    storage.put("zarr.json", b"[1, 2")
    with pytest.raises(CorruptionError, match="not that of a Zarr group"):
        open_dataset(storage.url)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["label", "label"], "distinct"),
        (["label", "weight"], "reserved"),
        (["label", "a/b"], "cannot be stored"),
        (["label", ""], "cannot be stored"),
        (["label", "__x"], "cannot be stored"),
        (["label"], "need"),
    ],
)
def test_label_columns_that_cannot_be_stored(names: list[str], message: str) -> None:
    storage = in_memory()
    with pytest.raises(InputError, match=message):
        write_partition(storage, "part-00000", some_rows(), names)
    assert storage.list() == []


def test_bad_rows_are_not_written() -> None:
    storage, rows, names = in_memory(), some_rows(), ["label", "other"]
    with pytest.raises(InputError, match="3 queries for 40 rows"):
        write_partition(storage, "part-00000", replace(rows, queries=np.arange(3)), names)
    for name in ("../part-00000", "/etc", "part-1", "", None):
        with pytest.raises(InputError, match="not the name of a partition"):
            write_partition(storage, name, rows, names)  # type: ignore[arg-type]
    assert rows.values is not None
    rows.values[3] = np.nan
    with pytest.raises(InputError, match=r"part-00000: row \d+, feature \d+ is nan"):
        write_partition(storage, "part-00000", rows, names)
    schema = Schema(1, (LabelColumn("label"),))
    with pytest.raises(InputError, match="would be empty"):
        write_root(storage, schema, [], {})
    partition = Partition("part-00000", 1, 1, 1, "x")
    with pytest.raises(InputError, match="same name"):
        write_root(storage, schema, [partition, partition], {})
    assert storage.list() == []


def test_reading_does_not_load_heavy_libraries(tmp_path: Path) -> None:
    write(Storage(tmp_path), some_rows())
    program = (
        "import sys; from dadagrad.data.zarr.dataset import ZarrDataset\n"
        "ZarrDataset(sys.argv[1]).read(0)\n"
        "print([name for name in ('numba', 'zarr', 'pyarrow', 'anndata') if name in sys.modules])"
    )
    output = subprocess.check_output([sys.executable, "-c", program, str(tmp_path)], text=True)
    assert output.strip() == "[]"
