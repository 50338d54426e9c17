"""Zarr metadata that lies, with checksums that fit: whoever wrote it meant harm."""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hostile_cases import corpus, mutated, mutated_bytes, nested, only_our_errors, to_bytes
from hypothesis import HealthCheck, given, settings

from dadagrad.data import zarr_arrays
from dadagrad.data.dataset import LabelColumn, Schema, open_dataset
from dadagrad.data.rows import Rows
from dadagrad.data.zarr import ZarrDataset, write_partition, write_root
from dadagrad.data.zarr_writer import attributes_checksum
from dadagrad.errors import CorruptionError, InputError
from dadagrad.storage import Storage

N_FEATURES = 500
PART = "part-00000"
SLOW = settings(
    max_examples=8000, deadline=None, suppress_health_check=list(HealthCheck), derandomize=False
)
_numbers = itertools.count()


def made() -> Storage:
    """A dataset of one partition with everything that one can have."""
    random = np.random.default_rng(0)
    counts = random.integers(0, 9, 40)
    ids = [np.sort(random.choice(N_FEATURES, count, replace=False)) for count in counts]
    indptr = np.concatenate([[0], np.cumsum(counts)])
    rows = Rows.from_csr(
        indptr,
        np.concatenate(ids),
        random.normal(size=indptr[-1]).astype(np.float32),
        random.choice([-1.0, 1.0], (40, 1)),
        random.random(40).astype(np.float32),
        random.random(40).astype(np.float32),
        np.arange(40) // 4,
    )
    storage = Storage(f"memory://hostile-zarr-{next(_numbers)}")
    names = {int(feature): f"word {feature}" for feature in rows.vocabulary[::2]}
    partition = write_partition(storage, PART, rows, ["label"], names=names)
    column = LabelColumn("label", (-1.0, 1.0), (20, 20), ("no", "yes"))
    space = {"format": "text", "hash_bits": 9, "columns": ["a", "b"]}
    write_root(storage, Schema(N_FEATURES, (column,), True, space, True), [partition], {"a": [1]})
    return storage


def forge(storage: Storage, root: Any, partition: Any = None) -> None:
    """Write metadata whose checksums fit, as far as anything can be computed of it."""
    try:
        if partition is not None:
            document = to_bytes(partition)
            storage.put(f"{PART}/zarr.json", document)
            root["attributes"]["partitions"][0]["checksum"] = hashlib.sha256(document).hexdigest()
        root["attributes"]["checksum"] = attributes_checksum(root["attributes"])
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError):
        pass
    storage.put("zarr.json", to_bytes(root))


def use(storage: Storage) -> None:
    """Everything that is read of a dataset."""
    data = open_dataset(storage.url)
    assert len(data.fingerprint) == 64
    assert data.n_rows >= 0
    assert data.schema.numbers_own_features in (True, False)
    for number in range(len(data.partitions)):
        rows = data.read(number)
        rows.check("here")
        # What kernels rely on: a process that reads elsewhere may well live on.
        assert rows.indptr[0] == 0
        assert (np.diff(rows.indptr) >= 0).all()
        assert rows.indptr[-1] == len(rows.indices)
        assert not len(rows.indices) or 0 <= rows.indices.min() <= rows.indices.max() < rows.n_local
        assert (np.diff(data.read_vocabulary(number)) > 0).all()
    data.names(np.arange(N_FEATURES))


GENUINE = made()
ROOT = json.loads(GENUINE.get("zarr.json"))
PARTITION = json.loads(GENUINE.get(f"{PART}/zarr.json"))


def check_root(document: Any) -> None:
    GENUINE.put(f"{PART}/zarr.json", to_bytes(PARTITION))
    forge(GENUINE, document)
    with only_our_errors():
        use(GENUINE)


def check_partition(document: Any) -> None:
    forge(GENUINE, json.loads(to_bytes(ROOT)), document)
    with only_our_errors():
        use(GENUINE)


def check_bytes(data: bytes) -> None:
    GENUINE.put(f"{PART}/zarr.json", to_bytes(PARTITION))
    try:
        forge(GENUINE, json.loads(data))
    except (ValueError, RecursionError):
        GENUINE.put("zarr.json", data)
    with only_our_errors():
        use(GENUINE)


