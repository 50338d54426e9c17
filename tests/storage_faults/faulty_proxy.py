"""A small HTTP proxy that stands before a real server and lets requests go wrong."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import socketserver
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import urlsplit

from servers import Server


@dataclass(frozen=True, slots=True)
class Request:
    """The first line of a request, and whether it is to be done only where nothing is yet."""

    method: str
    path: str
    conditional: bool


Act = Callable[[Request], str]
"""What happens to a request:

- ``pass``
- ``500`` to ``599``, ``409``, ``429``: answered so, and the server never sees it
- ``stall``: read, and never answered
- ``reset``: the connection is reset before the server sees it
- ``lose``: the server does it, but its answer is lost with the connection
- ``cut``: half of the answer's body, then a reset
- ``hold``: nothing is passed on until `Proxy.release`, the sender being told nothing
- ``tear``: half of the body is passed on, and then nothing until `Proxy.release`
"""


def always(action: str) -> Act:
    """The same for all requests."""
    return lambda request: action


def first(count: int, action: str) -> Act:
    """Something for the first requests for each object, or listing; then all pass."""
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def act(request: Request) -> str:
        with lock:
            seen[f"{request.method} {request.path}"] += 1
            return action if seen[f"{request.method} {request.path}"] <= count else "pass"

    return act


def mishaps(seed: int, shares: dict[str, float]) -> Act:
    """Something at random: `shares` says for which shares of the requests."""
    rng, lock = random.Random(seed), threading.Lock()

    def act(request: Request) -> str:
        with lock:
            number = rng.random()
        for action, share in shares.items():
            number -= share
            if number < 0:
                return action
        return "pass"

    return act


class Proxy:
    """Listens on the loopback interface and passes requests on to a server; a context manager.

    Attributes
    ----------
    act : callable
        Decides on each request; may be replaced at any time.
    seen : list of Request
        All requests so far.
    server : Server
        To be used in place of the server behind it.
    held : threading.Event
        Set when a request is being held.
    bytes_per_second : float or None
        How fast the bodies of requests are taken.
    """

    def __init__(self, behind: Server) -> None:
        self.act: Act = always("pass")
        self.seen: list[Request] = []
        self.done: list[tuple[Request, str]] = []
        self.held = threading.Event()
        self.bytes_per_second: float | None = None
        self._release = threading.Event()
        self._lock = threading.Lock()
        self._under_way = 0
        self._target = (urlsplit(behind.endpoint).hostname, urlsplit(behind.endpoint).port)
        self._sockets: set[socket.socket] = set()
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError, EOFError):
                    proxy._serve(self.request)

        class Listener(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 64

        self._listener = Listener(("127.0.0.1", 0), Handler)
        port = self._listener.server_address[1]
        self.server = Server(f"http://127.0.0.1:{port}", behind.key, behind.secret, behind.client)
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.05,))

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._release.set()
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join(10)
        with self._lock:
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Let go on what is being held."""
        self._release.set()

    @property
    def busy(self) -> bool:
        """Whether a request is on its way to the server."""
        with self._lock:
            return self._under_way > 0

    def count(self, method: str, pattern: str = "") -> int:
        """How many requests there were of this method, with a path that has `pattern` in it."""
        return sum(one.method == method and bool(re.search(pattern, one.path)) for one in self.seen)

    def _serve(self, client: socket.socket) -> None:
        with self._kept(client):
            incoming = client.makefile("rb")
            while (head := _head(incoming)) is not None:
                method, path = head.split(b" ", 2)[:2]
                with self._lock:
                    conditional = re.search(rb"(?im)^if-none-match:", head) is not None
                    request = Request(method.decode(), path.decode(), conditional)
                    self.seen.append(request)
                    self._under_way += 1
                try:
                    self._handle(client, incoming, head, self.act(request), request)
                finally:
                    with self._lock:
                        self._under_way -= 1

    def _handle(
        self, client: socket.socket, incoming: BinaryIO, head: bytes, action: str, request: Request
    ) -> None:
        if action == "reset":
            _reset(client)
        if re.search(rb"(?i)^expect: *100-continue", head, re.M):
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = re.sub(rb"(?im)^expect:[^\n]*\n", b"", head)
        if action == "tear":
            size = _length(head)
            with self._upstream() as server:
                server.sendall(head + incoming.read(size // 2))
                self._hold()
            raise EOFError
        body = self._body(incoming, _length(head))
        if action.isdigit():
            text = b"<Error><Code>%s</Code></Error>" % (
                b"ConditionalRequestConflict" if action == "409" else b"Injected"
            )
            client.sendall(
                b"HTTP/1.1 %s Injected\r\nContent-Type: application/xml\r\n"
                b"Content-Length: %d\r\n\r\n"
                % (action.encode(), len(text))
                + (b"" if head.startswith(b"HEAD") else text)
            )
            return
        if action == "stall":
            client.settimeout(None)
            incoming.read(1)  # until the sender has had enough
            raise EOFError
        if action == "hold":
            self._hold()
        with self._upstream() as server:
            server.sendall(head + body)
            self._answer(client, server, action, head.startswith(b"HEAD"))
        with self._lock:
            self.done.append((request, action))

    def _answer(
        self, client: socket.socket, server: socket.socket, action: str, bare: bool
    ) -> None:
        answer = server.makefile("rb")
        head = _head(answer)
        while head is not None and head.startswith(b"HTTP/1.1 100"):
            head = _head(answer)
        if head is None:
            raise EOFError
        if re.search(rb"(?i)^transfer-encoding: *chunked", head, re.M):
            content = b"" if bare else _chunks(answer)
        else:
            content = b"" if bare else answer.read(_length(head))
        if action == "lose":
            _reset(client)
        if action == "cut":
            client.sendall(head + content[: len(content) // 2])
            time.sleep(0.05)
            _reset(client)
        client.sendall(head + content)

    def _body(self, incoming: BinaryIO, size: int) -> bytes:
        speed, pieces = self.bytes_per_second, []
        while size:
            piece = incoming.read(size if speed is None else min(size, 1 << 14))
            if not piece:
                raise EOFError
            if speed is not None:
                time.sleep(len(piece) / speed)
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _hold(self) -> None:
        self.held.set()
        self._release.wait(120)

    @contextlib.contextmanager
    def _upstream(self) -> Iterator[socket.socket]:
        with socket.create_connection(self._target, 10) as server, self._kept(server):
            server.settimeout(60)
            yield server

    @contextlib.contextmanager
    def _kept(self, one: socket.socket) -> Iterator[None]:
        with self._lock:
            self._sockets.add(one)
        try:
            yield
        finally:
            with self._lock:
                self._sockets.discard(one)


def _head(stream: BinaryIO) -> bytes | None:
    """The lines before the body; None where the other side has hung up."""
    lines = []
    while (line := stream.readline()) not in (b"\r\n", b""):
        lines.append(line)
    return b"".join(lines) + b"\r\n" if lines else None


def _length(head: bytes) -> int:
    found = re.search(rb"(?im)^content-length: *(\d+)", head)
    return int(found[1]) if found else 0


def _chunks(stream: BinaryIO) -> bytes:
    """A chunked body, as it was sent."""
    content = b""
    while True:
        line = stream.readline()
        size = int(line.split(b";")[0], 16)
        content += line + stream.read(size + 2)
        if size == 0:
            return content


def _reset(client: socket.socket) -> None:
    """End a connection as a machine does that has just lost power and comes back."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    raise EOFError
