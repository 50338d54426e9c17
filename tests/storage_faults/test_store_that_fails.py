"""A store that answers 503, keeps silent or hangs up: asked again, given up in bounded time."""

import logging
import os
import pickle
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Timer

import pytest
from helpers.checkpoint_stores import same, snapshot
from helpers.faulty_proxy import Proxy, always, first
from helpers.processes import free_port
from helpers.servers import BUCKET

from dadagrad.cli.failures import interruptible
from dadagrad.errors import AlreadyExists, InputError, StorageError
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints.reader import CheckpointReader
from dadagrad.training.checkpoints.writer import CheckpointWriter
from dadagrad.training.engines.watcher import Watcher

SLOW = pytest.mark.slow


@pytest.fixture
def patience(monkeypatch):
    """Sets the seconds of retries for a store that has answered, and for one that has not."""

    def set_seconds(answered, unknown=3.0):
        monkeypatch.setenv("DADAGRAD_STORAGE_PATIENCE", str(answered))
        monkeypatch.setattr("dadagrad.storage.retries.FIRST_SECONDS", unknown)

    return set_seconds


def fails(call, match):
    """Seconds until a call fails with this message."""
    begun = time.monotonic()
    with pytest.raises(StorageError, match=match):
        call()
    return time.monotonic() - begun


def read_middle(storage):
    with storage.open("range") as file:
        file.seek(2)
        return file.read(2)


def actions(storage):
    """Everything that is ever asked of a store, each for an object of its own, and the answer."""
    return [
        (lambda: storage.get("get"), b"object"),
        (lambda: storage.read_into("into", bytearray(6)), 6),
        (lambda: read_middle(storage), b"je"),
        (lambda: storage.size("size"), 6),
        (lambda: storage.list("folder"), ["folder/a"]),
        (lambda: storage.exists("absent"), False),
        (lambda: storage.put("new", b"new"), None),
        (lambda: storage.put("large", b"x" * (2 << 20)), None),
        (lambda: storage.delete("delete"), None),
    ]


@pytest.mark.parametrize(
    "mishaps", ["503 429 lose", pytest.param("reset cut reset cut", marks=SLOW), "stall"]
)
def test_everything_is_asked_again(mishaps, proxy, url, monkeypatch):
    monkeypatch.setenv("DADAGRAD_STORAGE_TIMEOUT", "0.25")
    storage = Storage(url)
    for key in ("get", "into", "range", "size", "folder/a", "delete"):
        storage.put(key, b"object")
    proxy.act = first(*mishaps.split())
    calls, answers = zip(*actions(storage), strict=True)
    with ThreadPoolExecutor(9) as pool:
        assert tuple(pool.map(lambda call: call(), calls)) == answers
    proxy.act = always("pass")
    assert (storage.get("new"), storage.size("large")) == (b"new", 2 << 20)
    assert not storage.exists("delete")


def test_a_create_only_write_whose_answer_was_lost_is_not_repeated(proxy, url):
    storage = Storage(url)
    storage.put("warm", b"")
    proxy.act = first("lose")
    with pytest.raises(AlreadyExists):  # by itself: whoever asks must find out
        storage.put("key", b"mine", create=True)
    assert storage.get("key") == b"mine"


@pytest.mark.parametrize(
    "mishap", ["lose", "409", *(pytest.param(how, marks=SLOW) for how in ("reset", "503"))]
)
def test_checkpoints_through_a_bad_connection(mishap, proxy, url):
    """Every write of a run goes wrong at first: none is missing, none is there twice."""
    goes_wrong = first(mishap)
    proxy.act = lambda request: (
        goes_wrong(request) if request.conditional or mishap != "409" else "pass"
    )
    with CheckpointWriter(url, keep=2, new=True) as writer:
        assert writer.create_only
        for step in range(3):
            writer.save(snapshot(step))
    proxy.act = always("pass")
    keys = Storage(url).list()
    manifests = ["manifest-000000000001.json", "manifest-000000000002.json"]
    documents = [key for key in keys if key.endswith(".json")]
    assert documents == ["epoch-0000000001.json", *manifests]
    assert len(keys) == 3 + 2 * len(snapshot(0).arrays)
    assert same(CheckpointReader(url).load(), snapshot(2))


def test_requests_that_succeed_the_second_time_warn_of_nothing(proxy, url, caplog):
    storage, answers = Storage(url), iter(["503", "pass", "503"])
    proxy.act = lambda request: next(answers, "pass")
    storage.put("key", b"x")
    assert storage.get("key") == b"x"
    assert next(answers, None) is None
    assert not caplog.records