ROOT["attributes"]["partitions"][0]["checksum"] = hashlib.sha256(to_bytes(PARTITION)).hexdigest()


@given(mutated(ROOT))
@settings(max_examples=60)
def test_root_metadata(document: Any) -> None:
    check_root(document)


@given(mutated(PARTITION))
@settings(max_examples=60)
def test_metadata_of_a_partition(document: Any) -> None:
    check_partition(document)


@given(mutated_bytes(to_bytes(ROOT)))
@settings(max_examples=60)
def test_bytes_of_the_root(data: bytes) -> None:
    check_bytes(data)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("check", "document"), [(check_root, ROOT), (check_partition, PARTITION)])
def test_a_great_many(check: Any, document: Any) -> None:
    SLOW(given(mutated(document, 5))(check))()


def changed(document: Any, path: str, value: Any) -> Any:
    """A copy of `document` with another value at `path`, whose steps are separated by spaces."""
    document = json.loads(to_bytes(document))
    target = document
    *parents, last = path.split()
    for step in parents:
        target = target[int(step) if isinstance(target, list) else step]
    target[int(last) if isinstance(target, list) else last] = value
    return document


@pytest.mark.parametrize("case", corpus("zarr_root.json"), ids=lambda case: case["broke"])
def test_what_broke_the_root(case: dict[str, Any]) -> None:
    GENUINE.put(f"{PART}/zarr.json", to_bytes(PARTITION))
    forge(GENUINE, changed(ROOT, case["path"], case["value"]))
    with pytest.raises((CorruptionError, InputError), match=case["said"]), only_our_errors(False):
        use(GENUINE)


@pytest.mark.parametrize("case", corpus("zarr_partition.json"), ids=lambda case: case["broke"])
def test_what_broke_a_partition(case: dict[str, Any]) -> None:
    document = changed(PARTITION, case["path"], case["value"])
    forge(GENUINE, json.loads(to_bytes(ROOT)), document)
    with pytest.raises(CorruptionError, match=case["said"]), only_our_errors(False):
        use(GENUINE)


@pytest.mark.parametrize("depth", [200, 5000, 200_000])
@pytest.mark.parametrize("where", ["provenance", "schema", "checksum", "partitions"])
def test_deep_nesting(where: str, depth: int) -> None:
    storage = made()
    root = changed(ROOT, f"attributes {where}", "DEEP")
    text = to_bytes(root).replace(b'"DEEP"', b"[" * depth + b"]" * depth)
    try:
        forge(storage, json.loads(text))
    except RecursionError:
        storage.put("zarr.json", text)
    with pytest.raises(CorruptionError, match=r"zarr\.json"), only_our_errors(False):
        use(storage)


@pytest.mark.parametrize(
    "codecs",
    [
        [{"name": "pickle"}],
        [{"name": "numcodecs.pickle"}],
        [{"name": "bytes"}, {"name": "json2"}],
        [{"name": "bytes"}, {"name": "gzip"}],
        [{"id": "pickle"}],
        ["pickle"],
        {"name": "bytes"},
        [],
    ],
)
def test_no_codec_but_two_is_ever_used(codecs: Any) -> None:
    path = "consolidated_metadata metadata X/indices codecs"
    forge(GENUINE, json.loads(to_bytes(ROOT)), changed(PARTITION, path, codecs))
    with pytest.raises(CorruptionError, match="X/indices: its"):
        use(GENUINE)


def reseal(path: str, chunk: bytes, storage: Storage) -> None:
    """Put another chunk in place, with size and checksum that fit."""
    storage.put(f"{PART}/{path}/c/0", chunk)
    document = json.loads(storage.get(f"{PART}/zarr.json"))
    seals = zarr_arrays.EncodedArray({}, (chunk,)).seals
    document["attributes"]["dadagrad"]["chunks"][path] = seals
    forge(storage, json.loads(storage.get("zarr.json")), document)


def strings(count: int, texts: list[bytes]) -> bytes:
    return struct.pack("<I", count) + b"".join(struct.pack("<I", len(t)) + t for t in texts)


