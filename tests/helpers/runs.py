"""Tiny data in any store, and runs of the command line on it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from dadagrad.config import TrainConfig
from dadagrad.data.dataset import Dataset, MemoryDataset
from dadagrad.data.synthetic import Corpus
from dadagrad.model.model import Model
from dadagrad.training.checkpoints.writer import CheckpointReader
from dadagrad.training.run import train
from helpers.cluster_processes import Nursery, Process
from helpers.processes import wait_until
from helpers.zarr_cases import write_zarr

N_ROWS, N_PARTITIONS = 480, 4


def make_data(n_features: int = 300) -> Dataset:
    return Corpus(N_ROWS, n_features=n_features, nnz_per_row=10).dataset()


def write_data(data: Dataset, url: str) -> str:
    """`data` as a Zarr dataset of `N_PARTITIONS` partitions; its URL."""
    rows = data.read(0)
    cuts = np.linspace(0, rows.n_rows, N_PARTITIONS + 1).astype(int)
    parts = [rows.slice(int(start), int(stop)) for start, stop in pairwise(cuts)]
    return write_zarr(MemoryDataset(parts, data.schema), url)


SETTINGS: dict[str, Any] = {"batch_size": 16, "step_size": 0.3, "l1": 1e-4}


@cache
def undisturbed(data: str, passes: int) -> str:
    """The digest of the model of a run in which nothing goes wrong."""
    return train(data, TrainConfig(**SETTINGS, passes=passes)).model.digest


class Program:
    """`dadagrad train` and `resume` of one run, as processes.

    Parameters
    ----------
    nursery : Nursery
    data, folder : str
        URLs of the data, and of where checkpoints and model go.
    passes : int
    options : sequence of str
        More of the command line.
    environment : mapping
        Of the processes.
    """

    def __init__(
        self,
        nursery: Nursery,
        data: str,
        folder: str,
        *,
        passes: int = 2,
        options: tuple[str, ...] = (),
        every: int = 5,
        keep: int = 3,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._nursery = nursery
        self._environment = dict(environment or {})
        self.data, self.passes, self.every, self.keep = data, passes, every, keep
        self.checkpoints, self.model = f"{folder}/run", f"{folder}/model"
        self.options = options

    def train(self) -> Process:
        settings = [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.items()]
        return self._start(
            *("train", self.data, "--model", self.model, "--checkpoints", self.checkpoints),
            *("--passes", str(self.passes), "--checkpoint-every", str(self.every)),
            *("--keep", str(self.keep), *settings),
        )

    def resume(self) -> Process:
        return self._start("resume", self.checkpoints)

    def _start(self, *arguments: str) -> Process:
        return self._nursery.start(
            "dadagrad", *arguments, "--json", *self.options, environment=self._environment
        )

    def has_saved(self, step: int) -> bool:
        """Whether there is a checkpoint of so many steps, or of more."""
        return any(info.step >= step for info in CheckpointReader(self.checkpoints).list())


def digest(process: Process, seconds: float = 60.0) -> str:
    """Of the model of a process that ends well."""
    code = process.wait(seconds)
    assert code == 0, (code, process.text())
    result = json.loads(process.out.read_text())
    assert result["complete"]
    return str(result["digest"])


def refusal(process: Process, seconds: float = 60.0) -> str:
    """The message of a process that ends with exit code 2 and one line that says why."""
    code = process.wait(seconds)
    assert code == 2, (code, process.text())
    assert process.out.read_text() == ""
    lines = process.log.read_text().splitlines()
    errors = [line for line in lines if line.startswith("dadagrad: error: ")]
    assert errors == lines[-1:]
    return errors[0].removeprefix("dadagrad: error: ")


def assert_undisturbed(program: Program, process: Process, data: str) -> None:
    """A process ends well, with the model of a run in which nothing goes wrong on `data`."""
    expected = undisturbed(data, program.passes)
    assert digest(process) == expected
    assert Model.load(program.model).digest == expected


@contextmanager
def saved(program: Program, step: int) -> Iterator[Process]:
    """A run that has saved so many steps, and is still going on."""
    process = program.train()
    wait_until(lambda: program.has_saved(step) or not process.alive, 60, f"step {step}")
    assert process.alive, process.text()
    yield process