def test_a_store_that_is_gone_for_good(proxy, url, patience, monkeypatch, caplog):
    patience(1.8)
    # Pauses are random: one may begin before a warning is due, and last to the end.
    monkeypatch.setattr("dadagrad.storage.retries.QUIET_SECONDS", 0.5)
    caplog.set_level(logging.INFO)
    storage = Storage(url)
    storage.put("key", b"x")
    proxy.act = always("503")
    said = f"cannot read key in {url}: the store answers 503 .*"
    said += r"\(tried for [12] s: [^\n]*\); try again later$"
    assert 1.3 < fails(lambda: storage.read_many({"key": bytearray(1)}), said) < 5
    assert caplog.text.count("503") == 1
    assert "503 Service Unavailable; trying again for up to 1.8 seconds" in caplog.text
    proxy.act = always("pass")
    assert storage.get("key") == b"x"
    assert caplog.text.count(f"s3://{BUCKET} answers again") == 1


def test_silence_is_told_from_absence(proxy, url, patience, monkeypatch):
    patience(0.5)
    monkeypatch.setenv("DADAGRAD_STORAGE_TIMEOUT", "0.2")
    proxy.act = always("stall")
    said = "no answer in time .*; on a slow network, raise DADAGRAD_STORAGE_TIMEOUT"
    assert fails(lambda: Storage(url).get("key"), said) < 8


@pytest.mark.parametrize(
    ("mishap", "said"),
    [("reset", "the endpoint cannot be reached"), ("503", "the store answers 503")],
)
def test_who_gives_a_store_up_does_so_for_all(mishap, said, proxy, url, patience):
    """A save that fails tidies up after itself: that must not take as long once more."""
    patience(1.2, unknown=0.1)
    writer = CheckpointWriter(url)
    proxy.act = always(mishap)
    spent = fails(lambda: writer.save(snapshot(1)), said)
    assert 1.1 < spent < 2.3


@pytest.mark.parametrize(("block", "n_signals"), [(interruptible, 1), (Watcher().on_interrupt, 2)])
def test_a_signal_ends_a_command_that_waits_for_a_store(block, n_signals, proxy, url, patience):
    """Its threads, which ask the store again, end soon as well; a run ends at the second signal."""
    patience(8, unknown=0.1)
    storage = Storage(url)
    storage.put("key", b"x")
    proxy.act = always("503")
    begun = time.monotonic()
    for number in range(n_signals):
        Timer(0.3 + 0.2 * number, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt), block():
        storage.read_many({"key": bytearray(1), "other": bytearray(1)})
    assert time.monotonic() - begun < 4


@pytest.mark.parametrize("how", ["neither", "answered", "unpickled"])
def test_a_store_that_is_known_is_waited_for_longer(how, servers, url, patience, monkeypatch):
    """It has answered this process, or another: a worker may start while the store is away."""
    patience(0.9, unknown=0.1)
    with Proxy(servers["moto"]) as proxy:
        proxy.server.set_environment(monkeypatch)
        storage = Storage(url)
        if how == "answered":
            storage.put("key", b"x")
            proxy.act = always("reset")
        else:
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
            storage = Storage(url)
        storage = pickle.loads(pickle.dumps(storage)) if how == "unpickled" else storage
        least, most = (0.0, 0.7) if how == "neither" else (0.7, 3.0)
        assert least < fails(lambda: storage.get("key"), "cannot be reached") < most


def test_a_slow_upload_is_not_a_stalled_one(proxy, url, patience, monkeypatch):
    patience(0)
    monkeypatch.setenv("DADAGRAD_STORAGE_TIMEOUT", "0.25")
    proxy.bytes_per_second = 3e6
    begun = time.monotonic()
    Storage(url).put("part", b"p" * 1_500_000)
    assert time.monotonic() - begun > 0.45
    assert len(proxy.requests) == 1


def test_a_store_that_does_not_know_conditions_says_so_at_once(proxy, url, servers, monkeypatch):
    """The answer 501, unlike others from 500 on, will not change; rclone ignores the condition."""
    proxy.act = lambda request: "501" if request.method == "PUT" and request.conditional else "pass"
    begun = time.monotonic()
    writer = CheckpointWriter(url)
    assert time.monotonic() - begun < 5
    assert not writer.create_only
    writer.save(snapshot(1))
    assert CheckpointReader(url).load().step == 1
    servers["rclone"].set_environment(monkeypatch)
    assert not CheckpointWriter(url).create_only


def test_an_endpoint_that_is_not_a_store_is_not_asked_again(proxy, url):
    """Such as the page of a console, which takes no objects."""
    proxy.act = always("405")
    with pytest.raises(StorageError, match=r"405 \S.*; check the URL and AWS_ENDPOINT_URL$"):
        Storage(url).put("key", b"bytes")
    assert proxy.count("PUT", "key") == 1


def test_settings_that_are_no_number_of_seconds(monkeypatch):
    for name in ("DADAGRAD_STORAGE_PATIENCE", "DADAGRAD_STORAGE_TIMEOUT"):
        for text in ("soon", "-1", "nan", ""):
            monkeypatch.setenv(name, text)
            said = re.escape(f"{name}='{text}' was given; it must be a number of seconds")
            with pytest.raises(InputError, match=said):
                Storage("s3://bucket/x")
