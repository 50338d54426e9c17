"""The report of a run that goes on: a callback that keeps its content up to date."""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from datetime import UTC, datetime
from typing import Any

from dadagrad.errors import InputError
from dadagrad.model.facts import changed_settings, commands
from dadagrad.reports.document import Document, base, describe_model
from dadagrad.reports.page import content, page
from dadagrad.storage.documents import strict_json
from dadagrad.training.callbacks import (
    BeginEvent,
    Callback,
    CheckpointEvent,
    EndEvent,
    LearningCurve,
    RoundEvent,
)

SECONDS = 0.5
"""Seconds between two updates."""
MAX_COUNTING = 0.02
"""Share of the time of a run in which non-zero weights may be counted."""
MAX_CHECKPOINTS = 10
"""Newest checkpoints that are listed."""


class LiveReport(Callback):
    """Base of callbacks that show the report of a run while it goes on.

    Attributes
    ----------
    document : dict
        The report; it is replaced, never changed.
    """

    def __init__(self) -> None:
        self.document: Document = base("waiting")
        self._curve = LearningCurve()
        self._last = self._counting = 0.0
        self._nonzeros: int | None = None

    @abstractmethod
    def publish(self) -> None:
        """Show the document, which is new."""

    def on_begin(self, event: BeginEvent) -> None:
        config = event.config.to_json()
        self._curve = LearningCurve.from_json(event.curve)
        training = {
            "features": event.features,
            "outputs": event.outputs,
            "rows": event.rows_done,
            "rows_total": event.rows * event.config.passes,
        }
        self.document = base("running") | {
            "url": event.checkpoints,
            "data": {"url": event.data, "rows": event.rows},
            "config": config,
            "settings": changed_settings(config),
            "training": training,
            "checkpoints": [],
            "again": commands(config, event.data, None),
        }
        self.publish()

    def on_round(self, event: RoundEvent) -> None:
        self._curve.on_round(event)
        now = time.monotonic()
        if now - self._last < SECONDS:
            return
        self._last = now
        if self._counting <= MAX_COUNTING * event.seconds:
            self._nonzeros = event.count_nonzeros()
            self._counting += time.monotonic() - now
        self._update(
            training=self.document["training"]
            | {
                "progressive_loss": event.first_loss,
                "progressive_error": event.first_error,
                "nonzeros": self._nonzeros,
                **event.to_json(),
            },
            holdout={} if event.holdout_loss is None else {"loss": event.holdout_loss},
            curve=self._curve.to_json(),
        )

    def on_checkpoint(self, event: CheckpointEvent) -> None:
        created = datetime.now(UTC).isoformat(timespec="seconds")
        saved = event.to_json() | {"created": created, "valid": True}
        self._update(checkpoints=[saved, *self.document["checkpoints"]][:MAX_CHECKPOINTS])

    def on_end(self, event: EndEvent) -> None:
        if event.result is None:
            self._update(status="failed", error=str(event.error) or repr(event.error))
        else:
            saved = self.document["checkpoints"]
            self.document = describe_model(event.result.model) | {"checkpoints": saved}
            self.publish()

    def _update(self, **entries: Any) -> None:
        created = datetime.now(UTC).isoformat(timespec="seconds")
        self.document = self.document | {"created": created} | entries
        self.publish()


def answer(document: Document, path: str) -> tuple[str, bytes] | None:
    """Return the type and the bytes at a path of the live page; None if there is nothing.

    The paths are "", "content" (which the page fetches each second) and "report.json".
    """
    if path == "report.json":
        return "application/json", strict_json(document).encode()
    if path in ("", "content"):
        text = page(document, live=True) if not path else content(document)
        return "text/html; charset=utf-8", text.encode()
    return None


HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'self'",
}
"""Headers of all answers."""


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, ``:PORT`` or ``PORT``; without a host, 127.0.0.1."""
    match = re.fullmatch(r"(?:([\w.-]+|\[[0-9a-fA-F:]+\])?:)?(\d{1,5})", address)
    if match is None or int(match[2]) > 65535:
        raise InputError(
            f"{address!r} is not an address for a dashboard; give HOST:PORT, such as 127.0.0.1:8080"
        )
    return (match[1] or "127.0.0.1").strip("[]"), int(match[2])
