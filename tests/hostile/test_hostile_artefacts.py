"""Models and checkpoints whose documents lie, with checksums that fit."""

import hashlib
import json

import numpy as np
import pytest
import zstandard
from click.testing import CliRunner
from helpers.checkpoint_stores import memory_url
from helpers.hostile_cases import changed, corpus, mutated, only_our_errors, sealed
from hypothesis import given

from dadagrad import Model
from dadagrad.cli import dadagrad
from dadagrad.data.dataset import LabelColumn, Schema
from dadagrad.data.feature_space import FeatureSpace
from dadagrad.data.rows import Rows
from dadagrad.errors import CorruptionError, DadagradError, InputError
from dadagrad.storage.documents import unseal
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints.manifest import Snapshot
from dadagrad.training.checkpoints.reader import CheckpointReader
from dadagrad.training.checkpoints.writer import CheckpointWriter

ROWS = Rows.from_csr(
    np.array([0, 2, 3]), np.array([3, 5, 4]), None, np.zeros((2, 1)), None, None, None
)


def made_model():
    url = memory_url()
    Model(
        n_features=64,
        ids=np.array([3, 5], np.int64),
        weights=np.array([[1.0, 2.0, 3.0]] * 2, np.float32),
        intercept=np.zeros(3),
        loss="softmax",
        task="multiclass",
        label_columns=(LabelColumn("y", (0.0, 1.0, 2.0), (1, 2, 3), ("a", "b", "c")),),
        feature_space=FeatureSpace({"format": "text", "hash_bits": 6}),
        names={3: "good"},
        report={"steps": 7, "loss": float("nan"), "config": {"l1": 0.0}},
    ).save(url)
    return Storage(url)


def made_run():
    url = memory_url()
    arrays = {"a": np.arange(10.0), "b": np.zeros((3, 2), np.float32)}
    with CheckpointWriter(url) as writer:
        writer.save(Snapshot(5, arrays, {"x": [1, float("nan")], "passes": [{"rows": 3}]}))
    return Storage(url)


MODEL, RUN = made_model(), made_run()
MANIFEST = next(key for key in RUN.list() if key.startswith("manifest-"))
MODEL_BODY = unseal(MODEL.get("model.json"), "test")
RUN_BODY = unseal(RUN.get(MANIFEST), "test")


def show(*arguments):
    result = CliRunner().invoke(dadagrad, ["inspect", *arguments])
    assert result.exit_code in (0, 2), result.exception


def use_model():
    model = Model.load(MODEL)
    scores = model.scores(ROWS)
    assert np.isfinite(scores).all()
    model.predict_labels(scores)
    model.check_compatible(Schema(model.n_features, (), feature_space=model.feature_space))
    show(MODEL.url)
    show(MODEL.url, "--json")


def use_run():
    reader = CheckpointReader(RUN)
    for info in reader.list(verify=True):
        assert info.step == 5
        if info.problem is not None:
            assert "\n" not in info.problem
    show(RUN.url, "--verify", "--json")
    reader.load()


def check_model(body):
    MODEL.put("model.json", sealed(body))
    with only_our_errors():
        use_model()


def check_run(body):
    RUN.put(MANIFEST, sealed(body))
    with only_our_errors():
        use_run()


CHECKS = [(check_model, MODEL_BODY), (check_run, RUN_BODY)]


@pytest.mark.parametrize(("check", "body"), CHECKS)
def test_any_damage_is_refused_or_harmless(check, body):
    given(mutated(body))(check)()


def test_what_broke_a_model():
    for case in corpus("model.json"):
        MODEL.put("model.json", sealed(changed(MODEL_BODY, case["path"], case["value"])))
        with pytest.raises(CorruptionError, match=case["said"]), only_our_errors(False):
            use_model()


def test_rows_of_a_pass_that_are_no_number():
    check_run(changed(RUN_BODY, "meta passes 0 rows", None))


