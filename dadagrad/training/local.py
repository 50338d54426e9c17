"""The local engine: threads of this process carry out the coordinator's instructions.

Kernels and decompression release the interpreter lock, so with two threads the next partition is
read while this one is learned from.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from dadagrad.data.arena import Arena
from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows
from dadagrad.training.begin import AnyCoordinator
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
        self._rows: dict[int, tuple[int, Rows]] = {}
        self._handed_over: dict[int, Rows] = {}
        # The memory of each visit, from Open to Close; between them the next one takes it.
        self._arenas: dict[int, Arena] = {}
        self._free_arenas: list[Arena] = []
        self._scratch: list[Arena] = []

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
                for held in (self._rows, self._arenas, self._free_arenas, self._scratch):
                    held.clear()

    def hand_over(self, partition: int, rows: Rows) -> None:
        """Rows of a partition that was read before the run; they are used once."""
        self._handed_over[partition] = rows

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
            case Open(visit, partition, _):
                arena = self._free_arenas.pop() if self._free_arenas else Arena()
                self._arenas[visit] = arena
                self._submit(reader, lambda: self._open(visit, partition, arena))
            case Compute(task, piece, given, _):
                partition, rows = self._rows[piece.visit]
                where = f"{self._data.url}, partition {self._data.partitions[partition].name}"
                method, spread = coordinator.method, over(pool, self._threads)
                if coordinator.delay and isinstance(given, WeightsInState):
                    # The state moves on before the pool gets to it.
                    given = given.at(touched(rows, piece))
                self._submit(
                    pool,
                    lambda: Computed(task, compute(method, rows, piece, given, where, spread)),
                )
            case Close(visit):
                del self._rows[visit]
                self._free_arenas.append(self._arenas.pop(visit))
            case Report() | Save():
                watcher.handle(instruction)

    def _submit(self, pool: ThreadPoolExecutor, work: Callable[[], Event]) -> None:
        def deliver(future: Future[Event]) -> None:
            if not future.cancelled():
                error = future.exception()
                self._events.put(future.result() if error is None else error)

        pool.submit(work).add_done_callback(deliver)

    def _open(self, visit: int, partition: int, arena: Arena) -> Event:
        rows = self._handed_over.pop(partition, None)
        if rows is None:
            try:
                scratch = self._scratch.pop()
            except IndexError:  # other threads are reading with all there is
                scratch = Arena()
            rows = self._data.read_into(partition, arena, scratch)
            self._scratch.append(scratch)
        self._rows[visit] = (partition, rows)
        return Opened(visit, rows.vocabulary)


def _readers(url: str, threads: int) -> int:
    """Threads that read: from afar they mostly wait, from here they are busy decompressing."""
    far = "://" in url and not url.startswith(("file://", "memory://"))
    return threads if far else threads - 1
