"""The place of a dataset: one ingest writes there at a time, and none leaves half a dataset."""

import os
import signal
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers.processes import run_python
from helpers.servers import BUCKET, moto_server
from helpers.sudden_death import each_death

from dadagrad import InputError, StorageError, ingest, open_dataset
from dadagrad.cli import dadagrad
from dadagrad.data.ingest import ingest as module
from dadagrad.data.ingest import output
from dadagrad.storage.store import Storage

ROWS = {"a.svm": 300, "b.svm": 200}


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Two files, which make 5 and 3 partitions; an ingest soon shows that it lives."""
    monkeypatch.setattr(output, "_BEAT_SECONDS", 0.1)
    for name, n_rows in ROWS.items():
        (tmp_path / name).write_text(
            "".join(f"{row % 2} 1:1 {row + 2}:1\n" for row in range(n_rows))
        )
    return [tmp_path / name for name in ROWS]


def write(source, out, **options):
    return ingest(source, str(out), partition_nnz=200, **options).rows


def rows_of(out):
    """Rows of a dataset, all of which can be read."""
    data = open_dataset(str(out))
    return sum(data.read(number).n_rows for number in range(len(data.partitions)))


def race(sources, out):
    """Ingest both sources at once: exactly one makes the dataset."""
    results = []
    barrier = threading.Barrier(len(sources))

    def run(source):
        barrier.wait()
        try:
            results.append(write(source, out))
        except InputError as error:
            results.append(str(error))

    threads = [threading.Thread(target=run, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows_of(out) in results
    (message,) = [result for result in results if isinstance(result, str)]
    assert "another ingest is writing" in message or "there is a dataset at" in message
    assert not [key for key in Storage(out).list() if "claim" in key]


def test_one_of_two_ingests_makes_the_dataset(sources, tmp_path, monkeypatch):
    with moto_server(tmp_path) as server:
        server.set_environment(monkeypatch)
        for number in range(4):
            race(sources, str(tmp_path / f"out{number}"))
            race(sources, f"s3://{BUCKET}/out{number % 2}/{number}")


def test_a_claim_that_another_ingest_removed_unfinished_is_lost(sources, tmp_path, monkeypatch):
    put = Storage.put

    def put_after_the_other(storage, key, content, **options):
        """The other claims the place, and removes the file that this one was writing."""
        monkeypatch.setattr(Storage, "put", put)
        put(storage, key, b"of another")
        raise StorageError(f"cannot write {key}: No such file or directory")

    monkeypatch.setattr(Storage, "put", put_after_the_other)
    with pytest.raises(InputError, match="another ingest is writing"):
        write(sources[0], tmp_path / "out")


def patch_write(monkeypatch, at, action):
    """Call `action` before partition `at` is written."""
    original = module.write_partition

    def patched(storage, name, *rest, **options):
        if name == at:
            monkeypatch.setattr(module, "write_partition", original)
            action()
        return original(storage, name, *rest, **options)

    monkeypatch.setattr(module, "write_partition", patched)


def test_an_ingest_that_lives_is_not_replaced(sources, tmp_path, monkeypatch):
    def second():
        with pytest.raises(InputError, match="another ingest is writing"):
            write(sources[1], tmp_path / "out", overwrite=True)

    patch_write(monkeypatch, "part-00003", second)
    assert write(sources[0], tmp_path / "out") == rows_of(tmp_path / "out") == 300


def test_an_ingest_that_was_paused_stops_when_it_goes_on(sources, tmp_path, monkeypatch):
    monkeypatch.setattr(output, "DEAD_SECONDS", 0.1)
    monkeypatch.setattr(output, "_BEAT_SECONDS", 60.0)
    patch_write(monkeypatch, "part-00003", lambda: write(sources[1], tmp_path / "out"))
    with pytest.raises(InputError, match="another ingest is writing"):
        write(sources[0], tmp_path / "out", workers=1)
    assert rows_of(tmp_path / "out") == 200


KILLED = """
import os, sys
from dadagrad.data.ingest import ingest as module
write = module.write_partition
def killed(storage, name, *rest, **options):
    return os._exit(9) if name == "part-00002" else write(storage, name, *rest, **options)
module.write_partition = killed
module.ingest(sys.argv[1], sys.argv[2], partition_nnz=200)
"""


def test_an_ingest_that_was_killed_can_run_again(sources, tmp_path, monkeypatch):
    out = tmp_path / "out"
    run_python("-c", KILLED, sources[0], out, code=9)
    assert (out / "part-00001").exists()
    with pytest.raises(InputError, match="half-written"):
        open_dataset(str(out))
    (out / "part-00007").mkdir()
    for unfinished in ("part-00007/zarr.json#1", "zarr.json#1"):  # what the store had begun
        (out / unfinished).touch()
    monkeypatch.setattr(output, "DEAD_SECONDS", 0.1)
    ingest(sources[1], str(out))
    assert rows_of(out) == 200
    assert {path.name for path in out.iterdir()} == {"part-00000", "zarr.json"}


DEATHS = """
from pathlib import Path
import zarr
from dadagrad import ingest, open_dataset
from dadagrad.data.ingest import output
from dadagrad.data.ingest.ingest import read_dataset
from dadagrad.errors import InputError, StorageError

source, = arguments
n_rows = read_dataset(source).n_rows  # loads what all the others need

def act(folder):
    ingest(source, f"{folder}/out", partition_nnz=200)

def check(folder):
    try:
        data = open_dataset(f"{folder}/out")
    except InputError:
        pass
    else:
        assert sum(data.read(number).n_rows for number in range(len(data.partitions))) == n_rows
    output.DEAD_SECONDS = 0.02
    ingest(source, f"{folder}/out", partition_nnz=10**6, overwrite=True)
    left = sorted(path.name for path in Path(folder, "out").iterdir())
    assert left == ["part-00000", "zarr.json"], left
    assert sum(path.is_file() for path in Path(folder).rglob("*")) == N_FILES
"""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("stride", [41, pytest.param(1, marks=pytest.mark.slow)])
def test_an_ingest_that_dies_at_a_change_of_a_file(sources, tmp_path, stride):
    """There is the whole dataset or none, and the next ingest leaves nothing else."""
    ingest(sources[1], str(tmp_path / "alone"))
    n_files = sum(path.is_file() for path in (tmp_path / "alone").rglob("*"))
    program = DEATHS.replace("N_FILES", str(n_files))
    assert each_death(tmp_path, program, sources[1], stride=stride) > 150


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_in_one_line(sources, tmp_path, monkeypatch, number):
    patch_write(monkeypatch, "part-00002", lambda: os.kill(os.getpid(), number))
    command = ["ingest", str(sources[0]), "--out", str(tmp_path / "out"), "--partition-nnz", "200"]
    result = CliRunner().invoke(dadagrad, command)
    assert (result.exit_code, result.stderr) == (128 + number, "dadagrad: error: interrupted\n")
    assert not (tmp_path / "out").exists()


def test_a_dataset_is_on_the_disk_when_ingest_returns(sources, tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(
        os, "fsync", lambda file: flushed.append(Path(f"/proc/self/fd/{file}").resolve())
    )
    write(sources[0], tmp_path / "out")
    paths = list((tmp_path / "out").rglob("*"))
    assert {path for path in paths if path.is_file()} <= set(flushed)
    root = flushed.index(tmp_path / "out" / "zarr.json")
    assert all(flushed.index(path) <= root for path in paths if path.is_file())
