"""Tiny data in any store, and runs of the command line on it."""

import json
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np

from dadagrad import Model, TrainConfig, train
from dadagrad.data.dataset import MemoryDataset
from dadagrad.data.synthetic import Corpus
from dadagrad.training.checkpoints.reader import CheckpointReader
from helpers.cluster_processes import Nursery
from helpers.processes import wait_until
from helpers.zarr_cases import write_zarr

N_ROWS, N_PARTITIONS = 480, 4
SETTINGS = {"batch_size": 16, "step_size": 0.3, "l1": 1e-4}


def make_data():
    data = Corpus(N_ROWS, n_features=300, nnz_per_row=10).dataset()
    rows, cuts = data.read(0), np.linspace(0, N_ROWS, N_PARTITIONS + 1).astype(int).tolist()
    return MemoryDataset([rows.slice(*ends) for ends in pairwise(cuts)], data.schema)


def write_data(url):
    return write_zarr(make_data(), url)


@cache
def undisturbed(passes):
    """Digest of the model of a run in which nothing goes wrong."""
    return train(make_data(), TrainConfig(**SETTINGS, passes=passes)).model.digest


@dataclass
class Program:
    """`dadagrad train` and `resume` of one run in a folder of any store, as processes."""

    nursery: Nursery
    folder: str
    data: str
    passes: int = 2
    options: tuple[str, ...] = ()
    every: int = 5
    keep: int = 3
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self):
        self.checkpoints, self.model = f"{self.folder}/run", f"{self.folder}/model"

    def train(self):
        settings = [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.items()]
        return self._start(
            *("train", self.data, "--model", self.model, "--checkpoints", self.checkpoints),
            *("--passes", str(self.passes), "--checkpoint-every", str(self.every)),
            *("--keep", str(self.keep), *settings),
        )

    def resume(self):
        return self._start("resume", self.checkpoints)

    def _start(self, *arguments):
        environment = dict(self.environment)
        command = ("dadagrad", *arguments, "--json", *self.options)
        return self.nursery.start(*command, environment=environment)

    def has_saved(self, step):
        return any(info.step >= step for info in CheckpointReader(self.checkpoints).list())

    def assert_undisturbed(self, process):
        """A process ends well, with the model of a run in which nothing goes wrong."""
        expected = undisturbed(self.passes)
        assert digest(process) == expected
        assert Model.load(self.model).digest == expected


def digest(process, seconds=60.0):
    """Digest of the model of a process that ends well."""
    code = process.wait(seconds)
    assert code == 0, (code, process.text())
    result = json.loads(process.out.read_text())
    assert result["complete"]
    return str(result["digest"])


def refusal(process):
    """The message of a process that ends with exit code 2 and one line that says why."""
    code = process.wait(60.0)
    assert code == 2, (code, process.text())
    assert process.out.read_text() == ""
    lines = process.log.read_text().splitlines()
    errors = [line for line in lines if line.startswith("dadagrad: error: ")]
    assert errors == lines[-1:]
    return errors[0].removeprefix("dadagrad: error: ")


@contextmanager
def saved(program, step):
    """A run that has saved so many steps, and is still going on."""
    process = program.train()
    wait_until(lambda: program.has_saved(step) or not process.alive, 60, f"step {step}")
    assert process.alive, process.text()
    yield process
