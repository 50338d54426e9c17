"""Clock, signals and callbacks of a run, none of which changes a bit of the model."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from dadagrad.errors import signals_to_end
from dadagrad.model.writer import ModelWriter
from dadagrad.storage.backends import give_up_stores
from dadagrad.training.callbacks import BeginEvent, Callback, CheckpointEvent, EndEvent, RoundEvent
from dadagrad.training.checkpoints.snapshot import CheckpointSaver, HoldoutRecord
from dadagrad.training.engines.trace import Trace
from dadagrad.training.messages import Report, Save, SaveRequested, StopRequested
from dadagrad.training.progressive import ProgressiveMetrics
from dadagrad.training.result import TrainResult
from dadagrad.training.schedule.base import Cursor


class Watcher:
    """Requests to the coordinator (save, stop), and the events of the run for callbacks.

    `seconds_before` is the time that the run took before it was resumed. `run` describes the
    run to `callbacks`, and `record` has the losses on the rows held out. `stopped_by` is the
    signal that ends the run, if any has come; `n_workers` is the number of workers of a
    cluster, and `convert` changes the metrics that callbacks see. `writer` is that of the model, if
    the workers of a cluster write its weights.
    """

    def __init__(
        self,
        run: BeginEvent | None = None,
        callbacks: Sequence[Callback] = (),
        *,
        saver: CheckpointSaver | None = None,
        seconds_before: float = 0.0,
        record: HoldoutRecord | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.run = run
        self._callbacks = callbacks
        self._saver = saver
        self._save_seconds = None if saver is None else saver.seconds
        self.save_every = None if saver is None else saver.every
        self._seconds_before = seconds_before
        self._record = record or HoldoutRecord()
        self.trace = trace or Trace()
        self.writer: ModelWriter | None = None
        self.stopped_by: signal.Signals | None = None
        self.result: TrainResult | None = None
        self.n_workers: int | None = None
        self.convert: Callable[[ProgressiveMetrics], ProgressiveMetrics] = lambda metrics: metrics
        self._stop_requested = self._ready = False
        self._begun_callbacks: list[Callback] = []
        self._begun = self._last_save = time.monotonic()
        self._reported = Cursor()

    def begin(self) -> None:
        """Start the clock when the engine is first ready."""
        if not self._ready:
            self._begun = self._last_save = time.monotonic()
            self._ready = True
            for callback in self._callbacks:
                assert self.run is not None, "callbacks come with a run"
                self._begun_callbacks.append(callback)
                callback.on_begin(self.run)

    @contextmanager
    def events(self) -> Iterator[None]:
        """Send the last events of the run at the end of the block, also if it fails.

        The block stores its `result`.
        """
        try:
            yield
            if self._saver is not None:
                self._saver.wait()
                self._send_checkpoints(self._saver)
        except BaseException as error:
            self._send_end(error)
            raise
        self._send_end(None)

    def _send_end(self, error: BaseException | None) -> None:
        if self.run is None:
            return
        event = EndEvent(self.run, self.result if error is None else None, error)
        first = error
        for callback in self._begun_callbacks:  # all are called, even if some raise errors
            try:
                callback.on_end(event)
            except BaseException as later:
                if first is None:
                    first = later
                else:
                    first.add_note(f"{type(callback).__name__}.on_end failed too: {later!r}")
        if first is not None and first is not error:
            raise first

    def _send_checkpoints(self, saver: CheckpointSaver) -> None:
        assert self.run is not None, "checkpoints come with a run"
        for saved in saver.committed():
            rows = sum(metrics["rows"] for metrics in saved.meta.get("passes", ()))
            event = CheckpointEvent(self.run, saved.step, rows, saved.key, saved.nbytes)
            for callback in self._callbacks:
                callback.on_checkpoint(event)

    @property
    def seconds(self) -> float:
        """Time of the run so far."""
        since = time.monotonic() - self._begun if self._ready else 0.0
        return self._seconds_before + since

    def request(self) -> SaveRequested | StopRequested | None:
        """Return the next event for the coordinator, if any.

        Raises the error of the last checkpoint: no progress of the run would be kept.
        """
        if self._saver is not None:
            self._saver.check()
            self._send_checkpoints(self._saver)
        if self.stopped_by is not None and not self._stop_requested:
            self._stop_requested = True
            return StopRequested()
        now = time.monotonic()
        if self._save_seconds is not None and now - self._last_save >= self._save_seconds:
            self._last_save = now
            return SaveRequested()
        return None

    def handle(self, instruction: Report | Save) -> None:
        """Send the end of a round to the callbacks, or save a state."""
        if isinstance(instruction, Report):
            self._send_round(instruction)
        elif self._saver is not None:
            self._last_save = time.monotonic()
            with self.trace.measured("save"):
                self._saver.submit_state(instruction, self.seconds)

    def _send_round(self, report: Report) -> None:
        # A cluster that loses a worker may make a round again.
        place = report.place
        if self.run is None or place.cursor <= self._reported:
            return
        self._reported = place.cursor
        seconds, rows = self.seconds, place.rows - self.run.rows_done
        losses = self._record.losses
        event = RoundEvent(
            run=self.run,
            steps=place.steps,
            cursor=place.cursor,
            passes=tuple(map(self.convert, place.passes)),
            seconds=seconds,
            rows_per_second=rows / max(seconds - self._seconds_before, 1e-9),
            holdout_loss=losses[-1] if losses else None,
            count_nonzeros=report.count_nonzeros,
            seconds_by_part=self.trace.seconds,
            workers=self.n_workers,
        )
        for callback in self._callbacks:
            callback.on_round(event)

    @contextmanager
    def on_interrupt(self) -> Iterator[None]:
        """Stop with a checkpoint at the first signal to end, and at once at the second.

        Has no effect outside the main thread, where signals cannot be caught.
        """
        self._stop_requested = False  # the last one may have come at the end of what was learned
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def interrupt(number: int, frame: FrameType | None) -> None:
            if self.stopped_by is not None:
                give_up_stores()  # the last checkpoint, which is waited for, may go to one
                raise KeyboardInterrupt(number)
            self.stopped_by = signal.Signals(number)

        before = {number: signal.signal(number, interrupt) for number in signals_to_end()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
