"""Storage: the same behaviour in a folder, behind file:// and in memory; errors that help."""

import os
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from helpers.checkpoint_stores import memory_url
from helpers.processes import run_python

from dadagrad.errors import AlreadyExists, InputError, MissingKey, StorageError, TooLarge
from dadagrad.storage import retries
from dadagrad.storage.store import Storage


@pytest.fixture(params=["path", "file", "memory"])
def storage(request, tmp_path):
    folder = tmp_path / "with space é ~ %41 #?"
    urls = {
        "path": str(folder),
        "file": f"file://{quote(str(folder))}",
        "memory": f"{memory_url()}/with space é ~ %41",
    }
    return Storage(urls[request.param])


@pytest.mark.parametrize("key", ["a", "a/b c/é ~ %20 #?", "deep/" * 20 + "x"])
def test_objects_are_read_as_they_were_written(storage, key):
    storage.put(key, b"first")
    storage.put(key, b"the second, longer")
    again = pickle.loads(pickle.dumps(storage))
    assert again.get(key, max_bytes=18) == b"the second, longer"
    assert (storage.size(key), storage.exists(key), storage.list()) == (18, True, [key])
    buffer = bytearray(20)
    assert storage.read_into(key, buffer) == 18
    assert buffer == b"the second, longer\0\0"
    with storage.open(key) as file:
        assert file.readable()
        assert file.seekable()
        assert file.seek(-6, os.SEEK_END) == 12
        assert file.read(100) == b"longer"
        assert file.seek(4) == 4
        assert file.read(3) == b"sec"
        assert file.seek(2, os.SEEK_CUR) == file.tell() == 9
        assert file.read(1) == b"d"


def test_an_object_that_is_larger_than_allowed_is_not_read(storage):
    storage.put("four", b"four")
    buffer = bytearray(3)
    for read in (
        lambda: storage.read_into("four", buffer),
        lambda: storage.get("four", max_bytes=3),
    ):
        with pytest.raises(TooLarge, match="four has 4 bytes where at most 3"):
            read()
    assert buffer == bytes(3)


@pytest.mark.parametrize("now", [b"other!", b"six", b"longer than six", b"6"])
def test_an_object_that_is_written_again_while_it_is_read_is_refused(now):
    """Its first bytes would be followed by those of another content."""
    storage = Storage(memory_url())
    storage.put("key", b"object")
    with storage.open("key") as file:
        assert file.read(2) == b"ob"
        storage.put("key", now)
        with pytest.raises(StorageError, match=r"cannot read key in .*: it was changed or cut "):
            file.read(4)


def test_a_folder_is_not_the_prefix_of_a_name(storage):
    storage.put_many({"b/2": b"22", "b/1": b"1", "bc/3": b"3", "a": b""})
    assert storage.list() == ["a", "b/1", "b/2", "bc/3"]
    buffers = {"b/2": bytearray(2), "b/1": bytearray(2)}
    assert storage.read_many(buffers) == [2, 1]
    assert buffers == {"b/2": b"22", "b/1": b"1\0"}
    assert storage.n_bytes() == 4
    assert storage.list("b") == ["b/1", "b/2"]
    assert storage.list("nothing") == []
    storage.delete_prefix("b")
    assert storage.list() == ["a", "bc/3"]
    storage.delete_prefix("bc")
    storage.delete_prefix("nothing")
    assert storage.list() == ["a"]


def test_missing_objects_are_named(storage):
    storage.put("folder/x", b"")
    for key in ("nothing", "folder", "folder/x/y"):
        assert not storage.exists(key)
        for action in (storage.get, storage.size, storage.open):
            with pytest.raises(MissingKey, match=key) as caught:
                action(key)
            assert storage.url in str(caught.value)
        storage.delete(key)
    assert storage.exists("folder/x")


def test_of_many_creators_one_wins(storage):
    def create(number):
        try:
            storage.put("lock", str(number).encode(), create=True)
        except AlreadyExists:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        wins = list(pool.map(create, range(8)))
    assert sum(wins) == 1
    assert storage.get("lock") == str(wins.index(True)).encode()
    with pytest.raises(AlreadyExists, match="exists already"):
        storage.put("lock", b"", create=True)


def test_keys_cannot_leave_the_prefix(storage):
    for key in ("../x", "a/../../x", "/etc/passwd", "a/./b", "a\0b"):
        for action in (storage.get, storage.exists, storage.delete, storage.list):
            with pytest.raises(InputError, match="is not a key"):
                action(key)
        with pytest.raises(InputError, match="is not a key"):
            storage.put(key, b"")


