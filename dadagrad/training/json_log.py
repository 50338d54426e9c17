"""Log of a run as JSON lines, one for each event, in a file or at a URL."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from dadagrad.errors import InputError
from dadagrad.storage.documents import strict_json
from dadagrad.storage.store import Storage
from dadagrad.training.callbacks import BeginEvent, Callback, CheckpointEvent, EndEvent, RoundEvent

ROUND_SECONDS = 1.0
"""Seconds after which a round has a line in any case; others where the rows have doubled."""
UPLOAD_SECONDS = 60.0
"""Seconds between two uploads of a log that is not in a local file."""


class JsonLog(Callback):
    """Log of a run at `url`: a JSON object in each line, with `event` and `time`.

    The events are "begin", "round", "checkpoint" and "end", with the entries of their `to_json`. A
    round has a line, with the number of non-zero weights, where the rows have doubled, a pass ends
    or a second has gone by. A run that is resumed adds lines to those that are there. A local file
    has each line at once; at a URL the log is replaced once a minute, at checkpoints and at the
    end. Raises `InputError` if the file cannot be written, `StorageError` if the store fails.
    """

    def __init__(self, url: str) -> None:
        folder, separator, name = url.rpartition("/")
        self._storage, self._name = Storage(folder + separator or "."), name
        self._path = self._storage.local_path(name) if self._storage.is_local else None
        self._lines: list[str] = []
        self._next_rows, self._last, self._uploaded = 0, 0.0, 0.0
        self._write("a", "")

    def on_begin(self, event: BeginEvent) -> None:
        if event.rows_done == 0:
            self._write("w", "")
        elif self._path is None and self._storage.exists(self._name):
            self._lines = self._storage.get(self._name).decode().splitlines(keepends=True)
        self._uploaded = time.monotonic()
        self._add("begin", event.to_json())

    def on_round(self, event: RoundEvent) -> None:
        now, rows = time.monotonic(), event.rows
        late = now - self._last >= ROUND_SECONDS
        if not late and rows < self._next_rows and not event.ends_pass:
            return
        self._next_rows, self._last = 2 * rows, now
        self._add("round", event.to_json() | {"nonzeros": event.count_nonzeros()})
        if now - self._uploaded >= UPLOAD_SECONDS:
            self._upload()

    def on_checkpoint(self, event: CheckpointEvent) -> None:
        self._add("checkpoint", event.to_json())
        self._upload()

    def on_end(self, event: EndEvent) -> None:
        self._add("end", event.to_json())
        self._upload()

    def _add(self, kind: str, entries: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = strict_json({"event": kind, "time": now} | entries) + "\n"
        if self._path is None:
            self._lines.append(line)
        else:
            self._write("a", line)

    def _write(self, mode: str, text: str) -> None:
        """Write to the local file, if there is one."""
        if self._path is not None:
            try:
                with open(self._path, mode, encoding="utf-8") as file:
                    file.write(text)
            except OSError as error:
                raise InputError(f"cannot write the log {self._path}: {error.strerror}") from error

    def _upload(self) -> None:
        if self._path is None:
            self._storage.put(self._name, "".join(self._lines).encode())
            self._uploaded = time.monotonic()
