"""The project's own format: AnnData reads it, it reads back the same, every bad byte is found."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from dadagrad.data import zarr_arrays
from dadagrad.data.dataset import LabelColumn, Partition, Schema, checksum, open_dataset
from dadagrad.data.rows import Rows
from dadagrad.data.zarr import ZarrDataset, looks_like_zarr, write_partition, write_root
from dadagrad.data.zarr_text import lay_out_numbers
from dadagrad.data.zarr_writer import attributes_checksum
from dadagrad.errors import CorruptionError, InputError
from dadagrad.storage import Storage

N_FEATURES = 1000
_numbers = itertools.count()


def some_rows(seed: int = 0, n_rows: int = 40, *, plain: bool = False) -> Rows:
    """Rows with everything that rows can have, or as little as possible if `plain`."""
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


@pytest.fixture(params=["path", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "path":
        return Storage(tmp_path / "a dataset é")
    return Storage(f"memory://zarr-{next(_numbers)}/a dataset é")


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
        for array in (read.vocabulary, read.indptr, read.indices, read.labels):
            assert array.flags.writeable
        assert read.values is None or read.values.flags.writeable
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
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_rows_survive(rows: Rows) -> None:
    storage = Storage(f"memory://zarr-{next(_numbers)}")
    write(storage, rows)
    if rows.values is not None and (rows.values == 1).all():
        rows = replace(rows, values=None)
    assert checksum(ZarrDataset(storage.url).read(0)) == checksum(rows)
    Storage(storage.url).delete_prefix()


@pytest.mark.parametrize("plain", [False, True])
def test_anndata_reads_a_partition(tmp_path: Path, plain: bool) -> None:
    import anndata

    rows = some_rows(plain=plain)
    names = {int(rows.vocabulary[3]): "naïve", 5: "five"}
    queries, tags = np.arange(40), [f"row é{number}" for number in range(40)]
    write(Storage(tmp_path), rows, queries=queries, tags=tags, names=names)
    # Warnings are errors here, those of anndata included.
    read = anndata.read_zarr(tmp_path / "part-00000")
    assert read.shape == (rows.n_rows, rows.n_local)
    assert read.X.data.dtype == np.float32
    assert read.X.indptr.tolist() == rows.indptr.tolist()
    assert read.X.indices.tolist() == rows.indices.tolist()
    assert read.X.indices.dtype == read.X.indptr.dtype  # what SciPy's operations ask for
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
    import zarr

    rows = some_rows()
    write(Storage(tmp_path), rows)
    root = zarr.open_group(tmp_path, mode="r", use_consolidated=False)
    assert dict(root.attrs)["encoding-type"] == "dadagrad-dataset"
    group = zarr.open_group(tmp_path / "part-00000", mode="r", use_consolidated=False)
    np.testing.assert_array_equal(group["X/data"][:], rows.values)
    np.testing.assert_array_equal(group["X/indices"][:], rows.indices)
    np.testing.assert_array_equal(group["obs/weight"][:], rows.weights)


def test_ones_are_not_stored(storage: Storage) -> None:
    rows = some_rows(plain=True)
    ones = replace(rows, values=np.ones(rows.nnz, np.float32))
    for given_rows in (rows, ones):
        write(storage, given_rows)
        assert not [key for key in storage.list() if "X/data/c/" in key]
        assert ZarrDataset(storage.url).read(0).values is None
        storage.delete_prefix()


def test_several_chunks(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zarr_arrays, "MAX_CHUNK", 16)
    rows = some_rows()
    write(storage, rows)
    assert "part-00000/X/indices/c/9" in storage.list()
    assert checksum(ZarrDataset(storage.url).read(0)) == checksum(rows)
    if storage.is_local:
        import anndata

        read = anndata.read_zarr(storage.local_path("part-00000"))
        np.testing.assert_array_equal(read.X.data, rows.values)


def test_slices_are_written_from_their_start(storage: Storage) -> None:
    rows = some_rows()
    piece = replace(rows.slice(10, 20), indptr=rows.indptr[10:21])
    write(storage, piece)
    assert checksum(ZarrDataset(storage.url).read(0)) == checksum(rows.slice(10, 20))


def test_names_are_found_across_partitions(storage: Storage) -> None:
    first, second = some_rows(1), some_rows(2)
    names = {int(feature): f"f{feature}é" for feature in first.vocabulary[::2]}
    names |= {int(feature): f"f{feature}é" for feature in second.vocabulary[::2]}
    write(storage, first, second, names=names)
    dataset = ZarrDataset(storage.url)
    assert dataset.names(np.arange(N_FEATURES)) == names
    some = sorted(names)[3]
    assert dataset.names(np.array([some, some, N_FEATURES + 5])) == {some: names[some]}
    assert dataset.names(np.array([], np.int64)) == {}


def test_equal_content_has_equal_checksums() -> None:
    urls = [f"memory://zarr-{next(_numbers)}" for _ in range(2)]
    for url in urls:
        write(Storage(url), some_rows(1))
    first, second = (ZarrDataset(url) for url in urls)
    assert first.fingerprint == second.fingerprint
    assert write(Storage(urls[0]), some_rows(2))[0].checksum != second.partitions[0].checksum


def test_pickles_without_reading_again(tmp_path: Path) -> None:
    write(Storage(tmp_path), some_rows())
    dataset = ZarrDataset(str(tmp_path))
    data = pickle.dumps(dataset)
    (tmp_path / "zarr.json").unlink()
    again = pickle.loads(data)
    assert again.fingerprint == dataset.fingerprint
    assert checksum(again.read(0)) == checksum(some_rows())


def chunks_of(storage: Storage) -> list[str]:
    """Keys of all chunks that training reads."""
    return [key for key in storage.list() if "/c/" in key and "_index" not in key]


ARRAYS = [
    "X/data",
    "X/indices",
    "X/indptr",
    "obs/label",
    "obs/other",
    "obs/row_scale",
    "obs/weight",
    "var/feature",
]


@pytest.mark.parametrize("array", ARRAYS)
def test_every_flipped_bit_is_found(storage: Storage, array: str) -> None:
    write(storage, some_rows())
    key = f"part-00000/{array}/c/0"
    assert chunks_of(storage) == [f"part-00000/{name}/c/0" for name in ARRAYS]
    original = storage.get(key)
    dataset = ZarrDataset(storage.url)
    for place in {0, 5, len(original) // 2, len(original) - 1}:
        for bit in (1, 128):
            data = bytearray(original)
            data[place] ^= bit
            storage.put(key, bytes(data))
            with pytest.raises(CorruptionError, match=f"part-00000, {array}: chunk 0") as caught:
                dataset.read(0)
            assert storage.url in str(caught.value)


@pytest.mark.parametrize("array", ARRAYS)
def test_missing_and_cut_chunks_are_found(storage: Storage, array: str) -> None:
    write(storage, some_rows())
    key = f"part-00000/{array}/c/0"
    data, dataset = storage.get(key), ZarrDataset(storage.url)
    storage.put(key, data[:-1])
    with pytest.raises(CorruptionError, match=f"part-00000, {array}: chunk 0 has"):
        dataset.read(0)
    storage.put(key, data + b"\0")
    with pytest.raises(CorruptionError, match=f"part-00000, .*{array}/c/0 has .* at most"):
        dataset.read(0)
    storage.delete(key)
    with pytest.raises(CorruptionError, match=f"part-00000, {array}/c/0: the chunk is missing"):
        dataset.read(0)


def test_flipped_names_are_found(storage: Storage) -> None:
    rows = some_rows()
    write(storage, rows, names={int(rows.vocabulary[0]): "a"})
    key = "part-00000/var/name/c/0"
    data = bytearray(storage.get(key))
    data[-1] ^= 1
    storage.put(key, bytes(data))
    with pytest.raises(CorruptionError, match="part-00000, var/name: chunk 0"):
        ZarrDataset(storage.url).names(np.arange(N_FEATURES))


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


def test_a_flipped_bit_in_the_root_is_found(storage: Storage) -> None:
    write(storage, some_rows())
    original = storage.get("zarr.json")
    first = original.index(b'"attributes"')
    for place in range(first, len(original) - 2, 3):
        data = bytearray(original)
        data[place] ^= 2
        storage.put("zarr.json", bytes(data))
        with pytest.raises((CorruptionError, InputError)):
            ZarrDataset(storage.url).read(0)


def test_a_half_written_dataset_is_none(storage: Storage) -> None:
    write_partition(storage, "part-00007", some_rows(), ["label", "other"])
    with pytest.raises(InputError, match=r"half-written dataset.*--overwrite"):
        open_dataset(storage.url)


def test_what_is_no_dataset(storage: Storage) -> None:
    with pytest.raises(InputError, match="no dataset at"):
        open_dataset(storage.url)
    with pytest.raises(InputError, match=r"there is no zarr\.json"):
        ZarrDataset(storage.url)
    write(storage, some_rows())
    with pytest.raises(InputError, match="Zarr group of type 'anndata'"):
        open_dataset(f"{storage.url}/part-00000")
    storage.put("zarr.json", b"[1, 2")
    with pytest.raises(CorruptionError, match="not that of a Zarr group"):
        open_dataset(storage.url)


Change = Callable[[dict[str, Any]], None]


def forge_root(storage: Storage, change: Change) -> None:
    """Change the root attributes, as someone who means harm: the checksum fits."""
    document = json.loads(storage.get("zarr.json"))
    change(document["attributes"])
    document["attributes"]["checksum"] = attributes_checksum(document["attributes"])
    storage.put("zarr.json", json.dumps(document).encode())


def forge_partition(storage: Storage, change: Change, **counts: int) -> None:
    """Change the metadata of the first partition, and the root so that its checksums fit."""
    document = json.loads(storage.get("part-00000/zarr.json"))
    change(document)
    data = json.dumps(document).encode()
    storage.put("part-00000/zarr.json", data)
    fits = {"checksum": hashlib.sha256(data).hexdigest(), **counts}
    forge_root(storage, lambda attributes: attributes["partitions"][0].update(fits))


@pytest.mark.parametrize("name", ["../part-00000", "/etc", "part-00000/X", "part-1", "", None, 3])
def test_names_of_partitions_cannot_lead_elsewhere(storage: Storage, name: Any) -> None:
    write(storage, some_rows())
    forge_root(storage, lambda attributes: attributes["partitions"][0].update(name=name))
    with pytest.raises((CorruptionError, InputError), match=r"part-00000|malformed"):
        ZarrDataset(storage.url)
    with pytest.raises(InputError, match="no name of a partition"):
        write_partition(storage, name, some_rows(), ["label", "other"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_rows", -1),
        ("nnz", 2**40),
        ("n_local", "5"),
        ("nnz", 1e9),
        ("n_rows", None),
        ("n_rows", True),
    ],
)
def test_absurd_counts_are_refused(storage: Storage, field: str, value: Any) -> None:
    write(storage, some_rows())
    forge_root(storage, lambda attributes: attributes["partitions"][0].update({field: value}))
    with pytest.raises(CorruptionError, match="malformed"):
        ZarrDataset(storage.url)


@pytest.mark.parametrize("missing", ["schema", "partitions", "provenance"])
def test_a_root_that_lacks_something_is_refused(storage: Storage, missing: str) -> None:
    write(storage, some_rows())
    forge_root(storage, lambda attributes: attributes.pop(missing))
    with pytest.raises(CorruptionError, match="malformed"):
        ZarrDataset(storage.url)


def test_other_versions_are_refused(storage: Storage) -> None:
    write(storage, some_rows())
    forge_root(storage, lambda attributes: attributes.update({"encoding-version": "2"}))
    with pytest.raises(InputError, match="format version '2'"):
        ZarrDataset(storage.url)


def _array(document: dict[str, Any], path: str) -> dict[str, Any]:
    found: dict[str, Any] = document["consolidated_metadata"]["metadata"][path]
    return found


def _grow(document: dict[str, Any]) -> None:
    for path in ("X/indices", "X/data"):
        _array(document, path)["shape"] = [2**31 - 1]


def _grow_chunk(document: dict[str, Any]) -> None:
    _grow(document)
    for path in ("X/indices", "X/data"):
        _array(document, path)["chunk_grid"]["configuration"]["chunk_shape"] = [2**31 - 1]


def _inflate(document: dict[str, Any]) -> None:
    _array(document, "X/indices").update(shape=[zarr_arrays.MAX_CHUNK])
    grid = _array(document, "X/indices")["chunk_grid"]
    grid["configuration"]["chunk_shape"] = [zarr_arrays.MAX_CHUNK]


HUGE = 2**31 - 1
FORGERIES: dict[str, tuple[Change, dict[str, int], str]] = {
    "shape": (_grow, {"nnz": HUGE}, "chunks of"),
    "chunk": (_grow_chunk, {"nnz": HUGE}, "chunks of"),
    "ratio": (_inflate, {"nnz": zarr_arrays.MAX_CHUNK}, "cannot hold 16777216 bytes"),
    "counts": (lambda document: None, {"nnz": HUGE}, "was expected"),
    "fewer rows": (lambda document: None, {"n_rows": 3}, "was expected"),
    "type": (
        lambda document: _array(document, "X/indices").update(data_type="int64"),
        {},
        "X/indices: its metadata declares int64",
    ),
    "codec": (
        lambda document: _array(document, "X/indices")["codecs"].append({"name": "gzip"}),
        {},
        "only bytes and blosc are known",
    ),
    "no array": (
        lambda document: document["consolidated_metadata"]["metadata"].pop("X/indptr"),
        {},
        "X/indptr: its metadata is missing",
    ),
    "no chunks": (
        lambda document: document["attributes"]["dadagrad"]["chunks"].update({"X/indices": []}),
        {},
        "X/indices: its chunks are missing",
    ),
    "seals": (
        lambda document: document["attributes"]["dadagrad"]["chunks"].update({"X/indices": 5}),
        {},
        "X/indices: its metadata is missing or malformed",
    ),
    "no metadata": (lambda document: document.pop("attributes"), {}, "it is malformed"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_hostile_metadata_is_refused_before_memory_is_taken(storage: Storage, name: str) -> None:
    change, counts, message = FORGERIES[name]
    write(storage, some_rows())
    forge_partition(storage, change, **counts)
    with pytest.raises(CorruptionError, match=message):
        ZarrDataset(storage.url).read(0)


def forge_chunk(storage: Storage, path: str, array: Any) -> None:
    """Replace an array by another of the same length, with checksums that fit."""
    encoded = zarr_arrays.encode(array)
    storage.put(f"part-00000/{path}/c/0", encoded.chunks[0])

    def change(document: dict[str, Any]) -> None:
        document["attributes"]["dadagrad"]["chunks"][path] = encoded.seals
        _array(document, path).update(encoded.metadata)

    forge_partition(storage, change)


@pytest.mark.parametrize("wrong", ["above", "negative", "pointers", "end", "ids", "order"])
def test_what_would_lead_kernels_astray_is_refused(storage: Storage, wrong: str) -> None:
    rows = some_rows()
    write(storage, rows)
    indices, indptr, ids = rows.indices.copy(), rows.indptr.copy(), rows.vocabulary.copy()
    indices[7] = {"above": rows.n_local, "negative": -1}.get(wrong, indices[7])
    indptr[5] = indptr[-1] + 1 if wrong == "pointers" else indptr[5]
    indptr[-1] += wrong == "end"
    ids[-1] = N_FEATURES if wrong == "ids" else ids[-1]
    ids[1] = ids[0] if wrong == "order" else ids[1]
    path = {"above": "X/indices", "negative": "X/indices", "ids": "var/feature"}.get(wrong)
    path = path or ("var/feature" if wrong == "order" else "X/indptr")
    array = {"X/indices": indices, "X/indptr": indptr, "var/feature": ids}[path]
    forge_chunk(storage, path, array)
    with pytest.raises(CorruptionError, match=f"part-00000, {path}"):
        ZarrDataset(storage.url).read(0)


def test_broken_blosc_is_refused(storage: Storage) -> None:
    write(storage, some_rows())
    key = "part-00000/X/indices/c/0"
    good = storage.get(key)
    random = np.random.default_rng(0)
    for start in (0, 4, 8, 12, 16, 20, 24, 40):
        data = bytearray(good)
        data[start : start + 4] = random.bytes(4)
        storage.put(key, bytes(data))
        seals = zarr_arrays.EncodedArray({}, (bytes(data),)).seals
        forge_partition(
            storage,
            lambda document, seals=seals: document["attributes"]["dadagrad"]["chunks"].update(
                {"X/indices": seals}
            ),
        )
        # Whatever it decodes to, if it does, is within bounds.
        with contextlib.suppress(CorruptionError):
            rows = ZarrDataset(storage.url).read(0)
            assert rows.indices.min() >= 0
            assert rows.indices.max() < rows.n_local


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
def test_label_columns_that_cannot_be_stored(
    storage: Storage, names: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        write_partition(storage, "part-00000", some_rows(), names)
    assert storage.list() == []


def test_bad_rows_are_not_written(storage: Storage) -> None:
    rows = some_rows()
    assert rows.values is not None
    rows.values[3] = np.nan
    with pytest.raises(InputError, match=r"part-00000: row \d+, feature \d+ is nan"):
        write_partition(storage, "part-00000", rows, ["label", "other"])
    with pytest.raises(InputError, match="3 queries for 40 rows"):
        write_partition(
            storage, "part-00000", some_rows(), ["label", "other"], queries=np.arange(3)
        )
    assert storage.list() == []


def test_an_empty_dataset_is_not_written(storage: Storage) -> None:
    schema = Schema(1, (LabelColumn("label"),))
    with pytest.raises(InputError, match="would be empty"):
        write_root(storage, schema, [], {})
    partition = Partition("part-00000", 1, 1, 1, "x")
    with pytest.raises(InputError, match="same name"):
        write_root(storage, schema, [partition, partition], {})


def test_ten_thousand_partitions_open_quickly(storage: Storage) -> None:
    schema = Schema(1, (LabelColumn("label"),))
    partitions = [Partition(f"part-{number:05d}", 10, 10, 1, "0" * 64) for number in range(10_000)]
    write_root(storage, schema, partitions, {})
    assert ZarrDataset(storage.url).n_rows == 100_000


@given(stn.arrays(np.int64, st.integers(0, 20), elements=st.integers(0, 2**63 - 1)))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_numbers_are_laid_out_like_their_strings(numbers: Any) -> None:
    expected = zarr_arrays.lay_out_strings([str(number) for number in numbers])
    assert lay_out_numbers(numbers) == expected


def test_reading_does_not_load_what_it_does_not_need(tmp_path: Path) -> None:
    write(Storage(tmp_path), some_rows())
    program = (
        "import sys; from dadagrad.data.zarr import ZarrDataset\n"
        "ZarrDataset(sys.argv[1]).read(0)\n"
        "print([name for name in ('numba', 'zarr', 'pyarrow', 'anndata') if name in sys.modules])"
    )
    output = subprocess.check_output([sys.executable, "-c", program, str(tmp_path)], text=True)
    assert output.strip() == "[]"