def test_paths(tmp_path, monkeypatch):
    """A relative path survives another working directory, and reading creates nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    storage = Storage("data")
    assert (storage.url, storage.list(), storage.exists("a")) == ("data", [], False)
    assert list(tmp_path.iterdir()) == []
    storage.put("a", b"x")
    monkeypatch.chdir("/")
    for same in (storage, pickle.loads(pickle.dumps(storage)), Storage("~/data")):
        assert same.get("a") == b"x"
    assert (Storage("~/data").n_bytes(), Storage("~/data/a").n_bytes()) == (1, 1)
    with pytest.raises(MissingKey):
        Storage("~/none").n_bytes()


def test_memory_is_shared_by_name():
    Storage("memory://shared/x").put("a", b"1")
    assert Storage("memory://shared").get("x/a") == b"1"
    assert not Storage("memory://other").exists("x/a")


def test_readers_never_see_half_a_write(tmp_path):
    storage = Storage(tmp_path)
    storage.put("a", b"0" * 3_000_000)

    def write():
        for digit in (b"1", b"2", b"3", b"4") * 5:
            storage.put("a", digit * 3_000_000)

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        data = storage.get("a")
        assert data == data[:1] * 3_000_000
    assert os.listdir(tmp_path) == ["a"]


def run(program, *arguments):
    """The lines that a Python program prints, to which `Storage` is known."""
    program = f"import os, sys\nfrom dadagrad.storage.store import Storage\n{program}"
    return run_python("-c", program, *arguments).stdout.splitlines()


def test_who_has_only_read_can_be_forked(tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    program = """
storage = Storage(sys.argv[1])
print(storage.get("a"), storage.exists("a"), storage.exists("b"), storage.size("a"), flush=True)
child = os.fork()
if child == 0:
    storage.put("b", b"y")
    print(storage.list(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    assert run(program, tmp_path) == ["b'x' True False 1", "['a', 'b']"]


def test_a_limit_on_the_size_of_files_says_so(tmp_path):
    program = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    Storage(sys.argv[1]).put("a", bytes(2000))
except Exception as error:
    print(type(error).__name__, error)
"""
    said = f"StorageError cannot write a in {tmp_path}: File too large; raise the limit (ulimit -f)"
    assert run(program, tmp_path)[0].startswith(said)


def test_permission_denied_says_so(tmp_path):
    program = """
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
    try:
        lines = run(program, opened, closed)
    finally:
        closed.chmod(0o700)
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("StorageError cannot ")
        assert "permission denied; check its owner" in line


def test_urls_that_cannot_be_opened(monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    for url, message in (
        ("", "empty URL"),
        ("ftp://host/x", "scheme must be one of file, memory, s3"),
        ("s3://", "names no bucket"),
        ("s3:///key", "names no bucket"),
        ("file://host/x", "names a host"),
        ("s3:/bucket/x", "one slash where a URL has two"),
        ("s3://bucket/../x", "is not a key"),
        ("az://container/x", "AZURE_STORAGE_ACCOUNT_NAME"),
        ("http://ann:word@host/x", "web servers are read without a user and password"),
    ):
        with pytest.raises(InputError, match=message):
            Storage(url)


def test_credentials_are_never_shown(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "SECRETID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRETKEY")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("DADAGRAD_STORAGE_PATIENCE", "0")
    shown = []
    for scheme in ("s3", "http"):
        with pytest.raises(InputError, match="has one slash") as refused:
            Storage(f"{scheme}:/SECRETID:SECRETKEY@bucket/x")
        shown.append(str(refused.value))
        for rest in ("SECRETID:SECRETKEY@bucket/x", "bucket/x?sig=SECRETKEY"):
            with pytest.raises(InputError, match="or a query in it; ") as refused:
                Storage(f"{scheme}://{rest}")
            shown.append(str(refused.value))
    with pytest.raises(InputError, match="names a host") as refused:
        Storage("file://SECRETID:SECRETKEY@host/x")
    shown.append(str(refused.value))
    for url in ("s3://bucket/x", "http://127.0.0.1:1/x"):
        storage = Storage(url)
        shown += [repr(storage), storage.url, repr(pickle.dumps(storage)), repr(vars(storage))]
        with pytest.raises(StorageError) as failed:
            storage.get("a?sig=SECRETKEY")
        shown.append(str(failed.value))
        assert failed.value.__cause__ is None
        assert failed.value.__suppress_context__
    assert not [text for text in shown if "SECRET" in text.replace("AWS_SECRET", "")]


def test_an_endpoint_that_is_no_url_is_refused(monkeypatch):
    for endpoint in ("http://my host", "127.0.0.1:1", "http://:80", "http://[::1"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        with pytest.raises(InputError, match="AWS_ENDPOINT_URL must be http"):
            Storage("s3://bucket/x")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("s3://bucket/x", "AWS_ACCESS_KEY_ID"),
        ("s3://bucket/x", "AWS_SESSION_TOKEN"),
        ("s3://bucket/x", "AWS_REGION"),
        ("az://container/x", "AZURE_STORAGE_ACCOUNT_NAME"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r", "\x7f"])
def test_a_credential_with_a_line_end_is_refused_and_not_shown(url, name, end, monkeypatch):
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.setenv(variable, "someone")
    of_another_process = pickle.dumps(Storage(url))
    monkeypatch.setenv(name, f"SECRET{end}")
    for use in (lambda: Storage(url), lambda: pickle.loads(of_another_process).get("a")):
        with pytest.raises(InputError, match=f"{name} has a line end") as refused:
            use()
        assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "http://no-such-host.invalid"])
def test_an_unreachable_endpoint_fails_soon(endpoint, monkeypatch):
    assert retries.FIRST_SECONDS < 5
    monkeypatch.setattr(retries, "FIRST_SECONDS", 0.3)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
    start = time.monotonic()
    # A name server may refuse a name, or not answer at all.
    with pytest.raises(StorageError, match=r"s3://bucket/x: (the endpoint cannot be|no answer)"):
        Storage("s3://bucket/x").get("a")
    assert time.monotonic() - start < 10


def test_a_folder_whose_name_is_not_utf8_takes_nothing(tmp_path):
    storage = Storage(os.fsdecode(os.fsencode(tmp_path) + b"/na\xffme"))
    with pytest.raises(StorageError, match="its name is not UTF-8 text; give it another"):
        storage.put("key", b"bytes")


def test_a_store_without_memory_for_threads_is_an_error(tmp_path):
    """The library of stores would wait for ever."""
    program = """
import psutil, resource
storage = Storage(sys.argv[1])
storage.put("before", b"")  # loads the library
limit = psutil.Process().memory_info().vms + (1 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    storage.put("key", b"bytes")
except Exception as error:
    print(type(error).__name__, error)
"""
    said = f"OutOfMemory {tmp_path}: the limit of addresses"
    assert run(program, tmp_path)[0].startswith(said)
