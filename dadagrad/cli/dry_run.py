"""Output of ``dadagrad train --dry-run``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.filesize import decimal

from dadagrad.cli.display import print_facts, print_json
from dadagrad.errors import InputError

if TYPE_CHECKING:
    from dadagrad import DryRun

_COORDINATOR = {
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
_WORKER = {
    "libraries": "worker without work",
    "reading": "reading of partitions",
    "step": "computation of a step",
    "cache": "decoded partitions that are kept",
    "total": "largest total",
}


def show(prediction: DryRun, *, as_json: bool) -> None:
    """Print the prediction of a run; `InputError` if the run cannot fit into memory."""
    if prediction.problem is not None:
        raise InputError(prediction.problem)
    if as_json:
        print_json(prediction.to_json())
        return
    names = ("engine", "rows", "features", "outputs", "partitions", "passes")
    run = {name: getattr(prediction, name) for name in names}
    run |= {"rows of a step": prediction.batch_size, "steps": prediction.steps}
    if prediction.bytes_per_step is not None:
        run["to the workers, for a step"] = decimal(prediction.bytes_per_step["down"])
        run["from the workers, for a step"] = decimal(prediction.bytes_per_step["up"])
    print_facts(run, title="run")
    memory = {
        text: decimal(prediction.coordinator[name])
        for name, text in _COORDINATOR.items()
        if prediction.coordinator[name]
    }
    memory["free now"] = decimal(prediction.free)
    print_facts(memory, title="memory of the coordinator")
    if prediction.worker is not None:
        memory = {text: decimal(prediction.worker[name] or 0) for name, text in _WORKER.items()}
        limit = prediction.worker["limit"]
        memory["limit"] = "none" if limit is None else decimal(limit)
        print_facts(memory, title="memory of a worker")
