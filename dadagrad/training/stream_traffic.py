"""What local steps will move and hold open, as `dadagrad.training.traffic` has it for batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from dadagrad.data.dataset import Dataset
from dadagrad.method import Method
from dadagrad.training.plan import Cursor
from dadagrad.training.states import feature_bytes
from dadagrad.training.streams import StreamPlan, StreamRound
from dadagrad.training.traffic import PREFETCH, Moved, Walk, decoded_bytes

MOST_PIECES = 20_000
"""Of a pass that are looked at."""


def follow_streams(data: Dataset, method: Method, plan: StreamPlan) -> Walk:
    """Follow the first pass of `plan`, or its beginning, without data.

    A step is a row, and what moves in a round is shared by its rows. `step_touched` is what the
    streams of a round touch together, each counted for itself.
    """
    rounds = list(islice(plan.rounds(Cursor()), plan.first_rounds))
    kept = max(1, MOST_PIECES // max(1, max(_n_pieces(one) for one in rounds)))
    # The last rounds are the largest.
    looked_at = rounds if kept >= len(rounds) else rounds[-kept:]
    of_feature = feature_bytes(method)
    moved = [
        [
            Moved.of(method, data.partitions[piece.partition], piece, of_feature, 16, of_feature)
            for stretch in one.stretches
            for piece in stretch
        ]
        for one in looked_at
    ]
    n_rows = sum(piece.rows for one in moved for piece in one)
    return Walk.of(*_open(data, rounds), moved, n_rows)


def _n_pieces(one: StreamRound) -> int:
    return sum(len(stretch) for stretch in one.stretches)


def _open(data: Dataset, rounds: Sequence[StreamRound]) -> tuple[int, int]:
    """The most bytes that rows and vocabularies of open partitions take.

    Each stream has one open where it is, shared or not, and some more are open ahead.
    """
    most_rows = most_vocabulary = 0
    largest = sorted((decoded_bytes(data, one) for one in data.partitions), reverse=True)[:PREFETCH]
    widest = sorted((8 * one.n_local for one in data.partitions), reverse=True)[:PREFETCH]
    lasting: dict[int, int] = {}
    for one in rounds:
        now = {stretch[0].visit: stretch[0].partition for stretch in one.stretches} | lasting
        found = [data.partitions[partition] for partition in now.values()]
        most_rows = max(most_rows, sum(decoded_bytes(data, partition) for partition in found))
        most_vocabulary = max(most_vocabulary, sum(8 * partition.n_local for partition in found))
        ends = [stretch[-1] for stretch in one.stretches if not stretch[-1].last]
        lasting = {piece.visit: piece.partition for piece in ends}
    return most_rows + sum(largest), most_vocabulary + sum(widest)
