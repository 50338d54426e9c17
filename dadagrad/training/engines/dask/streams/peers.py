"""Requests from one worker of a Dask cluster to another, without the scheduler."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from itertools import starmap
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from distributed import Worker
from distributed.protocol.pickle import dumps, loads
from distributed.protocol.serialize import Serialize, to_serialize
from numpy.typing import NDArray

from dadagrad.clusters import seconds
from dadagrad.training.engines.dask.futures import RoundLost

Operation: TypeAlias = Callable[..., Any]
"""Method of the `Peer` that is asked, called on a thread; its result is the answer."""

MAX_THREADS = 64
"""Threads for the requests to one worker."""


class Version(NamedTuple):
    """Begin of a round, under the holders of an epoch."""

    epoch: int
    round: int


class Peer:
    """A `worker` in one `run`, which sends requests to the others and answers theirs."""

    def __init__(self, worker: Worker, run: str) -> None:
        self._worker = worker
        self._run = run
        self._waiting: set[Future[list[Any]]] = set()
        self._epoch = 0.0
        self._bytes_lock = threading.Lock()
        self._n_bytes = 0
        # Some requests wait for other workers. The threads of asyncio, six on two cores, are those
        # of all workers of a process: these would wait for each other with no thread to answer.
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="dadagrad-peers")

    @property
    def address(self) -> str:
        """Address of this worker."""
        return str(self._worker.address)

    def ask(
        self, version: Version, operation: Operation, arguments: Mapping[str, Any]
    ) -> list[Any]:
        """Call an operation on workers at the same time, with an argument for each; the answers.

        Raises `RoundLost` if a worker does not answer within ``dadagrad.worker-ttl``, or cannot, or
        `cancel` is called meanwhile, or was before for a later epoch.
        """
        if not arguments:
            return []

        async def gather() -> list[Any]:
            async with asyncio.timeout(seconds("worker-ttl")):
                ask = partial(self._ask, operation, version)
                return await asyncio.gather(*starmap(ask, arguments.items()))

        loop = self._worker.loop.asyncio_loop  # type: ignore[attr-defined]
        waiting = asyncio.run_coroutine_threadsafe(gather(), loop)
        self._waiting.add(waiting)
        if version.epoch < self._epoch:  # a task that began before `cancel` asks after it
            waiting.cancel()
        try:
            answers = waiting.result()
        # A worker that is about to leave has closed its connections: a RuntimeError.
        except (OSError, TimeoutError, CancelledError, RuntimeError) as error:
            raise RoundLost(f"a worker does not answer ({error!r})") from error
        finally:
            self._waiting.discard(waiting)
        for answer in answers:
            if isinstance(answer, RoundLost):
                raise answer
        return answers

    def cancel(self, epoch: float) -> None:
        """End all waiting for answers of earlier epochs: some workers may have gone."""
        self._epoch = epoch
        for answers in list(self._waiting):
            answers.cancel()

    def take_bytes(self) -> int:
        """Return the size of all requests to other workers, and answers, since the last call."""
        with self._bytes_lock:
            n_bytes, self._n_bytes = self._n_bytes, 0
        return n_bytes

    def close(self) -> None:
        """End all waiting for answers."""
        self.cancel(math.inf)
        self._threads.shutdown(wait=False)

    async def answer(self, operation: Operation, *arguments: Any) -> Any:
        """Answer a request; a `RoundLost` is an answer, too."""
        if self._epoch == math.inf:  # closed; a task of the run may not have ended yet
            return RoundLost(f"the run has ended on worker {self.address}")
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, partial(operation, self, *arguments))
        except RoundLost as lost:
            return lost

    async def _ask(self, operation: Operation, version: Version, worker: str, argument: Any) -> Any:
        if worker == self.address:
            return await self.answer(operation, version, argument)
        sent = packed((operation, (version, argument)))
        received = await self._worker.rpc(worker).dadagrad(run=self._run, request=sent)
        with self._bytes_lock:
            self._n_bytes += len(_array_of(sent)) + len(_array_of(received))
        return unpacked(received)


def packed(message: Any) -> Serialize:
    """Return a message as one array: Dask takes 50 microseconds for each array of a message."""
    return to_serialize(np.frombuffer(dumps(message), np.uint8))


def unpacked(content: Any) -> Any:
    """Return the message that `packed` was given; its arrays are aligned and writable."""
    return loads(_array_of(content))


def _array_of(content: Any) -> NDArray[np.uint8]:
    """Return the array of a message, which workers of one process do not serialize."""
    array: NDArray[np.uint8] = content.data if isinstance(content, Serialize) else content
    return array
