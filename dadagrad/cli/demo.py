"""``dadagrad demo``: all commands on a made-up corpus, with a stop in the middle."""

from __future__ import annotations

import os
import shlex
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click
from rich.filesize import decimal

import dadagrad
from dadagrad.cli.display import Display, number, print_json
from dadagrad.cli.failures import Interrupted
from dadagrad.cli.options import COUNT, load_dask, output_options
from dadagrad.errors import InputError
from dadagrad.progress.display import RunDisplay
from dadagrad.training.callbacks import RoundEvent

TEST_SHARE = 0.2
"""Number of rows of the test data, as a share of those of the training data."""


@click.command()
@click.option(
    "--rows",
    type=click.IntRange(1000),
    default=100_000,
    metavar="N",
    help="Number of rows to train on.",
)
@click.option("--workers", default=2, help="Number of processes of the Dask cluster.", **COUNT)
@click.option(
    "--folder", metavar="DIR", help="New folder for all files.  [default: a temporary one]"
)
@output_options
def demo(rows: int, workers: int, folder: str | None, display: Display) -> None:
    """Try all commands on a made-up corpus.

    It trains, stops, resumes and evaluates in under a minute. The corpus has the statistics of
    Reuters RCV1. Training runs on a Dask cluster on this machine and is stopped as by Ctrl-C.
    """
    load_dask()
    from dadagrad.data.synthetic import Corpus
    from dadagrad.training.engines.dask.engine import start_cluster

    begun = time.perf_counter()
    folder = _make_folder(folder)
    paths = {name: os.path.join(folder, name) for name in ("train", "test", "checkpoints", "model")}
    seconds: dict[str, float] = {}

    @contextmanager
    def step(name: str, message: str) -> Iterator[None]:
        display.say(message)
        begun = time.perf_counter()
        yield
        seconds[name] = time.perf_counter() - begun

    display.say(f"files go to {folder}")
    with step("corpus", f"making a corpus of {rows:,} rows"):
        train_text = Corpus(rows)
        n_bytes = train_text.write_text(f"{paths['train']}.svmlight")
        test_text = Corpus(int(TEST_SHARE * rows), part=1)
        n_bytes += test_text.write_text(f"{paths['test']}.svmlight")
    with step("ingest", "ingesting it into partitions"):
        n_features, partition_nnz = train_text.n_features, 500_000  # a few for each worker
        for name in ("test", "train"):
            text = f"{paths[name]}.svmlight"
            ingested = dadagrad.ingest(
                text, paths[name], n_features=n_features, partition_nnz=partition_nnz
            )
    with ExitStack() as stack:
        with step("train", f"training on {workers} workers, to be stopped half way"):
            client = stack.enter_context(start_cluster(workers))
            stopped = _train_half(display, paths, client, rows)
        done = stopped.report["rows"]
        command = f"dadagrad resume {shlex.quote(paths['checkpoints'])}"
        with step("resume", f"resuming: {command}"):
            result = dadagrad.resume(
                paths["checkpoints"],
                client=client,
                callbacks=[RunDisplay(display)],
                messages=display.say,
            )
            if not result.complete:
                raise Interrupted("interrupted", result.report["stopped_by"])
    with step("check", "training once more on threads, without a stop"):
        streams = result.report["streams"]
        whole = dadagrad.train(paths["train"], streams=streams)
    with step("evaluate", "evaluating on rows it has not seen"):
        result.model.save(paths["model"])
        measured = dadagrad.evaluate(result.model, paths["test"])
    shown = ("rows", "steps", "step_size", "streams", "progressive_error")
    summary = {name: result.report[name] for name in shown} | {
        "digest": result.model.digest,
        "folder": folder,
        "nnz": ingested.nnz,
        "bytes": n_bytes,
        "workers": workers,
        "stopped_after": done,
        "same_bits": whole.model.digest == result.model.digest,
        "evaluate": measured,
        "compile_seconds": stopped.report["compile_seconds"],
        "parts": seconds,
        "seconds": time.perf_counter() - begun,
    }
    if display.as_json:
        print_json(summary)
    else:
        click.echo(summary_text(summary))


def _make_folder(folder: str | None) -> str:
    if folder is None:
        return tempfile.mkdtemp(prefix="dadagrad-demo-")
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise InputError(f"{folder} is not an empty folder; give --folder a new one")
    os.makedirs(folder, exist_ok=True)
    return os.path.abspath(folder)


def _train_half(
    display: Display, paths: dict[str, str], client: Any, rows: int
) -> dadagrad.TrainResult:
    """Train, and interrupt this process after half of the rows."""
    stops: list[int] = []

    def stop_half_way(event: RoundEvent) -> None:
        if not stops and 2 * event.rows >= rows:
            stops.append(event.rows)
            signal.raise_signal(signal.SIGINT)

    stopped = dadagrad.train(
        paths["train"],
        client=client,
        checkpoints=paths["checkpoints"],
        callbacks=[RunDisplay(display), stop_half_way],
        messages=display.say,
        metadata={"model": paths["model"]},
    )
    if not stops:
        raise Interrupted("interrupted", stopped.report["stopped_by"])
    display.say(f"stopped after {stopped.report['rows']:,} rows")
    return stopped


def summary_text(result: dict[str, Any]) -> str:
    """Format the result for people."""
    measured, folder = result["evaluate"], shlex.quote(result["folder"])
    same = "has the same bits" if result["same_bits"] else "differs: please report this"
    notes = {
        "corpus": f"{result['rows']:,} rows to train on with {result['nnz']:,} non-zeros; "
        f"{decimal(result['bytes'])} of text",
        "train": f"on {result['workers']} workers, stopped after {result['stopped_after']:,} rows",
        "resume": f"from the checkpoint; {result['streams']} streams, step size "
        f"{number(result['step_size'])}",
        "check": f"the same without a stop, on threads: {same}",
        "evaluate": f"error {measured['error']:.4f}, AUC {measured['auc']:.4f} on "
        f"{measured['rows']:,} rows it has not seen",
        "in all": f"of it {result['compile_seconds']:.1f} s to compile or load the kernels",
    }
    times = result["parts"] | {"in all": result["seconds"]}
    lines = [f"{name:<10} {time:4.1f} s  {notes.get(name, '')}" for name, time in times.items()]
    return "\n".join(
        [
            *(line.rstrip() for line in lines),
            "",
            f"All files are kept in {result['folder']}; look at them with",
            f"  dadagrad inspect {folder}/model",
            f"  dadagrad evaluate {folder}/model {folder}/test",
        ]
    )
