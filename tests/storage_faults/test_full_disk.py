"""A full disk: one line that says so, nothing half-written taken for whole, and going on after."""

import os
import subprocess
from contextlib import suppress

import pytest
from helpers.runs import digest, refusal

from dadagrad import open_dataset
from dadagrad.data.synthetic import Corpus
from dadagrad.training.checkpoints.reader import CheckpointReader

PAGE = 4096
NO_SPACE = "No space left on device; free some space or write elsewhere"


class Disk:
    def __init__(self, path):
        self.path = path

    def refuses(self, pages, start):
        """The message of a process that finds the disk full but for so many pages."""
        filler = self.path / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(PAGE))
        os.truncate(filler, filler.stat().st_size - pages * PAGE)
        message = refusal(start())
        filler.unlink()
        assert message.startswith("cannot write ")
        assert "No space left on device" in message
        return message


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(path)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no command mount, for a small disk that can be filled up")
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted: {done.stderr.strip()}")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.parametrize(("pages", "resumed"), [(0, False), (2, True)])
def test_checkpoints(pages, resumed, disk, new_program):
    """Full before the first one is there, which makes the run, and after."""
    program = new_program(str(disk.path))
    message = disk.refuses(pages, program.train)
    assert f" in {program.checkpoints}: {NO_SPACE}" in message
    assert not os.path.exists(program.model)
    assert os.path.exists(program.checkpoints) is resumed
    begun = CheckpointReader(program.checkpoints).list(verify=True)
    assert all(info.valid for info in begun)
    assert bool(begun) is resumed
    program.assert_undisturbed(program.resume() if resumed else program.train())


def test_model(disk, new_program, tmp_path):
    program = new_program(str(tmp_path))
    program.model = f"{disk.path}/model"
    assert f" in {program.model}: {NO_SPACE}" in disk.refuses(1, program.train)
    assert os.listdir(disk.path) == []
    program.assert_undisturbed(program.resume())


def test_predictions(disk, new_program, tmp_path):
    program = new_program(str(tmp_path))
    digest(program.train())
    out = disk.path / "new" / "folder" / "predictions.parquet"
    command = ("dadagrad", "predict", program.model, program.data, "--out", str(out))
    message = disk.refuses(1, lambda: program.nursery.start(*command))
    assert message == f"cannot write {out}: {NO_SPACE}"
    assert os.listdir(disk.path) == []
    assert program.nursery.start(*command).wait(30) == 0
    assert out.exists()


def test_predictions_for_a_store(disk, new_program, tmp_path, servers, url):
    """They are sent from a temporary file of this machine: it is the disk that is full."""
    program = new_program(str(tmp_path))
    digest(program.train())
    command = ("dadagrad", "predict", program.model, program.data, "--out", f"{url}/out.parquet")
    environment = servers["moto"].environment | {"TMPDIR": str(disk.path)}
    message = disk.refuses(1, lambda: program.nursery.start(*command, environment=environment))
    assert message.endswith(f"a temporary file for {url}/out.parquet in {disk.path}: {NO_SPACE}")


@pytest.mark.parametrize(("pages", "key"), [(0, "claim-"), (20, "part-0")])
def test_ingest(pages, key, disk, nursery, tmp_path):
    text, out = tmp_path / "corpus.svm", str(disk.path / "data")
    Corpus(3000, n_features=5000, nnz_per_row=20).write_text(text)
    command = ("dadagrad", "ingest", str(text), "--format", "svmlight", "--shuffle", "0")
    command += ("--out", out, "--partition-nnz", "5000")
    message = disk.refuses(pages, lambda: nursery.start(*command))
    assert message.startswith(f"cannot write {key}")
    assert f" in {out}: {NO_SPACE}" in message
    assert os.listdir(disk.path) == []
    assert nursery.start(*command).wait(30) == 0
    assert open_dataset(out).n_rows == 3000
