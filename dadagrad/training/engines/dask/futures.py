"""Pending tasks of a run on a cluster until their results arrive, and monitoring of the cluster.

Dask does not handle these cases for its users:

- A task that prefers a worker (``allow_other_workers``) stays without a worker for ever if the
  preferred worker left while there was no other; a task on a worker that pauses stays there. Both
  are submitted again, without preference.
- A result whose transfer was interrupted is not fetched again by itself.
- A run must not wait for ever for a scheduler or for workers that do not come back. Dask tells a
  client only that its connection to the scheduler has ended: without workers, or with a scheduler
  that hangs, a task stays pending for ever.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from distributed import Client, Future, KilledWorker, as_completed
from distributed.scheduler import NoValidWorkerError

from dadagrad.clusters import count, seconds
from dadagrad.errors import DadagradError, TrainingError
from dadagrad.training.messages import Event

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Time between two requests; each takes the scheduler about a millisecond."""

WARN_SECONDS = 5.0
"""Time without a running worker after which the user is told why the run waits."""

ATTEMPTS = 3
"""Requests without an answer after which a scheduler counts as lost. Time alone does not count:
this process, or the whole machine, may have been suspended."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """An answer of the scheduler.

    Attributes
    ----------
    running : dict of str to int
        Addresses of the workers that take tasks, and their threads.
    n_idle : int
        Number of other workers: paused because their memory is full, or about to leave.
    processing : frozenset of str or None
        Keys of the tasks that running workers have. None unless some workers are idle, or have gone
        with tasks.
    """

    running: dict[str, int]
    n_idle: int
    processing: frozenset[str] | None


class ClusterMonitor:
    """Asks the scheduler of `client` for its status again and again, until `stop`.

    `busy_workers` returns the workers that have tasks of the run. `n_retired` workers have left
    because the cluster was to have fewer.
    """

    def __init__(self, client: Any, busy_workers: Callable[[], set[str]]) -> None:
        self._client = client
        self._busy_workers = busy_workers
        self.n_retired = 0
        self._workers: set[str] = set()
        self._n_idle = 0
        self._new_status: ClusterStatus | None = None
        self._unanswered = 0
        self._seconds_without = 0.0
        self._warned = False
        self._stopped = False
        self._max_seconds_without = seconds("no-workers-timeout")
        self._answer_seconds = seconds("connect-timeout")
        self._asking = asyncio.run_coroutine_threadsafe(
            self._ask_repeatedly(), client.loop.asyncio_loop
        )

    def stop(self) -> None:
        """Ask no more."""
        self._stopped = True
        self._asking.cancel()

    def take_status(self) -> ClusterStatus | None:
        """Return the newest status, unless it was taken before."""
        status, self._new_status = self._new_status, None
        return status

    @property
    def is_lost(self) -> bool:
        """True if the scheduler has gone or does not answer."""
        return self._client.status != "running" or self._unanswered >= ATTEMPTS

    def check(self) -> None:
        """Check that waiting for results makes sense.

        Raises `TrainingError` if the scheduler has gone, or has not answered for
        ``dadagrad.connect-timeout``, or there has been no running worker for
        ``dadagrad.no-workers-timeout``.
        """
        if self._client.status != "running":
            raise run_lost("the connection to the scheduler was lost")
        if self.is_lost:
            raise run_lost(f"the scheduler has not answered for {self._answer_seconds:g} seconds")
        if self._seconds_without > self._max_seconds_without:
            raise run_lost(f"{self._no_worker()} for {self._max_seconds_without:g} seconds")
        if self._seconds_without > WARN_SECONDS and not self._warned:
            limit = self._max_seconds_without
            logger.warning("%s; waiting up to %g seconds for some", self._no_worker(), limit)
        self._warned = self._seconds_without > WARN_SECONDS

    def _no_worker(self) -> str:
        if not self._n_idle:
            return "the cluster has had no worker"
        workers = f"all workers of the cluster ({self._n_idle})"
        return f"{workers} have paused, because their memory is full,"

    async def _ask_repeatedly(self) -> None:
        while not self._stopped:  # Dask may turn a cancellation into another error
            begun = time.monotonic()
            try:
                # In this task: nobody would take an error of another task that fails just as this
                # one is cancelled, and asyncio would print its traceback.
                async with asyncio.timeout(self._answer_seconds / ATTEMPTS):
                    status = await self._ask()
            except Exception as error:  # a broken connection raises many kinds of errors
                logger.debug("no answer from the scheduler: %r", error)
                self._unanswered += isinstance(error, TimeoutError)
            else:
                self._unanswered = 0
                self._new_status, self._n_idle = status, status.n_idle
                waited = 0.0 if status.running else self._seconds_without + LOOK_SECONDS
                self._seconds_without = waited
            await asyncio.sleep(max(0.1, begun + LOOK_SECONDS - time.monotonic()))

    async def _ask(self) -> ClusterStatus:
        scheduler = self._client.scheduler
        running = dict(await scheduler.ncores_running())
        workers = set(await scheduler.ncores())
        for gone in self._workers - workers:
            # The connection to a frozen process stays open: a client that waits for a result on it
            # would wait for ever, and not ask for another worker that has the result.
            self._client.rpc.remove(gone)
            for _, event in await scheduler.events(topic=gone):
                if event.get("action") == "retired" or event.get("expected"):
                    self.n_retired += 1
                    break
        self._workers = workers
        n_idle = len(workers - running.keys())
        processing = None
        if running and (n_idle or not self._busy_workers() <= running.keys()):
            keys = await scheduler.processing(workers=None)
            processing = frozenset(key for worker in running for key in keys.get(worker, ()))
        return ClusterStatus(running, n_idle, processing)


def run_lost(reason: str) -> TrainingError:
    """Return the error of a run that has lost its cluster."""
    return TrainingError(
        f"{reason}; when the cluster is back, go on from the last checkpoint with `dadagrad resume`"
    )


ToEvents: TypeAlias = Callable[[Any], list[Event]]

WAIT_SECONDS = 0.01
"""Time to wait for a result before the state of the cluster is checked."""

FETCH_SECONDS = 10.0
"""Time after which a finished result that has not arrived is fetched again."""

STUCK_ANSWERS = 2
"""Answers of the scheduler that show a task on no running worker before it is submitted again."""


@dataclass(slots=True)
class _Task:
    future: Future[Any]
    to_events: ToEvents
    worker: str | None
    submit_again: Callable[[], None]
    finished: float | None = None
    times_stuck: int = 0


class PendingTasks:
    """Tasks of `run` whose results have not arrived."""

    def __init__(self, client: Client, run: str) -> None:
        self._client = client
        self._run = run
        self._retries = count("retries", 0)
        self._count = 0
        self._tasks: dict[str, _Task] = {}
        self._completed = as_completed(with_results=True, raise_errors=False, loop=client.loop)
        self.monitor = ClusterMonitor(client, self._busy_workers)

    def _busy_workers(self) -> set[str]:
        return {task.worker for task in list(self._tasks.values()) if task.worker is not None}

    def stop(self) -> None:
        """Drop all tasks, for good."""
        self.monitor.stop()
        self._tasks.clear()
        self._completed.clear()

    def drop(self) -> None:
        """Drop all tasks: their results never arrive."""
        self._client.cancel([task.future for task in self._tasks.values()])
        self._tasks.clear()

    def changed_workers(self) -> dict[str, int] | None:
        """Return the running workers and their threads, if the scheduler has answered since."""
        status = self.monitor.take_status()
        if status is None:
            return None
        if status.processing is not None:
            self._submit_stuck_again(status.processing)
        return status.running

    def submit(
        self,
        to_events: ToEvents,
        worker: str | None,
        function: Callable[..., Any],
        *arguments: Any,
        priority: int = 0,
    ) -> None:
        """Submit a call of `function`, preferably to `worker`; `to_events` converts the result."""
        self._count += 1
        key = f"dadagrad-{function.__name__}-{self._run}-{self._count}"
        future = self._client.submit(
            function,
            *arguments,
            key=key,
            pure=False,
            retries=self._retries,
            priority=priority,
            workers=None if worker is None else [worker],
            allow_other_workers=worker is not None,
        )

        def submit_again() -> None:
            self.submit(to_events, None, function, *arguments, priority=priority)

        self._tasks[key] = _Task(future, to_events, worker, submit_again)
        self._completed.add(future)

    def next_result(self) -> tuple[Future[Any], ToEvents, Any] | None:
        """Return a future, its converter and its result; None if none arrives in a short time.

        Raises the error of a task, and `TrainingError` if the cluster cannot run it or is lost.
        """
        try:
            future, result = self._completed.queue.get(timeout=WAIT_SECONDS)
        except queue.Empty:
            self.monitor.check()
            self._fetch_again()
            return None
        task = self._tasks.pop(future.key, None)
        if task is None:  # submitted again, or fetched twice
            return None
        if isinstance(result, tuple):  # the type, value and traceback of an exception
            raise _task_error(result[1])
        if isinstance(result, DadagradError):
            raise result
        if isinstance(result, BaseException):
            self.monitor.check()
            raise run_lost("the scheduler was restarted, or gave up a task for another reason")
        return future, task.to_events, result

    def _submit_stuck_again(self, processing: frozenset[str]) -> None:
        """Submit tasks again that no running worker has."""
        for key, task in list(self._tasks.items()):
            # A result may also be lost before it has been fetched.
            if key not in processing and task.future.status in ("pending", "lost"):
                task.times_stuck += 1
                if task.times_stuck >= STUCK_ANSWERS:
                    del self._tasks[key]
                    self._client.cancel([task.future])
                    task.submit_again()

    def _fetch_again(self) -> None:
        """Fetch finished results again that do not arrive."""
        now = time.monotonic()
        for task in self._tasks.values():
            if task.future.status != "finished":
                task.finished = None
            elif task.finished is None:
                task.finished = now
            elif now - task.finished > FETCH_SECONDS:
                task.finished = now
                self._completed.add(task.future)


def _task_error(error: BaseException) -> BaseException:
    """Return the error to raise for a task that ended with `error`."""
    if isinstance(error, KilledWorker):
        translated = TrainingError(
            f"the workers of the cluster keep dying at the same task ({error}); they probably run "
            "out of memory: give them more, or make smaller partitions"
        )
    elif isinstance(error, NoValidWorkerError):
        translated = run_lost(f"the scheduler gave up waiting for workers ({error})")
    else:
        return error
    translated.__cause__ = error
    return translated
