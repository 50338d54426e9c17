"""log sum_i exp(score_i) over many scores of which a few change at a time.

A tree: each node holds the log-sum-exp of its up to `FANOUT` children. When some scores change,
their ancestors are computed again from their children, so a change costs O(log n) nodes and no
rounding error is ever carried on: the tree is a function of the scores alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dadagrad.learners.base import Array, Ids

FANOUT = 32


def build(leaves: Callable[[Ids], Array], n_leaves: int, n_columns: int) -> list[Array]:
    """The levels of the tree over `leaves`, from the nodes above them to the (1, n_columns) root.

    Parameters
    ----------
    leaves : function
        Gives the scores at an array of places, with one more axis of n_columns.
    n_leaves, n_columns : int
        At least 1.
    """
    levels = [np.zeros((size, n_columns)) for size in sizes(n_leaves)]
    refresh(levels, leaves, n_leaves, np.arange(n_leaves))
    return levels


def sizes(n_leaves: int) -> list[int]:
    """How many nodes each level has, from those above the leaves to the root."""
    found = [-(-n_leaves // FANOUT)]
    while found[-1] > 1:
        found.append(-(-found[-1] // FANOUT))
    return found


def refresh(levels: list[Array], leaves: Callable[[Ids], Array], n_leaves: int, ids: Ids) -> None:
    """Bring the `levels` up to date, in place, after the leaves `ids` changed."""
    below, n_below, touched = leaves, n_leaves, ids
    for level in levels:
        touched = np.unique(touched // FANOUT)
        children = touched[:, None] * FANOUT + np.arange(FANOUT)
        terms = below(np.minimum(children, n_below - 1))
        terms[children >= n_below] = -np.inf
        largest = terms.max(axis=1)
        level[touched] = largest + np.log(np.exp(terms - largest[:, None]).sum(axis=1))
        below, n_below = level.__getitem__, len(level)
