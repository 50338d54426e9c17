"""Raw files in object storage and on web servers are read as those of this machine."""

import gzip
import itertools
import shutil
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
import pandas
import pytest
from distributed import Client
from helpers.array_files import write_frame
from helpers.processes import local_cluster
from helpers.servers import BUCKET, moto_server, web_server

import dadagrad
from dadagrad import InputError, StorageError
from dadagrad.data.ingest import readers, sources
from dadagrad.data.reading.names import expand
from dadagrad.storage.store import Storage

FRAME = pandas.DataFrame(
    {"rich": np.arange(300) % 2, "job": np.arange(300) % 3, "age": np.arange(300) % 7 - 3.5}
).replace({"job": {0: "cook", 1: "nurse", 2: "pilot"}})
NAMES = ["a", "a.csv", "a.csv.gz", "a.jsonl", "a.parquet", "folders", "part-*.csv", "a.svm", "list"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the same rows in each of `NAMES`."""
    folder = tmp_path_factory.mktemp("raw")
    for name in ("a.csv", "a.jsonl"):
        write_frame(FRAME, folder / name)
    FRAME.to_parquet(folder / "a.parquet", index=False, row_group_size=20)
    (folder / "a.csv.gz").write_bytes(gzip.compress((folder / "a.csv").read_bytes()))
    FRAME.to_parquet(folder / "folders", index=False, partition_cols=["job"])
    shutil.copy(folder / "a.csv", folder / "a")
    for number in range(2):
        shutil.copy(folder / "a.csv", folder / f"part-{number}.csv")
    rows = zip(FRAME.rich, FRAME.age, strict=True)
    (folder / "a.svm").write_text("".join(f"{rich} 1:{age} 3:1\n" for rich, age in rows))
    shutil.copytree(folder / "folders", folder / "list")
    (folder / "list" / "_SUCCESS").touch()
    return folder


def upload(folder, url):
    storage = Storage(url)
    for path in filter(lambda path: path.is_file(), folder.rglob("*")):
        storage.put(str(path.relative_to(folder)), path.read_bytes())
    return url


@pytest.fixture(scope="module")
def url(folder):
    return upload(folder, "memory://raw/rows")


def options_of(name):
    return {"step_size": 0.3} | ({} if name == "a.svm" else {"label": "rich"})


@pytest.mark.parametrize("name", NAMES)
def test_a_model_has_the_bits_of_the_same_files_here(folder, url, name):
    model = dadagrad.train(f"{url}/{name}", **options_of(name)).model
    assert model.digest == dadagrad.train(folder / name, **options_of(name)).model.digest
    assert model.digest == dadagrad.train([f"{url}/{name}"], **options_of(name)).model.digest
    here, there = (dadagrad.evaluate(model, f"{place}/{name}") for place in (folder, url))
    assert here | {"seconds": 0} == there | {"seconds": 0}


@pytest.mark.parametrize(
    "pattern",
    [
        "*.csv",
        "**/*.csv",
        "**",
        "[d]/*.csv",
        "*/[b].csv",
        "?/*.csv",
        ".*.csv",
        "d/**/c.csv",
        "*/*",
        "o*",
    ],
)
def test_a_glob_has_the_files_that_it_has_here(tmp_path, pattern):
    for name in (
        "a.csv",
        "d/b.csv",
        "d/e/c.csv",
        ".hid.csv",
        "_SUCC.csv",
        ".f/g.csv",
        "d/x[1].csv",
        "o1/h.csv",
        "o1/_SUCCESS",
        "o2/p/i.csv",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a")
    url = upload(tmp_path, f"memory://globs-{tmp_path.name}")
    here = [name.removeprefix(f"{tmp_path}/") for name in expand(f"{tmp_path}/{pattern}")]
    assert [name.removeprefix(f"{url}/") for name in expand(f"{url}/{pattern}")] == here


def test_an_object_may_have_the_name_of_a_glob():
    Storage("memory://brackets").put("rows[1]", b"1 1:1\n")
    assert expand("memory://brackets/rows[1]") == ["memory://brackets/rows[1]"]


def test_a_glob_that_cannot_be_listed_is_named():
    with pytest.raises(InputError, match="a web server does not list its files; name each"):
        expand("http://127.0.0.1:1/rows/*.csv")
    with pytest.raises(InputError, match="glob in place of a bucket"):
        expand("memory://row*/a.csv")
    with pytest.raises(InputError, match="credentials or a query"):
        expand("http://127.0.0.1:1/rows/a.csv?token=1")


def test_a_folder_has_the_files_that_it_has_here(folder, tmp_path):
    """Its own, and not those of folders beside them."""
    for source, name in (("a.csv", "b.csv"), ("a.jsonl", "more/c.jsonl"), ("a.csv", "_old/a.csv")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(folder / source, tmp_path / name)
    url = upload(tmp_path, "memory://mixed/rows")
    for place in (str(tmp_path), f"{tmp_path}/more", url, f"{url}/more/"):
        data = dadagrad.ingest(place, "memory://mixed/data", label="rich", overwrite=True)
        assert data.rows == 300


def test_workers_of_a_cluster_read_them_from_a_store(folder, tmp_path, monkeypatch):
    with moto_server(tmp_path) as server:
        server.set_environment(monkeypatch)
        raw = upload(folder, f"s3://{BUCKET}/raw")
        with local_cluster(2) as cluster, Client(cluster, set_as_default=False) as client:
            for name in ("part-*.csv", "folders"):
                out = f"s3://{BUCKET}/{name[:4]}"
                report = dadagrad.ingest(f"{raw}/{name}", out, label="rich", client=client)
                assert report.source_bytes > 0
                expected = dadagrad.train(folder / name, **options_of(name)).model.digest
                assert dadagrad.train(out, step_size=0.3).model.digest == expected


def test_a_file_of_a_web_server_is_read(folder, tmp_path):
    with web_server(folder, tmp_path / "log") as place:
        model = dadagrad.train(f"{place}/a.csv", **options_of("a.csv")).model
    assert model.digest == dadagrad.train(folder / "a.csv", **options_of("a.csv")).model.digest


def test_a_server_that_sends_whole_files_only_is_named(folder):
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(StorageError, match=r"a\.csv: the server sends whole files only; copy"):
            dadagrad.train(f"http://127.0.0.1:{server.server_port}/a.csv", label="rich")
        server.shutdown()


def test_a_line_that_is_wrong_is_named(url):
    Storage(url).put("wrong.csv", b"rich,age\n0,1\n1,2\n0,1,2\n")
    with pytest.raises(InputError, match=r"memory://raw/rows/wrong.csv, line 4"):
        dadagrad.ingest(f"{url}/wrong.csv", "memory://raw/out", label="rich")


def test_missing_files_are_named(url, monkeypatch):
    for name in ("none.csv", "none*.csv"):
        with pytest.raises(InputError, match="there is no file memory://raw/rows/none"):
            dadagrad.train(f"{url}/{name}", label="rich")
    with pytest.raises(InputError) as refused:
        dadagrad.ingest("s3://bucket/*.csv?sig=SECRETKEY", "memory://raw/out")
    assert "SECRETKEY" not in str(refused.value)
    model = dadagrad.train(f"{url}/a.csv", **options_of("a.csv")).model
    with monkeypatch.context() as patch:  # between the listing and the reading
        patch.setattr(sources, "expand", lambda paths: [f"{url}/gone.csv"])
        with pytest.raises(StorageError, match=r"gone\.csv: there is no such object"):
            dadagrad.predict(model, f"{url}/part-*.csv", "memory://raw/out.csv")
    Storage(url).put("a.npz", b"PK")
    with pytest.raises(InputError, match="npz is read from files; copy it to this machine"):
        dadagrad.train(f"{url}/a.npz")


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_store_that_fails_is_not_taken_for_a_damaged_file(url, name, monkeypatch):
    """Whichever reading of the file it is that fails."""
    monkeypatch.setattr(readers, "TASK_BYTES", 1000)
    ask = Storage._ask
    for number in itertools.count():
        readings = itertools.count()

        def fail(self, action, key, call, readings=readings, number=number):
            if action == "read" and next(readings) == number:
                raise StorageError("the store is away")
            return ask(self, action, key, call)

        monkeypatch.setattr(Storage, "_ask", fail)
        try:
            dadagrad.ingest(f"{url}/{name}", f"memory://raw/{name}-{number}", label="rich")
            break
        except StorageError:
            continue
    assert number > 2


def ingested(url, out):
    dadagrad.ingest(url, out, label="rich", overwrite=True)
    return dadagrad.open_dataset(out).digest


def predicted(url, out, model):
    dadagrad.predict(model, url, f"{out}.csv", overwrite=True)
    return Storage(f"{out}.csv").get("")


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("use", [ingested, predicted])
def test_two_contents_of_an_object_are_never_mixed(suffix, use, tmp_path, monkeypatch):
    """It is written again before any one of the requests: all rows are old, or all are new."""
    monkeypatch.setattr(readers, "TASK_BYTES", 5000)
    if use is predicted:
        use = partial(predicted, model=dadagrad.train(FRAME, label="rich", step_size=0.3).model)
    store, ask, contents, results = Storage("memory://twice"), Storage._ask, [], []
    for frame in (FRAME, FRAME.assign(rich=1 - FRAME.rich, age=-FRAME.age)):
        path = tmp_path / f"a.{suffix}"
        if suffix == "jsonl":
            frame.to_json(path, orient="records", lines=True)
        else:
            frame.to_parquet(path, index=False, row_group_size=100)
        results.append(use(path, str(tmp_path / "out")))
        contents.append(path.read_bytes())
    outcomes, number, n_requests = set(), 0, 1

    def write_again(self, action, key, call):
        nonlocal n_requests
        if self.url == f"{store.url}/a.{suffix}":
            n_requests += 1
            if n_requests == number:
                store.put(f"a.{suffix}", contents[1])
        return ask(self, action, key, call)

    monkeypatch.setattr(Storage, "_ask", write_again)
    while n_requests >= number:
        store.put(f"a.{suffix}", contents[0])
        n_requests, number = 0, number + 1
        try:
            outcomes.add(use(f"{store.url}/a.{suffix}", f"{store.url}/{suffix}"))
        except StorageError:
            outcomes.add("refused")
    assert outcomes == {*results, "refused"}


@pytest.mark.parametrize(("suffix", "limit"), [("csv", 3), ("csv.gz", 3), ("parquet", 4)])
def test_a_small_file_takes_few_requests(folder, tmp_path, monkeypatch, suffix, limit):
    urls, n_requests, ask = [], Counter(), Storage._ask
    for number in range(20):
        store = Storage("memory://raw/small")
        store.put(f"{number:02}.{suffix}", (folder / f"a.{suffix}").read_bytes())
        urls.append(f"memory://raw/small/{number:02}.{suffix}")

    def count(self, action, key, call):
        n_requests[self.url] += 1
        return ask(self, action, key, call)

    monkeypatch.setattr(Storage, "_ask", count)
    dadagrad.ingest(urls, tmp_path / "d", label="rich")
    assert max(n_requests[url] for url in urls[1:]) <= limit
