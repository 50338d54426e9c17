"""What ``dadagrad train --dry-run`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dadagrad.amounts import size
from dadagrad.cli.display import number, print_json
from dadagrad.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from dadagrad.training.dry_run import DryRun

_COORDINATOR = {
    "process": "this process, before the run",
    "libraries": "the client of the cluster",
    "state": "state",
    "checkpoint": "copy of it, for a checkpoint",
    "sums": "sums of a batch",
    "rows": "partitions that are open",
    "step": "work of a step, and what is on its way",
    "model": "model, when it is made",
    "trial": "trial of step sizes, before the run",
    "total": "at the worst moment",
}
_WORKER = {
    "libraries": "a worker, before it has work",
    "reading": "reading partitions",
    "step": "work of a step",
    "cache": "partitions that stay decoded",
    "total": "at the worst moment",
}


def show(found: DryRun, *, as_json: bool) -> None:
    """Print what a run would take; `InputError` where it cannot fit."""
    if found.problem is not None:
        raise InputError(found.problem)
    if as_json:
        print_json(found.to_json())
        return
    from rich.console import Console

    # As wide as it gets: a pipe has no width to fit into.
    console = Console(highlight=False, soft_wrap=True)
    console.print(_run(found))
    memory = _table("memory of the coordinator")
    for name, what in _COORDINATOR.items():
        if found.coordinator[name]:
            memory.add_row(what, size(found.coordinator[name]))
    memory.add_row("free now", size(found.free))
    console.print(memory)
    if found.worker is not None:
        memory = _table("memory of a worker")
        for name, what in _WORKER.items():
            memory.add_row(what, size(found.worker[name] or 0))
        limit = found.worker["limit"]
        memory.add_row("limit", "none" if limit is None else size(limit))
        console.print(memory)


def _run(found: DryRun) -> Table:
    table = _table("run")
    for name in ("engine", "rows", "features", "outputs", "partitions", "passes"):
        table.add_row(name, number(getattr(found, name)))
    table.add_row("rows of a step", number(found.batch_size))
    table.add_row("steps", number(found.steps))
    table.add_row("delay, in steps", number(found.delay))
    if found.bytes_per_step is not None:
        table.add_row("to the workers, for a step", size(found.bytes_per_step["down"]))
        table.add_row("from the workers, for a step", size(found.bytes_per_step["up"]))
    return table


def _table(title: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(title, min_width=40)
    table.add_column("", justify="right", min_width=12)
    return table