def test_strings_that_lie() -> None:
    storage = made()
    length = open_dataset(storage.url).partitions[0].n_local
    good = [b"x"] * length
    compress = zstandard.ZstdCompressor().compress
    cases = {
        "count": compress(strings(2**32 - 1, good)),
        "fewer": compress(strings(length - 1, good[1:])),
        "more": compress(strings(length, [*good, b"y"])),
        "length": compress(strings(length, good)[:-5] + struct.pack("<I", 2**32 - 1) + b"x"),
        "cut": compress(strings(length, good)[:-3]),
        "utf8": compress(strings(length, [b"\xff", *good[1:]])),
        "bomb": compress(strings(length, [b"\0" * 10_000_000, *good[1:]])),
        "no zstd": b"something else",
        "empty frame": compress(b""),
        "no size": zstandard.ZstdCompressor(write_content_size=False).compress(
            strings(length, good)
        ),
        "two frames": compress(strings(length, good)) * 2,
        # A frame's header that declares 2**62 bytes.
        "header": b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2**62) + b"\1\0\0",
    }
    for chunk in cases.values():
        reseal("var/name", chunk, storage)
        with pytest.raises(CorruptionError, match=f"{PART}, var/name"), only_our_errors(False):
            open_dataset(storage.url).names(np.arange(N_FEATURES))
    reseal("var/name", compress(strings(length, good)), storage)
    assert set(open_dataset(storage.url).names(np.arange(N_FEATURES)).values()) == {"x"}


@pytest.mark.parametrize(
    ("path", "dtype", "value", "said"),
    [
        ("X/data", "float32", np.nan, r"entry 3 is nan; it must be finite"),
        ("X/data", "float32", -np.inf, r"entry 3 is -inf"),
        ("obs/label", "float64", np.inf, r"row 3 is inf"),
        ("obs/weight", "float32", -1.0, r"row 3 is -1\.0; no weight may be negative"),
        ("obs/row_scale", "float32", np.nan, r"row 3 is nan"),
        ("var/feature", "int64", 2**62, "its ids are not increasing"),
        ("var/feature", "int64", -(2**62), "its ids are not increasing"),
        ("X/indices", "int32", -(2**31), "positions must be below"),
        ("X/indptr", "int32", -5, "does not rise"),
    ],
)
def test_numbers_that_lie(path: str, dtype: str, value: Any, said: str) -> None:
    storage = made()
    (length,) = PARTITION["consolidated_metadata"]["metadata"][path]["shape"]
    array = np.zeros(length, dtype)
    array[3] = value
    encoded = zarr_arrays.encode(array)
    document = changed(
        PARTITION, f"consolidated_metadata metadata {path}", encoded.metadata | {"attributes": {}}
    )
    forge(storage, json.loads(to_bytes(ROOT)), document)
    reseal(path, encoded.chunks[0], storage)
    with pytest.raises(CorruptionError, match=f"{PART}, {path}: .*{said}"):
        use(storage)


def test_a_symbolic_link_is_no_way_to_read_other_files(tmp_path: Path) -> None:
    """Links in a folder are followed, as by any program; content must fit all checksums still."""
    storage = Storage(tmp_path / "data")
    for key in GENUINE.list():
        storage.put(key, GENUINE.get(key))
    forge(storage, json.loads(to_bytes(ROOT)), PARTITION)
    secret = tmp_path / "secret"
    chunk = tmp_path / "data" / PART / "X/indices/c/0"
    secret.write_bytes(bytes(len(chunk.read_bytes())))
    chunk.unlink()
    chunk.symlink_to(secret)
    with pytest.raises(CorruptionError, match="X/indices: chunk 0 does not match its checksum"):
        ZarrDataset(storage.url).read(0)


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "\x1b[2J", "\ud800", "..", ".", "a/b", ""])
def test_names_of_labels(name: str) -> None:
    forge(GENUINE, changed(ROOT, "attributes schema label_columns 0 name", name), PARTITION)
    with pytest.raises(CorruptionError, match="cannot be stored"), only_our_errors(False):
        use(GENUINE)


def test_nested_is_nested() -> None:
    assert json.dumps(nested(3)) == "[[[[]]]]"
