"""Execution of a coordinator's instructions by threads of this process.

Kernels and decompression release the interpreter lock, so that with two threads the next partition
is read while the model learns from this one.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from dadagrad.data.dataset import Dataset
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines.watcher import Watcher
from dadagrad.training.memory.available import WorkerMemory
from dadagrad.training.messages import (
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
)
from dadagrad.training.worker.compute import compute
from dadagrad.training.worker.parallel import threaded
from dadagrad.training.worker.partition_reader import Loaded, Loader


class LocalEngine:
    """Engine that runs a coordinator to its end on threads.

    Parameters
    ----------
    data : Dataset
    threads : int
        Number of threads that compute. Others read meanwhile, except with 1 thread.
    """

    bytes_moved: int | None = None

    def __init__(self, data: Dataset, threads: int) -> None:
        self._data = data
        self._threads = threads
        self._events: queue.SimpleQueue[Event | BaseException] = queue.SimpleQueue()
        self.loader = Loader(data)
        self._loaded: dict[int, Loaded] = {}

    def run(self, coordinator: Coordinator, watcher: Watcher) -> bool:
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

    def workers(self) -> list[WorkerMemory]:
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
        coordinator: Coordinator,
        pool: ThreadPoolExecutor,
        reader: ThreadPoolExecutor,
        watcher: Watcher,
    ) -> None:
        match instruction:
            case Open(reading, partition):
                self._submit(reader, lambda: self._open(reading, partition))
            case Compute(task, slice_, given, _):
                loaded = self._loaded[slice_.reading]
                name, rows = self._data.partitions[loaded.partition].name, loaded.rows
                place = f"{self._data.url}, partition {name}"
                problem, spread = coordinator.problem, threaded(pool, self._threads)
                self._submit(
                    pool,
                    lambda: Computed(task, compute(problem, rows, slice_, given, place, spread)),
                )
            case Close(reading):
                self.loader.release(self._loaded.pop(reading))
            case Report() | Save():
                watcher.handle(instruction)

    def _submit(self, pool: ThreadPoolExecutor, work: Callable[[], Event]) -> None:
        def deliver(future: Future[Event]) -> None:
            if not future.cancelled():
                error = future.exception()
                self._events.put(future.result() if error is None else error)

        pool.submit(work).add_done_callback(deliver)

    def _open(self, reading: int, partition: int) -> Event:
        loaded = self._loaded[reading] = self.loader.load(partition)
        return Opened(reading, loaded.rows.vocabulary)


def _readers(url: str, threads: int) -> int:
    """Threads that read: from afar they mostly wait, from here they are busy decompressing."""
    far = "://" in url and not url.startswith(("file://", "memory://"))
    return threads if far else threads - 1
