"""Running tasks in order of their number: here, in threads or processes, or on a Dask cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from dadagrad.errors import DadagradError

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Crew:
    """Who runs tasks, and how many are under way at once; no executor runs them here."""

    executor: Executor | None = None
    in_flight: int = 1

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Iterator[tuple[Task, Result]]:
        """Each task and its result, in the order of the tasks, whatever order they end in.

        `tasks` is consumed as results are taken, so memory holds at most `in_flight` of both.
        """
        if self.executor is None:
            for task in tasks:
                yield task, function(task)
            return
        waiting: deque[tuple[Task, Future[Result]]] = deque()
        try:
            for task in tasks:
                waiting.append((task, self.executor.submit(function, task)))
                if len(waiting) >= self.in_flight:
                    yield _first(waiting)
            while waiting:
                yield _first(waiting)
        finally:
            for _, future in waiting:
                future.cancel()


def _first(waiting: deque[tuple[Task, Future[Result]]]) -> tuple[Task, Result]:
    task, future = waiting.popleft()
    try:
        return task, future.result()
    except BrokenProcessPool as error:
        raise DadagradError(
            "a worker process ended abruptly: killed, or out of memory; use fewer workers, and "
            'call ingest from a script under `if __name__ == "__main__":`'
        ) from error


@contextmanager
def hire(workers: int, scheduler: Any = None, *, threads: bool = False) -> Iterator[Crew]:
    """A crew of `workers` threads or processes, or of a Dask cluster's workers.

    Parameters
    ----------
    workers
        1 runs tasks in this process.
    scheduler
        Address of a Dask scheduler, or a ``distributed.Client``. Its workers must see the
        same files as this process.
    threads
        Whether the tasks release the GIL: threads then cost less than processes, which take a
        second or two to start and must send their results.
    """
    if scheduler is not None:
        with _dask(scheduler) as crew:
            yield crew
    elif workers == 1:
        yield Crew()
    elif threads:
        thread_pool = ThreadPoolExecutor(workers)
        try:
            yield Crew(thread_pool, 2 * workers)
        finally:
            thread_pool.shutdown(wait=True, cancel_futures=True)
    else:
        import multiprocessing

        # Forking a process that has threads (numba's, zarr's) can deadlock the child.
        pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
        try:
            yield Crew(pool, 2 * workers)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _dask(scheduler: Any) -> Iterator[Crew]:
    import distributed

    Client: Any = distributed.Client  # it has no types
    if isinstance(scheduler, Client):
        yield _dask_crew(scheduler)
        return
    from dadagrad.dask_client import connected

    with connected(scheduler) as client:
        yield _dask_crew(client)


def _dask_crew(client: Any) -> Crew:
    threads = sum(client.nthreads().values())
    return Crew(client.get_executor(pure=False), 2 * max(threads, 1))
