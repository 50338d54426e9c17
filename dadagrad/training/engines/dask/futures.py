"""Pending tasks of a run on a cluster, from submission to the arrival of their results.

Dask does not handle these cases for its users:

- A task that prefers a worker (``allow_other_workers``) stays without a worker for ever if the
  preferred worker left while there was no other; a task on a worker that pauses stays there. Both
  are submitted again, without preference.
- A result whose transfer was interrupted is not fetched again by itself.
- A run must not wait for ever for a scheduler or for workers that do not come back.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from distributed import Client, Future, KilledWorker, as_completed
from distributed.scheduler import NoValidWorkerError

from dadagrad.clusters import count
from dadagrad.clusters.monitor import ClusterMonitor
from dadagrad.errors import DadagradError, TrainingError
from dadagrad.training.messages import Event

ToEvents: TypeAlias = Callable[[Any], list[Event]]

WAIT_SECONDS = 0.01
"""Time to wait for a result before the state of the cluster is checked."""

FETCH_SECONDS = 10.0
"""Time after which a finished result that has not arrived is fetched again."""

STUCK_ANSWERS = 2
"""Answers of the scheduler that show a task on no running worker before it is submitted again."""

MAX_PAUSED = 5
"""Times that a task may be submitted again while workers pause. Dask counts the workers that die at
a task, but not under its next key."""


class RoundLost(DadagradError):
    """The round must begin again: a worker has left, or does not have what it should."""


@dataclass(slots=True)
class _Task:
    future: Future[Any]
    to_events: ToEvents
    worker: str | None
    submit_again: Callable[..., None]
    n_paused: int
    finished: float | None = None
    times_stuck: int = 0


class PendingTasks:
    """Tasks of `run` whose results have not arrived; they share a `job`.

    A worker that does not know the job returns None, and gets the task again with the job.
    `threads` are the addresses of the running workers of `client`, and their threads.
    """

    def __init__(self, client: Client, run: str, job: object) -> None:
        self.client = client
        self.run = run
        self.threads: dict[str, int] = client.nthreads()
        # The result of a task is sent to workers once, and made again if its worker is lost.
        self._job = client.submit(identity, job, key=f"dadagrad-job-{run}", pure=False)
        self._retries = count("retries", 0)
        self._count = 0
        self._tasks: dict[str, _Task] = {}
        self._completed = as_completed(with_results=True, raise_errors=False, loop=client.loop)
        self.monitor = ClusterMonitor(client, run_lost, self._busy_workers)

    def _busy_workers(self) -> set[str]:
        return {task.worker for task in list(self._tasks.values()) if task.worker is not None}

    def stop(self) -> None:
        """Drop all tasks, for good."""
        self.monitor.stop()
        self._tasks.clear()
        self._completed.clear()
        self._job.release()

    def drop(self) -> None:
        """Drop all tasks: their results never arrive."""
        self.client.cancel([task.future for task in self._tasks.values()])
        self._tasks.clear()

    def look_for_workers(self) -> None:
        """Take note of the workers that the scheduler has, if it has answered since."""
        status = self.monitor.take_status()
        if status is not None:
            self.threads = status.running
            if status.processing is not None:
                self._submit_stuck_again(status.processing, status.n_idle > 0)

    def submit(
        self,
        to_events: ToEvents,
        function: Callable[..., Any],
        work: object,
        worker: str | None,
        *,
        with_job: bool = False,
        priority: int = 0,
        n_paused: int = 0,
    ) -> None:
        """Submit a call of `function`, preferably to `worker`; `to_events` converts the result.

        `n_paused` counts the submissions before that were stuck while workers paused.
        """
        self._count += 1
        key = f"dadagrad-{function.__name__}-{self.run}-{self._count}"
        future = self.client.submit(
            function,
            *((work, self._job) if with_job else (work,)),
            key=key,
            pure=False,
            retries=self._retries,
            priority=priority,
            workers=None if worker is None else [worker],
            allow_other_workers=worker is not None,
        )
        again = partial(self.submit, to_events, function, work, with_job=True, priority=priority)
        self._tasks[key] = _Task(future, to_events, worker, again, n_paused)
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
        if result is None:
            task.submit_again(task.worker, n_paused=task.n_paused)
            return None
        return future, task.to_events, result

    def _submit_stuck_again(self, processing: frozenset[str], some_pause: bool) -> None:
        """Submit tasks again that no running worker has."""
        for key, task in list(self._tasks.items()):
            # A result may also be lost before it has been fetched.
            if key not in processing and task.future.status in ("pending", "lost"):
                task.times_stuck += 1
                if task.times_stuck >= STUCK_ANSWERS:
                    del self._tasks[key]
                    self.client.cancel([task.future])
                    n_paused = task.n_paused + some_pause
                    if n_paused > MAX_PAUSED:
                        details = f"{key}, submitted again {MAX_PAUSED} times"
                        raise _out_of_memory("pausing", details)
                    task.submit_again(None, n_paused=n_paused)

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


def identity(job: object) -> object:
    """Return the job, as the result of a task: workers get it from each other, and only once."""
    return job


def run_lost(reason: str) -> TrainingError:
    """Return the error of a run that has lost its cluster."""
    return TrainingError(
        f"{reason}; when the cluster is back, go on from the last checkpoint with `dadagrad "
        "resume`, if the run has some, or start again"
    )


def _task_error(error: BaseException) -> BaseException:
    """Return the error to raise for a task that ended with `error`."""
    if isinstance(error, KilledWorker):
        translated = _out_of_memory("dying", str(error))
    elif isinstance(error, NoValidWorkerError):
        translated = run_lost(f"the scheduler gave up waiting for workers ({error})")
    else:
        return error
    translated.__cause__ = error
    return translated


def _out_of_memory(verb: str, details: str) -> TrainingError:
    return TrainingError(
        f"the workers of the cluster keep {verb} at the same task ({details}); they probably run "
        "out of memory: give them more, or make smaller partitions"
    )
