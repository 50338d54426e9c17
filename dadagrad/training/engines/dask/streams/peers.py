"""Requests from one worker of a Dask cluster to another, without the scheduler."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from itertools import accumulate, chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from distributed import Worker
from distributed.protocol.serialize import (
    Serialize,
    pickle_dumps,
    pickle_loads,
    to_serialize,
)
from numpy.typing import NDArray

from dadagrad.clusters import seconds

Operation: TypeAlias = Callable[..., Any]
"""Called on a thread with a `Version` and named arguments; its result is the answer."""

Message: TypeAlias = dict[Any, Any]
"""Arguments of a request, or its answer."""

ALIGNMENT = 16
"""Bytes of which the address of each array in a message is a multiple."""

MAX_THREADS = 64
"""Threads for the requests to one worker."""


class Version(NamedTuple):
    """Begin of a round, under the holders of an epoch."""

    epoch: int
    round: int


class Request(NamedTuple):
    """A call of an `operation` on another `worker`, or on this one."""

    worker: str
    operation: str
    arguments: Message


class PeerLost(Exception):
    """Another worker does not answer, or does not have what it should."""


class Peers:
    """The workers of a run, as one of them sees them.

    Parameters
    ----------
    worker : Worker
        This worker.
    run : str
    operations : mapping of str to Operation
        What others may ask of this worker. An operation raises `PeerLost` for what it cannot do.
    """

    def __init__(
        self,
        worker: Worker,
        run: str,
        operations: Mapping[str, Operation],
    ) -> None:
        self._worker = worker
        self._run = run
        self._operations = operations
        self._waiting: set[Future[list[Any]]] = set()
        self._epoch = 0.0
        self._lock = threading.Lock()
        self._n_bytes = 0
        # Some requests wait for other workers. The threads of asyncio, six on two cores, are those
        # of all workers of a process: these would wait for each other with no thread to answer.
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="dadagrad-peers")
        _peers[self.address, run] = self
        worker.handlers["dadagrad"] = _handler_of(worker)

    @property
    def address(self) -> str:
        """Address of this worker."""
        return str(self._worker.address)

    def ask(self, version: Version, requests: Iterable[Request]) -> list[Any]:
        """Send requests at the same time, and return their answers.

        Raises `PeerLost` if a worker does not answer within ``dadagrad.worker-ttl``, or cannot, or
        `cancel` is called meanwhile, or was before for a later epoch.
        """
        pending = list(requests)
        if not pending:
            return []

        async def gather() -> list[Any]:
            async with asyncio.timeout(seconds("worker-ttl")):
                return await asyncio.gather(*(self._ask(version, each) for each in pending))

        loop = self._worker.loop.asyncio_loop  # type: ignore[attr-defined]
        waiting = asyncio.run_coroutine_threadsafe(gather(), loop)
        self._waiting.add(waiting)
        if version.epoch < self._epoch:  # a task that began before `cancel` asks after it
            waiting.cancel()
        try:
            answers = waiting.result()
        # A worker that is about to leave has closed its connections: a RuntimeError.
        except (OSError, TimeoutError, CancelledError, RuntimeError) as error:
            raise PeerLost(f"a worker does not answer ({error!r})") from error
        finally:
            self._waiting.discard(waiting)
        for request, answer in zip(pending, answers, strict=True):
            if answer is None:
                raise PeerLost(f"worker {request.worker} does not have what it should")
        return answers

    def cancel(self, epoch: float) -> None:
        """End all waiting for answers of earlier epochs: some workers may have gone."""
        self._epoch = epoch
        for answers in list(self._waiting):
            answers.cancel()

    def take_bytes(self) -> int:
        """The size of the arrays of all requests to other workers since the last call."""
        with self._lock:
            n_bytes, self._n_bytes = self._n_bytes, 0
        return n_bytes

    def close(self) -> None:
        """Answer no more, and end all waiting for answers."""
        _peers.pop((self.address, self._run), None)
        self.cancel(math.inf)
        self._threads.shutdown(wait=False)

    async def on_thread(self, function: Operation, *arguments: Any, **named: Any) -> Any:
        """Call a function on a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *arguments, **named))

    async def answer(self, operation: str, version: Version, arguments: Message) -> Any:
        """Answer a request; None if this worker cannot."""
        try:
            return await self.on_thread(self._operations[operation], version, **arguments)
        except PeerLost:
            return None

    async def _ask(self, version: Version, request: Request) -> Any:
        worker, operation, arguments = request
        if worker == self.address:
            return await self.answer(operation, version, arguments)
        form, content = packed(arguments)
        reply = await self._worker.rpc(worker).dadagrad(
            run=self._run,
            operation=operation,
            version=tuple(version),
            form=form,
            content=to_serialize(content),
        )
        if reply is None:
            return None
        form, received = reply[0], _unwrapped(reply[1])
        with self._lock:
            self._n_bytes += content.nbytes + received.nbytes
        return unpacked(form, received)


_peers: dict[tuple[str, str], Peers] = {}
"""By the address of a worker of this process, and the run."""


def _handler_of(worker: Worker) -> Operation:
    async def handle(
        run: str, operation: str, version: tuple[int, int], form: Message, content: Any
    ) -> Any:
        peers = _peers.get((worker.address, run))
        if peers is None:
            return None
        arguments = unpacked(form, _unwrapped(content))
        answer = await peers.answer(operation, Version(*version), arguments)
        if answer is None:
            return None
        form, content = packed(answer)
        return form, to_serialize(content)

    return handle


def _unwrapped(content: Any) -> NDArray[np.uint8]:
    """The array of a message, which workers of one process do not serialize."""
    bare: NDArray[np.uint8] = content.data if isinstance(content, Serialize) else content
    return bare


def packed(message: Message) -> tuple[Message, NDArray[np.uint8]]:
    """The form of a message, and all its arrays as one: Dask takes 50 microseconds for each."""
    form, frames = pickle_dumps(message)
    form["sizes"] = sizes = [memoryview(frame).nbytes for frame in frames]
    paddings = (bytes(-size % ALIGNMENT) for size in sizes)
    padded = chain.from_iterable(zip(frames, paddings, strict=True))
    return form, np.frombuffer(bytearray().join(padded), np.uint8)


def unpacked(form: Message, content: NDArray[np.uint8]) -> Message:
    """The message that `packed` was given."""
    if content.ctypes.data % ALIGNMENT or not content.flags.writeable:
        content = content.copy()
    sizes = form["sizes"]
    starts = accumulate((size + -size % ALIGNMENT for size in sizes), initial=0)
    frames: list[Any] = [
        content[start : start + size].data for start, size in zip(starts, sizes, strict=False)
    ]
    message: Message = pickle_loads(form, frames)
    return message
