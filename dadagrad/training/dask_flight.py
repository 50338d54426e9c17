"""Tasks that are under way on a cluster, from submitting them to taking their results.

What Dask leaves to its users, and is done here:

- a task that asks for a worker as a preference (``allow_other_workers``) stays without a worker
  for ever if its worker has gone while there was no other, and one that waits on a worker which has
  paused stays there: both are asked of anybody, anew;
- a result whose way from the scheduler was cut off is not asked for again: it is;
- a run must not wait for ever for a scheduler or workers that will not come back.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from dadagrad.dask_config import count
from dadagrad.errors import DadagradError, TrainingError
from dadagrad.training.dask_watch import ClusterWatch, lost
from dadagrad.training.protocol import Event

AsEvents: TypeAlias = Callable[[Any], list[Event]]

WAIT_SECONDS = 0.01
"""For a result, before it is seen to whether there is anything to wait for."""

FETCH_SECONDS = 10.0
"""For a result that is there, before it is asked for again."""

STUCK_LOOKS = 2
"""Looks at the cluster that find a task with no worker that runs, before it is submitted again."""


@dataclass(slots=True)
class _Task:
    """A task whose result has not arrived."""

    future: Any
    as_events: AsEvents
    worker: str | None
    submit_again: Callable[[], None]
    finished: float | None = None
    looks: int = 0


class InFlight:
    """The tasks of a run that are under way.

    Parameters
    ----------
    client : distributed.Client
    run : str
        Is part of the tasks' keys.
    """

    def __init__(self, client: Any, run: str) -> None:
        from distributed import as_completed

        self._client = client
        self._run = run
        self._retries = count("retries", 0)
        self._count = 0
        self._tasks: dict[str, _Task] = {}
        self._completed = as_completed(with_results=True, raise_errors=False, loop=client.loop)
        self._watch = ClusterWatch(client, self._asked)
        self._looks_seen = 0

    @property
    def is_lost(self) -> bool:
        """Whether the scheduler has gone, or answers no more."""
        return self._watch.is_lost

    def _asked(self) -> set[str]:
        return {task.worker for task in list(self._tasks.values()) if task.worker is not None}

    def stop(self) -> None:
        """Nothing more is wanted."""
        self._watch.stop()
        self._tasks.clear()
        self._completed.clear()

    def new_look(self) -> dict[str, int] | None:
        """The workers and their threads, as a look found them; None without a new look."""
        look = self._watch.look
        if look is None or self._watch.number == self._looks_seen:
            return None
        self._looks_seen = self._watch.number
        if look.processing is not None:
            self._submit_stuck_again(look.processing)
        return dict(look.running)

    def submit(
        self,
        as_events: AsEvents,
        worker: str | None,
        function: Callable[..., Any],
        *arguments: Any,
        priority: int = 0,
    ) -> None:
        """Have `function` called on `worker`, or on another; `as_events` takes what it returns."""
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

        def again() -> None:
            self.submit(as_events, None, function, *arguments, priority=priority)

        self._tasks[key] = _Task(future, as_events, worker, again)
        self._completed.add(future)

    def take(self) -> tuple[Any, AsEvents, Any] | None:
        """The next result: its future, what takes it, and the result; None after a short while.

        Raises
        ------
        TrainingError
            The cluster cannot carry a task out, or will not come back.
        """
        arrived = None
        with suppress(queue.Empty):
            arrived = self._completed.queue.get(timeout=WAIT_SECONDS)
        if arrived is None:
            self._watch.check()
            self._fetch_again()
            return None
        future, result = arrived
        task = self._tasks.pop(future.key, None)
        if task is None:  # submitted again, or fetched twice
            return None
        if isinstance(result, tuple):  # of an exception; tasks return none
            raise _failed(result[1])
        if isinstance(result, BaseException) and not isinstance(result, DadagradError):
            self._watch.check()
            raise lost("the scheduler was restarted, or gave up a task for another reason")
        return future, task.as_events, result

    def _submit_stuck_again(self, processing: frozenset[str]) -> None:
        """Ask anybody for what no worker that runs has been given."""
        for key, task in list(self._tasks.items()):
            # A result may also be lost again before it has been fetched.
            if key not in processing and task.future.status in ("pending", "lost"):
                task.looks += 1
                if task.looks >= STUCK_LOOKS:
                    del self._tasks[key]
                    self._client.cancel([task.future])
                    task.submit_again()

    def _fetch_again(self) -> None:
        """Ask again for results that are there, and do not come."""
        now = time.monotonic()
        for task in self._tasks.values():
            if task.future.status != "finished":
                task.finished = None
            elif task.finished is None:
                task.finished = now
            elif now - task.finished > FETCH_SECONDS:
                task.finished = now
                self._completed.add(task.future)


def _failed(error: BaseException) -> BaseException:
    """What to raise for a task that ended with `error`."""
    from distributed import KilledWorker
    from distributed.scheduler import NoValidWorkerError

    if isinstance(error, KilledWorker):
        made = TrainingError(
            f"the workers of the cluster keep dying at the same task ({error}); they probably run "
            "out of memory: give them more, or make smaller partitions"
        )
    elif isinstance(error, NoValidWorkerError):
        made = lost(f"the scheduler gave up waiting for workers ({error})")
    else:
        return error
    made.__cause__ = error
    return made
