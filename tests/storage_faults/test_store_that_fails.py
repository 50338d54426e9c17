"""A store that answers 503, keeps silent or hangs up: asked again, given up in bounded time."""

from __future__ import annotations

import logging
import pickle
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from helpers.faulty_proxy import Proxy, Request, always, first
from helpers.processes import free_port
from helpers.servers import BUCKET, Server

from dadagrad.errors import AlreadyExists, InputError, StorageError
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints.writer import CheckpointReader, CheckpointWriter, Snapshot

SLOW = pytest.mark.slow


@pytest.fixture
def proxy(servers: dict[str, Server], monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Before the server that honours create-only writes."""
    with Proxy(servers["moto"]) as proxy:
        proxy.server.set_environment(monkeypatch)
        yield proxy


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"s3://{BUCKET}/{request.node.name.translate(str.maketrans('[]', '--'))}"


def snapshot(step: int) -> Snapshot:
    return Snapshot(step, {"sums": np.random.default_rng(step).normal(size=(500, 2))}, {"at": step})


def read_middle(storage: Storage) -> bytes:
    with storage.open("range") as file:
        file.seek(2)
        return file.read(2)


def actions(storage: Storage) -> dict[str, Callable[[], Any]]:
    """Everything that is ever asked of a store, and each for an object of its own."""
    buffer = bytearray(6)
    return {
        "get": lambda: storage.get("get"),
        "into": lambda: (storage.read_into("into", buffer), bytes(buffer)),
        "range": lambda: read_middle(storage),
        "size": lambda: storage.size("size"),
        "list": lambda: storage.list("folder"),
        "absent": lambda: storage.exists("absent"),
        "put": lambda: storage.put("new", b"new"),
        "large": lambda: storage.put("large", b"x" * (2 << 20)),
        "delete": lambda: storage.delete("delete"),
    }


ANSWERS = {
    "get": b"object",
    "into": (6, b"object"),
    "range": b"je",
    "size": 6,
    "list": ["folder/a"],
    "absent": False,
    "put": None,
    "large": None,
    "delete": None,
}


@pytest.mark.parametrize(
    "mishap",
    ["503", "429", "lose", "stall", *(pytest.param(how, marks=SLOW) for how in ("reset", "cut"))],
)
def test_everything_is_asked_again(
    mishap: str, proxy: Proxy, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More often than the client under it does by itself."""
    monkeypatch.setenv("DADAGRAD_STORAGE_TIMEOUT", "0.4")
    storage = Storage(url)
    for key in ("get", "into", "range", "size", "folder/a", "delete"):
        storage.put(key, b"object")
    proxy.act = first(2 if mishap == "stall" else 4, mishap)
    with ThreadPoolExecutor(9) as pool:
        jobs = {name: pool.submit(action) for name, action in actions(storage).items()}
        assert {name: job.result() for name, job in jobs.items()} == ANSWERS
    proxy.act = always("pass")
    assert storage.get("new") == b"new"
    assert storage.size("large") == 2 << 20
    assert not storage.exists("delete")


def test_what_was_created_by_an_answer_that_was_lost(proxy: Proxy, url: str) -> None:
    storage = Storage(url)
    storage.put("warm", b"")
    proxy.act = first(1, "lose")
    with pytest.raises(AlreadyExists):  # by itself: whoever asks must find out
        storage.put("key", b"mine", create=True)
    assert storage.get("key") == b"mine"


@pytest.mark.parametrize(
    "mishap", ["lose", "409", *(pytest.param(how, marks=SLOW) for how in ("reset", "503"))]
)
def test_checkpoints_through_a_bad_connection(mishap: str, proxy: Proxy, url: str) -> None:
    """Every write of a run goes wrong at first: none is missing, none is there twice."""
    goes_wrong = first(1, mishap)
    proxy.act = lambda request: (
        goes_wrong(request) if request.conditional or mishap != "409" else "pass"
    )
    with CheckpointWriter(url, keep=2, new=True) as writer:
        assert writer.create_only
        for step in range(3):
            writer.save(snapshot(step))
    proxy.act = always("pass")
    keys = Storage(url).list()
    documents = [key for key in keys if key.endswith(".json")]
    manifests = ["manifest-000000000001.json", "manifest-000000000002.json"]
    assert documents == ["epoch-0000000001.json", *manifests]
    assert len(keys) == 3 + 2
    assert CheckpointReader(url).load().meta == {"at": 2}


def test_a_store_that_is_gone_for_good(
    proxy: Proxy, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DADAGRAD_STORAGE_PATIENCE", "1.5")
    caplog.set_level(logging.INFO)
    storage = Storage(url)
    storage.put("key", b"x")
    proxy.act = always("503")
    begun = time.monotonic()
    with pytest.raises(StorageError) as caught:
        storage.read_many({"key": bytearray(1), "other": bytearray(1)})
    assert 0.5 < time.monotonic() - begun < 4
    assert f"cannot read key in {url}: the store answers 503" in str(caught.value)
    assert re.search(r"\(tried for [12] s: [^\n]*\); try again later$", str(caught.value))
    assert caplog.text.count("503") == 1
    assert "503 Service Unavailable; trying again for up to 1.5 seconds" in caplog.text
    proxy.act = always("pass")
    assert storage.get("key") == b"x"
    assert caplog.text.count(f"s3://{BUCKET} answers again") == 1


def test_silence_is_told_from_absence(
    proxy: Proxy, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DADAGRAD_STORAGE_PATIENCE", "1")
    monkeypatch.setenv("DADAGRAD_STORAGE_TIMEOUT", "0.3")
    proxy.act = always("stall")
    begun = time.monotonic()
    with pytest.raises(StorageError, match="no answer in time") as caught:
        Storage(url).get("key")
    assert time.monotonic() - begun < 8
    assert "on a slow network, raise DADAGRAD_STORAGE_TIMEOUT" in str(caught.value)


def test_who_gives_a_store_up_does_so_for_all(
    proxy: Proxy, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that fails tidies up after itself: that must not take as long once more."""
    monkeypatch.setenv("DADAGRAD_STORAGE_PATIENCE", "2")
    monkeypatch.setattr("dadagrad.storage.retries.FIRST_SECONDS", 0.3)
    writer = CheckpointWriter(url)
    proxy.act = always("reset")
    begun = time.monotonic()
    with pytest.raises(StorageError, match="the endpoint cannot be reached"):
        writer.save(snapshot(1))
    assert 1.9 < time.monotonic() - begun < 3.8


def test_a_store_that_has_answered_is_waited_for_longer(
    proxy: Proxy, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure without any answer of the store, so that only the success before it counts."""
    monkeypatch.setenv("DADAGRAD_STORAGE_PATIENCE", "1.2")
    monkeypatch.setattr("dadagrad.storage.retries.FIRST_SECONDS", 0.1)
    storage = Storage(url)
    for answered, (least, most) in ((False, (0.0, 0.9)), (True, (1.1, 3.0))):
        if answered:
            proxy.act = always("pass")
            storage.put("key", b"x")
        proxy.act = always("reset")
        begun = time.monotonic()
        with pytest.raises(StorageError, match="cannot be reached"):
            storage.get("key")
        assert least < time.monotonic() - begun < most


def test_a_store_that_another_process_has_found_is_not_doubted(
    url: str, monkeypatch: pytest.MonkeyPatch, servers: dict[str, Server]
) -> None:
    """Workers of a cluster may start while the store is away for a moment."""
    monkeypatch.setenv("DADAGRAD_STORAGE_PATIENCE", "1.2")
    monkeypatch.setattr("dadagrad.storage.retries.FIRST_SECONDS", 0.1)
    servers["moto"].set_environment(monkeypatch)
    for arrived, (least, most) in ((False, (0.0, 0.9)), (True, (0.9, 3.0))):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
        storage = Storage(url)
        storage = pickle.loads(pickle.dumps(storage)) if arrived else storage
        begun = time.monotonic()
        with pytest.raises(StorageError, match="cannot be reached"):
            storage.get("key")
        assert least < time.monotonic() - begun < most


def test_a_slow_upload_is_not_a_stalled_one(
    proxy: Proxy, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DADAGRAD_STORAGE_TIMEOUT", "0.5")
    monkeypatch.setenv("DADAGRAD_STORAGE_PATIENCE", "0")
    storage = Storage(url)
    proxy.bytes_per_second = 1.5e6
    begun = time.monotonic()
    storage.put("part", b"p" * 1_500_000)
    assert time.monotonic() - begun > 0.9
    assert proxy.count("PUT") == 1


def test_a_store_that_does_not_know_conditions_says_so_at_once(proxy: Proxy, url: str) -> None:
    """The answer 501, unlike others from 500 on, will not change."""

    def act(request: Request) -> str:
        return "501" if request.method == "PUT" and request.conditional else "pass"

    proxy.act = act
    begun = time.monotonic()
    writer = CheckpointWriter(url)
    assert time.monotonic() - begun < 5
    assert not writer.create_only
    writer.save(snapshot(1))
    assert CheckpointReader(url).load().step == 1


@pytest.mark.parametrize("name", ["DADAGRAD_STORAGE_PATIENCE", "DADAGRAD_STORAGE_TIMEOUT"])
@pytest.mark.parametrize("text", ["soon", "-1", "nan", ""])
def test_settings_that_are_none(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(InputError, match=f"{name}='{text}' was given; it must be a number of sec"):
        Storage("s3://bucket/x")
