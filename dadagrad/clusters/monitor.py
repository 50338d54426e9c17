"""Monitoring of a cluster: its workers, and whether its scheduler answers.

Dask tells a client only that its connection to the scheduler has ended: without workers, or with a
scheduler that hangs, a task stays pending for ever.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dadagrad.clusters import seconds
from dadagrad.errors import DadagradError

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Time between two requests; each takes the scheduler about a millisecond."""

WARN_SECONDS = 5.0
"""Time without a running worker after which the user is told what is waited for."""

ATTEMPTS = 3
"""Requests without an answer after which a scheduler counts as lost. Time alone does not count:
this process, or the whole machine, may have been suspended."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """An answer of the scheduler.

    `running` has the threads of the workers that take tasks, by address. `n_idle` others are
    paused because their memory is full, or about to leave. `processing` has the keys of the tasks
    that running workers have; None unless some workers are idle, or have gone with tasks.
    """

    running: dict[str, int]
    n_idle: int
    processing: frozenset[str] | None


class ClusterMonitor:
    """Asks the scheduler of `client` for its status again and again, until `stop`.

    `lost` makes the error of `check` out of a reason. `busy_workers` returns the workers that have
    tasks. `n_retired` workers have left because the cluster was to have fewer.
    """

    def __init__(
        self,
        client: Any,
        lost: Callable[[str], DadagradError],
        busy_workers: Callable[[], set[str]] = set,
    ) -> None:
        self._client = client
        self._lost = lost
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

        Raises the error of `lost` if the scheduler has gone, or has not answered for
        ``dadagrad.connect-timeout``, or there has been no running worker for
        ``dadagrad.no-workers-timeout``.
        """
        if self._client.status != "running":
            raise self._lost("the connection to the scheduler was lost")
        if self.is_lost:
            raise self._lost(f"the scheduler has not answered for {self._answer_seconds:g} seconds")
        if self._seconds_without > self._max_seconds_without:
            raise self._lost(f"{self._no_worker()} for {self._max_seconds_without:g} seconds")
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
