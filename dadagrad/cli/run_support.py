"""Steps around a run: checks and predictions before it, its progress, and its end."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any

import click
from rich.filesize import decimal

import dadagrad
from dadagrad.cli.display import Display, print_facts, print_json
from dadagrad.cli.failures import Interrupted
from dadagrad.config import SETTINGS, TrainConfig
from dadagrad.errors import InputError
from dadagrad.model.writer import ModelWriter
from dadagrad.problem import make_problem
from dadagrad.storage.documents import Content, content_at
from dadagrad.storage.store import Storage
from dadagrad.summary import last_part, metrics_text, run_lines


def finish(
    result: dadagrad.TrainResult,
    display: Display,
    model: str,
    checkpoints: str | None,
    *,
    auto: bool = False,
) -> None:
    """Report the model that a complete run has saved; `Interrupted` if the run was stopped.

    `auto` is True if the run has chosen the step size.
    """
    shown: dict[str, Any] = {"model": model if result.complete else None} | result.report
    if result.complete:
        shown["digest"] = result.digest
    if display.as_json:
        print_json(shown)
    elif result.complete:
        lines = run_lines(result.report, result.loss, auto=auto)
        if measured := result.report.get("holdout"):
            data = measured.get("data")
            name = f"of {measured['rows']:,} rows" if data is None else last_part(data)
            text = metrics_text(measured, result.loss)
            lines.insert(-1, f"  {'holdout ' + name:<25} {text}")
        next_command = f"dadagrad evaluate {shlex.quote(model)} DATA"
        display.show_lines([*lines, f"Model saved to {model}. Next: {next_command}"])
    if not result.complete:
        hint = "nothing was saved: give --checkpoints URL to be able to resume"
        if checkpoints is not None:
            hint = f"go on with `dadagrad resume {shlex.quote(checkpoints)}`"
        raise Interrupted(
            f"stopped after {result.report['rows']:,} rows; {hint}",
            result.report["stopped_by"],
        )


def check_data(data: dadagrad.Dataset, config: TrainConfig, resources: Mapping[str, Any]) -> None:
    """Refuse data that do not suit the settings, and options that change nothing.

    The message says what would make such an option count.
    """
    from dadagrad.training.engines.resources import Resources
    from dadagrad.training.schedule import resolve_config

    config = resolve_config(data, config, on_cluster=Resources(**resources).on_cluster)
    assert isinstance(config.batch_size, int)
    problem = make_problem(config, data.schema, config.batch_size)
    config = problem.config
    by_row = "with one row a step; give --batch-size above 1"
    steps = "where rows are learned from together, or --update and --loss have no such steps"
    for option, without_effect, reason in (
        (
            "--step-size",
            config.step_size != "auto" and not config.update.has_step_size,
            f"on --update {config.update.name}, which has no step size; choose another update",
        ),
        (
            "--partitions-per-batch",
            config.partitions_per_batch != SETTINGS["partitions_per_batch"].default
            and config.batch_size == 1,
            by_row,
        ),
        ("--accumulate row", config.accumulate == "row" and config.batch_size == 1, by_row),
        (
            "--importance-aware",
            config.importance_aware is True
            and not (config.batch_size == 1 and problem.compiled and not problem.loss.couples),
            f"{steps}; give --batch-size 1 and a compiled update and loss",
        ),
        (
            "--calibration",
            config.calibration != TrainConfig().calibration and not problem.loss.classifies,
            f"on --loss {problem.loss.name}, which has no probabilities; choose another loss",
        ),
        (
            "--early-stopping",
            config.early_stopping and config.passes == 1,
            "in a single pass; give --passes above 1",
        ),
    ):
        if without_effect:
            raise click.UsageError(f"{option} has no effect {reason}, or leave it out")


def check_destinations(
    model: str, checkpoints: str | None = None, *, overwrite: bool = False
) -> None:
    """Raise unless a model can be written to the URL `model`, and checkpoints to their URL.

    A model that is there already is replaced with `overwrite` alone.
    """
    for url, kind, option in (
        (model, Content.MODEL, "--model"),
        (checkpoints, Content.CHECKPOINTS, "--checkpoints"),
    ):
        if url is None:
            continue
        storage = Storage(url)
        if url == "-" or (storage.is_local and os.path.isfile(storage.local_path())):
            raise InputError(f"{url} is not a folder; give {option} a folder of its own")
        content = content_at(storage)
        if content not in (None, kind):
            raise InputError(f"{url} holds {content}; give {option} a folder of its own")
        if content is Content.MODEL and not overwrite:
            raise InputError(
                f"there is a model at {url} already; give another --model, or --overwrite to "
                "replace it"
            )
    ModelWriter(model).check()


def show_dry_run(prediction: dadagrad.DryRun, display: Display) -> None:
    """Print the prediction of a run; `InputError` if the run cannot fit into memory."""
    if prediction.problem is not None:
        raise InputError(prediction.problem)
    if display.as_json:
        print_json(prediction.to_json())
        return
    names = ("engine", "rows", "features", "outputs", "partitions", "passes")
    run = {name: getattr(prediction, name) for name in names}
    run |= {"rows of a step": prediction.batch_size, "steps": prediction.steps}
    run |= {"streams": prediction.streams} if prediction.streams > 1 else {}
    if prediction.bytes_per_step is not None:
        run["to the workers, for a step"] = decimal(prediction.bytes_per_step["down"])
        run["from the workers, for a step"] = decimal(prediction.bytes_per_step["up"])
    print_facts(run, title="run")
    coordinator = prediction.coordinator
    memory = _memory(coordinator)
    memory["of it for the run"] = decimal(coordinator["total"] - coordinator["process"])
    memory["free for the run"] = decimal(prediction.free)
    print_facts(memory, title="memory of the coordinator")
    worker = prediction.worker
    if worker is not None:
        limit = "none" if worker["limit"] is None else decimal(worker["limit"])
        print_facts(_memory(worker) | {"limit": limit}, title="memory of a worker")


def _memory(parts: Mapping[str, int | None]) -> dict[str, str]:
    """The parts of the memory of a process in words, and their sizes."""
    from dadagrad.training.memory.check import PARTS  # loads slowly

    return {text: decimal(size) for name, text in PARTS.items() if (size := parts.get(name))}
