"""Callbacks that record a run: as JSON lines in a file, or by trackers of experiments.

The packages of trackers are imported by the user. Numbers are sent at the end of each pass, and of
rounds that are a second or more apart.
"""

from __future__ import annotations

import logging
import math
import os
import time
from abc import abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dadagrad.errors import InputError
from dadagrad.storage.documents import strict_json
from dadagrad.storage.files import is_url
from dadagrad.training.callbacks import BeginEvent, Callback, CheckpointEvent, EndEvent, RoundEvent

logger = logging.getLogger(__name__)

MIN_SECONDS = 1.0
"""Seconds between two rounds of a pass that are recorded."""


class JsonLog(Callback):
    """Log of a run in a local file: a JSON object in each line, with `event` and `time`.

    The events are "begin", "round", "checkpoint" and "end", with the entries of their `to_json`. A
    round has a line, with the number of non-zero weights, where the rows have doubled, a pass ends
    or a second has gone by. Lines are added to those that are there. Raises `InputError` if the
    file cannot be written at first; if it cannot be written later, the log ends with a warning.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        path = os.fspath(path)
        if is_url(path) or path == "-":
            raise InputError(f"cannot write the log to {path}; give a local file")
        self._path = os.path.abspath(os.path.expanduser(path))
        self._last = 0.0
        self._has_ended = False
        self._write("")

    def on_begin(self, event: BeginEvent) -> None:
        self._next_rows = 0
        self._add("begin", event.to_json())

    def on_round(self, event: RoundEvent) -> None:
        now, rows = time.monotonic(), event.rows
        if now - self._last >= MIN_SECONDS or rows >= self._next_rows or event.ends_pass:
            self._next_rows, self._last = 2 * rows, now
            self._add("round", event.to_json() | {"nonzeros": event.count_nonzeros()})

    def on_checkpoint(self, event: CheckpointEvent) -> None:
        self._add("checkpoint", event.to_json())

    def on_end(self, event: EndEvent) -> None:
        self._add("end", event.to_json())

    def _add(self, kind: str, entries: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            if not self._has_ended:
                self._write(strict_json({"event": kind, "time": now} | entries) + "\n")
        except InputError as error:
            self._has_ended = True
            logger.warning("the log of the run ends early: %s", error)

    def _write(self, text: str) -> None:
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise InputError(
                f"cannot write the log {self._path}: {error.strerror}; give a local file"
            ) from error


class _Tracker(Callback):
    """Base: `begin` gets the parameters of a run, `log` the numbers after so many rows."""

    _sent = -math.inf

    @abstractmethod
    def begin(self, parameters: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def log(self, numbers: Mapping[str, float], rows: int) -> None: ...

    @abstractmethod
    def finish(self, *, failed: bool) -> None: ...

    def on_begin(self, event: BeginEvent) -> None:
        self._sent = -math.inf
        plain = event.to_json()
        config = plain.pop("config")
        self.begin(plain | {name: str(value) for name, value in config.items()})

    def on_round(self, event: RoundEvent) -> None:
        if event.ends_pass or event.seconds - self._sent >= MIN_SECONDS:
            self._sent = event.seconds
            self.log(_numbers(event.to_json()), event.rows)

    def on_end(self, event: EndEvent) -> None:
        if event.result is not None:
            report = event.result.report
            held_out = {
                f"holdout_{name}": value for name, value in report.get("holdout", {}).items()
            }
            self.log(_numbers(report | held_out), report["rows"])
        self.finish(failed=event.result is None)


def _numbers(plain: Mapping[str, Any]) -> dict[str, float]:
    kinds = int | float
    return {
        name: value
        for name, value in plain.items()
        if isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)
    }


class WandbCallback(_Tracker):
    """Sends a run through the API of Weights and Biases, which trackio shares.

    Parameters
    ----------
    api : module
        `wandb` or `trackio`.
    **init
        Arguments of its ``init``, such as ``project="reviews"``.

    Examples
    --------
    ``train(data, callbacks=[WandbCallback(trackio, project="reviews")])``
    """

    def __init__(self, api: Any, **init: Any) -> None:
        self._api = api
        self._init = init

    def begin(self, parameters: Mapping[str, Any]) -> None:
        self._api.init(config=dict(parameters), **self._init)

    def log(self, numbers: Mapping[str, float], rows: int) -> None:
        self._api.log(dict(numbers) | {"rows": rows})

    def finish(self, *, failed: bool) -> None:
        self._api.finish()


class MlflowCallback(_Tracker):
    """Sends a run to MLflow: to the active run, or to a new one that ends with the training.

    Parameters
    ----------
    api : module
        `mlflow`.
    **start
        Arguments of ``mlflow.start_run``, such as ``run_name="reviews"``.
    """

    def __init__(self, api: Any, **start: Any) -> None:
        self._api = api
        self._start = start
        self._has_started = False

    def begin(self, parameters: Mapping[str, Any]) -> None:
        active = self._api.active_run()
        self._has_started = active is None
        run = active or self._api.start_run(**self._start)
        # A run that goes on has parameters, which MLflow lets nobody change.
        known = self._api.get_run(run.info.run_id).data.params
        new = {name: value for name, value in parameters.items() if name not in known}
        self._api.log_params(new)

    def log(self, numbers: Mapping[str, float], rows: int) -> None:
        self._api.log_metrics(dict(numbers), step=rows)

    def finish(self, *, failed: bool) -> None:
        if self._has_started:
            self._api.end_run("FAILED" if failed else "FINISHED")
