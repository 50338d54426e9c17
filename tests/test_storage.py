"""Storage: the same behaviour in a folder, behind file:// and in memory; errors that help."""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from dadagrad.errors import AlreadyExists, InputError, StorageError
from dadagrad.storage import MissingKey, Storage, TooLarge, open_store

_numbers = itertools.count()


@pytest.fixture(params=["path", "file", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    folder = tmp_path / "with space é ~ %41 #?"
    urls = {
        "path": str(folder),
        "file": f"file://{quote(str(folder))}",
        "memory": f"memory://test-{next(_numbers)}/with space é ~ %41",
    }
    return Storage(urls[request.param])


@pytest.mark.parametrize("key", ["a", "a/b c/é ~ %20 #?", "deep/" * 20 + "x"])
def test_what_is_put_is_got(storage: Storage, key: str) -> None:
    storage.put(key, b"first")
    storage.put(key, b"the second, longer")
    assert storage.get(key) == b"the second, longer"
    assert storage.get_range(key, 4, 6) == b"second"
    assert storage.size(key) == 18
    assert storage.exists(key)
    assert storage.list() == [key]
    with storage.open(key) as file:
        assert file.seek(-6, os.SEEK_END) == 12
        assert file.read(100) == b"longer"
        assert file.seek(4) == 4
        assert file.read(6) == b"second"


def test_lists_a_folder_not_a_prefix_of_a_name(storage: Storage) -> None:
    storage.put_many({"b/2": b"", "b/1": b"", "bc/3": b"", "a": b""})
    assert storage.list() == ["a", "b/1", "b/2", "bc/3"]
    assert storage.list("b") == ["b/1", "b/2"]
    assert storage.list("nothing") == []
    storage.delete_prefix("b")
    assert storage.list() == ["a", "bc/3"]
    storage.delete_prefix("bc")
    storage.delete_prefix("nothing")
    assert storage.list() == ["a"]


def test_read_many_fills_each_buffer_with_its_object(storage: Storage) -> None:
    storage.put_many({str(number): str(number).encode() for number in range(20)})
    buffers = {str(number): bytearray(b"???") for number in reversed(range(20))}
    assert storage.read_many(buffers) == [len(key) for key in buffers]
    assert buffers == {key: bytearray(key.encode().ljust(3, b"?")) for key in buffers}


def test_read_into_refuses_what_does_not_fit_and_what_is_not_there(storage: Storage) -> None:
    storage.put("four", b"four")
    buffer = bytearray(3)
    with pytest.raises(TooLarge, match="four"):
        storage.read_into("four", buffer)
    assert buffer == bytes(3)
    with pytest.raises(MissingKey):
        storage.read_into("none", buffer)
    storage.put("empty", b"")
    assert storage.read_into("empty", bytearray()) == 0


def test_bytes_of_a_folder_and_of_an_object(storage: Storage) -> None:
    storage.put_many({"a": b"12345", "b/c": b"123", "b/d": b"", "bc": b"1"})
    assert storage.n_bytes() == 9


def test_bytes_of_what_is_there_under_a_url(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b/c").write_bytes(b"123")
    (tmp_path / "bc").write_bytes(b"1")
    for url, size in (("b", 3), ("b/c", 3), ("bc", 1)):
        assert Storage(tmp_path / url).n_bytes() == size
    with pytest.raises(MissingKey):
        Storage(tmp_path / "none").n_bytes()


def test_missing_objects_are_named(storage: Storage) -> None:
    storage.put("folder/x", b"")
    for key in ("nothing", "folder", "folder/x/y"):
        assert not storage.exists(key)
        for action in (storage.get, storage.size, storage.open):
            with pytest.raises(MissingKey, match=key) as caught:
                action(key)
            assert storage.url in str(caught.value)
        storage.delete(key)
    assert storage.exists("folder/x")


def test_create_refuses_what_exists(storage: Storage) -> None:
    storage.put("a", b"1", create=True)
    with pytest.raises(AlreadyExists, match="exists already"):
        storage.put("a", b"2", create=True)
    assert storage.get("a") == b"1"


def test_of_many_creators_one_wins(storage: Storage) -> None:
    wins = []

    def create(number: int) -> None:
        try:
            storage.put("lock", str(number).encode(), create=True)
        except AlreadyExists:
            return
        wins.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == 1
    assert storage.get("lock") == str(wins[0]).encode()


def test_too_large_objects_are_not_read(storage: Storage) -> None:
    storage.put("a", b"12345")
    assert storage.get("a", max_bytes=5) == b"12345"
    with pytest.raises(StorageError, match="5 bytes where at most 4"):
        storage.get("a", max_bytes=4)


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/etc/passwd", "a/./b", "a\0b"])
def test_keys_cannot_leave_the_prefix(storage: Storage, key: str) -> None:
    for action in (storage.get, storage.exists, storage.delete, storage.list):
        with pytest.raises(InputError, match="is no key"):
            action(key)
    with pytest.raises(InputError, match="is no key"):
        storage.put(key, b"")


def test_pickles_by_url(storage: Storage) -> None:
    storage.put("a", b"x")
    same = pickle.loads(pickle.dumps(storage))
    assert same == storage
    assert same.get("a") == b"x"


def test_zarr_opens_the_store(storage: Storage) -> None:
    import zarr

    group = zarr.create_group(storage.zarr(read_only=False))
    group.create_array("a", data=np.array([1, 2, 3]))
    assert "a/zarr.json" in storage.list()
    assert zarr.open_group(storage.zarr(), mode="r")["a"][:].tolist() == [1, 2, 3]


def test_relative_paths_survive_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = Storage("data")
    storage.put("a", b"x")
    assert storage.url == "data"
    monkeypatch.chdir("/")
    assert storage.get("a") == b"x"
    assert pickle.loads(pickle.dumps(storage)).get("a") == b"x"


def test_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    Storage("~/data").put("a", b"x")
    assert (tmp_path / "data" / "a").read_bytes() == b"x"


def test_reading_creates_nothing(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "new")
    assert storage.list() == []
    assert not storage.exists("a")
    assert not (tmp_path / "new").exists()


def test_memory_is_shared_by_name() -> None:
    Storage("memory://shared/x").put("a", b"1")
    assert Storage("memory://shared").get("x/a") == b"1"
    assert not Storage("memory://other").exists("x/a")
    assert open_store("memory://shared") is open_store("memory://shared/x")


def test_readers_never_see_half_a_write(tmp_path: Path) -> None:
    storage, sizes, stop = Storage(tmp_path), set(), threading.Event()
    storage.put("a", b"0" * 3_000_000)

    def write() -> None:
        for digit in (b"1", b"2", b"3", b"4") * 5:
            storage.put("a", digit * 3_000_000)
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not stop.is_set():
        data = storage.get("a")
        sizes.add((len(data), data[:1] == data[-1:]))
    writer.join()
    assert sizes == {(3_000_000, True)}
    assert os.listdir(tmp_path) == ["a"]


def test_a_killed_writer_leaves_the_old_bytes(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    storage.put("a", b"old")
    program = (
        "import sys; from dadagrad.storage import Storage; s = Storage(sys.argv[1])\n"
        "print('ready', flush=True)\n"
        "while True: s.put('a', b'n' * 50_000_000)"
    )
    for delay in (0.0, 0.01, 0.03):
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.kill()
        process.communicate()
        assert storage.get("a") in (b"old", b"n" * 50_000_000)
        assert storage.list() == ["a"]


def test_who_has_only_read_can_be_forked(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    program = """
import os, sys, time
from dadagrad.storage import Storage
storage = Storage(sys.argv[1])
print(storage.get("a"), storage.exists("a"), storage.exists("b"), storage.size("a"), flush=True)
child = os.fork()
if child == 0:
    storage.put("b", b"y")
    print(storage.list(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    assert result.stdout.splitlines() == ["b'x' True False 1", "['a', 'b']"]


def test_a_full_disk_says_so(tmp_path: Path) -> None:
    # Written over the link by the only call that does not replace it.
    storage = Storage(tmp_path)
    with pytest.raises(OSError, match="No space left") as caught:
        Path("/dev/full").write_bytes(b"x")
    with pytest.raises(StorageError, match="no space is left on the device; free some"):
        storage._explain(caught.value, "write", "a")


def test_permission_denied_says_so(tmp_path: Path) -> None:
    program = """
import os, sys
from dadagrad.storage import Storage
opened, closed = Storage(sys.argv[1]), Storage(sys.argv[2])
opened.put("b", b"")  # loads what is loaded late
opened.exists("c")
if os.geteuid() == 0:
    os.setresuid(65534, 65534, 65534)
for action in (lambda: closed.get("a"), lambda: closed.put("b", b""), lambda: closed.exists("a")):
    try:
        action()
    except Exception as error:
        print(type(error).__name__, error)
"""
    opened, closed = tmp_path / "opened", tmp_path / "closed"
    closed.mkdir()
    (closed / "a").write_bytes(b"x")
    closed.chmod(0o000)
    result = subprocess.run(
        [sys.executable, "-c", program, str(opened), str(closed)],
        capture_output=True,
        text=True,
        check=False,
    )
    closed.chmod(0o700)
    lines = result.stdout.splitlines()
    assert len(lines) == 3, result.stderr
    for line in lines:
        assert line.startswith("StorageError cannot ")
        assert "permission denied; check its owner" in line


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "empty URL"),
        ("ftp://host/x", "scheme must be one of file, memory, s3"),
        ("s3://", "names no bucket"),
        ("s3:///key", "names no bucket"),
        ("file://host/x", "names the host 'host'"),
        ("s3://bucket/../x", "is no key"),
        ("az://container/x", "AZURE_STORAGE_ACCOUNT_NAME"),
    ],
)
def test_urls_that_cannot_be_opened(
    url: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(InputError, match=message):
        Storage(url)


def test_credentials_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "SECRETID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRETKEY")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("DADAGRAD_STORAGE_PATIENCE", "0")
    shown = []
    with pytest.raises(InputError) as refused:
        Storage("s3://SECRETID:SECRETKEY@bucket/x")
    shown.append(str(refused.value))
    for url in ("s3://bucket/x", "http://SECRETID:SECRETKEY@127.0.0.1:1/x"):
        storage = Storage(url)
        shown += [repr(storage), storage.url, repr(pickle.dumps(storage)), repr(vars(storage))]
        with pytest.raises(StorageError) as failed:
            storage.get("a")
        shown.append(str(failed.value))
        assert failed.value.__cause__ is None
        assert failed.value.__suppress_context__
    assert not [text for text in shown if "SECRET" in text.replace("AWS_SECRET", "")]


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "http://no-such-host.invalid"])
def test_an_unreachable_endpoint_fails_soon(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
    start = time.monotonic()
    with pytest.raises(StorageError, match="s3://bucket/x: the endpoint cannot be reached"):
        Storage("s3://bucket/x").get("a")
    assert time.monotonic() - start < 15


def test_object_files_read_like_local_ones() -> None:
    storage = Storage(f"memory://test-{next(_numbers)}")
    storage.put("a", bytes(range(256)))
    with storage.open("a") as file:
        assert file.readable()
        assert file.seekable()
        assert file.read() == bytes(range(256))
        assert file.read(1) == b""
        assert file.seek(10) == 10
        assert file.seek(5, os.SEEK_CUR) == 15
        assert file.read(2) == bytes([15, 16])
        assert file.tell() == 17
