"""A small HTTP proxy in front of a real server that makes requests fail."""

import contextlib
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    """Method and path of a request; `conditional` if it must not replace an object."""

    method: str
    path: str
    conditional: bool


Act = Callable[[Request], str]
"""The fate of a request:

- ``pass``
- ``500`` to ``599``, ``409``, ``429``: answered so; the server does not see it
- ``stall``: read, and never answered
- ``reset``: the connection is reset before the server sees the request
- ``lose``: the server does it, but its answer is lost with the connection
- ``cut``: half of the answer's body, then a reset
- ``hold``: nothing is passed on until `Proxy.release`, and the sender is told nothing
- ``tear``: half of the body is passed on, and then nothing until `Proxy.release`
"""


def always(action):
    return lambda request: action


def first(*actions):
    """The first requests for each object or listing fail, by one action each; then all pass."""
    seen = Counter()
    lock = threading.Lock()

    def act(request):
        with lock:
            number = seen[request.method, request.path]
            seen[request.method, request.path] += 1
        return actions[number] if number < len(actions) else "pass"

    return act


def mishaps(seed, shares):
    """A random share of the requests fails, for each action its own share."""
    rng, lock = random.Random(seed), threading.Lock()

    def act(request):
        with lock:
            weights = [*shares.values(), 1.0 - sum(shares.values())]
            return rng.choices([*shares, "pass"], weights)[0]

    return act


STAGES = {
    "part": ("PUT", r"\.zst"),
    "manifest": ("PUT", "/run/manifest-"),
    "removal": ("POST", "delete"),
    "model": ("PUT", "/model/model.json"),
}
"""Requests of a run that saves checkpoints, by method and path."""


def once_at(proxy, stage, action):
    """One request of a stage fails, once there are two checkpoints."""
    method, pattern = STAGES[stage]

    def act(request):
        wanted = request.method == method and re.search(pattern, request.path)
        goes_on = proxy.count("PUT", "/run/manifest-") > 1
        return action if wanted and goes_on and not proxy.held.is_set() else "pass"

    return act


class Proxy(ThreadingHTTPServer):
    """Listens on the loopback interface and passes requests on to a server; a context manager.

    `server` is the address to use in the place of the server behind. `act` decides on each request,
    and may be replaced at any time. The event `held` is set when a request is being held;
    `n_failed` requests did not just pass. Bodies are read at `bytes_per_second`, if given.
    """

    request_queue_size = 64
    block_on_close = False

    def __init__(self, behind):
        super().__init__(("127.0.0.1", 0), Handler)
        self.act = always("pass")
        self.held, self.released = threading.Event(), threading.Event()
        self.bytes_per_second = None
        self.requests = []
        self.n_active = self.n_failed = 0
        self.lock = threading.Lock()
        self.clients = set()
        self.behind = urlsplit(behind.endpoint).netloc
        self.server = replace(behind, endpoint=f"http://127.0.0.1:{self.server_port}")
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *details):
        self.release()
        self.shutdown()
        self.server_close()
        self._thread.join(10)

    def handle_error(self, request, client_address):
        """Say nothing: broken connections are intended."""

    def release(self):
        self.released.set()

    def hold(self):
        self.held.set()
        self.released.wait(120)

    @property
    def busy(self):
        """True while a request is on its way to the server."""
        return self.n_active > 0

    def count(self, method, pattern):
        """Number of requests of a method so far, with a path that matches `pattern`."""
        return sum(
            request.method == method and bool(re.search(pattern, request.path))
            for request in self.requests
        )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def setup(self):
        super().setup()
        with self.server.lock:
            self.server.clients.add(self.request)

    def finish(self):
        with self.server.lock:
            self.server.clients.discard(self.request)
        super().finish()

    def log_message(self, *details):
        """Keep no log."""

    def handle_request(self):
        conditional = "If-None-Match" in self.headers
        request = Request(self.command, self.path, conditional)
        with self.server.lock:
            self.server.requests.append(request)
            self.server.n_active += 1
        action = self.server.act(request)
        try:
            self._act(action)
        finally:
            with self.server.lock:
                self.server.n_active -= 1
                self.server.n_failed += action != "pass"

    do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = handle_request  # noqa: N815

    def _act(self, action):
        size = int(self.headers.get("Content-Length", 0))
        if action == "reset":
            self._reset()
        if action == "tear":
            with contextlib.closing(self._pass_on(self.rfile.read(size // 2))):
                self.server.hold()
            raise EOFError
        body = self._body(size)
        if action.isdigit():
            code = "ConditionalRequestConflict" if action == "409" else "Injected"
            self._reply(int(action), [], f"<Error><Code>{code}</Code></Error>".encode())
            return
        if action == "stall":
            self.rfile.read(1)  # until the client gives up
            raise EOFError
        if action == "hold":
            self.server.hold()
        with contextlib.closing(self._pass_on(body)) as connection:
            answer = connection.getresponse()
            content = answer.read()
        if action == "lose":
            self._reset()
        headers = [header for header in answer.getheaders() if header[0] != "Transfer-Encoding"]
        self._reply(answer.status, headers, content, cut=action == "cut")

    def _pass_on(self, body):
        """A connection to the server that has sent it the request, with this much of its body."""
        connection = HTTPConnection(self.server.behind, timeout=60)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, text in self.headers.items():
            if name.lower() != "expect":
                connection.putheader(name, text)
        connection.endheaders()
        connection.send(body)
        return connection

    def _reply(self, status, headers, content, cut=False):
        self.send_response_only(status)
        for name, text in headers:
            self.send_header(name, text)
        if not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        sent = b"" if self.command == "HEAD" else content
        self.wfile.write(sent[: len(sent) // 2] if cut else sent)
        if cut:
            time.sleep(0.05)
            self._reset()

    def _body(self, size):
        speed, pieces = self.server.bytes_per_second, []
        while size:
            piece = self.rfile.read(size if speed is None else min(size, 1 << 14))
            if not piece:
                raise EOFError
            if speed is not None:
                time.sleep(len(piece) / speed)
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _reset(self):
        """End the connection as a machine does that has lost power and comes back."""
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.rfile.close()
        self.request.close()
        raise EOFError
