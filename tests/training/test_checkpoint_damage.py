"""Damaged, hostile and unknown files: the newest genuine checkpoint wins."""

from __future__ import annotations

import hashlib
import json
import logging
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zstandard
from checkpoint_stores import json_values, memory_url, same, snapshot
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.documents import seal, unseal
from dadagrad.errors import CorruptionError, InputError, StorageError
from dadagrad.storage import Storage
from dadagrad.training.checkpoint import CheckpointReader, CheckpointWriter, Snapshot
from dadagrad.training.manifest import read_manifest


def damaged(data: bytes, how: str) -> bytes:
    middle = len(data) // 2
    return {
        "empty": b"",
        "truncated": data[:middle],
        "longer": data + b"\0",
        "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "other": b"\xff" * len(data),
    }[how]


@pytest.mark.parametrize("how", ["empty", "truncated", "longer", "flipped", "other", "missing"])
@pytest.mark.parametrize("what", [".zst", "manifest-"])
def test_damage_makes_the_older_one_win(
    what: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = memory_url()
    with CheckpointWriter(url) as writer:
        writer.save(snapshot(1))
        writer.save(snapshot(2))
    storage = Storage(url)
    prefix = f"{2:012d}-" if what == ".zst" else f"manifest-{2:012d}"
    for key in [key for key in storage.list() if key.startswith(prefix)]:
        data = storage.get(key)
        if how == "missing":
            storage.delete(key)
        else:
            storage.put(key, damaged(data, how))
        if (what, how) != ("manifest-", "longer"):
            assert same(CheckpointReader(url).load(), snapshot(1))
            skips = [record for record in caplog.records if record.levelno == logging.WARNING]
            absent = (what, how) == ("manifest-", "missing")
            assert bool(skips) is not absent
            assert all("manifest-000000000002.json" in skip.getMessage() for skip in skips)
            valid = [info.step for info in CheckpointReader(url).list(verify=True) if info.valid]
            assert valid == [1]
        storage.put(key, data)
        caplog.clear()
    assert same(CheckpointReader(url).load(), snapshot(2))


def test_every_flipped_bit_of_a_manifest_is_noticed() -> None:
    url = memory_url()
    CheckpointWriter(url).save(Snapshot(1, {"x": np.arange(3)}, {"rate": 0.1}))
    storage = Storage(url)
    document = storage.get("manifest-000000000001.json")
    body = unseal(document, "test")
    for position in range(len(document)):
        for bit in range(8):
            flipped = bytearray(document)
            flipped[position] ^= 1 << bit
            try:
                same_body = unseal(bytes(flipped), "test")
            except CorruptionError:
                continue
            assert same_body == body  # white space after the end


def test_all_damaged() -> None:
    url = memory_url()
    CheckpointWriter(url).save(snapshot(1))
    Storage(url).put("manifest-000000000001.json", b"torn")
    with pytest.raises(InputError, match=f"no checkpoint at {url} can be read: 1 found"):
        CheckpointReader(url).load()
    # The next writer takes the damaged one away.
    CheckpointWriter(url).save(snapshot(1))
    assert [(info.step, info.valid) for info in CheckpointReader(url).list()] == [(1, True)]


def test_a_store_that_cannot_be_read_is_no_damage() -> None:
    class Unreachable(Storage):
        def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
            if key.endswith(".zst"):
                raise StorageError("injected: cannot be reached")
            return super().get(key, max_bytes=max_bytes)

    url = memory_url()
    CheckpointWriter(url).save(snapshot(1))
    with pytest.raises(StorageError, match="cannot be reached"):
        CheckpointReader(Unreachable(url)).load()


def rewrite(url: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the body of the only manifest, and seal it again."""
    storage = Storage(url)
    key = next(key for key in storage.list() if key.startswith("manifest-"))
    body = unseal(storage.get(key), key)
    change(body)
    storage.put(key, seal(body, key))


def part_of(body: dict[str, Any]) -> dict[str, Any]:
    part: dict[str, Any] = body["arrays"][0]["parts"][0]
    return part


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda body: part_of(body).update(key="../secret"), "no safe key"),
        (lambda body: part_of(body).update(key="/etc/passwd"), "no safe key"),
        (lambda body: part_of(body).update(key="a/../../b"), "no safe key"),
        (lambda body: part_of(body).update(key="a//b"), "no safe key"),
        (lambda body: part_of(body).update(key="a\\b"), "no safe key"),
        (lambda body: part_of(body).update(bytes=0), "declares"),
        (lambda body: part_of(body).update(raw_bytes=2**40), "declares"),
        (lambda body: part_of(body).update(raw_bytes=True), "raw_bytes is missing or is no int"),
        (lambda body: part_of(body).update(sha256="0" * 64), "another sha256"),
        (lambda body: body["arrays"][0].update(dtype="|O"), "only numbers"),
        (lambda body: body["arrays"][0].update(dtype="f4,f4"), "only numbers"),
        (lambda body: body["arrays"][0].update(dtype="<f3"), "only numbers"),
        (lambda body: body["arrays"][0].update(shape=[2**61, 2**61]), "do not add up"),
        (lambda body: body["arrays"][0].update(shape=[-1]), "has the shape"),
        (lambda body: body["arrays"].append(body["arrays"][0]), "named twice"),
        (lambda body: body.update(step=7), "manifest of step 7"),
        (lambda body: body.update(format="other"), "no manifest of a checkpoint"),
        (lambda body: body.pop("epoch"), "epoch is missing"),
    ],
)
def test_a_manifest_that_lies(change: Callable[[dict[str, Any]], None], message: str) -> None:
    url = memory_url()
    CheckpointWriter(url).save(snapshot(1))
    rewrite(url, change)
    with pytest.raises(InputError, match=message):
        CheckpointReader(url).load()


def test_an_unknown_version_is_refused_not_skipped() -> None:
    url = memory_url()
    with CheckpointWriter(url) as writer:
        writer.save(snapshot(1))
        rewrite(url, lambda body: body.update(version=2))
        writer.save(snapshot(2))
    with pytest.raises(InputError, match=r"format version 2.*reads version 1"):
        CheckpointReader(url).load()
    infos = CheckpointReader(url).list()
    assert [(info.step, info.valid) for info in infos] == [(2, True), (1, False)]
    # Its parts cannot be known, so none are taken for rubbish.
    assert len([key for key in Storage(url).list() if key.endswith(".zst")]) == 6


def test_a_bomb_takes_no_memory() -> None:
    """A small frame that would inflate to 256 MiB, declared as 64 KiB."""
    url = memory_url()
    CheckpointWriter(url).save(Snapshot(1, {"x": np.zeros(2**16, np.uint8)}, {}))
    frame = zstandard.ZstdCompressor().compress(bytes(2**28))
    key = next(key for key in Storage(url).list() if key.endswith(".zst"))
    Storage(url).put(key, frame)

    def declare(body: dict[str, Any]) -> None:

        part_of(body).update(bytes=len(frame), sha256=hashlib.sha256(frame).hexdigest())

    rewrite(url, declare)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="holds 268435456 bytes where 65536 were declared"):
            CheckpointReader(url).load()
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


VALID = snapshot(1)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    found = [(*path, key) for key in keys]
    for key in keys:
        if isinstance(value[key], dict | list):
            found += _places(value[key], (*path, key))
    return found


@given(json_values, st.integers(0, 10**6), st.booleans())
def test_no_manifest_does_more_than_be_refused(value: Any, choice: int, whole: bool) -> None:
    url = memory_url()
    CheckpointWriter(url).save(VALID)

    def change(body: dict[str, Any]) -> None:
        places = _places(body)
        *path, last = places[choice % len(places)]
        target: Any = body
        for key in path:
            target = target[key]
        target[last] = value

    storage = Storage(url)
    try:
        if whole:
            body = value if isinstance(value, dict) else {"format": value}
            storage.put("manifest-000000000001.json", seal(body, "test"))
        else:
            rewrite(url, change)
    except ValueError:
        return  # NaN cannot be written as JSON
    try:
        loaded = CheckpointReader(url).load()
    except InputError:
        return
    assert loaded.step == 1  # what changed is of no consequence: meta, created, ...


@given(st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    storage = Storage(memory_url())
    storage.put("manifest-000000000001.json", data)
    with pytest.raises(CorruptionError):
        read_manifest(storage, "manifest-000000000001.json")


@pytest.mark.parametrize("data", [b"[" * 10**5, b'{"body":' * 10**5, b"9" * 10**4, b"\xff\xfe"])
def test_hostile_json(data: bytes) -> None:
    storage = Storage(memory_url())
    storage.put("manifest-000000000001.json", data)
    with pytest.raises(CorruptionError):
        read_manifest(storage, "manifest-000000000001.json")