PARTS = {
    "key": ["../../etc/passwd", "/etc/passwd", "a/../b", "a\0b", "", "a//b", ".hidden", "a\nb"],
    "sha256": ["0" * 64, "", None, 3],
    "bytes": [0, -1, 2**60, 2**63, 1.5, True, None],
    "raw_bytes": [0, -1, 2**26, 2**60, 7, 2**63, float("inf")],
}
ARRAYS = {
    "dtype": ["|O", "object", "<f8,<f8", "<V8", "<U3", "<M8", "f8; import os", "<f3", "<f99"],
    "shape": [[2**60], [2**32, 2**32], [-1], [10.0], [True], 10, None, [1] * 40, [0, 2**61]],
    "parts": [[], None, {}, [[]], [None]],
    "name": [None, 3, []],
}


@pytest.mark.parametrize(
    ("storage", "key", "body", "read"),
    [
        (MODEL, "model.json", MODEL_BODY, Model.load),
        (RUN, MANIFEST, RUN_BODY, lambda storage: CheckpointReader(storage).load()),
    ],
)
def test_arrays_that_lie(storage, key, body, read):
    cases = [(f"arrays 0 parts 0 {name}", value) for name in PARTS for value in PARTS[name]]
    cases += [(f"arrays 0 {name}", value) for name in ARRAYS for value in ARRAYS[name]]
    for path, value in cases:
        storage.put(key, sealed(changed(body, path, value)))
        with pytest.raises((CorruptionError, InputError)), only_our_errors(False):
            read(storage)


def put_part(storage, key, body, part, data):
    """Put other bytes in the place of a part, to which size and checksum fit."""
    storage.put(part["key"], data)
    part.update(bytes=max(len(data), 1), sha256=hashlib.sha256(data).hexdigest())
    storage.put(key, sealed(body))


def test_a_part_that_is_a_bomb():
    """Its frame declares what the document does; the content is a thousand times as large."""
    storage = made_run()
    key = next(key for key in storage.list() if key.startswith("manifest-"))
    body = unseal(storage.get(key), "test")
    part = body["arrays"][0]["parts"][0]
    assert part["raw_bytes"] == 80
    bomb = zstandard.ZstdCompressor().compress(bytes(10_000_000))
    lying = bomb[:4] + b"\x20\x50" + bomb[9:]  # a header of one byte for the size: 80
    for data in (bomb, lying, bomb[:-4], b"", zstandard.ZstdCompressor().compress(b"")):
        put_part(storage, key, body, part, data)
        with pytest.raises(InputError, match="damaged"), only_our_errors(False):
            CheckpointReader(storage).load()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["weights", "intercept"])
def test_weights_that_are_not_finite(name, value):
    storage = made_model()
    body = unseal(storage.get("model.json"), "test")
    record = next(record for record in body["arrays"] if record["name"] == name)
    raw = np.full(record["shape"], value, record["dtype"]).tobytes()
    (part,) = record["parts"]
    put_part(storage, "model.json", body, part, zstandard.ZstdCompressor().compress(raw))
    with pytest.raises(CorruptionError, match=f"{name} are not finite"), only_our_errors(False):
        Model.load(storage)


@pytest.mark.parametrize("depth", [200, 900, 100_000])
@pytest.mark.parametrize("member", ["report", "schema", "meta", "arrays"])
def test_deep_nesting(member, depth):
    storage, key, body, use = (
        (RUN, MANIFEST, RUN_BODY, use_run)
        if member == "meta"
        else (MODEL, "model.json", MODEL_BODY, use_model)
    )
    text = json.dumps(changed(body, member, "DEEP"), separators=(",", ":")).encode()
    text = text.replace(b'"DEEP"', b'{"a":' * depth + b"1" + b"}" * depth)
    storage.put(key, sealed(text))
    with only_our_errors():
        use()


def test_documents_that_are_too_large():
    url = memory_url()
    Storage(url).put("model.json", b" " * (65 << 20))
    with pytest.raises(DadagradError, match="more than"):
        Model.load(url)
    Storage(url).delete("model.json")
