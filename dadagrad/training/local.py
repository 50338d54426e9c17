"""The local engine: threads of this process carry out the coordinator's instructions.

Kernels and decompression release the interpreter lock, so with two threads the next partition is
read while this one is learned from.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from dadagrad.data.dataset import Dataset
from dadagrad.training.begin import AnyCoordinator
from dadagrad.training.loader import Loaded, Loader
from dadagrad.training.protocol import (
    Close,
    Compute,
    Computed,
    Event,
    Finish,
    Instruction,
    Open,
    Opened,
    Report,
    Save,
    WeightsInState,
)
from dadagrad.training.room import WorkerRoom
from dadagrad.training.spread import over
from dadagrad.training.watch import Watcher
from dadagrad.training.worker import compute, touched


class LocalEngine:
    """Runs a coordinator to its end on `threads` threads.

    Parameters
    ----------
    data : Dataset
    threads : int
        Threads that compute; others read meanwhile. 1 does both in turn.
    """

    bytes_moved: int | None = None

    def __init__(self, data: Dataset, threads: int) -> None:
        self._data = data
        self._threads = threads
        self._events: queue.SimpleQueue[Event | BaseException] = queue.SimpleQueue()
        self.loader = Loader(data)
        self._loaded: dict[int, Loaded] = {}

    def run(self, coordinator: AnyCoordinator, watcher: Watcher) -> bool:
        """Drive `coordinator` until it finishes; True if the run is complete.

        An interrupt (Ctrl-C) ends the run after the present round, with a checkpoint; a second one
        at once. Errors of reading, computing and saving are raised here.
        """
        with ThreadPoolExecutor(self._threads, thread_name_prefix="dadagrad") as pool:
            # What is read for later must not hold up what is computed now.
            reader = pool
            if self._threads > 1:
                n_readers = _readers(self._data.url, self._threads)
                reader = ThreadPoolExecutor(n_readers, thread_name_prefix="dadagrad-reader")
            try:
                watcher.begin()
                instructions = coordinator.start()
                while True:
                    for instruction in instructions:
                        if isinstance(instruction, Finish):
                            return instruction.complete
                        self._carry_out(instruction, coordinator, pool, reader, watcher)
                    instructions = coordinator.go_on()
                    if not instructions:
                        instructions = coordinator.handle(self._next_event(watcher))
            finally:
                reader.shutdown(wait=True, cancel_futures=True)
                pool.shutdown(wait=True, cancel_futures=True)
                self._loaded.clear()
                self.loader.clear()

    def workers(self) -> list[WorkerRoom]:
        """None."""
        return []

    def _next_event(self, watcher: Watcher) -> Event:
        request = watcher.request()
        if request is not None:
            return request
        event = self._events.get()
        if isinstance(event, BaseException):
            raise event
        return event

    def _carry_out(
        self,
        instruction: Instruction,
        coordinator: AnyCoordinator,
        pool: ThreadPoolExecutor,
        reader: ThreadPoolExecutor,
        watcher: Watcher,
    ) -> None:
        match instruction:
            case Open(visit, partition):
                self._submit(reader, lambda: self._open(visit, partition))
            case Compute(task, piece, given, _):
                loaded = self._loaded[piece.visit]
                name, rows = self._data.partitions[loaded.partition].name, loaded.rows
                where = f"{self._data.url}, partition {name}"
                method, spread = coordinator.method, over(pool, self._threads)
                if coordinator.delay and isinstance(given, WeightsInState):
                    # The state moves on before the pool gets to it.
                    given = given.at(touched(rows, piece))
                self._submit(
                    pool,
                    lambda: Computed(task, compute(method, rows, piece, given, where, spread)),
                )
            case Close(visit):
                self.loader.release(self._loaded.pop(visit))
            case Report() | Save():
                watcher.handle(instruction)

    def _submit(self, pool: ThreadPoolExecutor, work: Callable[[], Event]) -> None:
        def deliver(future: Future[Event]) -> None:
            if not future.cancelled():
                error = future.exception()
                self._events.put(future.result() if error is None else error)

        pool.submit(work).add_done_callback(deliver)

    def _open(self, visit: int, partition: int) -> Event:
        loaded = self._loaded[visit] = self.loader.load(partition)
        return Opened(visit, loaded.rows.vocabulary)


def _readers(url: str, threads: int) -> int:
    """Threads that read: from afar they mostly wait, from here they are busy decompressing."""
    far = "://" in url and not url.startswith(("file://", "memory://"))
    return threads if far else threads - 1
