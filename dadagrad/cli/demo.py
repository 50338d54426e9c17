"""``dadagrad demo``: all commands on a made-up corpus, with a stop in the middle."""

from __future__ import annotations

import os
import shlex
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click
from rich.filesize import decimal

import dadagrad
from dadagrad.cli.display import Display, number, print_json
from dadagrad.cli.main import Interrupted
from dadagrad.cli.options import make_resources, output_options
from dadagrad.cli.run_support import RunProgress
from dadagrad.errors import InputError

if TYPE_CHECKING:
    from dadagrad import TrainResult
    from dadagrad.training.messages import Report

TEST_SHARE = 0.2
"""Number of rows of the test data, as a share of those of the training data."""


@click.command()
@click.option(
    "--rows",
    type=click.IntRange(1000),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Number of rows to train on.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    metavar="N",
    help="Number of processes of the Dask cluster.",
)
@click.option(
    "--folder", metavar="DIR", help="New folder for all files.  [default: a temporary folder]"
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Random seed of the corpus and of training.",
)
@output_options
def demo(
    rows: int, workers: int, folder: str | None, seed: int, as_json: bool, quiet: bool
) -> None:
    """Train, stop, resume and evaluate on a made-up corpus.

    The demo takes under a minute. The corpus has the statistics of Reuters RCV1. Training runs on a
    Dask cluster on this machine and is stopped as by Ctrl-C.
    """
    display = Display(quiet=quiet)
    with display.showing_logs():
        result = _Demo(display, _make_folder(folder), rows, workers, seed).run()
    if as_json:
        print_json(result)
    else:
        click.echo(_summary(result))


def _make_folder(folder: str | None) -> str:
    if folder is None:
        return tempfile.mkdtemp(prefix="dadagrad-demo-")
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise InputError(f"{folder} is not an empty folder; give --folder a new one")
    os.makedirs(folder, exist_ok=True)
    return os.path.abspath(folder)


@dataclass
class _Demo:
    """Steps of the demo; each is announced and timed."""

    display: Display
    folder: str
    rows: int
    workers: int
    seed: int
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        begun = time.perf_counter()
        self.display.say(f"files go to {self.folder}")
        with self.step("corpus", f"making a corpus of {self.rows:,} rows"):
            n_bytes = self.make_text("train", self.rows, 0)
            n_bytes += self.make_text("test", int(TEST_SHARE * self.rows), 1)
        with self.step("ingest", "ingesting it into partitions"):
            nnz, _ = self.ingest("train"), self.ingest("test")
        with self.step("train", f"training on {self.workers} workers, to be stopped half way"):
            stopped = self.train()
        with self.step("resume", f"resuming: dadagrad resume {self.path('checkpoints')}"):
            result = self.resume(stopped.report["rows"])
        with self.step("check", "training once more on threads, without a stop"):
            batch_size = result.report["batch_size"]
            whole = dadagrad.train(self.path("train"), seed=self.seed, batch_size=batch_size)
        with self.step("evaluate", "evaluating on rows it has not seen"):
            result.model.save(self.path("model"))
            measured = dadagrad.evaluate(result.model, self.path("test"))
        shown = ("rows", "steps", "step_size", "batch_size", "digest", "progressive_error")
        return {name: result.report[name] for name in shown} | {
            "folder": self.folder,
            "nnz": nnz,
            "bytes": n_bytes,
            "workers": self.workers,
            "stopped_after": stopped.report["rows"],
            "same_bits": whole.report["digest"] == result.report["digest"],
            "evaluate": measured,
            "compile_seconds": stopped.report["compile_seconds"],
            "parts": self.seconds,
            "seconds": time.perf_counter() - begun,
        }

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    @contextmanager
    def step(self, name: str, message: str) -> Iterator[None]:
        self.display.say(message)
        begun = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - begun

    def make_text(self, name: str, rows: int, part: int) -> int:
        from dadagrad.data.synthetic import Corpus

        corpus = Corpus(rows, seed=self.seed, part=part)
        return corpus.write_text(self.path(f"{name}.svmlight"))

    def ingest(self, name: str) -> int:
        from dadagrad.data.synthetic import Corpus

        # Partitions are small, so that each worker has some.
        return dadagrad.ingest(
            self.path(f"{name}.svmlight"),
            self.path(name),
            n_features=Corpus(1).n_features,
            partition_nnz=500_000,
        ).nnz

    def train(self) -> TrainResult:
        config = dadagrad.TrainConfig(seed=self.seed)
        data = dadagrad.open_dataset(self.path("train"))
        interrupted = False
        with RunProgress(self.display, config, data) as progress:

            def stop_half_way(report: Report) -> None:
                nonlocal interrupted
                progress.progress(report)
                if 2 * report.metrics.rows >= self.rows and not interrupted:
                    interrupted = True
                    signal.raise_signal(signal.SIGINT)

            stopped = dadagrad.train(
                data,
                config,
                **make_resources(None, self.workers, None),
                checkpoints=self.path("checkpoints"),
                progress=stop_half_way,
                announce=progress.announce,
                notes={"model": self.path("model")},
            )
        if not interrupted:
            raise Interrupted("interrupted")
        self.display.say(f"stopped after {stopped.report['rows']:,} rows")
        return stopped

    def resume(self, done: int) -> TrainResult:
        data = dadagrad.open_dataset(self.path("train"))
        with RunProgress(self.display, dadagrad.TrainConfig(), data, done=done) as progress:
            result = dadagrad.resume(
                self.path("checkpoints"),
                **make_resources(None, self.workers, None),
                progress=progress.progress,
                announce=progress.announce,
            )
        if not result.complete:
            raise Interrupted("interrupted")
        return result


def _summary(result: dict[str, Any]) -> str:
    measured, seconds = result["evaluate"], result["parts"]
    folder = shlex.quote(result["folder"])
    same = "has the same bits" if result["same_bits"] else "differs: please report this"
    return f"""\
corpus     {seconds["corpus"]:4.1f} s  {result["rows"]:,} rows to train on with {result["nnz"]:,} \
non-zeros; {decimal(result["bytes"])} of text
ingest     {seconds["ingest"]:4.1f} s
train      {seconds["train"]:4.1f} s  on {result["workers"]} workers, stopped after \
{result["stopped_after"]:,} rows
resume     {seconds["resume"]:4.1f} s  from the checkpoint; {result["steps"]} steps of \
{result["batch_size"]:,} rows in all, step size {number(result["step_size"])}
check      {seconds["check"]:4.1f} s  the same without a stop, on threads: {same}
evaluate   {seconds["evaluate"]:4.1f} s  error {measured["error"]:.4f}, AUC {measured["auc"]:.4f} \
on {measured["rows"]:,} rows it has not seen
in all     {result["seconds"]:4.1f} s, of it {result["compile_seconds"]:.1f} s to compile or load \
the kernels

All files are kept in {result["folder"]}; look at them with
  dadagrad inspect {folder}/model
  dadagrad evaluate {folder}/model {folder}/test"""
