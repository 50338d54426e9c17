"""What coordinators have in common: how far a run is, when it is saved, and how it ends."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from dadagrad.method import Method
from dadagrad.training.gradient_sums import RoundSum
from dadagrad.training.plan import Cursor
from dadagrad.training.protocol import (
    Computed,
    Event,
    Finish,
    Instruction,
    Opened,
    Report,
    Result,
    Save,
    SaveRequested,
    StopRequested,
)
from dadagrad.training.states import TrainingState
from dadagrad.training.tally import Tally


class Coordination(ABC):
    """Drives a run from one round to the next.

    An engine carries out all instructions that it gets before it calls again: `start` first, then
    `go_on` for as long as that has instructions, then `handle` with the next event.

    Parameters
    ----------
    method : Method
    state : TrainingState
        Where the run starts; changed in place from here on.
    cursor, steps, tally
        What a checkpoint remembers besides.
    save_every : int or None
        Steps after which a `Save` is due; None leaves that to `SaveRequested`.

    Attributes
    ----------
    delay : int
        How many rounds are under way beside the one that makes its step next.
    turns : int
        As the plan has it.
    """

    delay = 0
    turns = 1

    def __init__(
        self,
        method: Method,
        state: TrainingState,
        cursor: Cursor,
        steps: int,
        tally: Tally | None,
        save_every: int | None,
    ) -> None:
        self.method = method
        self.state = state
        self.cursor = cursor
        self.steps = steps
        self.tally = tally or Tally.zero(method)
        self._save_every = save_every
        self._next_save = self._first_save_after(steps)
        self._save_wanted = False
        self._saved: Cursor | None = None
        self._stop_wanted = False
        self._finished = False

    def start(self) -> list[Instruction]:
        """The first instructions."""
        return self.go_on()

    def handle(self, event: Event) -> list[Instruction]:
        """Take note of `event`; say what to do next."""
        if self._finished:
            return []
        match event:
            case Opened(visit, vocabulary):
                self._opened(visit, vocabulary)
            case Computed(task, result):
                self._take(task, result)
            case SaveRequested():
                self._save_wanted = True
            case StopRequested():
                self._stop_wanted = True
        return self.go_on()

    def go_on(self) -> list[Instruction]:
        """What can be done without another event; none if it takes one."""
        return [] if self._finished else self._go_on()

    @abstractmethod
    def _opened(self, visit: int, vocabulary: NDArray[np.int64]) -> None:
        """Take note that a partition can be worked on."""

    @abstractmethod
    def _take(self, task: int, result: Result) -> None:
        """Take what came of a task."""

    @abstractmethod
    def _go_on(self) -> list[Instruction]:
        """As `go_on`, of a run that is not over."""

    def _pending(self) -> tuple[RoundSum, ...]:
        """What a save has to hold of rounds after `cursor`."""
        return ()

    def _report(self) -> Report:
        return Report(self.cursor, self.steps, self.tally)

    def _first_save_after(self, steps: int) -> int | None:
        every = self._save_every
        return None if every is None else (steps // every + 1) * every

    def _save_is_due(self) -> bool:
        return self._save_wanted or (self._next_save is not None and self.steps >= self._next_save)

    def _save(self) -> list[Save]:
        """Have the state kept, unless it has been."""
        if self._saved == self.cursor:
            return []
        self._save_wanted = False
        self._next_save = self._first_save_after(self.steps)
        self._saved = self.cursor
        return [Save(self.cursor, self.steps, self.tally, self.state, self._pending())]

    def _finish(self, complete: bool) -> list[Instruction]:
        self._finished = True
        return [*self._save(), Finish(complete)]
