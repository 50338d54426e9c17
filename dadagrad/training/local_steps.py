"""The coordinator of local steps: streams walk rows of their own, and are merged once a round.

It is driven as `dadagrad.training.coordinator.Coordinator` is, by the same engines, events and
instructions. In a round all streams start from the state at its beginning, which nobody changes
until the last of them is done: a piece is given the share of it that its rows touch, with what its
own stream has changed meanwhile, and hands back what it changed. Then the walks are merged
(`dadagrad.training.merge`) in the order of the streams, whoever was done first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dadagrad.method import Method
from dadagrad.training.coordination import Coordination
from dadagrad.training.plan import Cursor, Piece
from dadagrad.training.protocol import (
    Close,
    Compute,
    Instruction,
    Open,
    Result,
    WalkedShare,
)
from dadagrad.training.shares import ShareInState, Walk
from dadagrad.training.state import State
from dadagrad.training.states import TrainingState
from dadagrad.training.streams import StreamPlan, StreamRound, Stretch
from dadagrad.training.tally import Tally


@dataclass(slots=True)
class _Stream:
    """A stream on its way through its stretch of the round.

    `done` of the pieces have been walked.
    """

    pieces: Stretch
    done: int = 0
    walk: Walk | None = None
    tallies: list[Tally] = field(default_factory=list)

    @property
    def piece(self) -> Piece:
        """The one that is walked now, or is to be."""
        return self.pieces[self.done]


class StreamCoordinator(Coordination):
    """Drives a run with local steps from one round to the next.

    Parameters
    ----------
    method, save_every
        See `Coordination`.
    plan : StreamPlan
    state : State
        Of a method that is compiled.
    cursor, steps, tally
        What a checkpoint remembers besides; the defaults start a new run.
    prefetch : int
        Partitions opened ahead of those in use.
    """

    state: State

    def __init__(
        self,
        method: Method,
        plan: StreamPlan,
        state: TrainingState,
        *,
        cursor: Cursor = Cursor(),  # noqa: B008 (frozen)
        steps: int = 0,
        tally: Tally | None = None,
        save_every: int | None = None,
        prefetch: int = 2,
    ) -> None:
        if not isinstance(state, State):
            raise TypeError(f"local steps merge compiled states, not {type(state).__name__}")
        super().__init__(method, state, cursor, steps, tally, save_every)
        self._rounds: Iterator[StreamRound] = plan.rounds(cursor)
        self._now: StreamRound | None = None
        self._next = next(self._rounds, None)
        self._streams: list[_Stream] = []
        # Those that are to be given their next piece, and how many have not come to their end.
        self._waiting: list[_Stream] = []
        self._n_missing = 0
        self._tasks: dict[int, _Stream] = {}
        self._n_tasks = 0
        self._vocabularies: dict[int, NDArray[np.int64] | None] = {}
        # Whether all partitions of this round and the next are open.
        self._all_open = False
        # By piece, the one that goes on where it ends; and those that go on from none.
        self._following: dict[Piece, Piece] = {}
        self._firsts: list[Piece] = []
        # By visit, the pieces of this round that are not done; and visits that end with it.
        self._left: Counter[int] = Counter()
        self._closing: set[int] = set()
        self._closes: list[Instruction] = []
        # Visits that were opened and not begun before anybody waited for them.
        self._ahead: set[int] = set()
        self._prefetch = prefetch

    def _opened(self, visit: int, vocabulary: NDArray[np.int64]) -> None:
        self._vocabularies[visit] = vocabulary

    def _go_on(self) -> list[Instruction]:
        instructions, self._closes = self._closes, []
        if self._now is not None and not self._n_missing:
            instructions += self._finish_round(self._now)
            self._now = None
        if self._now is None:
            if self._next is None or self._stop_wanted:
                return [*instructions, *self._finish(complete=self._next is None)]
            self._now, self._next = self._next, next(self._rounds, None)
            self._streams = [_Stream(stretch) for stretch in self._now.stretches]
            self._waiting = list(self._streams)
            self._n_missing = len(self._streams)
            self._all_open = False
            self._chain()
        # What is walked now goes before what is read for later.
        computes = self._issue()
        return [*instructions, *computes, *self._opens()]

    def _issue(self) -> list[Instruction]:
        """Have all streams walk on that can."""
        computes: list[Instruction] = []
        waiting, self._waiting = self._waiting, []
        for stream in waiting:
            piece = stream.piece
            vocabulary = self._vocabularies.get(piece.visit)
            if vocabulary is None:
                self._waiting.append(stream)
                continue
            self._ahead.discard(piece.visit)
            given = ShareInState(self.state, vocabulary, stream.walk)
            computes.append(Compute(self._n_tasks, piece, given, self._following.get(piece)))
            self._tasks[self._n_tasks] = stream
            self._n_tasks += 1
        return computes

    def _chain(self) -> None:
        """Find out what is left to do in each visit, and which piece goes on where one ends."""
        coming = [stretch[0] for stretch in self._next.stretches] if self._next else []
        now = [piece for stream in self._streams for piece in stream.pieces]
        begins = {(piece.visit, piece.start): piece for piece in [*now, *coming]}
        self._following = {
            piece: begins[piece.visit, piece.stop]
            for piece in now
            if (piece.visit, piece.stop) in begins
        }
        self._left = Counter(piece.visit for piece in now)
        self._closing = {piece.visit for piece in now if piece.last}
        ends = set(self._following.values())
        self._firsts = [piece for piece in [*now, *coming] if piece not in ends]

    def _opens(self) -> list[Instruction]:
        """Open the partitions that streams wait for, and `prefetch` more."""
        opens: list[Instruction] = []
        if self._all_open:
            return opens
        for stream in self._waiting:
            if stream.piece.visit not in self._vocabularies:
                opens.append(self._open(stream.piece))
        # What is waited for is ahead of nothing.
        for piece in self._later():
            if len(self._ahead) >= self._prefetch:
                return opens
            if piece.visit not in self._vocabularies:
                self._ahead.add(piece.visit)
                opens.append(self._open(piece))
        self._all_open = True
        return opens

    def _later(self) -> Iterator[Piece]:
        """The pieces after those that are walked or waited for: first the next of each stream."""
        rest = [stream.pieces[stream.done + 1 :] for stream in self._streams]
        if self._next is not None:
            rest = [*rest, *self._next.stretches]
        for depth in range(max(map(len, rest), default=0)):
            yield from (pieces[depth] for pieces in rest if len(pieces) > depth)

    def _open(self, piece: Piece) -> Open:
        """Open the partition of `piece`, and have found out what the first pieces there touch."""
        self._vocabularies[piece.visit] = None
        firsts = tuple(first for first in self._firsts if first.visit == piece.visit)
        # Each stream waits for its own.
        return Open(piece.visit, piece.partition, firsts, moment=piece.visit)

    def _take(self, task: int, result: Result) -> None:
        """A stream has walked a piece."""
        from dadagrad.training.compact import look_up

        stream = self._tasks.pop(task)
        if not isinstance(result, WalkedShare):
            raise TypeError("local steps take what walks have changed")
        vocabulary = self._vocabularies[stream.piece.visit]
        assert vocabulary is not None
        walk = Walk(look_up(vocabulary, result.positions), result.state)
        stream.walk = walk if stream.walk is None else stream.walk.then(walk)
        stream.tallies.append(result.tally)
        visit = stream.piece.visit
        self._left[visit] -= 1
        if not self._left[visit] and visit in self._closing:
            del self._vocabularies[visit]
            self._closes.append(Close(visit))
        stream.done += 1
        if stream.done < len(stream.pieces):
            self._waiting.append(stream)
        else:
            self._n_missing -= 1

    def _finish_round(self, finished: StreamRound) -> list[Instruction]:
        from dadagrad.training.merge import merge

        walks = [stream.walk for stream in self._streams if stream.walk is not None]
        merge(self.method, self.state, walks)
        for stream in self._streams:
            for tally in stream.tallies:
                self.tally += tally
                self.steps += tally.examples
        self.cursor = finished.after
        return [self._report(), *(self._save() if self._save_is_due() else [])]
