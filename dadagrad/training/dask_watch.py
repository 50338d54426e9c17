"""Which workers a cluster has now, and whether its scheduler still answers.

Dask tells a client when its connection to the scheduler ends, and nothing else: without workers,
or with a scheduler that is stuck, a task stays pending for ever.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dadagrad.dask_config import seconds
from dadagrad.errors import TrainingError

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Between two looks; they take the scheduler about a millisecond each."""

WARN_SECONDS = 5.0
"""Without a worker that works, after which the user is told why nothing happens."""

ATTEMPTS = 3
"""To get an answer out of a scheduler. Time alone does not count: if this process was stopped for
a while, or the whole machine, nobody has failed to answer."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the scheduler answered.

    Attributes
    ----------
    running : mapping of str to int
        The addresses of the workers that take tasks, and how many threads each has.
    n_idle : int
        How many others there are: their memory is full, so that they have paused, or they are about
        to leave.
    processing : frozenset of str or None
        The keys of the tasks that running workers have been given, where some are idle or were
        asked for something and have gone; else None.
    """

    running: Mapping[str, int]
    n_idle: int
    processing: frozenset[str] | None


class ClusterWatch:
    """Looks at the cluster of a client, beside the run, until it is told to stop.

    Parameters
    ----------
    client : distributed.Client
    asked : callable
        Gives the workers that were asked for something they have not done yet.

    Attributes
    ----------
    look : Look or None
        What the last look found.
    number : int
        How many looks have been answered.
    """

    def __init__(self, client: Any, asked: Callable[[], set[str]]) -> None:
        self._client = client
        self._asked = asked
        self._workers: set[str] = set()
        self.look: Look | None = None
        self.number = 0
        self._unanswered = 0
        self._seconds_without = 0.0
        self._warned = False
        self._stopped = False
        self._patience = seconds("no-workers-timeout")
        self._answer_seconds = seconds("connect-timeout")
        self._looking = asyncio.run_coroutine_threadsafe(
            self._look_again_and_again(), client.loop.asyncio_loop
        )

    def stop(self) -> None:
        """Look no more."""
        self._stopped = True
        self._looking.cancel()

    @property
    def is_lost(self) -> bool:
        """Whether the scheduler has gone, or answers no more."""
        return self._client.status != "running" or self._unanswered >= ATTEMPTS

    def check(self) -> None:
        """See whether the run has something to wait for.

        Raises
        ------
        TrainingError
            The scheduler has gone, or has not answered for ``dadagrad.connect-timeout``, or there
            has been no worker that works for ``dadagrad.no-workers-timeout``.
        """
        if self._client.status != "running":
            raise lost("the connection to the scheduler was lost")
        if self._unanswered >= ATTEMPTS:
            raise lost(f"the scheduler has not answered for {self._answer_seconds:g} seconds")
        if self._seconds_without > self._patience:
            raise lost(f"{self._nobody()} for {self._patience:g} seconds")
        if not self._seconds_without:
            self._warned = False
        elif self._seconds_without > WARN_SECONDS and not self._warned:
            self._warned = True
            logger.warning(
                "%s; waiting up to %g seconds for some that do", self._nobody(), self._patience
            )

    def _nobody(self) -> str:
        assert self.look is not None
        if not self.look.n_idle:
            return "the cluster has had no worker"
        return (
            f"all workers of the cluster ({self.look.n_idle}) have paused, because their memory is "
            "full,"
        )

    async def _look_again_and_again(self) -> None:
        while not self._stopped:  # what Dask makes of a cancellation may be an error like others
            begun = time.monotonic()
            try:
                # In this very task: of another that fails just as this one is told to stop, nobody
                # would take the error, and asyncio would print it with a traceback.
                async with asyncio.timeout(self._answer_seconds / ATTEMPTS):
                    look = await self._ask()
            except Exception as error:  # whatever a broken connection makes of an answer
                logger.debug("no answer of the scheduler: %r", error)
                self._unanswered += isinstance(error, TimeoutError)
            else:
                self._unanswered = 0
                self.look = look
                self.number += 1
                if look.running:
                    self._seconds_without = 0.0
                else:
                    self._seconds_without += LOOK_SECONDS
            await asyncio.sleep(max(0.1, begun + LOOK_SECONDS - time.monotonic()))

    async def _ask(self) -> Look:
        scheduler = self._client.scheduler
        running = await scheduler.ncores_running()
        workers = set(await scheduler.ncores())
        for gone in self._workers - workers:
            # A connection to a process that is frozen stays open: who waits for a result there
            # would do so for ever, and not ask for who else has it.
            self._client.rpc.remove(gone)
        self._workers = workers
        n_idle = len(workers - running.keys())
        processing = None
        if running and (n_idle or not self._asked() <= running.keys()):
            given = await scheduler.processing(workers=None)
            processing = frozenset(key for worker in running for key in given.get(worker, ()))
        return Look(running, n_idle, processing)


def lost(why: str) -> TrainingError:
    """The error of a run that has lost its cluster."""
    return TrainingError(
        f"{why}; when the cluster is back, go on from the last checkpoint with `dadagrad resume`"
    )
