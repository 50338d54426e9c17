"""What surrounds a run: checks before it, its progress, and what is done with its model."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dadagrad.cli.display import Bar, Display, print_facts, print_json
from dadagrad.cli.options import absolute
from dadagrad.cli.program import Interrupted
from dadagrad.errors import DadagradError, InputError

if TYPE_CHECKING:
    from dadagrad.config import TrainConfig
    from dadagrad.data.dataset import Dataset
    from dadagrad.training.protocol import Report
    from dadagrad.training.run import TrainResult

SAVE_SECONDS = 60.0
"""Between checkpoints, where nothing else is said."""

_RESULTS = (
    "examples",
    "steps",
    "passes",
    "seconds",
    "examples_per_second",
    "nnz_per_second",
    "progressive_loss",
    "progressive_error",
    "nonzeros",
    "features",
    "step_size",
    "checkpoints",
    "digest",
    "batch_size",
    "delay",
    "bytes_per_step",
    "compile_seconds",
    "skipped",
    "skipped_partitions",
    "complete",
)
"""What is shown of a run, in this order."""


class Watching:
    """A run's progress as a bar: opened when the first rows are done, after all preparations."""

    def __init__(
        self, display: Display, config: TrainConfig, data: Dataset, *, done: int = 0
    ) -> None:
        from dadagrad.losses import make_loss

        self._display = display
        loss = make_loss(config.loss)
        self._has_errors = loss.classifies or loss.ranks
        self._context = display.bar("training", data.n_rows * config.passes, done=done)
        self._done = done
        self._bar: Bar | None = None

    def announce(self, message: str) -> None:
        self._display.say(message)

    def progress(self, report: Report) -> None:
        if self._bar is None:
            if self._done:
                self._display.say(f"going on after {self._done:,} rows")
            self._bar = self._context.__enter__()
        tally = report.tally
        note = ""
        if tally.weight:
            note = f", loss {tally.loss.mean() / tally.weight:.4g}"
            if self._has_errors:
                note += f", error {tally.mistakes[0] / tally.weight:.4f}"
        self._bar.update(tally.examples, note)

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *details: Any) -> None:
        if self._bar is not None:
            self._context.__exit__(None, None, None)


def newest_meta(checkpoints: str) -> dict[str, Any]:
    """What the newest valid checkpoint says of its run, without its arrays."""
    from dadagrad.training.checkpoint import CheckpointReader

    reader = CheckpointReader(checkpoints)
    for info in reader.list():
        if info.valid and info.meta is not None:
            return info.meta
    # It knows best what is there instead.
    return reader.load().meta


def finish(
    result: TrainResult,
    display: Display,
    notes: dict[str, Any],
    model: str,
    checkpoints: str | None,
    *,
    as_json: bool,
) -> None:
    """Save the model of a complete run and say what came of it; end a stopped one with 130."""
    shown: dict[str, Any] = {"model": model if result.complete else None}
    shown |= {name: result.report.get(name) for name in _RESULTS}
    if result.complete:
        result.model.save(model)
        if notes.get("holdout") is not None:
            from dadagrad.evaluation import evaluate

            display.say(f"evaluating on {notes['holdout']}")
            shown["holdout"] = evaluate(result.model, notes["holdout"])
    if as_json:
        print_json(shown)
    elif result.complete:
        holdout = shown.pop("holdout", {})
        print_facts(shown | {f"holdout_{name}": value for name, value in holdout.items()})
    if not result.complete:
        saved = f"go on with `dadagrad resume {checkpoints}`"
        lost = "nothing was kept: give --checkpoints URL to be able to go on"
        rows = result.report["examples"]
        raise Interrupted(f"stopped after {rows:,} rows; {saved if checkpoints else lost}")


def check_before(config: TrainConfig, data: Dataset, model: str, holdout: str | None) -> None:
    """Find out now, and not after hours of training, what would be wrong then.

    `config` is one that `training.run.prepared` has made.
    """
    from dadagrad.method import make_method

    assert isinstance(config.batch_size, int)
    method = make_method(config, data.schema, config.batch_size)
    if holdout is not None:
        import numpy as np

        from dadagrad.data.dataset import open_dataset
        from dadagrad.evaluation import check_suitable
        from dadagrad.model import Model

        empty = Model(
            method.n_features,
            np.zeros(0, np.int64),
            np.zeros((0, method.n_targets), np.float32),
            np.zeros(method.n_targets),
            config.loss,
            method.task,
            method.label_columns,
            data.schema.feature_space,
        )
        check_suitable(empty, open_dataset(absolute(holdout)))
    check_destination(model)


def check_checkpoints(checkpoints: str) -> None:
    """Raise if something else than checkpoints is at the URL `checkpoints`."""
    from dadagrad.documents import what_is_at
    from dadagrad.storage import Storage

    found = what_is_at(Storage(checkpoints))
    if found not in (None, "the checkpoints of a run"):
        raise InputError(f"{checkpoints} holds {found}; give --checkpoints a folder of its own")


def check_destination(model: str) -> None:
    """Raise unless a model can be written to the URL `model`."""
    from dadagrad.documents import what_is_at
    from dadagrad.storage import Storage

    storage = Storage(model)
    found = what_is_at(storage)
    if found not in (None, "a model"):
        raise InputError(f"{model} holds {found}; give --model a folder of its own")
    key = f"probe-{uuid4().hex}"
    storage.put(key, b"")
    with suppress(DadagradError):
        storage.delete(key)
