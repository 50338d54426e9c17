"""What a run will move and hold open, from the metadata of its data alone.

How many features some of a partition's rows touch is an estimate, `touched`: within a third of the
truth on text and on data of categories, from a single row to half a partition.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dadagrad.data.dataset import Dataset, MemoryDataset, Partition
from dadagrad.method import Method
from dadagrad.training.lookahead import Lookahead
from dadagrad.training.plan import Cursor, Piece, Plan, Round
from dadagrad.training.touched import packed_bytes

PREFETCH = 2
MOST_ROUNDS = 1_000
"""Of a pass that are looked at; they are alike."""

_COMPRESSED = 0.75
_PARQUET = 3.0
"""Times what comes of a row group, taken while its vocabulary is found."""


def touched(nnz: float, partition: Partition) -> float:
    """About how many features of `partition` those of its rows touch that have `nnz` non-zeros.

    The geometric mean of two: n_local (1 - (1 - nnz / all)^(all / n_local)), as if all features
    were equally common, the most there can be; and nnz^b with n_local = all^b, the law of Heaps.
    """
    whole, n_local = partition.nnz, partition.n_local
    if nnz >= whole or n_local <= 1 or whole <= 1:
        return float(min(nnz, n_local))
    most = n_local * -math.expm1(whole / n_local * math.log1p(-nnz / whole))
    heaps = max(nnz, 1.0) ** (math.log(n_local) / math.log(whole))
    return min(nnz, math.sqrt(most * heaps))


def distinct(n_features: int, partitions: Iterable[Partition]) -> int:
    """About how many features occur in some of `partitions`, rather too many than too few.

    As if each partition had drawn its own without regard to the others; in fact the common ones
    occur in most.
    """
    absent = 0.0
    for partition in partitions:
        if partition.n_local >= n_features:
            return n_features
        absent += math.log1p(-partition.n_local / n_features)
    return round(-n_features * math.expm1(absent))


def decoded_bytes(data: Dataset, partition: Partition) -> int:
    """What the rows of a partition take in memory; none of their own where they are there."""
    if isinstance(data, MemoryDataset):
        return 0
    schema = data.schema
    of_entry = 4 if (schema.feature_space or {}).get("binary") else 8
    labels = 16 * len(schema.label_columns)  # as they are read, and as they are used
    of_row = 16 + labels + 4 + 4 * schema.weighted + 8 * schema.queried
    return of_entry * partition.nnz + of_row * partition.n_rows + 8 * partition.n_local


def reading_bytes(data: Dataset, partition: Partition) -> int:
    """What reading a partition takes beside its rows."""
    from dadagrad.data.zarr import ZarrDataset

    share = _COMPRESSED if isinstance(data, ZarrDataset) else _PARQUET
    return int(share * decoded_bytes(data, partition))


@dataclass(frozen=True, slots=True)
class Moved:
    """What a piece is about: rows, non-zeros, features that it touches, and bytes each way."""

    rows: int
    nnz: float
    touched: float
    down: float
    up: float

    @classmethod
    def of(
        cls,
        method: Method,
        partition: Partition,
        piece: Piece,
        down: int,
        intercept: int,
        up: int,
    ) -> Moved:
        """That of a piece for which `down` and `up` bytes move for a feature.

        `intercept` bytes go down for an output, and 16 come up.
        """
        nnz = partition.nnz * piece.n_rows / partition.n_rows
        some = touched(nnz, partition)
        # Where rows touch most of a vocabulary, what there is of all of it is sent.
        if nnz >= partition.n_local or method.loss.ranks:
            sent, announced = float(partition.n_local * down), 0.0
        else:
            sent, announced = some * down, packed_bytes(some, partition.n_local)
        back = announced + packed_bytes(some, partition.n_local) + some * up
        wide = method.n_outputs
        return cls(piece.n_rows, nnz, some, sent + intercept * wide, back + 16 * wide)


@dataclass(frozen=True, slots=True)
class Walk:
    """What the beginning of a plan shows; everything at its most, but for what is a mean.

    Attributes
    ----------
    open_bytes, vocabulary_bytes : int
        Of the rows, and of the vocabularies, of the partitions that are open at a time.
    piece_rows, piece_nnz, piece_touched : int
        Of one piece: rows, non-zeros, and features that it touches.
    step_touched : int
        Features that the pieces of a step touch, each counted for itself.
    step_bytes : int
        That move for a step.
    mean_down, mean_up : float
        Bytes that move for a step: weights to the workers; gradients, and which features both are
        of, from them.
    """

    open_bytes: int
    vocabulary_bytes: int
    piece_rows: int
    piece_nnz: int
    piece_touched: int
    step_touched: int
    step_bytes: int
    mean_down: float
    mean_up: float

    @classmethod
    def of(
        cls, open_bytes: int, vocabulary_bytes: int, rounds: Sequence[Sequence[Moved]], n_steps: int
    ) -> Walk:
        """That of `n_steps` steps, whose pieces are in `rounds`."""
        pieces = [piece for one in rounds for piece in one]
        return cls(
            open_bytes,
            vocabulary_bytes,
            max((piece.rows for piece in pieces), default=0),
            round(max((piece.nnz for piece in pieces), default=0)),
            round(max((piece.touched for piece in pieces), default=0)),
            round(max((sum(piece.touched for piece in one) for one in rounds), default=0)),
            round(max((sum(piece.down + piece.up for piece in one) for one in rounds), default=0)),
            sum(piece.down for piece in pieces) / n_steps,
            sum(piece.up for piece in pieces) / n_steps,
        )


def follow(data: Dataset, method: Method, plan: Plan) -> Walk:
    """Follow the beginning of `plan` as the coordinator would, without data."""
    rounds, open_bytes, vocabulary_bytes = _open(data, plan, method.delay)
    weights = 4 * method.n_outputs
    gradients = 2 * weights if method.config.squares == "example" else weights
    steps = [
        [
            Moved.of(method, data.partitions[piece.partition], piece, weights, 8, gradients)
            for piece in one.pieces
        ]
        for one in rounds
    ]
    return Walk.of(open_bytes, vocabulary_bytes, steps, max(1, len(steps)))


def _open(data: Dataset, plan: Plan, delay: int) -> tuple[Sequence[Round], int, int]:
    """The first rounds, and the most bytes that rows and vocabularies of open partitions take."""
    to_come = Lookahead(plan.rounds(Cursor()), delay + 1, PREFETCH, plan.turns)
    under_way: deque[Round] = deque()
    rounds: list[Round] = []
    is_open: dict[int, Partition] = {}
    open_bytes = vocabulary_bytes = 0
    nothing = np.zeros(0, np.int64)
    while len(rounds) < MOST_ROUNDS:
        for opened in to_come.opens(under_way):
            is_open[opened.visit] = data.partitions[opened.partition]
            to_come.opened(opened.visit, nothing)
            now = is_open.values()
            open_bytes = max(open_bytes, sum(decoded_bytes(data, one) for one in now))
            vocabulary_bytes = max(vocabulary_bytes, sum(8 * one.n_local for one in now))
        taken = to_come.take() if len(under_way) <= delay else None
        if taken is not None:
            under_way.append(taken[0])
            rounds.append(taken[0])
        elif under_way:
            for piece in under_way.popleft().pieces:
                if piece.last and to_come.closed(piece.visit):
                    del is_open[piece.visit]
        else:
            break
    return rounds, open_bytes, vocabulary_bytes
