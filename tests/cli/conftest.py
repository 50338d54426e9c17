"""Tiny datasets for the tests of the command line, and a way to run a command."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from dadagrad.cli import dadagrad
from dadagrad.data.synthetic import Corpus
from dadagrad.progress.display import Bar, RunTable
from dadagrad.training.callbacks import RoundEvent

N_FEATURES = 400


@dataclass(frozen=True)
class Answer:
    """Output of a command, and its exit code."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self):
        assert self.code == 0, self.stderr
        (line,) = self.stdout.splitlines()
        result = json.loads(line)
        return result

    @property
    def lines(self):
        """Lines of stdout, with single spaces."""
        return [" ".join(line.split()) for line in self.stdout.splitlines()]

    @property
    def error(self):
        """The one line on stderr of a command that failed, beside those about compiling."""
        assert (self.code, self.stdout) == (2, ""), self.stderr
        lines = self.stderr.splitlines()
        (line,) = (line for line in lines if not line.startswith("compiling the "))
        assert line.startswith("dadagrad: error: ")
        return line.removeprefix("dadagrad: error: ")


Run = Callable[..., Answer]


@pytest.fixture
def run(monkeypatch):
    """Runs ``dadagrad ARGUMENTS`` in this process, on a terminal of no known width."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*arguments):
        words, width = [str(argument) for argument in arguments], int(os.environ.get("COLUMNS", 80))
        result = CliRunner().invoke(dadagrad, words, terminal_width=min(width, 100) - 2)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def stop_after(monkeypatch):
    """Sends a signal to this process once, when a command has shown so many rows as done."""

    def prepare(rows, number):
        updates, sent = {Bar: Bar.update, RunTable: RunTable.update}, []

        def update_and_stop(shown, done, *details):
            updates[type(shown)](shown, done, *details)
            if not sent and (done.rows if isinstance(done, RoundEvent) else done) >= rows:
                sent.append(done)
                signal.raise_signal(number)

        for kind in updates:
            monkeypatch.setattr(kind, "update", update_and_stop)

    return prepare


@dataclass(frozen=True)
class Places:
    text: Path
    train: Path
    test: Path
    model: Path


@pytest.fixture(scope="session")
def places(tmp_path_factory):
    """3000 rows to train on in several partitions, 1000 to test on, and a model."""
    from dadagrad import ingest, train

    folder = tmp_path_factory.mktemp("places")
    sizes = {"n_features": N_FEATURES, "partition_nnz": 20_000}
    for part, (name, n_rows) in enumerate({"train": 3000, "test": 1000}.items()):
        text = folder / f"{name}.svmlight"
        Corpus(n_rows, N_FEATURES, 20.0, seed=3, part=part).write_text(text)
        ingest(text, str(folder / name), **sizes)
    result = train(str(folder / "train"), loss="logistic", step_size=0.3)
    result.model.save(str(folder / "model"))
    return Places(folder / "train.svmlight", folder / "train", folder / "test", folder / "model")
