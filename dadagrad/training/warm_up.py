"""Compiling the kernels a method needs, once, before the clock of a run starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dadagrad.compiled import is_compiled
from dadagrad.data.rows import Rows
from dadagrad.method import Method
from dadagrad.training.gradient_sums import GradientSums, RoundSum
from dadagrad.training.intercept import step_intercepts
from dadagrad.training.plan import Piece
from dadagrad.training.protocol import Gradient, WalkedShare, WeightsInState
from dadagrad.training.shares import ShareInState, Walk
from dadagrad.training.state import State
from dadagrad.training.tally import count

_warm: set[tuple[bool, ...]] = set()


def warm_up(method: Method, announce: Callable[[str], None]) -> float:
    """Compile, or load from the cache on disk, what `method` runs; the seconds it took.

    Types decide what is compiled, so a single row, or pair, does. Says beforehand when it may take
    long.
    """
    from dadagrad import kernels
    from dadagrad.loss_kernels import count_rows
    from dadagrad.training.worker import as_batch, compute

    begun = time.perf_counter()
    update, couples = method.config.update, method.loss.couples
    even, exchange = method.bundle_width % 2 == 0, method.config.exchange
    kind = (
        method.compiled,
        method.online,
        update == "mirror-descent",
        couples,
        even,
        exchange == "local-steps",
        method.delay > 0,
    )
    first: Any = kernels.walk_dual if method.compiled else kernels.apply_dual
    if method.learns_by_row:  # which calls no kernel but what counts
        kind, first = (False, False, False, couples, False, False, False), count_rows
    if kind in _warm:
        return 0.0
    if not is_compiled(first):
        announce("compiling the kernels (once on this machine, a few seconds)")
    two_features = replace(method, n_features=2)
    labels = [0.0 if column.values is None else column.values[0] for column in method.label_columns]
    # The second row is for rankings, which pair the first with it.
    rows = Rows(
        np.arange(2),
        np.array([0, 1, 1], np.int64),
        np.zeros(1, np.int32),
        np.ones(1, np.float32),
        np.array([labels, [label + 1.0 for label in labels]]),
        queries=np.zeros(2, np.int64),
    )
    nothing = np.zeros((method.n_outputs, 1))
    count(two_features, as_batch(rows.slice(0, 1), None), nothing, "the warm-up", 0)
    if method.learns_by_row:
        _warm.add(kind)
        return time.perf_counter() - begun
    # What runs as it is written down calls kernels for intercepts and gradients alone, and may
    # not be possible with two features.
    state = State.zero(two_features)
    piece = Piece(0, 0, 0, 1, True)
    if method.online and not method.compiled:
        step_intercepts(two_features, state.intercept, 0.0, nothing.T, np.zeros((0, 0)))
        state.intercepts(two_features)
    elif method.online:
        state = State.zero(replace(method, n_features=3))  # of which the rows have some, not all
        compute(two_features, rows, piece, state, "the warm-up")
        if exchange == "local-steps":
            _merge(two_features, rows, piece, State.zero(two_features))
    else:
        _pack(rows)
        intercept = state.intercepts(two_features)
        given = WeightsInState(two_features, state, rows.vocabulary, intercept)
        result = compute(two_features, rows, piece, given, "the warm-up")
        assert isinstance(result, Gradient)
        sums = GradientSums(two_features)
        total = sums.total([rows.vocabulary] * 2, [result] * 2)
        if method.delay:
            done = RoundSum(total, (replace(result.tally, weight=1.0),))
            total = sums.delayed(done, [done])
        state.step(two_features, total, 1.0)
    state.weights(two_features)
    _warm.add(kind)
    return time.perf_counter() - begun


def _merge(method: Method, rows: Rows, piece: Piece, state: State) -> None:
    """What local steps take besides."""
    from dadagrad.training.merge import merge
    from dadagrad.training.worker import compute

    _pack(rows)
    given = ShareInState(state, rows.vocabulary, None)
    result = compute(method, rows, piece, given, "the warm-up")
    assert isinstance(result, WalkedShare)
    walk = Walk(rows.vocabulary[result.positions], result.state)
    merge(method, state, [walk, walk.then(walk)])
    walk.put_into(walk.ids, walk.share)


def _pack(rows: Rows) -> None:
    """What rows touch, and their vocabulary, as they are asked and sent."""
    from dadagrad.training.compact import mark, marked

    for numbers in (rows.indices, rows.vocabulary):
        marked(mark(numbers, rows.n_local))
