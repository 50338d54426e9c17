"""Steps around a run: checks before it, its progress, and the end with its model."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dadagrad
from dadagrad.cli.display import Bar, Display, print_facts, print_json
from dadagrad.cli.main import Interrupted
from dadagrad.cli.options import absolute
from dadagrad.errors import DadagradError, InputError

if TYPE_CHECKING:
    from dadagrad import Dataset, TrainConfig, TrainResult
    from dadagrad.training.messages import Report

SAVE_SECONDS = 60.0
"""Default seconds between checkpoints."""

_RESULTS = (
    "rows", "steps", "passes", "seconds", "rows_per_second", "nnz_per_second",
    "progressive_loss", "progressive_error", "nonzeros", "features", "step_size", "checkpoints",
    "digest", "batch_size", "bytes_per_step", "compile_seconds", "skipped",
    "skipped_partitions", "complete",
)  # fmt: skip
"""Entries of a report that are shown, in this order."""


class RunProgress:
    """Progress of a run as a bar, which opens after all preparations.

    Parameters
    ----------
    display : Display
    config : TrainConfig
    data : Dataset
    done : int
        Rows that were learned from before.
    """

    def __init__(
        self, display: Display, config: TrainConfig, data: Dataset, *, done: int = 0
    ) -> None:
        self._display = display
        loss = config.loss
        self._has_errors = loss.classifies or loss.ranks
        self._total = data.n_rows * config.passes
        self._done = done
        self._bar: Bar | None = None
        self._stack = ExitStack()

    def announce(self, message: str) -> None:
        """Show a message of the run."""
        self._display.say(message)

    def progress(self, report: Report) -> None:
        """Show the state of the run."""
        if self._bar is None:
            if self._done:
                self._display.say(f"resuming after {self._done:,} rows")
            context = self._display.bar("training", self._total, done=self._done)
            self._bar = self._stack.enter_context(context)
        metrics = report.metrics
        note = ""
        if metrics.weight:
            note = f", loss {metrics.loss.mean() / metrics.weight:.4g}"
            if self._has_errors:
                note += f", error {metrics.mistakes[0] / metrics.weight:.4f}"
        self._bar.update(metrics.rows, note)

    def __enter__(self) -> RunProgress:
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()


def newest_meta(checkpoints: str) -> dict[str, Any]:
    """Read the description of a run from its newest valid checkpoint, without its arrays."""
    from dadagrad.training.checkpoints.writer import CheckpointReader

    reader = CheckpointReader(checkpoints)
    for info in reader.list():
        if info.valid and info.meta is not None:
            return info.meta
    return reader.load().meta  # raises an error that describes what is there


def finish(
    result: TrainResult,
    display: Display,
    notes: dict[str, Any],
    model: str,
    checkpoints: str | None,
    *,
    as_json: bool,
) -> None:
    """Save and report the model of a complete run; exit with 130 if the run was stopped."""
    shown: dict[str, Any] = {"model": model if result.complete else None}
    shown |= {name: result.report.get(name) for name in _RESULTS}
    if result.complete:
        result.model.save(model)
        if notes.get("holdout") is not None:
            display.say(f"evaluating on {notes['holdout']}")
            shown["holdout"] = dadagrad.evaluate(result.model, notes["holdout"])
    if as_json:
        print_json(shown)
    elif result.complete:
        holdout = shown.pop("holdout", {})
        print_facts(shown | {f"holdout_{name}": value for name, value in holdout.items()})
    if not result.complete:
        saved = f"go on with `dadagrad resume {checkpoints}`"
        lost = "nothing was saved: give --checkpoints URL to be able to resume"
        rows = result.report["rows"]
        raise Interrupted(f"stopped after {rows:,} rows; {saved if checkpoints else lost}")


def check_before(config: TrainConfig, data: Dataset, model: str, holdout: str | None) -> None:
    """Check before training that the model will suit the holdout data and can be saved.

    `config` is the result of `training.run.prepared`.
    """
    from dadagrad.problem import make_problem

    assert isinstance(config.batch_size, int)
    problem = make_problem(config, data.schema, config.batch_size)
    if holdout is not None:
        import numpy as np

        from dadagrad.model.evaluate import check_suitable
        from dadagrad.optim.registry import describe

        empty = dadagrad.Model(
            problem.n_features,
            np.zeros(0, np.int64),
            np.zeros((0, problem.n_targets), np.float32),
            np.zeros(problem.n_targets),
            describe(config.loss),
            problem.task,
            problem.label_columns,
            data.schema.feature_space,
        )
        check_suitable(empty, dadagrad.open_dataset(absolute(holdout)))
    check_destination(model)


def check_checkpoints(checkpoints: str) -> None:
    """Raise unless the URL `checkpoints` is free or holds checkpoints."""
    _check_content(checkpoints, "the checkpoints of a run", "--checkpoints")


def check_destination(model: str) -> None:
    """Raise unless a model can be written to the URL `model`."""
    from dadagrad.storage.store import Storage

    _check_content(model, "a model", "--model")
    storage = Storage(model)
    key = f"probe-{uuid4().hex}"
    storage.put(key, b"")
    with suppress(DadagradError):
        storage.delete(key)


def _check_content(url: str, kind: str, option: str) -> None:
    from dadagrad.storage.documents import what_is_at
    from dadagrad.storage.store import Storage

    content = what_is_at(Storage(url))
    if content not in (None, kind):
        raise InputError(f"{url} holds {content}; give {option} a folder of its own")
