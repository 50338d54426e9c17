"""Live page of a run, served by the process that trains, and by Dask's scheduler on a cluster."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dadagrad.errors import InputError
from dadagrad.reports.document import Document
from dadagrad.reports.live import HEADERS, LiveReport, answer, parse_address
from dadagrad.training.callbacks import BeginEvent, EndEvent

logger = logging.getLogger(__name__)

LAST_SECONDS = 2.0
"""Time at the end of a run in which open pages fetch its last state."""


class Dashboard(LiveReport):
    """Live page at an `address` of this machine, and of a run on a cluster at ``/dadagrad`` too.

    The page is served from the moment when the object is made. By default it is at a free port of
    127.0.0.1, which no other machine can reach; anybody who can reach another address can read the
    page. Raises `InputError` if the address cannot be used.

    Attributes
    ----------
    url : str
    """

    def __init__(self, address: str = "127.0.0.1:0") -> None:
        super().__init__()
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
        self._server.daemon_threads = True
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
        super().on_begin(event)

    def publish(self) -> None:
        if self._send is not None:
            self._send(self.document)

    def on_end(self, event: EndEvent) -> None:
        try:
            super().on_end(event)
            if self._seen is not None and time.monotonic() - self._seen < LAST_SECONDS:
                self._shown_end.wait(LAST_SECONDS)
        finally:
            self.close()

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
