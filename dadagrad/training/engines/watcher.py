"""Clock, signals and callbacks of a run, none of which changes a bit of the model."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from dadagrad.errors import signals_to_end
from dadagrad.training.checkpoints.snapshot import CheckpointSaver
from dadagrad.training.messages import Report, Save, SaveRequested, StopRequested

Progress = Callable[[Report], None]


class Watcher:
    """Requests to the coordinator (save, stop), and the handling of its reports.

    `save_seconds` is the time between two checkpoints, `seconds_before` the time that the run took
    before it was resumed. `stopped_by` is the signal that ends the run, if any has come.
    """

    def __init__(
        self,
        saver: CheckpointSaver | None = None,
        save_seconds: float | None = None,
        progress: Progress | None = None,
        seconds_before: float = 0.0,
    ) -> None:
        self._saver = saver
        self._save_seconds = save_seconds if saver is not None else None
        self._progress = progress
        self._seconds_before = seconds_before
        self.stopped_by: signal.Signals | None = None
        self._stop_requested = self._ready = False
        self._begun = self._last_save = time.monotonic()

    def begin(self) -> None:
        """Start the clock when the engine is first ready."""
        if not self._ready:
            self._begun = self._last_save = time.monotonic()
            self._ready = True

    @property
    def seconds(self) -> float:
        """Time of the run so far."""
        return self._seconds_before + time.monotonic() - self._begun

    @property
    def saves(self) -> bool:
        """True if checkpoints are kept."""
        return self._saver is not None

    def request(self) -> SaveRequested | StopRequested | None:
        """Return the next event for the coordinator, if any.

        Raises the error of the last checkpoint: no progress of the run would be kept.
        """
        if self._saver is not None:
            self._saver.check()
        if self.stopped_by is not None and not self._stop_requested:
            self._stop_requested = True
            return StopRequested()
        now = time.monotonic()
        if self._save_seconds is not None and now - self._last_save >= self._save_seconds:
            self._last_save = now
            return SaveRequested()
        return None

    def handle(self, instruction: Report | Save) -> None:
        """Forward a report, or save a state."""
        if isinstance(instruction, Report):
            if self._progress is not None:
                self._progress(instruction)
        elif self._saver is not None:
            self._last_save = time.monotonic()
            self._saver.submit_state(instruction, self.seconds)

    @contextmanager
    def on_interrupt(self) -> Iterator[None]:
        """Stop with a checkpoint at the first signal to end, and at once at the second.

        Has no effect outside the main thread, where signals cannot be caught.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in signals_to_end()}

        def interrupt(number: int, frame: FrameType | None) -> None:
            if self.stopped_by is not None:
                raise KeyboardInterrupt(number)
            self.stopped_by = signal.Signals(number)

        for number in before:
            signal.signal(number, interrupt)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
