"""The rounds to come: which partitions to open for them, and when they can be issued."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from dadagrad.training.plan import Piece, Round
from dadagrad.training.protocol import Open

MOST_AHEAD = 2_000
"""Rounds that are looked at for what to open ahead of its use: a partition that gives rows to more
of them leaves time enough, and plans for as many as its metadata declares would fill the memory."""


class Lookahead:
    """Rounds of a plan that have not been issued, and the partitions that are open.

    Parameters
    ----------
    rounds : iterator of Round
    at_once : int
        Rounds that are under way side by side.
    prefetch : int
        Partitions of each turn opened ahead of those in use, if they are needed in the next
        `MOST_AHEAD` rounds: those of a turn's lanes end about the same time.
    turns : int
        As the plan has it.
    """

    def __init__(
        self, rounds: Iterator[Round], at_once: int, prefetch: int, turns: int = 1
    ) -> None:
        self._rounds = rounds
        self._at_once = at_once
        self._prefetch = prefetch * turns
        # In the order of the plan; the partitions of so many of them have been asked for.
        self._planned: deque[Round] = deque()
        self._n_asked = 0
        self._vocabularies: dict[int, NDArray[np.int64] | None] = {}

    @property
    def is_over(self) -> bool:
        """Whether there are no more rounds."""
        self._plan(1)
        return not self._planned

    def opened(self, visit: int, vocabulary: NDArray[np.int64]) -> None:
        """Take note that a partition can be worked on."""
        self._vocabularies[visit] = vocabulary

    def closed(self, visit: int) -> bool:
        """Take note that a visit is over; False if its partition was never opened."""
        return self._vocabularies.pop(visit, None) is not None

    def vocabulary(self, piece: Piece) -> NDArray[np.int64]:
        """That of the open partition of `piece`."""
        vocabulary = self._vocabularies[piece.visit]
        assert vocabulary is not None
        return vocabulary

    def opens(self, under_way: Sequence[Round]) -> list[Open]:
        """Have the partitions opened of all that may be issued beside these rounds, and more."""
        opens = []
        n_next = self._at_once - len(under_way)
        while self._n_asked < n_next or (
            self._n_asked < n_next + MOST_AHEAD
            and self._n_ahead(under_way, n_next) < self._prefetch
        ):
            self._plan(self._n_asked + self._at_once)
            # Of a partition that is opened for a round, so many pieces are issued before the
            # first result of any is in.
            nearest = list(islice(self._planned, self._n_asked, self._n_asked + self._at_once))
            if not nearest:
                break
            self._n_asked += 1
            for piece in nearest[0].pieces:
                if piece.visit not in self._vocabularies:
                    self._vocabularies[piece.visit] = None
                    known = tuple(_of_visit(nearest, piece.visit))
                    moment = nearest[0].cursor.round
                    opens.append(Open(piece.visit, piece.partition, known, moment))
        return opens

    def _n_ahead(self, under_way: Sequence[Round], n_next: int) -> int:
        """How many partitions are open besides those of rounds that are, or can be, under way."""
        rounds = [*under_way, *islice(self._planned, n_next)]
        now = {piece.visit for used in rounds for piece in used.pieces}
        return len(self._vocabularies.keys() - now)

    def take(self) -> tuple[Round, list[Piece | None]] | None:
        """The next round if its partitions are open, and for each of its pieces what is ahead.

        That is the piece of the same visit in the round that is issued when this one has made its
        step, if there is one. Its turn is the same.
        """
        if self.is_over:
            return None
        pieces = self._planned[0].pieces
        if any(self._vocabularies.get(piece.visit) is None for piece in pieces):
            return None
        self._plan(1 + self._at_once)
        later = list(islice(self._planned, self._at_once, self._at_once + 1))
        self._n_asked -= 1
        ahead = [next(_of_visit(later, piece.visit), None) for piece in pieces]
        return self._planned.popleft(), ahead

    def _plan(self, n_rounds: int) -> None:
        """Have so many rounds planned, or all there are."""
        self._planned.extend(islice(self._rounds, max(0, n_rounds - len(self._planned))))


def _of_visit(planned: Iterable[Round], visit: int) -> Iterator[Piece]:
    """The pieces of a visit in some rounds."""
    return (piece for one in planned for piece in one.pieces if piece.visit == visit)
