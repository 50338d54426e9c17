"""The clock beside a run: when to save, when to stop, whom to tell.

None of it changes a bit of the model; it is kept out of the coordinator for that reason.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from dadagrad.training.protocol import Report, Save, SaveRequested, StopRequested

Progress = Callable[[Report], None]


class Saver(Protocol):
    """Keeps the states that the coordinator wants kept; must copy before it returns.

    `seconds` is how long the run has been going.
    """

    def save(self, save: Save, seconds: float) -> None: ...

    def check(self) -> None:
        """Raise what went wrong with keeping an earlier one."""


class Watcher:
    """Stands between an engine and the world.

    Parameters
    ----------
    saver : Saver or None
        Where checkpoints go.
    save_seconds : float or None
        Ask for a checkpoint whenever so much time has passed since the last.
    progress : callable or None
        Told of every `Report`.
    seconds_before : float
        How long the run had been going before.
    """

    def __init__(
        self,
        saver: Saver | None = None,
        save_seconds: float | None = None,
        progress: Progress | None = None,
        seconds_before: float = 0.0,
    ) -> None:
        self._saver = saver
        self._save_seconds = save_seconds if saver is not None else None
        self._progress = progress
        self._seconds_before = seconds_before
        self._begun = self._last_save = time.monotonic()
        self._stop = threading.Event()
        self._told = False

    def begin(self) -> None:
        """Start the clock: the engine is ready, what it took to get ready is no training."""
        self._begun = self._last_save = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long the run has been going."""
        return self._seconds_before + time.monotonic() - self._begun

    def stop(self) -> None:
        """Have the run end after the present round."""
        self._stop.set()

    def request(self) -> SaveRequested | StopRequested | None:
        """What the coordinator should be asked for now, if anything; asked once each.

        Raises what went wrong with the last checkpoint: nothing more of the run would be kept.
        """
        if self._saver is not None:
            self._saver.check()
        if self._stop.is_set() and not self._told:
            self._told = True
            return StopRequested()
        now = time.monotonic()
        if self._save_seconds is not None and now - self._last_save >= self._save_seconds:
            self._last_save = now
            return SaveRequested()
        return None

    def handle(self, instruction: Report | Save) -> None:
        """Pass a report on, or have a state saved."""
        if isinstance(instruction, Report):
            if self._progress is not None:
                self._progress(instruction)
        elif self._saver is not None:
            self._last_save = time.monotonic()
            self._saver.save(instruction, self.seconds)

    @contextmanager
    def on_interrupt(self) -> Iterator[None]:
        """Turn the first SIGINT or SIGTERM into a stop with a checkpoint, the second into an end.

        Does nothing outside the main thread, where signals cannot be caught.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def caught(number: int, frame: FrameType | None) -> None:
            if self._stop.is_set():
                raise KeyboardInterrupt
            self.stop()

        for number in before:
            signal.signal(number, caught)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
