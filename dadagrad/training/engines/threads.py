"""Execution of a coordinator's instructions by threads of this process.

Kernels and decompression release the interpreter lock, so that with two threads the next partition
is read while the model learns from this one.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from dadagrad.data.buffers import POOL
from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows
from dadagrad.kernels.parallel import threaded
from dadagrad.storage.memory import check_addresses
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines import Engine
from dadagrad.training.engines.trace import Trace
from dadagrad.training.engines.watcher import Watcher
from dadagrad.training.messages import (
    Close,
    Compute,
    Computed,
    Event,
    Finish,
    Merge,
    Merged,
    Open,
    Opened,
    Report,
    Save,
)
from dadagrad.training.worker.compute import compute
from dadagrad.training.worker.partition_reader import Loader


class LocalEngine(Engine):
    """Engine of `threads` threads that compute; with several, as many others read meanwhile."""

    def __init__(self, data: Dataset, threads: int) -> None:
        self._data = data
        self.threads = threads
        self.trace = Trace()
        self._events: queue.SimpleQueue[Event | BaseException] = queue.SimpleQueue()
        self.loader: Loader = Loader(data)
        self._rows: dict[int, Rows] = {}

    def run(self, coordinator: Coordinator, watcher: Watcher) -> bool:
        """See `Engine.run`; raises the errors of reading, computing and saving."""
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="dadagrad")
        # What is read for later must not hold up what is computed now.
        reader = pool
        if self.threads > 1:
            reader = ThreadPoolExecutor(self.threads, thread_name_prefix="dadagrad-reader")
        try:
            watcher.begin()
            instructions = coordinator.go_on()
            while True:
                with self.trace.measured("coordinate"):
                    for instruction in instructions:
                        match instruction:
                            case Open(reading, partition):
                                self._submit(reader, self._open, reading, partition, coordinator)
                            case Compute():
                                self._submit(pool, self._compute, instruction, coordinator, pool)
                            case Merge(merge):
                                self._submit(pool, self._merge, merge)
                            case Close(reading):
                                del self._rows[reading]
                            case Finish(complete):
                                return complete
                            case Report() | Save():
                                watcher.handle(instruction)
                    instructions = coordinator.go_on()
                if not instructions:
                    event = watcher.request() or self._events.get()
                    if isinstance(event, BaseException):
                        raise event
                    instructions = coordinator.handle(event)
        finally:
            reader.shutdown(wait=True, cancel_futures=True)
            pool.shutdown(wait=True, cancel_futures=True)
            self._rows.clear()
            self.loader.clear()
            POOL.release()

    def _submit(
        self, pool: ThreadPoolExecutor, work: Callable[..., Event], *arguments: object
    ) -> None:
        check_addresses(self._data.url)

        def deliver(future: Future[Event]) -> None:
            if not future.cancelled():
                self._events.put(future.exception() or future.result())

        pool.submit(work, *arguments).add_done_callback(deliver)

    def _open(self, reading: int, partition: int, coordinator: Coordinator) -> Event:
        with self.trace.measured("read", reading=reading, partition=partition):
            rows = self.loader.load(partition)
            self._rows[reading] = coordinator.problem.units.center_columns(rows)
        return Opened(reading)

    def _compute(
        self, instruction: Compute, coordinator: Coordinator, pool: ThreadPoolExecutor
    ) -> Event:
        (slice_,) = instruction.slices
        rows = self._rows[slice_.reading]
        place = self._data.place_of(slice_.partition)
        spread = threaded(pool, self.threads)
        details = {"task": instruction.task, "reading": slice_.reading, "rows": slice_.n_rows}
        with self.trace.measured("learn", **details):
            result = compute(coordinator.problem, rows, slice_, instruction.input, place, spread)
        return Computed(instruction.task, (result,))

    def _merge(self, merge: Callable[[], None]) -> Event:
        with self.trace.measured("merge"):
            merge()
        return Merged()
