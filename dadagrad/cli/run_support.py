"""Steps around a run: checks and predictions before it, its progress, and its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal

import dadagrad
from dadagrad.cli.display import Bar, Display, print_facts, print_json
from dadagrad.cli.failures import Interrupted
from dadagrad.errors import DadagradError, InputError

if TYPE_CHECKING:
    from dadagrad import Dataset, DryRun, TrainConfig, TrainResult
    from dadagrad.training.messages import Report

SAVE_SECONDS = 60.0
"""Default seconds between checkpoints."""

_MEMORY_OF_COORDINATOR = {
    "process": "this process before the run",
    "libraries": "client of the cluster",
    "state": "state",
    "checkpoint": "copy of the state for a checkpoint",
    "rows": "open partitions",
    "step": "computation of a step and messages",
    "model": "model at the end",
    "trial": "trial of step sizes before the run",
    "total": "largest total",
}
_MEMORY_OF_WORKER = {
    "libraries": "worker without work",
    "reading": "reading of partitions",
    "step": "computation of a step",
    "cache": "decoded partitions that are kept",
    "total": "largest total",
}


@contextmanager
def showing_run(
    display: Display, config: TrainConfig, data: Dataset, *, done: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield the arguments `progress` and `messages` of `train`, which show the run.

    The bar opens after all preparations; `done` rows were learned from before.
    """
    total = round(data.n_rows * (1.0 - config.holdout)) * config.passes
    has_errors = config.loss.classifies or config.loss.ranks
    bar: Bar | None = None
    with ExitStack() as stack:

        def progress(report: Report) -> None:
            nonlocal bar
            if bar is None:
                if done:
                    display.say(f"resuming after {done:,} rows")
                bar = stack.enter_context(display.bar("training", done=done))
            metrics = report.metrics
            note = ""
            if metrics.weight:
                best = metrics.loss.argmin()
                note = f", loss {metrics.loss[best] / metrics.weight:.4g}"
                if has_errors:
                    note += f", error {metrics.mistakes[best] / metrics.weight:.4f}"
            bar.update(metrics.rows, total, note)

        yield {"progress": progress, "messages": display.say}


def finish(
    result: TrainResult,
    display: Display,
    model: str,
    holdout: str | None,
    checkpoints: str | None,
) -> None:
    """Save and report the model of a complete run; exit with 130 if the run was stopped."""
    shown: dict[str, Any] = {"model": model if result.complete else None} | result.report
    if result.complete:
        result.model.save(model)
        if holdout is not None:
            display.say(f"evaluating on {holdout}")
            shown["holdout"] = dadagrad.evaluate(result.model, holdout)
    if display.as_json:
        print_json(shown)
    elif result.complete:
        measured = shown.pop("holdout", {})
        settings, best = shown.pop("settings"), shown.pop("best")
        print_facts(shown | {f"holdout_{name}": value for name, value in measured.items()})
        for number, setting in enumerate(settings if len(settings) > 1 else ()):
            print_facts(setting, title=f"setting {number}{' (the model)' * (number == best)}")
    if not result.complete:
        saved = f"go on with `dadagrad resume {checkpoints}`"
        lost = "nothing was saved: give --checkpoints URL to be able to resume"
        rows = result.report["rows"]
        raise Interrupted(f"stopped after {rows:,} rows; {saved if checkpoints else lost}")


def check_data(
    data: Dataset, config: TrainConfig, holdout: str | None, *, on_cluster: bool
) -> None:
    """Check before training that the data suit the settings, and the model the holdout data."""
    from dadagrad.model.compatibility import check_suitable
    from dadagrad.problem import make_problem
    from dadagrad.training.execution import resolve_config

    config = resolve_config(data, config, on_cluster=on_cluster)
    assert isinstance(config.batch_size, int)
    task = make_problem(config, data.schema, config.batch_size).task
    if holdout is not None:
        check_suitable(task, data.schema, dadagrad.open_dataset(holdout))


def check_destinations(model: str, checkpoints: str | None = None) -> None:
    """Raise unless a model can be written to the URL `model`, and checkpoints to their URL."""
    from dadagrad.storage.documents import what_is_at
    from dadagrad.storage.store import Storage

    for url, kind, option in (
        (model, "a model", "--model"),
        (checkpoints, "the checkpoints of a run", "--checkpoints"),
    ):
        content = None if url is None else what_is_at(Storage(url))
        if content not in (None, kind):
            raise InputError(f"{url} holds {content}; give {option} a folder of its own")
    storage = Storage(model)
    storage.put("probe", b"")  # one name: the next command removes what a killed one leaves
    with suppress(DadagradError):
        storage.delete("probe")


def show_dry_run(prediction: DryRun, display: Display) -> None:
    """Print the prediction of a run; `InputError` if the run cannot fit into memory."""
    if prediction.problem is not None:
        raise InputError(prediction.problem)
    if display.as_json:
        print_json(prediction.to_json())
        return
    names = ("engine", "rows", "features", "outputs", "partitions", "passes")
    run = {name: getattr(prediction, name) for name in names}
    run |= {"rows of a step": prediction.batch_size, "steps": prediction.steps}
    if prediction.bytes_per_step is not None:
        run["to the workers, for a step"] = decimal(prediction.bytes_per_step["down"])
        run["from the workers, for a step"] = decimal(prediction.bytes_per_step["up"])
    print_facts(run, title="run")
    used = prediction.coordinator
    memory = {
        text: decimal(used[name]) for name, text in _MEMORY_OF_COORDINATOR.items() if used[name]
    }
    print_facts(memory | {"free now": decimal(prediction.free)}, title="memory of the coordinator")
    worker = prediction.worker
    if worker is not None:
        memory = {text: decimal(worker[name] or 0) for name, text in _MEMORY_OF_WORKER.items()}
        memory["limit"] = "none" if worker["limit"] is None else decimal(worker["limit"])
        print_facts(memory, title="memory of a worker")
