"""Quality of an order of the rows of queries: pairs in the right order, and NDCG."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dadagrad.data.rows import query_begins
from dadagrad.optim.arrays import Array
from dadagrad.optim.losses import Loss

TOP = 10
"""Number of the first rows of a query that count in its NDCG."""


@dataclass(slots=True)
class RankingScores:
    """Sums over queries, each of which counts as one.

    Over the `paired` queries, which have rows of different relevance: `accuracy`, the share of
    pairs in the right order (equal scores count half), and `loss`, the mean loss of pairs: hinge,
    or that of a user's own class, `own_loss`.
    Over the `relevant` ones, which have a row of relevance above 0: the `ndcg` of `TOP` rows.
    """

    own_loss: Loss | None = None
    queries: int = 0
    paired: int = 0
    accuracy: float = 0.0
    loss: float = 0.0
    relevant: int = 0
    ndcg: float = 0.0

    def add(self, relevance: Array, queries: NDArray[np.int64], scores: Array) -> None:
        """Add the queries of some rows; all three are (n_rows,)."""
        begins = np.append(query_begins(queries), len(queries))
        for start, stop in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
            of_query = slice(start, stop)
            pairs, right, loss = _count_pairs(relevance[of_query], scores[of_query])
            if pairs:
                if self.own_loss is not None:
                    loss = _sum_losses(self.own_loss, relevance[of_query], scores[of_query])
                self.paired += 1
                self.accuracy += right / pairs
                self.loss += loss / pairs
            quality = ndcg(relevance[of_query], scores[of_query])
            if quality is not None:
                self.relevant += 1
                self.ndcg += quality
        self.queries += len(begins) - 1

    def means(self) -> dict[str, float | None]:
        """Mean loss, accuracy and NDCG of a query; None where none has them."""
        sums = {
            "loss": (self.loss, self.paired),
            "accuracy": (self.accuracy, self.paired),
            "ndcg": (self.ndcg, self.relevant),
        }
        return {name: total / count if count else None for name, (total, count) in sums.items()}


def _sum_losses(loss: Loss, relevance: Array, scores: Array) -> float:
    """Sum of the losses of the pairs of a query."""
    margins = (
        score - scores[relevance < each] for each, score in zip(relevance, scores, strict=True)
    )
    return sum(float(loss.value(gaps, np.ones(len(gaps))).sum()) for gaps in margins)


def ndcg(relevance: Array, scores: Array) -> float | None:
    """Normalised discounted cumulative gain of the order by falling scores.

    The sum over the first `TOP` rows of (2^relevance - 1) / log2(1 + place), over the same of the
    best order. Rows of equal score share their places, as if in random order, so that a constant
    score gains nothing by the order of the rows. A relevance below 0 counts as 0; None if no row
    has one above.
    """
    relevance = np.maximum(relevance, 0.0)
    largest = relevance.max(initial=0.0)
    if largest == 0.0:
        return None
    # Scaled by the largest gain, or large relevances would overflow.
    gains = np.exp2(relevance - largest) - np.exp2(-largest)
    places = np.arange(len(gains))
    discounts = np.where(places < TOP, 1.0 / np.log2(2.0 + places), 0.0)
    best = float(np.sort(gains)[::-1] @ discounts)
    order = np.argsort(-scores, kind="stable")
    begins = np.flatnonzero(np.diff(scores[order], prepend=np.nan) != 0.0)
    sizes = np.diff(np.append(begins, len(gains)))
    shared = np.add.reduceat(gains[order], begins) / sizes
    return float(shared @ np.add.reduceat(discounts, begins)) / best


@njit(nogil=True, cache=True)
def _count_pairs(relevance, scores):  # type: ignore[no-untyped-def]
    """Numbers of pairs of different relevance and of those in order; sum of their hinge losses."""
    pairs, right, loss = 0, 0.0, 0.0
    for a in range(len(relevance)):
        for b in range(len(relevance)):
            if relevance[a] > relevance[b]:
                margin = scores[a] - scores[b]
                pairs += 1
                if margin > 0.0:
                    right += 1.0
                elif margin == 0.0:
                    right += 0.5
                loss += max(0.0, 1.0 - margin)
    return pairs, right, loss
