"""What lies in a folder in the place of a file: pipes, devices and sockets."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hostile_cases import only_our_errors

import dadagrad
from dadagrad.data.parquet import ParquetDataset
from dadagrad.errors import DadagradError, InputError
from dadagrad.evaluation import evaluate
from dadagrad.storage import Storage
from dadagrad.training.checkpoint import CheckpointReader

SECONDS = 120.0
LINES = "".join(f"{label} 1:0.5 {number}:1\n" for number, label in enumerate([1, -1] * 20, 2))


def in_time(call: Callable[[], object]) -> BaseException | None:
    """What `call` raises; it fails if that takes for ever."""
    raised: list[BaseException | None] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)
        else:
            raised.append(None)

    # Not waited for by the interpreter, were it to hang.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert raised, f"no answer in {SECONDS} seconds"
    return raised[0]


def refused(call: Callable[[], object], path: Path, what: str = "a named pipe") -> None:
    """`call` must say in one line that `path` is no file."""
    error = in_time(call)
    assert isinstance(error, DadagradError), error
    with only_our_errors(), pytest.raises(InputError, match=what):
        raise error
    assert str(path) in str(error)


def put_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A dataset, and a model and the checkpoints of a run on it."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "text").write_text(LINES)
    dadagrad.ingest(folder / "text", str(folder / "data"), format="svmlight")
    config = dadagrad.TrainConfig(step_size=0.1, passes=2)
    result = dadagrad.train(str(folder / "data"), config, checkpoints=str(folder / "run"))
    result.model.save(str(folder / "model"))
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def use_data(folder: Path) -> None:
    data = dadagrad.open_dataset(str(folder / "data"))
    for number in range(len(data.partitions)):
        data.read(number)
        data.read_vocabulary(number)


def test_every_file_of_a_dataset_may_be_a_pipe(folder):
    n_refused = 0
    for path in files_of(folder / "data"):
        kept = path.read_bytes()
        put_pipe(path)
        error = in_time(lambda: use_data(folder))
        # Metadata of arrays is in the root as well: what nobody reads may be anything.
        if error is not None:
            refused(lambda: use_data(folder), path)
            n_refused += 1
        path.unlink()
        path.write_bytes(kept)
    assert n_refused >= 5


def test_training_evaluating_and_skipping_say_so_too(folder):
    path = max(files_of(folder / "data" / "part-00000"), key=lambda path: path.stat().st_size)
    put_pipe(path)
    data, config = str(folder / "data"), dadagrad.TrainConfig(step_size=0.1)
    refused(lambda: dadagrad.train(data, config), path)
    refused(lambda: dadagrad.train(data, config, on_error="skip"), path)
    refused(lambda: evaluate(str(folder / "model"), data), path)


def test_every_file_of_a_model(folder):
    for path in files_of(folder / "model"):
        kept = path.read_bytes()
        put_pipe(path)
        refused(lambda: dadagrad.Model.load(str(folder / "model")), path)
        path.unlink()
        path.write_bytes(kept)


def test_a_manifest_and_a_part_of_a_checkpoint(folder):
    reader = CheckpointReader(str(folder / "run"))
    manifest = folder / "run" / reader.list()[0].key
    part = next(path for path in files_of(folder / "run") if path.parent != folder / "run")
    kept = part.read_bytes()
    put_pipe(part)
    refused(reader.load, part)
    part.unlink()
    part.write_bytes(kept)
    # Listings leave out what is no file: to them it is not there.
    newest = reader.load().step
    put_pipe(manifest)
    assert in_time(reader.load) is None
    assert reader.load().step < newest


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/random"])
def test_a_link_to_a_device(folder, device):
    for key in ("data/zarr.json", "model/model.json"):
        path = folder / key
        path.unlink()
        path.symlink_to(device)
        load = {"data": lambda: use_data(folder)}.get(
            key.partition("/")[0], lambda: dadagrad.Model.load(str(folder / "model"))
        )
        refused(load, path, "a device, or a link to one")


def test_a_link_to_a_file_is_a_file(folder):
    path = folder / "data" / "zarr.json"
    path.rename(folder / "elsewhere")
    path.symlink_to(folder / "elsewhere")
    use_data(folder)


def test_what_reads_of_a_storage_refuses_it(tmp_path, monkeypatch):
    storage = Storage(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for key, what in (("pipe", "a named pipe"), ("socket", "a socket")):
            for read in (
                lambda key=key: storage.get(key),
                lambda key=key: storage.get(key, max_bytes=10),
                lambda key=key: storage.read_into(key, bytearray(5)),
                lambda key=key: storage.get_range(key, 0, 5),
                lambda key=key: storage.open(key),
                lambda key=key: storage.size(key),
                lambda key=key: storage.exists(key),
            ):
                refused(read, tmp_path / key, what)
    assert storage.list() == []


def test_no_descriptor_is_left_open(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    storage = Storage(str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        with pytest.raises(InputError):
            storage.get("pipe")
    assert len(os.listdir("/proc/self/fd")) == before


def test_parquet_and_its_folder(tmp_path):
    os.mkfifo(tmp_path / "a.parquet")
    refused(lambda: ParquetDataset(str(tmp_path / "a.parquet")), tmp_path / "a.parquet")
    error = in_time(lambda: dadagrad.open_dataset(str(tmp_path)))
    assert isinstance(error, InputError)


class TestSources:
    """A pipe that is named as a source of text is meant; beside arrays it is not."""

    def test_text_may_come_out_of_a_pipe(self, tmp_path):
        (tmp_path / "text").write_text(LINES)
        os.mkfifo(tmp_path / "pipe")
        # It opens when it is read from.
        writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text(LINES), daemon=True)
        writer.start()
        digests = [
            dadagrad.open_dataset(str(tmp_path / f"{name}.zarr")).fingerprint
            for name in ("text", "pipe")
            if dadagrad.ingest(tmp_path / name, str(tmp_path / f"{name}.zarr"), format="svmlight")
        ]
        writer.join(SECONDS)
        assert digests[0] == digests[1]

    def test_a_pipe_in_a_folder_of_sources_is_left_out(self, tmp_path):
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "text").write_text(LINES)
        os.mkfifo(tmp_path / "in" / "zzz")
        out = str(tmp_path / "out")
        assert in_time(lambda: dadagrad.ingest(tmp_path / "in", out, format="svmlight")) is None
        assert dadagrad.open_dataset(out).n_rows == 40

    def test_npz_and_the_labels_beside_it(self, tmp_path):
        def ingest() -> object:
            return dadagrad.ingest(tmp_path / "x.npz", str(tmp_path / "out"), format="npz")

        os.mkfifo(tmp_path / "x.npz")
        refused(ingest, tmp_path / "x.npz")
        (tmp_path / "x.npz").unlink()
        scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.csr_array(np.eye(4)))
        os.mkfifo(tmp_path / "x.labels.npy")
        refused(ingest, tmp_path / "x.labels.npy")

    def test_anndata(self, folder):
        path = max(files_of(folder / "data" / "part-00000"), key=lambda path: path.stat().st_size)
        put_pipe(path)
        source, out = folder / "data" / "part-00000", str(folder / "out")
        refused(lambda: dadagrad.ingest(source, out, format="anndata"), path)
        pipe = folder / "x.h5ad"
        os.mkfifo(pipe)
        refused(lambda: dadagrad.ingest(pipe, out, format="anndata"), pipe)
