"""Pairs of rows of one query: what the ranking loss learns from.

A ranking is linear: row a goes before row b where <w, x_a> > <w, x_b>, that is where
<w, x_a - x_b> > 0. So a pair is a row of differences x_a - x_b, where a is the more relevant of
the two, and the ranking loss is the hinge loss of its score.

In each pass each row is paired with one other row of its query, drawn from those with another
relevance. So there are as many pairs as rows, as the schedule of a run expects; a row without such
a partner stays as a pair of importance 0. The draw depends on the seed, the
reading and the row alone: not on threads, on how the rows are cut into slices, or on the datasets
that were learned from before.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dadagrad.data.rows import Rows, query_begins, split_mix
from dadagrad.errors import InputError
from dadagrad.training.schedule.base import Slice

_NONE = np.zeros(0, np.float32)


def pair_rows(rows: Rows, slice_: Slice, seed: int, place: str) -> Rows:
    """The pairs of the rows of `slice`, one for each, over the vocabulary of the partition `rows`.

    A query is a run of neighbours with the same ``rows.queries``; the label is the relevance. The
    labels of the pairs are 1, their weight is that of the row of the slice, or 0 where it has no
    partner.

    Raises
    ------
    InputError
        The rows have no queries.
    """
    if rows.queries is None:
        raise InputError(f"{place}: the rows have no queries; a ranking needs one for each row")
    start, stop = slice_.start, slice_.stop
    drawn = (seed, *(slice_.in_dataset or (slice_.reading, slice_.partition)))
    partners = draw_partners(rows.labels[:, 0], rows.queries, start, stop, drawn)
    learned = np.arange(start, stop)
    paired = partners >= 0
    partner_rows = np.where(paired, partners, learned)
    before = rows.labels[learned, 0] > rows.labels[partner_rows, 0]
    more, less = np.where(before, learned, partner_rows), np.where(before, partner_rows, learned)
    weights = paired.astype(np.float32)
    if rows.weights is not None:
        weights *= rows.weights[start:stop]
    lengths = np.diff(rows.indptr)
    most = int((lengths[more] + lengths[less])[paired].sum())
    indptr = np.zeros(len(learned) + 1, np.int64)
    indices, values = np.empty(most, np.int32), np.empty(most, np.float32)
    count = _subtract(
        rows.indptr,
        rows.indices,
        _NONE if rows.values is None else rows.values,
        _NONE if rows.row_scale is None else rows.row_scale,
        more,
        less,
        indptr,
        indices,
        values,
    )
    return replace(
        rows,
        indptr=indptr,
        indices=indices[:count],
        values=values[:count],
        labels=np.ones((len(learned), 1)),
        weights=weights,
        row_scale=None,
        queries=rows.queries[start:stop],
    )


def draw_partners(
    relevance: NDArray[np.float64],
    queries: NDArray[np.int64],
    start: int,
    stop: int,
    seed: tuple[int, ...],
) -> NDArray[np.int64]:
    """For each row from `start` to `stop` another of its query, of another relevance; -1 for none.

    All such rows are equally likely. `relevance` and `queries` are (n_rows,), of all rows.
    """
    begins = np.append(query_begins(queries), len(queries))
    first = begins[np.searchsorted(begins, start, side="right") - 1]
    last = begins[np.searchsorted(begins, stop, side="left")]
    query = np.searchsorted(begins, np.arange(first, last), side="right")
    # In this order the rows of a query are together, and in it those of one relevance.
    order = np.lexsort((relevance[first:last], query))
    query, relevance = query[order], relevance[first:last][order]
    new_query = np.diff(query, prepend=-1) != 0
    new_group = new_query | (np.diff(relevance, prepend=np.nan) != 0)
    query_begin, query_end = _stretches(new_query)
    group_begin, group_end = _stretches(new_group)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    place = place[start - first : stop - first]
    before = (group_begin - query_begin)[place]
    others = before + (query_end - group_end)[place]
    drawn = (_uniform(seed, start, stop) * others).astype(np.int64)
    # Of the places of the query, those of the row's own group are left out.
    skipped = np.where(drawn < before, 0, (group_end - group_begin)[place])
    chosen = (query_begin[place] + drawn + skipped) * (others > 0)
    return np.where(others > 0, first + order[chosen], -1)


def _stretches(new: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first and last place of the stretch of each place; `new` marks the first places."""
    begins = np.append(np.flatnonzero(new), len(new))
    number = np.cumsum(new) - 1
    return begins[number], begins[number + 1]


def _uniform(seed: tuple[int, ...], start: int, stop: int) -> NDArray[np.float64]:
    """Numbers in [0, 1), one for each row by its number."""
    key = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    mixed = split_mix(key, np.arange(start + 1, stop + 1, dtype=np.uint64))
    return np.asarray(mixed >> np.uint64(11), np.float64) * 2.0**-53


@njit(nogil=True, cache=True, error_model="numpy")
def _subtract(indptr, indices, values, scales, more, less, to, out_indices, out_values):  # type: ignore[no-untyped-def]
    """Rows `more` less rows `less`, without what cancels; the number of entries."""
    count = 0
    for pair in range(len(more)):
        a, b = more[pair], less[pair]
        i, end_a = indptr[a], indptr[a + 1]
        j, end_b = indptr[b], indptr[b + 1]
        scale_a = scales[a] if len(scales) else np.float32(1.0)
        scale_b = scales[b] if len(scales) else np.float32(1.0)
        while a != b and (i < end_a or j < end_b):
            value = np.float32(0.0)
            from_a = j == end_b or (i < end_a and indices[i] <= indices[j])
            index = indices[i] if from_a else indices[j]
            if from_a:
                value = scale_a * (values[i] if len(values) else np.float32(1.0))
                i += 1
            if j < end_b and indices[j] == index:
                value -= scale_b * (values[j] if len(values) else np.float32(1.0))
                j += 1
            if value != 0.0:
                out_indices[count] = index
                out_values[count] = value
                count += 1
        to[pair + 1] = count
    return count
