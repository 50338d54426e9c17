"""Zarr metadata that lies, with checksums that fit: its author meant harm."""

import copy
import hashlib
import json
import struct
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from helpers.checkpoint_stores import memory_url
from helpers.hostile_cases import changed, corpus, mutated, mutated_bytes, only_our_errors, to_bytes
from helpers.zarr_cases import N_FEATURES, some_rows, write_zarr
from hypothesis import example, given
from hypothesis import strategies as st
from numcodecs import blosc

from dadagrad import TrainConfig, open_dataset
from dadagrad.data.dataset import LabelColumn, MemoryDataset, Schema
from dadagrad.data.feature_space import FeatureSpace
from dadagrad.data.zarr.codec import decimals_codec
from dadagrad.data.zarr.writer import attributes_checksum, seal
from dadagrad.errors import CorruptionError, InputError
from dadagrad.problem import make_problem
from dadagrad.storage.store import Storage

PART = "part-00000"


def made():
    """A dataset of one partition with every optional column."""
    rows = replace(some_rows(n_labels=1), queries=np.arange(40) // 4)
    names = {int(feature): f"word {feature}" for feature in rows.vocabulary[::2]}
    column = LabelColumn("label", (-1.0, 1.0), (20, 20), ("no", "yes"))
    space = {"format": "text", "hash_bits": 9, "columns": ["a", "b"]}
    schema = Schema(N_FEATURES, (column,), True, FeatureSpace(space), True)
    return Storage(write_zarr(MemoryDataset([rows], schema), memory_url(), names=names))


GENUINE = made()
ROOT = json.loads(GENUINE.get("zarr.json"))
PARTITION = json.loads(GENUINE.get(f"{PART}/zarr.json"))


def forge(root=ROOT, partition=PARTITION):
    """Write metadata whose checksums fit, as far as they can be computed."""
    root, document = copy.deepcopy(root), to_bytes(partition)
    GENUINE.put(f"{PART}/zarr.json", document)
    errors = (KeyError, TypeError, IndexError, AttributeError, RecursionError)
    with suppress(*errors):
        entry = root["attributes"]["partitions"][0]
        if entry["checksum"] == ROOT["attributes"]["partitions"][0]["checksum"]:
            entry["checksum"] = hashlib.sha256(document).hexdigest()
    with suppress(*errors):
        root["attributes"]["checksum"] = attributes_checksum(root["attributes"])
    GENUINE.put("zarr.json", to_bytes(root))


@contextmanager
def resealed(path, chunk, partition=PARTITION):
    """Another chunk is in place for the block, with a size and a checksum that fit."""
    key = f"{PART}/{path}/c/0"
    original = GENUINE.get(key)
    GENUINE.put(key, chunk)
    forge(ROOT, changed(partition, f"attributes dadagrad chunks {path}", [seal(chunk)]))
    try:
        yield
    finally:
        GENUINE.put(key, original)


def use():
    """Read everything of the dataset, and check what kernels rely on."""
    data = open_dataset(GENUINE.url)
    assert len(data.digest) == 64
    assert data.n_rows >= 0
    for number in range(len(data.partitions)):
        rows = data.read(number)
        rows.check("here")
        assert rows.indptr[0] == 0
        assert (np.diff(rows.indptr) >= 0).all()
        assert rows.indptr[-1] == len(rows.indices)
        assert not len(rows.indices) or 0 <= rows.indices.min() <= rows.indices.max() < rows.n_local
        assert (np.diff(rows.vocabulary) > 0).all()
    data.names(np.arange(N_FEATURES))


DAMAGES = {
    "root": (forge, mutated(ROOT)),
    "partition": (partial(forge, ROOT), mutated(PARTITION)),
    "bytes of the root": (partial(GENUINE.put, "zarr.json"), mutated_bytes(to_bytes(ROOT))),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_any_damage_is_refused_or_harmless(what):
    damage, documents = DAMAGES[what]

    @given(documents)
    def check(document):
        damage(document)
        with only_our_errors():
            use()

    check()


@given(
    path=st.sampled_from(["X/indices", "X/indptr", "X/data", "var/feature", "var/name"]),
    data=st.data(),
)
def test_any_damaged_chunk_is_refused_or_decodes_to_something_valid(path, data):
    """Its checksum fits."""
    chunk = data.draw(mutated_bytes(GENUINE.get(f"{PART}/{path}/c/0")))
    with resealed(path, chunk), only_our_errors():
        use()


@pytest.mark.parametrize("what", ["root", "partition"])
def test_what_broke(what):
    genuine = {"root": ROOT, "partition": PARTITION}[what]
    for case in corpus(f"zarr_{what}.json"):
        forge(**{what: changed(genuine, case["path"], case["value"])})
        refused = pytest.raises((CorruptionError, InputError), match=case["said"])
        with refused, only_our_errors(False):
            use()


@given(st.none() | st.lists(st.integers() | st.sampled_from([20, 40, 0, 10**400]), max_size=3))
@example([10**400, 20])
@example([45, -5])
@example([10**30, 20])
@example(None)
@example([40, 0])
def test_classes_are_weighed_by_declared_counts_only_if_rows_can_have_them(counts):
    """Counts that do not sum to the rows are refused; others give finite weights."""
    forge(changed(ROOT, "attributes schema label_columns 0 counts", counts))
    config = TrainConfig(step_size=0.1, class_weight="balanced")
    with only_our_errors():
        weights = make_problem(config, open_dataset(GENUINE.url).schema, 1).class_importance
        assert sum(counts) == 40
        assert np.isfinite(weights).all()
        assert (weights > 0).all()


@given(
    st.sampled_from(["provenance", "schema", "checksum", "partitions"]), st.integers(20, 200_000)
)
def test_deep_nesting(field, depth):
    text = to_bytes(changed(ROOT, f"attributes {field}", "DEEP"))
    GENUINE.put("zarr.json", text.replace(b'"DEEP"', b"[" * depth + b"]" * depth))
    with pytest.raises(CorruptionError, match=r"zarr\.json"), only_our_errors(False):
        use()


def strings(count, texts):
    return struct.pack("<I", count) + b"".join(struct.pack("<I", len(t)) + t for t in texts)


@pytest.mark.parametrize("lie", ["count", "fewer", "length", "cut", "utf8", "empty"])
def test_strings_that_lie(lie):
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
    with (
        resealed("var/name", chunk),
        pytest.raises(CorruptionError, match=f"{PART}, var/name"),
        only_our_errors(False),
    ):
        use()


def genuine_arrays():
    rows = open_dataset(GENUINE.url).read(0)
    obs = {"label": rows.labels[:, 0], "weight": rows.weights, "row_scale": rows.row_scale}
    x = {"data": rows.values, "indices": rows.indices, "indptr": rows.indptr.astype(np.int32)}
    arrays = {f"obs/{name}": array for name, array in obs.items()}
    arrays |= {f"X/{name}": array for name, array in x.items()}
    return arrays | {"var/feature": rows.vocabulary}


ARRAYS = genuine_arrays()


def encoded(path, array, *filters):
    """Arguments of `resealed`: an array as a chunk, and metadata with the codecs that decode it."""
    codecs = [*filters, {"name": "bytes", "configuration": {"endian": "little"}}, {"name": "blosc"}]
    document = changed(PARTITION, f"consolidated_metadata metadata {path} codecs", codecs)
    return path, bytes(blosc.compress(array, b"lz4", 5, blosc.NOSHUFFLE)), document


@pytest.mark.parametrize(
    ("path", "entry", "value", "said"),
    [
        ("X/data", 3, np.nan, "number 3 is nan; it must be finite"),
        ("X/data", 3, -np.inf, "number 3 is -inf"),
        ("obs/label", 3, np.inf, "number 3 is inf"),
        ("obs/weight", 3, -1.0, r"number 3 is -1\.0; it must be finite and not negative"),
        ("obs/row_scale", 3, np.nan, "number 3 is nan"),
        ("var/feature", 0, -(2**62), "its ids are not increasing"),
        ("var/feature", 3, 0, "its ids are not increasing"),
        ("var/feature", -1, 2**62, "its ids are not increasing"),
        ("X/indices", 3, -(2**31), "positions must be below"),
        ("X/indices", 3, len(ARRAYS["var/feature"]), "positions must be below"),
        ("X/indptr", 0, -5, "does not rise"),
        ("X/indptr", 3, -5, "does not rise"),
        ("X/indptr", -1, 2**31 - 1, "does not rise"),
    ],
)
def test_numbers_that_lie(path, entry, value, said):
    """Numbers that lead kernels astray are refused, although all checksums fit."""
    array = ARRAYS[path].copy()
    array[entry] = value
    refused = pytest.raises(CorruptionError, match=f"{PART}, {path}: .*{said}")
    with resealed(*encoded(path, array)), refused:
        use()


@pytest.mark.parametrize(
    ("path", "changes", "said"),
    [
        ("X/data", {"scale": 3}, "its codec is"),
        ("X/data", {"scale": 10**8}, "its codec is"),
        ("X/data", {"scale": float("inf")}, "its codec is"),
        ("X/data", {"offset": 1}, "its codec is"),
        ("X/data", {"astype": "<i8"}, "its codec is"),
        ("X/indices", {}, "its codecs is"),
    ],
)
def test_decimals_that_lie(path, changes, said):
    genuine = decimals_codec(2)
    decimals = {**genuine, "configuration": genuine["configuration"] | changes}
    refused = pytest.raises(CorruptionError, match=f"{PART}, {path}: {said}")
    with resealed(*encoded(path, ARRAYS[path], decimals)), refused:
        use()
