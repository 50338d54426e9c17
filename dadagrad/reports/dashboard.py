"""Live page of a run, served by the process that trains, and by Dask's scheduler on a cluster."""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dadagrad.errors import InputError
from dadagrad.reports.document import Document, base, describe_model, describe_settings
from dadagrad.reports.page import HEADERS, answer
from dadagrad.storage.documents import timestamp
from dadagrad.training.callbacks import (
    BeginEvent,
    Callback,
    CheckpointEvent,
    EndEvent,
    LearningCurve,
    RoundEvent,
)

logger = logging.getLogger(__name__)

LAST_SECONDS = 2.0
"""Time at the end of a run in which open pages fetch its last state."""
SECONDS = 0.5
"""Seconds between two updates."""
MAX_COUNTING = 0.02
"""Share of the time of a run in which non-zero weights may be counted."""
MAX_CHECKPOINTS = 10
"""Newest checkpoints that are listed."""


class Dashboard(Callback):
    """Live page at an `address` of this machine, and of a run on a cluster at ``/dadagrad`` too.

    The page is served from the moment when the object is made. By default it is at a free port of
    127.0.0.1, which no other machine can reach; anybody who can reach another address can read the
    page. Raises `InputError` if the address cannot be used.

    Attributes
    ----------
    url : str
    document : dict
        The report; it is replaced, never changed.
    """

    def __init__(self, address: str = "127.0.0.1:0") -> None:
        self.document: Document = base("waiting")
        self._curve = LearningCurve()
        self._last = self._counting = 0.0
        self._nonzeros: int | None = None
        host, port = parse_address(address)
        self._seen: float | None = None  # when a page was last fetched
        self._shown_end = threading.Event()
        self._send: Callable[[Document], None] | None = None
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            kind = type("Server", (ThreadingHTTPServer,), {"address_family": family})
            self._server = kind((host, port), _handler(self))
        except OSError as error:
            raise InputError(
                f"the dashboard cannot use {address}: {error.strerror}; give another HOST:PORT"
            ) from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_address[1]}/"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="dadagrad-dashboard", daemon=True
        )
        self._thread.start()

    def on_begin(self, event: BeginEvent) -> None:
        if event.client is not None:
            from dadagrad.reports.dask_page import install, send

            if install(event.client):
                self._send = partial(send, event.client)
        self._curve = LearningCurve.from_json(event.curve)
        training = {
            "features": event.features,
            "outputs": event.outputs,
            "rows": event.rows_done,
            "rows_total": event.rows * event.config.passes,
        }
        document = describe_settings("running", event.to_json(), event.rows)
        document |= {"url": event.checkpoints, "training": training, "checkpoints": []}
        self._show(document)

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
        saved = event.to_json() | {"created": timestamp(), "valid": True}
        self._update(checkpoints=[saved, *self.document["checkpoints"]][:MAX_CHECKPOINTS])

    def on_end(self, event: EndEvent) -> None:
        try:
            if event.result is None:
                self._update(status="failed", error=str(event.error) or repr(event.error))
            elif event.result.digest is None:  # the weights stayed on the workers
                self._update(status="stopped")
            else:
                saved = self.document["checkpoints"]
                self._show(describe_model(event.result.model) | {"checkpoints": saved})
            if self._seen is not None and time.monotonic() - self._seen < LAST_SECONDS:
                self._shown_end.wait(LAST_SECONDS)
        finally:
            self.close()

    def _update(self, **entries: Any) -> None:
        self._show(self.document | {"created": timestamp()} | entries)

    def _show(self, document: Document) -> None:
        self.document = document
        if self._send is not None:
            self._send(document)

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str) -> tuple[str, bytes] | None:
        """Return the type and the content at a path of the server."""
        self._seen, document = time.monotonic(), self.document
        result = answer(document, path)
        if document["status"] not in ("waiting", "running") and path == "content":
            self._shown_end.set()
        return result


def _handler(dashboard: Dashboard) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = dashboard.answer(self.path.partition("?")[0].strip("/"))
            kind, body = answer or ("text/plain", b"there is nothing here\n")
            self.send_response(200 if answer else 404)
            for name, value in (HEADERS | {"Content-Type": kind}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            logger.debug(format, *arguments)

    return Handler


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, ``:PORT`` or ``PORT``; without a host, 127.0.0.1."""
    match = re.fullmatch(r"(?:([\w.-]+|\[[0-9a-fA-F:]+\])?:)?(\d{1,5})", address)
    if match is None or int(match[2]) > 65535:
        raise InputError(
            f"{address!r} is not an address for a dashboard; give HOST:PORT, such as 127.0.0.1:8080"
        )
    return (match[1] or "127.0.0.1").strip("[]"), int(match[2])
