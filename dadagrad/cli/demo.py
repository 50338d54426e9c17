"""``dadagrad demo``: everything once, on a made-up corpus, with a stop in the middle."""

from __future__ import annotations

import os
import shlex
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from dadagrad.amounts import size
from dadagrad.cli.display import Display, number, print_json
from dadagrad.cli.options import make_where, output_options
from dadagrad.cli.program import Interrupted
from dadagrad.cli.running import Watching
from dadagrad.errors import InputError

if TYPE_CHECKING:
    from dadagrad.training.protocol import Report
    from dadagrad.training.run import TrainResult

HELD_OUT = 0.2
"""Rows to test on, as a share of those to train on."""


@click.command()
@click.option(
    "--rows", type=click.IntRange(1000), default=100_000, show_default=True, help="To train on."
)
@click.option(
    "--workers", type=click.IntRange(1), default=2, show_default=True, help="Processes of Dask."
)
@click.option(
    "--folder", metavar="DIR", help="Where all files go.  [default: a new temporary folder]"
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@output_options
def demo(
    rows: int, workers: int, folder: str | None, seed: int, as_json: bool, quiet: bool
) -> None:
    """Make a corpus, train on it, stop half way, resume, and evaluate; takes under a minute.

    The corpus has the statistics of Reuters RCV1. Training runs on a Dask cluster of this machine
    that is started for it, and is stopped the way Ctrl-C stops it.
    """
    display = Display(quiet=quiet)
    with display.showing_logs():
        result = _Demo(display, _folder(folder), rows, workers, seed).run()
    if as_json:
        print_json(result)
    else:
        click.echo(_summary(result))


def _folder(folder: str | None) -> str:
    if folder is None:
        return tempfile.mkdtemp(prefix="dadagrad-demo-")
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise InputError(f"{folder} is not an empty folder; give --folder a new one")
    os.makedirs(folder, exist_ok=True)
    return os.path.abspath(folder)


class _Demo:
    """The steps of the demo, each told and timed."""

    def __init__(self, display: Display, folder: str, rows: int, workers: int, seed: int) -> None:
        self.display = display
        self.folder = folder
        self.rows = rows
        self.workers = workers
        self.seed = seed
        self.seconds: dict[str, float] = {}

    def run(self) -> dict[str, Any]:
        from dadagrad.evaluation import evaluate

        begun = time.perf_counter()
        self.display.say(f"files go to {self.folder}")
        with self.part("corpus", f"making a corpus of {self.rows:,} rows"):
            n_bytes = self.make_corpus()
        with self.part("ingest", "ingesting it into partitions"):
            nnz = self.ingest()
        with self.part("train", f"training on {self.workers} workers, to be stopped half way"):
            stopped = self.train()
        with self.part("resume", f"resuming: dadagrad resume {self.path('checkpoints')}"):
            result = self.resume(stopped.report["examples"])
        with self.part("check", "training once more on threads, without a stop"):
            reference = self.train_without_stop(result)
        with self.part("evaluate", "evaluating on rows it has not seen"):
            result.model.save(self.path("model"))
            measured = evaluate(result.model, self.path("test"))
        return {
            "folder": self.folder,
            "examples": result.report["examples"],
            "nnz": nnz,
            "bytes": n_bytes,
            "workers": self.workers,
            "stopped_after": stopped.report["examples"],
            "steps": result.report["steps"],
            "step_size": result.report["step_size"],
            "batch_size": result.report["batch_size"],
            "delay": result.report["delay"],
            "digest": result.report["digest"],
            "same_bits": reference.report["digest"] == result.report["digest"],
            "progressive_error": result.report["progressive_error"],
            "evaluate": measured,
            "compile_seconds": stopped.report["compile_seconds"],
            "parts": self.seconds,
            "seconds": time.perf_counter() - begun,
        }

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    @contextmanager
    def part(self, name: str, message: str) -> Iterator[None]:
        self.display.say(message)
        begun = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - begun

    def make_corpus(self) -> int:
        from dadagrad.synthetic import Corpus

        train = Corpus(self.rows, seed=self.seed)
        test = Corpus(int(HELD_OUT * self.rows), seed=self.seed, part=1)
        return train.write_text(self.path("train.svmlight")) + test.write_text(
            self.path("test.svmlight")
        )

    def ingest(self) -> int:
        from dadagrad.data.ingest import ingest
        from dadagrad.synthetic import Corpus

        n_features = Corpus(1).n_features
        # Small partitions: each worker is to have some.
        reports = [
            ingest(
                self.path(f"{name}.svmlight"),
                self.path(name),
                n_features=n_features,
                partition_nnz=500_000,
            )
            for name in ("train", "test")
        ]
        return reports[0].nnz

    def train(self) -> TrainResult:
        from dadagrad.config import TrainConfig
        from dadagrad.data.dataset import open_dataset
        from dadagrad.training import run

        config = TrainConfig(seed=self.seed)
        data = open_dataset(self.path("train"))
        with Watching(self.display, config, data) as watching:

            def stop_half_way(report: Report) -> None:
                watching.progress(report)
                if 2 * report.tally.examples >= self.rows and not interrupted:
                    interrupted.append(True)
                    signal.raise_signal(signal.SIGINT)

            interrupted: list[bool] = []
            stopped = run.train(
                data,
                config,
                where=make_where(None, self.workers, None),
                checkpoints=self.path("checkpoints"),
                progress=stop_half_way,
                announce=watching.announce,
                notes={"model": self.path("model")},
            )
        if not interrupted:
            raise Interrupted("interrupted")
        self.display.say(f"stopped after {stopped.report['examples']:,} rows")
        return stopped

    def resume(self, done: int) -> TrainResult:
        from dadagrad.config import TrainConfig
        from dadagrad.data.dataset import open_dataset
        from dadagrad.training import run

        data = open_dataset(self.path("train"))
        with Watching(self.display, TrainConfig(), data, done=done) as watching:
            return _complete(
                run.resume(
                    self.path("checkpoints"),
                    where=make_where(None, self.workers, None),
                    progress=watching.progress,
                    announce=watching.announce,
                )
            )

    def train_without_stop(self, result: TrainResult) -> TrainResult:
        from dadagrad.config import TrainConfig
        from dadagrad.training import run

        chosen = {name: result.report[name] for name in ("batch_size", "delay")}
        config = TrainConfig(seed=self.seed, **chosen)
        return _complete(run.train(self.path("train"), config))


def _complete(result: TrainResult) -> TrainResult:
    """`result`, unless the user stopped the run that it comes from."""
    if not result.complete:
        raise Interrupted("interrupted")
    return result


def _summary(result: dict[str, Any]) -> str:
    """What was done, for people."""
    measured, parts = result["evaluate"], result["parts"]
    folder = shlex.quote(result["folder"])
    same = "has the same bits" if result["same_bits"] else "differs: please report this"
    lines = [
        f"corpus     {parts['corpus']:4.1f} s  {result['examples']:,} rows to train on with "
        f"{result['nnz']:,} non-zeros; {size(result['bytes'])} of text",
        f"ingest     {parts['ingest']:4.1f} s",
        f"train      {parts['train']:4.1f} s  on {result['workers']} workers, stopped after "
        f"{result['stopped_after']:,} rows",
        f"resume     {parts['resume']:4.1f} s  from the checkpoint; {result['steps']} steps of "
        f"{result['batch_size']:,} rows in all, step size {number(result['step_size'])}",
        f"check      {parts['check']:4.1f} s  the same without a stop, on threads: {same}",
        f"evaluate   {parts['evaluate']:4.1f} s  error {measured['error']:.4f}, "
        f"AUC {measured['auc']:.4f} on {measured['examples']:,} rows it has not seen",
        f"in all     {result['seconds']:4.1f} s, of it {result['compile_seconds']:.1f} s to "
        "compile or load the kernels",
        "",
        f"All files are kept in {result['folder']}; look at them with",
        f"  dadagrad inspect {folder}/model",
        f"  dadagrad evaluate {folder}/model {folder}/test",
    ]
    return "\n".join(lines)
