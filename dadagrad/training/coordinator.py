"""The coordinator: owns the state, decides what comes next, and touches nothing else.

It knows no files, no threads, no clock and no Dask: `handle` takes an event and returns
instructions. Whoever carries them out (`training.local`, `training.dask`, a unit test) gets the
same bits, because results are added in the order of the plan, not of their arrival.

A round goes like this: its partitions are opened (some ahead of time, so that reading hides behind
computing); each piece may take the weights of its own vocabulary; the gradients that come back
are summed in the order of the pieces in float64, divided by the importance of the rows, and make
one step. The online method is the same with one piece a round: it is handed the state itself, and
walks its rows one step each.

With a delay of k there are k + 1 rounds under way, so that messages travel while others are worked
on: round s takes the weights at which round s - k - 1 has left the state. The order of things is
that of numbers alone. When round s - k - 1 has made its step, round s is issued, and the step of
round s - k waits for that, however long the partitions of round s take to open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dadagrad.method import Method
from dadagrad.training.coordination import Coordination
from dadagrad.training.gradient_sums import GradientSums, RoundSum
from dadagrad.training.lookahead import Lookahead
from dadagrad.training.plan import Cursor, Piece, Plan, Round
from dadagrad.training.protocol import (
    Close,
    Compute,
    Given,
    Gradient,
    Instruction,
    Result,
    Walked,
    WeightsInState,
)
from dadagrad.training.states import TrainingState
from dadagrad.training.tally import Tally


@dataclass(slots=True)
class _UnderWay:
    """A round that has been issued and has not made its step.

    `results` are those of its pieces; once they are all there, `sum` is what came of them.
    """

    round: Round
    results: list[Result | None]
    missing: int
    sum: RoundSum | None = None


class Coordinator(Coordination):
    """Drives a run by gradients from one round to the next.

    Parameters
    ----------
    method, state, save_every
        See `Coordination`.
    plan : Plan
    cursor, steps, tally, pending
        What a checkpoint remembers besides; the defaults start a new run. `pending` are the first
        rounds after `cursor`, which only have to make their steps, and before them the last that
        have.
    prefetch : int
        Partitions of each turn opened ahead of those in use.
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
        pending: Sequence[RoundSum] = (),
        save_every: int | None = None,
        prefetch: int = 2,
    ) -> None:
        super().__init__(method, state, cursor, steps, tally, save_every)
        self.delay = method.delay
        self.turns = plan.turns
        rounds = plan.rounds(cursor)
        # In the order of the plan.
        self._under_way = deque(
            _UnderWay(next(rounds), [], 0, done) for done in pending if not done.stepped
        )
        # The rounds whose steps those that are under way have not all seen.
        self._unseen = deque((done for done in pending if done.stepped), maxlen=self.delay)
        self._to_come = Lookahead(rounds, self.delay + 1, prefetch, plan.turns)
        self._tasks: dict[int, tuple[_UnderWay, int]] = {}
        self._n_tasks = 0
        self._sums = GradientSums(method)
        # A save that is due waits for the results of the rounds that are under way.
        self._saving = False

    def _opened(self, visit: int, vocabulary: NDArray[np.int64]) -> None:
        self._to_come.opened(visit, vocabulary)

    def _go_on(self) -> list[Instruction]:
        """One step and one new round at most.

        What the round is given is there to be taken until the next step.
        """
        instructions = self._finish_round() if self._can_step() else []
        stopping = self._stop_wanted and not (self._is_full or self._to_come.is_over)
        if self._saving or stopping:
            if any(under_way.missing for under_way in self._under_way):
                return instructions
            instructions += self._save()
            self._saving = False
            if stopping:
                return [*instructions, *self._finish(complete=False)]
        opens = self._to_come.opens([under_way.round for under_way in self._under_way])
        if not self._under_way and self._to_come.is_over:
            return [*instructions, *self._finish(complete=True)]
        # What is computed now goes before what is read for later.
        return [*instructions, *self._issue_round(), *opens]

    def _issue_round(self) -> list[Instruction]:
        taken = None if self._is_full else self._to_come.take()
        if taken is None:
            return []
        issued, ahead = taken
        n_pieces = len(issued.pieces)
        under_way = _UnderWay(issued, [None] * n_pieces, n_pieces)
        self._under_way.append(under_way)
        tasks = range(self._n_tasks, self._n_tasks + n_pieces)
        self._n_tasks += n_pieces
        self._tasks |= {task: (under_way, position) for position, task in enumerate(tasks)}
        return list(map(Compute, tasks, issued.pieces, self._given(issued.pieces), ahead))

    def _given(self, pieces: tuple[Piece, ...]) -> list[Given]:
        if self.method.online:
            return [self.state]
        vocabularies = [self._to_come.vocabulary(piece) for piece in pieces]
        intercept = self.state.intercepts_now(self.method)
        return [
            WeightsInState(self.method, self.state, vocabulary, intercept)
            for vocabulary in vocabularies
        ]

    def _take(self, task: int, result: Result) -> None:
        under_way, position = self._tasks.pop(task)
        under_way.results[position] = result
        under_way.missing -= 1
        if not under_way.missing and not self.method.online:
            under_way.sum = self._sum(under_way.round.pieces, under_way.results)
            under_way.results.clear()

    def _sum(self, pieces: tuple[Piece, ...], results: list[Result | None]) -> RoundSum:
        gradients = [result for result in results if isinstance(result, Gradient)]
        if len(gradients) < len(results):
            raise TypeError("the exact exchange takes gradients, not walks")
        vocabularies = [self._to_come.vocabulary(piece) for piece in pieces]
        total = self._sums.total(vocabularies, gradients)
        return RoundSum(total, tuple(gradient.tally for gradient in gradients))

    @property
    def _is_full(self) -> bool:
        """Whether all rounds are under way that take the weights of this state or earlier ones."""
        return len(self._under_way) == self.delay + 1

    def _can_step(self) -> bool:
        """Whether the oldest round is done, and what must be issued at this state has been."""
        if self._saving or not self._under_way or self._under_way[0].missing:
            return False
        return self._is_full or self._to_come.is_over

    def _finish_round(self) -> list[Instruction]:
        finished = self._under_way.popleft()
        pieces = finished.round.pieces
        if finished.sum is None:
            self._note_walk(finished.results)
        else:
            self._step(finished.sum)
        self.cursor = finished.round.after
        self._saving = self._save_is_due()
        instructions: list[Instruction] = [self._report()]
        for piece in pieces:
            # What came out of a checkpoint may not have been opened in this run.
            if piece.last and self._to_come.closed(piece.visit):
                instructions.append(Close(piece.visit))
        return instructions

    def _pending(self) -> tuple[RoundSum, ...]:
        under_way = (one.sum for one in self._under_way if one.sum is not None)
        return (*self._unseen, *under_way)

    def _note_walk(self, results: list[Result | None]) -> None:
        """Each row that was walked was a step, which has changed the state already."""
        (result,) = results
        if not isinstance(result, Walked):
            raise TypeError(f"the online method takes walks, not {type(result).__name__}")
        self.tally += result.tally
        self.steps += result.tally.examples

    def _step(self, done: RoundSum) -> None:
        """One step with the mean gradient of all the pieces' rows."""
        for tally in done.tallies:
            self.tally += tally
        if done.importance > 0.0:
            total = done.total
            if self.delay and self.method.compiled:
                total = self._sums.delayed(done, self._unseen)
            self.state.step(self.method, total, done.importance)
            self.steps += 1
        self._unseen.append(replace(done, stepped=True))
