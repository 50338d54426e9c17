"""What the tests of the command line share: tiny datasets, and a way to run a command."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dadagrad.cli import dadagrad
from dadagrad.data.synthetic import Corpus

N_FEATURES = 400


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        assert self.code == 0, self.stderr
        lines = self.stdout.splitlines()
        assert len(lines) == 1, self.stdout
        result: dict[str, Any] = json.loads(lines[0])
        return result

    @property
    def lines(self) -> list[str]:
        """Lines of stdout, with single spaces."""
        return [" ".join(line.split()) for line in self.stdout.splitlines()]

    @property
    def error(self) -> str:
        """The one line on stderr of a command that failed."""
        assert self.code == 2, (self.code, self.stdout, self.stderr)
        assert self.stdout == ""
        lines = self.stderr.splitlines()
        assert len(lines) == 1, self.stderr
        assert lines[0].startswith("dadagrad: error: ")
        return lines[0].removeprefix("dadagrad: error: ")


Run = Callable[..., Answer]


@pytest.fixture
def run() -> Run:
    """Runs ``dadagrad ARGUMENTS`` in this process."""

    def call(*arguments: object) -> Answer:
        result = CliRunner().invoke(dadagrad, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    return call


@dataclass(frozen=True)
class Places:
    """Text and datasets that tests only read."""

    text: Path
    train: Path
    test: Path
    model: Path


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """3000 rows to train on in several partitions, 1000 to test on, and a model."""
    from dadagrad.config import TrainConfig
    from dadagrad.data.ingest.ingest import ingest
    from dadagrad.training.run import train

    folder = tmp_path_factory.mktemp("places")
    for name, corpus in (
        ("train", Corpus(3000, N_FEATURES, 20.0, seed=3)),
        ("test", Corpus(1000, N_FEATURES, 20.0, seed=3, part=1)),
    ):
        corpus.write_text(folder / f"{name}.svmlight")
        ingest(
            folder / f"{name}.svmlight",
            str(folder / name),
            n_features=N_FEATURES,
            partition_nnz=20_000,
        )
    result = train(str(folder / "train"), TrainConfig(loss="logistic", step_size=0.3))
    result.model.save(str(folder / "model"))
    return Places(folder / "train.svmlight", folder / "train", folder / "test", folder / "model")
