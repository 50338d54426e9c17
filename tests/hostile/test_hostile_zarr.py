"""Zarr metadata that lies, with checksums that fit: its author meant harm."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.hostile_cases import corpus, mutated, mutated_bytes, only_our_errors, to_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numcodecs import blosc

from dadagrad.data import open_dataset
from dadagrad.data.dataset import LabelColumn, Schema
from dadagrad.data.rows import Rows
from dadagrad.data.zarr.dataset import ZarrDataset, write_partition, write_root
from dadagrad.data.zarr.writer import attributes_checksum, seal
from dadagrad.errors import CorruptionError, InputError
from dadagrad.storage.store import Storage

N_FEATURES = 500
PART = "part-00000"
SLOW = settings(
    max_examples=8000, deadline=None, suppress_health_check=list(HealthCheck), derandomize=False
)
_numbers = itertools.count()


def made() -> Storage:
    """A dataset of one partition with every optional column."""
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


GENUINE = made()
ROOT = json.loads(GENUINE.get("zarr.json"))
PARTITION = json.loads(GENUINE.get(f"{PART}/zarr.json"))


def forge(storage: Storage, root: Any = ROOT, partition: Any = PARTITION) -> None:
    """Write metadata whose checksums fit, as far as they can be computed."""
    root, document = copy.deepcopy(root), to_bytes(partition)
    storage.put(f"{PART}/zarr.json", document)
    errors = (KeyError, TypeError, IndexError, AttributeError, RecursionError)
    with suppress(*errors):
        entry = root["attributes"]["partitions"][0]
        if entry["checksum"] == ROOT["attributes"]["partitions"][0]["checksum"]:
            entry["checksum"] = hashlib.sha256(document).hexdigest()
    with suppress(*errors):
        root["attributes"]["checksum"] = attributes_checksum(root["attributes"])
    storage.put("zarr.json", to_bytes(root))


def use(storage: Storage) -> None:
    """Read everything of a dataset, and check what kernels rely on."""
    data = open_dataset(storage.url)
    assert len(data.digest) == 64
    assert data.n_rows >= 0
    for number in range(len(data.partitions)):
        rows = data.read(number)
        rows.check("here")
        assert rows.indptr[0] == 0
        assert (np.diff(rows.indptr) >= 0).all()
        assert rows.indptr[-1] == len(rows.indices)
        assert not len(rows.indices) or 0 <= rows.indices.min() <= rows.indices.max() < rows.n_local
        assert (np.diff(data.read_vocabulary(number)) > 0).all()
    data.names(np.arange(N_FEATURES))


def check_root(document: Any) -> None:
    forge(GENUINE, document)
    with only_our_errors():
        use(GENUINE)


def check_partition(document: Any) -> None:
    forge(GENUINE, ROOT, document)
    with only_our_errors():
        use(GENUINE)


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
    GENUINE.put("zarr.json", data)
    with only_our_errors():
        use(GENUINE)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("check", "document"), [(check_root, ROOT), (check_partition, PARTITION)])
def test_a_great_many(check: Any, document: Any) -> None:
    SLOW(given(mutated(document, 5))(check))()


def changed(document: Any, path: str, value: Any) -> Any:
    """A copy of `document` with another value at `path`, whose steps are separated by spaces."""
    document = copy.deepcopy(document)
    target = document
    *parents, last = path.split()
    for step in parents:
        target = target[int(step) if isinstance(target, list) else step]
    target[int(last) if isinstance(target, list) else last] = value
    return document


@pytest.mark.parametrize("case", corpus("zarr_root.json"), ids=lambda case: case["broke"])
def test_what_broke_the_root(case: dict[str, Any]) -> None:
    forge(GENUINE, changed(ROOT, case["path"], case["value"]))
    with pytest.raises((CorruptionError, InputError), match=case["said"]), only_our_errors(False):
        use(GENUINE)


@pytest.mark.parametrize("case", corpus("zarr_partition.json"), ids=lambda case: case["broke"])
def test_what_broke_a_partition(case: dict[str, Any]) -> None:
    forge(GENUINE, ROOT, changed(PARTITION, case["path"], case["value"]))
    with pytest.raises(CorruptionError, match=case["said"]), only_our_errors(False):
        use(GENUINE)


@given(
    st.sampled_from(["provenance", "schema", "checksum", "partitions"]), st.integers(20, 200_000)
)
@settings(max_examples=20, deadline=None)
def test_deep_nesting(field: str, depth: int) -> None:
    storage = made()
    text = to_bytes(changed(ROOT, f"attributes {field}", "DEEP"))
    storage.put("zarr.json", text.replace(b'"DEEP"', b"[" * depth + b"]" * depth))
    with pytest.raises(CorruptionError, match=r"zarr\.json"), only_our_errors(False):
        use(storage)


def reseal(path: str, chunk: bytes, partition: Any = PARTITION) -> None:
    """Put another chunk in place, with a size and a checksum that fit."""
    GENUINE.put(f"{PART}/{path}/c/0", chunk)
    document = changed(partition, f"attributes dadagrad chunks {path}", [seal(chunk)])
    forge(GENUINE, ROOT, document)


@given(st.data(), st.sampled_from(["X/indices", "X/indptr", "X/data", "var/feature", "var/name"]))
@settings(max_examples=150, deadline=None)
def test_chunks(data: st.DataObject, path: str) -> None:
    """Damaged chunks with checksums that fit decode to something valid, or are refused."""
    key = f"{PART}/{path}/c/0"
    original = GENUINE.get(key)
    try:
        reseal(path, data.draw(mutated_bytes(original)))
        with only_our_errors():
            use(GENUINE)
    finally:
        GENUINE.put(key, original)


def strings(count: int, texts: list[bytes]) -> bytes:
    return struct.pack("<I", count) + b"".join(struct.pack("<I", len(t)) + t for t in texts)


@pytest.mark.parametrize("lie", ["count", "fewer", "length", "cut", "utf8", "empty"])
def test_strings_that_lie(lie: str) -> None:
    n_local = ROOT["attributes"]["partitions"][0]["n_local"]
    texts = [b"x"] * n_local
    whole = strings(n_local, texts)
    chunk = {
        "count": strings(2**32 - 1, texts),
        "fewer": strings(n_local - 1, texts[1:]),
        "length": whole[:-5] + struct.pack("<I", 2**32 - 1) + b"x",
        "cut": whole[:-3],
        "utf8": strings(n_local, [b"\xff", *texts[1:]]),
        "empty": b"",
    }[lie]
    key = f"{PART}/var/name/c/0"
    original = GENUINE.get(key)
    try:
        reseal("var/name", chunk)
        with pytest.raises(CorruptionError, match=f"{PART}, var/name"), only_our_errors(False):
            open_dataset(GENUINE.url).names(np.arange(N_FEATURES))
    finally:
        GENUINE.put(key, original)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("X/data", np.nan, r"number 3 is nan; it must be finite"),
        ("X/data", -np.inf, r"number 3 is -inf"),
        ("obs/label", np.inf, r"number 3 is inf"),
        ("obs/weight", -1.0, r"row 3 is -1\.0; no weight may be negative"),
        ("obs/row_scale", np.nan, r"number 3 is nan"),
        ("var/feature", 2**62, "its ids are not increasing"),
        ("var/feature", -(2**62), "its ids are not increasing"),
        ("X/indices", -(2**31), "positions must be below"),
        ("X/indices", N_FEATURES, "positions must be below"),
        ("X/indptr", -5, "does not rise"),
        ("X/indptr", 2**31 - 1, "does not rise"),
    ],
)
def test_numbers_that_lie(path: str, value: Any, said: str) -> None:
    """Numbers that lead kernels astray are refused, although all checksums fit."""
    metadata = PARTITION["consolidated_metadata"]["metadata"][path]
    array = np.zeros(metadata["shape"], metadata["data_type"])
    array[3] = value
    blosc_codec = {"name": "blosc", "configuration": {}}
    codecs = [metadata["codecs"][0], blosc_codec]
    document = changed(PARTITION, f"consolidated_metadata metadata {path} codecs", codecs)
    key = f"{PART}/{path}/c/0"
    original = GENUINE.get(key)
    try:
        reseal(path, bytes(blosc.compress(array, b"lz4", 5, blosc.NOSHUFFLE)), document)
        with pytest.raises(CorruptionError, match=f"{PART}, {path}: .*{said}"):
            use(GENUINE)
    finally:
        GENUINE.put(key, original)


def test_a_symbolic_link_is_no_way_to_read_other_files(tmp_path: Path) -> None:
    """Links in a folder are followed, as by any program; content must still fit all checksums."""
    storage = Storage(tmp_path / "data")
    forge(GENUINE)
    for key in GENUINE.list():
        storage.put(key, GENUINE.get(key))
    secret = tmp_path / "secret"
    chunk = tmp_path / "data" / PART / "X/indices/c/0"
    secret.write_bytes(bytes(len(chunk.read_bytes())))
    chunk.unlink()
    chunk.symlink_to(secret)
    with pytest.raises(CorruptionError, match="X/indices: chunk 0 does not match its checksum"):
        ZarrDataset(storage.url).read(0)


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "\x1b[2J", "\ud800", "..", ".", "a/b", ""])
def test_names_of_labels(name: str) -> None:
    forge(GENUINE, changed(ROOT, "attributes schema label_columns 0 name", name))
    with pytest.raises(CorruptionError, match="cannot be stored"), only_our_errors(False):
        use(GENUINE)
