"""Pipes, devices and sockets in the place of files."""

import os
import socket
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import scipy.sparse
from helpers.hostile_cases import only_our_errors

import dadagrad
from dadagrad import InputError
from dadagrad.data.parquet.dataset import ParquetDataset
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints.reader import CheckpointReader

LINES = "".join(f"{label} 1:0.5 {number}:1\n" for number, label in enumerate([1, -1] * 20, 2))


def refused(call, path, what="a named pipe"):
    """`call` must say in one line that `path` is no file; pytest ends a test that hangs."""
    with pytest.raises(InputError, match=what) as error, only_our_errors(False):
        call()
    assert str(path) in str(error.value)


@contextmanager
def pipe_at(path):
    """A pipe in the place of the file."""
    content = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    yield
    path.unlink()
    path.write_bytes(content)


@pytest.fixture
def folder(tmp_path):
    """A dataset, and a model and the checkpoints of a run on it."""
    (tmp_path / "text").write_text(LINES)
    dadagrad.ingest(tmp_path / "text", str(tmp_path / "data"), format="svmlight")
    config = dadagrad.TrainConfig(step_size=0.1, passes=2)
    result = dadagrad.train(str(tmp_path / "data"), config, checkpoints=str(tmp_path / "run"))
    result.model.save(str(tmp_path / "model"))
    return tmp_path


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def use_data(folder):
    data = dadagrad.open_dataset(str(folder / "data"))
    for number in range(len(data.partitions)):
        data.read(number)
        data.lines(number)


def test_every_file_of_a_dataset_and_of_a_model(folder):
    files = files_of(folder / "data")
    # The metadata of arrays are read with those of their partition, and the index of rows never.
    read = [path for path in files if path.name != "zarr.json" and "_index" not in path.parts]
    read += [folder / "data/zarr.json", folder / "data/part-00000/zarr.json"]
    assert len(read) >= 5
    for path in files:
        with pipe_at(path):
            if path in read:
                refused(lambda: use_data(folder), path)
            else:
                use_data(folder)
    for path in files_of(folder / "model"):
        with pipe_at(path):
            refused(lambda: dadagrad.Model.load(str(folder / "model")), path)


def test_training_skips_no_pipe_of_a_dataset(folder):
    part = folder / "data" / "part-00000"
    path = max(files_of(part), key=lambda path: path.stat().st_size)
    with pipe_at(path):
        config = dadagrad.TrainConfig(step_size=0.1)
        refused(lambda: dadagrad.train(str(folder / "data"), config, on_error="skip"), path)


def test_a_manifest_and_a_part_of_a_checkpoint(folder):
    reader = CheckpointReader(str(folder / "run"))
    part = next(path for path in files_of(folder / "run") if path.parent != folder / "run")
    with pipe_at(part):
        refused(reader.load, part)
    newest = reader.load().step
    # Listings leave out pipes, so that the checkpoint does not exist.
    with pipe_at(folder / "run" / reader.list()[0].key):
        assert reader.load().step < newest


def test_a_link_to_a_device_or_to_a_file(folder):
    path = folder / "model" / "model.json"
    path.rename(folder / "elsewhere")
    for target in ("/dev/zero", "/dev/random"):
        path.symlink_to(target)
        refused(lambda: dadagrad.Model.load(folder / "model"), path, "a device, or a link to one")
        path.unlink()
    path.symlink_to(folder / "elsewhere")
    dadagrad.Model.load(folder / "model")


def test_every_reader_of_a_storage(tmp_path, monkeypatch):
    storage = Storage(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    into = partial(storage.read_into, buffer=bytearray(5))
    readers = (storage.get, into, storage.open, storage.size, storage.exists)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        n_open = len(os.listdir("/proc/self/fd"))
        for read in readers:
            refused(lambda read=read: read("pipe"), tmp_path / "pipe")
            refused(lambda read=read: read("socket"), tmp_path / "socket", "a socket")
        assert len(os.listdir("/proc/self/fd")) == n_open
    assert storage.list() == []


def test_sources_of_ingest(tmp_path):
    out = str(tmp_path / "out")
    scipy.sparse.save_npz(tmp_path / "y.npz", scipy.sparse.csr_array(np.eye(4)))
    pipes = {"x.npz": "x.npz", "y.labels.npy": "y.npz", "x.h5ad": "x.h5ad"}
    for pipe, source in pipes.items():
        os.mkfifo(tmp_path / pipe)
        refused(lambda source=source: dadagrad.ingest(tmp_path / source, out), tmp_path / pipe)
    os.mkfifo(tmp_path / "a.parquet")
    refused(lambda: ParquetDataset(str(tmp_path / "a.parquet")), tmp_path / "a.parquet")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "text").write_text(LINES)
    os.mkfifo(tmp_path / "in" / "zzz")  # a folder is read without its pipes
    dadagrad.ingest(tmp_path / "in", out, format="svmlight")
    assert dadagrad.open_dataset(out).n_rows == 40
