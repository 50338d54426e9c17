"""The coordinator: owns the state, decides what comes next, and touches nothing else.

It knows no files, no threads, no clock and no Dask: `handle` takes an event and returns
instructions. Whoever carries them out (`training.local`, `training.dask`, a unit test) gets the
same bits, because results are added in the order of the plan, not of their arrival.

A round goes like this: its partitions are opened (some ahead of time, so that reading hides behind
computing); each piece may take the weights of its own vocabulary; the gradients that come back
are summed in the order of the pieces in float64, divided by the importance of the rows, and make
one step. The online method is the same with one piece a round: it is handed the state itself, and
walks its rows one step each.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from dadagrad.method import Method
from dadagrad.training.gradient_sums import GradientSums
from dadagrad.training.plan import Cursor, Piece, Plan, Round
from dadagrad.training.protocol import (
    Close,
    Compute,
    Computed,
    Event,
    Finish,
    Given,
    Gradient,
    Instruction,
    Open,
    Opened,
    Report,
    Result,
    Save,
    SaveRequested,
    StopRequested,
    Walked,
    WeightsInState,
)
from dadagrad.training.states import TrainingState
from dadagrad.training.tally import Tally


class Coordinator:
    """Drives a run from one round to the next.

    Parameters
    ----------
    method : Method
    plan : Plan
    state : State
        Where the run starts; changed in place from here on.
    cursor, steps, tally
        What a checkpoint remembers besides; the defaults start a new run.
    save_every : int or None
        Steps after which a `Save` is due; None leaves that to `SaveRequested`.
    prefetch : int
        Partitions opened ahead of those in use.
    """

    def __init__(
        self,
        method: Method,
        plan: Plan,
        state: TrainingState,
        *,
        cursor: Cursor = Cursor(),  # noqa: B008 (frozen)
        steps: int = 0,
        tally: Tally | None = None,
        save_every: int | None = None,
        prefetch: int = 2,
    ) -> None:
        self.method = method
        self.state = state
        self.cursor = cursor
        self.steps = steps
        self.tally = tally or Tally.zero(method)
        self._rounds = plan.rounds(cursor)
        self._upcoming: deque[Round] = deque()
        self._prefetch = prefetch
        self._vocabularies: dict[int, NDArray[np.int64] | None] = {}
        self._results: list[Result | None] | None = None
        self._sums = GradientSums(method)
        self._save_every = save_every
        self._next_save = None if save_every is None else (steps // save_every + 1) * save_every
        self._save_wanted = False
        self._saved: Cursor | None = None
        self._stop_wanted = False
        self._finished = False

    def start(self) -> list[Instruction]:
        """The first instructions."""
        return self._advance()

    def handle(self, event: Event) -> list[Instruction]:
        """Take note of `event`; say what to do next."""
        if self._finished:
            return []
        match event:
            case Opened(visit, vocabulary):
                self._vocabularies[visit] = vocabulary
            case Computed(task, result):
                assert self._results is not None
                self._results[task] = result
            case SaveRequested():
                self._save_wanted = True
            case StopRequested():
                self._stop_wanted = True
        return self._advance()

    def _advance(self) -> list[Instruction]:
        instructions: list[Instruction] = []
        if self._results is not None:
            results = [result for result in self._results if result is not None]
            if len(results) < len(self._results):
                return instructions
            instructions += self._finish_round(results)
        opens = self._look_ahead()
        if not self._upcoming or self._stop_wanted:
            self._finished = True
            if self._saved != self.cursor:
                instructions.append(self._save())
            return [*instructions, Finish(complete=not self._upcoming)]
        # What is computed now goes before what is read for later.
        return [*instructions, *self._start_round(), *opens]

    def _look_ahead(self) -> list[Instruction]:
        """Open the partitions of the next round, and `prefetch` more."""
        opens: list[Instruction] = []
        while not self._upcoming or self._ahead() < self._prefetch:
            following = next(self._rounds, None)
            if following is None:
                break
            self._upcoming.append(following)
            for piece in following.pieces:
                if piece.visit not in self._vocabularies:
                    self._vocabularies[piece.visit] = None
                    opens.append(Open(piece.visit, piece.partition))
        return opens

    def _ahead(self) -> int:
        now = {piece.visit for piece in self._upcoming[0].pieces}
        return len(self._vocabularies.keys() - now)

    def _start_round(self) -> list[Instruction]:
        pieces = self._upcoming[0].pieces
        vocabularies = [self._vocabularies[piece.visit] for piece in pieces]
        opened = [vocabulary for vocabulary in vocabularies if vocabulary is not None]
        if len(opened) < len(pieces):
            return []
        self._results = [None] * len(pieces)
        given: list[Given]
        if self.method.online:
            given = [self.state]
        else:
            intercept = self.state.intercepts_now(self.method)
            given = [
                WeightsInState(self.method, self.state, vocabulary, intercept)
                for vocabulary in opened
            ]
        return [Compute(task, piece, given[task]) for task, piece in enumerate(pieces)]

    def _vocabulary(self, piece: Piece) -> NDArray[np.int64]:
        vocabulary = self._vocabularies[piece.visit]
        assert vocabulary is not None
        return vocabulary

    def _finish_round(self, results: list[Result]) -> list[Instruction]:
        finished = self._upcoming.popleft()
        self._results = None
        for result in results:
            self.tally += result.tally
        if self.method.online:
            self._note_walk(results)
        else:
            self._step(finished.pieces, results)
        self.cursor = finished.after
        instructions: list[Instruction] = [Report(self.cursor, self.steps, self.tally)]
        if self._save_is_due():
            instructions.append(self._save())
        for piece in finished.pieces:
            if piece.last:
                del self._vocabularies[piece.visit]
                instructions.append(Close(piece.visit))
        return instructions

    def _save_is_due(self) -> bool:
        return self._save_wanted or (self._next_save is not None and self.steps >= self._next_save)

    def _save(self) -> Save:
        self._save_wanted = False
        if self._save_every is not None:
            self._next_save = (self.steps // self._save_every + 1) * self._save_every
        self._saved = self.cursor
        return Save(self.cursor, self.steps, self.tally, self.state)

    def _note_walk(self, results: list[Result]) -> None:
        """Each row that was walked was a step, which has changed the state already."""
        (result,) = results
        if not isinstance(result, Walked):
            raise TypeError(f"the online method takes walks, not {type(result).__name__}")
        self.steps += result.tally.examples

    def _step(self, pieces: tuple[Piece, ...], results: list[Result]) -> None:
        """One step with the mean gradient of all the pieces' rows."""
        gradients = [result for result in results if isinstance(result, Gradient)]
        if len(gradients) < len(results):
            raise TypeError("the exact exchange takes gradients, not walks")
        importance = sum(gradient.tally.weight for gradient in gradients)
        if importance == 0.0:
            return
        total = self._sums.total([self._vocabulary(piece) for piece in pieces], gradients)
        self.state.step(self.method, total, importance)
        self.steps += 1
